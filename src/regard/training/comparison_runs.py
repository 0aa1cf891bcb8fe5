"""Who takes part in a comparison: which rows when nobody says, how large each, over which folds.

Dividing the minutes of a comparison among its rows.

All of it counts: that a process starts, that a row is measured, that the table is put together.
Rows fitted in one go come first, and what they leave of their share goes to the neural rows, which
have equal shares. Where the minutes do not hold all rows, the first of KEPT that fit are chosen.
The others wait, and are left out if the time does not hold them at the end; before any of them,
points of scaling curves and later seeds.

Training the rows of a comparison: each in its own process, on one tokenised copy of the data.
The folds of a row are runs of their own, which share its process and, with the same fold of other
rows, the data.

A row is a run folder like any other. One that is finished is not trained again, one that was
stopped goes on, so an interrupted comparison is resumed by the same command.

What a comparison says while it runs: a live table on a terminal, plain lines elsewhere.

From finished runs to the table: what came of each, and the rows that they make up.

Train one run after the other in this process: `python -m regard.training.comparison_runs RUN…`.

The folds of a row are many small runs, for each of which a process of its own would take longer to
start than to train. Folds are of one size: as many steps as fit into the minutes of the first are
taken by all. What is finished is not trained again.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
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

import numpy as np
from rich.live import Live
from rich.table import Table

from regard.data.corpus import FOLDER, Corpus
from regard.data.labelled import LabelledFiles
from regard.data.sources import DataSource
from regard.data.targets import LABELLED
from regard.errors import UserError, one_line
from regard.evaluation import predictions, translation
from regard.evaluation.comparison import Comparison, Row, leading, mean, ranked, verdict
from regard.evaluation.estimates import BootstrapEstimate, Folds, mean_over_seeds, symbol_cost
from regard.evaluation.eval_data import held_out
from regard.evaluation.language_modeling import TokenLosses, measure
from regard.evaluation.predictions import StoredPredictions, join_folds
from regard.evaluation.translation import Sentence, score_translations
from regard.models.counts import CountingFit
from regard.models.parameter_matching import parameters, sized
from regard.models.seq2seq import Seq2SeqModel
from regard.models.supervised import FittedModel
from regard.recipe import Recipe, build, read, to_toml
from regard.recipe import tables as tables_of
from regard.registry import families, family
from regard.run import (
    FACTS,
    METRICS,
    PREPROCESSOR,
    RECIPE,
    SOURCE_TOKENIZER,
    TOKENIZER,
    load_model,
    read_metadata,
    validations,
    write_json,
    write_text,
)
from regard.schemas import StoredMemory, TrainedFacts
from regard.storage import read_json
from regard.tokenizers import load as load_tokenizer
from regard.tokenizers import load_sources
from regard.training.defaults import choose
from regard.training.progress import PLAIN_EVERY, Reporter, clock
from regard.training.session import fitting

# Of labelled records, from the simplest; which of them a task has, the registry says.
ANSWERING = (
    "majority",
    "naive-bayes",
    "nb-svm",
    "logistic",
    "coulomb",
    "svm",
    "pwm",
    "markov",
    "cnn",
    "lstm",
    "hyena",
    "transformer",
)
ALPHABET = 64  # tokens that there may be for a chain of them to be counted


def default_models(task: str, corpus: Corpus, say: Callable[[str], None]) -> list[str]:
    """The rows for a task; `say` hears which are left out, and why."""
    known = list(families(task, (corpus.source_tokenizer or corpus.tokenizer).kind))
    if task not in LABELLED:
        return known
    rows = [name for name in ANSWERING if name in known]
    reasons = {}
    if not of_one_length(corpus):
        reasons["pwm"] = "records are of different lengths"
    if corpus.tokenizer.vocab_size > ALPHABET:
        reasons["markov"] = f"there are more than {ALPHABET} tokens"
    if not corpus.tokenizer.decides.get("elements"):
        reasons["coulomb"] = "points have no elements"
    for name, why in reasons.items():
        if name in rows:
            rows.remove(name)
            say(f"{name} is left out: {why}")
    return rows


def of_one_length(corpus: Corpus) -> bool:
    """Have all records, training and held out, as many tokens?"""
    shards = [one for one in (corpus.train, corpus.valid, corpus.test) if one is not None]
    if any(one.source is not None for one in shards):
        return False
    lengths = np.concatenate([np.diff(one.offsets) for one in shards])
    return bool((lengths == lengths[0]).all())


def folds_of(recipe: Recipe) -> int:
    """Into how many parts the records are split that are tested one after the other; 1: no such."""
    if not recipe.data.folds:
        return 1
    sources = DataSource(recipe.data, recipe.task, recipe.tokens, recipe.train.start)
    assert sources.plan is not None and isinstance(sources.train, LabelledFiles)
    return sources.plan.count_folds(sources.train)


def match_parameters(chosen: Recipe, models: Sequence[str], corpus: Corpus) -> list[Recipe]:
    """The recipes of a comparison: neural models as large as the chosen Transformer, to a tenth,
    with its dropout; all with its context.
    """
    config, vocab_size = fitting(chosen.model.config, corpus), corpus.tokenizer.vocab_size
    kind = chosen.tokens.reads
    shape = {"n_layers": config.n_layers, "max_len": config.max_len, "task": chosen.task}
    own = {"source_vocab": getattr(config, "source_vocab", 0)}
    reads = corpus.source_tokenizer or corpus.tokenizer
    own = {key: value for key, value in own.items() if value} | reads.decides
    shape |= {"tokens": kind, "decided": own}
    found = []
    for name in models:
        told: dict[str, Any] = {"name": name}
        fields = family(name, chosen.task, kind).Config.__dataclass_fields__
        if "d_model" in fields and name != "transformer":
            size = parameters("transformer", vocab_size, config, chosen.task, kind)
            told |= dataclasses.asdict(sized(name, size, vocab_size, **shape))
        told |= {key: getattr(config, key) for key in ("max_len", "dropout") if key in fields}
        whole = {**tables_of(chosen), "model": told}
        found.append(chosen if name == "transformer" else build(choose(whole)[0]))
    return found


# Floors, the strongest of the cheap rows and the Transformer are what a verdict needs first.
KEPT = (
    *("majority", "ibm1", "nearest", "bigram", "logistic", "kneser-ney", "transformer"),
    *("naive-bayes", "nb-svm", "rnn-attention", "lstm", "cnn", "svm", "coulomb", "map", "gru"),
    *("pwm", "markov", "hmm", "rnn", "hyena", "mlp", "unigram", "uniform"),
)
START = 4.0  # seconds that a row takes beside its fitting, until the first has shown
SPAWN = 0.5  # of them, those before its own clock begins
COUNTING, NEURAL = 3.0, 8.0  # seconds of fitting that a row has at least
CLOSING, PER_ROW = 2.0, 0.1  # seconds for intervals and the page, and more for each row


class Planned(Protocol):
    """A run to be planned, as `rungs.ComparisonRun` is."""

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
    """What is left out last comes first."""
    place = KEPT.index(one.model) if one.model in KEPT else len(KEPT)
    return one.fraction < 1, one.fraction, one.seed, place


@dataclass
class Schedule:
    """When a comparison ends (time.monotonic), and what its rows have taken so far."""

    end: float
    starts: list[float] = field(default_factory=list)  # seconds of rows beside their fitting

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    @property
    def start(self) -> float:
        """Seconds that a row takes beside its fitting."""
        return fmean(self.starts) if self.starts else START

    def need(self, row: Sequence[Planned]) -> float:
        """Seconds that a row, given as its folds, needs at least."""
        return self.start + len(row) * (COUNTING if row[0].counts else NEURAL)

    def holds(self, rows: Sequence[list[One]]) -> list[list[One]]:
        """Those of the rows that the time left holds, in the order given."""
        total, kept = 0.0, list[list[One]]()
        for row in sorted(rows, key=lambda row: priority(row[0])):
            if total + self.need(row) <= self.left:  # a cheaper row after it may still fit
                total += self.need(row)
                kept.append(row)
        return [row for row in rows if any(row is one for one in kept)]

    def minutes(self, row: Sequence[Planned], ahead: Sequence[Sequence[Planned]]) -> float:
        """For each fold of a row: what it needs, and an equal share of what the rows that are
        ahead, it among them, do not need. The clock of a single run begins when its process starts,
        that of a fold later.
        """
        spare = max(0.0, self.left - sum(self.need(one) for one in ahead))
        seconds = self.need(row) + spare / len(ahead)
        seconds -= SPAWN if len(row) == 1 else self.start
        return max(0.05, seconds / len(row) / 60)


FRACTIONS = (0.125, 0.25, 0.5)  # of the training part, besides all of it
TICK = 0.1  # seconds between two looks at a run that trains
MEMORY = "memory.json"  # what the process of a row took at its peak
LOG = "train.log"


@dataclass(frozen=True)
class ComparisonRun:
    """One run to be made: a row of the table, one of its seeds or folds, or a point of a curve."""

    model: str
    recipe: Recipe
    run: Path
    seed: int = 0
    fraction: float = 1.0

    @property
    def done(self) -> bool:
        """Was it finished before?"""
        return finished(self.run)

    @property
    def fold(self) -> int:
        """Which fold of its row it tests, from 0."""
        return self.recipe.data.fold

    @property
    def row(self) -> Path:
        """Its folder, or the one that it shares with the other folds."""
        return self.run.parent if self.recipe.data.folds else self.run

    @property
    def counts(self) -> bool:
        """Is it fitted in one pass, whatever time there is?"""
        return issubclass(self.recipe.family, (CountingFit, FittedModel))


def finished(run: Path) -> bool:
    """Was training in this folder brought to its end?"""
    return read_metadata(run).get("outcome") in ("done", "early")


def seconds_of(run: Path) -> float:
    """How long a finished run was trained."""
    return float(read_json(run / FACTS, TrainedFacts)["train_seconds"])


def comparison_run(
    recipe: Recipe, folder: Path, seed: int = 0, fraction: float = 1.0, fold: int = 0
) -> ComparisonRun:
    """The run of a recipe with another seed, on a fraction of its training data or another fold."""
    name = recipe.model.name
    ending = "".join([f"-seed{seed}" if seed else "", f"-{fraction:g}" if fraction < 1 else ""])
    run = folder / f"{name}{ending}" / (f"fold-{fold:03d}" if recipe.data.folds else "")
    recipe = recipe.replace(train={"seed": seed}, data={"train_fraction": fraction, "fold": fold})
    return ComparisonRun(name, recipe, run, seed, fraction)


def share_minutes(comparison_runs: Sequence[ComparisonRun], share: float) -> float:
    """Minutes for each of the rungs that take as long as they are given: an equal share.

    Where one of them has begun, as many as it was given: a row that is made up later, or added, has
    no advantage.
    """
    begun = [one for one in comparison_runs if not one.counts and (one.run / RECIPE).exists()]
    return build(read(begun[0].run / RECIPE)).train.minutes if begun else share


def train_all(
    comparison_runs: Sequence[ComparisonRun],
    end: float,
    shared: Path,
    told: Callable[[ComparisonRun, str], None],
    *,
    judge: Callable[[ComparisonRun], object] = bool,
    warn: Callable[[str], object] = bool,
) -> list[ComparisonRun]:
    """Train all that is not done until `end` (time.monotonic); those that were made, in order.

    `told(rung, state)` hears of each what it does, `judge` takes each that is done, and `warn`
    hears which rows are left out because the time does not hold them. The `shared` folder holds the
    tokenised data, those of the first fold where there are several.
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
            finish(row, data, told, judge)
    while held := schedule.holds(ahead) if timed and schedule.starts else ahead:
        row = held[0]
        minutes = schedule.minutes(row, held)
        if not row[0].counts:
            share = share or share_minutes(comparison_runs, minutes)
            minutes = min(share, minutes)
        for one in row:
            if not one.done:
                prepare(one, minutes, data.get((one.fraction, one.fold)))
        fit(row, told, schedule)
        ahead.remove(row)
        finish(row, data, told, judge)
    left_out = without(ahead, schedule, warn)
    return [one for one in comparison_runs if one not in left_out]


