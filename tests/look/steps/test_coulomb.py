"""Coulomb matrices and kernel ridge regression as stages, against the paper's formula."""

from __future__ import annotations

import numpy as np
import pytest
from step_models import STEP_MODELS, point_clouds

from regard.look.steps import trace_steps


def test_the_prediction_is_a_sum_over_similar_molecules():
    pipeline = STEP_MODELS["coulomb"]()
    model, trace = pipeline.model, trace_steps(pipeline)
    charges, points = trace.find("Charges").values, trace.find("Coordinates").values
    assert sorted(charges) == sorted(point_clouds(True)[4].atoms.tolist())
    gaps = np.linalg.norm(points[:, None] - points, axis=-1) + np.eye(len(points))
    matrix = charges[:, None] * charges / gaps
    np.fill_diagonal(matrix, charges**2.4 / 2)
    order = np.argsort(-np.linalg.norm(matrix, axis=1))
    rows, columns = np.tril_indices(len(points))
    triangle = matrix[order][:, order][rows, columns]
    found = trace.find("Sorted").values
    np.testing.assert_allclose(found[: len(triangle)], triangle, rtol=1e-5)
    assert not found[len(triangle) :].any()
    distances = np.abs(model.matrices.numpy() - found).sum(1)
    width = model.config.width * model.median_distance.item()
    value = np.exp(-distances / width) @ model.coefficients.numpy()[:, 0] + model.mean.item()
    assert trace.find("Output › Value").values[0] == pytest.approx(value, rel=1e-6)
    name = trace.find("Sorted").columns[0]
    assert name.split(", ")[0] == name.split(", ")[1]  # the diagonal comes first
