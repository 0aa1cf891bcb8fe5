"""Files of point clouds: read as they are written, damage is named."""

import gzip
import json

import numpy as np
import pytest

from regard.data import Roles
from regard.data.labelled import ColumnSelection
from regard.data.sources import DataSource
from regard.data.targets import OUTPUT_KINDS
from regard.errors import UsageError, UserError
from regard.modalities.point_clouds.files import (
    PointCloudFiles,
    form_of,
    inspect_point_clouds,
    read_frames,
    unlabelled_point_clouds,
)
from regard.recipe import DataRecipe
from regard.registry import MODALITIES
from regard.tokenizers import Points

WATER = "3\nwater energy=-76.4 name='a b'\nO 0 0 0\nH 0.96 0 0\nh -0.24 0.93 0\n"
CARBON = "2\nco energy=-113.3\n6 0 0 0\n8 0 0 1.13\n"
CUBE = """OFF
8 6 0
0 0 0
1 0 0
1 1 0
0 1 0
0 0 1
1 0 1
1 1 1
0 1 1
4 0 1 2 3
4 4 5 6 7
4 0 1 5 4
4 2 3 7 6
4 0 3 7 4
4 1 2 6 5 255 0 0
"""


def records(paths, *targets, labels=None, strict=False, mesh_points=1024, input=""):
    columns = ColumnSelection(inputs=(input,), targets=targets, labels=labels)
    source = PointCloudFiles(paths, columns, strict=strict, mesh_points=mesh_points)
    chunks = list(source.examples())
    clouds = [cloud for chunk in chunks for cloud in chunk.texts]
    return source, clouds, [cells for chunk in chunks for cells in chunk.targets]


def test_molecules_with_targets_in_comments_and_tables(tmp_path):
    path = tmp_path / "two.xyz.gz"
    path.write_bytes(gzip.compress((WATER + "\n" + CARBON).encode()))
    assert form_of([path]) == "points"
    _, clouds, cells = records([path], "energy")
    assert cells == [("-76.4",), ("-113.3",)]
    assert [one.atoms.tolist() for one in clouds] == [[8, 1, 1], [6, 8]]
    np.testing.assert_allclose(clouds[1].points, [[0, 0, 0], [0, 0, 1.13]], rtol=1e-6)
    (tmp_path / "by_name.txt").write_text("# energies\nco 2.5 7\nwater 1.5 8\n")
    source, _, cells = records([path], str(tmp_path / "by_name.txt"))
    assert cells == [("1.5",), ("2.5",)] and "by name" in source.why
    _, _, cells = records([path], "3", "2", labels=tmp_path / "by_name.txt")
    assert cells == [("8", "1.5"), ("7", "2.5")]
    (tmp_path / "named.csv").write_text("id,e\nwater,4\nco,5\n")
    _, _, cells = records([path], "e", labels=tmp_path / "named.csv")
    assert cells == [("4",), ("5",)]
    (tmp_path / "in_order.txt").write_text("10\n20\n")
    source, _, cells = records([path], str(tmp_path / "in_order.txt"))
    assert cells == [("10",), ("20",)] and "in order" in source.why


def test_damaged_molecules_are_named_and_skipped_or_refused(tmp_path):
    path = tmp_path / "bad.xyz"
    path.write_text(WATER + "1\nenergy=1\nXx 0 0 0\n" + CARBON + "5\nenergy=2\nH 0 0 0\n")
    source, clouds, _ = records([path], "energy")
    assert len(clouds) == 2 and source.skipped == 2
    assert "bad.xyz[1]: line 8: must be an element and three coordinates" in source.problems[0]
    assert "line 13: 5 atoms, but the file ends" in source.problems[1]
    with pytest.raises(UserError, match="line 8"):
        records([path], "energy", strict=True)
    with pytest.raises(UserError, match="has no value of 'mass'; it has energy"):
        records([path], "mass", strict=True)
    with pytest.raises(UsageError, match="where are the labels"):
        records([path])
    with pytest.raises(UserError, match=r"bad.xyz\[1\]"):
        list(unlabelled_point_clouds([path], 0))


