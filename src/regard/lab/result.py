"""What an experiment is asked and what it finds: claims, tables, figures, and how to read them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard.errors import UserError, missing_extra
from regard.look.figures import save
from regard.look.page import Component, Page, Table, Text
from regard.look.page.component import cell, same_length
from regard.models.dirichlet_ngram import quantile
from regard.training.progress import Reporter, clock

EVERY = 5.0  # seconds between two lines about how far the work is
TELLING = 0.03  # of the work is done before it is told when it will end
Z = 1.959964  # of a normal distribution lie 95% within so many standard deviations


class Work:
    """Says how far an experiment is and when it will end; a unit of work is what it is told."""

    def __init__(self, reporter: Reporter, total: float) -> None:
        self.reporter, self.total, self.done = reporter, max(total, 1e-9), 0.0
        self.began = self.said = time.monotonic()

    def add(self, what: str, units: float) -> None:
        """So much of `what` has been done since the last call."""
        self.done += units
        now = time.monotonic()
        if now - self.said >= EVERY:
            self.said = now
            share = min(1.0, self.done / self.total)
            left = (now - self.began) * (1 - share) / max(share, 1e-9)
            known = clock(left) if share > TELLING else "…"
            self.reporter.say(f"{what} · {100 * share:.0f}% · ETA {known}")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What an experiment is asked: `quick` is a small form of seconds, `seed` of all randomness,
    `file` the user's own data where the experiment takes some.
    """

    quick: bool = False
    seed: int = 0
    file: Path | None = None
    reporter: Reporter = field(default_factory=lambda: Reporter(quiet=True))

    def work(self, total: float) -> Work:
        """A clock for so many units of work."""
        return Work(self.reporter, total)


ABOVE = math.nextafter(0.0, 1.0)  # the least number above 0, where a claim excludes 0 itself
VERDICTS = {True: "holds", False: "fails", None: "too small to tell"}


@dataclass(frozen=True)
class Claim:
    """What is stated, with its tolerance, what was measured, and whether the two agree.

    `holds` is None where the experiment is too small to tell. `interval` is the 95% interval that
    decided; what is counted or computed exactly has none.
    """

    name: str
    stated: str
    measured: str
    holds: bool | None
    interval: tuple[float, float] | None = None

    @property
    def verdict(self) -> str:
        """In words."""
        return VERDICTS[self.holds]

    @classmethod
    def within(
        cls,
        name: str,
        stated: str,
        measured: object,
        interval: tuple[float, float],
        *,
        least: float = -math.inf,
        most: float = math.inf,
        may_rise: bool = False,
        may_fall: bool = False,
    ) -> Claim:
        """The claim that a figure with this 95% interval is from `least` to `most`: it holds where
        the whole interval is, fails where none of it is, and else the data are too few to tell.

        A quick form trains briefly, on little. Where a figure would only rise with more of that
        (`may_rise`), what was measured bounds it from below and the upper end is open: the claim
        that it is high cannot fail. `may_fall` is the same downwards.
        """
        low, high = interval
        said = str(measured)
        if low == -math.inf and high == math.inf:
            said += "; a single measurement has no interval"
        elif (may_rise and high < least) or (may_fall and low > most):
            said += "; the quick form is too brief to refute it"
        low, high = -math.inf if may_fall else low, math.inf if may_rise else high
        holds = None
        if least <= interval[0] and interval[1] <= most:
            holds = True
        elif high < least or low > most:
            holds = False
        return cls(name, stated, said, holds, (low, high) if holds is None else interval)


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What an experiment found. `reading` says how to read its first figure; `readings`, where
    there are more figures, a sentence for each of the others.

    `figures` are drawn as pictures too; `panels` stand on the page below the tables.
    """

    title: str
    question: str
    reading: str
    claims: Sequence[Claim]
    tables: Sequence[Table]
    figures: Sequence[Component]
    panels: Sequence[Component] = ()
    readings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.readings:
            same_length("readings", len(self.readings), "figure but one", len(self.figures) - 1)

    def claims_table(self) -> Table:
        """The claims, those that fail set apart."""
        rows = [[c.verdict, c.name, c.stated, c.measured] for c in self.claims]
        failed = [i for i, claim in enumerate(self.claims) if claim.holds is False]
        return Table(["", "claim", "stated", "measured"], rows, highlight=failed)

    def page(self) -> Page:
        """All of it as one HTML page."""
        page = Page(self.title, summary(self.claims))
        page.section("Question")
        page.add(Text(self.question))
        page.section("Figure", self.reading)
        for figure, reading in zip_longest(self.figures, ("", *self.readings), fillvalue=""):
            assert isinstance(figure, Component) and isinstance(reading, str)
            page.add(figure)
            if reading:
                page.add(Text(reading))
        page.section("Claims", "What is said beforehand, and what was measured here.")
        page.add(self.claims_table())
        page.section("Measured")
        for component in [*self.tables, *self.panels]:
            page.add(component)
        return page

    def write(self, folder: Path, name: str, reporter: Reporter) -> list[Path]:
        """NAME.html, NAME.svg and NAME.png; without matplotlib the page alone, which is said."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = [self.page().write(folder / f"{name}.html")]
            if find_spec("matplotlib") is None:
                reporter.warn(f"no pictures: {missing_extra('matplotlib', 'plots')}")
                return written
            return [*written, *(save(self.figures, folder / f"{name}.{e}") for e in ("svg", "png"))]
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}") from None

    def to_json(self, figures: Sequence[Path]) -> dict[str, Any]:
        """The document of `regard lab NAME --json`."""
        said = ("name", "stated", "measured")
        return {
            "claims": [
                {key: getattr(claim, key) for key in said}
                | {"holds": None if claim.holds is None else bool(claim.holds)}
                | {"interval": finite(claim.interval)}
                for claim in self.claims
            ],
            "figures": [str(path) for path in figures],
            "tables": [
                {
                    "title": table.title,
                    "columns": list(table.columns),
                    "rows": [[cell(value) for value in row] for row in table.rows],
                }
                for table in self.tables
            ],
        }


