"""Where in a text each of its tokens is."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.tokenizers.tokenizer import Tokenizer

Ints = NDArray[np.int64]
AHEAD = 64  # characters in which the next known token is looked for
WORD = re.compile(r"\s*\S+")


def token_spans(text: str, ids: Sequence[int] | Ints, tokenizer: Tokenizer) -> Ints:
    """Return (N, 2) the first character of each token and the one after its last.

    Tokens that share a character, as its bytes do, have equal spans. Where tokens do not spell the
    text (symbols are unknown, or read as others), they are aligned with it from left to right.
    """
    raw = [tokenizer.raw[int(i)] for i in ids]
    if raw:
        raw[0] = raw[0].removeprefix(tokenizer.prefix.encode())
    if b"".join(raw) == text.encode("utf-8", "surrogatepass"):
        return _spans_of_bytes(text, raw)
    pieces = [
        None if i == tokenizer.unk or not x else x.decode("utf-8", "replace")
        for i, x in zip(map(int, ids), raw, strict=True)
    ]
    return _align(text, pieces)


def utf16_offsets(text: str) -> Ints:
    """Return (N + 1,) the place of each character in a string of 16-bit units, as in JavaScript."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.concatenate([[0], np.cumsum(1 + (codes > 0xFFFF))]).astype(np.int64)


def _spans_of_bytes(text: str, raw: Sequence[bytes]) -> Ints:
    if not raw:
        return np.zeros((0, 2), np.int64)
    data = np.frombuffer(b"".join(raw) or b"\0", np.uint8)
    begins = np.cumsum((data & 0xC0) != 0x80)  # characters begun up to and with each byte
    ends = np.cumsum([len(x) for x in raw])
    starts = ends - [len(x) for x in raw]
    first = np.where(ends > starts, begins[np.minimum(starts, len(data) - 1)] - 1, 0)
    last = np.where(ends > starts, begins[np.maximum(ends, 1) - 1], 0)
    empty = ends == starts
    first[empty] = last[empty] = np.concatenate([[0], begins])[starts[empty]]
    return np.stack([first, last], axis=1).astype(np.int64)


def _align(text: str, pieces: Sequence[str | None]) -> Ints:
    """Align pieces with a text; None is a token that may stand for anything."""
    if len(pieces) == len(text) and all(len(piece or " ") == 1 for piece in pieces):
        each = np.arange(len(text), dtype=np.int64)
        return np.stack([each, each + 1], axis=1)
    lower = text.casefold() if len(text.casefold()) == len(text) else text
    spans = np.zeros((len(pieces), 2), np.int64)
    at = i = 0
    while i < len(pieces):
        run = i
        while run < len(pieces) and pieces[run] is None:
            run += 1
        if run > i:
            end = len(text) if run == len(pieces) else _find(text, lower, pieces[run], at + run - i)
            spans[i:run] = _divide(text, at, end, run - i)
            at, i = end, run
            continue
        piece = pieces[i] or ""
        start = _find(text, lower, piece, at)
        end = min(len(text), start + len(piece))
        spans[i] = start, end
        at, i = end, i + 1
    return spans


def _find(text: str, lower: str, piece: str | None, at: int) -> int:
    """Return where a piece begins, not far from `at`; `at` itself if it is not found."""
    at = min(at, len(text))
    if not piece or lower.startswith((piece.casefold(), piece), at):
        return at
    for letters, part in (
        (text, piece),
        (lower, piece.casefold()),
        (lower, piece.strip().casefold()),
    ):
        start = letters.find(part, at, at + AHEAD + len(part)) if part else -1
        if start >= 0:
            return start
    return at


def _divide(text: str, start: int, end: int, count: int) -> Ints:
    """Return the spans of `count` unknown tokens: of one character or one word each, or of parts
    of equal lengths.
    """
    words = [(start + m.start(), start + m.end()) for m in WORD.finditer(text[start:end])]
    if end - start != count and len(words) == count:
        return np.array(words, np.int64)
    borders = np.linspace(start, end, count + 1).round().astype(np.int64)
    return np.stack([borders[:-1], borders[1:]], axis=1)
