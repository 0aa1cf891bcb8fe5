"""A tokenizer that reads vowels alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

from regard.tokenizers.text import Characters
from regard.tokenizers.tokenizer import WORD_LEVEL, Ids, layout

VOWELS = "aeiou"


def vowels(text: str) -> str:
    """Return the vowels of a text."""
    return "".join(character for character in text if character in VOWELS)


class Vowels(Characters):
    """One token per vowel; all other characters are left out."""

    name = "vowels"
    layout = layout(
        WORD_LEVEL,
        r"[\s\S]",
        normalizer={"type": "Replace", "pattern": {"Regex": f"[^{VOWELS}]"}, "content": ""},
    )

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        return super().train(map(vowels, texts), size)

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        return super().encode_batch([vowels(text) for text in texts])
