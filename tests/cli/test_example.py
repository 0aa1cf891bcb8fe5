"""`regard example` lists, writes and never overwrites what differs."""

from __future__ import annotations


def test_examples_are_listed_with_what_they_are(cli):
    lines = cli("example").out.splitlines()
    assert lines[1].startswith("names ") and any(line.startswith("series ") for line in lines)
    assert {one["name"] for one in cli("example", "--json").document["examples"]} >= {"digits"}


def test_an_example_is_written_here_and_the_next_command_is_said(cli, tmp_path):
    done = cli("example", "questions", "--out", "q")
    assert done.code == 0 and "next: regard train questions.tsv" in done.out
    assert (tmp_path / "q" / "questions.tsv").read_text().startswith("question\tkind\n")
    assert cli("example", "questions", "--out", "q").code == 0  # the same files again


def test_a_file_that_differs_is_kept_unless_forced(cli, tmp_path):
    (tmp_path / "names.txt").write_text("mine\n")
    refused = cli("example", "names")
    assert refused.code == 1 and "names.txt exists and differs" in refused.err
    assert (tmp_path / "names.txt").read_text() == "mine\n"
    assert cli("example", "names", "--force").code == 0
    assert len((tmp_path / "names.txt").read_text().splitlines()) == 26_886


def test_an_unknown_example_has_a_suggestion(cli):
    wrong = cli("example", "nmaes")
    assert wrong.code == 2 and "did you mean 'names'" in wrong.err
