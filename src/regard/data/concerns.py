"""What looks wrong with the targets of labelled records, a line each: spellings of one class, too
many classes, texts among numbers, values far from all others.

Nothing is changed for it: a user should look, since no model will notice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.numbers import number

Rows = list[tuple[str, str]]  # what it is about, and what to say

MANY = 50  # classes, more than which are too many if most have one record
FAR = 20  # interquartile ranges from the quartiles, beyond which a value is an outlier
FEW = 0.1  # share of records with texts up to which numbers are the rule
SHOWN = 3


def of_classes(
    name: str,
    counts: Mapping[str, int],
    places: Mapping[str, str],
    spaced: Mapping[str, tuple[int, str]],
) -> Rows:
    """What is odd about classes: how many records each has, where each first stands, and which
    targets were written with blanks around them, how often, and the first.
    """
    return [
        *_spellings(name, counts, places),
        *_trimmed(name, counts, spaced),
        *_too_many(name, counts, places),
        *_texts(name, counts, places),
    ]


def _at(label: str, places: Mapping[str, str]) -> str:
    return f"{label[:40]!r} ({places[label]})" if label in places else repr(label[:40])


def _spellings(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    """Classes that are the same but for case and blanks."""
    alike: dict[str, list[str]] = {}
    for label in counts:
        alike.setdefault(" ".join(label.split()).casefold(), []).append(label)
    found = [sorted(labels, key=lambda c: (-counts[c], c)) for labels in alike.values()]
    found = [labels for labels in found if len(labels) > 1]
    if not found:
        return []
    first, *others = found
    more = f", and {len(others):,} more such groups" if others else ""
    said = " and ".join(f"{_at(c, places)}" for c in first[:SHOWN])
    classes = sum(map(len, found))
    line = f"{classes:,} classes of {name!r} differ only by case or space: {said}{more}"
    return [("spelling", line)]


def _trimmed(name: str, counts: Mapping[str, int], spaced: Mapping[str, tuple[int, str]]) -> Rows:
    """Classes written both with and without blanks around them, which are read as one."""
    both = [label for label, (n, _) in spaced.items() if n < counts.get(label, 0)]
    if not both:
        return []
    line = (
        f"classes of {name!r} that differ only by spaces around them are read as one "
        f"({len(both):,}); first: {spaced[both[0]][1]}"
    )
    return [("spelling", line)]


def _too_many(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    if len(counts) <= MANY or float(np.median(list(counts.values()))) > 1:
        return []
    once = next(label for label, n in counts.items() if n == 1)
    line = (
        f"{name!r} has {len(counts):,} classes, and most have one record, such as "
        f"{_at(once, places)}: are they texts or numbers? --task target or --task value reads them"
    )
    return [("classes", line)]


def _texts(name: str, counts: Mapping[str, int], places: Mapping[str, str]) -> Rows:
    """A few texts where the other classes are numbers."""
    texts = [label for label in counts if number(label) is None]
    rows = sum(counts[label] for label in texts)
    if not texts or len(texts) == len(counts) or rows > FEW * sum(counts.values()):
        return []
    what = f"{rows:,} {'row has' if rows == 1 else 'rows have'} text"
    line = f"{what} where {name!r} has numbers elsewhere; first: {_at(texts[0], places)}"
    return [("classes", line)]


def limits(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float] | None:
    """Below and above which a value is an outlier; None where half of the values are the same."""
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FAR * (high - low)
    return (float(low - reach), float(high + reach)) if reach > 0 else None


def of_values(name: str, values: NDArray[np.float64]) -> str:
    """What is odd about values, without the place of the first; "" where nothing is."""
    bounds = limits(values)
    if bounds is None:
        return ""
    far = values[(values < bounds[0]) | (values > bounds[1])]
    if not len(far):
        return ""
    what = f"{len(far):,} {'value' if len(far) == 1 else 'values'} of {name!r}"
    verb = "lies" if len(far) == 1 else "lie"
    return (
        f"{what} {verb} more than {FAR} interquartile ranges from the others; first: {far[0]:.10g}"
    )


def tallied(found: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Records of each class over all sides."""
    return Counter({label: sum(sides.values()) for label, sides in found.items()})
