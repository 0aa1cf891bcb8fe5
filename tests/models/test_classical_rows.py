"""The classical rows against their formulas in plain Python, alone and in batches, and stored."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
import torch
from id_records import END, START, shard

from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.models import model_selection
from regard.models.class_counts import ClassMarkov, Majority, MarkovConfig, PWMClassifier, PwmConfig
from regard.models.linear import (
    LinearConfig,
    NaiveBayes,
    NaiveBayesConfig,
    NbSvm,
    NbSvmConfig,
    WindowConfig,
    WindowLogistic,
)
from regard.models.model_selection import FittedConfig, cost, folds, trials
from regard.registry import family
from regard.run import load_model, weights, write_config, write_tensors

V = 8
SOLVED = ("logistic", "svm", "nb-svm")
ROWS = [
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


def quiet(line):
    assert line


def skip_unless_solved(name):
    if name in SOLVED and find_spec("sklearn") is None:
        pytest.skip("scikit-learn is not installed")


def asked(records, targets, seconds=None):
    """A labelled shard in memory."""
    made = shard(records, V)
    if seconds is not None:
        made = made.paired(shard(seconds, V))
    aligned = targets.dtype == np.dtype("<i2")
    return dataclasses.replace(made, targets=targets, aligned=aligned)


def data(task, seed=1, count=60, length=0):
    """Records whose class is which of 3 and 4 is more frequent, and what goes with it."""
    draw = np.random.default_rng(seed)
    records = [draw.integers(3, V, length or n).tolist() for n in draw.integers(2, 9, count)]
    more = [r.count(3) - r.count(4) for r in records]
    if task == "label":
        return asked(records, (np.sign(more) + 1).astype(np.int32))
    if task == "labels":
        found = np.array([[m > 0, 5 in r] for m, r in zip(more, records, strict=True)], np.int8)
        found[::7, 1] = -1
        return asked(records, found)
    if task == "value":
        found = np.array([[m, len(r)] for m, r in zip(more, records, strict=True)], np.float32)
        found[::5, 0] = np.nan
        return asked(records, found)
    marked = [[-1, *[x % 2 for x in r], -1] for r in records]
    return asked(records, np.array([x for r in marked for x in r], np.dtype("<i2")))


def outputs(task):
    return 3 if task == "label" else 2


def source_of(records, width=0):
    rows = [[START, *r, END] for r in records]
    width = width or max(map(len, rows))
    ids = torch.tensor([[*r, *[0] * (width - len(r))] for r in rows])
    return Inputs(ids, torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows]))


def made(task, name, **options):
    """A fitted row; what is open has few values, so that the test is short."""
    skip_unless_solved(name)
    cls = family(name, task)
    short = {"order": 2, "alpha": 0.5, "strength": 1.0, "window": 3, "weighting": "counts"}
    fields = cls.Config.__dataclass_fields__
    given = {key: value for key, value in {**short, **options}.items() if key in fields}
    config = cls.Config(task=task, n_outputs=outputs(task), max_len=16, **given)
    model = cls(V, config)
    model.fit(data(task, length=6 if name == "pwm" else 0), None, quiet)
    return model.eval()


def some(name):
    if name == "pwm":
        return [[3, 4, 5, 6, 7, 3], [4, 4, 4, 3, 6, 6], [5, 5, 7, 7, 3, 3]]
    return [[3, 4, 4, 5, 6], [7], [3, 3, 3, 5, 4, 6, 7, 3], [6, 5]]


@pytest.mark.parametrize(("task", "name"), ROWS)
def test_answers_are_the_same_alone_and_in_batches(task, name):
    model, records = made(task, name), some(name)
    together = model.answers(source_of(records, width=14))
    assert together.shape[:1] == (len(records),) and together.size(-1) == outputs(task)
    for row, record in enumerate(records):
        alone = model.answers(source_of([record]))[0]
        got = together[row, : len(record) + 2] if task == "position-label" else together[row]
        torch.testing.assert_close(got, alone, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("task", "name"), ROWS)
def test_a_stored_row_answers_the_same(task, name, tmp_path):
    model, source = made(task, name), source_of(some(name))
    write_config(tmp_path, name, model)
    write_tensors(tmp_path / "model.safetensors", weights(model))
    again = load_model(tmp_path)
    assert again.config == model.config
    assert torch.equal(again.answers(source), model.answers(source))


@pytest.mark.parametrize(("task", "name"), ROWS)
def test_what_was_learned_comes_back(task, name):
    """Each row beats its floor on the records that it has seen."""
    model, held = made(task, name), data(task, length=6 if name == "pwm" else 0)
    floor = made(task, "majority") if name != "pwm" else None
    if floor is None:
        floor = Majority(V, FittedConfig(n_outputs=3, max_len=16))
        floor.fit(held, None, quiet)
    costs = []
    for one in (model, floor):
        rows, wanted = [], []
        for batch, source in model_selection.batches(held, 16):
            answer = one.answers(source)
            kept = batch.targets >= 0 if task == "position-label" else slice(None)
            rows.append(answer[kept])
            wanted.append(batch.targets[kept])
        costs.append(cost(task, torch.cat(rows), torch.cat(wanted)))
    assert costs[0] < 0.8 * costs[1] or name == "majority"


def test_shares_and_means():
    model = made("label", "majority")
    counts = Counter(data("label").targets.tolist())
    p = model.answers(source_of([[3], [4, 5]])).exp()
    np.testing.assert_allclose(p, [[counts[c] / 60 for c in range(3)]] * 2)
    values = data("value").targets
    np.testing.assert_allclose(
        made("value", "majority").answers(source_of([[3]]))[0], np.nanmean(values, 0), rtol=1e-6
    )
    labels = data("labels").targets
    expected = [np.mean(column[column >= 0]) for column in labels.T]
    got = made("labels", "majority").answers(source_of([[3]])).sigmoid()[0]
    np.testing.assert_allclose(got, expected)
    places = data("position-label").targets
    got = made("position-label", "majority").answers(source_of([[3, 4]])).exp()
    assert got.shape == (1, 4, 2)
    np.testing.assert_allclose(got[0, 1, 1], np.mean(places[places >= 0]))


def test_a_label_that_all_have_is_not_certain():
    held = asked([[3], [4]], np.array([[1, 0], [1, 1]], np.int8))
    model = Majority(V, FittedConfig(task="labels", n_outputs=2))
    model.fit(held, None, quiet)
    np.testing.assert_allclose(model.answers(source_of([[3]])).sigmoid()[0], [2 / 2.5, 0.5])


def grams_of(record, order=2):
    text = [START, *record, END]
    every = [tuple(text[i : i + n]) for n in range(1, order + 1) for i in range(len(text) - n + 1)]
    return [gram for gram in every if len(gram) > 1 or gram[0] not in (START, END)]


def naive_bayes_by_hand(records, labels, asked_of, alpha):
    known = {gram for record in records for gram in grams_of(record)}
    found = []
    for label in sorted(set(labels)):
        own = [r for r, y in zip(records, labels, strict=True) if y == label]
        counts = Counter(gram for record in own for gram in grams_of(record))
        total = sum(counts.values()) + alpha * len(known)
        logs = math.log(len(own) / len(records))
        for gram in grams_of(asked_of):
            if gram in known:
                logs += math.log((counts[gram] + alpha) / total)
        found.append(logs)
    return torch.tensor(found, dtype=torch.float64).log_softmax(0)


def test_naive_bayes_is_its_formula():
    records, labels = [[3, 4, 3], [5, 4], [3, 6, 6, 3]], [0, 1, 0]
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=2, order=2, alpha=0.3))
    model.fit(asked(records, np.array(labels, np.int32)), None, quiet)
    for record in ([3, 4], [6, 7, 5, 4], []):
        expected = naive_bayes_by_hand(records, labels, record, 0.3)
        torch.testing.assert_close(model.answers(source_of([record]))[0], expected)


def test_naive_bayes_is_that_of_scikit_learn():
    bayes = pytest.importorskip("sklearn.naive_bayes", reason="scikit-learn is not installed")
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.pipeline import make_pipeline

    held = data("label")
    records = [held.record(i)[1:-1].tolist() for i in range(held.records)]
    theirs = make_pipeline(CountVectorizer(analyzer=grams_of), bayes.MultinomialNB(alpha=0.5))
    theirs.fit(records, held.targets)
    ours = made("label", "naive-bayes").answers(source_of(records))
    np.testing.assert_allclose(ours, theirs.predict_log_proba(records), atol=1e-9)


def test_aligned_sequences_may_be_counted_place_by_place():
    """The class is what stands at the second place; what else there is says nothing. Naive Bayes
    on single tokens is then the formula of a weight matrix with as many counts beforehand.
    """
    draw = np.random.default_rng(0)
    records = draw.integers(3, V, (300, 6))
    targets = (records[:, 1] >= 6).astype(np.int32)
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=2))
    model.fit(asked(records[:200].tolist(), targets[:200]), None, quiet)
    assert model.config.places == "each"
    rest = torch.from_numpy(np.pad(records[200:], ((0, 0), (1, 1)), constant_values=(START, END)))
    rest[:, -1] = END
    found = model.answers(Inputs(rest, torch.ones_like(rest))).argmax(1).numpy()
    assert (found == targets[200:]).all()
    single = NaiveBayes(V, NaiveBayesConfig(n_outputs=2, places="each", order=1, alpha=1.0))
    single.fit(asked(records[:200].tolist(), targets[:200]), None, quiet)
    known = len({(j, x) for r in records[:200].tolist() for j, x in enumerate(r)})
    for one in records[200:205].tolist():
        scores = []
        for label in (0, 1):
            rows = records[:200][targets[:200] == label]
            score = math.log(len(rows) / 200)
            for j, x in enumerate(one):
                score += math.log(((rows[:, j] == x).sum() + 1) / (6 * len(rows) + known))
            scores.append(score)
        ids = torch.tensor([[START, *one, END]])
        got = single.answers(Inputs(ids, torch.ones_like(ids)))[0]
        torch.testing.assert_close(got, torch.tensor(scores, dtype=torch.float64).log_softmax(0))
    uneven = NaiveBayes(V, NaiveBayesConfig(n_outputs=3))
    uneven.fit(data("label"), None, quiet)
    assert uneven.config.places == "any"


def test_a_second_text_has_features_of_its_own():
    """The class is whether a token stands in the first text or in the second."""
    draw = np.random.default_rng(7)
    plain = [[draw.integers(4, V, 3).tolist() for _ in range(40)] for _ in range(2)]
    for i in range(40):
        plain[i % 2][i][i % 3] = 3
    labels = np.arange(40, dtype=np.int32) % 2
    held = asked(plain[0], labels, plain[1])
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=2, order=1, alpha=0.1))
    model.fit(held, None, quiet)
    for batch, source in model_selection.batches(held, 32):
        assert (model.answers(source).argmax(1) == batch.targets).all()


def test_nb_svm_lies_between_its_two_parents():
    """beta = 0 is naive Bayes' ratios times one number, beta = 1 the machine on them."""
    skip_unless_solved("nb-svm")
    held = data("label")
    models = {}
    for beta in (0.0, 0.25, 1.0):
        models[beta] = NbSvm(V, NbSvmConfig(n_outputs=3, order=1, strength=1.0, beta=beta))
        models[beta].fit(held, None, quiet)
    binary = [set(held.record(i)[1:-1].tolist()) for i in range(held.records)]
    tokens = range(3, V)
    for label in range(3):
        inside = [1 + sum(t in b for b, y in zip(binary, held.targets, strict=True) if y == label)
                  for t in tokens]  # fmt: skip
        outside = [1 + sum(t in b for b, y in zip(binary, held.targets, strict=True) if y != label)
                   for t in tokens]  # fmt: skip
        ratios = [math.log(a / sum(inside)) - math.log(b / sum(outside))
                  for a, b in zip(inside, outside, strict=True)]  # fmt: skip
        w = models[1.0].coefficients[:, label].numpy() / ratios
        for beta in (0.0, 0.25):
            expected = ((1 - beta) * np.abs(w).mean() + beta * w) * ratios
            np.testing.assert_allclose(models[beta].coefficients[:, label], expected, atol=1e-9)
        assert models[0.25].bias[label] == 0.25 * models[1.0].bias[label]


