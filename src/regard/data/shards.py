"""Token shards: the tokens of a data set in flat files, written once and memory-mapped to read.

A shard is three files: `STEM.ids.bin` (the ids of all records, little-endian, each record stored as
`<S> ids <E>`), `STEM.offsets.bin` (int64, the start of each record, and the end) and `STEM.json`
(sizes, counts and checksums). For images and point clouds, a token is a vector of V numbers instead
of an id, and a record is `<S> tokens`. Files are written under temporary names and the JSON file is
renamed last, so a shard without it is incomplete. Data is processed in chunks: shards may exceed
RAM.
"""

from __future__ import annotations

import contextlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from regard.errors import UserError
from regard.storage import ShardFile, read_json

CHUNK = 1 << 20  # tokens or offsets processed at once: a few tens of MB with all temporaries

Array = NDArray[Any]
State = Mapping[str, Any]  # what a writer needs to go on where another was stopped


class ArrayFile:
    """A file being written, with a temporary name and a running checksum. The first `keep` bytes of
    one that was left behind are kept.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.part")
        self.digest, self.size = blake2b(), 0
        self.file: BinaryIO = open(self.temporary, "r+b" if keep else "wb")  # noqa: SIM115 - outlives this call
        while self.size < keep:
            data = self.file.read(min(8 * CHUNK, keep - self.size))
            if not data:
                raise OSError(f"{self.temporary} ends at byte {self.size:,} of {keep:,}")
            self._count(data)
        self.file.truncate(keep)
        self.file.seek(keep)

    def write(self, values: Array) -> None:
        data = np.ascontiguousarray(values).view(np.uint8).data
        self._count(data)
        self.file.write(data)

    def _count(self, data: bytes | memoryview) -> None:
        self.digest.update(data)
        self.size += len(data)

    def flush(self) -> int:
        """Flush the file to disk; return its size."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.size

    def finish(self) -> None:
        """Flush the file to disk and close it."""
        self.flush()
        self.file.close()

    def discard(self) -> None:
        """Close and remove the file; on a full disk, closing may fail because it flushes."""
        try:
            self.file.close()
        except OSError:
            pass
        finally:
            self.temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def damaged(file: Path, why: str) -> UserError:
    """Return the error for a damaged file of a shard."""
    return UserError(f"{file} is damaged: {why}; delete the shard and build it again")


def map_file(file: Path, dtype: np.dtype[Any], size: int) -> Array:
    """Map a file of `size` numbers; raise a UserError if it has another size."""
    try:
        n_bytes, expected = file.stat().st_size, size * dtype.itemsize
        if n_bytes != expected:
            raise damaged(file, f"it must hold {expected} bytes, got {n_bytes}")
        return np.memmap(file, dtype=dtype, mode="r") if size else np.empty(0, dtype=dtype)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from error


def verify_file(file: Path, expected: str) -> None:
    """Read a file and raise a UserError if its checksum differs."""
    digest = blake2b()
    try:
        with open(file, "rb") as opened:
            while data := opened.read(8 * CHUNK):
                digest.update(data)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from error
    if digest.hexdigest() != expected:
        raise damaged(file, "its checksum does not match")


FORMAT = 1
DTYPES = ("uint8", "uint16", "uint32", "int32", "int64", "float32")
COUNTS = ("vocab_size", "records", "tokens", "symbols", "bytes")
STATE = ("kind", "width", "in_document", *COUNTS[1:])  # of a writer that goes on


class TokenTable(Protocol):
    """What shards and batches need from a tokenizer."""

    @property
    def dtype(self) -> DTypeLike:
        """The type of ids, or of the numbers of a token."""

    @property
    def vocab_size(self) -> int:
        """V: ids are in [0, V)."""

    @property
    def start(self) -> int:
        """The id of `<S>`."""

    @property
    def end(self) -> int:
        """The id of `<E>`."""

    @property
    def pad(self) -> int:
        """The id of padding."""

    @property
    def symbols(self) -> Array:
        """(V,) number of raw symbols of each token."""

    @property
    def byte_counts(self) -> Array:
        """(V,) number of bytes of each token."""


