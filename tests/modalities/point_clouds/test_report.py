"""What `regard data` reports on point clouds: points, dimensions, elements, labels."""

import json

import numpy as np
import pytest

from regard.data.roles import Roles
from regard.data.sources import DataSource
from regard.data.targets import OUTPUT_KINDS
from regard.modalities.point_clouds.report import inspect_point_clouds
from regard.recipe import DataRecipe

LENGTHS = [3, 5, 4, 5]


@pytest.fixture
def report(tmp_path):
    def report(task="value", **arrays):
        points = np.random.default_rng(0).normal(size=(sum(LENGTHS), 3)).astype(np.float32)
        np.savez(tmp_path / "x.npz", points=points, lengths=LENGTHS, **arrays)
        target = next(name for name in arrays if name in ("energy", "kind"))
        files = (str(tmp_path / "x.npz"),)
        recipe = DataRecipe(train=files, target=target, valid_fraction=0, test_fraction=0)
        roles = Roles(input=True, labels=True)
        return inspect_point_clouds(DataSource(recipe, roles, kind=OUTPUT_KINDS[task]), "")

    return report


def test_points_elements_and_values_are_counted(report):
    found = report(energy=[1.0, 2.0, 3.0, 4.5], atoms=np.array([1, 6, 8] * 5 + [1, 6]))
    assert (found.records, found.points, found.dimensions) == (4, (3, 5, 5), 3)
    assert found.elements == ["H", "C", "O"] and found.diameter > 0
    rows = dict(found.rows())
    assert rows["points"] == "3 to 5, half have 5 or fewer" and rows["elements"] == "H C O"
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["task"] == "value" and document["points"] == [3, 5, 5]


def test_features_of_points_are_counted_and_there_may_be_no_elements(report):
    features = np.random.default_rng(1).normal(size=(sum(LENGTHS), 2))
    found = report("label", kind=np.array(list("abab")), features=features)
    rows = dict(found.rows())
    assert rows["dimensions"] == "3, and 2 features of a point" and "elements" not in rows
    assert found.labels.task == "label"