def test_arrays_of_one_length_end_to_end_and_padded(tmp_path):
    random = np.random.default_rng(0)
    points = random.normal(size=(4, 5, 3)).astype(np.float32)
    points[1, 3:] = np.nan
    np.savez(tmp_path / "a.npz", points=points, kind=np.array(list("xyxy")))
    assert form_of([tmp_path / "a.npz"]) == "points"
    _, padded, cells = records([tmp_path / "a.npz"])
    assert [len(one) for one in padded] == [5, 3, 5, 5] and cells[1] == ("y",)
    real = ~np.isnan(points).all(-1)
    lengths = real.sum(1)
    atoms = random.integers(1, 9, lengths.sum())
    np.savez(
        tmp_path / "b.npz", points=points[real], lengths=lengths, atoms=atoms,
        features=random.normal(size=(lengths.sum(), 2)), energy=np.arange(4) / 2, other=np.ones(4),
    )  # fmt: skip
    with pytest.raises(UsageError, match="which array is the targets"):
        records([tmp_path / "b.npz"])
    _, ragged, cells = records([tmp_path / "b.npz"], "energy")
    assert cells == [("0",), ("0.5",), ("1",), ("1.5",)]
    for one, two in zip(padded, ragged, strict=True):
        np.testing.assert_array_equal(one.points, two.points)
    assert ragged[0].features.shape == (5, 2) and ragged[2].atoms.tolist() == atoms[8:13].tolist()
    _, _, cells = records([tmp_path / "b.npz"], "energy", "other")
    assert cells[1] == ("0.5", "1")
    np.savez(tmp_path / "c.npz", points=points, part=random.integers(0, 3, (4, 5)))
    _, clouds, cells = records([tmp_path / "c.npz"], "part")
    assert [len(row[0]) for row in cells] == [len(one) for one in clouds] == [5, 3, 5, 5]
    np.savez(tmp_path / "d.npz", points=points[real], lengths=lengths + 1, kind=np.arange(4))
    with pytest.raises(UserError, match="lengths must be positive and sum"):
        records([tmp_path / "d.npz"])
    np.save(tmp_path / "e.npy", points)
    np.save(tmp_path / "f.npy", np.arange(4))
    assert records([tmp_path / "e.npy"], str(tmp_path / "f.npy"))[2][3] == ("3",)


def test_a_point_cloud_is_named_by_its_index_and_has_no_caption(tmp_path):
    (tmp_path / "two.xyz").write_text(WATER + "\n" + CARBON)
    both = records([tmp_path / "two.xyz"], "energy")[1]
    tokenizer = Points.train(iter(both))
    for name, number in (("two.xyz", 0), ("two.xyz[1]", 1)):
        where, cloud = MODALITIES["point-clouds"]().open(name, tokenizer, tmp_path)
        assert where == str(tmp_path / f"two.xyz[{number}]")
        assert cloud.atoms.tolist() == both[number].atoms.tolist()
    with pytest.raises(UserError, match=r"two.xyz: has no point cloud 2"):
        MODALITIES["point-clouds"]().open("two.xyz[2]", tokenizer, tmp_path)
    table = tmp_path / "captions.tsv"
    table.write_text("file\ttext\ntwo.xyz\tan oxide\n")
    captions = DataRecipe(train=(str(table),), input="file", target="text")
    for recipe in (captions, DataRecipe(train=(str(tmp_path / "two.xyz"),), target="energy")):
        with pytest.raises(UsageError, match="labels or values, not captions"):
            DataSource(recipe, Roles(input=True, output=True))


def test_images_in_arrays_are_no_points(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((4, 8, 8), np.uint8), kind=np.arange(4))
    np.savez(tmp_path / "b.npz", images=np.zeros((4, 8, 8, 3), np.float32), kind=np.arange(4))
    assert form_of([tmp_path / "a.npz"]) == form_of([tmp_path / "b.npz"]) == "images"
    (tmp_path / "c.txt").write_text("no")
    assert form_of([tmp_path / "c.txt"]) == ""


def test_meshes_are_their_vertices_or_points_of_their_surface(tmp_path):
    for name in ("cube", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.off").write_text(
            CUBE if name == "cube" else CUBE.replace("OFF\n", "OFF")
        )
    _, clouds, cells = records([tmp_path], mesh_points=0)
    assert cells == [("cube",), ("other",)] and len(clouds[0]) == 8
    np.testing.assert_array_equal(clouds[0].points, clouds[1].points)
    _, clouds, _ = records([tmp_path], mesh_points=600)
    points = clouds[0].points
    assert len(points) == 600
    gap = np.minimum(np.abs(points), np.abs(points - 1)).min(1)
    assert gap.max() < 1e-6  # all on a face
    share = (np.abs(points) < 1e-6).mean(0) + (np.abs(points - 1) < 1e-6).mean(0)
    np.testing.assert_allclose(share, 1 / 3, atol=0.07)  # faces by their area
    (tmp_path / "cube" / "2.off").write_text(CUBE.replace("4 0 1 2 3", "4 0 1 2 9"))
    (tmp_path / "cube" / "3.off").write_text("FOO\n")
    source, clouds, _ = records([tmp_path])
    assert len(clouds) == 2 and "that is not one of the 8" in source.problems[0]
    assert "is no OFF file" in source.problems[1]


