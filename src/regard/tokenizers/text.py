"""Tokenizers of text: characters, bytes, words and byte-pair encoding.

Characters are Unicode code points; encoding looks them up in a table over UTF-32, so it runs at the
speed of memory rather than of Python. Bytes need no training and know every text.

Byte-level vocabularies spell each byte as a printable character. Radford et al. 2019, "Language
Models are Unsupervised Multitask Learners", section 2.2, show a byte as the Latin-1 character of
that number where it is visible, and the others, in order, as the characters from U+0100 on; every
byte-level tokenizer.json since does the same.

`Words` are split at whitespace and nowhere else. A space is put before the text; a token is then
one whitespace character with the run of other characters after it, or a whitespace character alone.
So nothing is lost (double spaces, tabs and line breaks come back), and no token can equal a
special, since every token begins with whitespace.

`BPE` is byte-pair encoding over bytes: frequent sequences become tokens, and every text is
accepted. Sennrich et al. 2016 (arXiv:1508.07909), section 3.2, merge the most frequent pair of
symbols again and again; Radford et al. 2019 start from bytes and merge only inside words, numbers
and runs of punctuation, as we do. We differ in one point: the `<` of a literal special (`<S>`) is a
piece of its own, so that no merge can ever spell a special.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Self

import numpy as np
import tokenizers
from tokenizers import trainers

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
    encode_all,
    fill,
    find_words,
    layout,
    open_tokenizer,
    split,
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


DEFAULT_WORDS = 10_000
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
        return cls(by_frequency[: (size or DEFAULT_WORDS) - len(SPECIALS)])

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


DEFAULT_SIZE = 4096  # 3 to 4 bytes per token of prose, with a small embedding table
LEAST_SIZE = len(SPECIALS) + len(ALPHABET)
MIN_FREQUENCY = 2  # a pair that occurs once compresses nothing but the training text
PART = 1 << 18  # characters of a long text encoded as one part
# No token goes on from another character into whitespace: a cut there changes no token.
BOUNDARY = re.compile(r"(?<=\S)[ \n]")


class MergeTokenizer(NativeTokenizer):
    """A vocabulary of merged pairs, learned and applied by the `tokenizers` library."""

    learns_from: ClassVar[float] = 1e7  # without words, training takes about 10 s a megabyte

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[Sequence[str]],
        raw: Sequence[bytes] | None = None,
    ) -> None:
        """`tokens`, decoding to `raw`, get the ids after the specials; `merges` are by rank."""
        super().__init__(tokens, raw)
        self.merges = [list(pair) for pair in merges]
        self._model = open_tokenizer(json.dumps(self.document()), "model.merges")

    @classmethod
    def from_merges(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        """Return the tokenizer of a vocabulary; UserError if the vocabulary is damaged."""
        raise NotImplementedError

    @property
    def learned(self) -> Document:
        return {"merges": self.merges}

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        check_unicode(texts)
        parts = [list(split_long(text)) for text in texts]
        flat = [part for text_parts in parts for part in text_parts]
        ids, lengths = encode_all(self._model, flat, self.dtype)
        ends = np.cumsum([len(text_parts) for text_parts in parts], dtype=np.int64)  # (R,)
        totals = np.concatenate([[0], np.cumsum(lengths)])
        return ids, np.diff(totals[ends], prepend=0)

    def word_spans(self, text: str) -> list[tuple[int, int, int]]:
        return find_words(self._model, text)

    @classmethod
    def from_tokens(cls, tokens: list[str], model: Document) -> Self:
        merges = model.get("merges")
        if not isinstance(merges, list) or not all(map(_is_pair, merges)):
            raise UserError("model.merges must be a list of pairs of tokens")
        return cls.from_merges(tokens, merges)


class BPE(MergeTokenizer):
    """Byte-level byte-pair encoding."""

    name = "bpe"
    learns_from: ClassVar[float] = 1e8
    layout = layout(
        BYTE_LEVEL_MODEL,
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [split("<(?=(?:pad|S|E|unk)>)"), {**BYTE_LEVEL, "use_regex": True}],
        },
        decoder={**BYTE_LEVEL, "use_regex": True},
    )

    @classmethod
    def from_merges(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        raw: list[bytes] = []
        for token in tokens:
            content = token_bytes(token)
            if not content:
                raise UserError(f"{token!r} in model.vocab is not spelled in the byte alphabet")
            raw.append(content)
        absent = set(ALPHABET).difference(tokens)
        if absent:
            raise UserError(f"model.vocab lacks {len(absent)} of the 256 bytes")
        return cls(tokens, merges, raw)

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Merge until the vocabulary is full or no pair occurs twice."""
        check_size(cls.name, size, LEAST_SIZE)
        parts = (part for text in check_each(texts) for part in split_long(text))
        return cls.from_merges(*learn_merges(parts, cls.layout, size or DEFAULT_SIZE, ALPHABET))


def learn_merges(
    texts: Iterable[str], layout: Document, size: int, alphabet: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the tokens after the specials, at most `size` with them, and the merges.

    `alphabet` is in the vocabulary whether or not it occurs. Nothing is merged across the borders
    of the layout's pre-tokenizer, nor what occurs once.
    """
    model = tokenizers.Tokenizer.from_str(json.dumps(fill(layout, [], merges=[])))
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=MIN_FREQUENCY,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=list(alphabet),
    )
    model.train_from_iterator(texts, trainer=trainer)
    learned = json.loads(model.to_str())["model"]
    tokens = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    assert tuple(tokens[: len(SPECIALS)]) == SPECIALS
    assert len(tokens) <= size, "the trainer exceeded the vocabulary size"
    return tokens[len(SPECIALS) :], learned["merges"]


def check_spelling(tokens: Sequence[str], letters: Sequence[str]) -> None:
    """Refuse a vocabulary that lacks a letter, or has a token with another one."""
    for token in tokens:
        if not token or not set(token) <= set(letters):
            raise UserError(f"{token!r} in model.vocab is not spelled in {''.join(letters)}")
    if absent := [letter for letter in letters if letter not in set(tokens)]:
        raise UserError(f"model.vocab lacks {' '.join(absent)}")


# Letters stand for themselves rather than for bytes; other characters are unknown.
PLAIN_MODEL: Document = {**BYTE_LEVEL_MODEL, "unk_token": "<unk>"}


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair)


def split_long(text: str) -> Iterator[str]:
    """Yield the text in parts of about PART characters, which the library encodes in parallel."""
    start = 0
    while len(text) - start > PART and (match := BOUNDARY.search(text, start + PART)):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]
