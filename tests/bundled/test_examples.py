"""Examples: every one is written, is the same whenever it is made, and is read as it should be."""

from __future__ import annotations

import csv
import hashlib
import shlex

import numpy as np
import pytest

from regard.bundled.examples import EXAMPLES, write_example
from regard.planning import plan_recipe

# The task of each command, by which the files must be recognized without further options.
TASKS = {
    "names": "next",
    "questions": "label",
    "reviews": "label",
    "promoters": "label",
    "proteins": "label",
    "molecules": "value",
    "digits": "label",
    "pictures": "target",
    "shapes": "label",
    "phrases": "target",
    "text": "vectors",
    "series": "forecast",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folders = {name: tmp_path_factory.mktemp(name) for name in EXAMPLES}
    return {name: (folder, write_example(name, folder)) for name, folder in folders.items()}


@pytest.mark.parametrize("name", TASKS)
def test_the_command_of_an_example_is_planned_as_its_text_says(name, written, monkeypatch):
    folder, _ = written[name]
    monkeypatch.chdir(folder)
    words = shlex.split(EXAMPLES[name].command)[2:]
    files = [word for word in words if (folder / word).exists()]
    options = dict(zip(words[len(files) :: 2], words[len(files) + 1 :: 2], strict=True))
    options = {key.removeprefix("--"): value for key, value in options.items()}
    tables = {
        "data": {key: options.pop(key, None) for key in ("input", "target")},
        "train": {"minutes": float(options.pop("minutes"))},
        "model": {"name": options.pop("model", None)},
    }
    recipe, lines = plan_recipe(files, options=options, **tables)
    assert recipe.task.name == TASKS[name] and lines


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_the_same_whenever_it_is_made(name, written, tmp_path):
    folder, paths = written[name]
    assert all(path.parent == folder and path.exists() for path in paths)

    def digest(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    again = write_example(name, tmp_path)
    for one, other in zip(paths, again, strict=True):
        assert one.is_dir() or digest(one) == digest(other)


def test_the_files_of_all_examples_take_less_than_4_megabytes(written):
    sizes = [f.stat().st_size for folder, _ in written.values() for f in folder.rglob("*.*")]
    assert sum(sizes) < 4_000_000


def test_made_up_molecules_are_molecules(written):
    chem = pytest.importorskip("rdkit.Chem")
    lines = (written["molecules"][0] / "molecules.csv").read_text().splitlines()[1:]
    smiles = [line.split(",")[0] for line in lines]
    assert len(smiles) == len(set(smiles)) and all(map(chem.MolFromSmiles, smiles))


def test_promoters_hold_their_boxes_more_often_than_the_background(written):
    folder, _ = written["promoters"]

    def count(name):
        lines = (folder / name).read_text().splitlines()[1::2]
        return sum("TATAA" in line for line in lines)

    assert count("promoters.fa") > 5 * count("background.fa")


def test_reviews_have_the_empty_cells_of_a_real_table(written):
    with open(written["reviews"][0] / "reviews.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1200
    for column, empty in (("stars", "NA"), ("recommended", ""), ("returned", "")):
        assert 10 < sum(row[column] == empty for row in rows) < 300
    known = [row for row in rows if row["recommended"] and row["stars"] != "NA"]
    high = [row["recommended"] == "yes" for row in known if int(row["stars"]) > 3]
    assert sum(high) > 0.8 * len(high)


def test_a_drawing_as_a_file_has_the_pixels_of_the_array(written):
    folder, _ = written["pictures"]
    arrays = np.load(folder / "pictures.npz")
    rows = (folder / "drawings.tsv").read_text().splitlines()[1:]
    for image, caption, row in zip(arrays["images"], arrays["captions"], rows, strict=False):
        name, text = row.split("\t")
        assert (folder / name).read_bytes().endswith(image.tobytes()) and text == caption
