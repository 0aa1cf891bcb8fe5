"""What a prediction rests on: gradient × input against linear models and finite differences,
changes against running the model again, and a planted motif.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from regard.layers.embeddings import Inputs
from regard.look.attribution import (
    attribute_outputs,
    attribute_positions,
    find_embedding,
    leave_out,
    rollout,
    substitute,
)
from regard.models.encoder import EncoderModel
from regard.models.sequence_classifiers import ConvolutionalClassifier, RecurrentClassifier
from regard.models.supervised import HeadConfig, NeuralSupervisedModel


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True, kw_only=True)
class BagConfig(HeadConfig):
    """Of a bag of tokens."""

    dropout: float = 0.5  # off in evaluation
    max_len: int = 16


class Bag(NeuralSupervisedModel):
    """A linear function of the mean of embeddings."""

    def __init__(self, config):
        super().__init__(9, config)
        self.embedding = nn.Embedding(9, 5)
        self.add_head(5)

    def vectors(self, source, *, tap=None):
        return self.embedding(source.ids)


def row(*ids):
    ids = torch.tensor([ids])
    return Inputs(ids, torch.ones_like(ids))


SOURCE = row(1, 4, 7, 4, 5, 8, 2)


@pytest.mark.parametrize("task", ["label", "labels", "value"])
def test_of_a_linear_model_it_is_weight_times_input_and_complete(task):
    torch.manual_seed(0)
    model = Bag(BagConfig(task=task, n_outputs=3)).train()
    if task == "value":
        model.scale.copy_(torch.tensor([2.0, 3.0, 0.5]))
        model.shift.copy_(torch.tensor([1.0, -1.0, 4.0]))
    found = attribute_outputs(model, SOURCE, [2, 0])
    assert model.training and all(p.grad is None for p in model.parameters())
    assert not model.embedding._forward_hooks
    weight, bias = model.head.weight.detach(), model.head.bias.detach()
    if task == "label":  # what is added to all classes alike changes nothing
        weight, bias = weight - weight.mean(0), bias - bias.mean()
    inputs = model.embedding.weight.detach()[SOURCE.ids[0]]  # (T, D)
    expected = (weight * model.scale[:, None]) @ inputs.T / 7
    torch.testing.assert_close(found, expected[[2, 0]])
    answers = model.eval().predict(SOURCE)[0].detach()
    if task == "label":
        answers = answers - answers.mean()
    rest = bias * model.scale + model.shift
    torch.testing.assert_close(found.sum(1) + rest[[2, 0]], answers[[2, 0]])


def families(task, outputs):
    torch.manual_seed(1)
    rest = {"task": task, "n_outputs": outputs, "max_len": 16, "dropout": 0.1}
    encoders = [(EncoderModel, "modern"), (EncoderModel, "bert")]
    others = [(ConvolutionalClassifier, "kim"), (RecurrentClassifier, "bidirectional")]
    for family, name in encoders + others:
        config = dataclasses.replace(family.PRESETS[name](2, 8), **rest)
        if family is EncoderModel:
            config = dataclasses.replace(config, n_heads=2, n_kv_heads=2, d_head=4, d_ff=10)
        yield name, family(9, config).double().eval()


def scaled(model, source, place, factor):
    """The answers with the embedding of one place times a factor."""
    size = torch.ones(source.ids.size(1), 1, dtype=torch.float64)
    size[place] = factor
    hook = find_embedding(model).register_forward_hook(lambda module, given, rows: rows * size)
    try:
        with torch.no_grad():
            answers = model.predict(source)
    finally:
        hook.remove()
    return answers - answers.mean(-1, keepdim=True)


def test_it_is_the_slope_along_each_embedding():
    for name, model in families("label", 3):
        found = attribute_outputs(model, SOURCE, [1])[0]
        for t in range(7):
            up, down = (scaled(model, SOURCE, t, 1 + h)[0, 1] for h in (1e-5, -1e-5))
            slope = float((up - down) / 2e-5)
            assert float(found[t]) == pytest.approx(slope, abs=1e-7), (name, t)


def test_positions_have_their_own():
    for name, model in families("position-label", 4):
        found = attribute_positions(model, SOURCE, [2, 5], [3, 0])
        for (place, output), mine in zip([(2, 3), (5, 0)], found, strict=True):
            for t in (0, 3):
                up, down = (scaled(model, SOURCE, t, 1 + h) for h in (1e-5, -1e-5))
                slope = float((up - down)[0, place, output] / 2e-5)
                assert float(mine[t]) == pytest.approx(slope, abs=1e-7), (name, t)


def test_changes_are_the_scores_of_changed_texts():
    def score(model, *ids):
        answers = model.predict(row(*ids))[0].detach()
        return float((answers - answers.mean())[2])

    for name, model in families("label", 3):
        whole = [1, 4, 7, 4, 5, 8, 2]
        without = leave_out(model, SOURCE, 2)
        other = substitute(model, SOURCE, 2, torch.tensor([4, 6]))
        assert without[0] == without[-1] == 0 and (other[:, [0, -1]] == 0).all()
        for t in range(1, 6):
            gone = score(model, *whole) - score(model, *whole[:t], *whole[t + 1 :])
            assert float(without[t]) == pytest.approx(gone, abs=1e-5), name
            for a, letter in enumerate((4, 6)):
                changed = score(model, *whole[:t], letter, *whole[t + 1 :]) - score(model, *whole)
                assert float(other[a, t]) == pytest.approx(changed, abs=1e-5), name
        assert other[0, 1] == pytest.approx(0, abs=1e-5)  # a 4 for a 4
    assert leave_out(model, row(1, 2), 0).tolist() == [0, 0]
    assert substitute(model, row(1, 2), 0, torch.tensor([4])).tolist() == [[0, 0]]


def test_rollout_is_the_product_of_the_layers():
    torch.manual_seed(0)
    weights = torch.rand(3, 2, 5, 5).softmax(-1)
    read = torch.rand(5).softmax(-1)
    product = torch.eye(5)
    for layer in weights:
        product = (0.5 * layer.mean(0) + 0.5 * torch.eye(5)) @ product
    found = rollout(weights, read)
    torch.testing.assert_close(found, read @ product)
    assert float(found.sum()) == pytest.approx(1)
    torch.testing.assert_close(rollout(torch.eye(5).expand(3, 2, 5, 5), read), read)


def test_gradient_times_input_points_into_a_planted_motif(motif_filters):
    predictor, texts, starts = motif_filters
    model = predictor.model.eval()
    right = inside = changed = 0
    letters = torch.from_numpy(predictor.tokenizer.encode("ACGT").astype(np.int64))
    for text, at in list(zip(texts, starts, strict=True))[1::2]:
        ids = predictor.tokenizer.encode(text).tolist()
        source = row(predictor.tokenizer.start, *ids, predictor.tokenizer.end)
        right += int(model.predict(source).argmax()) == 1
        inside += at <= int(attribute_outputs(model, source, [1])[0, 1:-1].argmax()) < at + 6
        lost = -substitute(model, source, 1, letters).mean(0)[1:-1]
        changed += at <= int(lost.argmax()) < at + 6
    assert right >= 57  # of 60: it has learned what was planted
    assert inside >= 48 and changed >= 57
