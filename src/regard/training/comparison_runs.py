"""The runs of a comparison: their recipes, their shares of the time, training, and the final table.

A row of the table is a run folder like any other, trained in its own process on one tokenized copy
of the data. A finished run is not trained again and a stopped one is resumed, so the same command
resumes a comparison. Folds of a row are small runs that share one process
(`python -m regard.training.comparison_runs RUN…`), since a process takes longer to start than a
fold to train; all take as many steps as fit into the minutes of the first.

The minutes include starting processes, evaluation and the table. Rows that are fitted in one pass
come first; the rest of their share goes to the neural rows, which have equal shares. If the minutes
are too few for all rows, the first in KEPT that fit are chosen; points of scaling curves and later
seeds are left out first.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import fmean
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from rich.live import Live
from rich.table import Table

from regard.data.corpus import FOLDER, Corpus
from regard.data.sources import DataSource
from regard.errors import UsageError, UserError, one_line
from regard.evaluation.bootstrap import BootstrapEstimate, Folds, mean_over_seeds
from regard.evaluation.comparison import (
    SYMBOL_LOSS,
    Comparison,
    Row,
    rank_rows,
    write_verdict,
)
from regard.evaluation.language_modeling import TokenLosses, mean_losses
from regard.evaluation.predictions import Predictions, join_folds
from regard.evaluation.translation import Sentence, TranslationReport, score_translations
from regard.models import count_parameters, find_config
from regard.recipe import Recipe, build, read, to_toml
from regard.recipe import tables as tables_of
from regard.registry import MODELS
from regard.run import METADATA, METRICS, RECIPE, Run
from regard.run_folders import Measurement
from regard.storage import StoredMemory, TrainedFacts, read_json, write_json, write_text
from regard.tokenizers import PREPROCESSOR, SOURCE_TOKENIZER, TOKENIZER
from regard.training.defaults import ONE_PASS, fill_defaults
from regard.training.launcher import Launcher
from regard.training.progress import PLAIN_EVERY, Reporter, clock
from regard.training.trainer import fit_config


def default_models(recipe: Recipe, corpus: Corpus, log: Callable[[str], None]) -> list[str]:
    """Return the rows for a task, in registration order; those left out are logged with reasons."""
    rows = []
    for name in MODELS.names(recipe.task.name, recipe.reads):
        family = MODELS.get(name, recipe.task.name, recipe.reads)
        if reason := family.unsuitable(corpus):
            log(f"{name} is left out: {reason}")
        else:
            rows.append(name)
    return rows


def folds_of(recipe: Recipe) -> int:
    """Return the number of folds of cross-validation; 1 without it."""
    if not recipe.data.folds:
        return 1
    sources = DataSource.of(recipe, recipe.train.init_from)
    assert sources.plan is not None
    return sources.plan.count_folds(sources.train)


def match_parameters(
    chosen: Recipe,
    models: Sequence[str],
    corpus: Corpus,
    left_out: Callable[[str], None] | None = None,
) -> list[Recipe]:
    """Return the recipes of a comparison: neural models have the number of parameters of the chosen
    one, to a tenth, and its dropout; all have its context.

    A model that cannot be as small or large is an error or, given `left_out`, is logged to it.
    """
    config, vocab_size = fit_config(chosen.model.config, corpus), corpus.tokenizer.vocab_size
    task, kind = chosen.task.name, chosen.reads
    shape = {"n_layers": config.n_layers, "max_len": config.max_len, "task": task}
    source = {"source_vocab": getattr(config, "source_vocab", 0)}
    decided = {key: value for key, value in source.items() if value} | corpus.reads.model_config
    shape |= {"reads": kind, "decided": decided}
    recipes = []
    for name in models:
        if name == chosen.model.name:
            recipes.append(chosen.replace(model={"choose": ()}))
            continue
        model: dict[str, Any] = {"name": name}
        fields = MODELS.get(name, task, kind).Config.__dataclass_fields__
        if "d_model" in fields:
            size = count_parameters(chosen.model.name, vocab_size, config, task, kind)
            try:
                model |= dataclasses.asdict(find_config(name, size, vocab_size, **shape))
            except UsageError as error:
                if left_out is None:
                    raise
                left_out(f"{name} is left out: {error}")
                continue
        model |= {key: getattr(config, key) for key in ("max_len", "dropout") if key in fields}
        recipes.append(build(fill_defaults({**tables_of(chosen), "model": model})[0]))
    return recipes


# Rows by priority: baselines, the strongest of the cheap rows and the Transformer come first.
KEPT = (
    *("majority", "mean", "chance", "ibm1", "nearest", "cca", "bigram", "logistic", "ridge"),
    *("kneser-ney", "transformer"),
    *("naive-bayes", "nb-svm", "svm", "pwm", "markov", "coulomb", "rocket", "map"),
    *("rnn-attention", "lstm", "cnn", "gru", "hmm", "rnn", "hyena", "mlp", "unigram", "uniform"),
    *("seasonal-naive", "naive", "nlinear", "dlinear", "drift", "ets", "boosting"),
    "decoder",
)
START = 4.0  # seconds of a row besides its training, until the first one is measured
SPAWN = 0.5  # the part of them before the clock of the run starts
COUNTING, NEURAL = 2.0, 8.0  # the least seconds of training of a row
CLOSING, PER_ROW = 2.0, 0.1  # seconds for intervals and the page, and more for each row


class Planned(Protocol):
    """The attributes of a run that a schedule needs."""

    @property
    def model(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def fraction(self) -> float: ...

    @property
    def counts(self) -> bool: ...


One = TypeVar("One", bound=Planned)


def priority(one: Planned) -> tuple[bool, float, int, int]:
    """Return a sort key: runs that are left out last come first."""
    rank = KEPT.index(one.model) if one.model in KEPT else len(KEPT)
    return one.fraction < 1, one.fraction, one.seed, rank


@dataclass
class Schedule:
    """The end of a comparison (time.monotonic), and the times of its rows so far."""

    end: float
    starts: list[float] = field(default_factory=list)  # seconds of rows besides their training

    @property
    def left(self) -> float:
        """The remaining seconds."""
        return self.end - time.monotonic()

    @property
    def start(self) -> float:
        """The mean seconds of a row besides its training; the first also waits for imports."""
        return fmean(self.starts[1:] or self.starts or [START])

    def need(self, row: Sequence[Planned]) -> float:
        """Return the least seconds of a row, given as its folds."""
        return self.start + len(row) * (COUNTING if row[0].counts else NEURAL)

    def holds(self, rows: Sequence[list[One]]) -> list[list[One]]:
        """Return the rows that fit into the remaining time, in the given order."""
        total, chosen = 0.0, list[list[One]]()
        for row in sorted(rows, key=lambda row: priority(row[0])):
            if total + self.need(row) <= self.left:  # a cheaper row after it may still fit
                total += self.need(row)
                chosen.append(row)
        return [row for row in rows if any(row is one for one in chosen)]

    def minutes(self, row: Sequence[Planned], ahead: Sequence[Sequence[Planned]]) -> float:
        """Return the minutes of each fold of a row: what it needs, and an equal share of the time
        that the rows `ahead`, including it, do not need. The clock of a single run starts with its
        process, that of a fold later.
        """
        spare = max(0.0, self.left - sum(self.need(one) for one in ahead))
        seconds = self.need(row) + spare / len(ahead)
        seconds -= SPAWN if len(row) == 1 else self.start
        return max(0.05, seconds / len(row) / 60)


FRACTIONS = (0.125, 0.25, 0.5)  # of the training split in scaling curves, besides all of it
MEMORY = "memory.json"  # the peak memory of the process of a row
LOG = "train.log"


@dataclass(frozen=True)
class ComparisonRun:
    """A run of a comparison: a row of the table, a seed or fold of it, or a point of a curve."""

    model: str
    recipe: Recipe
    run: Path
    seed: int = 0
    fraction: float = 1.0

    @property
    def done(self) -> bool:
        """Whether the run is finished."""
        return finished(self.run)

    @property
    def fold(self) -> int:
        """The number of the fold, from 0."""
        return self.recipe.data.fold

    @property
    def row(self) -> Path:
        """The folder of the run, or that of all folds."""
        return self.run.parent if self.recipe.data.folds else self.run

    @property
    def counts(self) -> bool:
        """Whether the model is fitted in one pass, whatever time there is."""
        return self.recipe.family.loop in ONE_PASS


def finished(run: Path) -> bool:
    """Return whether training in this folder has ended."""
    return Run(run).metadata.get("outcome") in ("done", "early")


def seconds_of(run: Path) -> float:
    """Return the training time of a finished run."""
    return float(read_json(run / METADATA, TrainedFacts)["train_seconds"])


def comparison_run(
    recipe: Recipe, folder: Path, seed: int = 0, fraction: float = 1.0, fold: int = 0
) -> ComparisonRun:
    """Return the run of a recipe with a seed, on a fraction of its training data or on a fold."""
    name = recipe.model.name
    ending = "".join([f"-seed{seed}" if seed else "", f"-{fraction:g}" if fraction < 1 else ""])
    run = folder / f"{name}{ending}" / (f"fold-{fold:03d}" if recipe.data.folds else "")
    recipe = recipe.replace(train={"seed": seed}, data={"train_fraction": fraction, "fold": fold})
    return ComparisonRun(name, recipe, run, seed, fraction)


def share_minutes(comparison_runs: Sequence[ComparisonRun], share: float) -> float:
    """Return the minutes of each neural run: an equal share or, if one was started before, as many
    as that had, so that later rows have no advantage.
    """
    started = [one for one in comparison_runs if not one.counts and (one.run / RECIPE).exists()]
    return build(read(started[0].run / RECIPE)).train.minutes if started else share


def train_all(
    comparison_runs: Sequence[ComparisonRun],
    end: float,
    shared: Path,
    progress: Callable[[ComparisonRun, str], None],
    launcher: Launcher,
    *,
    judge: Callable[[ComparisonRun], object] = bool,
    warn: Callable[[str], object] = bool,
) -> list[ComparisonRun]:
    """Train the runs that are not done until `end` (time.monotonic); return those that are done.

    `progress(run, state)` is called while a run trains, `judge` with each that is done, and `warn`
    with the rows that are left out for lack of time. The `shared` folder has the tokenized data, of
    the first fold if there are several.
    """
    data, share = {(1.0, 0): shared}, 0.0
    rows = [list(group) for _, group in groupby(comparison_runs, key=lambda one: one.row)]
    timed = not comparison_runs[0].recipe.train.steps
    schedule = Schedule(end)
    ahead = sorted(
        (row for row in rows if not complete(row)),
        key=lambda row: (not row[0].counts, priority(row[0])),
    )
    for row in rows:
        if complete(row):
            finish(row, data, progress, judge)
    while chosen := schedule.holds(ahead) if timed and schedule.starts else ahead:
        row = chosen[0]
        minutes = schedule.minutes(row, chosen)
        if not row[0].counts:
            share = share or share_minutes(comparison_runs, minutes)
            minutes = min(share, minutes)
        for one in row:
            if not one.done:
                prepare(one, minutes, data.get((one.fraction, one.fold)))
        fit(row, progress, schedule, launcher)
        ahead.remove(row)
        finish(row, data, progress, judge)
    left_out = leave_out(ahead, schedule, warn)
    return [one for one in comparison_runs if one not in left_out]


def finish(
    row: Sequence[ComparisonRun],
    data: dict[tuple[float, int], Path],
    progress: Callable[[ComparisonRun, str], None],
    judge: Callable[[ComparisonRun], object],
) -> None:
    """Register the tokenized data of a row that is done, and pass its runs to `judge`."""
    for one in row:
        data.setdefault((one.fraction, one.fold), one.run)
        judge(one)
    progress(row[-1], "done")


def complete(row: Sequence[ComparisonRun]) -> bool:
    return all(one.done for one in row)


def fit(
    row: Sequence[ComparisonRun],
    progress: Callable[[ComparisonRun, str], None],
    schedule: Schedule,
    launcher: Launcher,
) -> None:
    """Train the folds of a row that are not done, and add the overhead to the schedule."""
    remaining = [one for one in row if not one.done]
    began = time.monotonic()
    if len(row) > 1:
        train_folds(row, progress, launcher)
    else:
        train(row[0], progress, launcher)
    if row[0].counts:
        fitting = sum(seconds_of(one.run) for one in remaining)
        schedule.starts.append(max(0.0, time.monotonic() - began - fitting))


def leave_out(
    rows: Sequence[Sequence[ComparisonRun]], schedule: Schedule, warn: Callable[[str], object]
) -> list[ComparisonRun]:
    """Warn of rows for which there is no time; return their runs."""
    if rows:
        needed = sum(schedule.need(row) for row in rows) - schedule.left
        names = ", ".join(row[0].row.name for row in rows)
        warn(
            f"left out: {names}. The time left, {max(0.0, schedule.left):.0f} s, does not hold "
            f"them: give about {needed / 60:.1f} more --minutes, or run the command again to add "
            "them"
        )
    return [one for row in rows for one in row]


def prepare(one: ComparisonRun, minutes: float, source: Path | None) -> None:
    """Create a run folder with its recipe and with links to the tokenized data of another run."""
    if (one.run / RECIPE).exists():
        return
    one.run.mkdir(parents=True, exist_ok=True)
    if source is not None and not (one.run / FOLDER).exists():
        (one.run / FOLDER).mkdir()
        for file in (source / FOLDER).iterdir():
            link(file, one.run / FOLDER / file.name)
        for name in (TOKENIZER, SOURCE_TOKENIZER, PREPROCESSOR):
            if (source / name).exists():
                link(source / name, one.run / name)
    recipe = one.recipe.replace(train={} if one.recipe.train.steps else {"minutes": minutes})
    write_text(one.run / RECIPE, to_toml(recipe))


def link(source: Path, target: Path) -> None:
    """Link a file; copy it if the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def train(
    one: ComparisonRun, progress: Callable[[ComparisonRun, str], None], launcher: Launcher
) -> None:
    """Run `regard train` in another process, and store its peak memory."""
    command = ["regard", "train", str(one.run / RECIPE), "--out", str(one.run)]
    command += ["--resume", "--json"]
    peak = launch(command, one, lambda: progress(one, "training"), launcher)
    write_json(one.run / MEMORY, {"peak_memory_bytes": peak})


