"""regard rm: removes what it names, after a question, and nothing else."""

import shutil

import pytest
import typer

from regard.cli import rm


@pytest.fixture
def run(bigram, tmp_path):
    shutil.copytree(bigram, tmp_path / "runs" / "old")
    return tmp_path / "runs" / "old"


def test_without_a_terminal_nothing_is_removed_unless_it_is_confirmed(cli, run):
    found = cli("rm", "runs/old")
    assert found.code == 2 and "add --yes" in found.err and run.exists()
    found = cli("rm", "runs/old", "--yes", "--json")
    assert found.document["removed"] == ["runs/old"] and found.document["bytes"] > 1000
    assert not run.exists()


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_asks(cli, run, monkeypatch, answer):
    questions = []

    def confirm(text, **options):
        questions.append(text)
        return answer

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(rm.sys.stdin, "isatty", lambda: True, raising=False)
    found = cli("rm", "runs/old")
    assert found.code == 0 and run.exists() != answer
    assert questions[0].startswith("remove runs/old (bigram, words.txt, ")
    assert ("removed runs/old" in found.out) == answer


def test_if_one_is_no_run_none_is_removed(cli, run, tmp_path):
    (tmp_path / "mine").mkdir()
    found = cli("rm", "runs/old", "mine", "--yes")
    assert found.code == 1 and "mine: neither a run nor a comparison" in found.err
    assert run.exists() and (tmp_path / "mine").exists()
