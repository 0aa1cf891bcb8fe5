"""One token per word, split at whitespace and nowhere else.

A space is put before the text; a token is then one whitespace character with the run of other
characters after it, or a whitespace character alone. So nothing is lost (double spaces, tabs and
line breaks come back), and no token can equal a special, since every token begins with whitespace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from regard.errors import UserError
from regard.tokenizers.tokenizer import (
    FUSE,
    SPECIALS,
    UNK,
    WORD_LEVEL,
    Document,
    Ids,
    NativeTokenizer,
    check_each,
    check_size,
    check_unicode,
    layout,
)

DEFAULT_SIZE = 10_000
# Unicode's White_Space (PropList.txt), spelled out because libraries differ in what `\s` is.
WHITESPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
PIECE = f"[{WHITESPACE}][^{WHITESPACE}]*"


class Words(NativeTokenizer):
    """The most frequent words of the training text are tokens; any other becomes `<unk>`.

    A word counts as one symbol. `byte_counts` includes the whitespace before each word, so a text
    adds up to one byte more than it has; unknown words count none.
    """

    name = "words"
    prefix = " "
    layout = layout(
        WORD_LEVEL,
        PIECE,
        normalizer={"type": "Prepend", "prepend": " "},
        decoder={
            "type": "Sequence",
            "decoders": [FUSE, {"type": "Strip", "content": " ", "start": 1, "stop": 0}],
        },
    )

    def __init__(self, pieces: Sequence[str]) -> None:
        """`pieces` (whitespace, then a word) get the ids after the specials, in this order."""
        super().__init__(pieces, unk=b" <unk>")
        self._ids = {piece: id for id, piece in enumerate(pieces, start=len(SPECIALS))}

    @staticmethod
    def count_symbols(token: bytes) -> int:
        return 1

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Take the most frequent words (ties: in the order of their code points)."""
        check_size(cls.name, size, len(SPECIALS) + 1)
        counts: Counter[str] = Counter()
        for text in check_each(texts):
            counts.update(_split(text))
        if not counts:
            raise UserError("the training text is empty: there is no word to learn")
        by_frequency = sorted(counts, key=lambda piece: (-counts[piece], piece))
        return cls(by_frequency[: (size or DEFAULT_SIZE) - len(SPECIALS)])

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        check_unicode(texts)
        ids: list[Ids] = [np.empty(0, self.dtype)]
        lookup = self._ids.get
        for text in texts:
            pieces = _split(text)
            ids.append(np.fromiter((lookup(p, UNK) for p in pieces), self.dtype, len(pieces)))
        return np.concatenate(ids), np.array([len(part) for part in ids[1:]], dtype=np.int64)

    def count_unknown(self, text: str) -> Counter[str]:
        return Counter(piece[1:] for piece in _split(text) if piece not in self._ids)

    def word_spans(self, text: str) -> list[tuple[int, int, int]]:
        spans, start = [], 0  # of the word, after the whitespace that begins its token
        for token, piece in enumerate(_split(text)):
            if len(piece) > 1:
                spans.append((start, start + len(piece) - 1, token))
            start += len(piece)
        return spans

    def decode(self, ids: Sequence[int] | Ids) -> str:
        return super().decode(ids).removeprefix(" ")

    @classmethod
    def from_tokens(cls, tokens: list[str], model: Document) -> Self:
        for piece in tokens:
            if not re.fullmatch(PIECE, piece):
                raise UserError(f"{piece!r} in model.vocab is not whitespace and a word")
        return cls(tokens)


def _split(text: str) -> list[str]:
    return re.findall(PIECE, " " + text) if text else []