def test_weight_matrices_by_hand():
    records, labels = [[3, 4], [3, 5], [6, 4]], [0, 0, 1]
    model = PWMClassifier(V, PwmConfig(n_outputs=2, pseudocount=2.0))
    model.fit(asked(records, np.array(labels, np.int32)), None, quiet)
    every = Counter(x for r in records for x in r)
    base = {x: (every[x] + 1 / V) / (6 + 1) for x in range(V)}
    for record in ([3, 4], [6, 6], [7, 5]):
        logs = []
        for own in (records[:2], records[2:]):
            p = math.log(len(own) / 3)
            for j, x in enumerate(record):
                p += math.log((sum(r[j] == x for r in own) + 2 * base[x]) / (len(own) + 2))
            logs.append(p)
        expected = torch.tensor(logs, dtype=torch.float64).log_softmax(0)
        torch.testing.assert_close(model.answers(source_of([record]))[0], expected)


def test_weight_matrices_are_for_one_length():
    model = PWMClassifier(V, PwmConfig(n_outputs=2))
    with pytest.raises(UserError, match="all of one length: record 2 has 1 tokens, others 2"):
        model.fit(asked([[3, 4], [3]], np.array([0, 1], np.int32)), None, quiet)
    model = made("label", "pwm")
    with pytest.raises(UserError, match="a sequence has 2 tokens, others 6"):
        model.answers(source_of([[3, 4]]))


