"""Clouds as tokens: against brute force, whatever the order of the points."""

import json

import numpy as np
import pytest

from regard.errors import UserError
from regard.tokenizers import Patches, Points, load
from regard.tokenizers.points import PointCloud, farthest_points, nearest_points, normalize_points


def cloud(seed, count, *, features=0, atoms=False, d=3):
    random = np.random.default_rng(seed)
    points = random.normal(size=(count, d)).astype(np.float32) + 5
    told = random.normal(size=(count, features)).astype(np.float32)
    kinds = random.choice([1, 6, 8], count).astype(np.uint8)
    return PointCloud(points, told, kinds) if atoms else PointCloud(points, told)


def shuffled(one, seed=9):
    order = np.random.default_rng(seed).permutation(len(one))
    atoms = one.atoms[order] if len(one.atoms) else one.atoms
    return PointCloud(one.points[order], one.features[order], atoms), order


def test_centres_are_chosen_as_a_loop_over_all_would_choose_them():
    clouds = [cloud(1, 30), cloud(2, 17), cloud(3, 5)]
    points, there = np.zeros((3, 30, 3)), np.zeros((3, 30), bool)
    for row, one in enumerate(clouds):
        points[row, : len(one)], there[row, : len(one)] = one.points, True
    points = normalize_points(points, there, "unit")
    found = farthest_points(points, there, 6)
    for row, one in enumerate(clouds):
        own = points[row, : len(one)]
        assert np.linalg.norm(own, axis=1).max() == pytest.approx(1)
        np.testing.assert_allclose(own.mean(0), 0, atol=1e-12)
        chosen = [int(np.linalg.norm(own, axis=1).argmax())]
        while len(chosen) < min(6, len(one)):
            gaps = [min(np.linalg.norm(p - own[i]) for i in chosen) for p in own]
            chosen.append(int(np.argmax(gaps)))
        assert found[row, : len(chosen)].tolist() == chosen


def test_neighbours_are_the_nearest_and_those_that_are_missing_are_not_there():
    points, there = np.random.default_rng(0).normal(size=(2, 9, 3)), np.ones((2, 9), bool)
    there[1, 3:] = False
    centres = np.array([[4, 2], [0, 2]])
    near, inside = nearest_points(points, there, centres, 5)
    for row, count in ((0, 9), (1, 3)):
        for column, centre in enumerate(centres[row]):
            gaps = np.linalg.norm(points[row, :count] - points[row, centre], axis=1)
            expected = np.argsort(gaps)[:5]
            assert near[row, column][inside[row, column]].tolist() == expected.tolist()
    assert inside[1].sum(1).tolist() == [3, 3]


def test_the_order_of_points_never_matters_even_where_distances_are_equal():
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), -1).reshape(-1, 3).astype(np.float32)
    for one in (cloud(4, 40, features=2), PointCloud(grid, np.zeros((64, 0), np.float32))):
        tokenizer = Points.train([one], samples=9, neighbours=6)
        first = tokenizer.encode_batch([one])[0]
        for seed in range(5):
            again = tokenizer.encode_batch([shuffled(one, seed)[0]])[0]
            assert np.array_equal(first, again)


def test_where_every_point_is_a_token_they_stay_in_order_and_come_back():
    one = cloud(5, 11, features=1, atoms=True)
    tokenizer = Points.train([one, cloud(6, 7, features=1, atoms=True)], neighbours=3)
    assert tokenizer.scale == "kept" and tokenizer.elements == (1, 6, 8)
    ids, lengths = tokenizer.encode_batch([one])
    assert lengths.tolist() == [12] and not ids[0].any() and ids.dtype == np.float32
    back = tokenizer.decode_cloud(ids)
    np.testing.assert_allclose(back.points, one.points - one.points.mean(0), atol=1e-5)
    np.testing.assert_allclose(back.features, one.features, atol=1e-5)
    assert back.atoms.tolist() == one.atoms.tolist()
    other, order = shuffled(one)
    again = tokenizer.encode_batch([other])[0]
    np.testing.assert_array_equal(again[1:], ids[1:][order])


def test_together_is_alone():
    clouds = [cloud(n, 3 + 7 * n, features=1) for n in range(6)]
    tokenizer = Points.train(clouds, samples=8, neighbours=4)
    together, lengths = tokenizer.encode_batch(clouds)
    alone = [tokenizer.encode_batch([one])[0] for one in clouds]
    assert np.array_equal(together, np.concatenate(alone))
    assert lengths.tolist() == [1 + min(8, len(one)) for one in clouds]


def test_features_are_in_units_of_their_deviation():
    clouds = [cloud(n, 20, features=2) for n in range(8)]
    tokenizer = Points.train(clouds)
    near = tokenizer.groups(tokenizer.encode_batch(clouds)[0])[:, 0]
    told = near[near[:, 0] > 0][:, 4:]
    np.testing.assert_allclose(told.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(told.std(0), 1, atol=1e-4)


def test_two_kinds_of_preprocessor_are_told_apart_and_damage_is_said(tmp_path):
    points = Points.train([cloud(1, 9, features=1)], samples=4, neighbours=3)
    for name, tokenizer in (("a", points), ("b", Patches(4, 8, 8, [0.5], [0.5]))):
        (tmp_path / name).mkdir()
        tokenizer.save(tmp_path / name / tokenizer.file)
        found = load(tmp_path / name / "tokenizer.json")
        assert type(found) is type(tokenizer) and found.raw == tokenizer.raw
    path = tmp_path / "a" / points.file
    told = json.loads(path.read_text())
    for key, value in (("neighbours", 0), ("reach", -1), ("elements", [300]), ("scale", "far")):
        path.write_text(json.dumps(told | {key: value}))
        with pytest.raises(UserError, match="damaged"):
            Points.load(path)
    del told["spread"]
    path.write_text(json.dumps(told))
    with pytest.raises(UserError, match="spread"):
        Points.load(path)


def test_clouds_of_another_kind_are_refused():
    tokenizer = Points.train([cloud(1, 9)])
    for other, why in (
        (cloud(1, 9, d=2), "2 dimensions"),
        (cloud(1, 9, features=1), "1 features"),
        (cloud(1, 9, atoms=True), "elements"),
        (cloud(1, 0), "no points"),
    ):
        with pytest.raises(UserError, match=why):
            tokenizer.encode_batch([other])
    with pytest.raises(UserError, match="cannot be mixed"):
        Points.train([cloud(1, 9), cloud(1, 9, features=1)])
    with pytest.raises(UserError, match="no point cloud"):
        Points.train([])
