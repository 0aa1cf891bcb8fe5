"""regard runs: a list that fits a terminal, and one document."""

import json
import re
import shutil

import pytest

from regard.api import load
from regard.cli import runs


def test_runs_are_listed_with_what_they_are(cli, bigram, transformer, words, tmp_path):
    assert "no runs in" in cli("runs", tmp_path).out
    for run in (bigram, transformer):
        shutil.copytree(run, tmp_path / "runs" / run.name)
    found = cli("runs")
    assert found.code == 0 and found.err == ""
    head, *rows = found.out.splitlines()
    assert head.split() == ["run", "task", "data", "model", "metric", "date", "size"]
    assert {row.split()[0] for row in rows} == {"runs/bigram", "runs/transformer"}
    document = cli("runs", "runs", "--json").document["runs"]
    by_model = {run["model"]: run for run in document}
    facts = json.loads((transformer / "regard.json").read_text())["metrics"]["test"]
    expected = facts["bits_per_symbol"]
    assert by_model["transformer"]["metric"]["value"] == expected["value"]
    assert by_model["transformer"]["data"] == words.name and by_model["bigram"]["task"] == "next"
    assert cli("runs", "nowhere").code == 1


@pytest.mark.parametrize("width", [80, 300])
def test_a_terminal_that_is_too_narrow_has_two_lines_for_each(
    cli, bigram, tmp_path, monkeypatch, width
):
    shutil.copytree(bigram, tmp_path / "runs" / ("long" * 12))
    monkeypatch.setattr(runs, "get_terminal_size", lambda: type("size", (), {"columns": width}))
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(runs.sys, "stdout", Terminal(runs.sys.stdout))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", cli("runs").out).splitlines()
    assert ("task" in lines[0].split()) == (width == 300)
    assert all(len(line) <= width for line in lines) and len(lines) == 2


class Terminal:
    """A stream that says it is a terminal."""

    def __init__(self, stream):
        self.stream = stream

    def isatty(self):
        return True

    def __getattr__(self, name):
        return getattr(self.stream, name)


def test_the_newest_run_or_comparison_is_the_latest_wherever_a_run_is_expected(
    cli, words, tmp_path
):
    assert cli("train", words, "--model", "unigram", "--out", "elsewhere").code == 0
    assert not (tmp_path / "runs").exists()  # nothing but what was asked for
    for model in ("unigram", "bigram"):
        assert cli("train", words, "--model", model).code == 0
        found = cli("evaluate", "runs/latest", "--json")
        direct = cli("evaluate", f"runs/words-{model}", "--json")
        assert found.code == 0 and found.document == direct.document
    assert [run["path"] for run in cli("runs", "--json").document["runs"]] == [
        "runs/words-bigram",
        "runs/words-unigram",
    ]


def test_a_comparison_stands_for_its_best_row(cli, bigram, transformer, tmp_path):
    rows = {"transformer": transformer, "bigram": bigram}
    for model, run in rows.items():
        shutil.copytree(run, tmp_path / "compared" / model)
    document = {
        "task": "next",
        "split": "test",
        "ranked_by": "nats_per_symbol",
        "verdict": "Use transformer.",
        "rows": [{"model": model, "metrics": {}} for model in rows],
    }
    (tmp_path / "compared" / "compare.json").write_text(json.dumps(document))
    found = cli("evaluate", "compared", "--json")
    assert found.err == ("compared is a comparison: its best row, compared/transformer, is used\n")
    assert found.document == cli("evaluate", "compared/transformer", "--json").document
    assert load(tmp_path / "compared").run.path == tmp_path / "compared" / "transformer"
