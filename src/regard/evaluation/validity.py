"""How many generated texts are valid, different and new: validity, uniqueness and novelty (Brown et
al. 2019, arXiv:1811.09621).

What is valid is the modality's to say: of molecules what RDKit can parse, of sequences what has no
letters but those of bases or amino acids. Texts are compared in a normal form, molecules by their
canonical SMILES.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

Z = 1.959964  # of a 95% interval
MAX_COMPARED = 50_000  # training records

NormalForm = Callable[[str], str | None]  # of a text; None if it is not valid


@dataclass(frozen=True)
class Rule:
    """What makes a text of a modality valid, and its normal form."""

    words: str  # what is true of a valid text: "RDKit can parse them"
    normal_form: NormalForm


@dataclass(frozen=True)
class Share:
    """A part of a whole, with the 95% interval of Wilson 1927; undefined of nothing."""

    count: int
    total: int

    @property
    def interval(self) -> tuple[float, float]:
        """The lowest and the highest share that fit the counts."""
        n, p = self.total, self.count / self.total
        center = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
        half = Z / (1 + Z**2 / n) * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
        return max(0.0, center - half), min(1.0, center + half)

    def __str__(self) -> str:
        if not self.total:
            return "none"
        shares = (self.count / self.total, *self.interval)
        value, low, high = (f"{share:.0%}" for share in shares)
        return f"{self.count:,} of {self.total:,} ({value} [{low}, {high}])"

    def to_json(self) -> dict[str, Any]:
        if not self.total:
            return {"value": None, "undefined": "there is none"}
        low, high = self.interval
        return {"value": self.count / self.total, "low": low, "high": high}


@dataclass(frozen=True)
class Validity:
    """How many of some texts are valid, how many of these are different, and how many of those are
    not in the training data; None if that is not known.
    """

    rule: str
    valid: Share
    unique: Share
    new: Share | None
    compared: int  # training records

    def lines(self) -> list[str]:
        """Return the result in words."""
        lines = [f"valid: {self.valid}: {self.rule}", f"unique: {self.unique}, of the valid ones"]
        if self.new is None:
            return [*lines, "new: unknown, there are no training records to compare with"]
        return [*lines, f"new: {self.new}: not among {self.compared:,} training records"]

    def to_json(self) -> dict[str, Any]:
        """Return `validity` of `regard generate --json`."""
        new = {"value": None, "undefined": "there are no training records to compare with"}
        return {
            "rule": self.rule,
            "validity": self.valid.to_json(),
            "uniqueness": self.unique.to_json(),
            "novelty": new if self.new is None else self.new.to_json(),
            "training_records": self.compared,
        }


def measure_validity(texts: Sequence[str], rule: Rule, training: Iterable[str] | None) -> Validity:
    """Return the validity of texts, compared with the training records, if there are any."""
    forms = [form for text in texts if (form := rule.normal_form(text)) is not None]
    different = set(forms)
    valid, unique = Share(len(forms), len(texts)), Share(len(different), len(forms))
    if training is None:
        return Validity(rule.words, valid, unique, None, 0)
    compared, remaining = 0, set(different)
    for text in islice(training, MAX_COMPARED):
        compared += 1
        if remaining:
            remaining.discard(rule.normal_form(text) or text)
    return Validity(rule.words, valid, unique, Share(len(remaining), len(different)), compared)
