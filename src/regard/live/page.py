"""The live page of a run: the model is quantised until it fits, what that costs is measured, and
everything becomes one component of a page.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation import Report, metric_title
from regard.evaluation.eval_data import open_corpus
from regard.evaluation.language_modeling import truncate_shard
from regard.live.parts import LivePart, assets, live_part
from regard.live.quantize import pack_part
from regard.look.page import Component, Facts, Page, Table, Text
from regard.look.page.document import Asset, cell, escape
from regard.look.run_warnings import run_warnings
from regard.pipelines import Pipeline, load
from regard.pipelines.generator import REQUEST
from regard.registry import LIVE, MODELS
from regard.run import Run

MOST_BYTES = 4_000_000  # of a page
SCRIPT_BYTES = 300_000  # of it for scripts, styles and the tokenizer
MOST_PARAMETERS = 4_000_000  # a model with more cannot fit
MEASURED_TOKENS = 50_000  # of the validation split, at most
TOLERATED = 0.01  # bits per symbol, or share of a metric: more calls for 16 bits
BASE = assets("weights", "tensors", "session", "sampling", "characters", "panels")
STYLES = ((BASE[0][0], "live.css"),)


@dataclass(frozen=True, eq=False)
class LiveModel(Component):
    """A model that runs in the page, with the tensors as `pack_part` returns them."""

    kind: ClassVar[str] = "live"
    model: LivePart
    tensors: dict[str, Any]
    reader: LivePart
    screen: LivePart

    def assets(self) -> Sequence[Asset]:
        parts = (self.model, self.reader, self.screen)
        scripts = (script for part in parts for script in part.scripts)
        return (*BASE, *scripts, *assets("live"), *STYLES)

    def data(self) -> dict[str, Any]:
        parts = {"model": self.model, "reader": self.reader, "screen": self.screen}
        data = {name: {"program": p.program, "config": p.config} for name, p in parts.items()}
        data["model"]["tensors"] = self.tensors
        return data

    def fallback(self) -> str:
        return f"<p>{escape('This page runs a model: it needs scripts.')}</p>"


@dataclass(frozen=True)
class QuantizationCost:
    """A metric of the model before and after its weights were rounded to some bits."""

    title: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        return (
            0.0 if self.before == self.after else self.after - self.before
        )  # both may be infinite

    @property
    def values(self) -> tuple[float, float, float]:
        """Before, after, and the difference."""
        return self.before, self.after, self.difference


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A model as a page stores it, the same with rounded weights, and what rounding costs."""

    pipeline: Pipeline
    part: LivePart
    tensors: dict[str, Any]
    bits: int
    costs: Sequence[QuantizationCost]


def live_page(run: str | Path | Run, text: str = "") -> Page:
    """Return the page in which the model of a run runs; UserError if it is too large or of a family
    that no script implements.
    """
    opened = Run.open(run)
    pipeline = load(opened)
    check_family(opened)
    check_parameters(pipeline)
    screen = live_part(pipeline, text)
    reader = live_part(pipeline.source_tokenizer, pipeline)
    stored = store(pipeline, validation(opened.path))
    page = Page(f"{opened.name}, live", "the model runs in this page, on whatever you type or draw")
    page.warn(*run_warnings(opened))
    page.add(LiveModel(stored.part, stored.tensors, reader, screen))
    add_facts(page, pipeline, stored)
    return page


def check_family(run: Run) -> None:
    """Raise a UserError, with the families that do, if no script runs that of a run."""
    task, family, *_, reads = run.description
    if LIVE.find(MODELS.get(family, task, reads)) is not None:
        return
    names = (name for name in MODELS.names(task, reads))
    supported = [name for name in names if LIVE.find(MODELS.get(name, task, reads)) is not None]
    advice = f"train with --model {' or '.join(supported)}, or " if supported else ""
    raise UserError(f"live pages do not support {family} for this task: {advice}leave out --live")


