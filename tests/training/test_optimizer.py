"""Muon against torch's own, orthogonality, and a state that survives saving."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.models.decoder import Decoder, modern
from regard.recipe import TrainRecipe
from regard.training.optimizer import Muon, Optimizer, block_matrices, orthogonalise


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
