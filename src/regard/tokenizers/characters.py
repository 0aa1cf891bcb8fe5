"""One token per character, or one token per UTF-8 byte.

Characters are Unicode code points; encoding looks them up in a table over UTF-32, so it runs at the
speed of memory rather than of Python. Bytes need no training and know every text.

Byte-level vocabularies spell each byte as a printable character. Radford et al. 2019, "Language
Models are Unsupervised Multitask Learners", section 2.2, show a byte as the Latin-1 character of
that number where it is visible, and the others, in order, as the characters from U+0100 on; every
byte-level tokenizer.json since does the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import numpy as np

from regard.errors import UserError
from regard.tokenizers.tokenizer import (
    SPECIALS,
    UNK,
    WORD_LEVEL,
    Document,
    Ids,
    NativeTokenizer,
    check_size,
    check_unicode,
    layout,
)

N_CODE_POINTS = 0x110000  # Unicode ends at U+10FFFF
CHUNK = 1 << 16  # characters handled at once: their UTF-32 stays in the processor's cache


class Characters(NativeTokenizer):
    """Every character of the training text is a token; any other becomes `<unk>`."""

    name = "characters"
    layout = layout(WORD_LEVEL, r"[\s\S]")  # any character, line breaks too

    def __init__(self, characters: Sequence[str]) -> None:
        """`characters` get the ids after the specials, in this order."""
        super().__init__(characters)
        self._table = np.full(N_CODE_POINTS, UNK, self.dtype)  # id of each code point
        points = [ord(character) for character in characters]
        self._table[points] = np.arange(len(SPECIALS), self.vocab_size)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Take all characters, or the most frequent (ties: lowest code point)."""
        check_size(cls.name, size, len(SPECIALS) + 1)
        counts = np.zeros(N_CODE_POINTS, dtype=np.int64)
        for points in _chunks(texts):
            chunk_counts = np.bincount(points)
            counts[: len(chunk_counts)] += chunk_counts
        alphabet = np.flatnonzero(counts)
        if len(alphabet) == 0:
            raise UserError("the training text is empty: there is no character to learn")
        if size:
            by_frequency = alphabet[np.argsort(-counts[alphabet], kind="stable")]
            alphabet = np.sort(by_frequency[: size - len(SPECIALS)])
        return cls([chr(point) for point in alphabet])

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        lengths = np.array([len(text) for text in texts], dtype=np.int64)  # (R,)
        ids = np.empty(lengths.sum(), self.dtype)
        start = 0
        for points in _chunks(texts):
            ids[start : start + len(points)] = self._table[points]
            start += len(points)
        return ids, lengths

    def cut(self, text: str) -> int:
        return len(text)

    def count_unknown(self, text: str) -> Counter[str]:
        positions = np.flatnonzero(self.encode(text) == self.unk)
        return Counter(text[position] for position in positions.tolist())

    @classmethod
    def from_tokens(cls, tokens: list[str], model: Document) -> Self:
        for token in tokens:
            if len(token) != 1:
                raise UserError(f"{token!r} in model.vocab is not one character")
        return cls(tokens)


def _chunks(texts: Iterable[str]) -> Iterator[Ids]:
    """Yield the code points of all texts, one after another, about CHUNK at a time."""
    pending: list[str] = []  # complete texts, at most one chunk in total
    characters = first = 0
    for number, text in enumerate(texts):
        if characters + len(text) > CHUNK:
            yield _code_points(pending, pending, first)
            pending, characters, first = [], 0, number
        if len(text) > CHUNK:
            for start in range(0, len(text), CHUNK):
                yield _code_points([text[start : start + CHUNK]], [text], number)
            first = number + 1
        else:
            pending.append(text)
            characters += len(text)
    yield _code_points(pending, pending, first)


def _code_points(parts: Sequence[str], texts: Sequence[str], first: int) -> Ids:
    """Return the code points of `parts`, cut from `texts`, which are numbered from `first`."""
    try:
        return np.frombuffer("".join(parts).encode("utf-32-le"), dtype="<u4")
    except UnicodeEncodeError:
        check_unicode(texts, first)
        raise


VISIBLE = frozenset([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
# ALPHABET[byte] is the character that stands for it.
ALPHABET = tuple(chr(b) if b in VISIBLE else chr(0x100 + HIDDEN.index(b)) for b in range(256))
BYTE_OF = {character: byte for byte, character in enumerate(ALPHABET)}


def token_bytes(token: str) -> bytes | None:
    """Return the bytes of a byte-level token; None if one of its characters stands for no byte."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return None


# The fields that byte-level BPE files share: tokens are spelled in the byte alphabet.
BYTE_LEVEL_MODEL: Document = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
BYTE_LEVEL: Document = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


class Bytes(NativeTokenizer):
    """Byte b of the UTF-8 text is token 4 + b."""

    name = "bytes"
    layout = layout(
        BYTE_LEVEL_MODEL,
        pre_tokenizer={**BYTE_LEVEL, "use_regex": False},
        decoder={**BYTE_LEVEL, "use_regex": False},
    )

    def __init__(self) -> None:
        super().__init__(ALPHABET, [bytes([byte]) for byte in range(256)])

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Return the tokenizer: `texts` are not read, and its size is fixed."""
        tokenizer = cls()
        tokenizer.check_fixed_size(size)
        return tokenizer

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        check_unicode(texts)
        parts = [text.encode() for text in texts]
        lengths = np.array([len(part) for part in parts], dtype=np.int64)  # (R,)
        flat = np.frombuffer(b"".join(parts), dtype=np.uint8)
        return np.add(flat, len(SPECIALS), dtype=self.dtype), lengths

    def cut(self, text: str) -> int:
        return len(text)

    @property
    def learned(self) -> Document:
        return {"merges": []}

    @classmethod
    def from_tokens(cls, tokens: list[str], model: Document) -> Self:
        if tokens != list(ALPHABET) or model.get("merges") != []:
            raise UserError("a bytes vocabulary is the 256 bytes in order, unmerged")
        return cls()
