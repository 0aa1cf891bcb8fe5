"""Checkpoints: whole or not there, damage found and named, the good one before it used."""

from __future__ import annotations

import dataclasses
import errno
import json
import random
from dataclasses import replace

import pytest
import torch

from regard.api import train_recipe
from regard.errors import UsageError, UserError
from regard.models import encoder
from regard.models.encoder import EncoderModel, MaskedLM, bert_masked, modern_masked
from regard.planning import plan_recipe
from regard.recipe import TrainRecipe
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters
from regard.training import checkpoint
from regard.training.checkpoint import copy_weights, inherit


def tensors(value: float):
    return {
        "model": {"a": torch.full((2, 3), value), "b": torch.arange(5)},
        "optimizer": {"a/momentum": torch.full((2, 3), -value), "a/step": torch.tensor(value)},
    }


def saved(run, *steps):
    for step in steps:
        checkpoint.save(run, step, tensors(step), {"step": step, "nats": 0.1 * step})


def test_what_was_saved_comes_back_exactly(tmp_path):
    saved(tmp_path, 7)
    groups, state = checkpoint.newest(tmp_path, print)
    assert state == {"step": 7, "nats": 0.1 * 7}
    for name, group in tensors(7).items():
        assert groups[name].keys() == group.keys()
        assert all(torch.equal(groups[name][key], group[key]) for key in group)


def test_the_newest_is_taken_by_number_and_only_two_are_kept(tmp_path):
    saved(tmp_path, 999_998, 999_999, 1_000_000)
    assert [p.name for p in checkpoint.steps(tmp_path)] == ["step-999999", "step-1000000"]
    assert checkpoint.newest(tmp_path, print)[1]["step"] == 1_000_000


def test_the_same_state_is_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        saved(tmp_path / name, 3)
    files = sorted((tmp_path / "a" / "checkpoints" / "step-000003").iterdir())
    assert len(files) == 3
    for file in files:
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "checkpoint.json"])
@pytest.mark.parametrize("damage", ["gone", "empty", "truncated", "flipped"])
def test_damage_is_named_and_the_checkpoint_before_is_used(tmp_path, name, damage):
    saved(tmp_path, 4, 8)
    path = tmp_path / "checkpoints" / "step-000008" / name
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":
        place = whole.index(b"0.8") if name == "checkpoint.json" else len(whole) - 2
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "truncated" else b"")
    said = []
    _, state = checkpoint.newest(tmp_path, said.append)
    assert state["step"] == 4
    assert len(said) == 1 and name in said[0] and "trying step-000004" in said[0]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "checkpoint.json"])
def test_no_flipped_bit_changes_what_is_loaded(tmp_path, name):
    saved(tmp_path, 8)
    path = tmp_path / "checkpoints" / "step-000008" / name
    whole = path.read_bytes()
    unnoticed = []
    for place in range(0, len(whole), 7):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :]
        )
        try:
            groups, state = checkpoint.load(path.parent)
        except UserError as error:
            assert "step-000008" in str(error)
            continue
        unnoticed.append(place)  # a space of the JSON file became another white space
        assert state == {"step": 8, "nats": 0.8}
        assert torch.equal(groups["model"]["a"], tensors(8)["model"]["a"])
    assert name == "checkpoint.json" or not unnoticed


def test_if_every_checkpoint_is_damaged_the_run_does_not_start_over_by_itself(tmp_path):
    saved(tmp_path, 4)
    (tmp_path / "checkpoints" / "step-000004" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"every checkpoint .* is damaged"):
        checkpoint.newest(tmp_path, lambda text: None)
    assert checkpoint.newest(tmp_path / "new", print) is None


def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path):
    saved(tmp_path, 4)
    path = tmp_path / "checkpoints" / "step-000004" / "checkpoint.json"
    manifest = json.loads(path.read_text())
    del manifest["seal"]
    manifest["checksums"] = {"../../secret": "x"}
    path.write_text(json.dumps(manifest | {"seal": checkpoint.seal(manifest)}))
    with pytest.raises(UserError, match="outside its folder"):
        checkpoint.load(path.parent)


@pytest.mark.parametrize("moment", range(5))
def test_a_failure_at_any_write_leaves_the_checkpoints_before_and_nothing_else(
    tmp_path, monkeypatch, moment
):
    saved(tmp_path, 4)
    calls = []

    def failing(function):
        def call(*arguments, **options):
            calls.append(function)
            if len(calls) > moment:
                raise OSError(errno.ENOSPC, "No space left on device")
            return function(*arguments, **options)

        return call

    for name in ("write_tensors", "write_json", "checksum"):
        monkeypatch.setattr(checkpoint, name, failing(getattr(checkpoint, name)))
    with pytest.raises(UserError, match=r"cannot write .*step-000008: No space left on device"):
        checkpoint.save(tmp_path, 8, tensors(8), {"step": 8})
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-000004"]


def test_leftovers_of_a_killed_process_are_swept(tmp_path):
    saved(tmp_path, 4)
    left = tmp_path / "checkpoints" / ".step-000008.123.tmp"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    checkpoint.sweep(tmp_path)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-000004"]


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
    recipe, _ = plan_recipe([folder / "words.txt"], assignments=[*SMALL, "train.steps=500"])
    return folder, train_recipe(recipe, folder / "run")


def test_a_run_begins_with_lower_rates_and_the_dropout_of_the_other(begun):
    folder, _ = begun
    start = f"train.init_from={folder / 'run'}"
    recipe, _ = plan_recipe([folder / "words.txt"], assignments=[start])
    usual = TrainRecipe()
    assert recipe.train.lr < usual.lr / 4 and recipe.train.adam_lr < usual.adam_lr / 4
    assert recipe.train.warmup > usual.warmup and recipe.model.config.dropout == 0.05
    given = ["train.lr=0.5", "train.adam_lr=0.25", "train.warmup=0.3", "model.dropout=0.2"]
    recipe, _ = plan_recipe([folder / "words.txt"], assignments=[start, *given])
    told = recipe.train
    assert (told.lr, told.adam_lr, told.warmup) == (0.5, 0.25, 0.3)
    assert recipe.model.config.dropout == 0.2
    scratch, _ = plan_recipe([folder / "words.txt"], assignments=SMALL)
    assert replace(scratch.train, lr=usual.lr) == scratch.train  # without a start nothing changes


def test_twenty_steps_on_its_own_data_do_not_make_a_run_worse(begun):
    """With the rates from scratch they did: what a schedule has cooled down was shaken up again."""
    folder, first = begun
    asked = ["train.steps=20", "train.eval_every=20", "train.batch_tokens=256"]
    start = f"train.init_from={folder / 'run'}"
    recipe, _ = plan_recipe([folder / "words.txt"], assignments=[start, *asked])
    again = train_recipe(recipe, folder / "again")
    for side in ("valid", "test"):
        before, after = (one.splits[side]["nats_per_symbol"] for one in (first, again))
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