def test_chains_by_hand():
    """Order 2: P(b | a) = (n(ab) + α₂ P(b)) / (n(a) + α₂), P(b) = (n(b) + α₁ / 7) / (N + α₁)."""
    records, labels = [[3, 4, 3], [4, 4], [5, 3]], [0, 0, 1]
    model = ClassMarkov(V, MarkovConfig(n_outputs=2, order=2))
    model.fit(asked(records, np.array(labels, np.int32)), None, quiet)
    for record in ([3, 4], [5, 5, 3], [6]):
        logs = []
        for label, own in ((0, records[:2]), (1, records[2:])):
            one, two = (float(a) for a in model.chains[label].alphas)
            texts = [[START, *r, END] for r in own]
            pairs = Counter(p for t in texts for p in pairwise(t))
            single = Counter(x for t in texts for x in t[1:])
            total = math.log(len(own) / 3)
            text = [START, *record, END]
            for a, b in pairwise(text):
                p = (single[b] + one / (V - 1)) / (sum(single.values()) + one)
                after = sum(n for (x, _), n in pairs.items() if x == a)
                total += math.log((pairs[a, b] + two * p) / (after + two))
            logs.append(total)
        expected = torch.tensor(logs, dtype=torch.float64).log_softmax(0)
        got = model.answers(source_of([record]))[0]
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_what_is_open_is_chosen_and_kept(monkeypatch):
    """Which of two tokens comes before the other: single tokens do not tell, pairs do."""
    monkeypatch.setattr(model_selection, "ENOUGH", 100)
    draw = np.random.default_rng(3)
    records, labels = [], []
    for _ in range(260):
        pair = [3, 4] if (label := int(draw.integers(2))) else [4, 3]
        labels.append(label)
        records.append([*draw.integers(5, V, draw.integers(1, 4)), *pair, *draw.integers(5, V, 2)])
    train = asked(records[:150], np.array(labels[:150], np.int32))
    valid = asked(records[150:], np.array(labels[150:], np.int32))
    for cls, config in ((NaiveBayes, NaiveBayesConfig), (ClassMarkov, MarkovConfig)):
        for held in (valid, None):
            said = []
            model = cls(V, config(n_outputs=2))
            model.fit(train, held, said.append)
            assert model.config.order >= 2
            assert ("validation part" if held else "inner folds") in said[-1]
            got = [model.answers(source).argmax(1) == batch.targets
                   for batch, source in model_selection.batches(valid, 32)]  # fmt: skip
            assert torch.cat(got).double().mean() > 0.95


