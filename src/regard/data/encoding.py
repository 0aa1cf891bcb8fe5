"""From pieces of files to shards: tokenised once, side by side, with what is asked of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from regard.data.answers import AnswerWriter
from regard.data.shards import ShardWriter
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
