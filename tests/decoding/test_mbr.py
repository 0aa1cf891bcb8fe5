"""Minimum Bayes risk: chrF against sacrebleu, the choice against a sum over all sequences."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.decoding import Beam, Generated, MinimumBayesRisk, generate
from regard.decoding.mbr import similarity

chrf = pytest.importorskip("sacrebleu.metrics.chrf").CHRF()
V, END = 6, 2
LETTERS = {1: "<", 2: ">", 3: "a", 4: "b", 5: "ab "}


def text(ids):
    return "".join(LETTERS[i] for i in ids if i > END)


def sequence(letters, log_prob):
    """A sequence whose ids are its letters."""
    return Generated(
        ids=[ord(letter) for letter in letters], log_probs=[log_prob], score=log_prob, finished=True
    )


def spelt(ids):
    return "".join(map(chr, ids))


@given(st.lists(st.text(alphabet="ab c\n", max_size=12), min_size=1, max_size=6))
def test_similarity_is_chrf(texts):
    expected = [[chrf.sentence_score(one, [other]).score for other in texts] for one in texts]
    assert np.abs(similarity(texts) - np.array(expected)).max() < 1e-9


def test_agreement_wins_over_the_most_probable_sequence():
    candidates = [
        sequence("oncoming automobile", math.log(0.4)),
        sequence("keycap 4", math.log(0.25)),
        sequence("keycap 6", math.log(0.2)),
        sequence("keycap ten", math.log(0.15)),
    ]
    best = MinimumBayesRisk(spelt, scale=1.0).choose(candidates)
    assert spelt(best.ids) == "keycap 4"
    shares = np.array([0.4, 0.25, 0.2, 0.15])
    each = [chrf.sentence_score("keycap 4", [spelt(one.ids)]).score for one in candidates]
    assert best.score == pytest.approx(shares @ each)
    assert best.log_probs == candidates[1].log_probs and best.finished
    sure = [sequence("oncoming automobile", math.log(0.97)), *candidates[1:]]
    assert spelt(MinimumBayesRisk(spelt, scale=1.0).choose(sure).ids) == "oncoming automobile"
    assert spelt(MinimumBayesRisk(spelt, scale=0.0).choose(sure).ids).startswith("keycap")
    assert MinimumBayesRisk(spelt).choose(candidates[:1]).ids == candidates[0].ids


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_choice_among_all_sequences_where_the_beam_holds_all(any_model, seed):
    model = any_model(V, seed)
    prompts, scale = [[1], [1, 3], [4, 1]], 0.5
    settings = {"max_new": 3, "end": END, "banned": (0, 1)}
    found = generate(model, prompts, MinimumBayesRisk(text, width=200, scale=scale), **settings)
    for prompt, (one,) in zip(prompts, found, strict=True):
        texts, logs, ids = [], [], []
        for length in (1, 2, 3):
            for new in itertools.product(range(2, V), repeat=length):
                if END in new[:-1] or (length < 3 and new[-1] != END):
                    continue
                logits = model.logits(torch.tensor([[*prompt, *new[:-1]]]))[0, -length:].clone()
                logits[:, [0, 1]] = -math.inf
                steps = logits.log_softmax(-1)[range(length), list(new)]
                texts.append(text(new))
                logs.append(float(steps.sum()))
                ids.append(list(new))
        shares = np.exp(scale * np.array(logs))
        shares /= shares.sum()
        table = np.array([[chrf.sentence_score(a, [b]).score for b in texts] for a in texts])
        expected = table @ shares
        assert one.score == pytest.approx(expected.max(), abs=1e-6)
        assert expected[ids.index(one.ids)] == pytest.approx(expected.max(), abs=1e-6)


def test_other_prompts_change_nothing(any_model):
    model = any_model(V, 0)
    prompts = [[1], [1, 3], [4, 4, 1], [3]]
    settings = {"max_new": 5, "end": END, "banned": (0, 1)}
    strategy = MinimumBayesRisk(text, width=4)
    batch = generate(model, prompts, strategy, **settings)
    alone = [generate(model, [prompt], strategy, **settings)[0] for prompt in prompts]
    assert [one.ids for (one,) in batch] == [one.ids for (one,) in alone]
    beams = generate(model, prompts, Beam(width=4, n_best=4), **settings)
    for (one,), n_best in zip(batch, beams, strict=True):
        assert one.ids in [other.ids for other in n_best]


def test_invalid_settings_are_refused(any_model):
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        MinimumBayesRisk(text, width=0)
    with pytest.raises(ValueError, match="scale must be from 0 to 10, got -1"):
        MinimumBayesRisk(text, scale=-1)
    with pytest.raises(ValueError, match="on_token cannot stream beams"):
        generate(
            any_model(V, 0),
            [[1]],
            MinimumBayesRisk(text),
            max_new=2,
            end=END,
            on_token=lambda *a: None,
        )