@pytest.mark.parametrize("kind", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_ply_of_every_format_gives_the_same_points(tmp_path, kind):
    random = np.random.default_rng(0)
    points, red = random.normal(size=(6, 3)), np.arange(6) * 50
    part = np.array([0, 1, 2, 0, 1, 11])
    header = (
        f"ply\nformat {kind} 1.0\ncomment made up\nelement vertex 6\nproperty float x\n"
        "property float y\nproperty float z\nproperty float nx\nproperty uchar red\n"
        "property int part\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n"
    )
    if kind == "ascii":
        rows = [f"{x} {y} {z} 0 {r} {p}" for (x, y, z), r, p in zip(points, red, part, strict=True)]
        body = ("\n".join([*rows, "3 0 1 2"]) + "\n").encode()
    else:
        order = "<" if kind.endswith("little_endian") else ">"
        fields = [("p", order + "f4", 4), ("red", "u1"), ("part", order + "i4")]
        table = np.zeros(6, fields)
        table["p"][:, :3], table["red"], table["part"] = points, red, part
        face = b"\3" + np.array([0, 1, 2], order + "i4").tobytes()
        body = table.tobytes() + face
    path = tmp_path / "one.ply"
    path.write_bytes(header.encode() + body)
    _, clouds, cells = records([path], "part")
    assert cells == [("01201b",)]
    np.testing.assert_allclose(clouds[0].points, points, rtol=1e-5)
    np.testing.assert_allclose(clouds[0].features[:, 0], red / 255, rtol=1e-5)
    path.write_bytes((header.encode() + body)[: -len(body) // 2])
    with pytest.raises(UserError, match=r"one\.ply"):
        records([path], "part", strict=True)


def test_bare_lines_tables_of_paths_and_copies_in_another_order(tmp_path):
    points = np.random.default_rng(0).normal(size=(5, 3))
    for name, rows in (("a", points), ("b", points[::-1]), ("c", points + 1)):
        np.savetxt(tmp_path / f"{name}.xyz", rows)
    (tmp_path / "table.csv").write_text("file,kind\na.xyz,1\nb.xyz,2\nc.xyz,3\nmissing.xyz,4\n")
    columns = ColumnSelection(inputs=("file",), targets=("kind",))
    source = PointCloudFiles([tmp_path / "table.csv"], columns)
    (chunk,) = source.examples()
    assert [cells[0] for cells in chunk.targets] == ["1", "2", "3"] and source.skipped == 1
    assert "table.csv:5" in source.problems[0] and "missing.xyz" in source.problems[0]
    keys = chunk.keys()
    assert keys[0] == keys[1] != keys[2]
    (tmp_path / "a.xyz").write_text("1 2 3\n4 5\n")
    with pytest.raises(UserError, match="line 2: must be 3 numbers"):
        list(unlabelled_point_clouds([tmp_path / "a.xyz"], 0))


def test_arrays_that_do_not_fit_each_other_are_named(tmp_path):
    points, y = np.zeros((4, 2, 3)), np.arange(4)
    invalid = {
        "one": ({"points": points, "y": y, "z": y[:3]}, "4 point clouds, z 3 targets"),
        "none": ({"points": np.float64(1), "y": y}, "points must be an array of point clouds"),
        "texts": (
            {"points": points[:, 0], "lengths": np.array(list("1111")), "y": y},
            "lengths must be positive",
        ),
        "huge": (
            {"points": points[:, 0], "lengths": np.array([2**63 - 1, 6, 1, 1]), "y": y},
            "lengths must be positive",
        ),
        "atoms": ({"points": points, "atoms": np.full((4, 2), "C"), "y": y}, "atoms must be numb"),
    }
    for name, (arrays, message) in invalid.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        columns = ColumnSelection(targets=("y", "z") if "z" in arrays else ("y",))
        with pytest.raises(UserError, match=message):
            list(PointCloudFiles([tmp_path / f"{name}.npz"], columns).examples())


def test_numbers_too_large_for_their_type_are_damage(tmp_path):
    np.savez(tmp_path / "x.npz", points=np.full((2, 2, 3), [[[1.0]], [[1e300]]]), y=[0, 1])
    source = PointCloudFiles([tmp_path / "x.npz"], ColumnSelection(targets=("y",)))
    (chunk,) = source.examples()
    assert len(chunk.texts) == 1 and "must be finite numbers" in source.problems[0]


def test_a_ply_face_of_infinity_is_damage(tmp_path):
    text = (
        "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\n"
        "property float z\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n"
        "0 0 0\n1 0 0\n0 1 0\n3 0 1 inf\n"
    )
    (tmp_path / "one.ply").write_text(text)
    assert list(read_frames(tmp_path / "one.ply", 0)) == ["face 0 cannot be read"]


def test_a_ply_file_without_the_name_of_its_format_is_damage(tmp_path):
    text = "ply\nformat \nelement vertex 1\nproperty float x\nend_header\n0\n"
    (tmp_path / "one.ply").write_text(text)
    (problem,) = read_frames(tmp_path / "one.ply", 0)
    assert problem.startswith("format must be one of ascii")


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
