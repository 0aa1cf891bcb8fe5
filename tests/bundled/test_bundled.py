"""Synthetic shapes: reproducible, and on the surfaces they are named after."""

import numpy as np

from regard.bundled import SHAPES, random_rotation, save_shapes


def test_points_lie_on_their_surfaces():
    random = np.random.default_rng(0)
    sphere = SHAPES["sphere"](500, random)
    np.testing.assert_allclose(np.linalg.norm(sphere, axis=1), 1)
    box = SHAPES["box"](500, random)
    np.testing.assert_allclose(np.abs(box).max(1), 1)
    torus = SHAPES["torus"](500, np.random.default_rng(1))
    radii = np.hypot(np.hypot(torus[:, 0], torus[:, 1]) - 1, torus[:, 2])
    assert np.ptp(radii) < 1e-9 and len(torus) == 500
    for name in ("cylinder", "cone"):
        points = SHAPES[name](4000, random)
        x, y, z = points[np.abs(points[:, 2]) < 0.99].T
        radii = np.hypot(x, y) / ((1 - z) / 2 if name == "cone" else 1)
        assert np.ptp(radii) < 1e-6, name


def test_a_random_rotation_is_a_rotation():
    q = random_rotation(np.random.default_rng(0))
    np.testing.assert_allclose(q @ q.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(q) > 0


def test_the_same_seed_gives_the_same_file(tmp_path):
    one, two = (np.load(save_shapes(tmp_path / f"{n}.npz", 24)) for n in "ab")
    assert all(np.array_equal(one[key], two[key]) for key in one.files)
    assert sorted(set(one["shape"].tolist())) == sorted(SHAPES) and len(one["lengths"]) == 24
