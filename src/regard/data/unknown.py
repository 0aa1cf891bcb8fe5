"""Symbols that a tokenizer does not know, or reads as others: how many, which, in which records."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from regard.data.sides import Piece
from regard.errors import UserError
from regard.tokens import Tokenizer
from regard.tokens.tokenizer import Ids

LOOKED_INTO = 1000  # records of which it is said what is unknown in them
SHOWN = 5  # symbols, and records, that are named


class Unknown:
    """What is unknown on one side of the data; `strict` allows nothing."""

    def __init__(self, tokenizer: Tokenizer, strict: bool) -> None:
        self.tokenizer, self.strict = tokenizer, strict
        self.count = self.records = 0
        self.symbols: Counter[str] = Counter()  # of the records that were looked into
        self.changed: Counter[str] = Counter()
        self.places: list[str] = []

    def note(self, piece: Piece, ids: Ids, lengths: Ids) -> None:
        """Take account of a piece and the ids it became; a UserError names the record, if strict.

        Records are counted piece by piece, so that of running text each piece counts as one.
        """
        self.changed += self.tokenizer.changed(piece.texts)
        totals = np.concatenate([[0], np.cumsum(ids == self.tokenizer.unk)])
        found = np.diff(totals[np.cumsum(lengths)], prepend=0)  # (R,)
        self.count += int(totals[-1])
        for number in np.flatnonzero(found).tolist():
            self.records += 1
            if self.records > LOOKED_INTO:
                continue
            place = piece.place(number) if piece.place else "running text"
            symbols = self.tokenizer.unknown(piece.texts[number])
            if self.strict:
                raise UserError(
                    f"{place}: unknown to {self.tokenizer.kind}: {_listed(symbols)}; "
                    "with tokens.strict no record may have any"
                )
            self.symbols += symbols
            if len(self.places) < SHOWN:
                self.places.append(f"{place} ({int(found[number]):,})")

    def facts(self) -> dict[str, Any]:
        """For the manifest and regard.json."""
        return {
            "unknown": self.count,
            "unknown_records": self.records,
            "unknown_symbols": dict(self.symbols.most_common(20)),
            "unknown_places": self.places,
            "read_as_others": dict(self.changed),
        }

    def words(self, side: str) -> list[str]:
        """What there is to say of this side, line by line."""
        lines = []
        if self.count:
            lines.append(
                f"unknown in {self.records:,} records of {side}: {_listed(self.symbols)}; "
                + ", ".join(self.places)
                + (", …" if self.records > SHOWN else "")
            )
        if self.changed:
            lines.append(
                f"{self.changed.total():,} symbols of {side} are read as others: "
                + _listed(self.changed, str)
            )
        return lines


def _listed(symbols: Counter[str], show: Any = repr) -> str:
    """The most frequent, with their numbers."""
    parts = [f"{show(symbol)} × {n:,}" for symbol, n in symbols.most_common(SHOWN)]
    return ", ".join(parts) + (", …" if len(symbols) > SHOWN else "") or "symbols it cannot name"
