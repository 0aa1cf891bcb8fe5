"""Shards against plain lists, and against everything that can happen to files."""

import json
import resource
import tracemalloc
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import shards
from regard.data.shards import Shard, ShardWriter
from regard.errors import UserError


@dataclass
class Tokens:
    """Ids 0, 1, 2 are <S>, <E>, <P>; token i stands for i % 4 + 1 symbols of i % 4 + 2 bytes."""

    dtype: object = np.uint16
    vocab_size: int = 300
    start: int = 0
    end: int = 1
    pad: int = 2
    symbols: np.ndarray = field(default_factory=lambda: np.arange(300) % 4 + 1)
    byte_counts: np.ndarray = field(default_factory=lambda: np.arange(300) % 4 + 2)


def flat(records):
    lengths = np.array([len(r) for r in records], dtype=np.int64)
    return np.array([i for r in records for i in r], dtype=np.int64), lengths


def write(path, records, tokens=None):
    with ShardWriter(path, tokens or Tokens()) as writer:
        writer.add(*flat(records))
    return Shard.open(path, verify=True)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    calls=st.lists(
        st.lists(st.lists(st.integers(3, 299), max_size=7), max_size=6), min_size=1, max_size=4
    ),
    chunk=st.sampled_from([1, 2, 5, 1 << 20]),
)
def test_records_come_back_as_they_went_in(tmp_path, monkeypatch, calls, chunk):
    monkeypatch.setattr(shards, "CHUNK", chunk)
    records = [record for call in calls for record in call]
    with ShardWriter(tmp_path / "train.v1", Tokens()) as writer:
        for call in calls:
            writer.add(*flat(call))
    shard = Shard.open(tmp_path / "train.v1", verify=True)
    assert [shard.record(i).tolist() for i in range(shard.records)] == [[0, *r, 1] for r in records]
    assert shard.kind == "records"
    assert shard.tokens == sum(len(r) + 2 for r in records)
    assert shard.symbols == sum(i % 4 + 1 for r in records for i in r) + len(records)
    assert shard.bytes == sum(i % 4 + 2 for r in records for i in r)
    assert [n for _, part in shard.lengths() for n in part] == [len(r) + 2 for r in records]
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "train.v1.ids.bin",
        "train.v1.json",
        "train.v1.offsets.bin",
    ]


@pytest.mark.parametrize(("dtype", "size"), [(np.uint16, 2), ("uint32", 4)])
def test_files_are_what_the_header_says(tmp_path, dtype, size):
    write(tmp_path / "x", [[5, 298], [], [7]], Tokens(dtype=dtype))
    ids = np.frombuffer((tmp_path / "x.ids.bin").read_bytes(), dtype=f"<u{size}")
    offsets = np.frombuffer((tmp_path / "x.offsets.bin").read_bytes(), dtype="<i8")
    facts = json.loads((tmp_path / "x.json").read_text())
    assert ids.tolist() == [0, 5, 298, 1, 0, 1, 0, 7, 1]
    assert offsets.tolist() == [0, 4, 6, 9]
    assert (facts["records"], facts["tokens"], facts["dtype"]) == (3, 9, f"uint{8 * size}")


def test_running_text_is_streamed_piece_by_piece(tmp_path):
    with ShardWriter(tmp_path / "book", Tokens()) as writer:
        for pieces in ([[4, 5], [], [6]], [[7]]):
            writer.begin_text()
            for piece in pieces:
                writer.add_text(np.array(piece, dtype=np.int64))
            writer.end_text()
    shard = Shard.open(tmp_path / "book", verify=True)
    assert shard.kind == "text"
    assert shard.ids.tolist() == [0, 4, 5, 6, 1, 0, 7, 1]
    assert shard.offsets.tolist() == [0, 5, 8]
    assert shard.symbols == (1 + 2 + 3) + 1 + 4 + 1
    assert shard.bytes == 2 + 3 + 4 + 5
    assert shard.record_of(np.arange(8)).tolist() == [0, 0, 0, 0, 0, 1, 1, 1]


def test_maps_are_read_only_and_record_numbers_are_checked(tmp_path):
    shard = write(tmp_path / "x", [[5], [6]])
    assert isinstance(shard.ids, np.memmap)
    assert isinstance(shard.offsets, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        shard.ids[0] = 3
    with pytest.raises(IndexError, match=r"\[0, 2\), got 2"):
        shard.record(2)


def test_a_shard_without_records_opens(tmp_path):
    shard = write(tmp_path / "x", [])
    assert (shard.records, shard.tokens, shard.ids.size) == (0, 0, 0)


def test_an_aborted_shard_leaves_nothing_behind(tmp_path):
    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path / "x", Tokens()) as writer:
        writer.add(*flat([[5, 6]]))
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_failed_rebuild_keeps_the_shard_that_was_there(tmp_path):
    write(tmp_path / "x", [[5, 6]])
    with pytest.raises(ValueError, match=r"ids must lie in \[0, 300\), got 300"):
        write(tmp_path / "x", [[7], [300]])
    assert Shard.open(tmp_path / "x", verify=True).ids.tolist() == [0, 5, 6, 1]
    assert len(list(tmp_path.iterdir())) == 3
    assert write(tmp_path / "x", [[8]]).ids.tolist() == [0, 8, 1]


