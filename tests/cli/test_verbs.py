"""The verbs that read a run: what they print, against an independent computation."""

import io
import json
import math
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import regard
from regard.cli import VERBS

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=8", "--set=train.batch_tokens=64"]
NAMES = Path(__file__).parents[2].parent / "shared" / "data" / "names" / "names.txt"


def bigram_by_hand(words):
    """(previous, next) -> natural log-probability, by counting."""
    pairs, totals = Counter(), Counter()
    for word in words:
        symbols = ["<S>", *word, "<E>"]
        pairs.update(pairwise(symbols))
        totals.update(symbols[:-1])
    return {pair: math.log(n / totals[pair[0]]) for pair, n in pairs.items()}


def counted(cli, words, tmp_path):
    whole = ["--set=data.valid_fraction=0", "--set=data.test_fraction=0"]
    assert cli("train", words, "--model", "bigram", *whole, "--out", "all").code == 0
    return tmp_path / "all"


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_shows_a_working_example(cli, verb):
    found = cli(*verb.split(), "--help")
    assert found.code == 0
    (example,) = re.findall(r"Example: regard (.*)", found.out)
    assert example.split()[0] == (verb or "train")
    options = [word for word in example.split() if word.startswith("--")]
    text = found.out if verb else cli("train", "--help").out
    assert all(option in text for option in options)


def test_scores_are_the_counts_of_a_bigram_without_start_and_with_end(cli, words, tmp_path):
    run = counted(cli, words, tmp_path)
    lines = words.read_text().split()
    logs = bigram_by_hand(lines)
    records = cli("score", run, words, "--json").document["records"]
    assert len(records) == len(lines)
    for word, record in zip(lines, records, strict=True):
        assert record["tokens"] == [*word, "<E>"]
        expected = [logs[pair] for pair in zip(["<S>", *word], [*word, "<E>"], strict=True)]
        assert record["log_probs"] == pytest.approx(expected, abs=1e-6)
        assert record["total"] == pytest.approx(sum(record["log_probs"]), abs=1e-6)
    printed = cli("score", run, words).out.splitlines()
    assert [line.split("\t")[1] for line in printed] == lines
    assert float(printed[0].split("\t")[0]) == pytest.approx(records[0]["total"], abs=1e-5)


def test_evaluate_is_the_ratio_of_the_scores_to_the_symbols(cli, words, tmp_path):
    run = counted(cli, words, tmp_path)
    records = cli("score", run, words, "--json").document["records"]
    nats = -sum(r["total"] for r in records) / sum(len(r["tokens"]) for r in records)
    document = cli("evaluate", run, words, "--json").document
    figures = document["metrics"]
    assert figures["nats_per_symbol"]["value"] == pytest.approx(nats, rel=1e-6)
    assert figures["bits_per_symbol"]["value"] == pytest.approx(nats / math.log(2), rel=1e-6)
    assert figures["perplexity"]["value"] == pytest.approx(math.exp(nats), rel=1e-6)
    characters = sum(len(r["tokens"]) - 1 for r in records)
    bits = nats / math.log(2) * document["symbols"] / characters
    assert figures["bits_per_byte"]["value"] == pytest.approx(bits, rel=1e-6)
    for figure in figures.values():
        assert figure["low"] < figure["value"] < figure["high"]


def test_a_column_without_a_file_is_refused(cli, bigram):
    """`evaluate RUN --input FILE` measured the held-out part, without a word about the file."""
    result = cli("evaluate", bigram, "--input", "words.txt")
    assert result.code == 2 and "--input words.txt names a column" in result.err


@pytest.mark.skipif(not NAMES.exists(), reason="the names are not here")
def test_a_bigram_of_all_names_costs_what_the_lecture_says(cli, tmp_path):
    run = counted(cli, NAMES, tmp_path)
    figures = cli("evaluate", run, NAMES, "--json").document["metrics"]
    assert round(figures["nats_per_symbol"]["value"], 4) == 2.4540


def test_what_a_bigram_holds_impossible_is_infinite_and_counted(cli, words, bigram, tmp_path):
    (tmp_path / "odd.txt").write_text(
        "ace\nead\n"
    )  # no letter is ever followed by the one before it
    impossible = cli("score", bigram, "odd.txt", "--json").document["records"]
    nulls = sum(r["log_probs"].count(None) for r in impossible)
    assert nulls == 1 and impossible[1]["total"] is None
    figure = cli("evaluate", bigram, "odd.txt", "--json").document["metrics"]["nats_per_symbol"]
    assert figure == {"value": None, "infinite": True, "impossible": nulls}
    assert "impossible" in cli("evaluate", bigram, "odd.txt").out
    assert cli("score", bigram, "odd.txt").out.splitlines()[1].startswith("-inf\t")


