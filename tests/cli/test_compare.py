"""`regard compare`: one table from several processes, completed rather than repeated."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from regard import compare
from regard.api import match_parameters, tokenizer_options
from regard.cli import run
from regard.data.corpus import prepare
from regard.errors import UsageError
from regard.models import count_parameters
from regard.planning import plan_recipe
from regard.recipe import build, read, to_toml
from regard.registry import MODELS
from regard.run import RECIPE
from regard.training import comparison_runs
from regard.training.launcher import Launcher
from regard.training.trainer import fit_config

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
    asked = ["compare", str(words), "--models", "lstm", "--out", str(out), "--quiet"]
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
    monkeypatch.setattr(Launcher, "start", lambda self: None)
    monkeypatch.setattr(comparison_runs, "train", lambda one, *_: trained.append(one.model))
    assert run([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] and not trained  # all of it was done


def test_a_row_that_fails_is_named_with_its_reason(words, tmp_path):
    with pytest.raises(
        comparison_runs.UserError, match=r"bigram could not be trained: .*forbidden"
    ):
        compare([words], tmp_path / "x", models="bigram", forbid="/none", progress=False)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A table of words and the same words backwards in capitals, and the same as two files."""
    source, folder = random.Random(5), tmp_path_factory.mktemp("pairs")
    words = ["".join(source.choices("abcdef", k=source.randint(1, 5))) for _ in range(300)]
    lines = [" ".join(source.sample(words, 2)) for _ in words]
    sides = {"en": lines, "de": [line[::-1].upper() for line in lines]}
    for name, side in sides.items():
        (folder / f"some.{name}").write_text("\n".join(side) + "\n")
    rows = ["src\ttgt", *("\t".join(row) for row in zip(*sides.values(), strict=True))]
    (folder / "some.tsv").write_text("\n".join(rows) + "\n")
    return folder


