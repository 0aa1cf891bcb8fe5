"""regard translate, and evaluate and score on pairs: line in, line out, one line for mistakes."""

import gzip
import io
import sys

import pytest

from regard import run
from regard.decoding import Beam, Greedy, MinimumBayesRisk
from regard.evaluation.translation import score_translations
from regard.storage import write_tensors
from regard.training import progress

LINES = ["abc", "", "hg fe", "a", " ", "ponm.", "abc"]


@pytest.fixture
def run_folder(translator, tmp_path):
    """A run folder of a small translator of letters."""
    folder = tmp_path / "letters"
    folder.mkdir()
    run.write_config(folder, "transformer", translator.model)
    write_tensors(folder / run.WEIGHTS, run.weights(translator.model))
    translator.tokenizer.save(folder / translator.tokenizer.file)
    return folder


@pytest.fixture
def said(monkeypatch):
    """Bytes on standard input."""

    def say(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return say


def test_a_line_in_is_a_line_out(cli, run_folder, translator, tmp_path, said):
    expected = [found[0].text for found in translator.translate(LINES)]
    assert expected[1] == expected[4] == "" and len(set(expected)) == 5
    text = "\n".join(LINES) + "\n"
    (tmp_path / "in.txt").write_text(text)
    (tmp_path / "in.gz").write_bytes(gzip.compress(text.replace("\n", "\r\n").encode()))
    for file in ("in.txt", "in.gz"):
        assert cli("translate", run_folder, file).out.split("\n") == [*expected, ""]
    for arguments in ([], ["-"], ["--batch-size", 1]):
        said(text.rstrip("\n").encode())  # the last line has no end
        found = cli("translate", run_folder, *arguments)
        assert found.code == 0 and found.err == ""
        assert found.out.split("\n") == [*expected, ""]


def test_n_best_are_grouped_by_line_and_sorted(cli, run_folder, translator, said):
    said("\n".join(LINES).encode())
    rows = [row.split("\t") for row in cli("translate", run_folder, "--n-best", 3).out.splitlines()]
    found = translator.translate(LINES, Beam(5, 1.0, 3))
    expected = [(str(n), one) for n, several in enumerate(found, 1) for one in several]
    assert [(n, text) for n, _, text in rows] == [(n, one.text) for n, one in expected]
    for (_, score, _), (_, one) in zip(rows, expected, strict=True):
        assert float(score) == pytest.approx(one.score, abs=1e-3)
    assert [n for n, _, _ in rows].count("1") == 3 and [n for n, _, _ in rows].count("2") == 1


def test_scores_stand_before_the_lines(cli, run_folder, translator, said):
    said(b"abc\n\nhg\n")
    rows = cli("translate", run_folder, "--scores", "--strategy", "greedy").out.splitlines()
    found = [several[0] for several in translator.translate(["abc", "", "hg"], Greedy())]
    assert [row.split("\t")[1] for row in rows] == [one.text for one in found]
    assert [float(row.split("\t")[0]) for row in rows] == pytest.approx(
        [one.score for one in found], abs=1e-3
    )


def test_json_is_one_document(cli, run_folder, translator, said):
    said(b"abc\n\nhg\n")
    found = cli("translate", run_folder, "--json", "--max-new", 3).document["sequences"]
    assert [entry["input"] for entry in found] == ["abc", "", "hg"]
    expected = [several[0] for several in translator.translate(["abc", "", "hg"], max_new=3)]
    assert [entry["tokens"] for entry in found] == [one.tokens for one in expected]
    assert [entry["id"] for entry in found] == ["1", "2", "3"]
    nothing = {"input": "", "text": "", "tokens": [], "score": 0.0, "finished": True, "note": ""}
    assert found[1] == {"id": "2"} | nothing
    assert all(set(entry) == set(found[1]) for entry in found)


def test_samples_depend_on_the_seed_alone(cli, run_folder, said):
    drawn = []
    for seed, size in ((1, 64), (1, 2), (2, 64)):
        said("\n".join(LINES).encode())
        options = ["--strategy", "sample", "--temperature", 2, "--seed", seed]
        drawn.append(cli("translate", run_folder, *options, "--batch-size", size).out)
    assert drawn[0] == drawn[1] != drawn[2]


def test_int8_translates_every_line(cli, run_folder, said):
    said("\n".join(LINES).encode())
    found = cli("translate", run_folder, "--int8")
    assert found.code == 0 and len(found.out.split("\n")) == len(LINES) + 1


def test_a_line_that_is_too_long_is_named(cli, run_folder, said):
    said(b"abc\n" + b"abcdefgh " * 10_000 + b"\nabc\n")
    found = cli("translate", run_folder, "--strategy", "greedy")
    assert found.code == 0 and len(found.out.split("\n")) == 4
    words = "truncated: 90,000 tokens, the model reads the first 15"
    assert found.err.splitlines() == [
        f"warning: line 2: {words}",
        f"note: 1 of 3 records is longer than the model's context; first: 2 ({words})",
    ]


def test_a_terminal_is_told_how_far_it_is_and_nothing_else_changes(
    cli, run_folder, tmp_path, monkeypatch
):
    (tmp_path / "in.txt").write_text("\n".join(LINES) + "\n")
    before = cli("translate", run_folder, "in.txt")
    assert before.err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if standard error were a terminal
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    found = cli("translate", run_folder, "in.txt")
    assert found.out == before.out and "translating 7/7" in found.err


@pytest.mark.parametrize(
    ("data", "options", "code", "message"),
    [
        (b"", ["none.txt"], 1, "none.txt: cannot be read: no such file"),
        (b"", ["--n-best", "2", "--strategy", "greedy"], 2, "--n-best is for --strategy beam"),
        (b"", ["--strategy", "bema"], 2, "unknown strategy 'bema'; did you mean 'beam'?"),
        (b"", ["--beams", "0"], 2, "Invalid value for '--beams'"),
    ],
)
def test_a_mistake_is_one_line(cli, run_folder, said, data, options, code, message):
    said(data)
    found = cli("translate", run_folder, *options)
    assert found.code == code and len(found.err.splitlines()) == 1
    assert message in found.err


def test_blank_lines_on_standard_input_stay_blank(cli, run_folder, translator, said):
    said(b"\n\nabc\n  \n\r\nhg\n\n")
    found = cli("translate", run_folder)
    one, two = (several[0].text for several in translator.translate(["abc", "hg"]))
    assert found.code == 0 and found.err == ""
    assert found.out == f"\n\n{one}\n\n\n{two}\n\n"


def test_a_file_that_is_no_text_is_named(cli, run_folder, tmp_path):
    (tmp_path / "some.gz").write_bytes(b"abc\n")
    for name, told in (
        ("some.gz", "some.gz: is no gzip data"),
        ("none.gz", "none.gz: cannot be read: no such file"),
    ):
        found = cli("translate", run_folder, name)
        assert found.code == 1 and found.out == "" and len(found.err.splitlines()) == 1
        assert told in found.err


def test_a_line_that_is_no_text_is_noted(cli, run_folder, translator, tmp_path, said):
    """Once it ended the whole translation."""
    data = b"abc\n\xdcbel\nhg\n"
    (tmp_path / "latin.txt").write_bytes(data)
    one, two = (several[0].text for several in translator.translate(["abc", "hg"]))
    for arguments in (["latin.txt"], ["-"]):
        said(data)
        found = cli("translate", run_folder, *arguments)
        assert found.code == 0 and found.out == f"{one}\n\n{two}\n"
        assert "warning: line 2: invalid UTF-8, byte 0xdc at offset 0 of the line" in found.err
    assert cli("translate", run_folder, "latin.txt", "--strict").code == 1
    (tmp_path / "none.txt").write_bytes(b"\xdcbel\n")
    found = cli("translate", run_folder, "none.txt")
    assert found.code == 1 and "none.txt, record 1: invalid UTF-8" in found.err


def test_sources_that_are_too_long_are_scored_as_they_are_translated(
    cli, run_folder, translator, tmp_path
):
    """Once the whole source was read: ten thousand words took minutes, and memory to match."""
    source, target = "abcdefgh " * 10_000, "cba"
    (tmp_path / "long.en").write_text(f"abc\n{source}\nabc\n")
    (tmp_path / "long.de").write_text(f"{target}\n" * 3)
    found = cli("score", run_folder, "long.en", "long.de")
    words = "truncated: 90,000 tokens, the model reads the first 15"
    assert found.code == 0 and found.out.splitlines()[1].split("\t")[2] == words
    assert found.err.count("\n") == 1 and "1 of 3 records is longer" in found.err
    (expected,) = translator.score([(source[:15], target)])
    assert float(found.out.splitlines()[1].split("\t")[0]) == pytest.approx(
        expected.total, abs=1e-4
    )
    found = cli("evaluate", run_folder, "long.en", "long.de", "--beams", 1)
    assert found.code == 0
    assert f"1 of 3 records is longer than the model's context; first: record 2 ({words})" in (
        found.err
    )


def test_a_run_of_another_task_is_told(cli, run_folder, bigram, said):
    found = cli("translate", bigram)
    assert found.code == 1 and found.out == ""
    assert found.err.startswith(
        f"error: {bigram} is of task next (language modelling), and `regard translate` does not "
        f"apply to it: use `regard generate {bigram}`, "
    )
    assert "`regard score`" in found.err and len(found.err.splitlines()) == 1
    found = cli("generate", run_folder)
    assert found.code == 1 and f"{run_folder} is of task target (translation)" in found.err
    assert "use `regard translate" in found.err and len(found.err.splitlines()) == 1
    found = cli("look", bigram, "abc", "--target", "cba")
    assert found.code == 2 and "--target is for translators" in found.err


SOURCES, TARGETS = ["abc", "a b", "dd", "fgh."], ["cba", "b a", "dd", "hgf."]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "some.en").write_text("\n".join(SOURCES) + "\n")
    (tmp_path / "some.de").write_text("\n".join(TARGETS) + "\n")
    rows = [f"{a}\t{b}" for a, b in zip(SOURCES, TARGETS, strict=True)]
    (tmp_path / "some.tsv").write_text("\n".join(["en\tde", *rows]) + "\n")
    return "some.en", "some.de"