def train_folds(
    folds: Sequence[ComparisonRun],
    progress: Callable[[ComparisonRun, str], None],
    launcher: Launcher,
) -> None:
    """Train the folds of a row in one other process, and store its peak memory for each."""
    remaining = list(folds)

    def check() -> None:
        while len(remaining) > 1 and remaining[0].done:
            remaining.pop(0)
        progress(remaining[0], "training")

    command = ["regard.training.comparison_runs", *(str(one.run) for one in folds)]
    peak = launch(command, folds[0], check, launcher)
    for one in folds:
        write_json(one.run / MEMORY, {"peak_memory_bytes": peak})


def launch(
    command: Sequence[str], one: ComparisonRun, check: Callable[[], None], launcher: Launcher
) -> int:
    """Run `python -m COMMAND` and call `check` repeatedly until it ends; return its peak memory.

    Its stderr goes to a log in the folder of the row; a failure is a UserError.
    """
    path = one.row / LOG
    code, peak = launcher.run(command, path, check)
    if code:
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        reason = lines[-1] if lines else f"it ended with code {code}"
        raise UserError(f"{one.model} could not be trained: {reason} (see {path})")
    return peak


LOG_TAIL = 4096  # bytes


class ProgressTable:
    """The progress of all runs: a live table on a terminal, otherwise lines."""

    def __init__(self, reporter: Reporter, comparison_runs: Sequence[ComparisonRun]) -> None:
        self.reporter, self.began = reporter, time.monotonic()
        self.printed = self.began  # when the last line was printed
        self.states = {one.row.name: "" for one in comparison_runs}
        self.fold: dict[str, str] = {}  # the one that is trained now
        self.losses: dict[str, str] = {}
        self.metric = ""  # that validations measure, once it is known
        shows = reporter.console.is_terminal and not reporter.quiet
        self.live = Live(console=reporter.console, transient=True) if shows else None

    def __enter__(self) -> Self:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, one: ComparisonRun, state: str) -> None:
        """Update the state of a run; called repeatedly while it trains."""
        name = one.row.name
        changed, self.states[name] = self.states[name] != state, state
        if one.recipe.data.folds and state != "done":
            self.fold[name] = f", fold {one.fold + 1}"
        else:
            self.fold.pop(name, None)
        best = best_validation(one)
        if best is not None:
            self.losses[name] = f"{best.value:.4f}"
            self.metric = best.metric.replace("_", " ")
        if self.live is not None:
            self.live.update(self.table())
        elif changed:
            validation = ""
            if name in self.losses:
                validation = f", validation {self.metric} {self.losses[name]}"
            self.say(f"{name}: {state}{validation}")
        elif state != "done" and time.monotonic() - self.printed >= PLAIN_EVERY:
            self.say(f"{name}{self.fold.get(name, '')}: {last_line(one.row / LOG)}")
        if state == "done":
            for line in Run(one.run).metadata.get("reductions") or ():
                self.say(f"{name}: {line}")

    def say(self, text: str) -> None:
        """Print a line with the time."""
        self.printed = time.monotonic()
        self.reporter.say(f"{clock(self.printed - self.began)} {text}")

    def table(self) -> Table:
        """Return the states of all runs as a table."""
        measured = f"  validation: {self.metric}" if self.metric else ""
        title = f"{clock(time.monotonic() - self.began)}{measured}"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in ("model", "", "validation"):
            table.add_column(column)
        for name, state in self.states.items():
            table.add_row(name, state + self.fold.get(name, ""), self.losses.get(name, ""))
        return table


