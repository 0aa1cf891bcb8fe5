"""Examples: every one is written, is the same whenever it is made, and is read as it should be."""

from __future__ import annotations

import hashlib
import shlex

import pytest

from regard.bundled.examples import EXAMPLES, write_example
from regard.planning import plan_recipe

# The task of each command, by which the files must be recognized without further options.
TASKS = {
    "names": "next",
    "questions": "label",
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
        "data": {"target": options.pop("target", None)},
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
        texts = one.is_file() and one.suffix != ".npz"  # archives hold the time they were made
        assert not texts or digest(one) == digest(other)


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
