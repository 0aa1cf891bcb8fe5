"""The data of a recipe as chunks: each record is in one split, and every field is kept."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data import Roles
from regard.data.sources import UNUSED, DataSource, open_texts, recognize_modality
from regard.data.targets import OUTPUT_KINDS
from regard.errors import UserError
from regard.recipe import DataRecipe, build

TEXTS, LABELS, PAIRS = (
    Roles(output=True),
    Roles(input=True, labels=True),
    Roles(input=True, output=True),
)


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def records(sources):
    return [(chunk.split, text) for chunk in sources.chunks() for text in chunk.texts]


def test_no_file_is_an_error():
    with pytest.raises(UserError, match=r"data\.train names no file"):
        DataSource(DataRecipe(), TEXTS)


def test_records_are_split_by_their_text_and_given_files_hold_their_own_split(write):
    lines = [f"line {i}" for i in range(500)]
    path, valid = write("a.txt", "\n".join(lines * 2) + "\n"), write("v.txt", "one\ntwo\n")
    fractions = {"valid_fraction": 0.2, "test_fraction": 0.1, "format": "lines"}
    found = records(DataSource(DataRecipe(train=(path,), **fractions), TEXTS))
    assert sorted(text for _, text in found) == sorted(lines * 2)
    assert len({text for _, text in found}) == len(set(found))  # copies are in one split
    shares = np.bincount([split for split, _ in found], minlength=3) / len(found)
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.06)
    sources = DataSource(DataRecipe(train=(path,), valid=(valid,), **fractions), TEXTS)
    assert [text for split, text in records(sources) if split == 1] == ["one", "two"]
    assert sources.fractions == [0.0, 0.1] and len(sources.readers) == 2


def test_running_text_is_cut_into_stretches_with_borders(write):
    path = write("a.txt", "abcdefghij" * 10)
    recipe = DataRecipe(train=(path,), format="text", valid_fraction=0.1, test_fraction=0.2)
    sources = DataSource(recipe, TEXTS)
    chunks = list(sources.chunks())
    assert sources.text and "".join(text for _, text in records(sources)) == "abcdefghij" * 10
    lengths = [sum(len(t) for c in chunks if c.split == s for t in c.texts) for s in range(3)]
    assert lengths == [70, 10, 20]
    assert [sum(c.begins for c in chunks), sum(c.ends for c in chunks)] == [3, 3]
    assert sources.overlaps() == {}


def test_what_is_beyond_the_training_fraction_is_for_vocabularies_alone(write):
    path = write("a.txt", "".join(f"word{i}\n" for i in range(400)))
    recipe = DataRecipe(train=(path,), train_fraction=0.5, format="lines")
    sources = DataSource(recipe, TEXTS)
    counts = np.bincount([split for split, _ in records(sources)], minlength=4)
    assert counts[UNUSED] == pytest.approx(counts[0], rel=0.3)
    training = sum(len(chunk.texts) for chunk in sources.training_chunks())
    assert training == counts[0] + counts[UNUSED]


def test_chunks_keep_targets_keys_and_places(write):
    path = write("t.csv", "text,y\naa,1\nbb,2\nAA,1\n")
    recipe = DataRecipe(train=(path,), target="y", valid_fraction=0, test_fraction=0)
    (chunk,) = DataSource(recipe, LABELS, kind=OUTPUT_KINDS["value"]).chunks()
    assert chunk.texts == ["aa", "bb", "AA"] and chunk.targets == [("1",), ("2",), ("1",)]
    assert [chunk.place(i) for i in range(3)] == [f"{path}:{line}" for line in (2, 3, 4)]
    assert len(set(chunk.keys)) == 3
    one, two = write("p.en", "a\nb\n"), write("p.de", "c\nd\n")
    sources = DataSource(DataRecipe(train=(one, two), valid_fraction=0, test_fraction=0), PAIRS)
    (chunk,) = sources.chunks()
    assert (chunk.sources, chunk.texts) == (["a", "b"], ["c", "d"])
    assert sources.paired and sources.has_second and not sources.labelled


def test_too_few_records_all_train(write):
    log = []
    recipe = DataRecipe(train=(write("a.txt", "a\n"),), valid_fraction=0.5, test_fraction=0.4)
    sources = DataSource(recipe, TEXTS)
    while all(split == 0 for split, _ in records(sources)):  # until the record is held out
        recipe = DataRecipe(**{**vars(recipe), "split_seed": recipe.split_seed + 1})
        sources = DataSource(recipe, TEXTS)
    sources.keep_some_training(log.append)
    assert records(sources) == [(0, "a")] and "too little data to hold any out" in log[0]


def test_a_recipe_gives_the_same_source_as_its_parts(write):
    path = write("t.csv", "text,y\nACGT,1\nacgt,2\nGGTT,1\n")
    data = {"train": [path], "target": "y", "valid_fraction": 0, "test_fraction": 0}
    recipe = build({"task": {"name": "label"}, "data": data, "input": {"tokenizer": "nucleotides"}})
    sources = DataSource.of(recipe)
    assert sources.modality.name == "biology" and sources.kind.name == "label"
    (chunk,) = sources.chunks()
    assert chunk.keys[0] == chunk.keys[1] != chunk.keys[2]  # letter case does not count
    (plain,) = DataSource(recipe.data, LABELS).chunks()
    assert len(set(plain.keys)) == 3
    assert sources.reading()["inputs"] == ["text"] and sources.reading()["targets"] == ["y"]


def test_fingerprints_change_with_the_bytes(write):
    path = write("a.txt", "one\ntwo\n")
    before = DataSource(DataRecipe(train=(path,)), TEXTS).fingerprints()
    assert DataSource(DataRecipe(train=(path,)), TEXTS).fingerprints() == before
    write("a.txt", "one\nTwo\n")
    assert DataSource(DataRecipe(train=(path,)), TEXTS).fingerprints() != before


def test_the_modality_is_recognized_by_containers_and_by_cells(write, tmp_path):
    np.savez(tmp_path / "x.npz", images=np.zeros((3, 4, 4), np.uint8), y=[0, 1, 0])
    np.savez(tmp_path / "p.npz", points=np.zeros((3, 5, 3)), y=[0, 1, 0])
    table = write("t.csv", "file,y\na.png,1\nb.png,0\n")
    clouds = write("c.csv", "file,y\na.xyz,1\nb.xyz,0\n")
    texts = write("u.csv", "file,y\nsome words,1\nmore words,0\n")
    columns = {"input": "file", "target": "y"}
    for path, keys, name in (
        (str(tmp_path / "x.npz"), {}, "images"),
        (str(tmp_path / "p.npz"), {}, "point-clouds"),
        (table, columns, "images"),
        (clouds, columns, "point-clouds"),
        (texts, columns, "text"),
        (table, {}, "text"),  # without a target, a table is a corpus
    ):
        assert recognize_modality(DataRecipe(train=(path,), **keys), LABELS) == name


def test_training_files_can_be_opened_as_plain_texts(write):
    path = write("t.csv", "text,y\none,1\ntwo,2\n")
    source = open_texts(DataRecipe(train=(path,), input="text", target="y"))
    assert [text for chunk in source.records() for text in chunk.texts] == ["one", "two"]