def last_line(log: Path) -> str:
    """Return the last line in the log of a process."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_TAIL))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
    except OSError:
        return "training"
    return lines[-1] if lines else "training"


def best_validation(one: ComparisonRun) -> Measurement | None:
    """Return the best validation that a run has logged so far."""
    if not (one.run / METRICS).exists():
        return None
    return min(Run(one.run).validations(), key=lambda one: one.value, default=None)


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a finished run on a held-out split: losses, translations or predictions."""

    facts: dict[str, Any]
    split: str
    measured: TokenLosses | None = None
    made: Sequence[Sentence] = ()
    seconds: float = 0.0  # of the translations
    answers: Predictions | None = None

    @property
    def trained_on(self) -> dict[str, int]:
        """The size of the training split."""
        size: dict[str, int] = self.facts["data"]["splits"]["train"]
        return size

    @property
    def tokens_per_second(self) -> float:
        """The training speed in tokens."""
        rate = self.facts.get("symbols_per_second") or 0.0
        return float(rate * self.trained_on["tokens"] / max(1, self.trained_on["symbols"]))


def run_result(one: ComparisonRun, shared: Path) -> RunResult:
    """Return the result of a run on the held-out split of the shared data."""
    facts = read_json(one.run / METADATA, TrainedFacts)
    result: RunResult = one.recipe.build_task().result(Run(one.run), facts, shared)
    return result


