"""Kneser–Ney against a slow implementation in dictionaries, and against its law: sums are one."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from id_records import END, START, shard

from regard.models.ngrams import FALLBACK, KneserNey, KneserNeyConfig, discounts

V = 7
RECORDS = st.lists(st.lists(st.integers(3, 6), max_size=12), min_size=1, max_size=12)


def make(records, order, size=V):
    model = KneserNey(size, KneserNeyConfig(order=order))
    model.fit(shard(records, size), None, print)
    return model


class Slow:
    """Chen & Goodman's recursion, written down from the definition, one n-gram at a time."""

    def __init__(self, records, order, size=V):
        self.order, self.size = order, size
        raw, before = Counter(), defaultdict(set)
        for record in records:
            text = (START, *record, END)
            for end in range(1, len(text)):
                for start in range(max(0, end - order + 1), end + 1):
                    raw[text[start : end + 1]] += 1
                    if start:
                        before[text[start : end + 1]].add(text[start - 1])
        self.counts = {
            g: n if len(g) == order or g[0] == START else len(before[g]) for g, n in raw.items()
        }
        self.discounts = {}
        for length in range(1, order + 1):
            level = [n for g, n in self.counts.items() if len(g) == length]
            n1, n2, n3, n4 = (level.count(i) for i in (1, 2, 3, 4))
            values = FALLBACK
            if n1 and n2 and n3:
                y = n1 / (n1 + 2 * n2)
                estimates = 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3
                if all(0 <= d < i for i, d in zip((1, 2, 3), estimates, strict=True)):
                    values = estimates
            self.discounts[length] = (0.0, *values)

    def p(self, context, x):
        context = tuple(context)[-(self.order - 1) :] if self.order > 1 else ()
        if x == START:
            return 0.0
        lower = self.p(context[1:], x) if context else 1 / (self.size - 1)
        following = [self.counts.get((*context, w), 0) for w in range(self.size)]
        total = sum(following)
        if not total:
            return lower
        values = self.discounts[len(context) + 1]
        count = self.counts.get((*context, x), 0)
        mass = sum(values[min(3, n)] for n in following)
        return (count - values[min(3, count)] + mass * lower) / total


@settings(max_examples=40, deadline=None)
@given(RECORDS, st.integers(1, 4), st.lists(st.integers(2, 6), min_size=1, max_size=7))
def test_probabilities_are_those_of_the_definition_in_any_context(records, order, ids):
    model, slow = make(records, order), Slow(records, order)
    for text in ([START, *ids], ids):  # at the start of a record, and inside
        p = model.logits(torch.tensor([text])).double().exp()[0]
        expected = [[slow.p(text[: t + 1], x) for x in range(V)] for t in range(len(text))]
        torch.testing.assert_close(
            p, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-7
        )
        assert p.sum(-1).tolist() == pytest.approx([1] * len(text), abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(RECORDS, st.lists(st.integers(3, 6), min_size=2, max_size=9))
def test_scores_logits_and_steps_agree(records, ids):
    model = make(records, 4)
    text = torch.tensor([[START, *ids]])
    logs = model.logits(text)
    targets = torch.tensor([[*ids, END]])
    expected = logs.gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(model.score(text, targets), expected, rtol=1e-6, atol=1e-6)
    state = model.init_state(1, 20)
    for t in range(text.size(1)):
        step = model.step(text[:, t : t + 1], None, state)
        assert torch.equal(step, logs[:, t])


def test_on_text_with_enough_n_grams_the_discounts_are_those_of_chen_and_goodman():
    random = np.random.default_rng(0)
    records = [(3 + random.zipf(1.3, 60) % 200).tolist() for _ in range(60)]
    model = make(records, 3, size=203)
    slow = Slow(records, 3, size=203)
    assert all(values[1:] != FALLBACK for values in slow.discounts.values())
    text = torch.tensor([[START, *records[0][:20], 150, 151, 3, 3]])
    p = model.logits(text).double().exp()[0]
    for t in range(text.size(1)):
        context = text[0, : t + 1].tolist()
        for x in (END, 3, 4, 50, 202, context[-1]):
            assert float(p[t, x]) == pytest.approx(slow.p(context, x), rel=1e-5)
    assert p.sum(-1).tolist() == pytest.approx([1] * len(p), abs=1e-5)


def test_discounts_of_a_known_table():
    counts = torch.tensor([1] * 10 + [2] * 4 + [3] * 2 + [4] + [9] * 3 + [0] * 5)
    y = 10 / 18
    assert discounts(counts) == pytest.approx((1 - 2 * y * 0.4, 2 - 3 * y * 0.5, 3 - 4 * y * 0.5))
    assert discounts(torch.tensor([5, 6, 7])) == FALLBACK


def test_an_invalid_order_is_refused():
    with pytest.raises(ValueError, match="order must be from 1 to 64, got 0"):
        KneserNeyConfig(order=0)
