"""Families of equal size: counted on real models, whatever the wanted size and the vocabulary."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UsageError
from regard.models.parameter_matching import SUITED, Shape, parameters, sized, suited
from regard.registry import FAMILIES, family


@pytest.mark.parametrize("name", sorted(SUITED.keys() & FAMILIES.keys()))
@pytest.mark.parametrize(
    ("wanted", "vocab_size"), [(20_000, 30), (80_000, 6), (80_000, 1000), (700_000, 30)]
)
def test_every_family_comes_within_a_tenth(name, wanted, vocab_size):
    config = sized(name, wanted, vocab_size, max_len=32)
    model = family(name)(vocab_size, config)  # on the CPU, not the meta device
    assert abs(sum(p.numel() for p in model.parameters()) - wanted) <= 0.1 * wanted
    assert config.max_len == 32
    assert torch.isfinite(model.logits(torch.zeros(1, 3, dtype=torch.long))).all()


@pytest.mark.parametrize("name", sorted(SUITED.keys() & FAMILIES.keys()))
def test_large_ones_too_without_taking_memory(name):
    config = sized(name, 300_000_000, 50_000, n_layers=12, max_len=1024)
    assert parameters(name, 50_000, config) == pytest.approx(300_000_000, rel=0.1)
    assert config.n_layers == suited(name, Shape(12, 1), 1024).n_layers


def test_a_preset_may_be_named():
    config = sized("cnn", 50_000, 30, preset="wavenet", max_len=8)
    assert config.feedforward == "gated" and config.receptive_field == 8


@pytest.mark.parametrize("max_len", [2, 8, 9, 16, 256])
def test_a_convolution_is_made_just_deep_enough_for_its_context(max_len):
    n_layers = suited("cnn", Shape(4, 64), max_len).n_layers
    make = family("cnn").PRESETS["modern"]
    assert make(n_layers, 64).receptive_field >= max_len
    assert n_layers == 1 or make(n_layers - 1, 64).receptive_field < max_len


def test_a_vocabulary_that_takes_more_than_all_is_refused():
    # two matrices of one column each, and two layers of 4 · (1 + 1 + 1 + 1)
    with pytest.raises(UsageError, match=r"lstm has 200,032 parameters at the nearest, 30,000"):
        sized("lstm", 30_000, 100_000)


def test_families_are_shaped_after_a_transformer():
    like = Shape(8, 64, 0.25)
    assert suited("transformer", like, 16) == suited("unheard of", like, 16) == like
    assert suited("lstm", like, 16) == suited("rnn", like, 16) == Shape(2, 128, 0.25)
    assert suited("mlp", like, 16) == Shape(1, 256, 0.1)
    assert suited("cnn", like, 16) == Shape(4, 64, 0.1)
