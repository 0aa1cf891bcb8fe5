"""One token per character (Unicode code point): the tokens of the smallest language models.

Encoding is a table lookup over UTF-32, so it runs at the speed of memory rather than of Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Self

import numpy as np

from regard.errors import UserError
from regard.tokens.tokenizer import (
    SPECIALS,
    UNK,
    Document,
    Ids,
    OwnTokenizer,
    check_size,
    filled,
    layout,
    learned_tokens,
    surrogate_error,
)

N_CODE_POINTS = 0x110000  # Unicode ends at U+10FFFF
CHUNK = 1 << 16  # characters handled at once: their UTF-32 stays in the processor's cache


class Characters(OwnTokenizer):
    """Every character of the training text is a token; any other becomes `<unk>`."""

    kind: ClassVar[str] = "characters"
    layout: ClassVar[Document] = layout(
        model={"type": "WordLevel", "unk_token": "<unk>"},
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},  # any character, line breaks too
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )

    def __init__(self, characters: Sequence[str]) -> None:
        """`characters` get the ids after the specials, in this order."""
        super().__init__([b"", b"", b"", b"<unk>", *(c.encode() for c in characters)])
        self.characters = tuple(characters)
        self._table = np.full(N_CODE_POINTS, UNK, self.dtype)  # id of each code point
        points = [ord(character) for character in characters]
        self._table[points] = np.arange(len(SPECIALS), self.vocab_size)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Keep all characters, or the most frequent (ties: lowest code point); see Tokenizer."""
        check_size(cls.kind, size, len(SPECIALS) + 1)
        counts = np.zeros(N_CODE_POINTS, dtype=np.int64)
        for points in _chunks(texts):
            found = np.bincount(points)
            counts[: len(found)] += found
        seen = np.flatnonzero(counts)
        if len(seen) == 0:
            raise UserError("the training text is empty: there is no character to learn")
        if size:
            seen = np.sort(seen[np.argsort(-counts[seen], kind="stable")][: size - len(SPECIALS)])
        return cls([chr(point) for point in seen])

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        lengths = np.array([len(text) for text in texts], dtype=np.int64)  # (R,)
        ids = np.empty(lengths.sum(), self.dtype)
        filled_to = 0
        for points in _chunks(texts):
            ids[filled_to : filled_to + len(points)] = self._table[points]
            filled_to += len(points)
        return ids, lengths

    def cut(self, text: str) -> int:
        """Anywhere."""
        return len(text)

    def unknown(self, text: str) -> Counter[str]:
        """See Tokenizer."""
        places = np.flatnonzero(self.encode(text) == self.unk)
        return Counter(text[place] for place in places.tolist())

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(self.layout, self.characters)

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        characters = learned_tokens(document, name)
        for token in characters:
            if len(token) != 1:
                raise UserError(f"{name}: damaged: {token!r} in model.vocab is not one character")
        return cls(characters)


def _chunks(texts: Iterable[str]) -> Iterator[Ids]:
    """The code points of all texts, one after another, about CHUNK at a time."""
    waiting: list[str] = []  # whole texts, together at most one chunk
    held = first = 0
    for number, text in enumerate(texts):
        if held + len(text) > CHUNK:
            yield _code_points(waiting, waiting, first)
            waiting, held, first = [], 0, number
        if len(text) > CHUNK:
            for start in range(0, len(text), CHUNK):
                yield _code_points([text[start : start + CHUNK]], [text], number)
            first = number + 1
        else:
            waiting.append(text)
            held += len(text)
    yield _code_points(waiting, waiting, first)


def _code_points(parts: Sequence[str], texts: Sequence[str], first: int) -> Ids:
    """The code points of `parts`, cut from `texts`, which are numbered from `first`."""
    try:
        return np.frombuffer("".join(parts).encode("utf-32-le"), dtype="<u4")
    except UnicodeEncodeError as error:
        raise surrogate_error(texts, first) from error
