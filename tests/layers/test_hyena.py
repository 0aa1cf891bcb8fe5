"""Hyena is the product of gates and Toeplitz matrices it stands for; it decodes what it reads."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.linalg
import torch
from torch.nn import functional as F

from regard.layers.attention import AttentionContext
from regard.layers.hyena import SHORT, Hyena
from regard.models.hyena import HyenaModel, hyena

D, LENGTH = 6, 50


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def toeplitz(filters, ahead=None):
    """(C, T, T): row t has filters[t - s] at s <= t, and ahead[s - t - 1] after."""
    columns = filters.detach().numpy()
    rows = np.zeros_like(columns)
    if ahead is not None:
        rows[:, 1:] = ahead.detach().numpy()[:, :-1]
    matrices = [
        scipy.linalg.toeplitz(c, [c[0], *r[1:]]) for c, r in zip(columns, rows, strict=True)
    ]
    return torch.from_numpy(np.stack(matrices)).to(filters.dtype)


def make(order=2, causal=True, max_len=64):
    torch.manual_seed(3)
    mixer = Hyena(D, order=order, max_len=max_len, causal=causal)
    mixer.reset()
    return mixer


def explicit(mixer, x):
    """The same by matrices: short filters by torch's own, diagonal gates, Toeplitz filters."""
    u = mixer.streams(x).mT  # (B, (N+1)·D, T)
    weight = mixer.short.T[:, None]  # (C, 1, SHORT)
    around = (SHORT - 1, 0) if mixer.causal else (SHORT // 2, SHORT // 2)
    u = F.conv1d(F.pad(u, around), weight, groups=u.size(1))
    streams = u.chunk(mixer.order + 1, dim=1)
    v = streams[-1]
    for n in range(mixer.order - 1):
        filters = mixer.filters(x.size(1)).chunk(mixer.order - 1)[n]
        ahead = None
        if mixer.ahead is not None:
            ahead = mixer.ahead(x.size(1)).chunk(mixer.order - 1)[n]
        v = torch.einsum("cts,bcs->bct", toeplitz(filters, ahead), v * streams[-2 - n])
    return mixer.out((v * streams[0]).mT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("causal", [True, False])
def test_it_is_a_product_of_diagonal_and_toeplitz_matrices(order, causal, dtype):
    mixer, x = make(order, causal).to(dtype), random(2, LENGTH, D, dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(
        mixer(x, AttentionContext()), explicit(mixer, x), atol=tolerance, rtol=0
    )


def test_no_gradient_flows_from_the_future_and_some_from_all_of_the_past():
    mixer, x = make(), random(1, LENGTH, D).requires_grad_()
    mixer(x, AttentionContext())[:, 20].sum().backward()
    assert (x.grad[:, :21].abs().amax(-1) > 0).all()
    assert x.grad[:, 21:].abs().max() < 1e-7  # of the transform's rounding


def test_looking_both_ways_reads_both_sides_and_no_padding():
    mixer, x = make(causal=False), random(2, LENGTH, D).requires_grad_()
    valid = torch.arange(LENGTH) < torch.tensor([[LENGTH], [30]])
    y = mixer(x, AttentionContext(valid=valid))
    alone = mixer(x[1:, :30], AttentionContext())
    torch.testing.assert_close(y[1:, :30], alone, atol=1e-5, rtol=0)
    y[1, 10].sum().backward()
    assert (x.grad[1, :30].abs().amax(-1) > 0).all()
    assert x.grad[1, 30:].abs().max() < 1e-7


def test_any_length_may_be_asked_for_and_what_follows_changes_nothing():
    mixer, x = make(max_len=16), random(1, 200, D)
    whole = mixer(x, AttentionContext())
    assert whole.isfinite().all()
    torch.testing.assert_close(
        mixer(x[:, :16], AttentionContext()), whole[:, :16], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("max_len", [16, 4096])
def test_outputs_are_about_as_large_as_inputs_at_every_length(max_len):
    mixer = Hyena(32, max_len=max_len)
    mixer.reset()
    filters = mixer.filters(4 * max_len) - F.pad(mixer.filters.skip[:, None], (0, 4 * max_len - 1))
    energy = filters.square().sum(-1)  # of the whole filter: what white noise is multiplied by
    assert 0.01 < energy.mean() < 1


def test_two_thousand_steps_give_what_reading_at_once_gives():
    torch.manual_seed(0)
    model = HyenaModel(7, dataclasses.replace(hyena(2, 8), max_len=1024)).eval()
    ids = torch.randint(7, (1, 2000))
    worst = 0.0
    with torch.inference_mode():
        whole, state = model.logits(ids), model.init_state(1, 2000)
        for t in range(2000):
            logits = model.step(ids[:, t : t + 1], None, state)
            worst = max(worst, float((logits - whole[:, t]).abs().max()))
    assert worst < 1e-4


def test_filters_do_not_depend_on_how_many_are_computed():
    """Sines of sines made a hundred times of single precision's rounding, and a record's answer
    depended on the length of its row.
    """
    mixer = make(max_len=4096)
    long = mixer.filters(3000)
    for length in (1, 7, 100):
        torch.testing.assert_close(mixer.filters(length), long[:, :length], atol=2e-7, rtol=0)


def test_filters_are_computed_in_single_precision_whatever_the_weights_are_in():
    mixer = make()
    exact = mixer.filters(40)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mixer.filters(40), exact)
        assert mixer(random(1, 40, D).bfloat16(), AttentionContext()).dtype == torch.bfloat16
    half = make().bfloat16()
    assert half.filters(40).dtype == torch.float32
