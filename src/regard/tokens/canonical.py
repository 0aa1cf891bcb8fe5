"""When two texts are the same record: what a tokenizer reads alike, and what names one thing.

Copies, splits and leaks go by the canonical form of a text, so that a record does not count as new
because it is spelled in another way. Every tokenizer class knows its form before anything is
learned (`Tokenizer.canonical`); `data.canonical` adds what the other settings say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from unicodedata import normalize

Spelling = Callable[[str], str]


@dataclass(frozen=True)
class Canonical:
    """The form in which texts are compared; `spelling` is applied to texts in Unicode's NFC."""

    spelling: Spelling | None = None  # None: nothing but NFC
    ignores: tuple[str, ...] = ()  # without regard to what texts are compared
    note: str = ""  # what was not compared, and why
    slow: bool = False  # does a text take a good part of a millisecond?

    def of(self, text: str) -> str:
        """The canonical form of one text."""
        if not text.isascii():
            text = normalize("NFC", text)
        return self.spelling(text) if self.spelling else text

    def all(self, texts: Sequence[str]) -> Sequence[str]:
        """The canonical forms of some texts."""
        if self.spelling is None and all(map(str.isascii, texts)):
            return texts
        return [self.of(text) for text in texts]

    def then(self, spelling: Spelling, *ignores: str) -> Canonical:
        """This form, spelled in one more way."""
        before = self.spelling
        both = spelling if before is None else lambda text: spelling(before(text))
        return Canonical(both, (*self.ignores, *ignores), self.note, self.slow)


PLAIN = Canonical()


def without_regard(ignores: Sequence[str]) -> str:
    """How texts were compared, in words to stand behind a count; nothing where as they are."""
    return f" (compared without regard to {', '.join(ignores)})" if ignores else ""


def molecules() -> Canonical:
    """SMILES by the molecule that they name, as RDKit writes it; without RDKit as they are."""
    try:
        from rdkit import Chem
    except ImportError:
        return Canonical(
            note="spellings of one molecule were not compared: RDKit is not installed "
            "(pip install 'regard[chem]')"
        )
    from rdkit.rdBase import BlockLogs

    @cache  # data is read several times
    def spelled(text: str) -> str:
        with BlockLogs():  # what is no molecule is compared as it is
            molecule = Chem.MolFromSmiles(text)
        return text if molecule is None else str(Chem.MolToSmiles(molecule))

    return Canonical(spelled, ("the spelling of SMILES",), slow=True)
