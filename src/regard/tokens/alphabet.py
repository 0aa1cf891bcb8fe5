"""Alphabets of biological sequences: their letters in the order of their ids, and what is read as
which.

A letter read as another (lower case, U in DNA) does not come back when decoded: `normal` is what
does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.tokens.tokenizer import Document


@dataclass(frozen=True)
class Alphabet:
    """`letters` have ids of their own; `reads` says of other characters as which they are read."""

    letters: str
    reads: Mapping[str, str]

    @cached_property
    def _translation(self) -> dict[int, str]:
        return str.maketrans(dict(self.reads))

    @cached_property
    def members(self) -> str:
        """The letters as a class of a regular expression."""
        return f"[{re.escape(self.letters)}]"

    @property
    def normalizer(self) -> Document | None:
        """`normal` as tokenizer.json says it."""
        steps = [
            {"type": "Replace", "pattern": {"String": old}, "content": new}
            for old, new in self.reads.items()
        ]
        return {"type": "Sequence", "normalizers": steps} if steps else None

    def normal(self, text: str) -> str:
        """The text with every character as it is read."""
        return text.translate(self._translation)

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """How often each character occurs that is read as another."""
        whole = "".join(texts)
        found = {f"{old} as {new}": whole.count(old) for old, new in self.reads.items()}
        return Counter({name: n for name, n in found.items() if n})


def folded(letters: str, reads: Mapping[str, str] | None = None) -> Alphabet:
    """Upper-case letters, as which lower-case ones (soft-masked, in genomes) are read too."""
    reads = dict(reads or {})
    lower = {c.lower(): c for c in letters if c.isupper()}
    return Alphabet(letters, reads | lower | {c.lower(): new for c, new in reads.items()})


def kept(letters: str, reads: Mapping[str, str] | None = None) -> Alphabet:
    """Upper-case letters, and lower-case ones as letters of their own."""
    reads = dict(reads or {})
    lower = "".join(c.lower() for c in letters if c.isupper())
    return Alphabet(letters + lower, reads | {c.lower(): n.lower() for c, n in reads.items()})
