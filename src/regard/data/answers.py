"""What is asked of the records of a shard, beside it: `STEM.targets.bin` and `STEM.targets.json`.

The numbers are those of `Targets.encode`, little-endian: a class for every record (`label`), a row
of n for every record (`labels`, `value`), or a class for every token of the shard, -1 at `<S>` and
`<E>` (`position-label`), so that the shard's own offsets cut them. The JSON file holds type, shape
and checksum, and is renamed into place last.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from regard.data.columns import Array, Column, damaged, map_file, verify_file
from regard.data.targets import Targets
from regard.documents import read_json
from regard.errors import UserError
from regard.schemas import TargetFile

FORMAT = 1
DTYPES = {"label": "<i4", "labels": "|i1", "value": "<f4", "position-label": "<i2"}


class AnswerWriter:
    """Writes the targets of the shard with stem `path`, piece by piece; `close` gives them their
    names, `abort` leaves nothing.
    """

    def __init__(self, path: Path, targets: Targets) -> None:
        self.path, self.targets, self.count = Path(path), targets, 0
        self._columns: list[Column] = []
        try:
            self._columns = [Column(file) for file in _files(self.path)]
        except OSError as error:
            self.abort()
            raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error

    def add(
        self,
        cells: Sequence[tuple[str, ...]],
        lengths: Array,
        place: Callable[[int], str] | None,
        markers: int = 2,
    ) -> None:
        """Append the targets of records that have so many tokens each, markers not counted, of
        which there are two around each record, or `<S>` alone.
        """
        values = self.targets.encode(cells)
        if self.targets.task == "position-label":
            values = self._placed(cells, values, lengths, place, markers)
        self.write(values)

    def write(self, values: Array) -> None:
        """Append targets as they are stored: those of `read_answers`."""
        try:
            self._columns[0].write(values.astype(DTYPES[self.targets.task]))
        except OSError as error:
            self.abort()
            raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
        self.count += len(values)

    def _placed(
        self,
        cells: Sequence[tuple[str, ...]],
        values: Array,
        lengths: Array,
        place: Callable[[int], str] | None,
        markers: int,
    ) -> Array:
        """Classes of positions with -1 at the markers around every record."""
        wanted = np.array([len(row[0]) for row in cells])
        wrong = np.flatnonzero(wanted != lengths)
        if len(wrong):
            i = int(wrong[0])
            where = f"{place(i)}: " if place else ""
            raise UserError(
                f"{where}{wanted[i]:,} labels of positions, but {lengths[i]:,} tokens; choose "
                "tokens of one symbol each: characters, nucleotides, residues; of points, all "
                "(tokens.samples=0)"
            )
        return marked(values, wanted, markers)

    def close(self) -> None:
        """Finish the files and give them their names, the JSON file last."""
        numbers, facts = self._columns
        shape = [self.count]
        if self.targets.task in ("labels", "value"):
            shape.append(len(self.targets.names))
        document = {
            "format": FORMAT,
            "task": self.targets.task,
            "shape": shape,
            "blake2b": numbers.digest.hexdigest(),
        }
        try:
            facts.write(np.frombuffer((json.dumps(document) + "\n").encode(), np.uint8))
            for column in self._columns:
                column.finish()
            facts.path.unlink(missing_ok=True)  # older targets stop being some before they change
            for column in self._columns:
                os.replace(column.temporary, column.path)
        except OSError as error:
            self.abort()
            raise UserError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._columns = []

    def abort(self) -> None:
        """Give up: remove everything written so far."""
        columns, self._columns = self._columns, []
        for column in columns:
            column.discard()


def marked(values: Array, lengths: Array, markers: int = 2) -> Array:
    """Classes of positions, of records that have so many each, with -1 at the markers around: two,
    or `<S>` alone.
    """
    found = np.full(len(values) + markers * len(lengths), -1, np.dtype("<i2"))
    inside = np.ones(len(found), bool)
    ends = np.cumsum(lengths + markers)
    inside[ends - lengths - markers] = False
    if markers == 2:
        inside[ends - 1] = False
    found[inside] = values
    return found


def _files(path: Path) -> tuple[Path, Path]:
    return path.with_name(path.name + ".targets.bin"), path.with_name(path.name + ".targets.json")


def read_answers(path: Path, records: int, tokens: int, *, verify: bool = False) -> Array:
    """Map the targets of the shard with stem `path`, which has so many records and tokens."""
    numbers, facts_file = _files(path)
    facts = read_json(facts_file, TargetFile)
    task, shape, sum_ = facts["task"], facts["shape"], facts["blake2b"]
    dtype = np.dtype(DTYPES[task])
    expected = tokens if task == "position-label" else records
    width = shape[1:] or [1]
    if shape[:1] != [expected] or not 1 <= width[0] <= 100_000:
        raise damaged(facts_file, f"its shape must begin with {expected}, got {shape}")
    found = map_file(numbers, dtype, expected * width[0])
    if verify:
        verify_file(numbers, sum_)
    return found.reshape(shape)
