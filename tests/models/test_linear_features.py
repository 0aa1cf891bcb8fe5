"""Logistic regression on pixels and on statistics of point clouds, against NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from point_clouds import alone, cloud

from regard.bundled.shapes import random_rotation
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.models.linear_features import (
    PixelConfig,
    PixelLogistic,
    PointCloudLogistic,
    StatisticsConfig,
)
from regard.tokenizers import Patches, Points
from regard.tokenizers.points import PointCloud


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
