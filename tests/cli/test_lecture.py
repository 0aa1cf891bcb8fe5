"""`regard lecture` lists lectures and headings, prints an entry, and runs its commands here."""

from __future__ import annotations


def test_lectures_are_listed_with_the_number_of_their_headings(cli):
    lines = cli("lecture").out.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == ["000", "001", "002", "003", "004"]
    assert cli("lecture", "--json").document["lectures"][2]["number"] == "002"


def test_headings_of_a_lecture_are_listed_in_order(cli):
    done = cli("lecture", "004")
    assert done.code == 0 and done.out.index("Encoder: Self-Attention") < done.out.index("Trick #1")
    headings = cli("lecture", "004", "--json").document["headings"]
    assert headings[0] == {"lecture": "004", "heading": "Large Language Models"}
    assert cli("lecture", "4", "--json").document["headings"] == headings


def test_a_word_finds_headings_of_all_lectures(cli):
    headings = cli("lecture", "attention", "--json").document["headings"]
    assert {row["lecture"] for row in headings} == {"000", "001", "002", "003", "004"}
    assert all("attention" in row["heading"].lower() for row in headings)


def test_a_heading_has_its_idea_commands_and_class(cli):
    done = cli("lecture", "002", "positional encoding")
    assert "  regard lab positions --quick --out lab" in done.out.splitlines()
    assert "class: regard.layers.positions.Sinusoidal" in done.out
    assert "file: src/regard/layers/positions.py" in done.out


def test_a_correction_is_printed_with_the_heading(cli):
    document = cli("lecture", "002", "top P-sampling", "--json").document
    assert document["correction"].startswith("Top-P is a rule for each token")
    assert "Correction: Top-P is a rule" in cli("lecture", "002", "top P-sampling").out


def test_a_heading_without_a_command_says_why(cli):
    assert "no command: title slide" in cli("lecture", "000", "Lecture #15").out
    refused = cli("lecture", "000", "Lecture #15", "--run")
    assert refused.code == 2 and "title slide" in refused.err


def test_run_makes_the_data_once_and_runs_the_command(cli, tmp_path):
    done = cli("lecture", "002", "introduction", "--run")
    assert done.code == 0 and (tmp_path / "names.txt").is_file()
    assert "$ regard example names" in done.err and "$ regard data names.txt" in done.err
    assert "26,886" in done.out
    again = cli("lecture", "002", "introduction", "--run")
    assert again.code == 0 and "there already: names.txt" in again.err


def test_a_command_that_fails_ends_the_run_with_its_code(cli, tmp_path):
    (tmp_path / "names.txt").mkdir()
    done = cli("lecture", "002", "introduction", "--run")
    assert done.code not in (0, None) and "error: " in done.err


def test_mistakes_have_a_hint(cli):
    for arguments, message in [
        (("009",), "unknown lecture '009'"),
        (("zzz",), "no heading of the lectures has 'zzz'"),
        (("002", "beem search"), "did you mean 'beam search'"),
        (("002", "--run"), "--run needs a lecture and a heading"),
    ]:
        done = cli("lecture", *arguments)
        assert done.code == 2 and message in done.err
