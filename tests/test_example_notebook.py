"""The notebook in examples/ runs from top to bottom."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"


def run_cell(source: str, names: dict[str, object]) -> object:
    """Run a cell as Jupyter does; return the value of its last expression."""
    body = ast.parse(source).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs_without_jupyter(tmp_path, monkeypatch, rows_here):
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4 and len(document["cells"]) == 20
    names: dict[str, object] = {}
    shown = [
        run_cell("".join(cell["source"]), names)
        for cell in document["cells"]
        if cell["cell_type"] == "code"
    ]
    assert not any(cell.get("outputs") for cell in document["cells"])
    assert names["result"].metrics["accuracy"].value > 0.9  # of made-up questions, 3% mislabelled
    assert names["result"].model.predict(names["new"]).tolist() == ["person", "number"]
    assert all(hasattr(names[name], "_repr_html_") for name in ("result", "comparison"))
    assert all(text.startswith("ma") for text in shown[8]) and len(shown[8]) == 5
    assert (tmp_path / "look.html").stat().st_size > 10_000
    assert shown[-1].min() > 0.8
