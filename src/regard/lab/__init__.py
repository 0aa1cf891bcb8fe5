"""The lectures' claims as experiments: the index of them, and how to run one or all.

An experiment is a function from `Options` to a `Result`; its module is imported when it is run.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import UsageError, UserError, did_you_mean
from regard.lab.experiment import CLAIM_COLUMNS, VERDICTS, Claim, Options, Result, summary
from regard.look.page import Links, Page, Table, Text


class Experiment(NamedTuple):
    """The question of an experiment, the headings that ask it by deck, what its FILE contains if it
    takes one, and the module of its function where that has another name.
    """

    question: str
    headings: Mapping[str, Sequence[str]]
    file: str = ""
    module: str = ""

    @property
    def lecture(self) -> str:
        """Decks and headings in words."""
        quoted = {
            deck: ", ".join(f"“{name}”" for name in row) for deck, row in self.headings.items()
        }
        return " · ".join(f"{deck} {names}" for deck, names in quoted.items())


TEXT = "text to train on"
PARTS = ".parts"  # of unfinished experiments, in the folder of their pages
EXPERIMENTS = {
    "distance": Experiment(
        "how far apart may two motifs be for a model to relate them?",
        {"002": ("Maximum a-posteriori (MAP)", "physically located far apart")},
    ),
    "kernels": Experiment(
        "is attention a weighted mean, and does learning its weights gain over assuming them?",
        {"002": ("Gaussian kernel",), "003": ("Nadaraya-Watson Kernel Regression",)},
        "a CSV of points, columns x and y",
    ),
    "lookup": Experiment(
        "is attention a dictionary that became fuzzy?",
        {
            "000": ("Key Innovation: Attention",),
            "001": ("Attention and Self-Attention",),
            "003": ("Soft lookup",),
            "004": ("Intuition for Attention Mechanism",),
        },
        "a table of keys and values: columns key and value, or its first two",
        "kernels",
    ),
    "bayes": Experiment(
        "what is known as counts arrive, and is the MAP what multipliers give?",
        {
            "002": (
                "Bayesian Parameter Estimation",
                "Dirichlet distribution",
                "Maximum a-posteriori (MAP)",
            )
        },
    ),
    "invariants": Experiment(
        "which laws does attention obey: order, sums, hulls, scales?",
        {
            "003": (
                "Convex Combination",
                "Permutation Equivariance",
                "So is Attention just a linear map?",
            ),
            "004": ("Quick Statistics Review:",),
        },
        "the run folder of a Transformer, whose attention is then held against a linear map",
    ),
    "svm": Experiment(
        "does attention trained by gradient descent tend to the largest margin?",
        {"001": ("Connections to Support Vector Machines",)},
        "the run folder of a classifier, whose selected tokens are then drawn",
    ),
    "positions": Experiment(
        "are positions frequencies, and which schemes work beyond the length trained on?",
        {
            "000": ("Positional Encoding",),
            "002": ("Positional Encoding",),
            "004": ("Position Representation Vectors Using Sinusoids (Original)",),
        },
        TEXT,
    ),
    "tricks": Experiment(
        "what do residuals, norms, scaling, warm-up and label smoothing each gain?",
        {
            "003": ("Add & Norm",),
            "004": (
                "Training Trick #1: Residual Connections",
                "Training Trick #2: Layer Normalization",
                "Training Trick #3: Scaled Dot Product Attention",
            ),
        },
        TEXT,
    ),
    "gradients": Experiment(
        "how far back does the gradient of recurrence, convolution and attention reach?",
        {"000": ("RNN limitations",), "004": ("Motivation for Transformer",)},
    ),
    "agreement": Experiment(
        "up to which distance does a verb agree with its subject?",
        {
            "000": ("RNN limitations",),
            "004": ("2. Transformer Motivation: Minimize Linear Interaction Distance",),
        },
    ),
    "heads": Experiment(
        "what does each head do, and how many are needed?",
        {
            "001": ("Attention",),
            "004": ("Multi-Headed Self-Attention: k heads are better than 1!",),
        },
        "the run folder of a model with attention",
    ),
    "complexity": Experiment(
        "what does each kind of layer cost, against length and width?",
        {
            "001": ("Transformer limitation", "Hyena"),
            "004": ("1. Transformer Motivation: Computational Complexity Per Layer",),
        },
    ),
    "recall": Experiment(
        "which models recall a symbol, however long ago it was?",
        {"001": ("Hyena",), "004": ("Motivation for Transformer",)},
    ),
    "scaling": Experiment(
        "would more data or a larger model help, and can smaller ones forecast it?",
        {"000": ("Needs a lot of data",), "004": ("Great Results With Transformers On NLP Tasks",)},
        TEXT,
    ),
    "dimensions": Experiment(
        "how many numbers does a word's vector need?",
        {
            "000": ("Token Embeddings",),
            "002": (
                "N = 30 – 300 dim vector for each token",
                "Continuous Bag Of Words",
            ),
        },
        "text, words with blanks between them",
    ),
    "slides": Experiment(
        "do the lectures' worked examples give the numbers on their slides?",
        {
            "002": (
                "B.SampleNames(15) vs totally random B.SampleNames(15, False)",
                "Gaussian kernel",
            ),
            "003": ("Nadaraya-Watson Kernel Regression",),
            "004": ("An Example of How LayerNorm Works",),
        },
    ),
    "errata": Experiment(
        "which statements of the lectures are loose or wrong, and by how much?",
        {
            "000": ("Key Innovation: Attention",),
            "002": ("caveats:", "top P-sampling"),
            "004": ("Training Trick #2: Layer Normalization",),
        },
    ),
}


def run_experiment(name: str, options: Options) -> Result:
    if name not in EXPERIMENTS:
        raise UsageError(f"unknown experiment {name!r}; {did_you_mean(name, list(EXPERIMENTS))}")
    if options.file is not None and not EXPERIMENTS[name].file:
        names = ", ".join(key for key, experiment in EXPERIMENTS.items() if experiment.file)
        raise UsageError(f"experiment {name!r} takes no file; those that do: {names or 'none'}")
    module = import_module(f"regard.lab.{EXPERIMENTS[name].module or name}")
    run: Callable[[Options], Result] = getattr(module, name)
    result = run(options)
    return replace(result, lecture=f"Lecture: {EXPERIMENTS[name].lecture}.")


def forget(options: Options) -> None:
    """Delete the parts of experiments that are finished."""
    if options.parts is not None:
        shutil.rmtree(options.parts, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class GalleryEntry:
    """One experiment: its result and files, or the error that stopped it."""

    name: str
    seconds: float
    result: Result | None = None
    files: Sequence[Path] = ()
    error: str = ""


@dataclass(frozen=True, eq=False)
class Gallery:
    """The results of all experiments, and their index page."""

    entries: Sequence[GalleryEntry]
    index: Path

    @property
    def files(self) -> list[Path]:
        """Every file written, the index first."""
        return [self.index, *(path for entry in self.entries for path in entry.files)]

    @property
    def claims(self) -> list[Claim]:
        return [c for entry in self.entries if entry.result for c in entry.result.claims]

    def claims_table(self) -> Table:
        """Return all claims; those that fail and experiments that stopped are highlighted."""
        rows: list[list[object]] = []
        for entry in self.entries:
            if entry.result is None:
                rows.append(["not tried", entry.name, "", entry.error])
            else:
                for verdict, name, *texts in (claim.row for claim in entry.result.claims):
                    rows.append([verdict, f"{entry.name}: {name}", *texts])
        failed = [i for i, row in enumerate(rows) if row[0] in (VERDICTS[False], "not tried")]
        return Table(CLAIM_COLUMNS, rows, warn=failed, title="All claims")

    def table(self) -> Table:
        """Return the number of claims of each experiment by verdict, and its duration."""
        rows: list[list[object]] = []
        for entry in self.entries:
            claims = [] if entry.result is None else entry.result.claims
            counts = [sum(claim.holds is verdict for claim in claims) for verdict in VERDICTS]
            rows.append([entry.name, *counts, round(entry.seconds, 1)])
        columns = ["experiment", "hold", "fail", "too small to tell", "seconds"]
        return Table(columns, rows, title="Experiments")

    def answers_table(self) -> Table:
        """Return every question with its answer, or why there is none."""
        rows: list[list[object]] = []
        for entry in self.entries:
            answer = f"not tried: {entry.error}" if entry.result is None else entry.result.answer
            rows.append([entry.name, EXPERIMENTS[entry.name].question, answer])
        return Table(["experiment", "question", "answer"], rows)

    def page(self) -> Page:
        page = Page("The lab", f"{len(self.entries)} experiments, {summary(self.claims)}")
        page.section("Answers", "Each experiment answers its question; its name leads to its page.")
        page.add(self.answers_table())
        page.add(Links([(e.name, f"{e.name}.html") for e in self.entries if e.result]))
        for entry in self.entries:
            if entry.result is None:
                page.section(entry.name)
                page.add(Text(f"Not tried: {entry.error}"))
                continue
            page.section(entry.result.title, EXPERIMENTS[entry.name].question)
            page.add(Text(entry.result.answer))
            page.add(entry.result.figures[0])
            page.add(Text(f"{entry.result.reading}\n\n{entry.result.lecture}"))
            page.add(Links([("the whole experiment", f"{entry.name}.html")]))
        page.section("Claims", "What was stated beforehand, and what was measured here.")
        page.add(self.claims_table())
        page.add(self.table())
        return page

    def to_json(self) -> dict[str, Any]:
        """Return the document of `regard lab all --json`."""
        documents = {e.name: e.result.to_json(e.files) for e in self.entries if e.result}
        return {
            "claims": [
                {"experiment": name} | claim
                for name, document in documents.items()
                for claim in document["claims"]
            ],
            "figures": [str(path) for path in self.files],
            "experiments": documents,
            "not_tried": {e.name: e.error for e in self.entries if e.result is None},
        }


def run_all(options: Options, folder: Path) -> Gallery:
    """Run all experiments one after another; one that cannot be run stops no other."""
    if options.file is not None:
        raise UsageError("regard lab all takes no file: give it to one experiment by its name")
    if options.parts is None and not options.quick:
        options = replace(options, parts=folder / PARTS)
    entries = []
    for i, name in enumerate(EXPERIMENTS):
        options.reporter.say(f"{name} ({i + 1} of {len(EXPERIMENTS)})")
        start, result, error = time.monotonic(), None, ""
        try:
            result = run_experiment(name, options)
        except UserError as stopped:
            error = str(stopped)
            options.reporter.warn(f"{name}: {error}")
        seconds = time.monotonic() - start
        files = [] if result is None else result.write(folder, name, options.reporter)
        entries.append(GalleryEntry(name, seconds, result, files, error))
    gallery = Gallery(entries, folder / "index.html")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        gallery.page().write(gallery.index)
        forget(options)
    except OSError as failure:
        raise UserError(f"cannot write to {folder}: {failure.strerror}") from None
    return gallery
