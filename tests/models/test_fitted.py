"""Choosing within a budget: less is tried where time is short, each reduction is printed, and with
enough time nothing changes. The clock is the test's own.
"""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from id_records import shard

from regard.models import dirichlet_ngram, model_selection, supervised
from regard.models.dirichlet_ngram import DirichletNGram, DirichletNGramConfig
from regard.models.linear import NGramConfig
from regard.models.model_selection import LEAST, PROBED, SampledConfig, trials
from regard.models.supervised import Budget
from regard.registry import family
from regard.run import weights

R = 5000  # rows: 4,000 are learned from in a fold
EACH = 1e-3  # seconds of a row and order


class Clock:
    """Time that passes only when a test says so."""

    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (supervised, model_selection, dirichlet_ngram):
        monkeypatch.setattr(module, "time", made)
    return made


def choice(clock, seconds, *, finish=1.0, slower=1.0):
    """Choose an order of 1 to 5, the third being best; what was done, and all that was printed."""
    targets = torch.arange(R) % 2
    judged, lines, done = trials("label", targets, None), [], []

    def answer(config, learn, check):
        done.append((config.order, len(learn)))
        few = len(learn) <= max(PROBED)
        clock.now += EACH * len(learn) * config.order * (1.0 if few else slower)
        wrong = check % 20 < 1 + 2 * abs(config.order - 3)
        return torch.nn.functional.one_hot((targets[check] + wrong) % 2, 2).double()

    spent = Budget(lines.append, seconds)
    chosen = judged.best(
        [NGramConfig(order=order) for order in range(1, 6)], answer, spent, finish=finish
    )
    return chosen, judged, done, lines, spent


WHOLE = 5 * EACH * 4000 * 15  # seconds of five folds and all orders


def test_with_enough_time_nothing_changes(clock):
    free, _, all_of_it, _, _ = choice(clock, float("inf"))
    assert free.order == 3 and sorted(set(all_of_it)) == [(order, 4000) for order in range(1, 6)]
    chosen, judged, done, _, spent = choice(clock, 3 * WHOLE)
    assert chosen == free and judged.how == "5 inner folds" and not spent.reductions
    assert [one for one in done if one[1] > max(PROBED)] == all_of_it
    assert judged.affordable(SampledConfig(), spent) == SampledConfig()
    timed = sum(EACH * order * rows for order, rows in done if rows <= max(PROBED))
    assert timed < 0.05 * WHOLE  # what it costs to know


@pytest.mark.parametrize("seconds", [300.0, 150.0, 100.0, 60.0, 20.0, 10.0])
@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_a_choice_fits_into_its_time_and_each_reduction_is_printed(clock, seconds, slower):
    began = clock.now
    chosen, judged, done, lines, spent = choice(clock, seconds, slower=slower)
    final = slower * EACH * R * chosen.order
    config = judged.affordable(SampledConfig(), spent)
    final *= (config.records or R) / R
    assert clock.now - began + final < 1.25 * seconds
    assert spent.reductions and all(f"time is short: {line}" in lines for line in spent.reductions)
    tried = {order for order, rows in done if rows > max(PROBED)}
    assert not tried or chosen.order == min(tried, key=lambda order: abs(order - 3))


def test_folds_go_first_then_rows_then_settings(clock):
    *_, spent = choice(clock, 0.6 * WHOLE)
    assert spent.reductions == ["settings are compared on 2 of 5 inner folds"]
    _, judged, done, _, spent = choice(clock, 0.28 * WHOLE)
    (line,) = spent.reductions
    assert "1 of 5 inner folds, learning from" in line and judged.how in line
    rows = {rows for _, rows in done if rows > max(PROBED)}
    assert len(rows) == 1 and LEAST <= rows.pop() < 4000
    chosen, _, _, _, spent = choice(clock, 12.0)
    assert any("settings are not tried (order" in line for line in spent.reductions)
    assert chosen.order < 3  # the slowest are left out first


def test_progress_is_printed_every_ten_seconds(clock):
    *_, lines, _ = choice(clock, 10 * WHOLE)
    told = [line for line in lines if "setting" in line]
    assert len(told) >= 0.5 * WHOLE / 10 and "setting 5 of 5, split 2 of 5 (order 5)" in str(told)


def test_longer_contexts_are_left_out_where_counting_them_takes_too_long(clock, monkeypatch):
    counted = dirichlet_ngram.count

    def count(train, order):
        clock.now += 10.0 * order
        return counted(train, order)

    monkeypatch.setattr(dirichlet_ngram, "count", count)
    draw = np.random.default_rng(0)
    period = draw.integers(3, 8, 15).tolist()
    text = shard([period * 20 for _ in range(10)], 8)
    free, short = (DirichletNGram(8, DirichletNGramConfig(order=0)) for _ in range(2))
    free.fit(text, text, lambda line: None)
    spent = Budget(lambda line: None, 70.0)
    short.fit(text, text, lambda line: None, spent)
    assert short.config.order <= 4 <= free.config.order
    assert spent.reductions == ["orders above 4 are not tried"]


@pytest.mark.parametrize("name", ["naive-bayes", "logistic", "svm", "nb-svm", "markov"])
def test_a_model_with_a_large_budget_has_the_bits_of_one_without(name):
    if name in ("logistic", "svm", "nb-svm") and find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")
    draw = np.random.default_rng(1)
    records = [draw.integers(3, 8, n).tolist() for n in draw.integers(4, 9, 900)]
    labels = np.array([r.count(3) > r.count(4) for r in records], np.int32)
    data = dataclasses.replace(shard(records, 8), targets=labels)
    cls = family(name, "label")
    models = [cls(8, cls.Config(n_outputs=2, max_len=16)) for _ in range(3)]
    budgets = [None, Budget(lambda line: None, 3600.0), Budget(lambda line: None, 1e-3)]
    for model, spent in zip(models, budgets, strict=True):
        model.fit(data, None, lambda line: None, spent)
    free, rich, poor = models
    assert rich.config == free.config and not budgets[1].reductions
    for key, tensor in weights(free).items():
        assert torch.equal(tensor, weights(rich)[key])
    assert budgets[2].reductions  # and still it was fitted
    again = cls(8, poor.config)  # what was reduced is part of the configuration
    again.fit(data, None, lambda line: None)
    for key, tensor in weights(poor).items():
        assert torch.equal(tensor, weights(again)[key])