def _files(path: Path) -> tuple[Path, Path, Path]:
    ids, offsets, summary = (
        path.with_name(path.name + end) for end in (".ids.bin", ".offsets.bin", ".json")
    )
    return ids, offsets, summary


class ArrayWriter(ABC):
    """Base of writers of several files that get their final names together.

    The last file is a JSON summary. After an error, such as a full disk, no file is left. A writer
    that was killed goes on from a `state` that it had returned.
    """

    def __init__(self, path: Path, files: Sequence[Path], state: State | None = None) -> None:
        self.path = Path(path)
        self._columns: list[ArrayFile] = []
        sizes = state["sizes"] if state else {}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for file in files:
                self._columns.append(ArrayFile(file, sizes.get(file.name, 0)))
        except OSError as error:
            self._fail(error)

    def _write(self, column: int, values: Array) -> None:
        try:
            self._columns[column].write(values)
        except OSError as error:
            self._fail(error)

    def _publish(self, summary: str) -> None:
        """Write the summary and rename the files, the summary last."""
        self._write(-1, np.frombuffer(summary.encode(), dtype=np.uint8))
        try:
            for column in self._columns:
                column.finish()
            self._columns[-1].path.unlink(missing_ok=True)  # older files become invalid first
            for column in self._columns:
                os.replace(column.temporary, column.path)
            sync_folder(self.path.parent)
        except OSError as error:
            self._fail(error)
        self._columns = []

    def state(self) -> dict[str, Any]:
        """Return what another writer needs to go on from here; the files are flushed to disk."""
        try:
            return {"sizes": {column.path.name: column.flush() for column in self._columns}}
        except OSError as error:
            self._fail(error)

    @abstractmethod
    def close(self) -> None:
        """Finish the files and rename them, the JSON file last."""

    def leave(self) -> None:
        """Close the files as they are, for another writer to go on."""
        for column in self._columns:
            with contextlib.suppress(OSError):
                column.file.close()

    def abort(self) -> None:
        """Remove everything written so far."""
        columns, self._columns = self._columns, []
        for column in columns:
            column.discard()

    def _fail(self, error: OSError) -> NoReturn:
        self.abort()
        raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error


