"""What an experiment gets (`Options`) and returns (`Result`): claims, tables and figures.

Claims are decided by 95% intervals: `Proportion` for counts, `Mean` for repeated measurements.
`curves` draws rows over common xs; `Accuracies` are proportions by model and length or distance.

Small models are trained on generated sequences or a text, without a run folder. The same seed gives
the same model: by default everything runs on the CPU.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import blake2b
from importlib.util import find_spec
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from scipy.special import stdtrit
from torch import Tensor

from regard.bundled import NAMES
from regard.data.batching import IGNORE, Batch
from regard.data.shards import Shard
from regard.data.text_files import TextFiles
from regard.errors import UserError, missing_extra
from regard.look.figures import save_all
from regard.look.page import Component, Heatmap, Lines, Page, Table, Text
from regard.models import find_config
from regard.models.decoder import DecoderConfig
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.language_model import NeuralLanguageModel
from regard.recipe import TrainRecipe
from regard.registry import MODELS
from regard.storage import atomic_write
from regard.training.distributed import ALONE
from regard.training.loop import EMState, seed_of
from regard.training.objectives import NextTokenObjective
from regard.training.optimizer import factor
from regard.training.progress import Reporter, Status
from regard.training.step import Stepper

BITS_PER_NAT = 1 / math.log(2)  # pages and claims have bits
MIN_SHARE = 0.03  # of the work must be done before the remaining time is estimated
Z = 1.959964  # 95% of a normal distribution lie within so many standard deviations
ABOVE = math.nextafter(0.0, 1.0)  # the least number above 0, where a claim excludes 0 itself
VERDICTS = {True: "holds", False: "fails", None: "too small to tell"}
CLAIM_COLUMNS = ["", "claim", "stated", "measured"]


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def interval(self) -> Interval:
        return self


class Estimate(Protocol):
    """A number with a 95% interval."""

    @property
    def interval(self) -> Interval: ...


class LabProgress:
    """Reports the progress of an experiment and its remaining time, in units of its choice."""

    def __init__(self, reporter: Reporter, total: float) -> None:
        self.reporter, self.total, self.done = reporter, max(total, 1e-9), 0.0
        self.start = time.monotonic()

    def add(self, description: str, units: float) -> None:
        """Count units of work done since the last call."""
        self.done += units
        share = min(1.0, self.done / self.total)
        remaining = (time.monotonic() - self.start) * (1 - share) / max(share, 1e-9)
        left = remaining if share > MIN_SHARE else None
        self.reporter.show(Status(description, 100 * share, 100, "%", left=left))


PartT = TypeVar("PartT")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of an experiment: `quick` is a small form of seconds, `seed` that of all randomness,
    `file` the user's data where the experiment takes any.

    With `parts`, a folder, an experiment that was stopped goes on where it was.
    """

    quick: bool = False
    seed: int = 0
    file: Path | None = None
    reporter: Reporter = field(default_factory=lambda: Reporter(quiet=True))
    parts: Path | None = None

    def part(self, name: str, plan: object, kind: Any, compute: Callable[[], PartT]) -> PartT:
        """Return a part of an experiment: what a stopped one stored, else computed and stored.

        A part is known by its name, which holds its seed, the plan, and the file. `kind` is its
        type, made of dataclasses, lists and numbers.
        """
        if self.parts is None:
            return compute()
        adapter, path = TypeAdapter[PartT](kind), self.parts / f"{self._part_key(name, plan)}.json"
        try:
            return adapter.validate_python(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, ValidationError):  # none, or what a killed process left
            part = compute()
        self.parts.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps(adapter.dump_python(part)), encoding="utf-8")
        return part

    def _part_key(self, name: str, plan: object) -> str:
        file = b"" if self.file is None else blake2b(self.file.read_bytes()).digest()
        return blake2b(f"{name} {plan!r}".encode() + file, digest_size=8).hexdigest()

    def seeds(self, n: int) -> range:
        return range(self.seed, self.seed + n)

    def progress(self, total: float) -> LabProgress:
        """Return a progress report over so many units of work."""
        return LabProgress(self.reporter, total)


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
    interval: Interval | None = None

    @property
    def verdict(self) -> str:
        return VERDICTS[self.holds]

    @property
    def row(self) -> list[object]:
        """The claim as a row of `CLAIM_COLUMNS`."""
        return [self.verdict, self.name, self.stated, self.measured]

    @classmethod
    def exact(
        cls,
        name: str,
        stated: str,
        value: float,
        measured: str = "{:.1e}",
        *,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> Claim:
        """Return the claim that a value without uncertainty is from `least` to `most`; `measured`
        formats it.
        """
        return cls(name, stated, measured.format(value), bool(least <= value <= most))

    @classmethod
    def within(
        cls,
        name: str,
        stated: str,
        estimate: Estimate,
        measured: str = "",
        *,
        least: float = -math.inf,
        most: float = math.inf,
        may_rise: bool = False,
        may_fall: bool = False,
    ) -> Claim:
        """Return the claim that an estimate is from `least` to `most`; `measured` describes it, by
        default in its own words.

        It holds where the whole interval is, fails where none of it is, and else the data are too
        few to tell. A quick form trains briefly, on little. Where a number would only rise with
        more training (`may_rise`), the measurement is a lower bound and the upper end is open: the
        claim that it is high cannot fail. `may_fall` is the same downwards.
        """
        low, high = closed = estimate.interval
        text = measured or str(estimate)
        if low == -math.inf and high == math.inf:
            text += "; a single measurement has no interval"
        elif (may_rise and high < least) or (may_fall and low > most):
            text += "; the quick form is too brief to refute it"
        open_ended = Interval(-math.inf if may_fall else low, math.inf if may_rise else high)
        holds = None
        if least <= low and high <= most:
            holds = True
        elif open_ended.high < least or open_ended.low > most:
            holds = False
        return cls(name, stated, text, holds, open_ended if holds is None else closed)

    def to_json(self) -> dict[str, Any]:
        """Return the claim for JSON: open ends of the interval are None."""
        ends = None
        if self.interval is not None:
            ends = [end if math.isfinite(end) else None for end in self.interval]
        holds = None if self.holds is None else bool(self.holds)
        texts = {"name": self.name, "stated": self.stated, "measured": self.measured}
        return texts | {"holds": holds, "interval": ends}


def summary(claims: Sequence[Claim]) -> str:
    """Return in words how many claims hold, fail, and cannot be decided."""
    verdicts = [claim.verdict for claim in claims]
    n_holding, n_failing, n_open = (verdicts.count(word) for word in VERDICTS.values())
    rest = f", {n_open} too small to tell" if n_open else ""
    fail = "fails" if n_failing == 1 else "fail"
    return f"{n_holding} of {len(claims)} claims hold, {n_failing} {fail}{rest}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What an experiment measured.

    `answer` answers its question in one sentence, with numbers; `lecture` names deck and heading.
    `question` is the docstring of the experiment; `reading` explains its first figure, `readings`,
    if given, each of the others. `figures` are also saved as images; `panels` follow the tables on
    the page.
    """

    title: str
    answer: str
    question: str
    reading: str
    claims: Sequence[Claim]
    tables: Sequence[Table]
    figures: Sequence[Component]
    panels: Sequence[Component] = ()
    readings: Sequence[str] = ()
    lecture: str = ""

    def __post_init__(self) -> None:
        if self.readings and len(self.readings) != len(self.figures) - 1:
            n, expected = len(self.readings), len(self.figures) - 1
            raise ValueError(f"readings must have one entry per figure but one: {n} for {expected}")

    def claims_table(self) -> Table:
        failed = [i for i, claim in enumerate(self.claims) if claim.holds is False]
        return Table(CLAIM_COLUMNS, [claim.row for claim in self.claims], warn=failed)

    def page(self) -> Page:
        page = Page(self.title, self.answer)
        page.section("Question", self.lecture)
        page.add(Text(unwrap(self.question)))
        readings = self.reading, *self.readings
        for figure, reading in zip_longest(self.figures, readings):
            page.section(getattr(figure, "title", "") or "Figure", reading or "")
            page.add(figure)
        page.section("Claims", f"What was stated beforehand: {summary(self.claims)}.")
        page.add(self.claims_table())
        page.section("Measured")
        for component in (*self.tables, *self.panels):
            page.add(component)
        return page

    def write(self, folder: Path, name: str, reporter: Reporter) -> list[Path]:
        """Write NAME.html, and each figure as SVG and PNG; without matplotlib the page alone."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            paths = [self.page().write(folder / f"{name}.html")]
            if find_spec("matplotlib") is None:
                reporter.warn(f"no images: {missing_extra('matplotlib', 'plots')}")
                return paths
            for suffix in ("svg", "png"):
                paths += save_all(self.figures, folder, suffix, prefix=name)
            return paths
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}") from None

    def to_json(self, figures: Sequence[Path]) -> dict[str, Any]:
        """Return the document of `regard lab NAME --json`."""
        tables = [table.data() for table in self.tables]
        return {
            "answer": self.answer,
            "lecture": self.lecture,
            "claims": [claim.to_json() for claim in self.claims],
            "figures": [str(path) for path in figures],
            "tables": [{key: t[key] for key in ("title", "columns", "rows")} for t in tables],
        }


