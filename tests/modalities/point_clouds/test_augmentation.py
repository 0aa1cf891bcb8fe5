"""Random changes of point clouds: rotations are rotations, and nothing else changes."""

import numpy as np
import pytest
import torch

from regard.errors import UsageError
from regard.modalities.point_clouds import PointAugmentConfig
from regard.modalities.point_clouds.augmentation import RandomPointTransform, rotations
from regard.models.point_transformer import PointSettings
from regard.recipe import build
from regard.tokenizers import Points
from regard.tokenizers.points import PointCloud


def batch(count=6, d=3):
    random = np.random.default_rng(0)
    clouds = [
        PointCloud(
            random.normal(size=(15, d)).astype(np.float32), random.normal(size=(15, 2)).astype("f4")
        )
        for _ in range(count)
    ]
    tokenizer = Points.train(clouds, samples=5, neighbours=4)
    ids = np.stack([tokenizer.encode_batch([one])[0] for one in clouds])
    config = PointSettings(**tokenizer.model_config)
    return torch.from_numpy(ids), torch.ones(ids.shape[:2], dtype=torch.long), config


def changed(table, ids, segments, points, *, aligned=False, training=True):
    torch.manual_seed(3)
    config = PointAugmentConfig(**table)
    transform = RandomPointTransform(config, points, aligned=aligned).train(training)
    return transform(ids, segments)


def parts(ids, d=3):
    near = ids[:, 1:, d:].unflatten(-1, (4, -1))
    return ids[:, 1:, :d], near[..., 0], near[..., 1 : 1 + d], near[..., 1 + d :]


def test_nothing_is_changed_where_nothing_is_asked_or_nobody_trains():
    ids, segments, config = batch()
    assert changed({}, ids, segments, config)[0] is ids
    assert changed({"rotate": 180.0, "drop": 0.5}, ids, segments, config, training=False)[0] is ids


def test_a_rotation_keeps_all_distances_and_turns_centers_and_neighbors_alike():
    for d, degrees in ((3, 180.0), (3, 20.0), (2, 50.0)):
        ids, segments, config = batch(d=d)
        found, left = changed({"rotate": degrees}, ids, segments, config)
        assert left is segments and not found[:, 0].any()
        center, there, away, told = parts(ids, d)
        new, again, turned, same = parts(found, d)
        assert (again == there).all() and (same == told).all()
        both = [(c[:, :, None] + a).flatten(1, 2) for c, a in ((center, away), (new, turned))]
        gaps = [torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") for x in both]
        torch.testing.assert_close(*gaps, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(both[0], both[1], atol=1e-3)
        solved = torch.linalg.lstsq(both[0], both[1]).solution  # (B, d, d)
        assert (torch.linalg.det(solved) > 0.99).all()  # no mirror
        if d == 3:
            angle = torch.rad2deg(torch.acos((solved.diagonal(dim1=1, dim2=2).sum(1) - 1) / 2))
            assert (angle <= degrees + 0.1).all()


def test_any_rotation_is_as_probable_as_another():
    torch.manual_seed(0)
    config = PointAugmentConfig(rotate=180.0)
    transform = RandomPointTransform(config, PointSettings(), aligned=False)
    turns = rotations(transform.quaternions(20_000, torch.device("cpu")))
    torch.testing.assert_close(turns @ turns.mT, torch.eye(3).expand_as(turns), atol=1e-5, rtol=0)
    assert turns.mean(0).abs().max() < 0.02  # of the uniform distribution, every entry has mean 0
    torch.testing.assert_close(turns.square().mean(0), torch.full((3, 3), 1 / 3), atol=0.02, rtol=0)


def test_noise_scale_and_mirrors_do_what_they_say():
    ids, segments, config = batch(count=300)
    center, _, away, _ = parts(ids)
    found, _ = changed({"jitter": 0.1}, ids, segments, config)
    new, _, moved, _ = parts(found)
    assert not moved[:, :, 0].any()  # a center stays its own neighbor
    assert abs(float((new - center).std()) - 0.1 * config.max_distance / 2) < 0.005
    ratio = parts(changed({"scale": 0.2}, ids, segments, config)[0])[0].norm(dim=-1) / center.norm(
        dim=-1
    )
    assert 1 / 1.2 - 1e-4 <= ratio.min() < 0.9 and 1.1 < ratio.max() <= 1.2 + 1e-4
    mirrored = parts(changed({"flip": True}, ids, segments, config)[0])[2]
    sides = (mirrored[:, :, 1:, 0] == -away[:, :, 1:, 0]).flatten(1).all(1)
    assert 0.3 < sides.float().mean() < 0.7 and (mirrored[..., 1:] == away[..., 1:]).all()


def test_points_are_left_out_but_never_all_and_none_that_is_asked_about():
    ids, segments, config = batch(count=200)
    found, left = changed({"drop": 0.6}, ids, segments, config)
    there = parts(found)[1]
    assert (left[:, :2] == 1).all() and (there[..., 0] == 1).all()
    for share in (1 - left[:, 2:].float().mean(), 1 - there[..., 1:].mean()):
        assert abs(float(share) - 0.3) < 0.05  # on average half of the most
    assert changed({"drop": 0.6}, ids, segments, config, aligned=True)[0] is ids


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"drop": 1.0}, "drop must be at least 0 and below 1"),
        ({"jitter": -0.1}, "jitter must be at least 0"),
        ({"color_jitter": 0.1}, "unknown key 'augment.color_jitter'"),
    ],
)
def test_settings_out_of_range_are_refused(table, message):
    recipe = {"task": {"name": "label"}, "input": {"name": "point-clouds"}, "augment": table}
    with pytest.raises(UsageError, match=message):
        build(recipe)
    assert build({**recipe, "augment": {"drop": 0.2}}).augment == PointAugmentConfig(drop=0.2)