def check_parameters(pipeline: Pipeline) -> None:
    """Raise a UserError for a model that cannot fit."""
    count = sum(parameter.numel() for parameter in pipeline.model.parameters())
    if count > MOST_PARAMETERS:
        raise too_large(pipeline, f"{count:,} parameters")


def too_large(pipeline: Pipeline, size: str) -> UserError:
    """Return the error for a model of this size."""
    return UserError(
        f"{pipeline.run} has {size}, and a live page holds {MOST_BYTES / 1e6:g} MB, about 2 "
        "million parameters: train a smaller model (--set model.d_model=128; of n-grams, "
        "--set model.order=3), or leave out --live"
    )


def validation(run: Path) -> Shard | None:
    """Return the validation split of a run, or its beginning; None if it has none."""
    try:
        shard = open_corpus(run).valid
    except UserError:
        return None
    return None if shard is None else truncate_shard(shard, MEASURED_TOKENS)


def store(pipeline: Pipeline, shard: Shard | None) -> StoredModel:
    """Quantise a model to 8 bits, or to 16 where 8 cost more than is tolerated and 16 fit."""
    before = measured(pipeline, shard)
    small = store_in(8, pipeline, shard, before)
    if size_of(small) > MOST_BYTES - SCRIPT_BYTES:
        raise too_large(pipeline, f"{size_of(small) / 1e6:.1f} MB of weights")
    if all(abs(cost.difference) <= TOLERATED for cost in small.costs):
        return small
    fine = store_in(16, pipeline, shard, before)
    return fine if size_of(fine) <= MOST_BYTES - SCRIPT_BYTES else small


def store_in(
    bits: int, pipeline: Pipeline, shard: Shard | None, before: dict[str, float]
) -> StoredModel:
    """Quantise a copy of a model and measure it."""
    quantized = copy.copy(pipeline)
    quantized.model = copy.deepcopy(pipeline.model)
    part = live_part(quantized.model)
    tensors = pack_part(part, bits)
    after = measured(quantized, shard)
    costs = [QuantizationCost(title, before[title], after[title]) for title in before]
    return StoredModel(quantized, part, tensors, bits, costs)


def size_of(stored: StoredModel) -> int:
    """Return the bytes of the tensors in the page."""
    return len(stored.tensors["bytes"])


def measured(pipeline: Pipeline, shard: Shard | None) -> dict[str, float]:
    """Return the metrics by which quantising is judged, by title."""
    if shard is None:
        return {}
    report: Report = pipeline.measure(shard, REQUEST)
    names = dict.fromkeys([report.ranked_by, *(n for n in ("accuracy",) if n in report.estimates)])
    metrics = report.metrics()
    return {metric_title(name, metrics[name]): metrics[name].value for name in names}


def add_facts(page: Page, pipeline: Pipeline, stored: StoredModel) -> None:
    """Say what is in the page, and what quantising cost."""
    page.section("The model in this page", what_was_rounded(stored))
    page.add(
        Facts([*pipeline.facts.items(), ("weights in the page", f"{size_of(stored):,} bytes")])
    )
    if stored.costs:
        rows = [[c.title, *map(four_digits, c.values)] for c in stored.costs]
        measured_on = f"on validation data, up to {MEASURED_TOKENS:,} tokens"
        columns = [measured_on, "as trained", "in this page", "difference"]
        align = ["left", "right", "right", "right"]
        page.add(Table(columns, rows, align, title="What rounding the weights cost"))
    else:
        page.add(Text("What rounding cost was not measured: the run holds no validation data."))


def four_digits(value: float) -> str:
    """Return a metric with four decimals; −0.0000 is 0.0000."""
    if not math.isfinite(value):
        return cell(value)
    return f"{value if abs(value) >= 5e-5 else abs(value):.4f}".replace("-", "−")


def what_was_rounded(stored: StoredModel) -> str:
    """Return a sentence about how weights are stored."""
    if stored.part.probabilities:
        return "Probabilities are stored by their logarithms in 16 bits; counts by their order."
    return (
        f"Matrices are stored in {stored.bits} bits with a scale for every row, the rest in single "
        "precision; Python with the same rounded weights gives the same numbers."
    )