def unwrap(text: str) -> str:
    """Return wrapped text with one line for each paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


@dataclass(frozen=True)
class Proportion:
    """A count out of a total, with a 95% interval."""

    count: int
    total: int

    @property
    def value(self) -> float:
        return self.count / self.total

    @property
    def interval(self) -> Interval:
        """Wilson's 95% interval (1927, JASA 22:209), which has a width even at 0 and 1, where the
        bootstrap's has none.
        """
        share = Z * Z / self.total
        center = (self.value + share / 2) / (1 + share)
        half = math.sqrt(share * (self.value * (1 - self.value) + share / 4)) / (1 + share)
        return Interval(max(0.0, center - half), min(1.0, center + half))

    @property
    def percent(self) -> str:
        """The proportion in percent, for tables with many columns."""
        low, high = self.interval
        return f"{100 * self.value:.3g} [{100 * low:.3g}, {100 * high:.3g}]"

    def __add__(self, other: Proportion) -> Proportion:
        return Proportion(self.count + other.count, self.total + other.total)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.3f} [{low:.3f}, {high:.3f}]"


def difference_interval(a: Proportion, b: Proportion) -> Interval:
    """Return the 95% interval of a - b for independent counts: Newcombe 1998 (Statistics in
    Medicine 17:873), method 10, from the intervals of both.
    """
    (low, high), (least, most) = a.interval, b.interval
    gap = a.value - b.value
    down = math.hypot(a.value - low, most - b.value)
    up = math.hypot(high - a.value, b.value - least)
    return Interval(gap - down, gap + up)


@dataclass(frozen=True)
class Mean:
    """The mean of repeated measurements, with a 95% interval."""

    value: float
    half_width: float

    @staticmethod
    def of(values: Sequence[float]) -> Mean:
        """Return the mean of at least one value with Student's t; the interval of one is
        infinite.
        """
        n, mean = len(values), math.fsum(values) / len(values)
        if n < 2:
            return Mean(mean, math.inf)
        deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
        return Mean(mean, float(stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n))

    @property
    def interval(self) -> Interval:
        return Interval(self.value - self.half_width, self.value + self.half_width)

    def __str__(self) -> str:
        low, high = self.interval
        if not math.isfinite(self.half_width):
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{low:.4g}, {high:.4g}]"


def quantile_interval(values: Any) -> Interval:
    low, high = np.quantile(values, (0.025, 0.975))
    return Interval(float(low), float(high))


Axes = tuple[str, str]  # labels of x and y


def curves(
    xs: Any,
    rows: Mapping[str, Any],
    title: str,
    axes: Axes,
    *,
    log: str = "",
    ticks: bool = False,
    **options: Any,
) -> Lines:
    """Return one line for each row of values over the same xs; a shorter row ends earlier.

    Axes named in `log` are logarithmic; with `ticks`, the xs are marked instead of round numbers.
    """
    xs = np.asarray(xs, dtype=np.float64).tolist()
    return Lines(
        [(name, xs[: len(row)], np.asarray(row).tolist()) for name, row in rows.items()],
        *axes,
        title,
        log_x="x" in log,
        log_y="y" in log,
        x_ticks=xs if ticks else (),
        **options,
    )


def seed_curves(
    xs: Any, groups: Mapping[str, Sequence[Sequence[float]]], title: str, axes: Axes, **options: Any
) -> Lines:
    """Return a line for each group of rows, one for each seed: their mean, with their range."""
    arrays = {name: np.array(rows) for name, rows in groups.items()}
    bands = {name: (a.min(0).tolist(), a.max(0).tolist()) for name, a in arrays.items()}
    means = {name: array.mean(0) for name, array in arrays.items()}
    return curves(xs, means, title, axes, bands=bands, **options)


@dataclass(frozen=True, eq=False)
class Accuracies:
    """Proportions by model (`rows`) and by distance, or another `axis`; the level of chance."""

    rows: Mapping[str, Mapping[int, Proportion]]
    chance: float
    axis: str = "distance"

    @property
    def columns(self) -> list[int]:
        return list(next(iter(self.rows.values())))

    def answer(self, where: str) -> str:
        """Say which models are above chance at the greatest distance, and which may be at it."""
        last = self.columns[-1]
        ends = {name: row[last] for name, row in self.rows.items()}
        order = sorted(ends, key=lambda name: -ends[name].value)
        above = [name for name in order if ends[name].interval.low > self.chance]
        best = ", ".join(f"{name} ({ends[name].value:.0%})" for name in above) or "no model"
        rest = ", ".join(name for name in order if name not in above)
        guessing = f"; not above chance, {self.chance:.0%}: {rest}" if rest else ""
        return f"{where.format(last)}: {best}{guessing}."

    def table(self, column: str, title: str) -> Table:
        """Return the proportions in percent; `column` formats a length or distance."""
        rows = [[name, *(p.percent for p in row.values())] for name, row in self.rows.items()]
        align = ["left", *["right"] * len(self.columns)]
        columns = ["model", *(column.format(x) for x in self.columns)]
        return Table(columns, rows, align=align, title=title)

    def lines(self, title: str, axes: Axes) -> Lines:
        """Return one line with its intervals for each model, and the level of chance."""
        ends = {name: [p.interval for p in row.values()] for name, row in self.rows.items()}
        return curves(
            self.columns,
            {name: [p.value for p in row.values()] for name, row in self.rows.items()},
            title,
            axes,
            log="x",
            ticks=True,
            bands={
                name: ([e.low for e in row], [e.high for e in row]) for name, row in ends.items()
            },
            levels={"chance": self.chance},
        )

    def heatmap(self, title: str, unit: str) -> Heatmap:
        """Return the same as a map, where lines would coincide."""
        values = np.array([[p.value for p in row.values()] for row in self.rows.values()])
        return Heatmap(
            values, list(self.rows), list(map(str, self.columns)), title=title, unit=unit
        )

    def claim_high(
        self, name: str, model: str, least: float, most: int | None = None, *, quick: bool = False
    ) -> Claim | None:
        """Return the claim that even the lowest proportion, up to the distance `most`, is at least
        `least`; after a quick training it may still rise. None where nothing was measured there.
        """
        row = {x: p for x, p in self.rows.get(model, {}).items() if most is None or x <= most}
        if not row:
            return None
        where = f"every {self.axis}" if most is None else f"{self.axis}s to {most}"
        x, lowest = min(row.items(), key=lambda item: item[1].value)
        stated, measured = f"accuracy at least {least} at {where}", f"{lowest} at {x}, the lowest"
        return Claim.within(name, stated, lowest, measured, least=least, may_rise=quick)

    def claim_chance(self, name: str, model: str, tolerance: float, least: int) -> Claim | None:
        """Return the claim that even the proportion farthest from chance, from the distance `least`
        on, is within the tolerance. None where nothing was measured there.
        """
        row = {x: p for x, p in self.rows.get(model, {}).items() if x >= least}
        if not row:
            return None
        stated = f"accuracy within {tolerance} of {self.chance:.3g} at {self.axis}s from {least}"
        x, farthest = max(row.items(), key=lambda item: abs(item[1].value - self.chance))
        low, high = self.chance - tolerance, self.chance + tolerance
        measured = f"{farthest} at {x}, the farthest"
        return Claim.within(name, stated, farthest, measured, least=low, most=high)


MAX_CHARACTERS = 2_000_000  # read of a file
TEST_SHARE = 0.1  # of a text, at its end
LAYERS = 2  # of a sized model

Ids = NDArray[np.int64]
OnProgress = Callable[[float], None]  # called with the number of positions that were read
Watch = Callable[[int, float, NeuralLanguageModel], None]  # step, nats per symbol, model


def generator(seed: int, *keys: int) -> np.random.Generator:
    """Return random numbers that depend on the seed and the keys alone."""
    return np.random.default_rng(seed_of(seed, *keys))


# Batches


def make_batch(ids: Tensor, targets: Tensor) -> Batch:
    """Return ids and targets (B, T) as the trainer takes them."""
    n = int((targets != IGNORE).sum())
    return Batch(ids, targets, None, np.arange(len(ids)), n, n)


def next_symbol_batch(rows: Tensor) -> Batch:
    """Return the batch whose targets are all symbols of rows (B, T + 1) but the first."""
    return make_batch(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())


def last_symbol_batch(ids: Tensor, targets: Tensor) -> Batch:
    """Return the batch of ids (B, T) whose only targets (B,) follow the last position."""
    padded = torch.full_like(ids, IGNORE)
    padded[:, -1] = targets
    return make_batch(ids, padded)


def make_shard(rows: Sequence[Ids], vocab_size: int) -> Shard:
    """Return rows of ids as records in memory."""
    ids, lengths = np.concatenate(rows), [len(row) for row in rows]
    return Shard(
        path=Path("memory"),
        kind="records",
        ids=ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        vocab_size=vocab_size,
        records=len(rows),
        tokens=len(ids),
        symbols=len(ids) - len(rows),
        bytes=len(ids) - 2 * len(rows),
    )


@dataclass(frozen=True, eq=False)
class TextStream:
    """Ids (N,) of characters, and the characters they stand for; the last tenth is for testing."""

    ids: Ids
    letters: str

    @property
    def train(self) -> Ids:
        return self.ids[: len(self.ids) - int(TEST_SHARE * len(self.ids))]

    @property
    def test(self) -> Ids:
        return self.ids[len(self.ids) - int(TEST_SHARE * len(self.ids)) :]


def read_stream(path: Path | None, least: int) -> TextStream:
    """Read the user's file, or the bundled names; UserError unless it has `least` characters."""
    source = TextFiles([path or NAMES])
    if source.format == "text":
        parts = chain(source.text())
    else:
        records = [text for chunk in source.records() for text in chunk.texts]
        order = np.random.default_rng(0).permutation(len(records))  # a file may be sorted
        parts = chain.from_iterable((records[i], "\n") for i in order)
    texts, size = [], 0
    for part in parts:
        texts.append(part)
        size += len(part)
        if size >= MAX_CHARACTERS:
            break
    text = "".join(texts)[:MAX_CHARACTERS]
    if len(text) < least:
        raise UserError(f"{path}: {len(text):,} characters, at least {least:,} are needed")
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    letters, ids = np.unique(codes, return_inverse=True)
    return TextStream(ids.astype(np.int64), "".join(map(chr, letters.tolist())))


