"""Labels of words, and the spans that they make up: names of people, places, chemicals.

Many models tag words in a scheme of prefixes: `B-PER I-PER O` is one person of two words (Ramshaw
and Marcus 1995, arXiv:cmp-lg/9505040). With `E-` or `L-` for the last word and `S-` or `U-` for the
only one it is called BIOES or BILOU.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OUTSIDE = "O"
TAG = re.compile(r"([BIELSU])-(.+)")
FIRST, LAST = "BSU", "ELSU"  # prefixes that begin and that end a span


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` of a text, the label they have, and the probability of each
    label, of several words on average.
    """

    text: str
    start: int
    end: int
    label: str
    scores: dict[str, float]
    score: float

    def to_json(self) -> dict[str, Any]:
        """An entry of `words` or `spans` in `regard classify --json`."""
        keys = ("text", "start", "end", "label", "score")
        return {key: getattr(self, key) for key in keys}


def tagged(classes: Sequence[str]) -> bool:
    """Are these labels tags of a scheme, such as O, B-PER and I-PER?"""
    others = [name for name in classes if name != OUTSIDE]
    return bool(others) and all(TAG.fullmatch(name) for name in others)


def merged(text: str, words: Sequence[Span]) -> list[Span]:
    """Words with tags as spans with the types of these; words outside of spans as they are.

    What follows no scheme is read as it was probably meant: an `I-` that continues nothing begins.
    """
    groups: list[tuple[str, list[Span]]] = []
    before = ""  # the prefix of the word before
    for word in words:
        match = TAG.fullmatch(word.label)
        prefix, kind = match.groups() if match else ("", OUTSIDE)
        begins = not match or not before or prefix in FIRST or before in LAST
        if begins or groups[-1][0] != kind:
            groups.append((kind, []))
        groups[-1][1].append(word)
        before = prefix
    return [joined(text, kind, group) for kind, group in groups]


def joined(text: str, label: str, words: Sequence[Span]) -> Span:
    """Some words in a row as one span."""
    start, end, many = words[0].start, words[-1].end, len(words)
    scores = {name: sum(word.scores[name] for word in words) / many for name in words[0].scores}
    score = sum(word.score for word in words) / many
    return Span(text[start:end], start, end, label, scores, score)
