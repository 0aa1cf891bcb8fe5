"""Choosing settings on held-out rows: splits, losses, the time budget, and what all models that are
fitted at once have in common.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from id_records import labelled, marked

from regard.models import model_selection, supervised
from regard.models.class_counts import ClassMarkov, Majority, MarkovConfig
from regard.models.heads import HEADS
from regard.models.linear import NaiveBayes, NaiveBayesConfig, NGramConfig
from regard.models.model_selection import (
    LEAST,
    PROBED,
    FittedConfig,
    SampledConfig,
    assign_folds,
    make_search,
    read_batches,
    selection_loss,
)
from regard.models.supervised import Budget
from regard.registry import MODELS
from regard.run import Run, weights, write_config
from regard.storage import write_tensors

V = 8
CASES = [
    ("label", "majority"),
    ("label", "naive-bayes"),
    ("label", "nb-svm"),
    ("label", "logistic"),
    ("label", "svm"),
    ("label", "pwm"),
    ("label", "markov"),
    ("labels", "majority"),
    ("labels", "logistic"),
    ("labels", "svm"),
    ("value", "majority"),
    ("value", "logistic"),
    ("position-label", "majority"),
    ("position-label", "logistic"),
]


def ignore(line):
    assert line


def make_data(task, name=""):
    """Records whose class says which of the tokens 3 and 4 is more frequent; the other targets are
    made from the same records. Those of `pwm` have one length.
    """
    random = np.random.default_rng(1)
    lengths = random.integers(2, 9, 60)
    records = [random.integers(3, V, 6 if name == "pwm" else n).tolist() for n in lengths]
    more = [r.count(3) - r.count(4) for r in records]
    rows = list(zip(more, records, strict=True))
    if task == "label":
        targets = (np.sign(more) + 1).astype(np.int32)
    elif task == "labels":
        targets = np.array([[m > 0, 5 in r] for m, r in rows], np.int8)
        targets[::7, 1] = -1
    elif task == "value":
        targets = np.array([[m, len(r)] for m, r in rows], np.float32)
        targets[::5, 0] = np.nan
    else:
        positions = [x for r in records for x in (-1, *[x % 2 for x in r], -1)]
        targets = np.array(positions, np.dtype("<i2"))
    return labelled(records, targets, V)


def n_outputs(task):
    return 3 if task == "label" else 2


def make_model(task, name):
    """Return a fitted model; most settings are given, so that fitting is fast."""
    cls = MODELS.get(name, task)
    given = {"order": 2, "alpha": 0.5, "strength": 1.0, "window": 3, "weighting": "counts"}
    given = {key: given[key] for key in given if key in cls.Config.__dataclass_fields__}
    model = cls(V, cls.Config(task=task, n_outputs=n_outputs(task), max_len=16, **given))
    model.fit(make_data(task, name), None, ignore)
    return model.eval()


def queries(name):
    if name == "pwm":
        return [[3, 4, 5, 6, 7, 3], [4, 4, 4, 3, 6, 6], [5, 5, 7, 7, 3, 3]]
    return [[3, 4, 4, 5, 6], [7], [3, 3, 3, 5, 4, 6, 7, 3], [6, 5]]


@pytest.mark.parametrize(("task", "name"), CASES)
def test_predictions_are_the_same_alone_and_in_batches(task, name):
    model, records = make_model(task, name), queries(name)
    batch = model.predict(marked(records, width=14))
    assert batch.shape[:1] == (len(records),) and batch.size(-1) == n_outputs(task)
    for row, record in enumerate(records):
        alone = model.predict(marked([record]))[0]
        torch.testing.assert_close(batch[row][: len(alone)], alone, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("task", "name"), CASES)
def test_a_stored_model_predicts_the_same(task, name, tmp_path):
    model, source = make_model(task, name), marked(queries(name))
    write_config(tmp_path, name, model)
    write_tensors(tmp_path / "model.safetensors", weights(model))
    again = Run(tmp_path).model()
    assert again.config == model.config
    assert torch.equal(again.predict(source), model.predict(source))


@pytest.mark.parametrize(("task", "name"), [pair for pair in CASES if pair[1] != "majority"])
def test_every_model_beats_the_majority_on_its_training_records(task, name):
    model, data = make_model(task, name), make_data(task, name)
    majority = Majority(V, FittedConfig(task=task, n_outputs=n_outputs(task), max_len=16))
    majority.fit(data, None, ignore)
    losses = []
    for one in (model, majority):
        scores, targets = [], []
        for batch, source in read_batches(data, 16):
            mask = batch.targets >= 0 if task == "position-label" else slice(None)
            scores.append(one.predict(source)[mask])
            targets.append(batch.targets[mask])
        losses.append(selection_loss(HEADS[task], torch.cat(scores), torch.cat(targets)))
    assert losses[0] < 0.8 * losses[1]


def test_open_settings_are_chosen_and_stored(monkeypatch):
    """The class is the order of two tokens: single tokens do not show it, pairs do."""
    monkeypatch.setattr(model_selection, "ENOUGH", 100)
    random = np.random.default_rng(3)
    records, targets = [], []
    for _ in range(260):
        pair = [3, 4] if (label := int(random.integers(2))) else [4, 3]
        targets.append(label)
        before = random.integers(5, V, random.integers(1, 4))
        records.append([*before, *pair, *random.integers(5, V, 2)])
    train = labelled(records[:150], np.array(targets[:150], np.int32), V)
    valid = labelled(records[150:], np.array(targets[150:], np.int32), V)
    for cls, config in ((NaiveBayes, NaiveBayesConfig), (ClassMarkov, MarkovConfig)):
        for held_out in (valid, None):
            lines = []
            model = cls(V, config(n_outputs=2))
            model.fit(train, held_out, lines.append)
            assert model.config.order >= 2
            assert f"order {model.config.order}" in lines[-1]
            assert ("validation part" if held_out else "inner folds") in lines[-1]
            correct = [
                model.predict(source).argmax(1) == batch.targets
                for batch, source in read_batches(valid, 32)
            ]
            assert torch.cat(correct).double().mean() > 0.95


def test_folds_are_stratified_and_keep_groups_in_one_fold():
    keys = torch.tensor([0] * 20 + [1] * 10)
    fold = assign_folds(keys, 5)
    for n in range(5):
        assert Counter(keys[fold == n].tolist()) == {0: 4, 1: 2}
    targets, groups = keys.repeat_interleave(2), torch.arange(30).repeat_interleave(2)
    for learn, check in make_search(HEADS["label"], targets, None, groups).splits:
        assert not set(groups[learn].tolist()) & set(groups[check].tolist())
        assert len(learn) + len(check) == 60


def test_overconfidence_does_not_change_the_selection_loss():
    scores = torch.tensor([[2.0, -1.0], [0.5, 0.7], [0.9, 0.0]], dtype=torch.float64)
    targets, head = torch.tensor([0, 1, 1]), HEADS["label"]
    loss = selection_loss(head, scores, targets)
    assert loss == pytest.approx(selection_loss(head, 4 * scores, targets))
    values = torch.tensor([[1.0, 5.0], [3.0, float("nan")], [5.0, 9.0]])
    guesses = torch.tensor([[1.0, 7.0], [3.0, 0.0], [3.0, 7.0]], dtype=torch.float64)
    loss = selection_loss(HEADS["value"], guesses, values)
    assert loss == pytest.approx((4 / 8 + 8 / 8) / 2)


# The time budget, measured by a clock that only a test moves.

R = 5000  # rows: a fold has 4,000 to learn from
SECONDS = 1e-3  # of a row and order
ALL = 5 * SECONDS * 4000 * 15  # seconds of five folds and all orders


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (supervised, model_selection):
        monkeypatch.setattr(module, "time", made)
    return made


def choose_order(clock, seconds, *, slowdown=1.0):
    """Choose an order from 1 to 5, 3 being best. Return the choice, the search, the orders and rows
    of all fits, the lines that were logged, and the budget.
    """
    targets = torch.arange(R) % 2
    search, lines, fits = make_search(HEADS["label"], targets, None), [], []

    def fit_predict(config, learn, check):
        fits.append((config.order, len(learn)))
        probe = len(learn) <= PROBED
        clock.now += SECONDS * len(learn) * config.order * (1.0 if probe else slowdown)
        errors = check % 20 < 1 + 2 * abs(config.order - 3)
        return torch.nn.functional.one_hot((targets[check] + errors) % 2, 2).double()

    budget = Budget(lines.append, seconds)
    candidates = [NGramConfig(order=order) for order in range(1, 6)]
    return search.best(candidates, fit_predict, budget), search, fits, lines, budget


def test_with_enough_time_nothing_changes(clock):
    unlimited, _, all_fits, _, _ = choose_order(clock, float("inf"))
    assert unlimited.order == 3
    assert sorted(set(all_fits)) == [(order, 4000) for order in range(1, 6)]
    chosen, search, fits, _, budget = choose_order(clock, 3 * ALL)
    assert chosen == unlimited and search.method == "5 inner folds" and not budget.reductions
    assert [fit for fit in fits if fit[1] > PROBED] == all_fits
    assert search.limit_final_fit(SampledConfig(), budget) == SampledConfig()
    probing = sum(SECONDS * order * rows for order, rows in fits if rows <= PROBED)
    assert probing < 0.05 * ALL


@pytest.mark.parametrize("seconds", [300.0, 150.0, 100.0, 60.0, 20.0, 10.0])
@pytest.mark.parametrize("slowdown", [1.0, 2.0])
def test_a_search_fits_into_its_time_and_logs_each_reduction(clock, seconds, slowdown):
    started = clock.now
    chosen, search, fits, lines, budget = choose_order(clock, seconds, slowdown=slowdown)
    records = search.limit_final_fit(SampledConfig(), budget).records or R
    final = slowdown * SECONDS * records * chosen.order
    assert clock.now - started + final < 1.25 * seconds
    assert budget.reductions
    assert all(f"time is short: {line}" in lines for line in budget.reductions)
    tried = {order for order, rows in fits if rows > PROBED}
    assert not tried or chosen.order == min(tried, key=lambda order: abs(order - 3))


def test_folds_are_reduced_first_then_rows_then_settings(clock):
    *_, budget = choose_order(clock, 0.6 * ALL)
    assert budget.reductions == ["settings are compared on 2 of 5 inner folds"]
    _, search, fits, _, budget = choose_order(clock, 0.28 * ALL)
    (line,) = budget.reductions
    assert "1 of 5 inner folds, learning from" in line and search.method in line
    rows = {rows for _, rows in fits if rows > PROBED}
    assert len(rows) == 1 and LEAST <= rows.pop() < 4000
    chosen, _, _, _, budget = choose_order(clock, 12.0)
    assert any("settings are not tried (order" in line for line in budget.reductions)
    assert chosen.order < 3  # the slowest are dropped first


def test_progress_is_logged_every_ten_seconds(clock):
    *_, lines, _ = choose_order(clock, 10 * ALL)
    progress = [line for line in lines if "setting" in line]
    assert len(progress) >= 0.5 * ALL / 10
    assert "setting 5 of 5, split 2 of 5 (order 5)" in str(progress)


@pytest.mark.parametrize("name", ["naive-bayes", "logistic", "svm", "nb-svm", "markov"])
def test_a_large_budget_changes_no_bit_and_a_small_one_is_recorded_in_the_config(name):
    random = np.random.default_rng(1)
    records = [random.integers(3, V, n).tolist() for n in random.integers(4, 9, 900)]
    targets = np.array([r.count(3) > r.count(4) for r in records], np.int32)
    data, cls = labelled(records, targets, V), MODELS.get(name, "label")
    models = [cls(V, cls.Config(n_outputs=2, max_len=16)) for _ in range(3)]
    budgets = [None, Budget(lambda line: None, 3600.0), Budget(lambda line: None, 1e-3)]
    for model, budget in zip(models, budgets, strict=True):
        model.fit(data, None, ignore, budget)
    unlimited, large, small = models
    assert large.config == unlimited.config and not budgets[1].reductions
    for key, tensor in weights(unlimited).items():
        assert torch.equal(tensor, weights(large)[key])
    assert budgets[2].reductions
    again = cls(V, small.config)
    again.fit(data, None, ignore)
    for key, tensor in weights(small).items():
        assert torch.equal(tensor, weights(again)[key])