def spread_windows(ids: Ids, length: int, most: int) -> Batch:
    """Return at most so many windows that do not overlap, spread over the ids."""
    n = (len(ids) - 1) // length
    starts = np.unique(np.linspace(0, n - 1, min(most, n)).astype(np.int64)) * length
    return _windows(ids, starts, length)


def random_windows(ids: Ids, length: int, n: int, seed: int, step: int) -> Batch:
    """Return windows at random positions, for a step of training."""
    return _windows(ids, generator(seed, step).integers(0, len(ids) - length, n), length)


def _windows(ids: Ids, starts: Ids, length: int) -> Batch:
    return next_symbol_batch(torch.from_numpy(ids[starts[:, None] + np.arange(length + 1)]))


# Models


def small_decoder(max_len: int, **fields: Any) -> DecoderConfig:
    sizes = {"n_layers": 2, "d_model": 64, "n_heads": 4, "n_kv_heads": 4, "d_head": 16, "d_ff": 128}
    return DecoderConfig(**{**sizes, "max_len": max_len, **fields})


Fields = tuple[tuple[str, Any], ...]  # of a configuration


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """A neural family, two layers deep, whose width follows from a number of parameters.

    `context` is that of a convolution (0: the whole sequence). Fields of the configuration are
    changed before the width is found (`decided`) or after (`changes`).
    """

    family: str
    context: int = 0
    decided: Fields = ()
    changes: Fields = ()

    def config(self, n_parameters: int, vocab_size: int, max_len: int) -> Any:
        """Return the configuration with about so many parameters."""
        size = self.family, n_parameters, vocab_size, self.context or max_len, self.decided
        return replace(_find_config(*size), max_len=max_len, **dict(self.changes))

    def builder(
        self, n_parameters: int, vocab_size: int, max_len: int
    ) -> Callable[[], NeuralLanguageModel]:
        """Return a function that makes a model with its initial weights."""
        config = self.config(n_parameters, vocab_size, max_len)  # found before torch is seeded
        return lambda: cast(NeuralLanguageModel, MODELS.get(self.family)(vocab_size, config))


