"""Linear models against closed forms, zero gradients, scikit-learn and plain Python."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
import torch
from id_records import END, START, labelled, marked
from point_clouds import alone, cloud
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from torch.nn import functional as F

from regard.bundled import random_rotation
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.models.linear import (
    LinearConfig,
    LinearSvm,
    NaiveBayes,
    NaiveBayesConfig,
    NbSvm,
    NbSvmConfig,
    PixelConfig,
    PixelLogistic,
    PointCloudLogistic,
    StatisticsConfig,
    WindowConfig,
    WindowLogistic,
    fit_classes,
    fit_labels,
    fit_margins,
    fit_values,
)
from regard.models.supervised import read_batches
from regard.run import Run, weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Patches, Points
from regard.tokenizers.points import PointCloud

R, D, C = 40, 6, 3  # rows, features, outputs
V = 8


def ignore(line):
    assert line


@pytest.fixture
def table():
    random = np.random.default_rng(1)
    return random.poisson(0.7, (R, D)) * random.uniform(0.5, 2, D)


def classes(count=C):
    return torch.from_numpy(np.random.default_rng(2).integers(0, count, R))


def labels():
    """Labels of which some are unknown."""
    return torch.from_numpy(np.random.default_rng(3).integers(-1, 2, (R, C)))


def gradients(table, loss, weights, bias):
    """Return the largest derivatives of a loss of scores, by weights and by biases."""
    weights, bias = weights.clone().requires_grad_(), bias.clone().requires_grad_()
    loss(torch.from_numpy(table) @ weights + bias, weights, bias).backward()
    return weights.grad.abs().max().item(), bias.grad.abs().max().item()


def test_logistic_regression_of_classes_minimises_its_loss(table):
    y = classes()
    weights, bias = fit_classes(csr_matrix(table), y, C, 0.7)

    def loss(scores, w, b):
        logs = scores.log_softmax(-1)
        return -sum(logs[i, y[i]] for i in range(R)) + 0.35 * w.square().sum()

    assert weights.abs().max() > 0.1
    assert max(gradients(table, loss, weights, bias)) < 1e-3


def test_two_classes_have_opposite_scores(table):
    y = classes(2)
    weights, bias = fit_classes(csr_matrix(table), y, 2, 0.7)
    torch.testing.assert_close(weights[:, 0], -weights[:, 1])

    def loss(scores, w, b):
        margin = scores[:, 1] - scores[:, 0]
        difference = w[:, 1] - w[:, 0]
        losses = F.softplus(torch.where(y == 1, -margin, margin))
        return losses.sum() + 0.35 * difference.square().sum()

    assert max(gradients(table, loss, weights, bias)) < 1e-3
    random = np.random.default_rng(9)
    records = [random.integers(3, V, 5).tolist() for _ in range(30)]
    targets = np.array([3 in record for record in records], np.int32)
    model = LinearSvm(V, LinearConfig(n_outputs=2, order=1, weighting="counts", strength=1.0))
    model.fit(labelled(records, targets, V), None, ignore)
    torch.testing.assert_close(model.coefficients[:, 0], -model.coefficients[:, 1])
    torch.testing.assert_close(model.bias[:1], -model.bias[1:])


def test_logistic_regression_of_labels_minimises_its_loss_without_the_unknown(table):
    y = labels()
    weights, bias = fit_labels(csr_matrix(table), y, 0.7)

    def loss(scores, w, b):
        p = scores.sigmoid()
        logs = [(p[i, j] if y[i, j] else 1 - p[i, j]).log() for i, j in (y >= 0).nonzero().tolist()]
        return -sum(logs) + 0.35 * w.square().sum()

    assert max(gradients(table, loss, weights, bias)) < 1e-3


@pytest.mark.parametrize("targets", [lambda: F.one_hot(classes(), C), labels])
@pytest.mark.parametrize("scaled", [False, True])
def test_support_vector_machines_minimise_the_squared_hinge(table, targets, scaled):
    y, x = targets(), csr_matrix(table)
    torch.manual_seed(4)
    scales = torch.rand(D, C, dtype=torch.float64) + 0.5 if scaled else None
    weights, bias = fit_margins(x, y, 0.7, scales=scales)

    def loss(scores, w, b):
        scores = torch.from_numpy(table) @ (w * scales if scaled else w) + b
        total = 0.35 * (w.square().sum() + b.square().sum())  # as in LIBLINEAR
        for i in range(R):
            for j in range(C):
                if y[i, j] >= 0:
                    total = total + torch.relu(1 - (2 * int(y[i, j]) - 1) * scores[i, j]) ** 2
        return total

    assert weights.abs().max() > 0.1
    assert max(gradients(table, loss, weights, bias)) < 0.05  # of a sum of about a hundred
    again = fit_margins(x, y, 0.7, scales=scales)
    torch.testing.assert_close(again, (weights, bias), atol=0, rtol=0)


def test_ridge_regression_has_a_closed_form(table):
    random = np.random.default_rng(5)
    y = random.normal(3, 2, (R, 2))
    y[::3, 1] = np.nan
    w, b = fit_values(csr_matrix(table), torch.from_numpy(y), 2.5)
    for column in range(2):
        known = ~np.isnan(y[:, column])
        x = np.column_stack([table[known], np.ones(known.sum())])
        penalty = 2.5 * np.diag([1.0] * D + [0.0])
        expected = np.linalg.solve(x.T @ x + penalty, x.T @ y[known, column])
        np.testing.assert_allclose([*w[:, column].tolist(), float(b[column])], expected, atol=1e-5)


def test_a_class_or_label_that_never_occurs_is_improbable(table):
    x, y = csr_matrix(table), classes(2)
    weights, bias = fit_classes(x, y, 4, 1.0)
    p = (torch.from_numpy(table) @ weights + bias).softmax(-1)
    assert not weights[:, 2:].any() and (p[:, 2:] < 0.05).all()
    one = fit_classes(x, torch.zeros(R, dtype=torch.long), 2, 1.0)[1]
    assert one.softmax(-1).tolist() == pytest.approx([R / (R + 0.5), 0.5 / (R + 0.5)])
    constant = torch.zeros(R, 2, dtype=torch.long)
    constant[:, 1] = 1
    for fit in (fit_labels, fit_margins):
        weights, bias = fit(x, constant, 1.0)
        assert not weights.any() and bias[0] < -0.9 and bias[1] > 0.9
    values = torch.tensor([[2.0, math.nan]]).repeat(R, 1)
    weights, bias = fit_values(x, values, 1.0)
    assert not weights.any() and bias.tolist() == [2.0, 0.0]


def grams(record, order=2):
    text = [START, *record, END]
    every = [tuple(text[i : i + n]) for n in range(1, order + 1) for i in range(len(text) - n + 1)]
    return [gram for gram in every if len(gram) > 1 or gram[0] not in (START, END)]


def naive_bayes_by_hand(records, classes, query, alpha):
    vocabulary = {gram for record in records for gram in grams(record)}
    joint = []
    for label in sorted(set(classes)):
        members = [r for r, y in zip(records, classes, strict=True) if y == label]
        counts = Counter(gram for record in members for gram in grams(record))
        total = sum(counts.values()) + alpha * len(vocabulary)
        logs = math.log(len(members) / len(records))
        for gram in grams(query):
            if gram in vocabulary:
                logs += math.log((counts[gram] + alpha) / total)
        joint.append(logs)
    return torch.tensor(joint, dtype=torch.float64).log_softmax(0)


def test_naive_bayes_is_its_formula():
    records, targets = [[3, 4, 3], [5, 4], [3, 6, 6, 3]], [0, 1, 0]
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=2, order=2, alpha=0.3))
    model.fit(labelled(records, np.array(targets, np.int32), V), None, ignore)
    for record in ([3, 4], [6, 7, 5, 4], []):
        expected = naive_bayes_by_hand(records, targets, record, 0.3)
        torch.testing.assert_close(model.predict(marked([record]))[0], expected)


def test_naive_bayes_is_that_of_scikit_learn():
    random = np.random.default_rng(1)
    records = [random.integers(3, V, n).tolist() for n in random.integers(2, 9, 60)]
    targets = np.array([np.sign(r.count(3) - r.count(4)) + 1 for r in records], np.int32)
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=3, order=2, alpha=0.5))
    model.fit(labelled(records, targets, V), None, ignore)
    reference = make_pipeline(CountVectorizer(analyzer=grams), MultinomialNB(alpha=0.5))
    reference.fit(records, targets)
    ours = model.predict(marked(records))
    np.testing.assert_allclose(ours, reference.predict_log_proba(records), atol=1e-9)


def test_n_grams_of_aligned_sequences_may_be_counted_by_position():
    """The class is the second token; the others are noise. Naive Bayes on single tokens is then the
    formula of a position weight matrix with as many pseudocounts.
    """
    random = np.random.default_rng(0)
    records = random.integers(3, V, (300, 6))
    targets = (records[:, 1] >= 6).astype(np.int32)
    train = labelled(records[:200].tolist(), targets[:200], V)
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=2))
    model.fit(train, None, ignore)
    assert model.config.places == "each"
    assert (model.predict(marked(records[200:].tolist())).argmax(1).numpy() == targets[200:]).all()
    single = NaiveBayes(V, NaiveBayesConfig(n_outputs=2, places="each", order=1, alpha=1.0))
    single.fit(train, None, ignore)
    vocabulary = len({(j, x) for r in records[:200].tolist() for j, x in enumerate(r)})
    for record in records[200:205].tolist():
        scores = []
        for label in (0, 1):
            rows = records[:200][targets[:200] == label]
            score = math.log(len(rows) / 200)
            for j, x in enumerate(record):
                score += math.log(((rows[:, j] == x).sum() + 1) / (6 * len(rows) + vocabulary))
            scores.append(score)
        ids = torch.tensor([[START, *record, END]])
        logs = single.predict(Inputs(ids, torch.ones_like(ids)))[0]
        torch.testing.assert_close(logs, torch.tensor(scores, dtype=torch.float64).log_softmax(0))
    uneven = NaiveBayes(V, NaiveBayesConfig(n_outputs=2))
    uneven.fit(labelled([[3, 4], [5], [4, 4]], np.array([0, 1, 0], np.int32), V), None, ignore)
    assert uneven.config.places == "any"


def test_a_second_text_has_features_of_its_own():
    """The class says whether a token is in the first text or in the second."""
    random = np.random.default_rng(7)
    texts = [[random.integers(4, V, 3).tolist() for _ in range(40)] for _ in range(2)]
    for i in range(40):
        texts[i % 2][i][i % 3] = 3
    data = labelled(texts[0], np.arange(40, dtype=np.int32) % 2, V, texts[1])
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=2, order=1, alpha=0.1))
    model.fit(data, None, ignore)
    for batch, source in read_batches(data, 32):
        assert (model.predict(source).argmax(1) == batch.targets).all()


def test_nb_svm_interpolates_naive_bayes_and_the_machine():
    """beta = 0 is the ratios of naive Bayes times one number, beta = 1 the machine on them."""
    random = np.random.default_rng(1)
    records = [random.integers(3, V, n).tolist() for n in random.integers(2, 9, 60)]
    targets = np.array([np.sign(r.count(3) - r.count(4)) + 1 for r in records], np.int32)
    models = {}
    for beta in (0.0, 0.25, 1.0):
        models[beta] = NbSvm(V, NbSvmConfig(n_outputs=3, order=1, strength=1.0, beta=beta))
        models[beta].fit(labelled(records, targets, V), None, ignore)
    for label in range(3):
        inside, outside = (
            [1 + sum(token in r for r, y in zip(records, targets, strict=True) if keep(y))
             for token in range(3, V)]
            for keep in (lambda y, label=label: y == label, lambda y, label=label: y != label)
        )  # fmt: skip
        ratios = [
            math.log(a / sum(inside)) - math.log(b / sum(outside))
            for a, b in zip(inside, outside, strict=True)
        ]
        w = models[1.0].coefficients[:, label].numpy() / ratios
        for beta in (0.0, 0.25):
            expected = ((1 - beta) * np.abs(w).mean() + beta * w) * ratios
            np.testing.assert_allclose(models[beta].coefficients[:, label], expected, atol=1e-9)
        assert models[0.25].bias[label] == 0.25 * models[1.0].bias[label]


def test_a_window_reads_the_tokens_around_a_position():
    """The label of a position is the parity of the token after it."""
    random = np.random.default_rng(8)
    records = [random.integers(3, V, 12).tolist() for _ in range(60)]
    targets = [[-1, *[x % 2 for x in r[1:]], 0, -1] for r in records]
    data = labelled(records, np.array([x for r in targets for x in r], np.dtype("<i2")), V)
    accuracy = {}
    for window in (1, 3):
        config = WindowConfig(task="position-label", n_outputs=2, window=window, strength=0.1)
        model = WindowLogistic(V, config)
        model.fit(data, None, ignore)
        ((batch, source),) = read_batches(data, 32)
        mask = batch.targets >= 0
        correct = model.predict(source).argmax(-1)[mask] == batch.targets[mask]
        accuracy[window] = correct.double().mean().item()
    assert accuracy[1] < 0.7 and accuracy[3] == 1.0


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (NaiveBayesConfig, {"order": 33}, "order must be from 0"),
        (NaiveBayesConfig, {"alpha": -1.0}, "alpha must be finite and 0 or more"),
        (LinearConfig, {"strength": float("inf")}, "strength must be finite"),
        (LinearConfig, {"places": "some"}, "places must be one of auto, any, each"),
        (NbSvmConfig, {"beta": 2.0}, "beta must be from 0 to 1"),
        (WindowConfig, {"window": 4}, "window must be 0"),
    ],
)
def test_invalid_options_are_named(config, options, message):
    with pytest.raises(ValueError, match=message):
        config(**options)


def test_inconsistent_tensors_are_refused(tmp_path):
    model = NaiveBayes(V, NaiveBayesConfig(n_outputs=2, order=2, alpha=0.5))
    model.fit(labelled([[3, 4], [5]], np.array([0, 1], np.int32), V), None, ignore)
    write_config(tmp_path, "naive-bayes", model)
    tensors = weights(model)
    for name, value in (("codes", tensors["codes"].flip(0)), ("bias", torch.zeros(7).double())):
        write_tensors(tmp_path / "model.safetensors", {**tensors, name: value})
        with pytest.raises(UserError, match=r"sorted|coefficients must be"):
            Run(tmp_path).model()


def batch_of(images, tokenizer, more=0):
    """Images in rows of one length; the padding is random."""
    tokens = [torch.from_numpy(tokenizer.encode_batch([p])[0]) for p in images]
    width = max(map(len, tokens)) + more
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (len(tokens), width, tokenizer.vocab_size), generator=generator)
    segments = torch.zeros(len(tokens), width, dtype=torch.long)
    for i, row in enumerate(tokens):
        ids[i, : len(row)], segments[i, : len(row)] = row.long(), 1
    return Inputs(ids.to(torch.uint8), segments)


def test_logistic_regression_on_pixels_has_a_zero_gradient():
    """The gradient of the loss, in NumPy: X'(p - y) + strength W."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 60)
    images = [random.integers(0, 120, (4, 4, 1), dtype=np.uint8) + np.uint8(40 * y) for y in labels]
    cut = Patches.train(images, patch=2)
    shard = dataclasses.replace(shard_of(images, cut), targets=labels.astype(np.int32))
    config = PixelConfig(n_outputs=3, strength=5.0, **cut.model_config)
    model = PixelLogistic(cut.vocab_size, config)
    model.fit(shard, None, lambda line: None)
    x = (np.stack(images).reshape(60, -1) / 255 - cut.mean[0]) / cut.deviation[0]
    weights, bias = model.coefficients.double().numpy(), model.bias.double().numpy()
    scores = np.exp(x @ weights + bias)
    probabilities = scores / scores.sum(1, keepdims=True)
    gradient = x.T @ (probabilities - np.eye(3)[labels]) + 5.0 * weights
    assert np.abs(gradient).max() < 0.02 * np.abs(5.0 * weights).max()
    predicted = model.predict(batch_of(images, cut)).softmax(-1).numpy()
    assert (
        np.abs(predicted - probabilities).max() < 1e-5
        and (probabilities.argmax(1) == labels).mean() > 0.8
    )


def test_statistics_are_those_of_numpy_and_invariant_to_rotations():
    one = cloud(8, 15)
    tokenizer = Points.train([one, cloud(9, 4)])
    config = StatisticsConfig(task="label", n_outputs=2, max_len=32, **tokenizer.model_config)
    model = PointCloudLogistic(tokenizer.vocab_size, config)
    features = model.features(alone(tokenizer, one))[0].numpy()
    points = one.points - one.points.mean(0)
    points = points / np.linalg.norm(points, axis=1).max()
    np.testing.assert_allclose(
        features[:3] ** 2, np.linalg.eigvalsh(np.cov(points.T, ddof=0)), atol=1e-5
    )
    radii = np.linalg.norm(points, axis=1)
    np.testing.assert_allclose(features[3:5], [radii.mean(), radii.std()], atol=1e-5)
    assert features[-1] == 15
    rotated = PointCloud(
        one.points @ random_rotation(np.random.default_rng(1)).astype(np.float32).T, one.features
    )
    again = model.features(alone(tokenizer, rotated))[0].numpy()
    np.testing.assert_allclose(again, features, atol=1e-4)
