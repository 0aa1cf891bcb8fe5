"""Class folders and archives: which files, of which class, and one file as one record."""

import zipfile
from collections import Counter

import pytest

from regard.data.class_folders import class_folders
from regard.data.labelled import ColumnSelection, LabelledFiles
from regard.errors import UsageError, UserError

FILES = {
    "pos/a.txt": "Good.\n\nVery good.\n",
    "pos/49960": "fine\r\nfilm\n",
    "neg/b.txt": "Bad.\n",
    "neg/deep/c.txt": "Dull.\nPoor.\n",
    "neg/.hidden": "no\n",
    "README.txt": "what this is\n",
}
EXPECTED = {
    ("Good.\n\nVery good.", "pos"),
    ("fine\nfilm", "pos"),
    ("Bad.", "neg"),
    ("Dull.\nPoor.", "neg"),
}


@pytest.fixture(params=["folder", "deeper", "zip", "folders"])
def paths(request, tmp_path):
    """The same texts as a folder of folders, one that lies deeper, an archive, and two folders."""
    root = tmp_path / ("set/txt" if request.param == "deeper" else "set")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    if request.param == "zip":
        with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
            for name, text in FILES.items():
                packed.writestr(f"reviews/{name}", text)
            packed.writestr("__MACOSX/pos/._a.txt", "x")
        return [tmp_path / "set.zip"]
    return [root / "pos", root / "neg"] if request.param == "folders" else [tmp_path / "set"]


def read(source):
    return [
        (text, cells[0])
        for chunk in source.examples()
        for text, cells in zip(chunk.texts, chunk.targets, strict=True)
    ]


def test_a_file_is_a_record_of_the_class_of_its_folder(paths):
    source = LabelledFiles(paths, ColumnSelection())
    assert source.format == "files"
    records = read(source)
    assert len(records) == 4 and set(records) == EXPECTED
    assert "neg (2 files), pos (2 files)" in source.why and "data.per_line=true" in source.why
    chunk = next(source.examples())
    assert {chunk.place(i).rpartition("/")[2] for i in range(4)} == {
        *("a.txt", "49960", "b.txt", "c.txt")
    }
    again = LabelledFiles(paths, ColumnSelection(), format=source.format)  # as in a stored recipe
    assert set(read(again)) == EXPECTED and again.hashes() == source.hashes()


def test_lines_are_records_with_per_line(paths):
    records = read(LabelledFiles(paths, ColumnSelection(per_line=True)))
    expected = [(line, c) for text, c in EXPECTED for line in text.split("\n") if line]
    assert Counter(records) == Counter(expected)


def test_fasta_in_folders_of_classes_keeps_its_sequences(tmp_path):
    for name, text in (("a/1.fa", ">x\nAC\n>y\nGT\n"), ("b/2.fa", ">z\nTT\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert read(LabelledFiles([tmp_path], ColumnSelection())) == [
        ("AC", "a"),
        ("GT", "a"),
        ("TT", "b"),
    ]


def test_damaged_and_empty_files_are_counted(tmp_path):
    contents = {"a/1.txt": b"good", "a/2.txt": b"", "b/3.txt": b"x\ny\xff\n", "b/4.txt": b"\0" * 9}
    for name, data in (contents | {"b/5.txt": b"fine"}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    source = LabelledFiles([tmp_path], ColumnSelection())
    assert read(source) == [("good", "a"), ("fine", "b")]
    assert (source.blank, source.skipped) == (1, 2)
    assert "3.txt:2: invalid UTF-8, byte 0xff at offset 1" in source.problems[0]
    assert "4.txt: is a binary file" in source.problems[1]
    with pytest.raises(UserError, match=r"3\.txt:2: invalid UTF-8"):
        read(LabelledFiles([tmp_path], ColumnSelection(), strict=True))


def test_other_layouts_are_no_class_folders(tmp_path):
    (tmp_path / "flat").mkdir()
    for name in ("x.txt", "y.txt"):
        (tmp_path / "flat" / name).write_text("x\n")
    assert class_folders([tmp_path / "flat"]) == []
    assert class_folders([tmp_path]) == []  # one folder alone
    assert class_folders([tmp_path / "flat" / "x.txt"]) == []
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "z.txt").write_text("z\n")
    assert len(class_folders([tmp_path])) == 3
    (tmp_path / "outside.txt").write_text("b\n")
    assert class_folders([tmp_path]) == []
    for split in ("train", "test"):
        (tmp_path / "imdb" / split / "pos").mkdir(parents=True)
        (tmp_path / "imdb" / split / "pos" / "1.txt").write_text("x\n")
    with pytest.raises(UsageError, match=r"parts test, train; give \S+/train --test \S+/test$"):
        class_folders([tmp_path / "imdb"])
