"""What `regard data` reports on images: sizes, colors, copies, labels or captions."""

import json

import numpy as np
import pytest

from regard.data import Roles
from regard.data.sources import DataSource
from regard.data.targets import OUTPUT_KINDS
from regard.modalities.images.files import inspect_images
from regard.recipe import DataRecipe

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 8, 6), dtype=np.uint8)


@pytest.fixture
def labelled(tmp_path):
    def labelled(images, labels, **data):
        np.savez(tmp_path / "x.npz", images=images, labels=labels)
        recipe = DataRecipe(train=(str(tmp_path / "x.npz"),), **data)
        return DataSource(recipe, Roles(input=True, labels=True), kind=OUTPUT_KINDS["label"])

    return labelled


def test_sizes_mean_and_labels_are_those_of_the_images(labelled):
    sources = labelled(IMAGES, np.arange(12) % 3, valid_fraction=0, test_fraction=0)
    report = inspect_images(sources, "because")
    assert (report.records, report.sizes, report.channels) == (12, {"8 × 6": 12}, 1)
    assert report.mean == pytest.approx([IMAGES.mean() / 255], abs=1e-4)
    assert report.deviation == pytest.approx([IMAGES.std() / 255], abs=1e-4)
    rows = dict(report.rows())
    assert rows["images"] == "12" and rows["size"] == "8 × 6 (12) pixels, 1 channels"
    assert rows["mean"].endswith("(1 is white)") and "copies" not in rows
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document["task"] == "label" and document["records"] == 12
    (classes,) = document["labels"]["classes"].values()
    assert {name: counts["train"] for name, counts in classes.items()} == {"0": 4, "1": 4, "2": 4}


def test_copies_and_damage_are_counted(labelled):
    twice = np.concatenate([IMAGES, IMAGES[:2]]) / np.float64(255)
    twice[5] = np.nan
    sources = labelled(twice, np.arange(14) % 2, valid_fraction=0, test_fraction=0)
    report = inspect_images(sources, "")
    rows = dict(report.rows())
    assert (report.records, report.copies, report.skipped) == (13, 2, 1)
    assert rows["copies"] == "2 in training"
    assert rows["damaged"].startswith("1; first: ") and "[5]" in rows["damaged"]


def test_captions_are_reported_instead_of_labels(tmp_path):
    captions = np.array([f"image {i}" for i in range(12)])
    np.savez(tmp_path / "c.npz", images=IMAGES, captions=captions)
    recipe = DataRecipe(train=(str(tmp_path / "c.npz"),), target="captions")
    report = inspect_images(DataSource(recipe, Roles(input=True, output=True)), "")
    assert report.labels is None and report.captions.different == 12
    assert report.to_json()["task"] == "target"
