"""Byte-pair encoding over bytes: frequent sequences become tokens, and every text is accepted.

Sennrich et al. 2016 (arXiv:1508.07909), section 3.2, merge the most frequent pair of symbols again
and again; Radford et al. 2019 start from bytes and merge only inside words, numbers and runs of
punctuation, as we do. We differ in one point: the `<` of a literal special (`<S>`) is kept apart,
so that no merge can ever spell a special.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Self

import numpy as np
import tokenizers
from tokenizers import trainers

from regard.errors import UserError
from regard.tokenizers.characters import ALPHABET, BYTE_LEVEL, BYTE_LEVEL_MODEL, token_bytes
from regard.tokenizers.tokenizer import (
    SPECIALS,
    Document,
    Ids,
    OwnTokenizer,
    check_size,
    check_unicode,
    encode_all,
    filled,
    layout,
    learned_tokens,
    open_tokenizer,
    words_of,
)

DEFAULT_SIZE = (
    4096  # 3 to 4 bytes per token on a few megabytes of prose, with a small embedding table
)
LEAST_SIZE = len(SPECIALS) + len(ALPHABET)
MIN_FREQUENCY = 2  # a pair seen once compresses nothing but the training text
PART = 1 << 18  # characters of a long text encoded as one part
# No token goes on from another character into whitespace: a cut there changes no token.
BOUNDARY = re.compile(r"(?<=\S)[ \n]")


class Merges(OwnTokenizer):
    """A vocabulary of merged pairs, learned and applied by the `tokenizers` library."""

    learns_from: ClassVar[float] = 1e7  # without words, learning costs about 10 s a megabyte

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[Sequence[str]], raw: Sequence[bytes]
    ) -> None:
        """`tokens`, decoding to `raw`, get the ids after the specials; `merges` are by rank."""
        super().__init__([b"", b"", b"", b"<unk>", *raw])
        self.tokens = tuple(tokens)
        self.merges = [list(pair) for pair in merges]
        self._model = open_tokenizer(json.dumps(self.document()), "model.merges")

    @classmethod
    @abstractmethod
    def of(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        """The tokenizer of a vocabulary, once it is known to be sound; else UserError."""

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        check_unicode(texts)
        parts = [list(_parts(text)) for text in texts]
        ids, lengths = encode_all(self._model, [p for own in parts for p in own], self.dtype)
        ends = np.cumsum([len(own) for own in parts], dtype=np.int64)  # (R,)
        totals = np.concatenate([[0], np.cumsum(lengths)])
        return ids, np.diff(totals[ends], prepend=0)

    def word_spans(self, text: str) -> list[tuple[int, int, int]]:
        """See Tokenizer."""
        return words_of(self._model, text)

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(self.layout, self.tokens, merges=self.merges)

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        merges = document["model"].get("merges")
        if not isinstance(merges, list) or not all(_is_pair(pair) for pair in merges):
            raise UserError(f"{name}: damaged: model.merges must be a list of pairs of tokens")
        try:
            return cls.of(learned_tokens(document, name), merges)
        except UserError as error:
            raise UserError(f"{name}: damaged: {error}") from error


class BPE(Merges):
    """Byte-level byte-pair encoding."""

    kind: ClassVar[str] = "bpe"
    learns_from: ClassVar[float] = 1e8
    layout: ClassVar[Document] = layout(
        model=BYTE_LEVEL_MODEL,
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": "<(?=(?:pad|S|E|unk)>)"},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {**BYTE_LEVEL, "use_regex": True},
            ],
        },
        decoder={**BYTE_LEVEL, "use_regex": True},
    )

    @classmethod
    def of(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        """See Merges; tokens are spelt in the byte alphabet, of which none may be missing."""
        raw = [token_bytes(token) for token in tokens]
        for token, spelt in zip(tokens, raw, strict=True):
            if not spelt:
                raise UserError(f"{token!r} in model.vocab is not spelt in the byte alphabet")
        absent = set(ALPHABET).difference(tokens)
        if absent:
            raise UserError(f"model.vocab lacks {len(absent)} of the 256 bytes")
        return cls(tokens, merges, [spelt for spelt in raw if spelt])

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Merge until the vocabulary is full or no pair occurs twice; see Tokenizer."""
        check_size(cls.kind, size, LEAST_SIZE)
        size = size or DEFAULT_SIZE
        return cls.of(*learn(_parts_of_all(texts), cls.layout, size, ALPHABET))


def learn(
    texts: Iterable[str], layout: Document, size: int, alphabet: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Tokens after the specials, at most `size` with them, and the merges that made them.

    `alphabet` is in the vocabulary whether or not it occurs. Nothing is merged across the borders
    that the layout's pre-tokenizer makes, nor what occurs once.
    """
    model = tokenizers.Tokenizer.from_str(json.dumps(filled(layout, [], merges=[])))
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


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair)


def _parts(text: str) -> Iterator[str]:
    """The text in parts of about PART characters, which the library then handles in parallel."""
    start = 0
    while len(text) - start > PART and (match := BOUNDARY.search(text, start + PART)):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]


def _parts_of_all(texts: Iterable[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        check_unicode([text], number)
        yield from _parts(text)