@cache  # the search is slow
def _find_config(name: str, size: int, vocab_size: int, max_len: int, decided: Fields) -> Any:
    return find_config(
        name, size, vocab_size, n_layers=LAYERS, max_len=max_len, decided=dict(decided)
    )


def train_model(
    build: Callable[[], NeuralLanguageModel],
    batch_at: Callable[[int], Batch],
    steps: int,
    seed: int,
    *,
    on_progress: OnProgress = lambda positions: None,
    watch: Watch = lambda step, nats, model: None,
    **settings: Any,
) -> NeuralLanguageModel:
    """Train the model that `build` returns, step i on `batch_at(i)`, with the trainer's defaults
    unless `settings` of its recipe change them.

    `watch` is called with each step's loss before the gradients are used, `on_progress` after each
    step.
    """
    recipe = TrainRecipe(**{"device": "cpu", "compile": "off"} | settings, steps=steps, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(seed))
        model = build()
        objective = partial(NextTokenObjective, label_smoothing=recipe.label_smoothing)
        stepper = Stepper(model.train(), recipe, objective, world=ALONE)
        for step in range(steps):
            torch.manual_seed(seed_of(seed, step))
            batch = batch_at(step)
            nats = stepper.gradient([batch], batch.symbols)
            norm = stepper.norm()
            if not bool(torch.isfinite(norm)):
                raise UserError(f"{type(model).__name__}: step {step}: the gradient is not finite")
            watch(step, float(nats.sum()) / batch.symbols, model)
            stepper.optimizer.set_rates(factor(recipe.schedule, step, steps, recipe.warmup))
            stepper.update(norm)
            on_progress(batch.ids.numel())
    return model.eval()


