"""One step: gradients add up over batches, are clipped, and the compiler may fail."""

import numpy as np
import pytest
import torch

from regard.data.batching import Batch
from regard.models.decoder import Decoder, modern
from regard.recipe import TrainRecipe
from regard.training.distributed import ALONE
from regard.training.objectives import NextTokenObjective
from regard.training.step import Stepper

RECIPE = TrainRecipe(steps=10, device="cpu", compile="off")


def make(**settings):
    torch.manual_seed(0)
    recipe = TrainRecipe(**{"steps": 10, "device": "cpu", "compile": "off"} | settings)
    return Stepper(Decoder(9, modern(1, 16)).train(), recipe, NextTokenObjective, world=ALONE)


def batch(rows, seed=1):
    torch.manual_seed(seed)
    ids, targets = torch.randint(0, 9, (rows, 6)), torch.randint(0, 9, (rows, 6))
    return Batch(ids, targets, None, np.arange(rows), rows * 6, rows * 6)


def test_batches_of_a_step_add_up():
    stepper = make(precision="fp64")
    whole = batch(4)
    parts = [
        Batch(whole.ids[i : i + 2], whole.targets[i : i + 2], None, np.arange(2), 12, 12)
        for i in (0, 2)
    ]
    nats, gradients = [], []
    for batches in ([whole], parts):
        nats.append(float(stepper.gradient(batches, 24)))
        gradients.append([g.clone() for g in stepper.gradients().values()])
    assert nats[0] == pytest.approx(nats[1])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_a_gradient_is_not_longer_than_the_recipe_allows():
    stepper = make(clip=1e-3)
    stepper.gradient([batch(4)], 1)
    norm = stepper.norm()
    assert norm > 1
    stepper.optimizer.set_rates(1.0)
    stepper.update(norm)
    assert float(stepper.norm()) == pytest.approx(1e-3, rel=1e-3)


def test_what_the_compiler_cannot_do_is_done_without_it(monkeypatch):
    stepper = make(compile="on")

    def fails():
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(stepper.model, "compile", fails)
    assert stepper.compile_for(batch(2), 10) == "no compiler here"
    assert not stepper.compiled and not stepper.gradients()
    assert stepper.how() == "cpu, fp32"


def test_nothing_is_compiled_on_a_cpu_unless_asked():
    stepper = make(compile="auto")
    assert stepper.compile_for(batch(2), 1 << 40) == "" and not stepper.compiled
    assert not stepper.captures and stepper.steady