def test_pairs_are_scored(cli, run_folder, translator, files):
    expected = translator.score(list(zip(SOURCES, TARGETS, strict=True)))
    table = ["some.tsv", "--input", "en", "--target", "de"]
    for arguments in (files, table):
        found = cli("score", run_folder, *arguments, "--json").document["records"]
        for entry, record in zip(found, expected, strict=True):
            assert entry["tokens"] == record.tokens
            assert entry["log_probs"] == pytest.approx(record.log_probs, abs=1e-4)
    rows = [row.split("\t") for row in cli("score", run_folder, *files).out.splitlines()]
    assert [(text, note) for _, text, note in rows] == [(text, "") for text in TARGETS]
    assert [float(x) for x, _, _ in rows] == pytest.approx([r.total for r in expected], abs=1e-3)


def test_pairs_are_evaluated_with_signatures(cli, run_folder, translator, files):
    options = ["--beams", 2, "--tokenize", "char", "--lowercase"]
    found = cli("evaluate", run_folder, *files, *options, "--against", run_folder, "--json")
    document = found.document
    assert {"bleu", "chrf", "exact", "nats_per_symbol"} <= set(document["metrics"])
    assert (document["split"], document["records"]) == ("given", 4)
    assert document["symbols"] == sum(len(target) + 1 for target in TARGETS)
    assert "case:lc|eff:no|tok:char|" in document["signatures"]["bleu"]
    nothing = {"value": 0.0, "low": 0.0, "high": 0.0}
    assert all(document["against"][name] == nothing for name in ("bleu", "chrf", "exact"))
    assert document["against"]["verdict"] == "no difference that 95% supports"
    printed = cli("evaluate", run_folder, *files, *options, "--against", run_folder).out
    assert document["signatures"]["bleu"] in printed and "BLEU: no difference" in printed
    shown = [line.split()[0] for line in printed.splitlines()[1:4]]
    assert shown == ["bleu", "chrf", "exact"]


