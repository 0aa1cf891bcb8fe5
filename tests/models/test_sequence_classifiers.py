"""Sequence classifiers without attention, against torch's layers, alone and in batches."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn

from regard.layers.embeddings import Inputs
from regard.models.convolution import ConvolutionalClassifier
from regard.models.hyena import HyenaClassifier
from regard.models.recurrent import RecurrentClassifier
from regard.registry import MODELS

V = 11
FAMILIES = [
    pytest.param(ConvolutionalClassifier, "kim", id="kim"),
    pytest.param(ConvolutionalClassifier, "motifs", id="motifs"),
    pytest.param(RecurrentClassifier, "bidirectional", id="bidirectional"),
    pytest.param(HyenaClassifier, "hyena", id="hyena"),
]


def make(cls, preset, layers=2, **changes):
    torch.manual_seed(1)
    config = dataclasses.replace(cls.PRESETS[preset](layers, 24), **changes)
    return cls(V, config).double().eval()


def source(lengths, width=0):
    torch.manual_seed(2)
    ids = torch.zeros(len(lengths), width or max(lengths), dtype=torch.long)
    segments = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(4, V, (length,))
        segments[row, :length] = 1
    return Inputs(ids, segments)


@pytest.mark.parametrize(("cls", "preset"), FAMILIES)
@pytest.mark.parametrize("pooling", ["max", "mean", "attention"])
@pytest.mark.parametrize("task", ["label", "position-label"])
def test_padding_changes_nothing(cls, preset, pooling, task):
    model = make(cls, preset, task=task, n_outputs=3, pooling=pooling)
    together = source([5, 1, 9, 14], width=20)
    found = model.predict(together)
    for row, length in enumerate([5, 1, 9, 14]):
        alone = Inputs(together.ids[row : row + 1, :length], torch.ones(1, length).long())
        expected = model.predict(alone)
        got = found[row : row + 1, :length] if task == "position-label" else found[row : row + 1]
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)


def test_filters_are_torchs_convolutions():
    """Width 3 of one row, with a zero on either side, then the largest."""
    model = make(ConvolutionalClassifier, "kim", layers=1, narrowest=3, widest=3)
    given = source([7])
    x = model.embedding(given.ids).mT  # (1, D, T)
    inner = model.filters[0].filters
    expected = torch.relu(nn.functional.conv1d(x, inner.weight, inner.bias, padding=1))
    torch.testing.assert_close(model.vectors(given), expected.mT)
    torch.testing.assert_close(model.embed(given), expected.amax(2))


def test_it_is_torchs_bidirectional_lstm():
    model = make(RecurrentClassifier, "bidirectional", layers=1)
    plain = nn.LSTM(24, 24, batch_first=True, bidirectional=True).double()
    layer = model.layers[0]
    for theirs, ours in (("", layer.onward), ("_reverse", layer.backward)):
        for name, value in ours.cells.named_parameters():
            getattr(plain, name + theirs).data.copy_(value.data)
    given = source([6])
    expected = torch.tanh(model.joins[0](plain(model.embedding(given.ids))[0]))
    torch.testing.assert_close(model.vectors(given), expected)


@pytest.mark.parametrize("name", ["cnn", "lstm", "hyena"])
@pytest.mark.parametrize("task", ["label", "labels", "value", "position-label"])
def test_every_supervised_task_has_presets_of_them(name, task):
    assert MODELS.get(name, task).PRESETS


def test_wrong_widths_of_filters_are_refused():
    with pytest.raises(ValueError, match="narrowest"):
        make(ConvolutionalClassifier, "kim", narrowest=6, widest=5)
