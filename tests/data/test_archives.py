"""Members of zip archives; archives that are damaged, or that unpack to far too much."""

import gzip
import zipfile
from pathlib import Path

import pytest

from regard.data import archives
from regard.data.archives import members, opened, size, unpacked
from regard.data.readers import TextFiles
from regard.errors import UserError

TEXT = b"anna\nbob\n" * 400


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/names.txt", TEXT)
        file.writestr("a/.hidden", "x")
    return path


def inside(archive):
    return Path(f"{archive}:a/names.txt")


def test_a_member_is_a_file_like_any_other(archive):
    path = inside(archive)
    with opened(path) as file:
        assert file.read(4) == b"anna" and file.seek(0) == 0 and file.read() == TEXT
    assert size(path) == len(TEXT) and members(archive) == ["a/names.txt"]
    assert sum(len(chunk.texts) for chunk in TextFiles([path]).records()) == 800


def test_every_damaged_byte_is_an_error_or_no_matter(archive):
    path, whole = inside(archive), archive.read_bytes()
    for place in range(len(whole)):
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            with opened(path) as file:
                file.read()
        except UserError as error:
            assert str(error).startswith(f"{archive}: ")
    for length in range(0, len(whole), 7):
        archive.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cannot be unpacked"):
            opened(path)


def test_what_unpacks_to_far_more_than_it_takes_is_refused_before_it_is_read(archive, monkeypatch):
    monkeypatch.setattr(archives, "FREE", 1000)
    monkeypatch.setattr(archives, "RATIO", 5)
    with pytest.raises(UserError, match=r"would unpack to 0 MB, more than .* times its size"):
        opened(inside(archive))
    gz = archive.with_name("x.gz")
    gz.write_bytes(gzip.compress(TEXT))
    with pytest.raises(UserError, match="unpacks to more than"):
        unpacked(gz, 1 << 30)
    assert unpacked(gz, 9) == TEXT[:9]


def test_a_member_that_says_to_be_huge_is_refused(archive):
    raw = bytearray(archive.read_bytes())
    at = raw.rindex(b"PK\x01\x02", 0, raw.index(b"PK\x01\x02") + 4) + 24  # its unpacked size
    raw[at : at + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    archive.write_bytes(raw)
    with pytest.raises(UserError, match=r"would unpack to 4,095 MB, more than 1,024 MB"):
        opened(inside(archive))
