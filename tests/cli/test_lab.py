"""`regard lab`: the list, an experiment's table, files and document."""

from __future__ import annotations

import json
import re

import pytest

import regard.lab
from regard.cli import run
from regard.lab import EXPERIMENTS, distance
from regard.lab.distance import CONVOLUTION, FULL, MATRIX, Lessons, Plan


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Too small to learn anything, and therefore to decide the claims."""
    lessons = Lessons(distances=(2, 40), steps=2, batch=4, examples=40, parameters=9_000)
    plan = Plan(lessons=lessons, models=(MATRIX, CONVOLUTION, FULL), tested=200, seeds=2)
    monkeypatch.setattr(distance, "SMALL", plan)


def test_without_a_name_the_experiments_are_listed(capsys):
    assert run(["lab"]) == 0
    assert "distance" in capsys.readouterr().out
    assert run(["lab", "--json"]) == 0
    assert "distance" in json.loads(capsys.readouterr().out)["experiments"]


def test_an_experiment_prints_its_tables_claims_and_files(tmp_path, capsys):
    assert run(["lab", "distance", "--quick", "--out", str(tmp_path / "x"), "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "distance 40" in out and "full attention" in out and "seed by seed" in out
    assert re.search(r"^too small to tell +full attention relates", out, re.MULTILINE)
    assert re.search(r"^\d of 5 claims hold, \d fails?, \d too small to tell$", out, re.MULTILINE)
    files = out.strip().splitlines()[-1].split(", ")
    figure = "distance-01-relating-two-motifs-by-their-distance"
    names = ["distance.html", f"{figure}.svg", f"{figure}.png"]
    assert files == [str(tmp_path / "x" / name) for name in names]
    assert "Two motifs, far apart" in (tmp_path / "x" / "distance.html").read_text()


def test_json_is_one_document_with_claims_and_figures(tmp_path, capsys):
    assert run(["lab", "distance", "--quick", "--out", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert {"name", "stated", "measured", "holds", "interval"} == set(document["claims"][0])
    claims = {claim["name"]: claim for claim in document["claims"]}
    undecided = claims["full attention relates motifs at every distance"]
    assert undecided["holds"] is None and undecided["interval"][1] is None
    assert [path.rpartition(".")[2] for path in document["figures"]] == ["html", "svg", "png"]


def test_an_unknown_name_is_a_usage_error(capsys):
    assert run(["lab", "distanse"]) == 2
    assert "did you mean 'distance'" in capsys.readouterr().err


def test_all_makes_a_gallery_and_a_file_goes_to_experiments_that_take_one(
    tmp_path, capsys, monkeypatch
):
    few = {name: EXPERIMENTS[name] for name in ("lookup", "bayes")}
    monkeypatch.setattr(regard.lab, "EXPERIMENTS", few)
    assert run(["lab", "all", "--quick", "--out", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(name))
    assert {claim["experiment"] for claim in document["claims"]} == {"lookup", "bayes"}
    assert document["figures"][0] == str(tmp_path / "index.html") and not document["not_tried"]
    (tmp_path / "words.tsv").write_text("houses\tHaus\nmountain\tBerg\n")
    assert run(["lab", "lookup", str(tmp_path / "words.tsv"), "--out", str(tmp_path)]) == 0
    assert "Berg" in capsys.readouterr().out
    assert run(["lab", "bayes", "some.txt"]) == 2
    assert "takes no file" in capsys.readouterr().err