@dataclass(frozen=True, eq=False)
class Seed:
    """One seed of a row: the runs of its folds, or its only one, and their results. Only the first
    `sentences` are scored, which all rows have translated.
    """

    comparison_runs: Sequence[ComparisonRun]
    results: Sequence[RunResult]
    sentences: int

    @cached_property
    def answers(self) -> Predictions | None:
        """The predictions of all folds."""
        parts = [one.answers for one in self.results if one.answers is not None]
        return join_folds(parts) if parts else None

    @cached_property
    def quality(self) -> Mapping[str, BootstrapEstimate]:
        """Metrics of translations or predictions; empty for language models."""
        if self.answers is not None:
            return self.answers.estimates
        made = self.results[0].made[: self.sentences]
        if not made:
            return {}
        translations, references = ([s.translation for s in made], [s.reference for s in made])
        return score_translations(translations, references, lenient=True)

    @property
    def ranked_by(self) -> str:
        """The metric that ranks rows."""
        if self.answers is not None:
            return self.answers.report.ranked_by
        known = (name for name in TranslationReport.ranking if name in self.quality)
        return next(known, SYMBOL_LOSS)

    def value(self, name: str) -> float:
        """Return a metric or, if there is none of that name, bits per symbol."""
        measured = self.results[0].measured
        if name in self.quality or measured is None:
            return self.quality[name].value
        return measured.estimates[SYMBOL_LOSS].value