def test_translations_by_minimum_bayes_risk(cli, run_folder, translator, bigram, files):
    strategy = MinimumBayesRisk(translator.tokenizer.decode, width=6)
    expected = [one.text for (one,) in translator.translate(SOURCES, strategy)]
    asked = ["--strategy", "mbr", "--beams", 6]
    assert cli("translate", run_folder, files[0], *asked).out.splitlines() == expected
    default = cli("translate", run_folder, files[0], "--strategy", "mbr", "--json").document
    wide = translator.translate(SOURCES, MinimumBayesRisk(translator.tokenizer.decode, width=24))
    found = [one["score"] for one in default["sequences"]]
    assert found == pytest.approx([one.score for (one,) in wide], abs=1e-3)
    judged = score_translations(expected, TARGETS)["chrf"].value
    document = cli("evaluate", run_folder, *files, *asked, "--json").document
    assert document["strategy"] == "mbr"
    assert document["metrics"]["chrf"]["value"] == pytest.approx(judged, abs=0.01)
    assert "\ntranslated by mbr" in cli("evaluate", run_folder, *files, *asked).out
    found = cli("generate", bigram, "--strategy", "mbr")
    assert found.code == 2 and "unknown strategy 'mbr'" in found.err
    found = cli("evaluate", run_folder, *files, "--strategy", "mbrr")
    assert found.code == 2 and "did you mean 'mbr'" in found.err