def finish(
    row: Sequence[ComparisonRun],
    data: dict[tuple[float, int], Path],
    told: Callable[[ComparisonRun, str], None],
    judge: Callable[[ComparisonRun], object],
) -> None:
    """Hand on what a row that is done has: its tokenised data, and what came of it."""
    for one in row:
        data.setdefault((one.fraction, one.fold), one.run)
        judge(one)
    told(row[-1], "done")


def complete(row: Sequence[ComparisonRun]) -> bool:
    """Were all folds of a row finished before?"""
    return all(one.done for one in row)


def fit(
    row: Sequence[ComparisonRun], told: Callable[[ComparisonRun, str], None], schedule: Schedule
) -> None:
    """Train the folds of a row that are not done; the schedule learns what that took beside."""
    left = [one for one in row if not one.done]
    began = time.monotonic()
    train(row[0], told) if len(row) == 1 else train_folds(row, told)
    if row[0].counts:
        fitting = sum(seconds_of(one.run) for one in left)
        schedule.starts.append(max(0.0, time.monotonic() - began - fitting))


def without(
    lost: Sequence[Sequence[ComparisonRun]], schedule: Schedule, warn: Callable[[str], object]
) -> list[ComparisonRun]:
    """The runs of rows that the time does not hold; `warn` hears which."""
    if lost:
        needed = sum(schedule.need(row) for row in lost) - schedule.left
        names = ", ".join(row[0].row.name for row in lost)
        warn(
            f"left out: {names}. The time left, {max(0.0, schedule.left):.0f} s, does not hold "
            f"them: give about {needed / 60:.1f} more --minutes, or run the command again to add "
            "them"
        )
    return [one for row in lost for one in row]


