"""One token per letter of an alphabet that is known beforehand: bases, residues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, Self

from regard.errors import UsageError, UserError
from regard.tokens.alphabet import Alphabet
from regard.tokens.canonical import Canonical
from regard.tokens.characters import Characters
from regard.tokens.tokenizer import (
    Document,
    filled,
    layout,
    learned_tokens,
    without_learned,
)

Case = Literal["fold", "keep"]


class Letters(Characters):
    """The letters of an alphabet; any other character becomes `<unk>`. Nothing is learned but
    which of the kind's alphabets it is.
    """

    alphabets: ClassVar[tuple[Alphabet, ...]]  # a file is recognised by which of them it has

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(alphabet.letters)
        self.alphabet = alphabet
        old, new = ([ord(c) for c in side] for side in (alphabet.reads, alphabet.reads.values()))
        self._table[old] = self._table[new]

    @classmethod
    def choose(cls, texts: Iterable[str], case: Case) -> Alphabet:
        """The alphabet for these texts."""
        return cls.alphabets[0 if case == "fold" else 1]

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0, *, case: Case = "fold") -> Self:
        """Choose the alphabet. `case` folds lower case into upper, or keeps it apart."""
        tokenizer = cls(cls.choose(texts, case))
        fixed_size(cls.kind, size, tokenizer.vocab_size)
        return tokenizer

    @classmethod
    def canonical(cls, *, case: Case = "fold", **options: Any) -> Canonical:
        """See Tokenizer."""
        alphabet = cls.alphabets[0 if case == "fold" else 1]
        return Canonical(alphabet.normal, ("letter case",) if case == "fold" else ())

    def normal(self, text: str) -> str:
        """See Tokenizer."""
        return self.alphabet.normal(text)

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """See Tokenizer."""
        return self.alphabet.changed(texts)

    @classmethod
    def layouts(cls) -> list[Document]:
        """See OwnTokenizer."""
        return [_layout(alphabet) for alphabet in cls.alphabets]

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(_layout(self.alphabet), self.characters)

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        tokenizer = cls(cls.alphabets[cls.layouts().index(without_learned(document))])
        same_tokens(learned_tokens(document, name), tokenizer.characters, name)
        return tokenizer


def _layout(alphabet: Alphabet) -> Document:
    return layout(
        model={"type": "WordLevel", "unk_token": "<unk>"},
        normalizer=alphabet.normalizer,
        pre_tokenizer={
            "type": "Split",
            "pattern": {"Regex": rf"{alphabet.members}|[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        decoder={"type": "Fuse"},
    )


def fixed_size(kind: str, size: int, whole: int) -> None:
    """Refuse another size than that of a vocabulary which is what it is."""
    if size not in (0, whole):
        raise UsageError(
            f"tokens.size must be {whole} for these {kind}, or 0 for the default; got {size}"
        )


def same_tokens(found: Sequence[str], expected: Sequence[str], name: str) -> None:
    """Refuse a file whose vocabulary is not the one that its layout implies."""
    if list(found) != list(expected):
        raise UserError(
            f"{name}: damaged: model.vocab must hold the {len(expected)} tokens of its alphabet, "
            "in their order"
        )
