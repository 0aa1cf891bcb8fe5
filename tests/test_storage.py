"""Files that are whole or not there, and reading what others may have damaged."""

import errno
import os

import pytest
import torch

from regard import storage
from regard.errors import UserError


def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "note.txt"
    storage.write_text(path, "old")
    with pytest.raises(ZeroDivisionError), storage.atomic_write(path) as temporary:
        temporary.write_text("half of the n")
        assert path.read_text() == "old"
        raise ZeroDivisionError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["note.txt"]
    storage.write_text(path, "new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["note.txt"]


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path):
    with (
        pytest.raises(UserError, match=r"cannot write .*x\.json: No space left"),
        storage.atomic_write(tmp_path / "x.json") as temporary,
    ):
        temporary.write_text("begun")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*x\.json: No such file"):
        storage.write_json(tmp_path / "none" / "x.json", 1)


def test_json_never_holds_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        storage.write_json(tmp_path / "x.json", {"a": float("nan")})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("contents", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} 2'])
def test_json_that_is_damaged_is_named(tmp_path, contents):
    path = tmp_path / "x.json"
    path.write_bytes(contents)
    with pytest.raises(UserError, match=r"x\.json is damaged"):
        storage.read_json(path)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_have_the_mode_that_the_umask_gives(tmp_path, umask):
    before = os.umask(umask)
    try:
        storage.write_tensors(tmp_path / "x.safetensors", {"a": torch.zeros(3)})
        storage.write_json(tmp_path / "x.json", {})
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o666 & ~umask}


def test_json_beyond_all_measure_is_not_read(tmp_path):
    path = tmp_path / "x.json"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a sparse file: a terabyte that takes no space
    with pytest.raises(UserError, match="too large: at most 64 MB"):
        storage.read_json(path)


def test_the_bytes_of_a_file_depend_on_its_tensors_alone(tmp_path):
    tensors = {"b": torch.arange(6.0).view(2, 3), "a": torch.tensor(3), "empty": torch.zeros(0, 4)}
    storage.write_tensors(tmp_path / "one", tensors)
    storage.write_tensors(tmp_path / "two", dict(reversed(tensors.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    back = storage.read_tensors(tmp_path / "one")
    assert all(torch.equal(back[name], tensors[name]) for name in tensors)


def test_sweeping_takes_what_killed_writers_left_and_nothing_else(tmp_path):
    for name in (".config.json.17.tmp", ".train.ids.bin.17.part", "kept.tmp", ".hidden", "a.part"):
        (tmp_path / name).write_text("")
    storage.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden", "a.part", "kept.tmp"]


def test_a_single_number_is_stored_whatever_its_stride(tmp_path):
    """A view of one element is contiguous with any stride, which `view(torch.uint8)` refused."""
    sliced = torch.arange(8.0).view(2, 4)[:, 0][:1]
    assert sliced.stride() == (4,)
    assert storage.digest({"a": sliced}) == storage.digest({"a": torch.zeros(1)})
