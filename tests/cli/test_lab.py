"""`regard lab`: the list, an experiment's table, files and document."""

from __future__ import annotations

import json

import pytest

from regard.cli import run
from regard.lab import distance
from regard.lab.distance import CONVOLUTION, FULL, MATRIX, Plan
from regard.lab.motif_readers import Lessons


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Too small to learn anything: claims fail, which is no failure."""
    lessons = Lessons(distances=(2, 40), steps=2, batch=4, examples=40, parameters=9_000)
    plan = Plan(lessons=lessons, readers=(MATRIX, CONVOLUTION, FULL), tested=200, seeds=2)
    monkeypatch.setattr(distance, "SMALL", plan)


def test_without_a_name_the_experiments_are_listed(capsys):
    assert run(["lab"]) == 0
    assert "distance" in capsys.readouterr().out
    assert run(["lab", "--json"]) == 0
    assert "distance" in json.loads(capsys.readouterr().out)["experiments"]


def test_an_experiment_prints_its_table_and_claims_and_says_where_the_page_is(tmp_path, capsys):
    assert run(["lab", "distance", "--quick", "--out", str(tmp_path / "x"), "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "distance 40" in out and "full attention" in out and "seed by seed" in out
    assert "fails" in out and "holds" in out
    files = out.strip().splitlines()[-1].split(", ")
    assert files == [str(tmp_path / "x" / f"distance.{end}") for end in ("html", "svg", "png")]
    assert "Two motifs, far apart" in (tmp_path / "x" / "distance.html").read_text()


def test_json_is_one_document_with_claims_and_figures(tmp_path, capsys):
    asked = ["lab", "distance", "--quick", "--out", str(tmp_path), "--json"]
    assert run(asked) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert {"name", "stated", "measured", "holds"} == set(document["claims"][0])
    assert not all(claim["holds"] for claim in document["claims"])
    assert [path.rpartition(".")[2] for path in document["figures"]] == ["html", "svg", "png"]


def test_a_wrong_name_is_wrong_usage(capsys):
    assert run(["lab", "distanse"]) == 2
    assert "did you mean 'distance'" in capsys.readouterr().err