def build_comparison(
    comparison_runs: Sequence[ComparisonRun],
    shared: Path,
    results: Mapping[Path, RunResult] | None = None,
    *,
    left_out: Sequence[str] = (),
) -> Comparison:
    """Return the table of finished runs; `results` are by run folder, if known already."""
    if results is None:
        results = {one.run: run_result(one, shared) for one in comparison_runs}
    results = on_common_records(comparison_runs, results)
    sentences = min(len(each.made) for each in results.values())  # all have the first sentences
    rows, curves = [], {}
    for model in dict.fromkeys(one.model for one in comparison_runs):
        points: dict[float, list[ComparisonRun]] = {}
        seeds: dict[int, list[ComparisonRun]] = {}
        for one in comparison_runs:
            if one.model == model and one.fraction == 1:
                seeds.setdefault(one.seed, []).append(one)
            if one.model == model and one.seed == 0:
                points.setdefault(one.fraction, []).append(one)
        rows.append(row([Seed(f, [results[x.run] for x in f], sentences) for f in seeds.values()]))
        if len(points) > 1:
            sizes = [points[fraction] for fraction in sorted(points)]
            curves[model] = [point(Seed(f, [results[x.run] for x in f], 0)) for f in sizes]
    table = rank_rows(rows)
    return Comparison(
        rows=table,
        verdict=write_verdict(table, curves),
        curves=curves,
        sentences=sentences,
        left_out=tuple(left_out),
        **describe_data(comparison_runs[0], results[comparison_runs[0].run], table[0]),
    )