def test_paired_differences_are_the_difference_of_the_figures(cli, bigram, transformer):
    ours, theirs = (
        cli("evaluate", run, "--json").document["metrics"]["nats_per_symbol"]["value"]
        for run in (transformer, bigram)
    )
    gap = cli("evaluate", transformer, "--against", bigram, "--json").document["against"]
    assert gap["nats_per_symbol"]["value"] == pytest.approx(ours - theirs, abs=1e-9)
    assert gap["verdict"] == "worse"
    mirrored = cli("evaluate", bigram, "--against", transformer, "--json").document["against"]
    assert mirrored["nats_per_symbol"]["value"] == pytest.approx(theirs - ours, abs=1e-9)
    assert mirrored["verdict"] == "better"
    same = cli("evaluate", bigram, "--against", bigram)
    assert "0.0000 [0.0000, 0.0000]" in same.out and "no difference" in same.out


def test_runs_with_different_tokens_are_compared_on_the_same_symbols(
    cli, words, bigram, text, reader
):
    assert (
        cli("train", words, "--model", "bigram", "--tokenizer", "bytes", "--out", "bytes").code == 0
    )
    gap = cli("evaluate", bigram, "--against", "bytes", "--json").document["against"]
    assert gap["nats_per_symbol"]["value"] == pytest.approx(0, abs=1e-6)
    options = ["--model", "bigram", "--tokenizer", "bpe", "--vocab-size", "300"]
    assert cli("train", text, *options, "--out", "pieces").code == 0
    gap = cli("evaluate", reader, "--against", "pieces", "--json").document["against"]
    assert (
        gap["nats_per_symbol"] is not None
    )  # cut into the same blocks of symbols, whatever the tokens


def test_the_default_stride_is_half_of_max_len_and_longer_context_never_scores_twice(cli, reader):
    half = cli("evaluate", reader, "--json").document
    assert cli("evaluate", reader, "--stride", 12, "--json").document == half
    cold = cli("evaluate", reader, "--stride", 24, "--json").document
    assert cold["symbols"] == half["symbols"]
    assert cold["metrics"]["nats_per_symbol"] != half["metrics"]["nats_per_symbol"]
    wrong = cli("evaluate", reader, "--stride", 25)
    assert wrong.code == 1 and "from 1 to the model's max_len 24" in wrong.err


