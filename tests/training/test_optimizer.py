"""Muon against torch's own, orthogonality, a state that survives saving, and schedules."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from regard.models.decoder import Decoder, modern
from regard.recipe import TrainRecipe
from regard.training.optimizer import Muon, Optimizer, block_matrices, factor, orthogonalise


@pytest.mark.parametrize("shape", [(3, 6, 6), (2, 5, 9), (4, 9, 5)])
def test_newton_schulz_brings_every_singular_value_near_one(shape):
    torch.manual_seed(0)
    x = torch.randn(shape)
    y = orthogonalise(x)
    values = torch.linalg.svdvals(y)
    assert (values > 0.6).all() and (values < 1.3).all()
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    polar = left @ right  # the nearest semi-orthogonal matrix
    cosine = (y * polar).sum((-2, -1)) / (y.norm(dim=(-2, -1)) * polar.norm(dim=(-2, -1)))
    assert (cosine > 0.95).all()


def test_our_muon_takes_the_steps_of_torchs():
    """torch's casts to bf16 inside, so the two agree to bf16 precision."""
    torch.manual_seed(1)
    weights = [torch.randn(8, 12), torch.randn(20, 5), torch.randn(8, 12)]
    ours = [nn.Parameter(w.clone()) for w in weights]
    theirs = [nn.Parameter(w.clone()) for w in weights]
    one = Muon(ours, lr=0.03, momentum=0.9, weight_decay=0.1)
    other = torch.optim.Muon(theirs, lr=0.03, momentum=0.9, weight_decay=0.1, nesterov=True)
    for step in range(4):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=torch.Generator().manual_seed(step))
            b.grad = a.grad.clone()
        one.step()
        other.step()
    for a, b, start in zip(ours, theirs, weights, strict=True):
        moved = (b - start).norm()
        assert (a - b).norm() < 2e-2 * moved


def test_a_fused_matrix_steps_as_its_parts_would_alone():
    torch.manual_seed(2)
    whole = nn.Parameter(torch.randn(12, 4))
    parts = [nn.Parameter(p.clone()) for p in whole.detach().split((6, 3, 3))]
    gradient = torch.randn(12, 4)
    whole.grad = gradient.clone()
    for part, piece in zip(parts, gradient.split((6, 3, 3)), strict=True):
        part.grad = piece.clone()
    Muon([whole], lr=0.1, parts={whole: (6, 3, 3)}).step()
    Muon(parts, lr=0.1).step()
    torch.testing.assert_close(whole.detach(), torch.cat([p.detach() for p in parts]))


def test_muon_gets_the_matrices_of_blocks_and_adamw_the_rest():
    model = Decoder(11, modern(2, 32))
    matrices, parts = block_matrices(model)
    assert len(matrices) == 2 * 4  # qkv, out, gate_up and down in each of two blocks
    assert all(sum(rows) == p.size(0) for p, rows in parts.items())
    assert not any(p is model.embedding.weight or p is model.head.weight for p in matrices)


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_a_saved_optimizer_goes_on_bit_for_bit(kind):
    def setup():
        torch.manual_seed(3)
        model = Decoder(11, modern(1, 32))
        return model, Optimizer(model, TrainRecipe(optimizer=kind))

    def step(model, optimizer, number):
        ids = torch.randint(0, 11, (2, 7), generator=torch.Generator().manual_seed(number))
        (-model.score(ids[:, :-1], ids[:, 1:]).mean()).backward()
        optimizer.set_rates(0.5)
        optimizer.step()
        optimizer.clear()

    straight, one = setup()
    for number in range(4):
        step(straight, one, number)
    first, other = setup()
    for number in range(2):
        step(first, other, number)
    saved = {name: tensor.clone() for name, tensor in other.tensors().items()}
    resumed, third = setup()
    resumed.load_state_dict(first.state_dict())
    third.load(saved)
    for number in range(2, 4):
        step(resumed, third, number)
    for a, b in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    assert all(torch.equal(t, third.tensors()[name]) for name, t in one.tensors().items())


SCHEDULES = ["cosine", "linear", "inverse_sqrt"]


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("steps", "warmup"), [(100, 0.1), (7, 0.0), (1, 0.5), (50, 1.0)])
def test_factors_rise_linearly_to_one_and_then_never_rise(name, steps, warmup):
    factors = [factor(name, step, steps, warmup) for step in range(steps)]
    rise = max(1, round(warmup * steps))
    assert factors[:rise] == pytest.approx([(i + 1) / rise for i in range(rise)])
    assert max(factors) == pytest.approx(1.0)
    assert all(0 < f <= 1 for f in factors)
    assert all(a >= b for a, b in zip(factors[rise - 1 :], factors[rise:], strict=False))


def test_linear_heads_for_zero_and_cosine_for_a_tenth():
    assert factor("linear", 999, 1000, 0.0) == pytest.approx(1 / 999, rel=1e-6)
    assert factor("cosine", 999_999, 1_000_000, 0.0) == pytest.approx(0.1, abs=1e-6)
    middle = factor("cosine", 550, 1000, 0.1)  # half way down
    assert middle == pytest.approx(0.55)


def test_inverse_sqrt_is_the_formula_of_2017_up_to_its_peak():
    """d_model^-0.5 · min(s^-0.5, s · w^-1.5), with s counted from 1, over its value at s = w."""
    steps, warm = 400, 40
    for step in (0, 10, 39, 40, 100, 399):
        s = step + 1
        noam = min(s**-0.5, s * warm**-1.5) / (warm**-0.5)
        assert factor("inverse_sqrt", step, steps, warm / steps) == pytest.approx(noam)
    assert math.isclose(factor("inverse_sqrt", 159, steps, 0.1), 0.5)
