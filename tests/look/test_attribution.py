"""What an answer rests on: gradient × input against linear models and finite differences, changes
against asking the model again, and a motif that was planted.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from regard.data.batching import LabelledExamples
from regard.data.targets import Targets
from regard.layers.embeddings import Inputs
from regard.look.attribution import (
    embedding_of,
    left_out,
    of_outputs,
    of_positions,
    rollout,
    substituted,
)
from regard.look.unit_motifs import alphabet_of, motifs, peaks
from regard.models.encoder import EncoderModel
from regard.models.motifs import DNA, PROTEIN, RNA
from regard.models.sequence_classifiers import ConvolutionalClassifier, RecurrentClassifier
from regard.models.supervised import HeadConfig, NeuralSupervisedModel
from regard.pipelines.predictor import Predictor
from regard.tokenizers import KINDS

MOTIF = "TATAAT"


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

    dropout: float = 0.5  # off when looked at
    max_len: int = 16


class Bag(NeuralSupervisedModel):
    """The mean of embeddings, answered by a matrix: linear in them."""

    def __init__(self, config):
        super().__init__()
        self.vocab_size, self.config = 9, config
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
    found = of_outputs(model, SOURCE, [2, 0])
    assert model.training and all(p.grad is None for p in model.parameters())
    assert not model.embedding._forward_hooks
    weight, bias = model.head.weight.detach(), model.head.bias.detach()
    if task == "label":  # what is added to all classes alike changes nothing
        weight, bias = weight - weight.mean(0), bias - bias.mean()
    inputs = model.embedding.weight.detach()[SOURCE.ids[0]]  # (T, D)
    expected = (weight * model.scale[:, None]) @ inputs.T / 7
    torch.testing.assert_close(found, expected[[2, 0]])
    answers = model.eval().answers(SOURCE)[0].detach()
    if task == "label":
        answers = answers - answers.mean()
    rest = bias * model.scale + model.shift
    torch.testing.assert_close(found.sum(1) + rest[[2, 0]], answers[[2, 0]])


def families(task, outputs):
    torch.manual_seed(1)
    rest = {"task": task, "n_outputs": outputs, "max_len": 16, "dropout": 0.1}
    encoders = [(EncoderModel, "modern"), (EncoderModel, "bert")]
    others = [(ConvolutionalClassifier, "kim"), (RecurrentClassifier, "both-ways")]
    for family, name in encoders + others:
        config = dataclasses.replace(family.PRESETS[name](2, 8), **rest)
        if family is EncoderModel:
            config = dataclasses.replace(config, n_heads=2, n_kv_heads=2, d_head=4, d_ff=10)
        yield name, family(9, config).double().eval()


def scaled(model, source, place, factor):
    """The answers with the embedding of one place times a factor."""
    size = torch.ones(source.ids.size(1), 1, dtype=torch.float64)
    size[place] = factor
    hook = embedding_of(model).register_forward_hook(lambda module, given, rows: rows * size)
    try:
        with torch.no_grad():
            answers = model.answers(source)
    finally:
        hook.remove()
    return answers - answers.mean(-1, keepdim=True)


def test_it_is_the_slope_along_each_embedding():
    for name, model in families("label", 3):
        found = of_outputs(model, SOURCE, [1])[0]
        for t in range(7):
            up, down = (scaled(model, SOURCE, t, 1 + h)[0, 1] for h in (1e-5, -1e-5))
            slope = float((up - down) / 2e-5)
            assert float(found[t]) == pytest.approx(slope, abs=1e-7), (name, t)


def test_positions_have_their_own():
    for name, model in families("position-label", 4):
        found = of_positions(model, SOURCE, [2, 5], [3, 0])
        for (place, output), mine in zip([(2, 3), (5, 0)], found, strict=True):
            for t in (0, 3):
                up, down = (scaled(model, SOURCE, t, 1 + h) for h in (1e-5, -1e-5))
                slope = float((up - down)[0, place, output] / 2e-5)
                assert float(mine[t]) == pytest.approx(slope, abs=1e-7), (name, t)


def test_changes_are_what_the_model_says_of_changed_texts():
    def score(model, *ids):
        answers = model.answers(row(*ids))[0].detach()
        return float((answers - answers.mean())[2])

    for name, model in families("label", 3):
        whole = [1, 4, 7, 4, 5, 8, 2]
        without = left_out(model, SOURCE, 2)
        other = substituted(model, SOURCE, 2, torch.tensor([4, 6]))
        assert without[0] == without[-1] == 0 and (other[:, [0, -1]] == 0).all()
        for t in range(1, 6):
            gone = score(model, *whole) - score(model, *whole[:t], *whole[t + 1 :])
            assert float(without[t]) == pytest.approx(gone, abs=1e-5), name
            for a, letter in enumerate((4, 6)):
                changed = score(model, *whole[:t], letter, *whole[t + 1 :]) - score(model, *whole)
                assert float(other[a, t]) == pytest.approx(changed, abs=1e-5), name
        assert other[0, 1] == pytest.approx(0, abs=1e-5)  # a 4 for a 4
    assert left_out(model, row(1, 2), 0).tolist() == [0, 0]
    assert substituted(model, row(1, 2), 0, torch.tensor([4])).tolist() == [[0, 0]]


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


def test_alphabets_are_told_by_their_letters():
    assert alphabet_of(set("ACGTN")) is DNA and alphabet_of(set("acgt")) is DNA
    assert alphabet_of(set("ACGU")) is RNA and alphabet_of(set("ACDEFW")) is PROTEIN
    assert alphabet_of(set("abcé")).letters == "abcé"
    assert alphabet_of({"what", "who"}) is None and alphabet_of({"a"}) is None


def planted(count, random):
    """Random DNA, TATAAT somewhere in every other sequence, and where it is."""
    texts, starts = [], []
    for i in range(count):
        text = "".join(random.choice(list("ACGT"), 30))
        at = int(random.integers(0, 25))
        if i % 2:
            text = text[:at] + MOTIF + text[at + 6 :]
        texts.append(text)
        starts.append(at)
    return texts, starts


@pytest.fixture(scope="module")
def trained():
    """Filters that were shown a planted motif, and records that they were not shown."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    tokenizer = KINDS["nucleotides"].train(["ACGT"])
    config = dataclasses.replace(ConvolutionalClassifier.PRESETS["motifs"](1, 32), n_outputs=2)
    model = ConvolutionalClassifier(tokenizer.vocab_size, dataclasses.replace(config, max_len=32))
    predictor = Predictor(model, tokenizer, Targets("label", ("motif",), (("no", "yes"),)))
    texts, _ = planted(800, random)
    shard = predictor.shard(texts)
    ids = torch.from_numpy(np.asarray(shard.ids).astype(np.int64)).view(800, 32)
    truths = torch.arange(800) % 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(150):
        some = torch.arange(step * 64, step * 64 + 64) * 7 % 800
        answers = model(Inputs(ids[some], torch.ones_like(ids[some])))
        optimizer.zero_grad()
        nn.functional.cross_entropy(answers, truths[some]).backward()
        optimizer.step()
    return predictor, *planted(120, random)