@pytest.mark.parametrize("verb", ["evaluate", "score"])
def test_pairs_that_are_none_are_told(cli, run_folder, bigram, files, tmp_path, verb):
    (tmp_path / "few.de").write_text("cba\n")
    for arguments, message in (
        ([files[0], "few.de"], "some.en has 4 lines, few.de 1: line 2 of some.en has no partner"),
        ([files[0]], "pairs need two files, the sources and the targets line by line"),
        (["some.tsv", "--input", "en"], "say --input COLUMN --target COLUMN"),
    ):
        found = cli(verb, run_folder, *arguments)
        assert found.code in (1, 2) and len(found.err.splitlines()) == 1
        assert message in found.err
    if verb == "score":
        found = cli("score", bigram, *files)
        assert found.code == 2 and "(task next): it has no targets" in found.err
        found = cli("evaluate", bigram, "some.tsv", "--input", "en", "--target", "de")
        assert found.code == 2 and "(task next): it has no --target" in found.err
    else:
        found = cli("evaluate", run_folder, *files, "--against", bigram)
        assert found.code == 1 and "only runs of the same task can be compared" in found.err
        found = cli("evaluate", run_folder)
        assert found.code == 1 and "holds no data" in found.err


def test_runs_are_compared_on_what_one_held_out_whatever_their_tokens(cli, words, tmp_path):
    """A run_folder of characters against one of bytes, with tokens of their own on each side."""
    lines = words.read_text().split()
    (tmp_path / "words.en").write_text("\n".join(lines) + "\n")
    (tmp_path / "words.de").write_text("\n".join(line[::-1].upper() for line in lines) + "\n")
    small = ["--set=model.n_layers=1", "--set=model.d_model=16", "--set=train.steps=2"]
    for name, more in (
        ("ours", ["--set=task.shared_vocab=false"]),
        ("theirs", ["--tokenizer", "bytes"]),
    ):
        done = cli("train", "words.en", "words.de", *small, *more, "--out", name, "--quiet")
        assert done.code == 0, done.err
    document = cli("evaluate", "ours", "--against", "theirs", "--beams", 1, "--json").document
    assert document["split"] == "test" and 0 < document["records"] < 60
    gap = document["against"]["nats_per_symbol"]
    assert gap["low"] <= gap["value"] <= gap["high"]
    alone = cli("evaluate", "theirs", "--beams", 1, "--json").document
    ours = document["metrics"]["nats_per_symbol"]["value"]
    theirs = alone["metrics"]["nats_per_symbol"]["value"]
    assert gap["value"] == pytest.approx(ours - theirs, abs=1e-5)
