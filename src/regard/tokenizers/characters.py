"""One token per character (Unicode code point): the tokens of the smallest language models.

Encoding is a table lookup over UTF-32, so it runs at the speed of memory rather than of Python.

The 256 printable characters that stand for bytes in byte-level vocabularies.

Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2, run BPE
over bytes. Their vocabulary files show a byte as the Latin-1 character of that number where it is
visible, and the others, in order, as the characters from U+0100 on; every byte-level tokenizer.json
since does the same.

One token per UTF-8 byte: nothing to learn, nothing unknown, any language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Self

import numpy as np

from regard.errors import UsageError, UserError
from regard.tokenizers.tokenizer import (
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


VISIBLE = frozenset([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)])


def _alphabet() -> tuple[str, ...]:
    hidden = [byte for byte in range(256) if byte not in VISIBLE]
    return tuple(chr(b) if b in VISIBLE else chr(0x100 + hidden.index(b)) for b in range(256))


ALPHABET = _alphabet()  # ALPHABET[byte] is the character that stands for it
BYTE_OF = {character: byte for byte, character in enumerate(ALPHABET)}


def token_bytes(token: str) -> bytes | None:
    """The bytes a byte-level token stands for; None when a character of it stands for no byte."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return None


# What byte-level BPE files have in common: tokens spelt in the byte alphabet.
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


class Bytes(OwnTokenizer):
    """Byte b of the UTF-8 text is token 4 + b."""

    kind: ClassVar[str] = "bytes"
    layout: ClassVar[Document] = layout(
        model=BYTE_LEVEL_MODEL,
        pre_tokenizer={**BYTE_LEVEL, "use_regex": False},
        decoder={**BYTE_LEVEL, "use_regex": False},
    )

    def __init__(self) -> None:
        super().__init__([b"", b"", b"", b"<unk>", *(bytes([byte]) for byte in range(256))])

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """There is nothing to learn: `texts` are not read, and `size` is what it is."""
        whole = len(SPECIALS) + 256
        if size not in (0, whole):
            raise UsageError(
                f"tokens.size must be {whole} for bytes, or 0 for the default; got {size}"
            )
        return cls()

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        try:
            parts = [text.encode() for text in texts]
        except UnicodeEncodeError as error:
            raise surrogate_error(texts) from error
        lengths = np.array([len(part) for part in parts], dtype=np.int64)  # (R,)
        flat = np.frombuffer(b"".join(parts), dtype=np.uint8)
        return np.add(flat, len(SPECIALS), dtype=self.dtype), lengths

    def cut(self, text: str) -> int:
        """Anywhere."""
        return len(text)

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(self.layout, ALPHABET, merges=[])

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        if (
            learned_tokens(document, name) != list(ALPHABET)
            or document["model"].get("merges") != []
        ):
            raise UserError(
                f"{name}: damaged: a bytes vocabulary is the 256 bytes in order, unmerged"
            )
        return cls()
