"""The word-for-word translator against its formula, and its paths against one another."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter

import numpy as np
import pytest
import torch
from id_records import END, START, shard

from regard.decoding import Beam, Greedy, generate
from regard.decoding.seq2seq import translate
from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.models import ibm_model1
from regard.models.ibm_model1 import IBM1Config, IBM1Translator, endings
from regard.models.language_model import IGNORE
from regard.recipe import check
from regard.run import load_model, weights, write_config, write_tensors

S, V = 12, 10  # source and target vocabularies; 11 is never seen in a source


def sentences(seed, count, size, low=0, high=7):
    generator = np.random.default_rng(seed)
    return [generator.integers(3, size, n).tolist() for n in generator.integers(low, high, count)]


def corpus(seed, count):
    """Pairs whose words come from a word of the source, most often, or else from the one before."""
    generator = np.random.default_rng(seed)
    sources, targets = sentences(seed, count, S - 1, low=1), []
    for source in sources:
        target = [3]
        for e in source:
            target.append(3 + (e * 3 if generator.random() < 0.5 else target[-1] + 1) % 7)
        targets.append(target[1:-1] if generator.random() < 0.3 else target[1:])
    return shard(targets, V).paired(shard(sources, S))


def make(valid=True, **options):
    config = IBM1Config(**{"max_len": 12, "iterations": 4, "source_vocab": S, **options})
    model = IBM1Translator(V, config)
    model.fit(corpus(1, 80), corpus(2, 30) if valid else None, lambda line: None)
    return model.eval()


@pytest.fixture(scope="module")
def model():
    return make()


def padded(rows, fill=0):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def source_of(rows, fill=0):
    """Sources of these words, `<E>` put after each."""
    rows = [[*row, END] for row in rows]
    return Inputs(padded(rows, fill), padded([[1] * len(row) for row in rows]))


def by_hand(model, source, target):
    """P of every next token before each word of a target and before its end, from the formula."""
    lexicon, config = model.lexicon, model.config
    t = {(int(k) // V, int(k) % V): float(p) for k, p in zip(lexicon.keys, lexicon.t, strict=True)}
    known = {e for e, _ in t}
    plain = model.bigram.logits(torch.arange(V)[None]).exp()[0].tolist()  # (V, V)
    places = [(S, 1.0)]  # NULL
    found = []
    for i, before in enumerate([START, *target]):
        places = {-1: S, **dict(enumerate(source))}
        at = min(i, max(0, len(source) - 1))
        weight = {
            j: config.decay ** (1 if j < 0 else abs(at - j))
            for j, e in places.items()
            if e in known
        }
        stop = float(model.ends[min(max(i - len(source), -12), 12) + 12])
        row = []
        for f in range(V):
            lexical = sum(w * t.get((places[j], f), 0.0) for j, w in weight.items())
            lexical /= sum(weight.values())
            p = config.share * lexical
            p += (1 - config.share) * plain[before][f] / (1 - plain[before][END])
            row.append(stop if f == END else (1 - stop) * p)
        found.append(row)
    return np.array(found)


def test_it_is_the_formula_and_sums_to_one(model):
    sources = [*sentences(3, 5, S, high=6), [], [11, 11], [11]]
    targets = sentences(4, 8, V, low=1)
    given = model.condition(source_of(sources))
    logits = given.logits(padded([[START, *target] for target in targets]))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        found = logits[row, : len(target) + 1].double().exp().numpy()
        np.testing.assert_allclose(found, by_hand(model, source, target), rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-6)
        assert not found[:, START].any()  # which nothing predicts


def test_without_decay_words_are_the_mean_of_their_translations():
    """Model 1 itself: where a word stands does not matter, NULL being one of the words."""
    model = make(decay=1.0, share=0.999)
    p = model.condition(source_of([[3, 4, 5]])).logits(torch.tensor([[START, 6, 7, 8]])).exp()[0]
    words = torch.arange(V) != END
    t = model.lexicon.probability(torch.tensor([[S], [3], [4], [5]]), torch.arange(V)).mean(0)
    for row in p:
        torch.testing.assert_close(
            (row / row[words].sum())[words].double(), t[words], atol=2e-3, rtol=0
        )


def test_targets_end_as_often_as_they_did():
    sources, targets = sentences(5, 300, S), sentences(6, 300, V)
    found = endings(shard(targets, V).paired(shard(sources, S)), 9)
    more = Counter(len(f) - len(e) for e, f in zip(sources, targets, strict=True))
    for d in range(min(more), max(more) + 1):
        left = sum(n for other, n in more.items() if other >= d)
        assert float(found[d + 9]) == pytest.approx(more[d] / left, abs=1e-8)
    assert float(found.min()) > 0 and float(found.max()) < 1 and float(found[-1]) == 0.5


def test_scores_are_those_of_the_logits(model, monkeypatch):
    given = model.condition(source_of(sentences(7, 4, S)))
    ids = torch.randint(3, V, (4, 9))
    targets = torch.randint(2, V, (4, 9))
    targets[1, 3:] = IGNORE
    logits = given.logits(ids)
    expected = logits.log_softmax(-1).gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    expected = expected.masked_fill(targets == IGNORE, 0)
    torch.testing.assert_close(given.score(ids, targets), expected, atol=1e-5, rtol=1e-5)

    def no_sevens(rows, previous):
        assert rows.shape == (len(previous), V)
        return rows.index_fill(1, torch.tensor([7]), -math.inf)

    targets[targets == 7] = 8
    less = no_sevens(logits.flatten(0, 1), ids.flatten()).log_softmax(-1).view_as(logits)
    expected = less.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    expected = expected.masked_fill(targets == IGNORE, 0)
    for chunk in (ibm_model1.CHUNK, 1):
        for module in (ibm_model1, ibm_model1):
            monkeypatch.setattr(module, "CHUNK", chunk)
        found = given.score(ids, targets, constrain=no_sevens)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(given.logits(ids), logits)


def test_steps_prompts_beams_and_padding_change_nothing(model):
    sources = sentences(8, 3, S)
    given = model.condition(source_of(sources))
    ids, lengths = torch.randint(3, V, (3, 6)), torch.tensor([3, 1, 4])
    whole = given.logits(ids)
    state = given.start(3, 6)
    for t in range(6):
        torch.testing.assert_close(given.extend(ids[:, t : t + 1], None, state), whole[:, t])
    state.reset()
    found = given.extend(ids[:, :4], lengths, state)
    torch.testing.assert_close(found, whole[range(3), lengths - 1])
    state.expand(2)
    state.select(torch.tensor([1, 0, 2, 2, 5, 4]))
    after = given.extend(torch.full((6, 1), 5), None, state)
    for row in range(3):
        alone = model.condition(source_of([sources[row]], fill=7))
        read = torch.cat((ids[row, : lengths[row]], torch.tensor([5])))[None]
        torch.testing.assert_close(
            after[2 * row : 2 * row + 2], alone.logits(read)[:, -1].expand(2, -1)
        )
    beams = given.logits(ids.repeat_interleave(2, 0))
    torch.testing.assert_close(beams, whole.repeat_interleave(2, 0))
    wide = source_of([*sources, [4] * 12], fill=7)
    wider = model.condition(Inputs(wide.ids[:3], wide.segments[:3]))
    torch.testing.assert_close(wider.logits(ids), whole)
    given.read(source_of([[4], [5, 6], [3]]))
    torch.testing.assert_close(
        given.logits(ids), model.condition(source_of([[4], [5, 6], [3]])).logits(ids)
    )


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=3, n_best=3)], ids=["greedy", "beam"])
def test_a_sentence_is_translated_alone_as_among_others(model, strategy):
    sources = sentences(9, 6, S)
    options = {"max_new": 12, "end": END, "banned": [0, START], "batch_size": 64}
    together = generate(model.condition(source_of(sources)), [[START]] * 6, strategy, **options)
    for source, found in zip(sources, together, strict=True):
        alone = generate(model.condition(source_of([source])), [[START]], strategy, **options)[0]
        assert [one.ids for one in found] == [one.ids for one in alone]


def test_a_language_that_is_word_for_word_is_translated():
    sources = sentences(10, 300, S, low=1)
    targets = [[3 + (e - 3) % 7 for e in source] for source in sources]
    model = IBM1Translator(V, IBM1Config(max_len=12, source_vocab=S))
    pairs = shard(targets, V).paired(shard(sources, S))
    model.fit(pairs, pairs, lambda line: None)
    asked = [[*source, END] for source in sources[:40]]
    said = translate(model.eval(), asked, Greedy(), start=START, end=END)
    right = [one[0].ids == [*target, END] for one, target in zip(said, targets, strict=False)]
    assert np.mean(right) > 0.9
    assert model.lexicon.links([4, 10, 8], [8, 4, 3]) == [2, 0, 1]


def test_decay_and_share_are_the_best_on_held_out_pairs(model):
    valid = corpus(2, 30)

    def nats(**options):
        other = make(valid=False, **options)
        total = 0.0
        for source, targets in ibm_model1.batches(valid):
            start = torch.full_like(targets[:, :1], START)
            ids = torch.cat((start, targets[:, :-1].clamp_min(0)), dim=1)
            total += float(other.condition(source).score(ids, targets).sum())
        return total

    decay, share = model.config.decay, model.config.share
    assert 0 < decay <= 1 and 0 < share < 1
    best = nats(decay=decay, share=share)
    for other in ibm_model1.DECAYS:
        assert nats(decay=other, share=share) <= best + 1e-6
    for other in (share - 0.05, share + 0.02):
        assert nats(decay=decay, share=other) < best
    fixed = make(decay=0.25, share=0.5).config
    assert (fixed.decay, fixed.share) == (0.25, 0.5)
    assert make(valid=False).config.decay == ibm_model1.USUAL[0]
    assert model.choose(shard([[]], V).paired(shard([[3]], S))) == (decay, share)


def test_it_comes_back_from_a_file_and_a_damaged_one_is_refused(model, tmp_path):
    write_config(tmp_path, "ibm1", model)
    write_tensors(tmp_path / "model.safetensors", weights(model))
    again = load_model(tmp_path)
    assert again.config == model.config
    source, ids = source_of([[3, 4], [5]]), torch.tensor([[START, 4], [START, 8]])
    torch.testing.assert_close(
        again.condition(source).logits(ids), model.condition(source).logits(ids)
    )
    damages = [{"keys": model.keys.flip(0)}, {"keys": model.keys + S * V}, {"t": model.t[1:]}]
    damages += [{"end_id": model.end_id + V}, {"ends": -model.ends}, {"ends": 2 * model.ends + 1}]
    for damage in damages:
        write_tensors(tmp_path / "model.safetensors", {**weights(model), **damage})
        with pytest.raises(UserError, match=r"keys must|end_id must"):
            load_model(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["task"] == "target" and stored["config"]["source_vocab"] == S


def test_before_it_is_fitted_all_is_alike_and_still_sums_to_one():
    model = IBM1Translator(V, IBM1Config())
    p = (
        model.condition(source_of([[3, 4], [5]]))
        .logits(torch.tensor([[START, 3], [START, 4]]))
        .exp()
    )
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"iterations": 0}, "iterations must be from 1"),
        ({"decay": 1.5}, "decay must be from 0"),
        ({"share": 1.0}, "share must be at least 0"),
        ({"source_vocab": -1}, "source_vocab must be from 0"),
        ({"max_len": 0}, "max_len must be at least 1"),
        ({"layers": 2}, "unknown key 'model.layers'"),
    ],
)
def test_a_wrong_key_is_named(options, said):
    with pytest.raises(ValueError, match=said):
        check("model", IBM1Config, options)


def test_it_needs_pairs_one_to_a_row(model):
    with pytest.raises(ValueError, match="no source"):
        IBM1Translator(V, IBM1Config()).fit(shard([[3]], V), None, print)
    ids = torch.tensor([[START, 3]])
    with pytest.raises(ValueError, match="one pair to a row"):
        model.condition(source_of([[3]])).logits(ids, ids)
    assert dataclasses.asdict(model.config)["iterations"] == 4
