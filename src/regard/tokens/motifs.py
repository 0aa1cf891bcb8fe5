"""Byte-pair encoding over amino acids: frequent runs of residues, motifs, become tokens.

The learner is that of bpe.py; a sequence has no words, so pairs are merged along all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Self

from regard.errors import UserError
from regard.tokens.bpe import Merges, learn
from regard.tokens.bytes_ import BYTE_LEVEL_MODEL
from regard.tokens.canonical import Canonical
from regard.tokens.residues import AMINO_ACIDS, Residues
from regard.tokens.tokenizer import (
    SPECIALS,
    Document,
    check_size,
    check_unicode,
    layout,
)

DEFAULT_SIZE = 1024
PLAIN_MODEL: Document = {**BYTE_LEVEL_MODEL, "unk_token": "<unk>"}  # letters stand for themselves
ALPHABET = Residues.alphabets[0]
OTHERS = f"[^{ALPHABET.members[1:]}"


class Motifs(Merges):
    """Runs of residues; lower case is folded, what is no residue becomes `<unk>`."""

    kind: ClassVar[str] = "motifs"
    layout: ClassVar[Document] = layout(
        model=PLAIN_MODEL,
        normalizer=ALPHABET.normalizer,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": OTHERS},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )

    @classmethod
    def of(cls, tokens: Sequence[str], merges: Sequence[Sequence[str]]) -> Self:
        """See Merges."""
        check_spelling(tokens, AMINO_ACIDS)
        return cls(tokens, merges, [token.encode() for token in tokens])

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Merge until the vocabulary is full or no pair occurs twice; see Tokenizer."""
        check_size(cls.kind, size, len(SPECIALS) + len(AMINO_ACIDS))
        return cls.of(*learn(_known(texts), cls.layout, size or DEFAULT_SIZE, AMINO_ACIDS))

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        """See Tokenizer."""
        return Residues.canonical()

    def normal(self, text: str) -> str:
        """See Tokenizer."""
        return ALPHABET.normal(text)

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """See Tokenizer."""
        return ALPHABET.changed(texts)

    def unknown(self, text: str) -> Counter[str]:
        """See Tokenizer."""
        return Counter(c for c in self.normal(text) if c not in AMINO_ACIDS)


def check_spelling(tokens: Sequence[str], letters: Sequence[str]) -> None:
    """Refuse a vocabulary that lacks a letter, or has a token with another one."""
    for token in tokens:
        if not token or not set(token) <= set(letters):
            raise UserError(f"{token!r} in model.vocab is not spelt in {''.join(letters)}")
    if absent := [letter for letter in letters if letter not in set(tokens)]:
        raise UserError(f"model.vocab lacks {' '.join(absent)}")


def _known(texts: Iterable[str]) -> Iterator[str]:
    """The texts, cut where something unknown is, which no vocabulary shall hold."""
    known = set(AMINO_ACIDS)
    for number, text in enumerate(texts):
        check_unicode([text], number)
        read = ALPHABET.normal(text)
        gaps = {ord(c): " " for c in set(read) - known}
        yield from read.translate(gaps).split()
