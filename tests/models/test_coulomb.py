"""Kernel ridge regression on Coulomb matrices against the paper's formula."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
from point_clouds import alone, cloud, molecules

from regard.models.coulomb import Coulomb, CoulombConfig
from regard.tokenizers import Points


def test_kernel_ridge_has_the_coulomb_matrices_of_the_paper():
    clouds, tokenizer, shard, kinds = molecules(60)
    config = dataclasses.replace(
        CoulombConfig(task="value", max_len=32), n_outputs=1, **tokenizer.model_config
    )
    model = Coulomb(tokenizer.vocab_size, config)
    one = clouds[3]
    features = model.featurize(alone(tokenizer, one), 9)[0].numpy()
    z, n = one.atoms.astype(float), len(one)
    matrix = np.zeros((9, 9))
    for i in range(n):
        for j in range(n):
            gap = np.linalg.norm(one.points[i].astype(float) - one.points[j])
            matrix[i, j] = 0.5 * z[i] ** 2.4 if i == j else z[i] * z[j] / gap
    order = np.argsort(-np.linalg.norm(matrix, axis=1), kind="stable")
    expected = matrix[order][:, order]
    np.testing.assert_allclose(features, expected[np.tril_indices(9)], rtol=1e-4)
    targets = (kinds @ np.array([[1.0], [5.0], [9.0]])).astype(np.float32)
    model.fit(dataclasses.replace(shard, targets=targets), None, lambda line: None)
    predictions = [float(model.predict(alone(tokenizer, each))) for each in clouds]
    np.testing.assert_allclose(predictions, targets[:, 0], atol=0.5)  # of the training molecules


def test_comparisons_leave_coulomb_out_if_points_have_no_elements():
    _, tokenizer, _, _ = molecules(4)
    assert Coulomb.unsuitable(SimpleNamespace(tokenizer=tokenizer)) == ""
    points = Points.train([cloud(1, 5), cloud(2, 6)])
    assert Coulomb.unsuitable(SimpleNamespace(tokenizer=points)) == "points have no elements"