def prepare(one: ComparisonRun, minutes: float, source: Path | None) -> None:
    """The run folder with its recipe and, linked, the data that another run has tokenised."""
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
    """One file under two names; where the file system cannot, a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def train(one: ComparisonRun, told: Callable[[ComparisonRun, str], None]) -> None:
    """`regard train` in a process of its own; what it took at its peak is noted."""
    words = ["regard", "train", str(one.run / RECIPE), "--out", str(one.run)]
    words += ["--resume", "--json"]
    peak = watched(words, one, lambda: told(one, "training"))
    write_json(one.run / MEMORY, {"peak_memory_bytes": peak})


def train_folds(
    several: Sequence[ComparisonRun], told: Callable[[ComparisonRun, str], None]
) -> None:
    """The folds of a row one after the other, in one process; what that took at its peak is noted
    of each.
    """
    left = list(several)

    def look() -> None:
        while len(left) > 1 and left[0].done:
            left.pop(0)
        told(left[0], "training")

    words = ["regard.training.comparison_runs", *(str(one.run) for one in several)]
    peak = watched(words, several[0], look)
    for one in several:
        write_json(one.run / MEMORY, {"peak_memory_bytes": peak})


def watched(words: Sequence[str], one: ComparisonRun, look: Callable[[], None]) -> int:
    """Run a module of ours to its end, looking every now and then; the bytes it held at its peak.

    What it says goes to a log in the row's folder, and what it fails by becomes an error.
    """
    path = one.row / LOG
    with open(path, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=log
        )
        ended = 0
        try:
            while not ended:
                look()
                time.sleep(TICK)
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        except KeyboardInterrupt:  # it was told too, and saves
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        lines = path.read_text(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with code {process.returncode}"
        raise UserError(f"{one.model} could not be trained: {reason} (see {path})")
    return int(usage.ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


LOOKED = 4096  # bytes at the end of a log


class ProgressTable:
    """The runs of a comparison and how far each has come; silent where the reporter is."""

    def __init__(self, reporter: Reporter, comparison_runs: Sequence[ComparisonRun]) -> None:
        self.reporter, self.began = reporter, time.monotonic()
        self.spoke = self.began  # when the last line was said
        self.states = {one.row.name: "" for one in comparison_runs}
        self.fold: dict[str, str] = {}  # which one is trained now
        self.figures: dict[str, str] = {}
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
        """A run is in this state now; called again and again while it trains."""
        name = one.row.name
        changed, self.states[name] = self.states[name] != state, state
        if one.recipe.data.folds and state != "done":
            self.fold[name] = f", fold {one.fold + 1}"
        else:
            self.fold.pop(name, None)
        figure = latest(one)
        if figure is not None:
            self.figures[name] = f"{figure:.4f}"
        if self.live is not None:
            self.live.update(self.table())
        elif changed:
            found = f", validation {self.figures[name]}" if name in self.figures else ""
            self.say(f"{name}: {state}{found}")
        elif state != "done" and time.monotonic() - self.spoke >= PLAIN_EVERY:
            self.say(f"{name}{self.fold.get(name, '')}: {last_line(one.row / LOG)}")
        if state == "done":
            for line in reductions(one):
                self.say(f"{name}: {line}")

    def say(self, text: str) -> None:
        """One line, and when it was said."""
        self.spoke = time.monotonic()
        self.reporter.say(f"{clock(self.spoke - self.began)} {text}")

    def table(self) -> Table:
        """All runs as they stand."""
        title = f"{clock(time.monotonic() - self.began)}  cost on the validation part, in nats"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in ("model", "", "validation"):
            table.add_column(column)
        for name, state in self.states.items():
            doing = state + self.fold.get(name, "")
            table.add_row(name, doing, self.figures.get(name, ""))
        return table


def last_line(log: Path) -> str:
    """The last line that the process of a row has printed."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - LOOKED))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
    except OSError:
        return "training"
    return lines[-1] if lines else "training"


