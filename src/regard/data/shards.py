"""The files of a shard: written under a temporary name with a running checksum, mapped to read.

Token shards: all the ids of a data set in one flat file, written once, memory-mapped ever after.

A shard is three files: `STEM.ids.bin` (the ids of all records, little-endian, each record stored as
`<S> ids <E>`), `STEM.offsets.bin` (int64, where each record begins, and the end) and `STEM.json`
(sizes, counts and checksums). Of images and point clouds, a token is not one of V ids but V
numbers, stored end to end, and a record is `<S> tokens`. The JSON file is renamed into place last:
a shard without it was never finished. Nothing here ever holds more than a chunk in memory, so
shards may exceed RAM.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from regard.errors import UserError
from regard.schemas import ShardFile
from regard.storage import read_json

CHUNK = 1 << 20  # tokens or offsets worked on at once: a few tens of MB with all temporaries

Array = NDArray[Any]


class ArrayFile:
    """One file being written: a temporary name, a running checksum."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
        self.digest = blake2b()
        self.file: BinaryIO = open(self.temporary, "wb")  # noqa: SIM115 - outlives this call

    def write(self, values: Array) -> None:
        """Append values."""
        data = np.ascontiguousarray(values).view(np.uint8).data
        self.digest.update(data)
        self.file.write(data)

    def finish(self) -> None:
        """Put all of it on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()

    def discard(self) -> None:
        """Remove the file, though a full disk makes close fail too, when it flushes."""
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
    """Something is wrong with a file of a shard."""
    return UserError(f"{file} is damaged: {why}; delete the shard and build it again")


def map_file(file: Path, dtype: np.dtype[Any], size: int) -> Array:
    """A file of so many numbers, mapped; another size is an error."""
    try:
        found, wanted = file.stat().st_size, size * dtype.itemsize
        if found != wanted:
            raise damaged(file, f"it must hold {wanted} bytes, got {found}")
        return np.memmap(file, dtype=dtype, mode="r") if size else np.empty(0, dtype=dtype)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from error


def verify_file(file: Path, expected: str) -> None:
    """Read all of a file; another checksum is an error."""
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


class TokenTable(Protocol):
    """What shards and batches need to know of a tokenizer."""

    @property
    def dtype(self) -> DTypeLike:
        """The type that holds every id, or every number of a token."""

    @property
    def vocab_size(self) -> int:
        """V: ids lie in [0, V)."""

    @property
    def start(self) -> int:
        """The id of `<S>`."""

    @property
    def end(self) -> int:
        """The id of `<E>`."""

    @property
    def pad(self) -> int:
        """The id that fills rows up."""

    @property
    def symbols(self) -> Array:
        """(V,) raw symbols each token stands for."""

    @property
    def byte_counts(self) -> Array:
        """(V,) bytes each token stands for."""


def _files(path: Path) -> tuple[Path, Path, Path]:
    """The ids, offsets and JSON files of the shard with this stem."""
    ids, offsets, facts = (
        path.with_name(path.name + end) for end in (".ids.bin", ".offsets.bin", ".json")
    )
    return ids, offsets, facts


class ShardWriter:
    """Writes the shard with stem `path`, piece by piece, in a `with` statement.

    Nothing is visible under the final names until the block ends; if it ends in an error, or the
    disk is full, nothing is left behind. A shard holds either records (`add`) or running text
    (`begin_text`, `add_text`, `end_text`), not both. Ids come without markers.
    """

    def __init__(self, path: Path, tokenizer: TokenTable) -> None:
        self.path = Path(path)
        self.dtype = np.dtype(tokenizer.dtype).newbyteorder("<")
        if self.dtype.name not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, got {self.dtype.name}")
        self.tokenizer = tokenizer
        self.kind = ""
        self.records = self.tokens = self.symbols = self.bytes = 0
        self.width = 0  # numbers that a token is; 0: an id
        self._document = False  # inside begin_text ... end_text
        self._columns: list[ArrayFile] = []
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for name in _files(self.path):
                self._columns.append(ArrayFile(name))
            self._columns[1].write(np.zeros(1, dtype="<i8"))
        except OSError as error:
            self._fail(error)

    def add(self, ids: Array, lengths: Array) -> None:
        """Append records: `ids` holds them end to end, `lengths` (R,) says where they part. Tokens
        of several numbers, (N, V), bring their own markers.
        """
        ids, lengths = np.asarray(ids), np.asarray(lengths, dtype=np.int64)
        self._expect("records")
        if (lengths.size and lengths.min() < 0) or lengths.sum() != len(ids):
            raise ValueError(
                f"lengths must be at least 0 and add up to the {len(ids)} ids, "
                f"got a sum of {lengths.sum()}"
            )
        ends = np.cumsum(lengths)
        first = done = 0  # records and ids already written
        while first < lengths.size:
            last = max(first + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
            stop = int(ends[last - 1])
            self._add_chunk(ids[done:stop], lengths[first:last])
            first, done = last, stop

    def begin_text(self) -> None:
        """Open a document of running text."""
        self._expect("text")
        if self._document:
            raise ValueError("begin_text called twice; end_text closes the document before it")
        self._document = True
        self._write(0, np.array([self.tokenizer.start], dtype=self.dtype))
        self.tokens += 1

    def add_text(self, ids: Array) -> None:
        """Append the next piece of the open document."""
        self._expect("text")
        if not self._document:
            raise ValueError("add_text needs an open document; call begin_text first")
        ids = np.asarray(ids)
        self._count(ids)
        self._write(0, ids.astype(self.dtype, copy=False))
        self.tokens += ids.size

    def end_text(self) -> None:
        """Close the document."""
        self._expect("text")
        if not self._document:
            raise ValueError("end_text needs an open document; call begin_text first")
        self._document = False
        self._write(0, np.array([self.tokenizer.end], dtype=self.dtype))
        self.tokens += 1
        self.records += 1
        self.symbols += 1
        self._write(1, np.array([self.tokens], dtype="<i8"))

    def close(self) -> None:
        """Finish the files and give them their names, the JSON file last."""
        if self._document:
            self.abort()
            raise ValueError("close called inside a document; call end_text first")
        if not self._columns:
            return
        ids, offsets, facts = self._columns
        header = {"format": FORMAT, "kind": self.kind or "records", "dtype": self.dtype.name}
        counts = {"vocab_size": self.tokenizer.vocab_size}
        counts |= {name: getattr(self, name) for name in COUNTS[1:]}
        counts |= {"width": self.width} if self.width else {}
        sums = {
            "ids_blake2b": ids.digest.hexdigest(),
            "offsets_blake2b": offsets.digest.hexdigest(),
        }
        text = json.dumps(header | counts | sums, indent=1) + "\n"
        try:
            facts.write(np.frombuffer(text.encode(), dtype=np.uint8))
            for column in self._columns:
                column.finish()
            facts.path.unlink(missing_ok=True)  # an older shard stops being one before it changes
            for column in self._columns:
                os.replace(column.temporary, column.path)
            sync_folder(self.path.parent)
        except OSError as error:
            self._fail(error)
        self._columns = []

    def abort(self) -> None:
        """Give up: remove everything written so far."""
        columns, self._columns = self._columns, []
        for column in columns:
            column.discard()

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
            self._add_numbers(ids, lengths)
            return
        self._count(ids)
        ends = np.cumsum(lengths + 2)
        out = np.empty(ids.size + 2 * lengths.size, dtype=self.dtype)
        content = np.ones(out.size, dtype=bool)
        for marker, places in (
            (self.tokenizer.start, ends - lengths - 2),
            (self.tokenizer.end, ends - 1),
        ):
            out[places] = marker
            content[places] = False
        out[content] = ids
        self._write(0, out)
        self._write(1, (ends + self.tokens).astype("<i8"))
        self.tokens += out.size
        self.records += lengths.size
        self.symbols += lengths.size

    def _add_numbers(self, ids: Array, lengths: Array) -> None:
        """Records of tokens that are V numbers each."""
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
                wrong = low if low < 0 else high
                raise ValueError(f"ids must lie in [0, {self.tokenizer.vocab_size}), got {wrong}")
            self.symbols += int(self.tokenizer.symbols[part].sum())
            self.bytes += int(self.tokenizer.byte_counts[part].sum())

    def _write(self, column: int, values: Array) -> None:
        try:
            self._columns[column].write(values)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> NoReturn:
        self.abort()
        raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error


@dataclass(frozen=True, eq=False)
class Shard:
    """A finished shard: `ids` (tokens,), or (tokens, V) where tokens are V numbers each, and
    `offsets` (records + 1,) are read-only memory maps.

    `kind` is records or text, or blocks of text that a sample took out of it (`data.sample`).
    `symbols` counts raw symbols plus one `<E>` per record, `bytes` the bytes they stand for. Where
    records answer others (pairs), `source` holds those: its record i is the source of record i (of
    labelled pairs of texts, the second one). `targets` is what is asked of them, as `answers` says;
    so many `views` of one follow each other, each a record here.
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
    aligned: bool = False  # targets are one for each token
    views: int = 1

    @classmethod
    def open(cls, path: Path, *, verify: bool = False) -> Shard:
        """Map the shard with stem `path`; a missing or damaged file is a UserError naming it.

        Sizes are always checked before anything is mapped; `verify` also reads every byte and
        checks the checksums.
        """
        path = Path(path)
        ids_file, offsets_file, facts_file = _files(path)
        facts = read_json(facts_file, ShardFile)
        dtype = np.dtype(facts["dtype"]).newbyteorder("<")
        width = facts.get("width", 0)
        ids = map_file(ids_file, dtype, facts["tokens"] * max(1, width))
        ids = ids.reshape(-1, width) if width else ids
        offsets = map_file(offsets_file, np.dtype("<i8"), facts["records"] + 1)
        if offsets[0] != 0 or offsets[-1] != len(ids):
            raise damaged(offsets_file, f"must run from 0 to {len(ids)}")
        if verify:
            verify_file(ids_file, facts["ids_blake2b"])
            verify_file(offsets_file, facts["offsets_blake2b"])
        counts = {name: facts[name] for name in COUNTS}
        return cls(path=path, kind=facts["kind"], ids=ids, offsets=offsets, **counts)

    def paired(self, source: Shard) -> Shard:
        """This shard with the sources of its records."""
        if source.records != self.records:
            raise UserError(
                f"{source.path} must hold as many records as {self.path}, "
                f"got {source.records:,} and {self.records:,}; build both again"
            )
        return replace(self, source=source)

    @property
    def cuttable(self) -> bool:
        """Whether records are tokens, which may be cut to a context; features may not."""
        return not self.ids.shape[1:]

    @property
    def markers(self) -> int:
        """How many markers surround a record: `<S>` and `<E>`, or `<S>` before features."""
        return 2 if self.cuttable else 1

    def record(self, number: int) -> Array:
        """The ids of one record, markers included."""
        if not 0 <= number < self.records:
            raise IndexError(f"record must lie in [0, {self.records}), got {number}")
        return np.asarray(self.ids[self.offsets[number] : self.offsets[number + 1]])

    def take(self, records: Array) -> Shard:
        """These records alone, in this order and in memory; their symbols are not counted."""
        starts = self.offsets[records]
        lengths = self.offsets[records + 1] - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        targets = self.targets
        if targets is not None:
            targets = targets[places if self.aligned else records]
        return replace(
            self,
            ids=np.asarray(self.ids[places]),
            offsets=offsets,
            records=len(lengths),
            tokens=int(offsets[-1]),
            symbols=0,
            bytes=0,
            source=self.source and self.source.take(records),
            targets=targets,
        )

    def record_of(self, positions: Array) -> Array:
        """The record that each index into `ids` lies in."""
        return np.searchsorted(self.offsets, positions, side="right") - 1

    def lengths(self) -> Iterator[tuple[int, Array]]:
        """(first record, tokens per record, markers included), a chunk of records at a time."""
        for first in range(0, self.records, CHUNK):
            lengths = np.diff(self.offsets[first : min(first + CHUNK, self.records) + 1])
            if lengths.min() < 2:
                raise damaged(_files(self.path)[1], "a record must hold its two markers")
            yield first, lengths
