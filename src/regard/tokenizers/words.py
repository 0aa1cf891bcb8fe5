"""One token per word, cut at whitespace and nowhere else.

A space is put before the text; a token is then one whitespace character with the run of other
characters after it, or a whitespace character alone. So nothing is lost (double spaces, tabs and
line breaks come back), and no token can equal a special, since every token begins with whitespace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

import numpy as np

from regard.errors import UserError
from regard.tokenizers.tokenizer import (
    SPECIALS,
    UNK,
    Document,
    Ids,
    OwnTokenizer,
    check_size,
    check_unicode,
    filled,
    layout,
    learned_tokens,
)

DEFAULT_SIZE = 10_000
# Unicode's White_Space (PropList.txt), spelt out because libraries differ in what `\s` is.
WHITESPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
PIECE = f"[{WHITESPACE}][^{WHITESPACE}]*"


class Words(OwnTokenizer):
    """The most frequent words of the training text are tokens; any other becomes `<unk>`.

    A word counts as one symbol. `byte_counts` includes the whitespace before each word, so a text
    adds up to one byte more than it has; unknown words count none.
    """

    kind: ClassVar[str] = "words"
    layout: ClassVar[Document] = layout(
        model={"type": "WordLevel", "unk_token": "<unk>"},
        normalizer={"type": "Prepend", "prepend": " "},
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": PIECE},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={
            "type": "Sequence",
            "decoders": [
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
    )

    prefix = " "

    def __init__(self, pieces: Sequence[str]) -> None:
        """`pieces` (whitespace, then a word) get the ids after the specials, in this order."""
        super().__init__([b"", b"", b"", b" <unk>", *(piece.encode() for piece in pieces)])
        self.pieces = tuple(pieces)
        self._ids = {piece: id for id, piece in enumerate(pieces, start=len(SPECIALS))}

    @staticmethod
    def count_symbols(token: bytes) -> int:
        """A word is one symbol, however long."""
        return 1

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Keep the most frequent words (ties: in the order of their code points); see Tokenizer."""
        check_size(cls.kind, size, len(SPECIALS) + 1)
        counts: Counter[str] = Counter()
        for number, text in enumerate(texts):
            check_unicode([text], number)
            counts.update(_cut(text))
        if not counts:
            raise UserError("the training text is empty: there is no word to learn")
        ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
        pieces = ranked[: (size or DEFAULT_SIZE) - len(SPECIALS)]
        return cls(pieces)

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        check_unicode(texts)
        ids: list[Ids] = [np.empty(0, self.dtype)]
        known = self._ids.get
        for text in texts:
            pieces = _cut(text)
            ids.append(np.fromiter((known(p, UNK) for p in pieces), self.dtype, len(pieces)))
        return np.concatenate(ids), np.array([len(part) for part in ids[1:]], dtype=np.int64)

    def unknown(self, text: str) -> Counter[str]:
        """See Tokenizer; a word's whitespace is not shown."""
        return Counter(piece[1:] for piece in _cut(text) if piece not in self._ids)

    def word_spans(self, text: str) -> list[tuple[int, int, int]]:
        """See Tokenizer."""
        found, start = [], 0  # of the word, behind the whitespace that begins its token
        for token, piece in enumerate(_cut(text)):
            if len(piece) > 1:
                found.append((start, start + len(piece) - 1, token))
            start += len(piece)
        return found

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """See Tokenizer; the space that encoding put before the text is taken away."""
        return super().decode(ids).removeprefix(" ")

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(self.layout, self.pieces)

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        pieces = learned_tokens(document, name)
        for piece in pieces:
            if not re.fullmatch(PIECE, piece):
                raise UserError(
                    f"{name}: damaged: {piece!r} in model.vocab is not whitespace and a word"
                )
        return cls(pieces)


def _cut(text: str) -> list[str]:
    return re.findall(PIECE, " " + text) if text else []
