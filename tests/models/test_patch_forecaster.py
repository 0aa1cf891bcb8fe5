"""Forecasters over patches: where patches lie, what they may read, and that they learn."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.layers.tap import Tap
from regard.models.patch_forecaster import (
    ConvolutionalForecaster,
    DecoderForecaster,
    HyenaForecaster,
    PatchForecaster,
    RecurrentForecaster,
)

L, H, C = 40, 6, 3
FAMILIES = [
    PatchForecaster,
    DecoderForecaster,
    HyenaForecaster,
    RecurrentForecaster,
    ConvolutionalForecaster,
]


def model(cls=PatchForecaster, **options):
    shape = {"max_len": L, "horizon": H, "n_channels": C, "patch": 8, "stride": 4, "dropout": 0.0}
    torch.manual_seed(0)
    config = next(iter(cls.PRESETS.values()))(2, 32)
    forecaster = cls(C, dataclasses.replace(config, **shape | options)).eval()
    torch.nn.init.normal_(forecaster.head.weight, std=0.1)  # it starts at 0
    return forecaster


def past(rows=2, seed=0):
    return torch.randn(rows, L, C, generator=torch.Generator().manual_seed(seed)).cumsum(1)


def test_patches_overlap_and_the_last_repeats_the_last_value():
    forecaster = model()
    values = torch.arange(float(L))[None, :, None].expand(1, L, C)
    patches = forecaster.cut(values)
    assert patches.shape == (C, forecaster.config.n_patches, 8)
    assert patches[0, 0].tolist() == list(range(0, 8)) and patches[0, 1, 0] == 4
    assert patches[0, -1].tolist() == [36, 37, 38, 39, 39, 39, 39, 39]


@pytest.mark.parametrize("cls", [PatchForecaster, DecoderForecaster, HyenaForecaster])
def test_an_untrained_stack_forecasts_the_mean_of_the_window(cls):
    forecaster, values = model(cls), past()
    torch.nn.init.zeros_(forecaster.head.weight)
    expected = values.mean(1, keepdim=True).expand(-1, H, -1)
    assert torch.allclose(forecaster.forecast(values)[..., 0], expected, atol=1e-5)
    fresh = cls(C, forecaster.config)
    assert not fresh.head.weight.any()


def test_the_head_reads_how_large_a_patch_is():
    forecaster = model()
    patches = forecaster.cut(past())
    small, large = forecaster.encode(patches / 8, None), forecaster.encode(patches, None)
    assert large.norm() > 1.5 * small.norm()  # a last norm would make them equal


def test_a_look_back_shorter_than_a_patch_is_padded():
    forecaster = model(max_len=5)
    assert torch.isfinite(forecaster.forecast(past()[:, :5])).all()


@pytest.mark.parametrize("cls", FAMILIES)
def test_forecasts_have_their_shape_and_channels_are_independent(cls):
    forecaster, values = model(cls, quantiles=(0.1, 0.5, 0.9)), past()
    forecasts = forecaster.forecast(values)
    assert forecasts.shape == (2, H, C, 3)
    changed = values.clone()
    changed[..., 2] = changed[..., 2].flip(1)
    other = forecaster.forecast(changed)
    assert torch.allclose(forecasts[:, :, :2], other[:, :, :2], atol=1e-5)
    assert not torch.allclose(forecasts[:, :, 2], other[:, :, 2], atol=1e-5)


@pytest.mark.parametrize("cls", FAMILIES)
def test_a_window_alone_has_the_forecast_it_has_in_a_batch(cls):
    forecaster, values = model(cls), past(3)
    values[1, :10] = torch.nan
    together = forecaster.forecast(values)
    alone = torch.cat([forecaster.forecast(one[None]) for one in values])
    assert torch.allclose(together, alone, atol=1e-5)


def test_fused_attention_gives_what_its_weights_give():
    forecaster, values = model(), past()
    tap = Tap(["*.weights"])
    explicit = forecaster.forecast(values, tap=tap)
    assert torch.allclose(explicit, forecaster.forecast(values), atol=1e-5)
    n = forecaster.config.n_patches
    assert {tuple(w.shape) for w in tap.activations.values()} == {(2 * C, 4, n, n)}


@pytest.mark.parametrize("cls", [DecoderForecaster, RecurrentForecaster, ConvolutionalForecaster])
def test_causal_stacks_do_not_read_later_patches(cls):
    forecaster = model(cls)
    patches = forecaster.cut(past()).detach().requires_grad_()
    encoded = forecaster.encode(patches, None)
    encoded[:, 3].sum().backward()
    assert patches.grad[:, 4:].abs().sum() == 0 and patches.grad[:, :4].abs().sum() > 0


def test_stride_may_not_exceed_the_patch():
    with pytest.raises(ValueError, match="stride must be from 1 to patch"):
        model(stride=9)


@pytest.mark.parametrize("cls", FAMILIES)
def test_every_family_learns_a_wave(cls):
    steps = torch.arange(120.0)
    wave = torch.stack([torch.sin(2 * torch.pi * steps / 12 + shift) for shift in range(C)], 1)
    windows = wave.unfold(0, L + H, 1).mT  # (N, L + H, C)
    forecaster = model(cls).train()
    optimizer = torch.optim.Adam(forecaster.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        loss = forecaster.losses(forecaster.forecast(windows[:, :L]), windows[:, L:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]
