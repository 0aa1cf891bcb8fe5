"""Names of experiments, what each asks, and where it lives; one is imported when it is run.

All experiments in one folder: a page each, and an index with a figure, its reading and all
claims.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import UsageError, UserError, did_you_mean
from regard.lab.result import VERDICTS, Claim, Options, Result, summary
from regard.look.page import Links, Page, Table, Text


class Experiment(NamedTuple):
    """Where a function from Options to Result lives, its question in a line, and what a FILE given
    to it is, if it takes one.
    """

    place: str
    line: str
    file: str = ""


EXPERIMENTS = {
    "distance": Experiment(
        "regard.lab.distance:distance",
        "how far apart may two motifs be for a model to relate them?",
    ),
    "kernels": Experiment(
        "regard.lab.kernels:kernels",
        "is attention a weighted mean, and does learning its weights gain over assuming them?",
        "a CSV of points, columns x and y",
    ),
    "lookup": Experiment(
        "regard.lab.lookup:lookup",
        "is attention a dictionary that became fuzzy?",
        "a TSV of keys and values, each key once",
    ),
    "bayes": Experiment(
        "regard.lab.bayes:bayes",
        "what is known as counts arrive, and is the MAP what Lagrange multipliers say?",
    ),
    "invariants": Experiment(
        "regard.lab.invariants:invariants",
        "which laws does attention obey: order, sums, hulls, scales?",
    ),
    "svm": Experiment(
        "regard.lab.svm:svm",
        "does attention trained by gradient descent tend to the largest margin?",
    ),
    "positions": Experiment(
        "regard.lab.positions:positions",
        "are positions frequencies, and which schemes work beyond the length trained on?",
        "text to train on",
    ),
    "tricks": Experiment(
        "regard.lab.tricks:tricks",
        "what do residuals, norms, scaling, warm-up and label smoothing each gain?",
        "text to train on",
    ),
    "gradients": Experiment(
        "regard.lab.gradients:gradients",
        "how far back does the gradient of recurrence, convolution and attention reach?",
    ),
    "agreement": Experiment(
        "regard.lab.agreement:agreement",
        "up to which distance does a verb agree with its subject?",
    ),
    "heads": Experiment(
        "regard.lab.heads:heads",
        "what does each head do, and how many are needed?",
        "the run folder of a Transformer",
    ),
    "complexity": Experiment(
        "regard.lab.complexity:complexity",
        "what does each kind of layer cost here, against length and width?",
    ),
    "recall": Experiment(
        "regard.lab.recall:recall",
        "who recalls what was said, however long ago?",
    ),
    "scaling": Experiment(
        "regard.lab.scaling:scaling",
        "would more data or a larger model help, and can smaller ones tell?",
        "text to train on",
    ),
    "dimensions": Experiment(
        "regard.lab.dimensions:dimensions",
        "how many numbers does a word's vector need?",
        "text, words with blanks between them",
    ),
}


def perform(name: str, options: Options) -> Result:
    """Run the experiment of that name."""
    if name not in EXPERIMENTS:
        raise UsageError(f"unknown experiment {name!r}; {did_you_mean(name, list(EXPERIMENTS))}")
    if options.file is not None and not EXPERIMENTS[name].file:
        takers = ", ".join(key for key, one in EXPERIMENTS.items() if one.file)
        raise UsageError(f"experiment {name!r} takes no file; those that do: {takers or 'none'}")
    module, _, attribute = EXPERIMENTS[name].place.partition(":")
    function: Callable[[Options], Result] = getattr(import_module(module), attribute)
    return function(options)


@dataclass(frozen=True, eq=False, kw_only=True)
class Piece:
    """One experiment: what it found and where that is written, or why it could not be done."""

    name: str
    seconds: float
    result: Result | None = None
    written: Sequence[Path] = ()
    trouble: str = ""


@dataclass(frozen=True, eq=False)
class Gallery:
    """What all of them found."""

    pieces: Sequence[Piece]
    index: Path

    @property
    def written(self) -> list[Path]:
        """Every file, the index first."""
        return [self.index, *(path for piece in self.pieces for path in piece.written)]

    @property
    def claims(self) -> list[Claim]:
        """Those of all experiments."""
        return [c for piece in self.pieces if piece.result for c in piece.result.claims]

    def claims_table(self) -> Table:
        """The claims of all, those that fail and those that could not be tried set apart."""
        rows: list[list[object]] = []
        failed = []
        for piece in self.pieces:
            if piece.result is None:
                failed.append(len(rows))
                rows.append(["not tried", piece.name, "", piece.trouble])
                continue
            for claim in piece.result.claims:
                if claim.holds is False:
                    failed.append(len(rows))
                said = f"{piece.name}: {claim.name}"
                rows.append([claim.verdict, said, claim.stated, claim.measured])
        columns = ["", "claim", "stated", "measured"]
        return Table(columns, rows, highlight=failed, title="All claims")

    def table(self) -> Table:
        """How many claims of each hold, fail and cannot be told, and how long it took."""
        rows: list[list[object]] = []
        for piece in self.pieces:
            claims = [] if piece.result is None else piece.result.claims
            counts = [sum(claim.holds is verdict for claim in claims) for verdict in VERDICTS]
            rows.append([piece.name, *counts, round(piece.seconds, 1)])
        columns = ["experiment", "hold", "fail", "too small to tell", "seconds"]
        return Table(columns, rows, title="Experiments")

    def page(self) -> Page:
        """The index."""
        page = Page("The lab", f"{len(self.pieces)} experiments, {summary(self.claims)}")
        for piece in self.pieces:
            if piece.result is None:
                page.section(piece.name)
                page.add(Text(f"Not tried: {piece.trouble}"))
                continue
            page.section(piece.result.title, EXPERIMENTS[piece.name].line)
            page.add(piece.result.figures[0])
            page.add(Text(piece.result.reading))
            page.add(Links([("the whole experiment", f"{piece.name}.html")]))
        page.section("Claims", "What was said beforehand, and what was measured here.")
        page.add(self.claims_table())
        page.add(self.table())
        return page

    def to_json(self) -> dict[str, Any]:
        """The document of `regard lab all --json`."""
        done = {p.name: p.result.to_json(p.written) for p in self.pieces if p.result is not None}
        return {
            "claims": [
                {"experiment": name} | claim
                for name, one in done.items()
                for claim in one["claims"]
            ],
            "figures": [str(path) for path in self.written],
            "experiments": done,
            "not_tried": {p.name: p.trouble for p in self.pieces if p.result is None},
        }


def hang(options: Options, folder: Path) -> Gallery:
    """Do all experiments one after another; one that cannot be done stops no other."""
    if options.file is not None:
        raise UsageError("regard lab all takes no file: give it to one experiment by its name")
    pieces = []
    for i, name in enumerate(EXPERIMENTS):
        options.reporter.say(f"{name} ({i + 1} of {len(EXPERIMENTS)})")
        began = time.monotonic()
        try:
            result = perform(name, options)
        except UserError as error:
            options.reporter.warn(f"{name}: {error}")
            seconds = time.monotonic() - began
            pieces.append(Piece(name=name, seconds=seconds, trouble=str(error)))
            continue
        seconds = time.monotonic() - began
        written = result.write(folder, name, options.reporter)
        pieces.append(Piece(name=name, seconds=seconds, result=result, written=written))
    gallery = Gallery(pieces, folder / "index.html")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        gallery.page().write(gallery.index)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return gallery
