"""Training on from another run: defaults of its own, which do not undo what was learned."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from regard.api import plan, train
from regard.recipe import TrainRecipe

SMALL = ["model.n_layers=1", "model.d_model=16", "model.dropout=0.05", "train.batch_tokens=1024"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A file of words that follow a rule half of the time, and a run trained on it."""
    folder, draw = tmp_path_factory.mktemp("start"), random.Random(1)
    follow = {a: draw.choice("abcdefgh") for a in "abcdefgh"}
    lines = []
    for _ in range(3000):
        word = draw.choice("abcdefgh")
        while len(word) < 8:
            word += follow[word[-1]] if draw.random() < 0.5 else draw.choice("abcdefgh")
        lines.append(word)
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    recipe, _ = plan([folder / "words.txt"], assignments=[*SMALL, "train.steps=500"])
    return folder, train(recipe, folder / "run")


def test_a_run_begins_with_lower_rates_and_the_dropout_of_the_other(begun):
    folder, _ = begun
    start = f"train.start={folder / 'run'}"
    recipe, _ = plan([folder / "words.txt"], assignments=[start])
    usual = TrainRecipe()
    assert recipe.train.lr < usual.lr / 4 and recipe.train.adam_lr < usual.adam_lr / 4
    assert recipe.train.warmup > usual.warmup and recipe.model.config.dropout == 0.05
    given = ["train.lr=0.5", "train.adam_lr=0.25", "train.warmup=0.3", "model.dropout=0.2"]
    recipe, _ = plan([folder / "words.txt"], assignments=[start, *given])
    told = recipe.train
    assert (told.lr, told.adam_lr, told.warmup) == (0.5, 0.25, 0.3)
    assert recipe.model.config.dropout == 0.2
    scratch, _ = plan([folder / "words.txt"], assignments=SMALL)
    assert replace(scratch.train, lr=usual.lr) == scratch.train  # without a start nothing changes


def test_twenty_steps_on_its_own_data_do_not_make_a_run_worse(begun):
    """With the rates from scratch they did: what a schedule has cooled down was shaken up again."""
    folder, first = begun
    asked = ["train.steps=20", "train.eval_every=20", "train.batch_tokens=256"]
    start = f"train.start={folder / 'run'}"
    recipe, _ = plan([folder / "words.txt"], assignments=[start, *asked])
    again = train(recipe, folder / "again")
    for side in ("valid", "test"):
        before, after = (one.figures[side]["nats_per_symbol"] for one in (first, again))
        assert after.value < before.value + 0.002  # a fiftieth of the interval
