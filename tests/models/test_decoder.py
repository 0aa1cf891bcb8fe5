"""The decoder's own promises: sizes, limits, initial values."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.models.decoder import Decoder, DecoderConfig, gpt2, modern


def test_gpt2_at_size_twelve_has_the_published_number_of_parameters():
    with torch.device("meta"):
        model = Decoder(50257, dataclasses.replace(gpt2(12, 768), max_len=1024))
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


def test_learned_positions_refuse_longer_inputs_by_name():
    model = Decoder(11, dataclasses.replace(gpt2(1, 32), max_len=8))
    with pytest.raises(ValueError, match="at most 8 positions"):
        model.logits(torch.zeros(1, 9, dtype=torch.long))


def test_the_initial_loss_is_near_that_of_guessing():
    torch.manual_seed(0)
    for preset in Decoder.PRESETS.values():
        model = Decoder(50, preset(3, 64))
        ids = torch.randint(0, 50, (4, 33))
        loss = -model.score(ids[:, :-1], ids[:, 1:]).detach().mean()
        tied = 1.6 if model.config.tied else 0.3  # a tied model at first expects what it just saw
        assert abs(float(loss) - 3.91) < tied  # ln 50


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_heads": 4, "n_kv_heads": 3}, "multiple of n_kv_heads"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"positions": "polar"}, "positions must be one of"),
        ({"n_layers": 0}, "n_layers must be from 1"),
        ({"window": -1}, "window must be"),
    ],
)
def test_a_wrong_config_names_the_field(change, words):
    with pytest.raises(ValueError, match=words):
        DecoderConfig(**change)


def test_gradients_do_not_depend_on_packing():
    torch.manual_seed(0)
    model = Decoder(11, modern(2, 32)).double()
    a, b = torch.randint(0, 11, (1, 6)), torch.randint(0, 11, (1, 9))

    def gradient(*batches):
        model.zero_grad()
        for ids, targets, segments in batches:
            (-model.score(ids, targets, segments).sum()).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    apart = gradient((a[:, :-1], a[:, 1:], None), (b[:, :-1], b[:, 1:], None))
    pad = torch.zeros(1, 3, dtype=torch.long)
    row = torch.cat([a[:, :-1], b[:, :-1], pad], 1)
    targets = torch.cat([a[:, 1:], b[:, 1:], pad - 1], 1)
    segments = torch.tensor([[1] * 5 + [2] * 8 + [0] * 3])
    packed = gradient((row, targets, segments))
    assert (apart - packed).abs().max() < 1e-12 * apart.abs().max().clamp_min(1)
