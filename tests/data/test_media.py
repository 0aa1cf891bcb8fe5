"""Items that are no text, with a toy medium: files of numbers, one to a file."""

import hashlib

import numpy as np
import pytest

from regard.data.labelled import ColumnSelection, LabelledFiles
from regard.data.media import (
    CHUNK_ITEMS,
    MediaFiles,
    MediaRow,
    files_in,
    numbered,
    paths_in_pairs,
    paths_in_table,
    suffix,
    unlabelled_items,
)
from regard.data.pairs import Pairs
from regard.data.targets import OUTPUT_KINDS
from regard.errors import UserError


class NumberFiles(MediaFiles):
    """One number to a file, in a folder for every class or a table of paths; doubled."""

    medium, endings = "numbers", (".num",)
    reads = 0

    def locate_targets(self):
        return self.use_folder_names()

    def rows(self, path):
        yield self.row_of_file(path, (path.parent.name,), str(path))

    def read(self, path):
        type(self).reads += 1
        return np.array(float(path.read_text()))

    def digest(self, item):
        return hashlib.sha256(item.tobytes()).hexdigest()

    def transform(self, item):
        return 2 * item


@pytest.fixture
def folder(tmp_path):
    for name, text in (("a/1.num", "1"), ("a/2.num", "x"), ("b/3.num", "3"), ("b/.4.num", "4")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_folders_are_classes_and_damage_is_named(folder):
    source = NumberFiles([folder], ColumnSelection())
    (chunk,) = source.examples()
    assert [float(item) for item in chunk.texts] == [2, 6] and chunk.targets == [("a",), ("b",)]
    assert source.why == "a folder for every class: a, b"
    assert source.skipped == 1 and "2.num: could not convert" in source.problems[0]
    assert chunk.place(1) == str(folder / "b/3.num") and len(set(chunk.keys())) == 2
    with pytest.raises(UserError, match=r"2\.num: could not convert"):
        list(NumberFiles([folder], ColumnSelection(), strict=True).examples())


def test_a_table_of_paths_names_its_lines(folder):
    (folder / "t.csv").write_text("file,y\na/1.num,p\nb/3.num,q\na/2.num,p\nb/3.num,\n")
    columns = ColumnSelection(inputs=("file",), targets=("y",))
    assert paths_in_table(LabelledFiles([folder / "t.csv"], columns), (".num",))
    assert paths_in_pairs(Pairs([folder / "t.csv"], columns=("file", "y")), (".num",))
    source = NumberFiles([folder / "t.csv"], columns)
    (chunk,) = source.examples()
    assert chunk.targets == [("p",), ("q",)] and chunk.place(1) == f"{folder / 't.csv'}:3"
    assert source.problems[0].startswith(f"{folder / 't.csv'}:4: {folder / 'a/2.num'} could not")
    assert source.columns == ("file", "y") and "no 'y' value" in source.remarks[0]


def test_small_items_are_read_once_and_every_pass_gives_the_same(folder):
    source, before = NumberFiles([folder], ColumnSelection()), NumberFiles.reads
    for kind in ("label", "label", "labels"):
        source.kind = OUTPUT_KINDS[kind]
        assert [chunk.targets for chunk in source.examples()] == [[("a",), ("b",)]]
        assert source.skipped == 1 and len(source.problems) == 1
    assert NumberFiles.reads - before == 3


def test_chunks_are_of_bounded_size(tmp_path):
    class Many(NumberFiles):
        def rows(self, path):
            for i in range(CHUNK_ITEMS + 1):
                yield MediaRow(np.array(float(i)), ("a",), f"{path}[{i}]")

    (tmp_path / "all.num").write_text("")
    sizes = [len(chunk) for chunk in Many([tmp_path / "all.num"], ColumnSelection()).examples()]
    assert sizes == [CHUNK_ITEMS, 1]


def test_unlabelled_items_are_refused_or_passed_on_if_damaged(folder):
    def read(path):
        text = path.read_text()
        yield str(path), float(text) if text.isdigit() else "is no number"

    items = list(unlabelled_items([folder], (".num",), "numbers", read, strict=False))
    assert [item for _, item in items] == [1, "is no number", 3]
    with pytest.raises(UserError, match=r"2\.num: is no number"):
        list(unlabelled_items([folder], (".num",), "numbers", read, strict=True))
    with pytest.raises(UserError, match=r"holds no numbers \(\.foo\)"):
        list(unlabelled_items([folder], (".foo",), "numbers", read, strict=True))
    with pytest.raises(UserError, match=r"none\.num: no such file"):
        list(unlabelled_items([folder / "none.num"], (".num",), "numbers", read, strict=True))


def test_names(folder):
    assert suffix(folder / "X.NUM.gz") == ".num"
    assert list(files_in([folder / "a"], (".num",))) == [folder / "a/1.num", folder / "a/2.num"]
    assert numbered(1) == ("label",) and numbered(2) == ("label1", "label2")
