"""Byte-pair encoding over bytes: frequent sequences become tokens, and every text is accepted.

Sennrich et al. 2016 (arXiv:1508.07909), section 3.2, merge the most frequent pair of symbols again
and again; Radford et al. 2019 start from bytes and merge only inside words, numbers and runs of
punctuation, as we do. We differ in one point: the `<` of a literal special (`<S>`) is a piece of
its own, so that no merge can ever spell a special.
"""

from __future__ import annotations

import json
import re
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
