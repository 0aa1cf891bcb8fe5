"""What a user should know of the records that a model is applied to: a note for each, and counts.

A note says that a record could not be read, is empty, is longer than what the model reads, has
symbols that the tokenizer does not know, or is not what its symbols stand for, such as a SMILES
that RDKit cannot parse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from regard.data.inputs import Item
from regard.data.shards import Shard
from regard.errors import UserError
from regard.tokens import Patches, Points, Tokenizer

SHOWN = 3  # unknown symbols that a note names
# What is counted, in words: of one record, and of more.
KINDS = {
    "damaged": ("could not be read", "could not be read"),
    "empty": ("is empty", "are empty"),
    "long": ("is longer than the model's context", "are longer than the model's context"),
    "unknown": ("has unknown symbols", "have unknown symbols"),
    "invalid": ("is not valid", "are not valid"),
}


@dataclass(frozen=True)
class Room:
    """The most tokens of a record that a model uses; of a longer one it uses `used` of them."""

    tokens: int
    used: int
    end: str = "first"  # or last

    def note(self, tokens: int) -> str:
        """What becomes of a record of so many tokens, if it is too long."""
        if tokens <= self.tokens:
            return ""
        return f"truncated: {tokens:,} tokens, the model reads the {self.end} {self.used:,}"


@dataclass
class Notes:
    """Notes on records, batch by batch, and how many there are of each kind.

    `room` is None where a model reads records of any length. `empty` says whether an empty record
    has a note.
    """

    tokenizer: Tokenizer
    room: Room | None = None
    seconds: Tokenizer | None = None  # that of the second texts, where they are targets
    empty: bool = True
    records: int = 0
    noted: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def of(self, items: Sequence[Item]) -> list[str]:
        """The note of each record, "" where there is nothing to say."""
        found: list[dict[str, str]] = [{} for _ in items]
        texts = [i for i, item in enumerate(items) if self._readable(item, found[i])]
        if texts and not isinstance(self.tokenizer, Patches | Points):
            self._look(items, texts, found)
        for item, kinds in zip(items, found, strict=True):
            self.records += 1
            self.noted += bool(kinds)
            for kind, words in kinds.items():
                self.counts[kind] = self.counts.get(kind, 0) + 1
                self.first.setdefault(kind, f"{item.id} ({words})")
        return ["; ".join(kinds.values()) for kinds in found]

    def _readable(self, item: Item, found: dict[str, str]) -> bool:
        """Is there something to look into? What there is to say otherwise goes to `found`."""
        if item.note:
            found["damaged"] = item.note
        elif isinstance(item.text, str) and not item.text.strip():
            if self.empty:
                found["empty"] = "empty"
        else:
            return True
        return False

    def _look(self, items: Sequence[Item], places: list[int], found: list[dict[str, str]]) -> None:
        """What the tokenizer makes of texts, and what is wrong with what they stand for."""
        texts = [items[i].text for i in places]
        lengths = self._unknown(self.tokenizer, texts, places, found)
        twice = [items[i].second for i in places]
        if any(twice):
            more = self._unknown(self.seconds or self.tokenizer, twice, places, found)
            lengths = lengths if self.seconds else lengths + more + 1
        for i, length in zip(places, lengths.tolist(), strict=True):
            if self.room and (words := self.room.note(length)):
                found[i]["long"] = words
        for i, words in zip(places, self.tokenizer.problems(texts), strict=True):
            if words:
                found[i]["invalid"] = words

    def _unknown(
        self,
        tokenizer: Tokenizer,
        texts: Sequence[str],
        places: Sequence[int],
        found: list[dict[str, str]],
    ) -> np.ndarray:
        """(R,) tokens of texts; those that have unknown ones are noted."""
        ids, lengths = tokenizer.encode_batch(list(texts))
        totals = np.concatenate([[0], np.cumsum(ids == tokenizer.unk)])
        unknown = np.diff(totals[np.cumsum(lengths)], prepend=0)  # (R,)
        for i in np.flatnonzero(unknown).tolist():
            symbols = tokenizer.unknown(texts[i]).most_common(SHOWN)
            shown = ", ".join(f"{symbol[:20]!r}" for symbol, _ in symbols)
            words = f"{unknown[i]:,} of {lengths[i]:,} symbols unknown"
            found[places[i]].setdefault("unknown", words + (f": {shown}" if shown else ""))
        return np.asarray(lengths)

    def of_shard(self, shard: Shard) -> None:
        """Count the records of a shard that are too long or have unknown symbols; numbers, of
        which images are made, have neither.
        """
        if shard.ids.ndim == 2:
            return
        offsets, every = np.asarray(shard.offsets), shard.views
        unknown = np.add.reduceat(np.asarray(shard.ids) == self.tokenizer.unk, offsets[:-1])
        lengths = np.diff(offsets) - 2  # without markers
        if shard.source is not None:
            lengths = lengths + np.diff(np.asarray(shard.source.offsets)) - 1
        unknown, lengths = unknown[::every], lengths[::every]
        long = lengths > (self.room.tokens if self.room else np.inf)
        self.records += len(lengths)
        self.noted += int(np.count_nonzero(long | (unknown > 0)))
        for kind, which in (("long", long), ("unknown", unknown > 0)):
            if not which.any():
                continue
            i = int(np.flatnonzero(which)[0])
            words = f"{unknown[i]:,} of {lengths[i]:,} symbols unknown"
            if kind == "long" and self.room:
                words = self.room.note(int(lengths[i]))
            self.counts[kind] = int(np.count_nonzero(which))
            self.first[kind] = f"record {i + 1:,} ({words})"

    def lines(self) -> list[str]:
        """How many records have a note, a line for each kind, with the first."""
        return [
            f"{n:,} of {self.records:,} records {KINDS[kind][n > 1]}; first: {self.first[kind]}"
            for kind, n in self.counts.items()
        ]

    def refuse(self) -> None:
        """A UserError if any record has a note."""
        if self.noted:
            raise UserError(f"{self.noted:,} of {self.records:,} records have notes (--strict)")