def reductions(one: ComparisonRun) -> list[str]:
    """What a run has left out because time was short."""
    return [str(line) for line in read_metadata(one.run).get("reductions") or ()]


def latest(one: ComparisonRun) -> float | None:
    """The best validation figure that a run has logged so far."""
    if not (one.run / METRICS).exists():
        return None
    return min((nats for _, nats in validations(one.run)), default=None)


@dataclass(frozen=True, eq=False)
class RunResult:
    """What came of a finished run on what was held out: what symbols cost it, what it translated,
    what it answered.
    """

    facts: dict[str, Any]
    side: str
    measured: TokenLosses | None = None
    made: Sequence[Sentence] = ()
    seconds: float = 0.0  # that making them took
    answers: StoredPredictions | None = None

    @property
    def trained_on(self) -> dict[str, int]:
        """How much the training side holds."""
        held: dict[str, int] = self.facts["data"]["sides"]["train"]
        return held

    @property
    def tokens_per_second(self) -> float:
        """Tokens of training: as many more or less than symbols as the training data has."""
        rate = self.facts.get("symbols_per_second") or 0.0
        return float(rate * self.trained_on["tokens"] / max(1, self.trained_on["symbols"]))


def run_result(one: ComparisonRun, shared: Path) -> RunResult:
    """What came of a run on what was held out of the shared data; what it answered is kept."""
    facts = read_json(one.run / FACTS, TrainedFacts)
    if one.recipe.task in LABELLED:
        side = "test" if facts["data"]["sides"]["test"]["records"] else "valid"
        return RunResult(facts, side, answers=predictions.load_predictions(one.run))
    tokenizer = load_tokenizer(one.run / TOKENIZER)
    side, shard = held_out(shared, tokenizer, load_sources(one.run, tokenizer))
    model = load_model(one.run)
    if facts.get("device", "cpu").startswith("cuda"):
        model = model.to(facts["device"])
    made, seconds = (
        translation.load_translations(one.run) if isinstance(model, Seq2SeqModel) else ([], 0.0)
    )
    return RunResult(facts, side, measure(model, shard, tokenizer), made, seconds)


