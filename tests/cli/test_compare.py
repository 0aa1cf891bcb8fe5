"""`regard compare`: one table from several processes, completed rather than repeated."""

from __future__ import annotations

import json

import pytest

from regard import compare
from regard.cli import run
from regard.evaluate import rungs

STEPS = ["train.steps=3", "train.batch_tokens=64", "model.dropout=0"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "words.txt"
    path.write_text(
        "".join("abcde"[i % 5 :: 1 + i % 3] + "abc"[: i % 4] + "\n" for i in range(400))
    )
    return path


def test_a_comparison_trains_measures_writes_and_is_completed(words, tmp_path, capsys, monkeypatch):
    out = tmp_path / "compared"
    asked = ["compare", str(words), "--models", "bigram,lstm", "--out", str(out), "--quiet"]
    asked += [word for step in STEPS[:2] for word in ("--set", step)]
    assert run(asked) == 0
    table = capsys.readouterr().out
    assert "lstm" in table and "compare.html" in table
    document = json.loads((out / "compare.json").read_text())
    assert [r["model"] for r in document["rows"]] and document["verdict"]
    assert all(r["peak_memory_bytes"] > 1 << 20 for r in document["rows"])
    page = (out / "compare.html").read_text()
    assert "Surprise" in page and "<script src" not in page
    trained = []
    monkeypatch.setattr(rungs, "train", lambda one, told: trained.append(one.model))
    assert run([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] and not trained  # all of it was done


def test_a_row_that_fails_is_named_with_its_reason(words, tmp_path):
    with pytest.raises(rungs.UserError, match=r"bigram could not be trained: .*forbidden"):
        compare([words], models=["bigram"], out=tmp_path / "x", assignments=["train.forbid=/none"])
