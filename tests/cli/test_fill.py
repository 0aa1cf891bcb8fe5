"""regard fill, and regard score of masked language models."""

from __future__ import annotations

import json
import random

import pytest

from regard.api import load, train_recipe
from regard.cli import run
from regard.errors import UsageError, UserError
from regard.pipelines.masked_predictor import MaskedPredictor
from regard.planning import plan_recipe


@pytest.fixture(scope="module")
def proteins(tmp_path_factory):
    """A run that has seen proteins of four pairs of residues: K always follows M."""
    folder, draw = tmp_path_factory.mktemp("proteins"), random.Random(0)
    sequences = ["".join(draw.choices(["MK", "DE", "FG", "LI"], k=12)) for _ in range(200)]
    text = "".join(f">p{i}\n{s}\n" for i, s in enumerate(sequences))
    (folder / "proteins.fasta").write_text(text)
    keys = ["task.name=masked", "train.steps=150", "model.n_layers=1", "model.d_model=32"]
    keys += ["model.dropout=0", "task.mask=0.3", "train.batch_tokens=800"]
    recipe, _ = plan_recipe([folder / "proteins.fasta"], assignments=keys)
    train_recipe(recipe, folder / "run")
    return folder / "run"


SEQUENCE = "MKDEMKFGLIDEFGMKLILIDEMK"


def test_it_fills_in_what_it_has_seen(proteins, capsys):
    text = "[MASK]K" + SEQUENCE[2:9] + "<mask>" + SEQUENCE[10:]
    assert run(["fill", str(proteins), text, "--num", "2", "--json"]) == 0
    masks = json.loads(capsys.readouterr().out)["masks"]
    assert [mask["position"] for mask in masks] == [1, 10]
    best, second = masks[0]["candidates"]
    assert best["token"] == "M" and best["probability"] > second["probability"] > 0
    assert run(["fill", str(proteins), text]) == 0
    assert capsys.readouterr().out.startswith(f"1\t{best['probability']:.4f}\tM\n")


def test_candidates_are_probabilities_of_the_model(proteins):
    (mask,) = load(proteins, kind=MaskedPredictor).fill("[MASK]" + SEQUENCE[1:], num=100)
    total = sum(one.probability for one in mask.candidates)
    assert total == pytest.approx(1, abs=0.01)  # the markers have hardly any


@pytest.mark.parametrize(
    ("text", "message"),
    [("MKA", r"write \[MASK\] or <mask>"), ("[MASK]" + "A" * 2000, "the model reads")],
)
def test_a_text_that_cannot_be_filled_in_is_an_error(proteins, text, message):
    with pytest.raises((UsageError, UserError), match=message):
        load(proteins).fill(text)


def test_runs_of_other_tasks_name_the_command_that_trains_one(contrastive_run, capsys):
    assert run(["fill", str(contrastive_run), "a [MASK]"]) == 1
    assert "`regard train FILE --task masked` makes a run for it" in capsys.readouterr().err


def test_scores_say_what_is_likely(proteins, tmp_path, capsys):
    (tmp_path / "two.fasta").write_text(f">good\n{SEQUENCE}\n>bad\nML{SEQUENCE[2:]}\n")
    assert run(["score", str(proteins), str(tmp_path / "two.fasta"), "--masked"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == ["good", "bad"]
    assert float(rows[0][0]) > float(rows[1][0]) + 2
    records = load(proteins).pseudo_log_likelihoods([SEQUENCE])
    assert float(rows[0][0]) == pytest.approx(records[0].total, abs=1e-4)


def test_variants_of_a_sequence_are_scored(proteins, capsys):
    variants = ["score", str(proteins), SEQUENCE, "--masked", "--variants", "M1A,D3C:E4A"]
    assert run(variants) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == ["M1A", "D3C:E4A"]
    assert float(rows[0][0]) < -1  # M is expected there
    effects = load(proteins).variant_effects(SEQUENCE, ["M1A", "D3C:E4A"])
    assert [float(row[0]) for row in rows] == pytest.approx([e.score for e in effects], abs=1e-5)


def test_a_column_of_variants_belongs_to_its_rows(proteins, tmp_path, capsys):
    (tmp_path / "v.tsv").write_text(f"protein\tchange\n{SEQUENCE}\tM1A\n{SEQUENCE[2:]}\tD1C\n")
    command = ["score", str(proteins), str(tmp_path / "v.tsv"), "--input", "protein", "--masked"]
    assert run([*command, "--variants", "change", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert [r["variants"][0]["variant"] for r in records] == ["M1A", "D1C"]
    assert [r["note"] for r in records] == ["", ""]


def test_all_variants_are_a_scan(proteins, capsys):
    assert run(["score", str(proteins), "MKA", "--masked", "--variants", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 * 19


def test_masked_scores_are_asked_for(proteins, contrastive_run, tmp_path, capsys):
    (tmp_path / "one.txt").write_text(SEQUENCE + "\n")
    assert run(["score", str(proteins), str(tmp_path / "one.txt")]) == 2
    assert "say --masked" in capsys.readouterr().err
