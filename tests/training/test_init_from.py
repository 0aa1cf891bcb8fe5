"""Training on from another run: defaults of its own, which do not undo what was learned."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import replace

import pytest
import torch

from regard.api import plan, train
from regard.errors import UsageError, UserError
from regard.models import encoder
from regard.models.encoder import EncoderModel, MaskedLM, bert_masked, modern_masked
from regard.recipe import TrainRecipe
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters
from regard.training.init_from import copy_weights, inherit

LETTERS = "abcdefgh"
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
    start = f"train.init_from={folder / 'run'}"
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
    start = f"train.init_from={folder / 'run'}"
    recipe, _ = plan([folder / "words.txt"], assignments=[start, *asked])
    again = train(recipe, folder / "again")
    for side in ("valid", "test"):
        before, after = (one.figures[side]["nats_per_symbol"] for one in (first, again))
        assert after.value < before.value + 0.002  # a fiftieth of the interval


def make(preset=modern_masked, size=12, **options):
    torch.manual_seed(0)
    sizes = {"n_heads": 2, "n_kv_heads": 2, "d_head": 16, "max_len": 12, "dropout": 0.0}
    return MaskedLM(size, dataclasses.replace(preset(1, 32), **{**sizes, **options}))


def save(folder, model, tokenizer):
    write_config(folder, "transformer", model)
    write_tensors(folder / "model.safetensors", weights(model))
    tokenizer.save(folder / "tokenizer.json")


def test_the_encoder_is_taken_and_the_head_is_not(tmp_path):
    filler = make(bert_masked)
    save(tmp_path, filler, Characters.train([LETTERS]))
    torch.manual_seed(3)
    config = dataclasses.replace(
        encoder.bert(1, 32), n_heads=2, n_kv_heads=2, d_head=16, max_len=12, n_outputs=12
    )
    model = EncoderModel(12, config)
    before = {name: tensor.clone() for name, tensor in weights(model).items()}
    copy_weights(model, tmp_path)
    held = weights(filler)
    for name, tensor in weights(model).items():
        own = not name.startswith("encoder.")
        assert torch.equal(tensor, before[name] if own else held[name]), name
    folder = tmp_path / "again"
    folder.mkdir()
    save(folder, model, Characters.train([LETTERS]))
    other = EncoderModel(12, config)  # of the same shape: classes of one mean nothing to the other
    copy_weights(other, folder)
    assert not torch.equal(other.head.weight, model.head.weight)
    assert torch.equal(other.pooler.weight, model.pooler.weight)
    copy_weights(once := make(bert_masked), tmp_path)  # filling in goes on with all of it
    assert all(torch.equal(tensor, held[name]) for name, tensor in weights(once).items())


def test_another_shape_preset_or_vocabulary_is_refused(tmp_path):
    save(tmp_path, make(), Characters.train([LETTERS]))
    with pytest.raises(UserError, match="12 tokens, this model 13"):
        copy_weights(make(size=13), tmp_path)
    with pytest.raises(UserError, match="d_ff"):
        copy_weights(make(d_ff=64), tmp_path)
    start = {"task": {"name": "label"}, "train": {"init_from": str(tmp_path)}}
    for model, word in (
        ({"d_model": 64}, "model.d_model = 64"),
        ({"preset": "bert"}, "model.preset = 'bert'"),
        ({"n_layers": 3}, "model.n_layers = 3"),
        ({"size": 2}, "model.size = 2"),
        ({"name": "cnn"}, "model.name = 'cnn'"),
    ):
        with pytest.raises(UsageError, match=word):
            inherit({**start, "model": model})
    with pytest.raises(UsageError, match=r"input.tokenizer = 'bpe'"):
        inherit({**start, "input": {"tokenizer": "bpe"}})
    with pytest.raises(UsageError, match="of task masked, from which 'next'"):
        inherit({**start, "task": {"name": "next"}})
    with pytest.raises(UserError, match="no run folder"):
        inherit({**start, "train": {"init_from": str(tmp_path / "none")}})
    found = inherit({**start, "model": {"dropout": 0.3}})
    assert found["model"]["d_model"] == 32 and found["model"]["dropout"] == 0.3
    assert found["model"]["preset"] == "modern" and found["input"]["tokenizer"] == "characters"
