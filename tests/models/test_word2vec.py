"""Word vectors: losses and gradients against autograd, what is drawn how often, the same bits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.models.word2vec import (
    ABSENT,
    BORDER,
    CBOW,
    SkipGram,
    Word2VecConfig,
    alias_table,
    build_vocabulary,
    list_words,
    unit_bounds,
)
from regard.registry import TOKENIZERS

kernels = pytest.importorskip("regard.kernels.word2vec", exc_type=ImportError)

RATE = np.float32(0.1)


def model_of(cls, words=7, **config):
    """A model of random vectors for words 0 to `words` - 1, each of which is its own token."""
    torch.manual_seed(0)
    model = cls(words, Word2VecConfig(d_model=5, n_words=words, window=2, **config))
    with torch.no_grad():
        model.inputs.normal_()
        model.outputs.normal_()
    model.rows, model.counts = torch.arange(words), torch.arange(words, 0, -1)
    return model


def learned(model, kept, at, targets):
    """One step on a window of all of `kept`: its loss and the changes of both matrices, by us."""
    scratch = model.scratch(len(kept))
    scratch.targets[: len(targets)] = targets
    before = [m.detach().double().clone() for m in (model.inputs, model.outputs)]
    held = np.array(kept, np.int32)
    own = (held, 0, at, len(kept) - 1, len(targets), held[at])
    loss, count = kernels.train_window(model.weights(), *own, scratch, model.window_options(), RATE)
    after = [m.detach().double() for m in (model.inputs, model.outputs)]
    return loss, count, [a - b for a, b in zip(after, before, strict=True)]


def by_autograd(model, kept, at, targets):
    """The same by torch: the loss of the papers, and minus the rate times its gradient."""
    inputs = model.inputs.detach().double().requires_grad_()
    outputs = model.outputs.detach().double().requires_grad_()
    hidden = inputs[[k for j, k in enumerate(kept) if j != at]]  # (m, D)
    if model.mean:
        hidden = hidden.mean(0, keepdim=True)
    if model.config.negatives:
        scores = hidden @ outputs[list(targets)].T  # (m, T)
        loss = -F.logsigmoid(scores[:, 0]).sum() - F.logsigmoid(-scores[:, 1:]).sum()
    else:
        right = torch.full((len(hidden),), kept[at])
        loss = F.cross_entropy(hidden @ outputs.T, right, reduction="sum")
    loss.backward()
    return loss.item(), len(hidden), [-float(RATE) * m.grad for m in (inputs, outputs)]


@pytest.mark.parametrize("cls", [CBOW, SkipGram])
@pytest.mark.parametrize(
    ("kept", "at", "targets"),
    [([1, 2, 3, 4, 0], 2, [3, 5, 6]), ([4, 4, 1, 4], 2, [1, 5, 5]), ([2, 2], 1, [2, 0])],
    ids=["all different", "words and draws that occur twice", "a word beside itself"],
)
def test_a_step_goes_down_the_gradient_of_negative_sampling(cls, kept, at, targets):
    ours = learned(model_of(cls, negatives=2), kept, at, targets)
    theirs = by_autograd(model_of(cls, negatives=2), kept, at, targets)
    assert ours[0] == pytest.approx(theirs[0], abs=1e-6) and ours[1] == theirs[1]
    for mine, other in zip(ours[2], theirs[2], strict=True):
        assert other.abs().max() > 0.01
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=0)


@pytest.mark.parametrize("cls", [CBOW, SkipGram])
def test_without_negatives_the_loss_is_cross_entropy_over_all_words(cls):
    kept, at, everyone = [1, 2, 3, 4, 1], 2, range(7)
    ours = learned(model_of(cls, negatives=0), kept, at, everyone)
    theirs = by_autograd(model_of(cls, negatives=0), kept, at, everyone)
    assert ours[0] == pytest.approx(theirs[0], abs=2e-6) and ours[1] == theirs[1]
    for mine, other in zip(ours[2], theirs[2], strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=0)


def test_large_scores_cost_what_they_should_and_nothing_overflows():
    scores = np.array([[-200.0, 3.0], [150.0, -90.0]], np.float32)
    loss = kernels.logistic_loss(scores, 2, 2)
    assert loss == pytest.approx(200 + np.log1p(np.exp(-3)) + 150, rel=1e-6)
    assert np.isfinite(scores).all() and scores[0, 0] == -1 and scores[1, 0] == 1


def test_words_are_drawn_as_often_as_the_alias_table_promises():
    chances = np.array([0.5, 0.2, 0.2, 0.06, 0.04])
    share, alias = alias_table(chances)
    given = np.bincount(np.arange(5), share, 5) + np.bincount(alias, 1 - share, 5)
    np.testing.assert_allclose(given / 5, chances, atol=1e-6)


def test_frequent_words_are_thinned_out_and_windows_draw_their_width():
    model = model_of(SkipGram, sample=0.05, negatives=2)
    model.counts = torch.tensor([4000, 300, 300, 300, 300, 300, 300])
    chances = model.sampling_tables()
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(7), model.counts.numpy()))
    scratch = model.scratch(len(ids))
    kernels.seed_random(scratch.random, np.uint64(3))
    n = kernels.subsample(ids.astype(np.int32), chances, scratch)
    kept = np.bincount(scratch.words[:n], minlength=7)
    f = 4000 / 5800
    assert kept[0] / 4000 == pytest.approx(np.sqrt(0.05 / f) + 0.05 / f, abs=0.03)
    assert (kept[1:] == 300).all()  # a share of 300 / 5800 is kept whole: sqrt(s / f) + s / f > 1
    more = (model.weights(), chances, scratch, model.window_options(), np.float32(0), np.uint64(1))
    _, predictions = kernels.train_tokens(ids.astype(np.int32), *more)
    assert predictions / n == pytest.approx(3.0, abs=0.1)  # twice the mean of 1 and 2


def test_a_window_ends_where_a_record_does():
    model = model_of(SkipGram, words=4, sample=0.0, negatives=1)
    model.rows = torch.tensor([0, 1, BORDER, ABSENT])
    more = (model.weights(), model.sampling_tables(), model.scratch(9), model.window_options())
    apart = np.array([0, 2, 1, 2, 0], np.int32)
    assert kernels.train_tokens(apart, *more, np.float32(0), np.uint64(0)) == (0.0, 0)
    absent = np.array([2, 0, 3, 1, 2], np.int32)  # what is no word does not come between two
    assert kernels.train_tokens(absent, *more, np.float32(0), np.uint64(0))[1] == 2


def test_words_after_spaces_and_after_line_ends_are_one_and_rare_ones_are_left_out():
    text = "the cat\nthe dog\nthe end the cat  x"
    tokenizer = TOKENIZERS["words"].train([text])
    shard = shard_of([text], tokenizer, kind="text")
    found = build_vocabulary(shard, tokenizer, 2)
    config = Word2VecConfig(d_model=2, n_words=len(found.counts))
    model = SkipGram(tokenizer.vocab_size, config)
    model.set_vocabulary(found)
    assert list_words(model, tokenizer) == ["the", "cat"] and found.counts.tolist() == [4, 2]
    assert found.rows[[tokenizer.start, tokenizer.end]].tolist() == [BORDER, BORDER]
    with pytest.raises(UserError, match=r"model\.min_count"):
        build_vocabulary(shard, tokenizer, 5)


@pytest.mark.parametrize("kind", ["residues", "kmers", "smiles", "characters"])
def test_other_kinds_of_tokens_have_vectors_too(kind):
    text = {
        "residues": "MKVLAAMKV",
        "kmers": "ACGTACGTTTTT" * 2,
        "smiles": "CC(=O)OCC",
        "characters": "a b a",
    }
    tokenizer = TOKENIZERS[kind].train([text[kind]])
    shard = shard_of([text[kind]] * 3, tokenizer)
    found = build_vocabulary(shard, tokenizer, 1)
    model = SkipGram(tokenizer.vocab_size, Word2VecConfig(d_model=2, n_words=len(found.counts)))
    model.set_vocabulary(found)
    words = list_words(model, tokenizer)
    assert len(set(words)) == len(words) and all(word and " " not in word for word in words)
    assert int(found.counts.sum()) == len(shard.ids) - 2 * 3  # all but the markers


def test_units_lie_between_records_and_cover_everything():
    lengths = np.array([700, 700, 1500, 10])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    shard = Shard(
        path=None, kind="records", ids=np.zeros(2910, np.uint8), offsets=offsets, vocab_size=4,
        records=4, tokens=2910, symbols=1, bytes=1,
    )  # fmt: skip
    assert unit_bounds(shard).tolist() == offsets.tolist()
    text = dataclasses.replace(shard, kind="text")
    assert unit_bounds(text).tolist() == [0, 1000, 2000, 2910]


@pytest.mark.parametrize(
    ("config", "name"),
    [({"window": 0}, "window"), ({"negatives": -1}, "negatives"), ({"sample": 2.0}, "sample")],
)
def test_what_cannot_be_is_refused_by_name(config, name):
    with pytest.raises(ValueError, match=name):
        Word2VecConfig(**config)
