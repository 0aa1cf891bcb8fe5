"""From files to shards: read, split, learn the tokens on the training part, encode everything once.

What comes out is memory-mapped, so the data may be larger than memory; what goes in is streamed.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.readers import Source
from regard.data.shards import Shard, ShardWriter
from regard.data.splits import assign, cut_points, leaks
from regard.errors import UserError
from regard.recipe import DataRecipe, TokensRecipe
from regard.run import TOKENIZER, read_json, replacing, sweep, write_json
from regard.tokens import KINDS, Tokenizer, load

FOLDER, MANIFEST = "data", "manifest.json"
SIDES = ("train", "valid", "test")
SPARED = 3  # the side of training data beyond data.train_fraction: it gives words, nothing else
SPARING = 1  # the seed of the hash that spares it: fractions of one set lie in one another
LONGEST_WORD = 1 << 20  # characters without a space that are still held together
LEARN_FROM = 100_000_000  # characters that a subword vocabulary is learned from at most
SLOW = 200 << 20  # bytes from which reading is announced
QUIET = 15.0  # seconds of reading between two signs of life

Say = Callable[[str], None]


@dataclass(frozen=True)
class Corpus:
    """A tokenizer and the shards it made; an empty side is None. `facts` are for regard.json."""

    tokenizer: Tokenizer
    train: Shard
    valid: Shard | None
    test: Shard | None
    facts: dict[str, Any]

    def side(self, name: str) -> Shard | None:
        """The shard called train, valid or test."""
        found: Shard | None = getattr(self, name)
        return found


@dataclass(frozen=True)
class Piece:
    """Some records, or a stretch of one document of running text with its borders marked."""

    side: int
    texts: Sequence[str]
    begins: bool = False
    ends: bool = False


class Sources:
    """The files of a recipe as pieces that know their side."""

    def __init__(self, recipe: DataRecipe) -> None:
        if not recipe.train:
            raise UserError("data.train names no file")
        self.recipe = recipe
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

    def _open(self, paths: Sequence[str], format: str) -> Source:
        return Source(
            [Path(p) for p in paths],
            format=format,
            column=self.recipe.input,
            strict=self.recipe.strict,
        )

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
            sides = assign(chunk.texts, self.fractions[0], self.fractions[1])
            if self.recipe.train_fraction < 1:
                share = 1 - self.recipe.train_fraction
                sides[(sides == 0) & (assign(chunk.texts, 0.0, share, SPARING) > 0)] = SPARED
            for side in np.unique(sides).tolist():
                chosen = np.flatnonzero(sides == side).tolist()
                yield Piece(side, [chunk.texts[i] for i in chosen])
        for side, source in enumerate(self.given, start=1):
            for chunk in source.records() if source else ():
                yield Piece(side, chunk.texts)

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
        """Records of given validation and test files that also occur in training."""
        found = {}
        for name, source in zip(SIDES[1:], self.given, strict=True):
            if source is not None and not self.text:
                train = (chunk.texts for chunk in self.train.records())
                leak = leaks(train, (chunk.texts for chunk in source.records()))
                found[name] = {"records": leak.records, "examples": list(leak.examples)}
        return found


def prepare(
    data: DataRecipe, tokens: TokensRecipe, run: Path, say: Say, *, fixed: bool = False
) -> Corpus:
    """Tokenise once into RUN/data; what is there for the same files and settings is used again.

    `fixed` says that a checkpoint depends on it: then the files must still hold the same bytes.
    """
    sources = Sources(data)
    key = {
        "data": _plain(dataclasses.asdict(data)),
        "tokens": dataclasses.asdict(tokens),
        "files": [
            [str(file), file.stat().st_size, file.stat().st_mtime_ns]
            for source in (sources.train, *sources.given)
            if source
            for file in source.files
        ],
    }
    folder = run / FOLDER
    stored = _stored(folder / MANIFEST)
    if stored is not None:
        same = stored["key"] == key
        if fixed and not same:
            same = stored["facts"]["fingerprints"] == sources.fingerprints()
            if not same:
                raise UserError(
                    f"the data of {run} has changed since its checkpoint was written "
                    f"({', '.join(map(str, sources.train.files[:3]))}): train a new run"
                )
        try:
            if same:
                return reopen(run, verify=True)
        except UserError as error:
            say(f"{error}")
    if sources.train.size > SLOW:
        say(f"reading and tokenising {sources.train.size / 2**30:.1f} GB once")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        (folder / MANIFEST).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None
    sources.leave_something(say)
    tokenizer = KINDS[tokens.kind].train(_training_texts(sources, tokens.kind), tokens.size)
    counts = _encode(sources, tokenizer, folder, say)
    with replacing(run / TOKENIZER) as temporary:
        tokenizer.save(temporary)
    facts = {
        "format": sources.train.format,
        "why": sources.train.why,
        "fingerprints": sources.fingerprints(),
        "skipped": sources.train.skipped,
        "problems": sources.train.problems,
        "blank": sources.train.blank,
        "leaks": sources.leaks(),
        **counts,
    }
    write_json(folder / MANIFEST, {"key": key, "facts": facts})
    return reopen(run)


def _stored(manifest: Path) -> dict[str, Any] | None:
    """The manifest of data tokenised before; None if there is none, or a damaged one."""
    try:
        stored = read_json(manifest)
        return (
            stored
            if {"key", "facts"} <= set(stored) and "fingerprints" in stored["facts"]
            else None
        )
    except (UserError, TypeError):
        return None


def reopen(run: Path, *, verify: bool = False) -> Corpus:
    """The corpus that `prepare` left in a run folder; `verify` reads all of it to check it."""
    folder = run / FOLDER
    manifest = read_json(folder / MANIFEST)
    try:
        facts = manifest["facts"]
        held = {name: facts["sides"][name]["records"] for name in SIDES}
    except (KeyError, TypeError):
        raise UserError(f"{folder / MANIFEST} is damaged: it does not say what is held") from None
    shards = {
        name: Shard.open(folder / name, verify=verify) if records else None
        for name, records in held.items()
    }
    train = shards["train"]
    if train is None:
        raise UserError(
            "nothing is left to train on after the split; give more data or smaller fractions"
        )
    return Corpus(load(run / TOKENIZER), train, shards["valid"], shards["test"], facts)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _training_texts(sources: Sources, kind: str) -> Iterator[str]:
    """What the vocabulary may be learned from: the training side only."""
    taken = 0
    for piece in sources.pieces():
        if piece.side in (0, SPARED):
            yield from piece.texts
            taken += sum(map(len, piece.texts))
            if kind == "bpe" and taken > LEARN_FROM:
                return


def _at_spaces(pieces: Iterable[Piece], dropped: int) -> Iterator[Piece]:
    """Running text cut between a word and a space instead of anywhere: no word becomes two.

    `dropped` characters of that space are left out, where encoding puts one before every text.
    """
    held = ""
    for piece in pieces:
        if piece.texts:
            text = held + "".join(piece.texts)
            at = text.rfind(" ")
            while at > 0 and text[at - 1].isspace():  # a run of white space stays whole
                at = text.rfind(" ", 0, at)
            if at <= 0 or len(text) - at > LONGEST_WORD:
                yield Piece(piece.side, [text])
                held = ""
            else:
                yield Piece(piece.side, [text[:at]])
                held = text[at + dropped :]
            continue
        if piece.ends and held:
            yield Piece(piece.side, [held])
            held = ""
        yield piece


def _encode(sources: Sources, tokenizer: Tokenizer, folder: Path, say: Say) -> dict[str, Any]:
    """Write the three shards; count what each side holds and what of it is unknown."""
    writers = [ShardWriter(folder / name, tokenizer) for name in SIDES]
    unknown, done, told = [0, 0, 0], 0, time.monotonic()
    try:
        stream = sources.pieces()
        for piece in _at_spaces(stream, len(tokenizer.prefix)) if sources.text else stream:
            if piece.side == SPARED:
                continue
            writer = writers[piece.side]
            done += sum(map(len, piece.texts))
            if time.monotonic() - told > QUIET:
                told = time.monotonic()
                say(f"tokenised {done:,} characters of about {sources.train.size:,}")
            if piece.begins:
                writer.begin_text()
            if piece.texts:
                ids, lengths = tokenizer.encode_batch(piece.texts)
                unknown[piece.side] += int(np.count_nonzero(ids == tokenizer.unk))
                if sources.text:
                    writer.add_text(ids)
                else:
                    writer.add(ids, lengths)
            if piece.ends:
                writer.end_text()
        for writer in writers:
            writer.close()
    except BaseException:
        for writer in writers:
            writer.abort()
        raise
    return {
        "sides": {
            name: {
                "records": writer.records,
                "tokens": writer.tokens,
                "symbols": writer.symbols,
                "bytes": writer.bytes,
                "unknown": unknown[i],
            }
            for i, (name, writer) in enumerate(zip(SIDES, writers, strict=True))
        }
    }
