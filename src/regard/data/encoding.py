"""From pieces of files to shards: tokenised once, side by side, with what is asked of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.answers import AnswerWriter, read_answers
from regard.data.columns import CHUNK
from regard.data.shards import Shard, ShardWriter
from regard.data.sides import SIDES, SPARED, Piece, Say, Sources
from regard.data.targets import Targets
from regard.data.unknown import Unknown
from regard.data.views import Views, both_strands
from regard.tokens import Tokenizer

SOURCE = "-source"  # ends the names of shards that hold the sources of others
LONGEST_WORD = 1 << 20  # characters without a space that are still held together
QUIET = 15.0  # seconds of reading between two signs of life


def at_borders(pieces: Iterable[Piece], cut: Callable[[str], int], dropped: int) -> Iterator[Piece]:
    """Running text cut where its tokenizer says, instead of anywhere: no word becomes two.

    `dropped` characters after the cut are left out, where encoding puts one before every text.
    """
    held = ""
    for piece in pieces:
        if piece.texts:
            text = held + "".join(piece.texts)
            at = cut(text)
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


class Encoder:
    """Writes one shard, and takes account of what is unknown in it."""

    def __init__(self, path: Path, tokenizer: Tokenizer, strict: bool) -> None:
        self.writer, self.tokenizer = ShardWriter(path, tokenizer), tokenizer
        self.unknown = Unknown(tokenizer, strict)

    def add(self, piece: Piece, text: bool, answers: AnswerWriter | None = None) -> None:
        """Write a piece: records, with what is asked of them, or a stretch of running text."""
        if piece.begins:
            self.writer.begin_text()
        if piece.texts:
            ids, lengths = self.tokenizer.encode_batch(piece.texts)
            if ids.ndim == 1:  # of numbers, none is unknown
                self.unknown.note(piece, ids, lengths)
            if text:
                self.writer.add_text(ids)
            else:
                self.writer.add(ids, lengths)
                if answers:
                    markers = 2 if ids.ndim == 1 else 1  # numbers have no `<E>`, and count `<S>`
                    inside = lengths if markers == 2 else lengths - 1
                    answers.add(piece.targets, inside, piece.place, markers)
        if piece.ends:
            self.writer.end_text()

    def facts(self, prefix: str = "") -> dict[str, Any]:
        """What the shard holds."""
        found = {name: getattr(self.writer, name) for name in ("tokens", "symbols", "bytes")}
        return {prefix + name: n for name, n in (found | self.unknown.facts()).items()}


def encode(
    sources: Sources,
    learned: tuple[Tokenizer, Tokenizer],
    folder: Path,
    say: Say,
    asked: Targets | None,
    views: Views | None,
    *,
    strict: bool,
) -> dict[str, Any]:
    """Write the shards of the three sides; count what each holds and what of it is unknown."""
    tokenizer, own = learned  # of what is predicted, and of the sources
    targets = [Encoder(folder / name, tokenizer, strict) for name in SIDES]
    beside = [Encoder(folder / (n + SOURCE), own, strict) for n in SIDES if sources.two_sided]
    answers = [AnswerWriter(folder / name, asked) for name in SIDES if asked]
    done, told = 0, time.monotonic()
    try:
        stream = sources.pieces()
        if sources.text and sources.recipe.augment:
            stream = both_strands(stream)
        if sources.text:
            stream = at_borders(stream, tokenizer.cut, len(tokenizer.prefix))
        for piece in stream:
            if piece.side == SPARED:
                continue
            done += sum(map(len, piece.texts)) + sum(map(len, piece.sources))
            if time.monotonic() - told > QUIET:
                told = time.monotonic()
                unit = "rows of pixels or points" if sources.numbered else "characters"
                say(f"tokenised {done:,} {unit} of about {sources.train.size:,}")
            writer = answers[piece.side] if answers else None
            shown = views.of(piece) if views else piece
            targets[piece.side].add(shown, sources.text, writer)
            if beside:
                source = Piece(piece.side, piece.sources, place=piece.place)
                beside[piece.side].add(source, False)
        for encoder in (*targets, *beside):
            encoder.writer.close()
        for answer in answers:
            answer.close()
        if asked is not None:
            for name in SIDES:
                count = views.count if views else 1
                order_records(folder / name, learned, asked, count, paired=sources.two_sided)
    except BaseException:
        for encoder in (*targets, *beside):
            encoder.writer.abort()
        for answer in answers:
            answer.abort()
        raise
    sides: dict[str, Any] = {}
    for i, name in enumerate(SIDES):
        records = targets[i].writer.records // (views.count if views else 1)
        sides[name] = {"records": records} | targets[i].facts()
        if beside:
            sides[name] |= beside[i].facts("source_")
        for encoder in (targets[i], *beside[i : i + 1]):
            for line in encoder.unknown.words(name):
                say(line)
    return sides


def order_records(
    path: Path, learned: tuple[Tokenizer, Tokenizer], asked: Targets, views: int, *, paired: bool
) -> None:
    """Rewrite the labelled shard with stem `path` in the order of a hash of each record, its second
    text and its targets, so that neither the order of files nor that of rows changes anything.
    """
    shard, beside = Shard.open(path), path.with_name(path.name + SOURCE)
    whole = replace(shard, targets=read_answers(path, shard.records, shard.tokens))
    if paired:
        whole = whole.paired(Shard.open(beside))
    hashes = [_content(whole, i, views) for i in range(whole.records // views)]
    first = np.argsort(np.array(hashes, np.uint64), kind="stable") * views
    order = (first[:, None] + np.arange(views)).ravel()
    targets, writers = AnswerWriter(path, asked), [ShardWriter(path, learned[0])]
    writers += [ShardWriter(beside, learned[1])] if paired else []
    everything: list[ShardWriter | AnswerWriter] = [*writers, targets]
    try:
        for some in np.array_split(order, -(-whole.tokens // CHUNK) or 1):
            part = whole.take(some)
            for writer, one in zip(writers, (part, part.source), strict=False):
                assert one is not None
                writer.add(*_unmarked(one))
            assert part.targets is not None
            targets.write(part.targets)
        for each in everything:
            each.close()
    except BaseException:
        for each in everything:
            each.abort()
        raise


def _content(shard: Shard, number: int, views: int) -> int:
    """A hash of record `number` in all its views, of its second text and its targets."""
    found, first, last = blake2b(digest_size=8), number * views, (number + 1) * views
    for one in (shard, shard.source):
        if one is not None:
            found.update(one.ids[one.offsets[first] : one.offsets[last]].tobytes())
    assert shard.targets is not None
    if len(shard.targets) == shard.tokens:  # one for each position
        first, last = int(shard.offsets[first]), int(shard.offsets[last])
    found.update(shard.targets[first:last].tobytes())
    return int.from_bytes(found.digest(), "little")


def _unmarked(shard: Shard) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Ids and lengths of records as `ShardWriter.add` takes them: it puts markers around ids, and
    none around numbers.
    """
    offsets, lengths = np.asarray(shard.offsets), np.diff(shard.offsets)
    if shard.ids.ndim == 2:
        return shard.ids, lengths
    return np.delete(shard.ids, np.concatenate([offsets[:-1], offsets[1:] - 1])), lengths - 2
