"""Items that are no text, with a toy medium: files of numbers, one to a file."""

import hashlib
import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard.data.labelled import ColumnSelection, LabelledFiles
from regard.data.media import (
    CHUNK_ITEMS,
    MediaFiles,
    MediaRow,
    files_in,
    numbered,
    paths_in_pairs,
    paths_in_table,
    read_array,
    read_arrays,
    read_headers,
    suffix,
    target_cells,
    unlabelled_items,
)
from regard.data.targets import OUTPUT_KINDS
from regard.data.text_files import Pairs
from regard.errors import UserError

KINDS = ["?", "i1", "<i4", ">u2", "<u8", "<f4", ">f8", "f2", "S3", "<U5"]


@settings(deadline=None)
@given(
    arrays.arrays(st.sampled_from(KINDS), arrays.array_shapes(min_dims=0, min_side=0)),
    st.sampled_from("CF"),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
def test_arrays_are_read_as_numpy_reads_them(array, order, version):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array(array, order=order), version, allow_pickle=False)
    size = file.tell()
    file.seek(0)
    ours = read_array(file, size)
    file.seek(0)
    expected = np.load(file, allow_pickle=False)
    assert ours.dtype == expected.dtype and ours.shape == expected.shape
    assert ours.tobytes() == expected.tobytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_have_their_arrays_by_name(tmp_path, save):
    save(tmp_path / "x.npz", a=np.arange(6.0).reshape(2, 3), b=np.array(["u", "v"]))
    read = read_arrays(tmp_path / "x.npz")
    assert read["a"].tolist() == [[0, 1, 2], [3, 4, 5]] and read["b"].tolist() == ["u", "v"]
    shapes = [(name, header.shape) for name, header in read_headers(tmp_path / "x.npz")]
    assert shapes == [("a", (2, 3)), ("b", (2,))]


def test_targets_are_written_as_in_a_table():
    path = Path("y.npy")
    assert target_cells(np.array([1.0, 0.5, np.nan]), path) == [("1",), ("0.5",), ("",)]
    assert target_cells(np.array([[True, False]]), path) == [("1", "0")]
    assert target_cells(np.array([b"a", b"bc"]), path) == [("a",), ("bc",)]
    assert target_cells(np.zeros(0), path) == []
    with pytest.raises(UserError, match=r"y\.npy: targets are numbers or texts of shape"):
        target_cells(np.zeros((2, 2, 2)), path)


def npy(header: str, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header.encode()
    size = len(raw) if length is None else length
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", size) + raw + data


def of(descr="'<f4'", shape="(2,)"):
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


LIES = {
    "huge": (npy(of(shape="(999999999999, 9)"), b"x" * 8), "its header says 35,999,999,999,964"),
    "short": (npy(of(), b"x" * 7), "bytes of numbers"),
    "objects": (npy(of("'|O'"), b"x" * 16), "holds Python objects, which are not read"),
    "records": (npy(of("[('a', '<f4')]"), b"x" * 8), "holds values of type dtype([('a'"),
    "code": (npy(of("__import__('os')"), b"x" * 8), "header cannot be read"),
    "digits": (npy(of(shape="(" + "9" * 5000 + ",)")), "header"),
    "negative": (npy(of(shape="(-2,)"), b"x" * 8), "header"),
    "version": (npy(of()).replace(b"NUMPY\x01", b"NUMPY\x09"), "version (9, 0) is unknown"),
    "slow": (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1" * 9000), "header"),
    "cut": (npy(of(), b"")[:9], "header cannot be read"),
    "other": (b"\x93NUMPZ\x01\x00", "header cannot be read"),
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("packed", [False, True])
def test_headers_that_lie_are_refused_before_memory_is_taken(tmp_path, name, packed):
    data, message = LIES[name]
    path = tmp_path / ("x.npz" if packed else "x.npy")
    if packed:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", data)
    else:
        path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_arrays(path)
    assert message in str(caught.value) and len(str(caught.value)) < 300 + len(str(path))


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