@dataclass(frozen=True, eq=False)
class Seed:
    """One seed of a row: the runs of its folds, or its only one, and what came of each. Sentences
    are judged as far as all rows have translated them.
    """

    comparison_runs: Sequence[ComparisonRun]
    found: Sequence[RunResult]
    sentences: int

    @cached_property
    def answers(self) -> StoredPredictions | None:
        """Those of all folds."""
        parts = [one.answers for one in self.found if one.answers is not None]
        return join_folds(parts) if parts else None

    @cached_property
    def judged(self) -> dict[str, BootstrapEstimate]:
        """How good translations or answers are; nothing of a language model."""
        if self.answers is not None:
            return self.answers.answered.estimates
        made = self.found[0].made[: self.sentences]
        return score_translations(made, lenient=True) if made else {}

    def value(self, name: str) -> float:
        """One of these figures, or else nats per symbol."""
        measured = self.found[0].measured
        if name in self.judged or measured is None:
            return self.judged[name].value
        return symbol_cost(measured).value


def build_comparison(
    comparison_runs: Sequence[ComparisonRun],
    shared: Path,
    found: Mapping[Path, RunResult] | None = None,
    *,
    left_out: Sequence[str] = (),
) -> Comparison:
    """The table of finished rungs; what came of them by run, where it is known already."""
    found = (
        {one.run: run_result(one, shared) for one in comparison_runs} if found is None else found
    )
    found = on_common_records(comparison_runs, found)
    sentences = min(len(each.made) for each in found.values())  # each has the first of the same
    rows, curves = [], {}
    for model in dict.fromkeys(one.model for one in comparison_runs):
        points: dict[float, list[ComparisonRun]] = {}
        seeds: dict[int, list[ComparisonRun]] = {}
        for one in comparison_runs:
            if one.model == model and one.fraction == 1:
                seeds.setdefault(one.seed, []).append(one)
            if one.model == model and one.seed == 0:
                points.setdefault(one.fraction, []).append(one)
        rows.append(row([Seed(some, of(some, found), sentences) for some in seeds.values()]))
        if len(points) > 1:
            sizes = [points[fraction] for fraction in sorted(points)]
            curves[model] = [point(Seed(some, of(some, found), 0)) for some in sizes]
    table = ranked(rows)
    return Comparison(
        rows=table,
        verdict=verdict(table, curves),
        curves=curves,
        sentences=sentences,
        left_out=tuple(left_out),
        **material(comparison_runs[0], found[comparison_runs[0].run], table[0]),
    )