class ShardWriter(ArrayWriter):
    """Write the shard with stem `path`, in a `with` statement.

    A shard contains either records (`add`) or running text (`begin_text`, `add_text`, `end_text`).
    Ids are given without markers. With the `state` of another writer, this one goes on from there.
    """

    def __init__(self, path: Path, tokenizer: TokenTable, state: State | None = None) -> None:
        self.dtype = np.dtype(tokenizer.dtype).newbyteorder("<")
        if self.dtype.name not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype.name}")
        self.tokenizer = tokenizer
        self.kind = ""
        self.records = self.tokens = self.symbols = self.bytes = 0
        self.width = 0  # numbers of a token; 0: tokens are ids
        self.in_document = False  # between begin_text and end_text
        super().__init__(path, _files(Path(path)), state)
        if state is None:
            self._write(1, np.zeros(1, dtype="<i8"))
            return
        for name in STATE:
            setattr(self, name, state[name])

    def state(self) -> dict[str, Any]:
        return super().state() | {name: getattr(self, name) for name in STATE}

    def add(self, ids: Array, lengths: Array) -> None:
        """Append concatenated records of the given (R,) lengths.

        Tokens of several numbers, (N, V), include their markers.
        """
        ids, lengths = np.asarray(ids), np.asarray(lengths, dtype=np.int64)
        self._expect("records")
        if (lengths.size and lengths.min() < 0) or lengths.sum() != len(ids):
            raise ValueError(
                f"lengths must be at least 0 and add up to the {len(ids)} ids, "
                f"got a sum of {lengths.sum()}"
            )
        ends = np.cumsum(lengths)
        first = start = 0  # number of records and ids written so far
        while first < lengths.size:
            last = max(first + 1, int(np.searchsorted(ends, start + CHUNK, side="right")))
            stop = int(ends[last - 1])
            self._add_chunk(ids[start:stop], lengths[first:last])
            first, start = last, stop

    def begin_text(self) -> None:
        """Begin a document of running text."""
        self._expect("text")
        if self.in_document:
            raise ValueError("begin_text called twice; end_text closes the document before it")
        self.in_document = True
        self._write(0, np.array([self.tokenizer.start], dtype=self.dtype))
        self.tokens += 1

    def add_text(self, ids: Array) -> None:
        """Append ids to the open document."""
        self._expect("text")
        if not self.in_document:
            raise ValueError("add_text needs an open document; call begin_text first")
        ids = np.asarray(ids)
        self._count(ids)
        self._write(0, ids.astype(self.dtype, copy=False))
        self.tokens += ids.size

    def end_text(self) -> None:
        """End the document."""
        self._expect("text")
        if not self.in_document:
            raise ValueError("end_text needs an open document; call begin_text first")
        self.in_document = False
        self._write(0, np.array([self.tokenizer.end], dtype=self.dtype))
        self.tokens += 1
        self.records += 1
        self.symbols += 1
        self._write(1, np.array([self.tokens], dtype="<i8"))

    def close(self) -> None:
        if self.in_document:
            self.abort()
            raise ValueError("close called inside a document; call end_text first")
        if not self._columns:
            return
        ids, offsets, _ = self._columns
        header = {"format": FORMAT, "kind": self.kind or "records", "dtype": self.dtype.name}
        counts = {"vocab_size": self.tokenizer.vocab_size}
        counts |= {name: getattr(self, name) for name in COUNTS[1:]}
        counts |= {"width": self.width} if self.width else {}
        checksums = {
            "ids_blake2b": ids.digest.hexdigest(),
            "offsets_blake2b": offsets.digest.hexdigest(),
        }
        self._publish(json.dumps(header | counts | checksums, indent=1) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _expect(self, kind: str) -> None:
        if not self._columns:
            raise ValueError(f"the shard {self.path} is closed; nothing can be added to it")
        if self.kind not in ("", kind):
            raise ValueError(f"a shard holds one kind: {self.path} holds {self.kind}, got {kind}")
        self.kind = kind

    def _add_chunk(self, ids: Array, lengths: Array) -> None:
        if ids.shape[1:]:
            self._add_vectors(ids, lengths)
            return
        self._count(ids)
        ends = np.cumsum(lengths + 2)
        marked = np.empty(ids.size + 2 * lengths.size, dtype=self.dtype)
        is_content = np.ones(marked.size, dtype=bool)
        for marker, positions in (
            (self.tokenizer.start, ends - lengths - 2),
            (self.tokenizer.end, ends - 1),
        ):
            marked[positions] = marker
            is_content[positions] = False
        marked[is_content] = ids
        self._write(0, marked)
        self._write(1, (ends + self.tokens).astype("<i8"))
        self.tokens += marked.size
        self.records += lengths.size
        self.symbols += lengths.size

    def _add_vectors(self, ids: Array, lengths: Array) -> None:
        if ids.shape[1] != self.tokenizer.vocab_size:
            raise ValueError(f"tokens must be {self.tokenizer.vocab_size} numbers each")
        self.width = ids.shape[1]
        self._write(0, ids.astype(self.dtype, copy=False))
        self._write(1, (np.cumsum(lengths) + self.tokens).astype("<i8"))
        self.tokens += len(ids)
        self.symbols += len(ids)
        self.bytes += ids.size * self.dtype.itemsize
        self.records += lengths.size

    def _count(self, ids: Array) -> None:
        for start in range(0, ids.size, CHUNK):
            part = ids[start : start + CHUNK]
            low, high = int(part.min()), int(part.max())
            if low < 0 or high >= self.tokenizer.vocab_size:
                invalid = low if low < 0 else high
                raise ValueError(f"ids must lie in [0, {self.tokenizer.vocab_size}), got {invalid}")
            self.symbols += int(self.tokenizer.symbols[part].sum())
            self.bytes += int(self.tokenizer.byte_counts[part].sum())


@dataclass(frozen=True, eq=False)
class Shard:
    """A finished shard, memory-mapped: `ids` (tokens,), or (tokens, V) for tokens of V numbers, and
    `offsets` (records + 1,).

    `kind` is "records", "text" or, after sampling blocks of text (`data.sample`), "blocks".
    `symbols` counts raw symbols plus one `<E>` per record, `bytes` their bytes. Record i of
    `source` is the source of record i here (the second text, for labelled pairs of texts). With
    `views` > 1, each group of that many consecutive records shows one example.
    """

    path: Path
    kind: str
    ids: Array
    offsets: Array
    vocab_size: int
    records: int
    tokens: int
    symbols: int
    bytes: int
    source: Shard | None = None
    targets: Array | None = None
    aligned: bool = False  # whether there is one target per token
    views: int = 1

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Shard:
        """Map the shard with stem `path`; raise a UserError if a file is missing or damaged.

        Sizes are always checked; `verify` also checks the checksums of all bytes.
        """
        path = Path(path)
        ids_file, offsets_file, summary_file = _files(path)
        summary = read_json(summary_file, ShardFile)
        dtype = np.dtype(summary["dtype"]).newbyteorder("<")
        width = summary.get("width", 0)
        ids = map_file(ids_file, dtype, summary["tokens"] * max(1, width))
        ids = ids.reshape(-1, width) if width else ids
        offsets = map_file(offsets_file, np.dtype("<i8"), summary["records"] + 1)
        if offsets[0] != 0 or offsets[-1] != len(ids):
            raise damaged(offsets_file, f"must run from 0 to {len(ids)}")
        if verify:
            verify_file(ids_file, summary["ids_blake2b"])
            verify_file(offsets_file, summary["offsets_blake2b"])
        counts = {name: summary[name] for name in COUNTS}
        return cls(path=path, kind=summary["kind"], ids=ids, offsets=offsets, **counts)

    def paired(self, source: Shard) -> Shard:
        """Return this shard with the sources of its records."""
        if source.records != self.records:
            raise UserError(
                f"{source.path} must hold as many records as {self.path}, "
                f"got {source.records:,} and {self.records:,}; build both again"
            )
        return replace(self, source=source)

    @property
    def is_text(self) -> bool:
        """Whether this is running text."""
        return self.kind == "text"

    @property
    def has_records(self) -> bool:
        """Whether records are complete, in contrast to running text and blocks of it."""
        return self.kind == "records"

    @property
    def cuttable(self) -> bool:
        """Whether tokens are ids; records of other features cannot be truncated."""
        return not self.ids.shape[1:]

    @property
    def markers(self) -> int:
        """Number of markers of a record: `<S>` and `<E>`, or only `<S>` before features."""
        return 2 if self.cuttable else 1

    def record(self, number: int) -> Array:
        """Return the ids of one record, with markers."""
        if not 0 <= number < self.records:
            raise IndexError(f"record must lie in [0, {self.records}), got {number}")
        return np.asarray(self.ids[self.offsets[number] : self.offsets[number + 1]])

    def take(self, records: Array) -> Shard:
        """Return a copy in memory of the given records; symbols and bytes are not counted."""
        starts = self.offsets[records]
        lengths = self.offsets[records + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        targets = self.targets
        if targets is not None:
            targets = targets[positions if self.aligned else records]
        return replace(
            self,
            ids=np.asarray(self.ids[positions]),
            offsets=offsets,
            records=len(lengths),
            tokens=int(offsets[-1]),
            symbols=0,
            bytes=0,
            source=self.source and self.source.take(records),
            targets=targets,
        )

    def record_of(self, positions: Array) -> Array:
        """Return the record number of each index into `ids`."""
        return np.searchsorted(self.offsets, positions, side="right") - 1

    def lengths(self) -> Iterator[tuple[int, Array]]:
        """Yield (first record, tokens per record with markers) for chunks of records."""
        for first in range(0, self.records, CHUNK):
            lengths = np.diff(self.offsets[first : min(first + CHUNK, self.records) + 1])
            if lengths.min() < 2:
                raise damaged(_files(self.path)[1], "a record must hold its two markers")
            yield first, lengths