def test_translators_are_compared_by_bleu_and_a_lost_row_alone_is_made_again(
    pairs, tmp_path, capsys, monkeypatch
):
    trained = []

    def here(one, told, launcher):
        """In this process, which is faster."""
        trained.append(one.model)
        words = ["train", str(one.run / "recipe.toml"), "--out", str(one.run), "--resume"]
        assert run([*words, "--quiet"]) == 0
        capsys.readouterr()
        (one.run / comparison_runs.MEMORY).write_text('{"peak_memory_bytes": 1}')

    monkeypatch.setattr(Launcher, "start", lambda self: None)
    monkeypatch.setattr(comparison_runs, "train", here)
    out = tmp_path / "compared"
    asked = ["compare", str(pairs / "some.tsv"), "--input", "src", "--target", "tgt", "--quiet"]
    asked += ["--models", "ibm1,rnn", "--out", str(out), "--set", "train.steps=3"]
    asked += ["--set", "model.n_layers=1", "--set", "model.d_model=16"]
    assert run(asked) == 0
    table = capsys.readouterr().out
    assert "BLEU [95%]" in table and "test records, all translated, 95% intervals" in table
    document = json.loads((out / "compare.json").read_text())
    assert {row["model"] for row in document["rows"]} == {"ibm1", "rnn"}
    for row in document["rows"]:
        assert {"bleu", "chrf", "exact", "bits_per_symbol"} <= row["metrics"].keys()
        assert row["metrics"]["bleu"]["low"] <= row["metrics"]["bleu"]["value"]
        assert row["tokens_per_second"] > 0 and row["sentences_per_second"] > 0
        facts = json.loads((out / row["model"] / "regard.json").read_text())["metrics"]["test"]
        assert row["metrics"]["bleu"] == pytest.approx(facts["bleu"])  # what the run itself says
    page = (out / "compare.html").read_text()
    assert "Translations" in page and "more is better" in page and "Surprise" in page
    assert "| 1. |" in (out / "compare.md").read_text()
    shutil.rmtree(out / "rnn")
    assert run([*asked, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert trained == ["ibm1", "rnn", "rnn"]
    assert [row["metrics"] for row in again["rows"]] == [r["metrics"] for r in document["rows"]]


@pytest.mark.parametrize("joint", ["true", "false"])
def test_neural_translators_have_as_many_parameters_to_a_tenth(pairs, tmp_path, joint):
    files = [pairs / "some.en", pairs / "some.de"]
    asked = [f"task.shared_vocab={joint}", "model.n_layers=2", "model.d_model=48"]
    chosen, _ = plan_recipe(files, assignments=asked)
    corpus = prepare(chosen, tmp_path, lambda words: None)
    counted = {}
    for recipe in match_parameters(chosen, MODELS.names("target", "tokens"), corpus):
        model, size = recipe.model, corpus.tokenizer.vocab_size
        assert model.config.max_len == chosen.model.config.max_len
        if model.name != "ibm1":
            config = fit_config(model.config, corpus)
            assert config.dropout == chosen.model.config.dropout
            counted[model.name] = count_parameters(model.name, size, config, "target")
    assert len(counted) == 3
    assert max(counted.values()) / min(counted.values()) < 1.1


def test_every_patient_row_has_the_same_minutes_also_those_made_later(pairs, tmp_path):
    chosen, _ = plan_recipe([pairs / "some.en", pairs / "some.de"])
    made = [comparison_runs.comparison_run(chosen, tmp_path, seed) for seed in range(4)]
    assert comparison_runs.share_minutes(made, 2.0) == 2.0
    made[2].run.mkdir()
    recipe = made[2].recipe.replace(train={"minutes": 1.25})
    (made[2].run / "recipe.toml").write_text(to_toml(recipe))
    assert comparison_runs.share_minutes(made, 2.0) == 1.25


class Clock:
    """Time that passes only when a row is trained; no row takes less than its start."""

    now, start = 1000.0, 4.0

    def monotonic(self):
        return self.now


@pytest.fixture(scope="module")
def every_row(words, tmp_path_factory):
    """The recipes of all language models on the words, of equal size, and the encoded words."""
    chosen, _ = plan_recipe([words])
    folder = tmp_path_factory.mktemp("rows")
    corpus = prepare(chosen, folder, lambda line: None)
    return match_parameters(chosen, MODELS.names("next"), corpus), folder


@pytest.mark.parametrize("minutes", [0.3, 0.5, 1.0, 1.5, 3.0, 10.0])
def test_a_comparison_ends_in_its_minutes_and_names_what_it_leaves_out(
    every_row, tmp_path, monkeypatch, minutes
):
    """Rows that count took minutes each, whatever --minutes said, and neural ones had the rest."""
    clock, given, warned = Clock(), {}, []
    for module in (comparison_runs, comparison_runs):
        monkeypatch.setattr(module, "time", clock)
    recipes, encoded = every_row
    shutil.copytree(encoded, tmp_path, dirs_exist_ok=True)
    made = [comparison_runs.comparison_run(recipe, tmp_path) for recipe in recipes]

    def train(one, told, launcher):
        seconds = 60 * build(read(one.run / RECIPE)).train.minutes
        given[one.model] = max(clock.start + 1, 0 if one.model == "bigram" else seconds)
        clock.now += given[one.model]
        (one.run / "regard.json").write_text('{"outcome": "done"}')

    monkeypatch.setattr(comparison_runs, "train", train)
    monkeypatch.setattr(comparison_runs, "seconds_of", lambda run: given[run.name] - clock.start)
    began, judged = clock.now, []
    end = began + 60 * minutes
    found = comparison_runs.train_all(
        made,
        end,
        tmp_path,
        lambda one, state: None,
        Launcher(),
        judge=judged.append,
        warn=warned.append,
    )
    assert clock.now <= end + 1 and clock.now > end - 20
    assert [one.model for one in found] == [one.model for one in made if one.model in given]
    assert judged and {one.model for one in judged} == set(given)
    lost = {one.model for one in made} - set(given)
    assert lost == {name for line in warned for name in line[10:].split(".")[0].split(", ")} - {""}
    assert bool(lost) == (minutes < 1.6) and "kneser-ney" in given
    assert minutes < 0.5 or "transformer" in given
    if lost:
        counts = {one.model: one.counts for one in made}
        place = comparison_runs.KEPT.index
        for name in lost:  # what comes after it in the order and was made is cheaper
            after = [other for other in given if place(other) > place(name)]
            assert all(counts[other] > counts[name] for other in after)
    neural = [given[one.model] for one in found if not one.counts]
    most, least = max(neural, default=0.0), min(neural, default=0.0)
    assert most - least < 0.1 * most + 1  # equal shares


def test_tokenizers_are_rows_of_one_table_per_base(rows_here, tmp_path, capsys):
    random_ = random.Random(0)
    path = tmp_path / "dna.fa"
    path.write_text(
        "".join(f">s{i}\n{''.join(random_.choices('AACGT', k=40))}\n" for i in range(60))
    )
    asked = ["compare", str(path), "--models", "bigram", "--out", str(tmp_path / "c"), "--quiet"]
    assert run([*asked, "--tokenizers", "nucleotides,kmers:k=2:stride=1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["model"]: row for row in document["rows"]}
    assert set(rows) == {"bigram nucleotides", "bigram kmers k=2 stride=1"}
    assert document["symbols"] % 41 == 0  # bases and the end of each record, for both rows
    for row in rows.values():
        assert 1.5 < row["metrics"]["bits_per_symbol"]["value"] < 2.5
    tokens = rows["bigram kmers k=2 stride=1"]["metrics"]["nats_per_token"]["value"]
    symbols = rows["bigram kmers k=2 stride=1"]["metrics"]["nats_per_symbol"]["value"]
    assert tokens == pytest.approx(symbols)  # a token per base, as words overlap


def test_tokenizers_of_a_comparison_have_settings():
    assert tokenizer_options([]) == [("", {})]
    assert tokenizer_options(["bpe", "kmers:k=3:stride=1"]) == [
        ("bpe", {"tokenizer": "bpe"}),
        ("kmers k=3 stride=1", {"tokenizer": "kmers", "k": 3, "stride": 1}),
    ]
    for word in ("", ":k=3", "kmers:k", "kmers:=3"):
        with pytest.raises(UsageError, match="NAME or NAME:KEY=VALUE"):
            tokenizer_options([word])
    with pytest.raises(UsageError, match="'bpe' twice"):
        tokenizer_options(["bpe", "bpe"])
