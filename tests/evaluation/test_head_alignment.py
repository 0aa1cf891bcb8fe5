"""Alignment heads: agreements counted by hand, and a head planted in a translator is found."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.shards import Shard
from regard.evaluation import head_alignment
from regard.evaluation.head_alignment import (
    HeadAlignment,
    count_agreements,
    fit_model_1,
    measure_head_alignment,
)
from regard.models.encoder_decoder import EncoderDecoder, modern
from regard.models.ibm_model1 import NULL, IBM1Config, IBM1Translator
from regard.models.recurrent import AttentiveSeq2Seq, RecurrentSeq2Seq

START, END, IGNORE = 1, 2, -1
V, LONGEST = 24, 8  # tokens, words of a sentence


def shard(records):
    whole = [[START, *record, END] for record in records]
    ids = np.array([i for record in whole for i in record])
    offsets = np.cumsum([0, *map(len, whole)])
    sizes = {"records": len(whole), "tokens": len(ids), "symbols": 0, "bytes": 0}
    return Shard(Path("memory"), "records", ids, offsets, V, **sizes)


def ciphered(seed, count):
    """Pairs in which word w of the source becomes w + 10 at the same place."""
    draw = random.Random(seed)
    sources = [draw.sample(range(3, 13), draw.randint(3, LONGEST - 1)) for _ in range(count)]
    return shard([[w + 10 for w in source] for source in sources]).paired(shard(sources))


def planted(layer, head):
    """A translator of positions alone, in which one head looks from place t to place t and all
    others look everywhere alike.
    """
    torch.manual_seed(0)
    config = dataclasses.replace(modern(3, 32), n_heads=4, n_kv_heads=4, d_head=8, dropout=0.0)
    config = dataclasses.replace(config, positions="learned", max_len=LONGEST + 1)
    model = EncoderDecoder(V, config).eval()
    with torch.no_grad():
        model.decoder.embedding.weight.zero_()
        for stack in (model.encoder, model.decoder):
            stack.positions.embedding.weight.copy_(torch.eye(LONGEST + 1, 32))
            for block in stack.blocks:  # nothing is ever added to the positions
                for part in (
                    block.mixer.out,
                    block.feedforward.down,
                    block.cross and block.cross.out,
                ):
                    if part is not None:
                        part.weight.zero_()
        for block in model.decoder.blocks:
            block.cross.q.weight.zero_()
        cross, rows = model.decoder.blocks[layer].cross, slice(8 * head, 8 * head + 8)
        cross.q.weight[rows] = torch.eye(8, 32)
        cross.kv.weight[rows] = torch.eye(8, 32)
    return model


@pytest.mark.parametrize(("layer", "head"), [(0, 3), (2, 1)])
def test_the_planted_head_is_found_and_agrees_on_every_link(layer, head):
    train, valid = ciphered(1, 300), ciphered(2, 40)
    found = measure_head_alignment(planted(layer, head), train, valid)
    assert found.best == (layer, head)
    assert found.per_head[layer][head] == 1.0
    assert found.links == valid.tokens - 2 * valid.records  # a bijection leaves nothing to NULL
    others = np.delete(np.ravel(found.per_head), layer * 4 + head)
    assert (others < 0.5).all()  # they look at the first word as much as at any


def test_pairs_may_be_missing_or_too_long(monkeypatch):
    train = ciphered(1, 200)
    monkeypatch.setattr(head_alignment, "TEST_PAIRS", 30)
    assert measure_head_alignment(planted(1, 2), train).best == (1, 2)  # on the training pairs
    long = shard([[13] * 40]).paired(shard([[3] * 40]))
    assert measure_head_alignment(planted(1, 2), train, long) is None


def test_model_1_is_fitted_to_a_limited_number_of_pairs(monkeypatch):
    train, model = ciphered(1, 200), planted(0, 0)
    seen = []
    monkeypatch.setattr(
        head_alignment, "fit_table", lambda pairs, *_, **__: seen.append(pairs.records)
    )
    cells = np.cumsum((np.diff(train.offsets) - 1) * (np.diff(train.source.offsets) - 1))
    for most in (1, int(cells[49]) + 1, int(cells[-1]) + 1):
        monkeypatch.setattr(head_alignment, "FIT_CELLS", most)
        fit_model_1(model, train)
    monkeypatch.setattr(head_alignment, "FIT_PAIRS", 7)
    fit_model_1(model, train)
    assert seen == [1, 50, 200, 7]


def test_agreements_are_those_counted_by_hand():
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(2, 3, 4, 5, 7, generator=generator)  # (L, B, H, T, S)
    sizes = [6, 3, 1]  # words; then <E>, then nothing
    sources = torch.full((3, 7), IGNORE)
    for row, size in enumerate(sizes):
        sources[row, : size + 1] = torch.tensor([*([3, 4, 3, 5, 6, 4][:size]), END])
    links = torch.tensor([[0, 2, NULL, 5, 4], [2, 1, 0, NULL, NULL], [NULL, 0, NULL, NULL, NULL]])
    expected = torch.zeros(2, 4)
    for row, size in enumerate(sizes):
        for t in range(5):
            link = int(links[row, t])
            for layer in range(2):
                for head in range(4):
                    looked = int(weights[layer, row, head, t, :size].argmax())
                    same = link != NULL and sources[row, looked] == sources[row, link]
                    expected[layer, head] += bool(same)
    assert (count_agreements(weights, sources, links) == expected).all()
    assert expected.sum() > 10


def test_a_head_that_looks_where_the_links_are_agrees_wholly():
    links = torch.tensor([[2, 0, NULL, 1]])
    sources = torch.tensor([[7, 8, 9, END]])
    weights = torch.full((1, 1, 2, 4, 4), 0.1)
    weights[..., 3] = 5.0  # <E> draws the most, and is no word
    for t, link in enumerate(links[0].tolist()):
        weights[0, 0, 1, t, link if link != NULL else 0] = 0.9
    assert count_agreements(weights, sources, links).tolist() == [
        [1, 3]
    ]  # the first word is one of them


@pytest.mark.parametrize("family", [AttentiveSeq2Seq, RecurrentSeq2Seq, IBM1Translator])
def test_a_recurrence_has_one_head_and_others_have_none(family):
    torch.manual_seed(0)
    train = ciphered(1, 60)
    if family is IBM1Translator:
        model = IBM1Translator(V, IBM1Config(max_len=LONGEST + 1))
        model.fit(train, None, print)
    else:
        preset = next(iter(family.PRESETS.values()))
        model = family(V, dataclasses.replace(preset(1, 12), max_len=LONGEST + 1))
    begun = []
    found = measure_head_alignment(model, train, on_start=lambda: begun.append(1))
    if family is not AttentiveSeq2Seq:
        assert found is None and begun == []
    else:
        assert np.shape(found.per_head) == (1, 1) and found.best == (0, 0)
        assert model.training  # as it was


def test_it_is_read_from_json_and_damage_is_an_error():
    found = HeadAlignment([[0.125, 0.5], [0.25, 0.5]], 40)
    stored = found.to_json()
    assert stored["layer"] == 0 and stored["head"] == 1 and stored["agreement"] == 0.5
    assert HeadAlignment.from_json(stored) == found
    heads = ([], [[0.5], []], [[2.0]], [["x"]])
    for wrong in ({}, [], *({"per_head": one, "links": 3} for one in heads)):
        with pytest.raises(ValueError):
            HeadAlignment.from_json(wrong)