def on_common_records(
    comparison_runs: Sequence[ComparisonRun], results: Mapping[Path, RunResult]
) -> dict[Path, RunResult]:
    """Return the results with predictions for those records that all runs of a fold have predicted:
    with little time, a run predicts only the first records.
    """
    fewest: dict[int, int] = {}
    for one in comparison_runs:
        answers = results[one.run].answers
        if answers is not None:
            fewest[one.fold] = min(answers.records, fewest.get(one.fold, answers.records))
    common = {}
    for one in comparison_runs:
        each = common[one.run] = results[one.run]
        if each.answers is not None and each.answers.records > fewest[one.fold]:
            common[one.run] = replace(each, answers=each.answers.first(fewest[one.fold]))
    return common


def describe_data(one: ComparisonRun, first: RunResult, row: Row) -> dict[str, Any]:
    """Return the size of the evaluation data, for the table."""
    task, folds = one.recipe.task.name, one.recipe.data.folds
    if first.measured is not None:
        symbols, records = int(first.measured.symbols.sum()), first.measured.records
        return {"split": first.split, "symbols": symbols, "records": records, "task": task}
    assert row.predictions is not None
    splits = first.facts["data"]["splits"]
    evaluated = splits.values() if folds else [splits[first.split]]
    return {
        "split": first.split,
        "symbols": sum(split["symbols"] for split in evaluated),
        "records": row.predictions.records,
        "unknown": row.predictions.unknown,
        "task": task,
        "folds": len(row.runs) // len(row.values) if folds else 0,
    }