def on_common_records(
    comparison_runs: Sequence[ComparisonRun], found: Mapping[Path, RunResult]
) -> dict[Path, RunResult]:
    """The same outcomes, each with its answers to those records that all runs of its fold answered:
    where time was short, a run has answered the first records only.
    """
    fewest: dict[int, int] = {}
    for one in comparison_runs:
        answers = found[one.run].answers
        if answers is not None:
            fewest[one.fold] = min(answers.records, fewest.get(one.fold, answers.records))
    common = {}
    for one in comparison_runs:
        each = common[one.run] = found[one.run]
        if each.answers is not None and each.answers.records > fewest[one.fold]:
            common[one.run] = replace(each, answers=each.answers.first(fewest[one.fold]))
    return common


def of(
    comparison_runs: Sequence[ComparisonRun], found: Mapping[Path, RunResult]
) -> list[RunResult]:
    """What came of some rungs."""
    return [found[one.run] for one in comparison_runs]


def material(one: ComparisonRun, first: RunResult, row: Row) -> dict[str, Any]:
    """What was measured on, for the table."""
    task, folds = one.recipe.task, one.recipe.data.folds
    if first.measured is not None:
        symbols, records = int(first.measured.symbols.sum()), first.measured.records
        return {"side": first.side, "symbols": symbols, "records": records, "task": task}
    assert row.answers is not None
    sides = first.facts["data"]["sides"]
    held = sides.values() if folds else [sides[first.side]]
    return {
        "side": first.side,
        "symbols": sum(side["symbols"] for side in held),
        "records": row.answers.records,
        "unknown": row.answers.unknown,
        "task": task,
        "folds": len(row.runs) // len(row.values) if folds else 0,
    }


