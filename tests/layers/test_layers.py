"""Registered mixers, and what layers tell an optimizer of their parameters."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from regard import layers
from regard.layers import MIXERS, Mixer, find_layers, find_mixer, register_mixer
from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.embeddings import PatchEmbedding
from regard.layers.feedforward import SwiGLU
from regard.layers.hyena import Hyena
from regard.models.decoder import Decoder, modern


def test_every_built_in_mixer_is_found_by_name():
    classes = {name: find_mixer(name) for name in MIXERS}
    assert all(issubclass(cls, Mixer) for cls in classes.values())
    assert classes["attention"] is SelfAttention and classes["hyena"] is Hyena


class Mean(Mixer):
    """The mean of all positions so far."""

    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model)

    @classmethod
    def from_config(cls, config, *, causal):
        assert causal
        return cls(config.d_model)

    @classmethod
    def check_config(cls, config):
        if config.window:
            raise ValueError("a mean has no window")

    def forward(self, x, context, state=None, tap=None):
        count = torch.arange(1, x.size(1) + 1, dtype=x.dtype)[:, None]
        return self.out(x.cumsum(1) / count)

    def new_state(self, batch, capacity, like):
        raise NotImplementedError


def test_a_registered_mixer_is_all_that_a_new_one_takes(monkeypatch):
    monkeypatch.setattr(layers, "MIXERS", dict(MIXERS))
    monkeypatch.setattr("regard.models.transformer.MIXERS", layers.MIXERS)
    register_mixer("mean")(Mean)
    config = dataclasses.replace(modern(2, 32), mixers=("mean", "attention"))
    model = Decoder(7, config).eval()
    assert [type(block.mixer) for block in model.blocks] == [Mean, SelfAttention]
    assert not model.supports_packing and not config.extrapolates
    ids = torch.randint(7, (1, 6))
    changed = ids.clone()
    changed[0, 4:] = (ids[0, 4:] + 1) % 7
    with torch.no_grad():  # the past does not depend on what follows
        torch.testing.assert_close(model.logits(ids)[:, :4], model.logits(changed)[:, :4])
    with pytest.raises(ValueError, match="a mean has no window"):
        dataclasses.replace(config, mixers=("mean", "window"), window=3)


def test_fused_matrices_are_the_sum_of_their_parts():
    attention = SelfAttention(12, 3, n_kv_heads=1)
    layers = [attention, CrossAttention(12, 3), SwiGLU(12, 20, bias=False), Hyena(12, max_len=8)]
    for module in layers:
        for matrix, rows in module.fused_weights().items():
            assert sum(rows) == len(matrix) and len(rows) > 1
    assert attention.fused_weights()[attention.qkv.weight] == (12, 4, 4)
    assert not SelfAttention(12, 3, projections="identity").fused_weights()


def test_filters_are_not_decayed_and_patches_are_embedded():
    hyena = Hyena(12, max_len=8)
    undecayed = {p for found in find_layers(hyena) for p in found.undecayed_parameters()}
    assert undecayed == {hyena.short, *hyena.filters.parameters()}
    patches = PatchEmbedding(6, 12, (2, 2), (0.5,), (0.5,))
    assert list(patches.embedding_weights()) == [patches.project.weight]