def point(seed: Seed) -> tuple[int, float]:
    """Return a point of a scaling curve: training symbols, and the metric that ranks rows."""
    return int(seed.results[0].trained_on["symbols"]), seed.value(seed.ranked_by)


def row(seeds: Sequence[Seed]) -> Row:
    """Return the row of a model from its seeds."""
    comparison_runs = [one for seed in seeds for one in seed.comparison_runs]
    results = [one for seed in seeds for one in seed.results]
    first, answers = results[0], seeds[0].answers
    metric = seeds[0].ranked_by
    losses = [each.measured for each in results if each.measured is not None]
    made, seconds = (len(first.made) if seeds[0].sentences else 0), first.seconds
    if answers is not None:
        made, seconds = answers.records, answers.seconds
    return Row(
        model=comparison_runs[0].model,
        parameters=first.facts["parameters"],
        train_seconds=sum(each.facts["train_seconds"] for each in results) / len(seeds),
        symbols_per_second=first.facts.get("symbols_per_second") or 0.0,
        peak_memory_bytes=max(memory_of(one.run) for one in comparison_runs),
        losses=mean_losses(losses) if losses else None,
        values=tuple(seed.value(metric) for seed in seeds),
        runs=tuple(one.run for one in comparison_runs),
        quality=mean_over_seeds([seed.quality for seed in seeds]),
        tokens_per_second=first.tokens_per_second,
        outputs_per_second=made / max(seconds, 1e-3),
        epochs=fmean(each.facts.get("epochs") or 1.0 for each in results),
        ranked_by=metric,
        folds=over_folds(seeds, metric),
        predictions=answers,
    )


def memory_of(run: Path) -> int:
    """Return the peak memory of the process of a run."""
    return int(read_json(run / MEMORY, StoredMemory)["peak_memory_bytes"])


def over_folds(seeds: Sequence[Seed], metric: str) -> Folds | None:
    """Return a metric of each fold, averaged over seeds; None if a fold is a single record."""
    results = seeds[0].results
    if len(results) == 1 or all(one.answers and one.answers.records == 1 for one in results):
        return None
    values = []
    for i in range(len(results)):
        folds = [Seed([seed.comparison_runs[i]], [seed.results[i]], 0).quality for seed in seeds]
        values.append(mean_over_seeds(folds)[metric].metric())
    return Folds(tuple(values))


def main(runs: Sequence[str | Path]) -> int:
    """Train the recipes in run folders; return the exit code, as that of `regard train`."""
    from regard.training.trainer import Session, evaluate_and_write

    steps = 0
    try:
        for run in map(Path, runs):
            recipe = build(read(run / RECIPE))
            if finished(run):
                steps = recipe.train.steps
                continue
            if steps and not recipe.train.steps:
                recipe = recipe.replace(train={"steps": steps})
                write_text(run / RECIPE, to_toml(recipe))
            outcome = Session(run, True, Reporter(), time.monotonic()).fit(recipe)
            if evaluate_and_write(run, outcome).outcome == "interrupted":
                return 128 + outcome.signal
            steps = outcome.recipe.train.steps
    except UserError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