def point(seed: Seed) -> tuple[int, float]:
    """Symbols trained on, and nats per symbol or what leads the task."""
    leads = leading(seed.comparison_runs[0].recipe.task, seed.judged)
    return int(seed.found[0].trained_on["symbols"]), seed.value(leads)


def row(seeds: Sequence[Seed]) -> Row:
    """The row of a model's seeds."""
    comparison_runs = [one for seed in seeds for one in seed.comparison_runs]
    found = [one for seed in seeds for one in seed.found]
    first, answers = found[0], seeds[0].answers
    leads = leading(comparison_runs[0].recipe.task, seeds[0].judged)
    costs = [each.measured for each in found if each.measured is not None]
    made, seconds = (len(first.made) if seeds[0].sentences else 0), first.seconds
    if answers is not None:
        made, seconds = answers.records, answers.seconds
    return Row(
        model=comparison_runs[0].model,
        parameters=first.facts["parameters"],
        train_seconds=sum(each.facts["train_seconds"] for each in found) / len(seeds),
        symbols_per_second=first.facts.get("symbols_per_second") or 0.0,
        peak_memory_bytes=max(memory_of(one.run) for one in comparison_runs),
        measured=mean(costs) if costs else None,
        values=tuple(seed.value(leads) for seed in seeds),
        runs=tuple(one.run for one in comparison_runs),
        judged=mean_over_seeds([seed.judged for seed in seeds]),
        tokens_per_second=first.tokens_per_second,
        answers_per_second=made / max(seconds, 1e-3),
        epochs=fmean(each.facts.get("epochs") or 1.0 for each in found),
        ranked_by=leads,
        folds=over_folds(seeds, leads),
        answers=answers,
    )


def memory_of(run: Path) -> int:
    """Bytes that the process of a run took at its peak."""
    return int(read_json(run / MEMORY, StoredMemory)["peak_memory_bytes"])


def over_folds(seeds: Sequence[Seed], leads: str) -> Folds | None:
    """What leads, of each fold, the mean over seeds; nothing where a fold is a single record."""
    folds = len(seeds[0].found)
    if folds == 1 or all(one.answers and one.answers.records == 1 for one in seeds[0].found):
        return None
    figures = []
    for fold in range(folds):
        alone = [Seed([seed.comparison_runs[fold]], [seed.found[fold]], 0).judged for seed in seeds]
        figures.append(mean_over_seeds(alone)[leads].figure())
    return Folds(tuple(figures))


def main(runs: Sequence[str | Path]) -> int:
    """Train the recipes that stand in run folders; the exit code, as that of `regard train`."""
    from regard.training.final_report import evaluate_and_write as conclude

    pass
    from regard.recipe import build, read, to_toml
    from regard.run import RECIPE, write_text
    from regard.training.progress import Reporter
    from regard.training.session import Session

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
            fitted = Session(run, True, Reporter(), time.monotonic()).fit(recipe)
            if conclude(run, fitted).outcome == "interrupted":
                return 128 + fitted.signal
            steps = fitted.recipe.train.steps
    except UserError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line does
    sys.exit(main(sys.argv[1:]))
