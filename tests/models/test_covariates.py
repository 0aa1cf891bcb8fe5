"""Covariates that are known in the future: nothing changes without them, and they are learned."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.models import count_parameters
from regard.models.covariates import Covariates
from regard.registry import MODELS

B, L, H, C, K, Q = 5, 16, 3, 2, 4, 3
NEURAL = ("dlinear", "nlinear", "lstm", "cnn", "hyena", "decoder", "transformer")


def model_of(name, **options):
    cls = MODELS.get(name, "forecast", "series")
    sizes = {"n_layers": 1, "d_model": 8, "patch": 4, "stride": 2, "n_heads": 2, "n_kv_heads": 2}
    sizes |= {"d_head": 4, "d_ff": 16, "dropout": 0.0, "kernel": 3}
    if name == "hyena":
        options["mixers"] = ("hyena",)
    sizes = {key: x for key, x in sizes.items() if key in cls.Config.__dataclass_fields__}
    config = cls.Config(**{"max_len": L, "horizon": H, **sizes, **options})
    torch.manual_seed(0)
    return cls(0, config)


def inputs(seed=0):
    values = torch.randn(B, L + H, C + K, generator=torch.Generator().manual_seed(seed))
    return values[:, :L], values[:, L:, C:]


@pytest.mark.parametrize("name", NEURAL)
def test_a_new_model_forecasts_the_same_with_and_without_covariates(name):
    past, future = inputs()
    with_them = model_of(name, n_channels=C, n_known=K).eval()
    without = model_of(name, n_channels=C).eval()
    shared = {k: v for k, v in with_them.state_dict().items() if "covariates" not in k}
    without.load_state_dict(shared)
    assert torch.equal(with_them.forecast(past, future), without.forecast(past[..., :C]))
    assert not any("covariates" in key for key in without.state_dict())


@torch.no_grad()
def test_effects_are_those_of_their_definition():
    torch.manual_seed(0)
    effects = Covariates(K, H, C, Q)
    for parameter in effects.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    past, future = inputs()
    past[0, 2, C] = torch.nan  # counts as the mean, 0
    z = np.nan_to_num(past[0, 2, C:].numpy()).astype(float)
    hidden, bias, effect = (
        x.double().numpy()
        for x in (effects.hidden.weight, effects.hidden.bias, effects.effect.weight)
    )
    gelu = torch.nn.functional.gelu(torch.from_numpy(hidden @ z + bias)).numpy()
    expected = past[0, 2, :C].numpy() - effect @ np.concatenate([z, gelu])
    assert effects.subtract(past)[0, 2].numpy() == pytest.approx(expected, abs=1e-4)
    forecasts, deviation = torch.zeros(B, H, C, Q), torch.rand(B, 1, C)
    added = effects.add(forecasts, future, deviation)
    features = effects.features(future)[3, 1]
    step = float(effects.ahead[1, :, 2] @ features) * float(deviation[3, 0, 1])
    shared = float(effects.effect.weight[1] @ features)
    assert float(added[3, 1, 1, 2]) == pytest.approx(step + shared, abs=1e-4)
    assert torch.equal(effects.add(forecasts, None, deviation), forecasts)


def everywhere(known, noise):
    """The target is 3 times a covariate at every step."""
    return 3 * known + noise


def level_change(known, noise):
    """The level after the look-back depends on what is the same at all steps of a window."""
    known[:] = known[:, :1].sign()
    later = (torch.arange(L + H) >= L).float()[:, None]
    return 3 * known * later + noise


@pytest.mark.parametrize("target_of", [everywhere, level_change])
@pytest.mark.parametrize("name", ["nlinear", "cnn"])
def test_what_covariates_explain_is_forecast(name, target_of):
    """Without the covariate, the best forecast has an error of 9."""
    random = torch.Generator().manual_seed(1)
    model = model_of(name, n_known=1).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def windows(count):
        known = torch.randn(count, L + H, 1, generator=random)
        noise = 0.5 * torch.randn(count, L + H, 1, generator=random)
        return torch.cat((target_of(known, noise), known), -1)

    for _ in range(60):
        values = windows(32)
        past, ahead = values[:, :L], values[:, L:]
        optimizer.zero_grad()
        model.losses(model(past, ahead[..., 1:]), ahead[..., :1]).mean().backward()
        optimizer.step()
    values = windows(200)
    with torch.no_grad():
        forecasts = model.eval().forecast(values[:, :L], values[:, L:, 1:])
    error = float((forecasts[..., 0] - values[:, L:, :1]).square().mean())
    assert error < 1.0


def test_covariates_cost_few_parameters():
    config = model_of("nlinear", n_channels=C).config
    more = model_of("nlinear", n_channels=C, n_known=K).config
    size, larger = (count_parameters("nlinear", 0, c, "forecast", "series") for c in (config, more))
    assert larger - size == (K + 1) * 32 + (K + 32) * (C + H)
