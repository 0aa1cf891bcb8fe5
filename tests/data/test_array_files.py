"""NumPy's files against NumPy's own reader, and files that lie."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard.data.array_files import read_array, read_arrays, read_headers, target_cells
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
