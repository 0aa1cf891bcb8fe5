"""What a run will need: counted on fake tensors, beside the same step on real ones."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

import regard.cli
from regard.data.batching import Batch
from regard.errors import UserError
from regard.recipe import TrainRecipe, build
from regard.registry import family
from regard.training import throughput
from regard.training.distributed import ALONE
from regard.training.step import Stepper
from regard.training.throughput import (
    Forecast,
    TensorMemory,
    forecast_run,
    memory_of,
    peak_of,
    trace,
)

RECIPE = TrainRecipe(steps=1000, device="cpu", compile="off")
SHAPES = [
    {"name": "transformer", "n_layers": 2, "d_model": 64},
    {"name": "transformer", "n_layers": 1, "d_model": 96, "window": 16},
    {"name": "transformer", "n_layers": 1, "d_model": 64, "mixers": ["linear"]},
    {"name": "transformer", "preset": "gpt2", "n_layers": 2, "d_model": 32},
    {"name": "hyena", "n_layers": 2, "d_model": 48},
    {"name": "cnn", "n_layers": 3, "d_model": 64},
]


def model_of(shape, max_len=128, vocabulary=50):
    recipe = build({"model": {**shape, "max_len": max_len}}).model
    return family(recipe.name)(vocabulary, recipe.config).train()


def batch_of(rows=4, length=128):
    ids = torch.zeros(rows, length, dtype=torch.long)
    return Batch(ids, ids.clone(), None, np.arange(rows), rows * length, rows * length)


def real_step(model, batch, updates=0):
    """Live bytes of a real gradient, or of whole steps, weights included."""
    held = TensorMemory()
    with held:
        own = type(model)(model.vocab_size, model.config).train()
        stepper = Stepper(own, RECIPE, forbidden=None, world=ALONE)
        # made inside, so that its bytes count as they do in a trace
        ids = torch.zeros_like(batch.ids)
        asked = batch.with_tensors(ids, torch.zeros_like(ids), None, None, None)
        for _ in range(max(1, updates)):
            stepper.gradient([asked], asked.symbols)
            if updates:
                stepper.update(stepper.norm())
    return held.peak


def test_tensors_are_counted_as_they_come_and_go():
    def work():
        a = torch.zeros(1000)  # 4,000 bytes
        b = a + 1  # 4,000 more
        c = b.view(10, 100)  # no more: the same memory
        del a, b, c
        d = torch.zeros(1500, dtype=torch.float64)  # 12,000, alone
        return d.sum()

    assert peak_of(work) == 12_008 + 0  # ... and the sum


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s.values())))
def test_a_step_on_fake_tensors_holds_what_a_real_one_does(shape):
    model, batch = model_of(shape), batch_of()
    assert trace(model, batch, RECIPE, "fp32").peak == pytest.approx(real_step(model, batch), 0.02)


def test_what_a_fused_recurrence_keeps_is_added():
    model, batch = model_of({"name": "lstm", "n_layers": 2, "d_model": 64}), batch_of()
    held = trace(model, batch, RECIPE, "fp32")
    assert held.inside > 0
    assert held.peak == pytest.approx(real_step(model, batch), 0.2)


@pytest.mark.parametrize("shape", SHAPES[::2], ids=lambda s: s["name"])
@pytest.mark.parametrize("rows", [1, 8])
def test_whole_steps_with_their_update_hold_what_is_forecast(shape, rows):
    model, batch = model_of(shape), batch_of(rows)
    stepper = Stepper(model, RECIPE, forbidden=None, world=ALONE)
    found = forecast_run(model, [batch], RECIPE, stepper)
    assert found.tensors == pytest.approx(real_step(model, batch, updates=2), 0.2)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.positions == rows * 128 and found.rows == rows


def test_gradients_that_wait_are_added_where_batches_are_several():
    model, batch = model_of(SHAPES[0]), batch_of()
    stepper = Stepper(model, RECIPE, forbidden=None, world=ALONE)
    one, two = (forecast_run(model, [batch] * n, RECIPE, stepper) for n in (1, 2))
    assert one.gradients == 0 and two.gradients == 4 * one.parameters
    assert two.tensors > one.tensors


def test_of_a_short_run_of_a_small_model_nothing_is_asked():
    model, short = model_of(SHAPES[0], 16), dataclasses.replace(RECIPE, steps=3)
    stepper = Stepper(model, short, forbidden=None, world=ALONE)
    assert forecast_run(model, [batch_of(1, 16)], short, stepper) is None


def example(**changes):
    given = dict.fromkeys(
        ("parameters", "weights", "state", "gradients", "inside", "update", "base"), 0
    )
    return Forecast(**given | {"activations": 0, "positions": 4096, "rows": 16} | changes)


CONFIG = build({"model": {"d_model": 128, "max_len": 256}}).model.config
CPU = torch.device("cpu")


def test_what_cannot_fit_is_refused_with_the_key_to_lower_and_a_value_that_fits(monkeypatch):
    monkeypatch.setattr(throughput, "memory_of", lambda device: 10 << 30)
    example(activations=9 << 30).check(RECIPE, CONFIG, CPU)  # fits
    many = dataclasses.replace(RECIPE, batch_tokens=65536, micro_tokens=4096)
    with pytest.raises(UserError, match=r"16\.0 GB, .*has 10\.0 GB.*train\.micro_tokens to 2,304"):
        example(activations=16 << 30).check(many, CONFIG, CPU)
    few = dataclasses.replace(RECIPE, batch_tokens=4096, micro_tokens=32768)
    with pytest.raises(UserError, match=r"train\.batch_tokens to 2,304"):
        example(activations=16 << 30).check(few, CONFIG, CPU)
    with pytest.raises(UserError, match=r"lower model\.max_len, now 256"):
        example(activations=16 << 30, rows=1).check(many, CONFIG, CPU)
    with pytest.raises(UserError, match=r"7 weights alone.*model\.d_model, now 128"):
        example(parameters=7, weights=12 << 30).check(many, CONFIG, CPU)


def test_a_process_holds_more_than_its_tensors_and_a_gpu_does_not():
    told = example(activations=1 << 30, base=1 << 28)
    assert told.memory == (1 << 28) + round(throughput.HOLES * (1 << 30))
    assert example(activations=1 << 30).memory == 1 << 30
    assert told.timed(0.5, 125.0).line() == "forecast: 1.8 GB of memory, 0.5 s a step, 2:05 in all"


def test_a_machine_has_memory():
    assert 1 << 28 < memory_of(CPU) < 1 << 50


def test_training_says_its_forecast_and_keeps_it(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 400)
    small = ["--set=model.n_layers=1", "--set=model.d_model=32", "--set=model.max_len=32"]
    small += ["--set=train.batch_tokens=128", "--set=train.steps=100", "--set=train.device=cpu"]
    run = tmp_path / "run"
    assert regard.cli.run(["train", str(text), *small, "--out", str(run)]) in (0, None)
    told = capsys.readouterr().err
    assert "forecast: " in told and "s a step" in told
    kept = json.loads((run / "regard.json").read_text())["forecast"]
    assert kept["seconds_per_step"] > 0 and kept["memory_bytes"] > kept["activation_bytes"] > 0


def test_weights_that_cannot_fit_are_refused_before_they_are_made(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 400)
    huge = ["--set=model.n_layers=400", "--set=model.d_model=32768", "--set=train.steps=1"]
    run = tmp_path / "run"
    assert regard.cli.run(["train", str(text), *huge, "--out", str(run)]) == 1
    told = capsys.readouterr().err
    assert "lower model.d_model, now 32,768" in told and "Traceback" not in told
    assert not run.exists()