def summary(claims: Sequence[Claim]) -> str:
    """How many claims hold, fail, and cannot be told, in words."""
    verdicts = [claim.verdict for claim in claims]
    held, failed, open_ = (verdicts.count(word) for word in VERDICTS.values())
    rest = f", {open_} too small to tell" if open_ else ""
    fail = "fails" if failed == 1 else "fail"
    return f"{held} of {len(claims)} claims hold, {failed} {fail}{rest}"


def finite(interval: tuple[float, float] | None) -> list[float | None] | None:
    """An interval for JSON: open ends are None."""
    if interval is None:
        return None
    return [end if math.isfinite(end) else None for end in interval]


@dataclass(frozen=True)
class Share:
    """So many of so many, with a 95% interval."""

    right: int
    of: int

    @property
    def value(self) -> float:
        """The share."""
        return self.right / self.of

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson 1927 (JASA 22:209): the shares that the count would not surprise at 95%. It has a
        width where all or none are right, where the bootstrap's has none.
        """
        share = Z * Z / self.of
        centre = (self.value + share / 2) / (1 + share)
        half = math.sqrt(share * (self.value * (1 - self.value) + share / 4)) / (1 + share)
        return max(0.0, centre - half), min(1.0, centre + half)

    @property
    def percent(self) -> str:
        """For tables with many columns."""
        low, high = self.interval
        return f"{100 * self.value:.3g} [{100 * low:.3g}, {100 * high:.3g}]"

    def __add__(self, other: Share) -> Share:
        return Share(self.right + other.right, self.of + other.of)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.3f} [{low:.3f}, {high:.3f}]"


def less(one: Share, other: Share) -> tuple[float, float]:
    """The 95% interval of the share of one less that of the other, counted apart: Newcombe 1998
    (Statistics in Medicine 17:873), method 10, from the intervals of both.
    """
    (low, high), (least, most) = one.interval, other.interval
    gap = one.value - other.value
    down = math.hypot(one.value - low, most - other.value)
    up = math.hypot(high - one.value, other.value - least)
    return gap - down, gap + up


@dataclass(frozen=True)
class Mean:
    """The mean of repeated measurements, with a 95% interval of Student's t."""

    value: float
    half: float

    @staticmethod
    def of(values: Sequence[float]) -> Mean:
        """Of at least one; the interval of one is infinite."""
        many, mean = len(values), math.fsum(values) / len(values)
        if many < 2:
            return Mean(mean, math.inf)
        spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (many - 1))
        return Mean(mean, student(many - 1) * spread / math.sqrt(many))

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.value - self.half, self.value + self.half

    def __str__(self) -> str:
        low, high = self.interval
        if not math.isfinite(self.half):
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{low:.4g}, {high:.4g}]"


def student(freedom: int) -> float:
    """The 97.5% point of Student's t: with x = f / (f + t²), I_x(f/2, 1/2) = 0.05."""
    x = quantile(0.05, freedom / 2, 0.5)
    return math.sqrt(freedom * (1 - x) / x)
