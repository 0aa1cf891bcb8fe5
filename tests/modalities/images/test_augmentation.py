"""Images that training changes: by how much, where, and the same after a resume."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.embeddings import Inputs, to_image
from regard.modalities.images import ImageAugmentConfig
from regard.modalities.images.augmentation import RandomImageTransform
from regard.recipe import build
from regard.tokenizers import Patches


@pytest.fixture
def source():
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (8, 12, 1), dtype=np.uint8) for _ in range(5)]
    tokens, _ = Patches.train(images, patch=4).encode_batch(images)
    ids = torch.from_numpy(tokens).view(5, 7, -1)
    return Inputs(ids, torch.ones(5, 7, dtype=torch.long))


def changed(source, grid=(2, 3), **config):
    torch.manual_seed(3)
    transform = RandomImageTransform(ImageAugmentConfig(**config), 4, grid).train()
    return transform(source.ids, source.segments)[0]


def pixels(ids, source):
    return to_image(Inputs(ids, source.segments), 2, 3, 4)[0]


def test_nothing_is_changed_where_nothing_is_asked_or_nobody_trains(source):
    transform = RandomImageTransform(ImageAugmentConfig(shift=0.2), 4, (2, 3)).eval()
    assert transform(source.ids, source.segments)[0] is source.ids
    assert changed(source) is source.ids


def test_an_affine_map_by_nothing_is_the_identity(source):
    found = changed(source, rotate=1e-9)
    assert torch.allclose(found[..., 2:], source.ids[..., 2:].float(), atol=1e-2)
    assert torch.equal(found[..., :2].long(), source.ids[..., :2].long())


def test_mirrored_images_are_mirrored_and_the_rest_left(source):
    whole, found = pixels(source.ids, source), pixels(changed(source, flip=True), source)
    kept = [torch.allclose(a, b, atol=1e-2) for a, b in zip(whole, found, strict=True)]
    turned = [torch.allclose(a.flip(-1), b, atol=1e-2) for a, b in zip(whole, found, strict=True)]
    assert all(a != b for a, b in zip(kept, turned, strict=True)) and any(turned) and any(kept)


def test_shifts_are_those_of_grid_sample_with_the_border_repeated(source):
    """The same draws, and torch's affine_grid as the oracle."""
    found = pixels(changed(source, shift=0.25), source)
    torch.manual_seed(3)
    drawn = torch.rand(5, 5, 1, 1)
    down, right = ((2 * drawn[i, :, 0, 0] - 1) * 0.25 for i in (2, 3))
    theta = torch.eye(2, 3).repeat(5, 1, 1)
    theta[:, 0, 2], theta[:, 1, 2] = 2 * right, 2 * down
    whole = pixels(source.ids, source)
    grid = F.affine_grid(theta, list(whole.shape), align_corners=False)
    wanted = F.grid_sample(whole, grid, padding_mode="border", align_corners=False)
    assert torch.allclose(found, wanted, atol=1e-2)


def test_colors_change_by_a_line_for_every_channel():
    """As found by least squares on the pixels that are neither black nor white."""
    random = np.random.default_rng(1)
    images = [random.integers(90, 160, (8, 12, 3), dtype=np.uint8) for _ in range(40)]
    tokens, _ = Patches.train(images, patch=4).encode_batch(images)
    source = Inputs(torch.from_numpy(tokens).view(40, 7, -1), torch.ones(40, 7, dtype=torch.long))
    whole, found = (
        pixels(ids, source).double() for ids in (source.ids, changed(source, color_jitter=0.3))
    )
    lines = []
    for x, y in zip(whole.flatten(0, 1), found.flatten(0, 1), strict=True):
        slope, offset = np.polyfit(x.flatten(), y.flatten(), 1)
        assert np.allclose(slope * x + offset, y, atol=1e-3)
        lines.append((slope, float((y - x).mean())))
    slopes, brighter = np.array(lines).T
    assert 1 / 1.3 <= slopes.min() < 0.85 and 1.15 < slopes.max() <= 1.3
    assert -0.15 * 255 <= brighter.min() < -25 and 25 < brighter.max() <= 0.15 * 255
    assert len(np.unique(slopes.round(6))) == 120  # of every channel of every image


def test_a_covered_square_has_the_mean_and_all_else_stays(source):
    whole, found = pixels(source.ids, source), pixels(changed(source, cutout=0.5), source)
    same = (whole - found).abs() < 1e-3
    mean = whole.mean((2, 3), keepdim=True).expand_as(whole)
    assert torch.allclose(found[~same], mean[~same], atol=1e-3)
    assert 0.02 < (~same).float().mean() < 0.3


def test_the_same_seed_changes_alike_whether_the_grid_is_known_or_not(source):
    known, found = (changed(source, g, shift=0.1, rotate=20, scale=0.2) for g in ((2, 3), None))
    assert torch.equal(known, found)
    assert not torch.equal(known, source.ids.float())


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"shift": 1.0}, "shift must be at least 0 and below 1, got 1"),
        ({"cutout": -0.1}, "cutout must be at least 0 and below 1"),
        ({"rotate": -5.0}, "rotate must be at least 0, got -5"),
        ({"zoom": 0.1}, "unknown key 'augment.zoom'"),
    ],
)
def test_settings_out_of_range_are_refused(table, message):
    recipe = {"task": {"name": "label"}, "input": {"name": "images"}, "augment": table}
    with pytest.raises(UsageError, match=message):
        build(recipe)
    assert build({**recipe, "augment": {"shift": 0.2}}).augment == ImageAugmentConfig(shift=0.2)
