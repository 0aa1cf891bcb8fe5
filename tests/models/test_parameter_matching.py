"""Families of equal size: counted on real models, whatever the wanted size and the vocabulary."""

from __future__ import annotations

import pytest
import torch

from regard.errors import UsageError
from regard.models.model import Shape
from regard.models.parameter_matching import count_parameters, find_config
from regard.registry import MODELS

NEURAL = ["mlp", "cnn", "rnn", "gru", "lstm", "transformer"]


@pytest.mark.parametrize("name", NEURAL)
@pytest.mark.parametrize(
    ("wanted", "vocab_size"), [(20_000, 30), (80_000, 6), (80_000, 1000), (700_000, 30)]
)
def test_every_family_comes_within_a_tenth(name, wanted, vocab_size):
    config = find_config(name, wanted, vocab_size, max_len=32)
    model = MODELS.get(name)(vocab_size, config)  # on the CPU, not the meta device
    assert abs(sum(p.numel() for p in model.parameters()) - wanted) <= 0.1 * wanted
    assert config.max_len == 32
    assert torch.isfinite(model.logits(torch.zeros(1, 3, dtype=torch.long))).all()


@pytest.mark.parametrize("name", NEURAL)
def test_large_ones_too_without_taking_memory(name):
    config = find_config(name, 300_000_000, 50_000, n_layers=12, max_len=1024)
    assert count_parameters(name, 50_000, config) == pytest.approx(300_000_000, rel=0.1)
    assert config.n_layers == MODELS.get(name).adapt_shape(Shape(12, 1), 1024).n_layers


def test_a_preset_may_be_named():
    config = find_config("cnn", 50_000, 30, preset="wavenet", max_len=8)
    assert config.feedforward == "gated" and config.receptive_field == 8


def test_a_vocabulary_that_takes_more_than_all_is_refused():
    # two matrices of one column each, and two layers of 4 · (1 + 1 + 1 + 1)
    with pytest.raises(UsageError, match="lstm has 30,000 parameters, the closest has 200,032"):
        find_config("lstm", 30_000, 100_000)
