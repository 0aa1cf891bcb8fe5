"""The files of a recipe as a stream of pieces, each of them for training, validation or test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.pairs import Pairs
from regard.data.readers import Files, Source
from regard.data.splits import assign, cut_points, leaks
from regard.errors import UserError
from regard.recipe import DataRecipe

SIDES = ("train", "valid", "test")
SPARED = 3  # the side of training data beyond data.train_fraction: it gives words, nothing else
SPARING = 1  # the seed of the hash that spares it: fractions of one set lie in one another

Say = Callable[[str], None]


@dataclass(frozen=True)
class Piece:
    """Some records, or a stretch of one document of running text with its borders marked.

    Of pairs, `texts` are the targets and `sources` what they answer.
    """

    side: int
    texts: Sequence[str]
    begins: bool = False
    ends: bool = False
    sources: Sequence[str] = ()


class Sources:
    """The files of a recipe as pieces that know their side; for the task `target`, pairs.

    Pairs are split, and looked for in training, by their sources: a source that training has seen
    leaks whatever its target.
    """

    def __init__(self, recipe: DataRecipe, task: str = "next") -> None:
        if not recipe.train:
            raise UserError("data.train names no file")
        self.recipe, self.paired = recipe, task == "target"
        self.train = self._open(recipe.train, recipe.format)
        self.given = [
            self._open(paths, self.train.format) if paths else None
            for paths in (recipe.valid, recipe.test)
        ]
        self.fractions = [
            0.0 if given else share
            for given, share in zip(
                self.given, (recipe.valid_fraction, recipe.test_fraction), strict=True
            )
        ]

    def _open(self, paths: Sequence[str], format: str) -> Files:
        recipe, files = self.recipe, [Path(p) for p in paths]
        if self.paired:
            columns = recipe.input, recipe.target
            return Pairs(files, format=format, columns=columns, strict=recipe.strict)
        return Source(files, format=format, column=recipe.input, strict=recipe.strict)

    @property
    def text(self) -> bool:
        """Is it running text?"""
        return self.train.format == "text"

    def pieces(self) -> Iterator[Piece]:
        """Everything, in order."""
        if self.text:
            yield from self._cut()
            for side, source in enumerate(self.given, start=1):
                for document in source.documents() if source else ():
                    yield Piece(side, (), begins=True)
                    yield from (Piece(side, [text]) for text in document.text())
                    yield Piece(side, (), ends=True)
            return
        for chunk in self.train.records():
            sides = assign(chunk.keys, self.fractions[0], self.fractions[1])
            if self.recipe.train_fraction < 1:
                share = 1 - self.recipe.train_fraction
                sides[(sides == 0) & (assign(chunk.keys, 0.0, share, SPARING) > 0)] = SPARED
            for side in np.unique(sides).tolist():
                chosen = np.flatnonzero(sides == side).tolist()
                texts = [chunk.texts[i] for i in chosen]
                yield Piece(side, texts, sources=[chunk.sources[i] for i in chosen if self.paired])
        for side, source in enumerate(self.given, start=1):
            for chunk in source.records() if source else ():
                yield Piece(side, chunk.texts, sources=chunk.sources)

    def _cut(self) -> Iterator[Piece]:
        """Running text, its end held out: a stretch of a document on one side is one there."""
        total = sum(len(text) for text in self.train.text())
        first, second = cut_points(total, *self.fractions)
        used = round(first * self.recipe.train_fraction)
        stretches = [(used, 0), (first, SPARED), (second, 1), (total, 2)]
        at, number = 0, 0
        for document in self.train.documents():
            opened = False
            for text in document.text():
                while text:
                    while number < 3 and at >= stretches[number][0]:
                        if opened:
                            yield Piece(stretches[number][1], (), ends=True)
                            opened = False
                        number += 1
                    border, side = stretches[number]
                    if not opened:
                        yield Piece(side, (), begins=True)
                        opened = True
                    part = text[: border - at]
                    yield Piece(side, [part])
                    at, text = at + len(part), text[len(part) :]
            if opened:
                yield Piece(side, (), ends=True)

    def leave_something(self, say: Say) -> None:
        """Where so few records are that all would be held out, all of them train instead."""
        if any(self.fractions) and not any(p.side == 0 and p.texts for p in self.pieces()):
            self.fractions = [0.0, 0.0]
            say("too little data to hold any out: all of it trains, nothing measures")

    def fingerprints(self) -> dict[str, str]:
        """A hash of every side's files."""
        sources = zip(SIDES, (self.train, *self.given), strict=True)
        return {name: source.fingerprint() for name, source in sources if source is not None}

    def leaks(self) -> dict[str, Any]:
        """Records (of pairs, sources) of given validation and test files that training has too."""
        found = {}
        for name, source in zip(SIDES[1:], self.given, strict=True):
            if source is not None and not self.text:
                train = (chunk.keys for chunk in self.train.records())
                leak = leaks(train, (chunk.keys for chunk in source.records()))
                found[name] = {"records": leak.records, "examples": list(leak.examples)}
        return found
