"""What an experiment is asked and what it finds: claims, tables, figures, and how to read them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from regard.errors import UserError, missing_extra
from regard.look.figures import save
from regard.look.page import Component, Page, Table, Text
from regard.look.page.component import cell
from regard.train.progress import Reporter, clock

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
    """What an experiment is asked: `quick` is a small form of seconds, `seed` of all randomness;
    `file` is a user's own, for those that take one.
    """

    quick: bool = False
    seed: int = 0
    file: Path | None = None
    reporter: Reporter = field(default_factory=lambda: Reporter(quiet=True))

    def work(self, total: float) -> Work:
        """A clock for so many units of work."""
        return Work(self.reporter, total)


@dataclass(frozen=True)
class Claim:
    """What is said, with its tolerance, what was found, and whether that agrees."""

    name: str
    stated: str
    measured: str
    holds: bool

    @property
    def verdict(self) -> str:
        """In a word."""
        return "holds" if self.holds else "fails"


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What an experiment found. `reading` says in a sentence how to read its figures.

    `figures` are drawn as pictures too; `panels` stand on the page below the tables.
    """

    title: str
    question: str
    reading: str
    claims: Sequence[Claim]
    tables: Sequence[Table]
    figures: Sequence[Component]
    panels: Sequence[Component] = ()

    def claims_table(self) -> Table:
        """The claims, those that fail set apart."""
        rows = [[c.verdict, c.name, c.stated, c.measured] for c in self.claims]
        failed = [i for i, claim in enumerate(self.claims) if not claim.holds]
        return Table(["", "claim", "stated", "measured"], rows, highlight=failed)

    def page(self) -> Page:
        """All of it as one HTML page."""
        held = sum(claim.holds for claim in self.claims)
        page = Page(self.title, f"{held} of {len(self.claims)} claims hold")
        page.section("Question")
        page.add(Text(self.question))
        page.section("Figure", self.reading)
        for figure in self.figures:
            page.add(figure)
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
        named = ("name", "stated", "measured", "holds")
        return {
            "claims": [{key: getattr(claim, key) for key in named} for claim in self.claims],
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
