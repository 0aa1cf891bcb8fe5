"""Members of zip archives; archives that are damaged, or that unpack to far too much."""

import gzip
import zipfile
from pathlib import Path

import pytest

from regard.data import archives
from regard.data.archives import Archives, list_members, read_unpacked
from regard.data.text_files import TextFiles
from regard.errors import UserError

TEXT = b"anna\nbob\n" * 400


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/names.txt", TEXT)
        file.writestr("a/.hidden", "x")
    return path


def texts(source):
    return [text for chunk in source.records() for text in chunk.texts]


def inside(archive):
    return Path(f"{archive}:a/names.txt")


def test_a_member_is_a_file_like_any_other(archive):
    path = inside(archive)
    with Archives().open(path) as file:
        assert file.read(4) == b"anna" and file.seek(0) == 0 and file.read() == TEXT
    assert Archives().size(path) == len(TEXT) and list_members(archive) == ["a/names.txt"]
    assert sum(len(chunk.texts) for chunk in TextFiles([path]).records()) == 800


def test_every_damaged_byte_is_an_error_or_no_matter(archive):
    path, whole = inside(archive), archive.read_bytes()
    for place in range(len(whole)):
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            with Archives().open(path) as file:
                file.read()
        except UserError as error:
            assert str(error).startswith(f"{archive}: ")
    for length in range(0, len(whole), 7):
        archive.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cannot be unpacked"):
            Archives().open(path)


def test_what_unpacks_to_far_more_than_it_takes_is_refused_before_it_is_read(archive, monkeypatch):
    monkeypatch.setattr(archives, "FREE_BYTES", 1000)
    monkeypatch.setattr(archives, "MAX_RATIO", 5)
    with pytest.raises(UserError, match=r"would unpack to 0 MB, more than .* times its size"):
        Archives().open(inside(archive))
    gz = archive.with_name("x.gz")
    gz.write_bytes(gzip.compress(TEXT))
    with pytest.raises(UserError, match="unpacks to more than"):
        read_unpacked(gz, 1 << 30)
    assert read_unpacked(gz, 9) == TEXT[:9]


def test_a_member_that_says_to_be_huge_is_refused(archive):
    raw = bytearray(archive.read_bytes())
    at = raw.rindex(b"PK\x01\x02", 0, raw.index(b"PK\x01\x02") + 4) + 24  # its unpacked size
    raw[at : at + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    archive.write_bytes(raw)
    with pytest.raises(UserError, match=r"would unpack to 4,095 MB, more than 1,024 MB"):
        Archives().open(inside(archive))


@pytest.fixture
def mixed_archive(tmp_path):
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("deep/a.fasta", ">x\nACGT\n>y\nGG\n")
        packed.writestr("deep/b.csv.gz", gzip.compress(b"text,n\nanna,1\n", mtime=0))
        packed.writestr("empty.txt", "")
        packed.writestr(".hidden", "no")
    return path


def test_members_of_any_format_are_read(mixed_archive):
    source = TextFiles([Path(f"{mixed_archive}:deep/a.fasta")])
    assert texts(source) == ["ACGT", "GG"]
    assert source.size == len(">x\nACGT\n>y\nGG\n")
    assert [chunk.place(1) for chunk in source.records()] == [f"{mixed_archive}:deep/a.fasta:3"]
    other = TextFiles([Path(f"{mixed_archive}:deep/b.csv.gz")])
    assert texts(other) == ["anna"]
    assert source.hashes() != other.hashes()


def test_what_an_archive_does_not_hold_is_explained(mixed_archive, tmp_path):
    for path, message in (
        (f"{mixed_archive}:deep/a.fast", r"holds no 'deep/a\.fast'; did you mean 'deep/a\.fasta'"),
        (f"{mixed_archive}:q", r"it holds deep/a\.fasta, deep/b\.csv\.gz, empty\.txt$"),
        (
            f"{mixed_archive}",
            r"is a zip archive; name a file in it, as all\.zip:MEMBER; it holds deep/a",
        ),
        (f"{mixed_archive}:empty.txt", "is empty"),
        (f"{tmp_path}/alls.zip:x", r"alls\.zip: no such file or folder; did you mean 'all\.zip'"),
    ):
        with pytest.raises(UserError, match=message):
            texts(TextFiles([Path(path)]))
    raw = bytearray(mixed_archive.read_bytes())
    raw[45] ^= 255
    (tmp_path / "bad.zip").write_bytes(raw)
    with pytest.raises(UserError, match=r"bad\.zip"):
        texts(TextFiles([Path(f"{tmp_path}/bad.zip:deep/a.fasta")]))
    (tmp_path / "no.zip").write_text("plain")
    with pytest.raises(UserError, match=r"no\.zip: cannot be unpacked"):
        TextFiles([Path(f"{tmp_path}/no.zip:x")])