def fit_hmm(
    shard: Shard,
    config: HiddenMarkovConfig,
    iterations: int,
    seed: int,
    on_progress: OnProgress = lambda positions: None,
) -> HiddenMarkov:
    """Return a hidden Markov model after so many EM iterations, or fewer once it has converged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = HiddenMarkov(shard.vocab_size, config)
    state = EMState()
    for _ in range(iterations):
        state.add(model.improve(shard).objective)
        on_progress(shard.tokens)
        if state.converged:
            break
    return model


# Measurements


def mean_loss(model: NeuralLanguageModel, batch: Batch) -> float:
    """Return the bits per token of a batch."""
    with torch.no_grad():
        return -float(model.score(batch.ids, batch.targets).double().mean()) * BITS_PER_NAT


def last_symbol_accuracy(
    model: NeuralLanguageModel, batch: Batch, chunk: int = 1 << 30
) -> Proportion:
    """Return how often the target after the last position is the most probable symbol."""
    device, n_right = next(model.parameters()).device, 0
    with torch.no_grad():
        for ids, targets in zip(batch.ids.split(chunk), batch.targets.split(chunk), strict=True):
            predictions = model.head(model(ids.to(device))[:, -1]).argmax(-1)
            n_right += int((predictions.cpu() == targets[:, -1]).sum())
    return Proportion(n_right, len(batch.ids))