def test_a_window_sees_the_tokens_around_a_position():
    """The label of a position is the parity of the token after it."""
    skip_unless_solved("logistic")
    draw = np.random.default_rng(8)
    records = [draw.integers(3, V, 12).tolist() for _ in range(60)]
    labels = [[-1, *[x % 2 for x in r[1:]], 0, -1] for r in records]
    held = asked(records, np.array([x for r in labels for x in r], np.dtype("<i2")))
    config = {"task": "position-label", "n_outputs": 2}
    scores = {}
    for window in (1, 3):
        model = WindowLogistic(V, WindowConfig(window=window, strength=0.1, **config))
        model.fit(held, None, quiet)
        ((batch, source),) = model_selection.batches(held, 32)
        kept = batch.targets >= 0
        right = model.answers(source).argmax(-1)[kept] == batch.targets[kept]
        scores[window] = right.double().mean().item()
    assert scores[1] < 0.7 and scores[3] == 1.0


def test_folds_have_their_share_of_every_class_and_keep_groups_together():
    keys = torch.tensor([0] * 20 + [1] * 10)
    fold = folds(keys, 5)
    for n in range(5):
        assert Counter(keys[fold == n].tolist()) == {0: 4, 1: 2}
    targets, groups = keys.repeat_interleave(2), torch.arange(30).repeat_interleave(2)
    for learn, check in trials("label", targets, None, groups).splits:
        assert not set(groups[learn].tolist()) & set(groups[check].tolist())
        assert len(learn) + len(check) == 60


