"""IBM model 1: its table against enumerating all alignments in exact fractions, and the translator
against its formula.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import END, START, padded, shard

from regard.decoding import Beam, Greedy, generate
from regard.decoding.engine import translate
from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.models import ibm_model1
from regard.models.ibm_model1 import (
    DECAYS,
    DEFAULTS,
    NULL,
    IBM1Config,
    IBM1Translator,
    end_probabilities,
    fit_table,
    read_pairs,
    word_pairs,
)
from regard.models.language_model import IGNORE
from regard.recipe import check
from regard.run import Run, weights, write_config
from regard.storage import write_tensors

SOURCES, TARGETS = 8, 7  # sizes of the vocabularies, markers included

WORDS = st.lists(st.integers(3, 5), max_size=3)


def paired(pairs):
    sources, targets = zip(*pairs, strict=True)
    return shard(targets, TARGETS).paired(shard(sources, SOURCES))


def by_enumeration(pairs, iterations):
    """Return t after so many passes as {(source, target): t}, None being NULL, and the likelihood
    before each pass.
    """
    t = defaultdict(lambda: Fraction(1, TARGETS))
    likelihoods = []
    for _ in range(iterations):
        counts, likelihood = defaultdict(Fraction), Fraction(1)
        for source, target in pairs:
            words = [None, *source]
            alignments = list(itertools.product(words, repeat=len(target)))
            joint = [
                math.prod((t[e, f] for e, f in zip(one, target, strict=True)), start=Fraction(1))
                for one in alignments
            ]
            for alignment, p in zip(alignments, joint, strict=True):
                for e, f in zip(alignment, target, strict=True):
                    counts[e, f] += p / sum(joint)
            likelihood *= sum(joint) / len(words) ** len(target)
        likelihoods.append(likelihood)
        totals = defaultdict(Fraction)
        for (e, _), n in counts.items():
            totals[e] += n
        t = {pair: n / totals[pair[0]] for pair, n in counts.items()}
    return dict(t), likelihoods


def as_dict(table):
    pairs = [(int(k) // TARGETS, int(k) % TARGETS) for k in table.keys]
    return {
        (None if e == SOURCES else e, f): float(p) for (e, f), p in zip(pairs, table.t, strict=True)
    }


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
def test_a_pass_is_expectation_and_maximisation_over_all_alignments(pairs):
    expected, likelihoods = by_enumeration(pairs, 3)
    nats = []
    table = fit_table(paired(pairs), SOURCES, 3, on_pass=nats.append)
    assert as_dict(table) == pytest.approx({k: float(v) for k, v in expected.items()}, abs=1e-12)
    assert nats == pytest.approx([math.log(p) for p in likelihoods], abs=1e-9)


def random_pairs(seed, count=60, low=0):
    generator = np.random.default_rng(seed)

    def sentence(most):
        return generator.integers(3, most, generator.integers(low, 7)).tolist()

    return [(sentence(SOURCES), sentence(TARGETS)) for _ in range(count)]


def test_the_likelihood_never_falls_and_every_word_sums_to_one():
    nats = []
    table = fit_table(paired(random_pairs(1)), SOURCES, 40, on_pass=nats.append)
    assert len(nats) == 40 and min(np.diff(nats)) > -1e-9 and nats[-1] > nats[0] + 1
    totals = torch.zeros(SOURCES + 1, dtype=torch.float64)
    totals.index_add_(0, table.keys // TARGETS, table.t)
    words = {*(e for source, target in random_pairs(1) if target for e in source), SOURCES}
    expected = torch.tensor([float(e in words) for e in range(SOURCES + 1)]).double()
    torch.testing.assert_close(totals, expected)
    assert bool((table.keys.diff() > 0).all())


def test_a_corpus_in_chunks_gives_the_same_table(monkeypatch):
    pairs = paired(random_pairs(2))
    table = fit_table(pairs, SOURCES, 5)
    monkeypatch.setattr(ibm_model1, "CELLS", 20)
    monkeypatch.setattr(ibm_model1, "CACHED", 0)
    chunked = fit_table(pairs, SOURCES, 5)
    assert torch.equal(table.keys, chunked.keys)
    torch.testing.assert_close(table.t, chunked.t)
    assert len(list(word_pairs(pairs, SOURCES, 10))) > 20


def test_the_example_of_the_textbook():
    """Koehn 2010, section 4.2: das Haus / the house, das Buch / the book, ein Buch / a book."""
    das, haus, buch, ein = range(3, 7)
    the, house, book, a = range(3, 7)
    pairs = [([das, haus], [the, house]), ([das, buch], [the, book]), ([ein, buch], [a, book])]
    lexicon = fit_table(paired(pairs), SOURCES, 100)
    table = as_dict(lexicon)
    for e, f in ((das, the), (haus, house), (buch, book), (ein, a)):
        assert max((p, g) for (d, g), p in table.items() if d == e)[1] == f
    assert table[haus, house] > 0.99 and table[ein, a] > 0.99
    for source, target in pairs:
        assert lexicon.links(source, target) == [0, 1]
        assert lexicon.links(source[::-1], target) == [1, 0]


def test_words_that_never_occurred_in_one_pair_are_linked_to_null():
    table = fit_table(paired([([3], [3]), ([4], [4])]), SOURCES, 20)
    assert table.links([3, 4], [4, 3, 5]) == [1, 0, NULL]
    assert table.links([6], [3]) == [NULL]  # an unknown word; NULL occurred with everything
    assert table.links([], [3]) == [NULL] and table.links([3], []) == []
    assert float(table.probability(torch.tensor(3), torch.tensor(4))) == 0.0


def test_long_pairs_are_skipped_and_empty_ones_change_nothing():
    pairs = random_pairs(3)
    long = [([3] * 9, [3]), ([3], [3] * 9), ([], []), ([4], [])]
    table = fit_table(paired(pairs), SOURCES, 4, longest=8)
    other = fit_table(paired([*pairs, *long]), SOURCES, 4, longest=8)
    assert torch.equal(table.keys, other.keys) and torch.equal(table.t, other.t)
    empty = fit_table(paired([([], []), ([3], [])]), SOURCES, 4)
    assert len(empty.keys) == 0 and empty.links([3], [3]) == [NULL]


S, V = 12, 10  # source and target vocabularies; no training source has the word 11


def sentences(seed, count, size, low=0, high=7):
    random = np.random.default_rng(seed)
    return [random.integers(3, size, n).tolist() for n in random.integers(low, high, count)]


def corpus(seed, count):
    """Return pairs whose words depend on a word of the source or on the word before."""
    random = np.random.default_rng(seed)
    sources, targets = sentences(seed, count, S - 1, low=1), []
    for source in sources:
        target = [3]
        for e in source:
            target.append(3 + (e * 3 if random.random() < 0.5 else target[-1] + 1) % 7)
        targets.append(target[1:-1] if random.random() < 0.3 else target[1:])
    return shard(targets, V).paired(shard(sources, S))


def make(valid=True, **options):
    config = IBM1Config(**{"max_len": 12, "iterations": 4, "source_vocab": S, **options})
    model = IBM1Translator(V, config)
    model.fit(corpus(1, 80), corpus(2, 30) if valid else None, lambda line: None)
    return model.eval()


@pytest.fixture(scope="module")
def model():
    return make()


def source_of(rows, fill=0):
    """Return sources of these words, each followed by `<E>`."""
    return padded([[*row, END] for row in rows], fill=fill)


def by_hand(model, source, target):
    """Return P of every next token before each word of a target and before its end."""
    lexicon, config = model.lexicon, model.config
    t = {(int(k) // V, int(k) % V): float(p) for k, p in zip(lexicon.keys, lexicon.t, strict=True)}
    known = {e for e, _ in t}
    bigram = model.bigram.logits(torch.arange(V)[None]).exp()[0].tolist()  # (V, V)
    rows = []
    for i, before in enumerate([START, *target]):
        words = {-1: S, **dict(enumerate(source))}  # NULL, and the source
        aligned = min(i, max(0, len(source) - 1))
        weight = {
            j: config.decay ** (1 if j < 0 else abs(aligned - j))
            for j, e in words.items()
            if e in known
        }
        stop = float(model.ends[min(max(i - len(source), -12), 12) + 12])
        row = []
        for f in range(V):
            lexical = sum(w * t.get((words[j], f), 0.0) for j, w in weight.items())
            lexical /= sum(weight.values())
            p = config.share * lexical
            p += (1 - config.share) * bigram[before][f] / (1 - bigram[before][END])
            row.append(stop if f == END else (1 - stop) * p)
        rows.append(row)
    return np.array(rows)


def test_probabilities_are_their_formula_and_sum_to_one(model):
    sources = [*sentences(3, 5, S, high=6), [], [11, 11], [11]]
    targets = sentences(4, 8, V, low=1)
    conditioned = model.condition(source_of(sources))
    logits = conditioned.logits(padded([[START, *target] for target in targets]).ids)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        p = logits[row, : len(target) + 1].double().exp().numpy()
        np.testing.assert_allclose(p, by_hand(model, source, target), rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(p.sum(-1), 1.0, rtol=1e-6)
        assert not p[:, START].any()  # never predicted


def test_without_decay_words_are_the_mean_of_their_translations():
    """Model 1 itself: positions do not matter, and NULL is one of the words."""
    model = make(decay=1.0, share=0.999)
    p = model.condition(source_of([[3, 4, 5]])).logits(torch.tensor([[START, 6, 7, 8]])).exp()[0]
    words = torch.arange(V) != END
    t = model.lexicon.probability(torch.tensor([[S], [3], [4], [5]]), torch.arange(V)).mean(0)
    for row in p:
        torch.testing.assert_close(
            (row / row[words].sum())[words].double(), t[words], atol=2e-3, rtol=0
        )


def test_targets_end_as_often_as_in_training():
    sources, targets = sentences(5, 300, S), sentences(6, 300, V)
    ends = end_probabilities(shard(targets, V).paired(shard(sources, S)), 9)
    more = Counter(len(f) - len(e) for e, f in zip(sources, targets, strict=True))
    for d in range(min(more), max(more) + 1):
        left = sum(n for other, n in more.items() if other >= d)
        assert float(ends[d + 9]) == pytest.approx(more[d] / left, abs=1e-8)
    assert float(ends.min()) > 0 and float(ends.max()) < 1 and float(ends[-1]) == 0.5


def test_scores_are_those_of_the_logits(model, monkeypatch):
    conditioned = model.condition(source_of(sentences(7, 4, S)))
    ids = torch.randint(3, V, (4, 9))
    targets = torch.randint(2, V, (4, 9))
    targets[1, 3:] = IGNORE
    logits = conditioned.logits(ids)
    expected = logits.log_softmax(-1).gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    expected = expected.masked_fill(targets == IGNORE, 0)
    torch.testing.assert_close(conditioned.score(ids, targets), expected, atol=1e-5, rtol=1e-5)

    def no_sevens(rows, previous):
        assert rows.shape == (len(previous), V)
        return rows.index_fill(1, torch.tensor([7]), -math.inf)

    targets[targets == 7] = 8
    constrained = no_sevens(logits.flatten(0, 1), ids.flatten()).log_softmax(-1).view_as(logits)
    expected = constrained.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    expected = expected.masked_fill(targets == IGNORE, 0)
    for chunk in (ibm_model1.CHUNK, 1):
        monkeypatch.setattr(ibm_model1, "CHUNK", chunk)
        scores = conditioned.score(ids, targets, constrain=no_sevens)
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(conditioned.logits(ids), logits)


def test_steps_prompts_beams_and_padding_change_nothing(model):
    sources = sentences(8, 3, S)
    conditioned = model.condition(source_of(sources))
    ids, lengths = torch.randint(3, V, (3, 6)), torch.tensor([3, 1, 4])
    logits = conditioned.logits(ids)
    state = conditioned.init_state(3, 6)
    for t in range(6):
        torch.testing.assert_close(conditioned.step(ids[:, t : t + 1], None, state), logits[:, t])
    state.reset()
    last = conditioned.step(ids[:, :4], lengths, state)
    torch.testing.assert_close(last, logits[range(3), lengths - 1])
    state.expand(2)
    state.select(torch.tensor([1, 0, 2, 2, 5, 4]))
    after = conditioned.step(torch.full((6, 1), 5), None, state)
    for row in range(3):
        alone = model.condition(source_of([sources[row]], fill=7))
        target = torch.cat((ids[row, : lengths[row]], torch.tensor([5])))[None]
        torch.testing.assert_close(
            after[2 * row : 2 * row + 2], alone.logits(target)[:, -1].expand(2, -1)
        )
    beams = conditioned.logits(ids.repeat_interleave(2, 0))
    torch.testing.assert_close(beams, logits.repeat_interleave(2, 0))
    wide = source_of([*sources, [4] * 12], fill=7)
    wider = model.condition(Inputs(wide.ids[:3], wide.segments[:3]))
    torch.testing.assert_close(wider.logits(ids), logits)
    conditioned.set_source(source_of([[4], [5, 6], [3]]))
    torch.testing.assert_close(
        conditioned.logits(ids), model.condition(source_of([[4], [5, 6], [3]])).logits(ids)
    )


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=3, n_best=3)], ids=["greedy", "beam"])
def test_translations_are_the_same_alone_and_in_a_batch(model, strategy):
    sources = sentences(9, 6, S)
    options = {"max_new": 12, "end": END, "banned": [0, START], "batch_size": 64}
    batch = generate(model.condition(source_of(sources)), [[START]] * 6, strategy, **options)
    for source, translations in zip(sources, batch, strict=True):
        alone = generate(model.condition(source_of([source])), [[START]], strategy, **options)[0]
        assert [one.ids for one in translations] == [one.ids for one in alone]


def test_word_for_word_pairs_are_learned():
    sources = sentences(10, 300, S, low=1)
    targets = [[3 + (e - 3) % 7 for e in source] for source in sources]
    model = IBM1Translator(V, IBM1Config(max_len=12, source_vocab=S))
    pairs = shard(targets, V).paired(shard(sources, S))
    model.fit(pairs, pairs, lambda line: None)
    inputs = [[*source, END] for source in sources[:40]]
    outputs = translate(model.eval(), inputs, Greedy(), start=START, end=END)
    correct = [one[0].ids == [*target, END] for one, target in zip(outputs, targets, strict=False)]
    assert np.mean(correct) > 0.9
    assert model.lexicon.links([4, 10, 8], [8, 4, 3]) == [2, 0, 1]


def test_decay_and_share_are_the_best_on_held_out_pairs(model):
    valid = corpus(2, 30)

    def nats(**options):
        other = make(valid=False, **options)
        total = 0.0
        for source, targets in read_pairs(valid):
            start = torch.full_like(targets[:, :1], START)
            ids = torch.cat((start, targets[:, :-1].clamp_min(0)), dim=1)
            total += float(other.condition(source).score(ids, targets).sum())
        return total

    decay, share = model.config.decay, model.config.share
    assert 0 < decay <= 1 and 0 < share < 1
    best = nats(decay=decay, share=share)
    for other in DECAYS:
        assert nats(decay=other, share=share) <= best + 1e-6
    for other in (share - 0.05, share + 0.02):
        assert nats(decay=decay, share=other) < best
    fixed = make(decay=0.25, share=0.5).config
    assert (fixed.decay, fixed.share) == (0.25, 0.5)
    assert make(valid=False).config.decay == DEFAULTS[0]
    assert model.choose(shard([[]], V).paired(shard([[3]], S))) == (decay, share)


def test_a_stored_model_is_the_same_and_a_damaged_one_is_refused(model, tmp_path):
    write_config(tmp_path, "ibm1", model)
    write_tensors(tmp_path / "model.safetensors", weights(model))
    again = Run(tmp_path).model()
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
            Run(tmp_path).model()
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["task"] == "target" and stored["config"]["source_vocab"] == S


def test_probabilities_of_an_unfitted_model_sum_to_one():
    model = IBM1Translator(V, IBM1Config())
    p = (
        model.condition(source_of([[3, 4], [5]]))
        .logits(torch.tensor([[START, 3], [START, 4]]))
        .exp()
    )
    torch.testing.assert_close(p.sum(-1), torch.ones(2, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations must be from 1"),
        ({"decay": 1.5}, "decay must be from 0"),
        ({"share": 1.0}, "share must be at least 0"),
        ({"source_vocab": -1}, "source_vocab must be from 0"),
        ({"max_len": 0}, "max_len must be at least 1"),
        ({"layers": 2}, "unknown key 'model.layers'"),
    ],
)
def test_invalid_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        check("model", IBM1Config, options)


def test_pairs_are_needed_one_to_a_row(model):
    with pytest.raises(ValueError, match="no source"):
        IBM1Translator(V, IBM1Config()).fit(shard([[3]], V), None, print)
    ids = torch.tensor([[START, 3]])
    with pytest.raises(ValueError, match="one pair to a row"):
        model.condition(source_of([[3]])).logits(ids, ids)
    assert dataclasses.asdict(model.config)["iterations"] == 4