def test_standard_input_is_scored_line_by_line_as_it_comes(bigram, words):
    command = [sys.executable, "-m", "regard", "score", str(bigram), "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    answers = []
    for word in ("ace", "bd"):
        process.stdin.write(word + "\n")
        process.stdin.flush()
        answers.append(process.stdout.readline())  # answered before the next line is sent
    process.stdin.close()
    rest = process.stdout.read()
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert [a.rstrip("\n").split("\t")[1] for a in answers] == ["ace", "bd"] and rest == ""


def test_standard_input_that_is_no_text_is_noted(cli, bigram, monkeypatch):
    for options, code in (([], 0), (["--strict"], 1)):

        class Standard:
            buffer = io.BytesIO(b"ace\n\xff\nbd\n")

        monkeypatch.setattr(sys, "stdin", Standard())
        found = cli("score", bigram, "-", *options)
        rows = [line.split("\t") for line in found.out.splitlines()]
        assert found.code == code and [row[1] for row in rows] == ["ace", "", "bd"]
        assert rows[1][0] == "nan" and rows[1][2].startswith("invalid UTF-8, byte 0xff")
        assert "1 of 3 records could not be read; first: 2 (invalid UTF-8" in found.err


def test_the_same_seed_gives_the_same_samples_and_another_other_ones(cli, transformer):
    def texts(*options):
        document = cli("generate", transformer, "--num", 6, "--json", *options).document
        return [s["text"] for s in document["sequences"]]

    assert texts("--seed", 5) == texts("--seed", 5)
    assert texts("--seed", 5) != texts("--seed", 6)


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_prompts_in_a_batch_are_continued_as_they_are_alone(cli, transformer, strategy):
    def sequences(*prompts):
        options = [x for p in prompts for x in ("--prompt", p)]
        found = cli("generate", transformer, "--strategy", strategy, "--num", 1, "--json", *options)
        return found.document["sequences"]

    prompts = ("a", "bcd", "ace")
    together, alone = sequences(*prompts), [sequences(p)[0] for p in prompts]
    for a, b in zip(together, alone, strict=True):
        assert (a["input"], a["text"], a["tokens"]) == (b["input"], b["text"], b["tokens"])
        assert a["score"] == pytest.approx(b["score"], abs=1e-5)
    keys = {"id", "input", "text", "tokens", "score", "finished", "note"}
    assert set(together[0]) == keys


def test_forbidden_transitions_of_a_file_are_never_generated(cli, transformer, tmp_path):
    (tmp_path / "rules.txt").write_text("a b\na c\n<S> a\n")
    found = cli("generate", transformer, "--num", 50, "--forbid", "rules.txt", "--json").document
    texts = [s["text"] for s in found["sequences"]]
    assert not any(t.startswith("a") or "ab" in t or "ac" in t for t in texts)
    free = cli("generate", transformer, "--num", 50, "--json").document["sequences"]
    assert any(s["text"].startswith("a") or "ab" in s["text"] or "ac" in s["text"] for s in free)


def test_transitions_unseen_in_training_stay_forbidden_in_every_verb(cli, words, tmp_path):
    options = ["--forbid", "unseen", "--set=train.steps=3", "--set=data.valid_fraction=0.1"]
    assert cli("train", words, *options, *SMALL, "--out", "run").code == 0
    seen = set()
    for word in words.read_text().split():
        seen |= set(zip(["<S>", *word], [*word, "<E>"], strict=True))
    found = cli("generate", "run", "--num", 60, "--json").document["sequences"]
    for sequence in found:
        tokens = ["<S>", *sequence["tokens"]]
        assert set(pairwise(tokens)) <= seen
    (tmp_path / "odd.txt").write_text("aec\n")  # a is never followed by e
    (record,) = cli("score", "run", "odd.txt", "--json").document["records"]
    assert record["log_probs"][1] is None and record["total"] is None
    figure = cli("evaluate", "run", "odd.txt", "--json").document["metrics"]["nats_per_symbol"]
    assert figure["infinite"] is True


def test_training_records_that_break_a_rule_are_named(cli, words, tmp_path):
    (tmp_path / "rules.txt").write_text("a b\n")
    found = cli(
        "train", words, "--forbid", "rules.txt", "--set=train.steps=1", *SMALL, "--out", "run"
    )
    assert found.code == 1
    assert "training records contain a forbidden transition" in found.err
    assert not (tmp_path / "run").exists()


def test_streaming_prints_the_sequence_that_is_returned_whole(cli, transformer):
    options = ["--strategy", "greedy", "--prompt", "a"]
    whole = cli("generate", transformer, *options).out
    assert cli("generate", transformer, *options, "--stream").out == whole
    wrong = cli("generate", transformer, "--stream", "--json")
    assert wrong.code == 2 and "--stream" in wrong.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--strategy", "greedly"], "did you mean 'greedy'"),
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "2"], "top_p"),
        (["--num", "0"], "--num"),
        (["--num", "few"], "--num"),
    ],
)
def test_a_wrong_option_of_generate_is_a_line_that_names_it(cli, transformer, options, said):
    found = cli("generate", transformer, *options)
    assert found.code == 2
    assert said in found.err and len(found.err.splitlines()) == 1


def test_data_is_described_with_the_documented_keys(cli, words):
    document = cli("data", words, "--json").document
    lines = words.read_text().split()
    assert document["records"] == len(lines)
    assert document["symbols"] == sum(len(line) + 1 for line in lines)
    assert document["alphabet_size"] == 5
    assert document["duplicates"] == len(lines) - len(set(lines))
    assert {"entropy_bits", "suggestion"} <= set(document)
    assert "suggestion" in cli("data", words).out


def test_data_tell_why_a_file_is_read_as_it_is(cli, tmp_path):
    """A file that ends in .fasta was "read as fasta (as asked)"."""
    (tmp_path / "a.fasta").write_text("".join(f">{i}\nACGTACGA\n" for i in range(9)))
    assert "fasta (by the name" in cli("data", "a.fasta").out
    assert "fasta (as asked" in cli("data", "a.fasta", "--format", "fasta").out


def test_python_and_the_command_line_agree(cli, transformer, words):
    generator = regard.load(transformer)
    some = words.read_text().split()[:3]
    direct = generator.score(some)
    printed = cli("score", transformer, words, "--json").document["records"][:3]
    for (tokens, logs), record in zip(direct, printed, strict=True):
        assert tokens == record["tokens"]
        assert logs == pytest.approx(record["log_probs"], abs=1e-5)


def test_running_text_is_entered_after_a_line_break(cli, reader):
    found = cli("generate", reader, "--num", 1, "--max-new", 5)
    assert found.code == 0
    assert "running text is entered after a line break" in found.err
    facts = json.loads((reader / "regard.json").read_text())
    assert facts["data"]["format"] == "text"
