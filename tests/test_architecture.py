"""Packages import one way, as docs/explanation/architecture.md draws it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import regard

ROOT = Path(__file__).parents[1]


def test_imports_point_one_way(monkeypatch):
    from importlinter.cli import lint_imports

    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0


def test_every_package_stands_in_one_layer():
    """A new package must be given its place, or the contract would say nothing of it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    layers = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    folder = Path(regard.__file__).parent
    modules = [
        p.stem for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    ]
    assert sorted(layers) == sorted(set(modules) - {"__init__"})