def test_gradient_times_input_points_into_a_planted_motif(trained):
    predictor, texts, starts = trained
    model = predictor.model.eval()
    right = inside = changed = 0
    letters = torch.from_numpy(predictor.tokenizer.encode("ACGT").astype(np.int64))
    for text, at in list(zip(texts, starts, strict=True))[1::2]:
        ids = predictor.tokenizer.encode(text).tolist()
        source = row(predictor.tokenizer.start, *ids, predictor.tokenizer.end)
        right += int(model.answers(source).argmax()) == 1
        inside += at <= int(of_outputs(model, source, [1])[0, 1:-1].argmax()) < at + 6
        lost = -substituted(model, source, 1, letters).mean(0)[1:-1]
        changed += at <= int(lost.argmax()) < at + 6
    assert right >= 57  # of 60: it has learned what was planted
    assert inside >= 48 and changed >= 57


def test_the_logo_of_some_filter_spells_the_planted_motif(trained):
    predictor, texts, _ = trained
    asked = LabelledExamples(predictor.shard(texts), predictor.tokenizer, 32)
    found = peaks(predictor.model, asked, predictor.tokenizer, np.arange(len(texts)))
    names = {int(i): predictor.tokenizer.text(int(i)) for i in np.unique(found.windows) if i >= 0}
    best = motifs(found, names, alphabet_of(set(names.values())))[:8]
    assert any(MOTIF in matrix.consensus for _, matrix in best)
    assert len(found.names) == 32 and found.names[0] == "filter 1"
