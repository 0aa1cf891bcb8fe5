"""The training tricks: variants against models written by hand, and claims by their numbers."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch

from regard.errors import UserError
from regard.lab import tricks
from regard.lab.experiment import Options, random_windows, read_stream
from regard.models.decoder import Decoder
from regard.training.loop import seed_of


def test_a_block_without_residuals_is_its_parts_one_after_the_other():
    config = dataclasses.replace(tricks.SMALL.config, norm="none")
    torch.manual_seed(0)
    model = tricks.StraightDecoder(5, config).eval()
    block = model.blocks[0]
    x = torch.randn(2, 7, config.d_model)
    context, _ = model.make_context(torch.zeros(2, 7, dtype=torch.long), None, explicit=False)
    expected = block.feedforward(block.mixer(x, context))
    assert torch.allclose(block(x, context), expected)
    usual = Decoder(5, config)
    assert {n for n, _ in usual.named_parameters()} == {n for n, _ in model.named_parameters()}


def test_every_variant_has_the_same_start_and_gradients_are_by_layer():
    plan = tricks.Plan(steps=2, seeds=1, n_layers=2, length=12, batch=2, tested=4)
    stream = read_stream(None, 100)
    base, no_warmup = (
        tricks.run(tricks.VARIANTS[name], plan, stream, 0, lambda positions: None)
        for name in (tricks.ALL, tricks.NO_WARMUP)
    )
    # warm-up changes no first gradient
    assert base.gradients[0] == no_warmup.gradients[0] and len(base.gradients[0]) == 2
    assert base.losses[0] == no_warmup.losses[0] and 1 < base.loss < 6
    torch.manual_seed(seed_of(0))
    model = Decoder(len(stream.letters), plan.config).train()
    batch = random_windows(stream.train, 12, 2, 0, 0)
    (-model.score(batch.ids, batch.targets).sum() / batch.symbols).backward()
    expected = [sum(float((p.grad**2).sum()) for p in b.parameters()) ** 0.5 for b in model.blocks]
    assert np.allclose(base.gradients[0], expected, rtol=1e-4)


def test_a_training_that_diverges_has_an_infinite_loss(monkeypatch):
    def diverge(*args, **options):
        raise UserError("the gradient is not finite")

    monkeypatch.setattr(tricks, "train_model", diverge)
    stream = read_stream(None, 100)
    trial = tricks.run(tricks.Variant(), tricks.SMALL, stream, 0, lambda positions: None)
    assert math.isinf(trial.loss)


def make_trials(loss, gradients=(1.0, 1.0)):
    trial = tricks.Trial([0.0, 1.0], [3.0, 2.0], [2.0, 1.0], [list(gradients)] * 2, loss)
    return [trial, trial]


def test_claims_follow_the_losses_and_gradients():
    trials = {name: make_trials(2.0) for name in tricks.VARIANTS}
    assert all(claim.holds is False for claim in tricks.claims(trials))
    one = {name: seeds[:1] for name, seeds in trials.items()}
    assert all(claim.holds is None for claim in tricks.claims(one))  # one seed decides nothing
    worse = (tricks.NO_NORM, tricks.UNSCALED, tricks.POST_NO_WARMUP, tricks.SMOOTHED)
    trials |= {name: make_trials(2.2) for name in worse}
    trials[tricks.NO_RESIDUAL] = make_trials(math.inf, (0.01, 1.0))
    assert all(claim.holds for claim in tricks.claims(trials))
    assert "no residual" in tricks.report(trials).page().render()


def test_tricks_quick_form(monkeypatch):
    plan = tricks.Plan(steps=1, seeds=1, n_layers=1, length=8, batch=2, tested=2)
    monkeypatch.setattr(tricks, "SMALL", plan)
    result = tricks.tricks(Options(quick=True))
    assert [row[0] for row in result.tables[0].rows] == list(tricks.VARIANTS)
    assert len(result.claims) == 6 and len(result.figures) == 4


def test_the_matrix_has_every_combination_and_a_gap_where_one_diverged():
    trials = {name: make_trials(2.0) for name in tricks.VARIANTS}
    trials["post-norm, no residual, no scaling"] = make_trials(math.inf)
    matrix = tricks.matrix(trials)
    assert matrix.values.shape == (4, 4)
    assert np.isnan(matrix.values[1, 3]) and np.isfinite(matrix.values).sum() == 15
    assert tricks.name_of("", "") == tricks.ALL and len(set(tricks.VARIANTS)) == 19
    maps = tricks.gradient_maps(trials)
    assert [m.title.rpartition(": ")[2] for m in maps] == list(tricks.DRAWN)
    assert maps[0].values.shape == (2, 2)  # layers down, steps across