def test_being_too_sure_costs_nothing_when_choosing():
    scores = torch.tensor([[2.0, -1.0], [0.5, 0.7], [0.9, 0.0]], dtype=torch.float64)
    targets = torch.tensor([0, 1, 1])
    assert cost("label", scores, targets) == pytest.approx(cost("label", 4 * scores, targets))
    gaps = torch.tensor([[1.0, 5.0], [3.0, float("nan")], [5.0, 9.0]])
    guess = torch.tensor([[1.0, 7.0], [3.0, 0.0], [3.0, 7.0]], dtype=torch.float64)
    assert cost("value", guess, gaps) == pytest.approx((4 / 8 + 8 / 8) / 2)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (NaiveBayesConfig, {"order": 33}, "order must be from 0"),
        (NaiveBayesConfig, {"alpha": -1.0}, "alpha must be 0"),
        (LinearConfig, {"strength": float("inf")}, "strength must be 0"),
        (NbSvmConfig, {"beta": 2.0}, "beta must be from 0 to 1"),
        (WindowConfig, {"window": 4}, "window must be 0"),
        (PwmConfig, {"pseudocount": -1.0}, "pseudocount must be 0"),
        (LinearConfig, {"places": "some"}, "places must be one of auto, any, each"),
        (FittedConfig, {"max_len": 0}, "max_len must be at least 1"),
        (MarkovConfig, {"n_outputs": 20_000}, "n_outputs must be at most"),
    ],
)
def test_wrong_options_are_named(config, options, message):
    with pytest.raises(ValueError, match=message):
        config(**options)


def test_tensors_that_do_not_fit_are_refused(tmp_path):
    model = made("label", "naive-bayes")
    write_config(tmp_path, "naive-bayes", model)
    tensors = weights(model)
    for name, value in (("codes", tensors["codes"].flip(0)), ("bias", torch.zeros(7).double())):
        write_tensors(tmp_path / "model.safetensors", {**tensors, name: value})
        with pytest.raises(UserError, match=r"sorted|coefficients must be"):
            load_model(tmp_path)
