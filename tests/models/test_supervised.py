"""Supervised models: time budgets, configurations of heads, and equal predictions in any batch."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
import torch
from id_records import labelled, marked

from regard.data.batching import LabelledExamples, LabelledLoader
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.models import supervised
from regard.models.class_counts import ClassMarkov, Majority, MarkovConfig
from regard.models.linear import NaiveBayes, NaiveBayesConfig, NGramConfig
from regard.models.supervised import (
    HEADS,
    LEAST,
    POOLINGS,
    PROBED,
    Budget,
    Effort,
    FittedConfig,
    Head,
    HeadConfig,
    Pooling,
    SampledConfig,
    assign_folds,
    make_search,
    read_batches,
    register_head,
    selection_loss,
)
from regard.registry import MODELS
from regard.run import Run, weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters


def test_mean_first_and_learned_weights():
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4)
    mask = torch.tensor([[True] * 3 + [False] * 2, [False] * 5])
    assert torch.equal(Pooling("first", 4)(x, mask)[0], x[0, 0])
    torch.testing.assert_close(Pooling("mean", 4)(x, mask)[0], x[0, :3].mean(0))
    learned = Pooling("attention", 4)
    weights = (x[0, :3] @ learned.score.weight[0]).softmax(0)
    torch.testing.assert_close(learned(x, mask)[0], weights @ x[0, :3])
    for name in POOLINGS:  # an empty row
        assert (Pooling(name, 4)(x, mask)[1] == 0).all()


def test_the_maximum_of_each_feature_and_the_share_of_each_position():
    pool = Pooling("max", 3)
    x = torch.tensor([[[1.0, -5, 0], [2, -7, 9], [8, 8, 8]]])
    mask = torch.tensor([[True, True, False]])
    assert pool(x, mask).tolist() == [[2, -5, 9]]
    assert pool.weights(x, mask)[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0])
    assert not pool(x, ~mask & False).any()


def test_positions_and_units_are_those_of_the_tasks():
    assert {name for name, head in HEADS.items() if head.positional} == {"position-label", "masked"}
    assert [name for name, head in HEADS.items() if head.scaled] == ["value"]


def test_the_loss_of_classes_is_smoothed_weighted_cross_entropy():
    scores, targets = torch.randn(4, 3).double(), torch.tensor([2, -1, 0, 1])
    weights = torch.tensor([1.0, 2.0, 0.5]).double()
    loss, plain = HEADS["label"].loss(scores, targets, smoothing=0.2, weights=weights)
    logs = scores.log_softmax(-1)
    expected = smooth = 0.0
    for row, target in ((0, 2), (2, 0), (3, 1)):
        expected -= logs[row, target]
        smooth -= 0.8 * weights[target] * logs[row, target] + 0.2 / 3 * (weights * logs[row]).sum()
    torch.testing.assert_close(plain, expected)
    torch.testing.assert_close(loss, smooth)


def test_the_losses_of_labels_and_values_skip_what_is_missing():
    scores = torch.tensor([[0.5, -1.0], [2.0, 0.0]])
    labels, values = torch.tensor([[1, -1], [0, 1]]), torch.tensor([[1.5, math.nan], [2.0, 3.0]])
    _, plain = HEADS["labels"].loss(scores, labels, smoothing=0.0, weights=None)
    p = scores.sigmoid()
    torch.testing.assert_close(plain, -(p[0, 0].log() + (1 - p[1, 0]).log() + p[1, 1].log()))
    loss, plain = HEADS["value"].loss(scores, values, smoothing=0.0, weights=None)
    assert loss == plain == pytest.approx((1.0 + 0.0 + 9.0) / 2)


@pytest.mark.parametrize("task", ["label", "labels", "value"])
def test_a_prediction_does_not_diverge_from_itself_and_divergence_is_symmetric(task):
    head, one, two = HEADS[task], torch.randn(5, 3), torch.randn(5, 3)
    targets = head.random_targets((5,), 3, torch.Generator().manual_seed(0))
    assert head.divergence(one, one, targets) == 0 < head.divergence(one, two, targets)
    torch.testing.assert_close(
        head.divergence(one, two, targets), head.divergence(two, one, targets)
    )


@pytest.mark.parametrize("task", ["label", "labels", "value"])
def test_views_are_averaged_as_probabilities_or_values(task):
    head, scores = HEADS[task], torch.randn(4, 6, 3).double()  # six views each
    expected = head.probabilities(scores).mean(1)
    torch.testing.assert_close(head.probabilities(head.average(scores)), expected)


def test_probabilities_are_checked_by_what_must_hold():
    for task in ("label", "labels"):
        probabilities = HEADS[task].probabilities(torch.randn(4, 3))
        torch.testing.assert_close(*HEADS[task].must_agree(probabilities))
    assert HEADS["value"].must_agree(torch.randn(4, 3)) is None
    found, expected = HEADS["label"].must_agree(torch.full((2, 3), 0.5))
    assert not torch.allclose(found, expected)


@pytest.mark.parametrize("task", sorted(HEADS))
def test_random_targets_have_a_loss(task):
    head, shape = HEADS[task], (2, 5) if HEADS[task].positional else (2,)
    targets = head.random_targets(shape, 3, torch.Generator().manual_seed(1))
    loss, _ = head.loss(torch.randn(*shape, 3), targets, smoothing=0.0, weights=None)
    assert loss.isfinite() and loss > 0


def test_a_head_is_registered_for_its_tasks(monkeypatch):
    monkeypatch.setattr("regard.models.supervised.HEADS", dict(HEADS))
    from regard.models import supervised

    @register_head("ordinal")
    class Ordinal(type(HEADS["value"])):
        pass

    assert isinstance(supervised.HEADS["ordinal"], Head) and "ordinal" not in HEADS


TOKENIZER = Characters("abcdefgh")
FAMILIES = [
    ("transformer", "modern"),
    ("transformer", "bert"),
    ("cnn", "kim"),
    ("lstm", "bidirectional"),
]
FAMILIES += [("hyena", "hyena")]


def texts():
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("abcdefgh"), n)) for n in draw.integers(1, 40, 1000)]


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize(("name", "preset"), FAMILIES)
def test_predictions_do_not_depend_on_the_other_records_of_a_batch(name, preset):
    torch.manual_seed(0)
    cls = MODELS.get(name, "label")
    config = cls.PRESETS[preset](2, 32)
    model = cls(TOKENIZER.vocab_size, dataclasses.replace(config, n_outputs=3, max_len=48)).eval()
    shard = dataclasses.replace(shard_of(texts(), TOKENIZER), targets=np.zeros(1000, np.int32))
    examples = LabelledExamples(shard, TOKENIZER, 48)
    predictions, vectors = torch.zeros(2, 1000, 3), torch.zeros(2, 1000, 32)
    orders = [[np.array([i]) for i in range(1000)]]
    orders.append(np.array_split(np.random.default_rng(1).permutation(1000), 25))
    for turn, groups in enumerate(orders):
        for records in groups:
            for batch in examples.batches(1 << 20, records):
                source = Inputs(batch.ids, batch.segments)
                predictions[turn, batch.items] = model.predict(source)
                vectors[turn, batch.items] = model.embed(source)
    torch.testing.assert_close(predictions[0], predictions[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors[0], vectors[1], atol=1e-5, rtol=0)
    if model.supports_packing:  # as in training on a GPU
        options = {
            "max_len": 48,
            "batch_tokens": 1 << 16,
            "seed": 0,
            "few": True,
            "supports_packing": True,
        }
        (batch,) = LabelledLoader(shard, TOKENIZER, **options).step(0)
        packed = model(Inputs(batch.ids, batch.segments), count=1000)
        torch.testing.assert_close(packed, predictions[0][batch.items], atol=1e-5, rtol=0)


def test_a_budget_shows_its_seconds_and_logs_each_reduction_once(monkeypatch):
    now, lines, shown = [100.0], [], []
    monkeypatch.setattr(supervised.time, "monotonic", lambda: now[0])
    budget = Budget(lines.append, 60.0, lambda *status: shown.append(status), "svm")
    assert budget.limited and budget.left == 60.0 and not Budget(lines.append).limited
    now[0] = 125.0
    budget.progress("setting 2 of 5")
    budget.tick("step 3")
    assert shown == [
        ("fitting svm", 25.0, 60.0, "seconds", "setting 2 of 5"),
        ("fitting svm", 25.0, 60.0, "seconds", "setting 2 of 5, step 3"),
    ]
    for _ in range(2):
        budget.reduce("fewer settings are tried")
    assert lines == ["time is short: fewer settings are tried"] and budget.left == 35.0
    assert budget.reductions == ["fewer settings are tried"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "next"}, "task must be one of label"),
        ({"n_outputs": 0}, "n_outputs must be from 1 to"),
        ({"pooling": "last"}, "pooling must be one of mean"),
    ],
)
def test_a_wrong_setting_of_a_head_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        HeadConfig(**options)


def test_values_are_standardised_by_what_is_known():
    cls = MODELS.get("transformer", "value")
    config = dataclasses.replace(cls.PRESETS["modern"](1, 32), task="value", n_outputs=3)
    model = cls(TOKENIZER.vocab_size, config)
    nan = float("nan")
    model.standardise(torch.tensor([[1.0, 5.0, nan], [3.0, nan, nan], [5.0, 5.0, nan]]))
    torch.testing.assert_close(model.shift, torch.tensor([3.0, 5.0, 0.0]))
    torch.testing.assert_close(model.scale, torch.tensor([(8 / 3) ** 0.5, 1.0, 1.0]))


V = 8
BASELINES = ("majority", "mean")
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
    ("value", "mean"),
    ("value", "ridge"),
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


@pytest.mark.parametrize(("task", "name"), [pair for pair in CASES if pair[1] not in BASELINES])
def test_every_model_beats_its_baseline_on_its_training_records(task, name):
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
    monkeypatch.setattr(supervised, "ENOUGH", 100)
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
    for module in (supervised, supervised):
        monkeypatch.setattr(module, "time", made)
    return made


def choose_order(clock, seconds, *, slowdown=1.0):
    """Choose an order from 1 to 5, 3 being best. Return the choice, the search, the orders and rows
    of all fits, the lines that were logged or show progress, and the budget.
    """
    targets = torch.arange(R) % 2
    search, lines, fits = make_search(HEADS["label"], targets, None), [], []

    def fit_predict(config, learn, check):
        fits.append((config.order, len(learn)))
        probe = len(learn) <= PROBED
        clock.now += SECONDS * len(learn) * config.order * (1.0 if probe else slowdown)
        errors = check % 20 < 1 + 2 * abs(config.order - 3)
        return torch.nn.functional.one_hot((targets[check] + errors) % 2, 2).double()

    def progress(activity, done, total, items, detail):
        lines.append(f"{activity}: {detail}")

    budget = Budget(lines.append, seconds, progress, "svm")
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


def test_progress_shows_the_setting_and_the_fold(clock):
    *_, lines, _ = choose_order(clock, 10 * ALL)
    progress = [line for line in lines if line.startswith("fitting svm: setting")]
    assert len(progress) >= 5 * 5  # settings on folds
    assert "setting 5 of 5 on fold 2 of 5 (order 5)" in str(progress)


def test_a_fold_that_is_large_chooses_alone():
    for rows, folds in ((5 * supervised.ENOUGH, 5), (5 * supervised.ENOUGH + 1, 1)):
        search = make_search(HEADS["label"], torch.arange(rows) % 2, None)
        assert len(search.splits) == folds
        assert search.method == ("5 inner folds" if folds == 5 else "1 of 5 inner folds")


def test_a_fit_that_was_stopped_is_not_compared(clock):
    """The second of three settings needs more time than there is."""
    budget = Budget(ignore, 100.0)
    targets, fitted = torch.arange(R) % 2, []
    search = make_search(HEADS["label"], targets, None)
    search.splits = search.splits[:1]

    def fit_predict(config, learn, check):
        fitted.append(config.order)
        step = 0
        effort = Effort(rough=True, budget=budget)
        while step < (1000 if config.order == 2 else 3) and not effort.over(step):
            step, clock.now = step + 1, clock.now + 1.0
        errors = check % 20 < (9 if config.order == 1 else 0)
        return torch.nn.functional.one_hot((targets[check] + errors) % 2, 2).double()

    candidates = [NGramConfig(order=order) for order in (1, 2, 3)]
    zeros = [0.0] * 3
    index, _ = search.compare(candidates, zeros, search.splits, fit_predict, budget, 50.0)
    assert fitted == [1, 2] and index == 0
    assert clock.now <= 51.0
    assert budget.reductions == ["2 of 3 settings are not tried"]


def test_the_last_fit_stops_in_time_and_logs_it(monkeypatch):
    monkeypatch.setattr(supervised, "LEAST", 20)
    data, lines = make_data("label"), []
    cls = MODELS.get("logistic", "label")
    model = cls(V, cls.Config(n_outputs=3, max_len=16, order=2, weighting="counts", strength=1e-6))
    budget = Budget(lines.append, -1.0)
    model.fit(data, None, ignore, budget)
    assert "the last fit stopped before it had converged" in budget.reductions
    assert model.coefficients.abs().max() > 0  # it took a step


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