def test_a_full_disk_is_one_line_and_leaves_nothing_behind(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # the kernel refuses to write on
    try:
        with pytest.raises(UserError, match=r"cannot write .*x: File too large") as caught:
            write(tmp_path / "x", [[5] * 300_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/x"):
        ShardWriter(tmp_path / "file" / "x", Tokens())


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin", "json"])
def test_a_missing_file_is_named(tmp_path, name):
    write(tmp_path / "x", [[5, 6]])
    (tmp_path / f"x.{name}").unlink()
    with pytest.raises(UserError, match=f"cannot read .*x.{name}: No such file"):
        Shard.open(tmp_path / "x")


@pytest.mark.parametrize("name", ["ids.bin", "offsets.bin"])
def test_a_file_of_the_wrong_size_is_named_before_it_is_mapped(tmp_path, name):
    write(tmp_path / "x", [[5, 6]])
    with open(tmp_path / f"x.{name}", "ab") as file:
        file.write(b"\0")
    with pytest.raises(UserError, match=f"x.{name} is damaged: it must hold"):
        Shard.open(tmp_path / "x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", 2),
        ("tokens", -4),
        ("tokens", True),
        ("tokens", 2**62),
        ("records", "1"),
        ("dtype", "object"),
        ("kind", "other"),
        ("ids_blake2b", 3),
    ],
)
def test_a_damaged_header_is_named(tmp_path, key, value):
    write(tmp_path / "x", [[5, 6]])
    facts = json.loads((tmp_path / "x.json").read_text())
    (tmp_path / "x.json").write_text(json.dumps(facts | {key: value}))
    with pytest.raises(UserError, match="is damaged"):
        Shard.open(tmp_path / "x")


def test_a_header_that_is_no_json_is_named(tmp_path):
    write(tmp_path / "x", [[5, 6]])
    (tmp_path / "x.json").write_bytes(b"\xff{")
    with pytest.raises(UserError, match=r"x.json is damaged: it is not JSON"):
        Shard.open(tmp_path / "x")


def test_a_flipped_bit_is_found_by_verify(tmp_path):
    write(tmp_path / "x", [[5, 6]])
    ids = tmp_path / "x.ids.bin"
    ids.write_bytes(bytes([ids.read_bytes()[0] ^ 4]) + ids.read_bytes()[1:])
    assert Shard.open(tmp_path / "x").tokens == 4
    with pytest.raises(UserError, match=r"x.ids.bin is damaged: its checksum"):
        Shard.open(tmp_path / "x", verify=True)


def test_impossible_offsets_are_found_without_verify(tmp_path):
    write(tmp_path / "x", [[5, 6], [7]])
    (tmp_path / "x.offsets.bin").write_bytes(np.array([0, 6, 7], dtype="<i8").tobytes())
    with pytest.raises(UserError, match=r"x.offsets.bin is damaged: a record must hold"):
        list(Shard.open(tmp_path / "x").lengths())
    (tmp_path / "x.offsets.bin").write_bytes(np.array([0, 4, 9], dtype="<i8").tobytes())
    with pytest.raises(UserError, match=r"x.offsets.bin is damaged: must run from 0 to 7"):
        Shard.open(tmp_path / "x")


def test_wrong_calls_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"dtype must be one of .* got float64"):
        ShardWriter(tmp_path / "x", Tokens(dtype=np.float64))
    with ShardWriter(tmp_path / "x", Tokens()) as writer:
        with pytest.raises(ValueError, match="add up to the 3 ids, got a sum of 2"):
            writer.add(np.array([3, 4, 5]), np.array([2]))
        with pytest.raises(ValueError, match="at least 0"):
            writer.add(np.array([3, 4]), np.array([3, -1]))
        writer.add(*flat([[3]]))
        with pytest.raises(ValueError, match="holds records, got text"):
            writer.begin_text()
    with pytest.raises(ValueError, match="is closed"):
        writer.add(*flat([[3]]))
    writer = ShardWriter(tmp_path / "y", Tokens())
    for call in (lambda: writer.add_text(np.array([3])), writer.end_text):
        with pytest.raises(ValueError, match="call begin_text first"):
            call()
    writer.begin_text()
    with pytest.raises(ValueError, match="begin_text called twice"):
        writer.begin_text()
    with pytest.raises(ValueError, match="call end_text first"):
        writer.close()
    assert not list(tmp_path.glob("y*"))


def test_writing_holds_only_chunks_in_memory(tmp_path):
    ids = np.full(3_000_000, 7, dtype=np.uint16)
    lengths = np.full(3_000, 1_000)
    tracemalloc.start()
    with ShardWriter(tmp_path / "x", Tokens()) as writer:
        for _ in range(2):
            writer.add(ids, lengths)
    shard = Shard.open(tmp_path / "x", verify=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shard.tokens == 2 * 3_006_000
    assert peak < 20e6  # one int64 per token of one call would be 24 MB
