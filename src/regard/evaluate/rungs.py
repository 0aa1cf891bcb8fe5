"""Training the rows of a comparison: each in its own process, on one tokenised copy of the data.

A row is a run folder like any other. One that is finished is not trained again, one that was
stopped goes on, so an interrupted comparison is resumed by the same command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.data.corpus import FOLDER
from regard.errors import UserError
from regard.evaluate.comparison import Comparison, Row, mean, mean_judged, ranked, verdict
from regard.evaluate.material import held_out
from regard.evaluate.report import Measured, measure
from regard.evaluate.translation import Sentence, judged_of, kept
from regard.models.counts import Counting
from regard.models.translator import Translator
from regard.recipe import Recipe, build, read, to_toml
from regard.registry import family
from regard.run import (
    FACTS,
    RECIPE,
    SOURCE_TOKENIZER,
    TOKENIZER,
    load_model,
    read_json,
    write_json,
    write_text,
)
from regard.tokens import load as load_tokenizer

FRACTIONS = (0.125, 0.25, 0.5)  # of the training part, besides all of it
TICK = 0.1  # seconds between two looks at a run that trains
MEMORY = "memory.json"  # what the process of a row took at its peak
LOG = "train.log"


@dataclass(frozen=True)
class Rung:
    """One run to be made: a row of the table, one of its seeds, or a point of its curve."""

    model: str
    recipe: Recipe
    run: Path
    seed: int = 0
    fraction: float = 1.0

    @property
    def done(self) -> bool:
        """Was it finished before?"""
        path = self.run / FACTS
        return path.exists() and read_json(path).get("outcome") in ("done", "early")

    @property
    def counts(self) -> bool:
        """Is it fitted in one pass, whatever time there is?"""
        return issubclass(family(self.model, self.recipe.task), Counting)


def rung(recipe: Recipe, folder: Path, seed: int = 0, fraction: float = 1.0) -> Rung:
    """The run of a recipe with another seed, on a fraction of its training data."""
    name = recipe.model.name
    ending = "".join([f"-seed{seed}" if seed else "", f"-{fraction:g}" if fraction < 1 else ""])
    recipe = recipe.replace(train={"seed": seed}, data={"train_fraction": fraction})
    return Rung(name, recipe, folder / f"{name}{ending}", seed, fraction)


def share_minutes(rungs: Sequence[Rung], left: float, extra: float = 0.0) -> float:
    """Minutes for each of the rungs that take as long as they are given: an equal share of those
    that are left, less what a row takes beside (`extra`), but no more than half for that.

    Where one of them has begun, as many as it was given: a row that is made up later, or added, has
    no advantage.
    """
    patient = [one for one in rungs if not one.counts]
    begun = [one for one in patient if (one.run / RECIPE).exists()]
    if begun:
        return build(read(begun[0].run / RECIPE)).train.minutes
    share = left / max(1, len(patient))
    return max(0.05, share / 2, share - extra)


def climb(
    rungs: Sequence[Rung], minutes: float, shared: Path, told: Callable[[Rung, str], None]
) -> None:
    """Train all that is not done, in order; `told(rung, state)` hears of each what it does.

    The `shared` folder holds the tokenised data.
    """
    began, data = time.monotonic(), {1.0: shared}
    share: float | None = None
    extra: list[float] = []  # minutes that rows which count took to start and to be measured
    for one in rungs:
        if not one.done:
            now = time.monotonic()
            if share is None and not one.counts:
                left = minutes - (now - began) / 60
                share = share_minutes(rungs, left, fmean(extra or [0.0]))
            prepare(one, share or minutes, data.get(one.fraction))
            train(one, told)
            if one.counts:
                fitting = read_json(one.run / FACTS)["train_seconds"]
                extra.append((time.monotonic() - now - fitting) / 60)
        data.setdefault(one.fraction, one.run)
        told(one, "done")


def prepare(one: Rung, minutes: float, source: Path | None) -> None:
    """The run folder with its recipe and, linked, the data that another run has tokenised."""
    if (one.run / RECIPE).exists():
        return
    one.run.mkdir(parents=True, exist_ok=True)
    if source is not None and not (one.run / FOLDER).exists():
        (one.run / FOLDER).mkdir()
        for file in (source / FOLDER).iterdir():
            link(file, one.run / FOLDER / file.name)
        for name in (TOKENIZER, SOURCE_TOKENIZER):
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


def train(one: Rung, told: Callable[[Rung, str], None]) -> None:
    """`regard train` in a process of its own; what it took at its peak is noted."""
    words = [sys.executable, "-m", "regard", "train", str(one.run / RECIPE)]
    words += ["--out", str(one.run), "--resume", "--json", "--quiet"]
    with open(one.run / LOG, "ab") as log:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log)
        ended = 0
        try:
            while not ended:
                told(one, "training")
                time.sleep(TICK)
                ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        except KeyboardInterrupt:  # it was told too, and saves
            process.wait()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        lines = (one.run / LOG).read_text(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"it ended with code {process.returncode}"
        raise UserError(f"{one.model} could not be trained: {reason} (see {one.run / LOG})")
    scale = 1 if sys.platform == "darwin" else 1024
    write_json(one.run / MEMORY, {"peak_memory_bytes": usage.ru_maxrss * scale})


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a finished run: its cost on what was held out, its facts, its translations."""

    measured: Measured
    side: str
    facts: dict[str, Any]
    made: Sequence[Sentence]  # empty where it does not translate
    seconds: float  # that making them took

    @property
    def tokens_per_second(self) -> float:
        """Tokens of training: as many more or less than symbols as the training data has."""
        held = self.facts["data"]["sides"]["train"]
        rate = self.facts.get("symbols_per_second") or 0.0
        return float(rate * held["tokens"] / max(1, held["symbols"]))

    @property
    def point(self) -> tuple[int, float]:
        """Symbols trained on and nats per symbol."""
        return int(self.facts["data"]["sides"]["train"]["symbols"]), per_symbol(self.measured)

    @property
    def sentences_per_second(self) -> float:
        """Translated by a beam."""
        return len(self.made) / max(self.seconds, 1e-3)


def outcome(one: Rung, shared: Path) -> Outcome:
    """What came of a run on what was held out of the shared data."""
    tokenizer = load_tokenizer(one.run / TOKENIZER)
    own = one.run / SOURCE_TOKENIZER
    name, shard = held_out(shared, tokenizer, load_tokenizer(own) if own.exists() else None)
    facts = read_json(one.run / FACTS)
    model = load_model(one.run)
    if facts.get("device", "cpu").startswith("cuda"):
        model = model.to(facts["device"])
    made, seconds = kept(one.run) if isinstance(model, Translator) else ([], 0.0)
    return Outcome(measure(model, shard, tokenizer), name, facts, made, seconds)


def compared(rungs: Sequence[Rung], shared: Path) -> Comparison:
    """The table of finished rungs."""
    found = {one.run: outcome(one, shared) for one in rungs}
    sentences = min(len(each.made) for each in found.values())  # each has the first of the same
    rows, curves = [], {}
    for model in dict.fromkeys(one.model for one in rungs):
        seeds = [one for one in rungs if one.model == model and one.fraction == 1]
        rows.append(row(model, seeds, [found[one.run] for one in seeds], sentences))
        parts = [one for one in rungs if one.model == model and one.seed == 0]
        if len(parts) > 1:
            parts = sorted(parts, key=lambda one: one.fraction)
            curves[model] = [found[one.run].point for one in parts]
    table = ranked(rows)
    first = found[rungs[0].run]
    return Comparison(
        side=first.side,
        symbols=int(first.measured.symbols.sum()),
        records=first.measured.records,
        rows=table,
        verdict=verdict(table, curves),
        curves=curves,
        sentences=sentences,
    )


def row(model: str, seeds: Sequence[Rung], found: Sequence[Outcome], sentences: int) -> Row:
    """The row of a model's seeds, judged by the first sentences that each has translated."""
    peaks = [read_json(one.run / MEMORY)["peak_memory_bytes"] for one in seeds]
    judged = [judged_of(each.made[:sentences], lenient=True) if sentences else {} for each in found]
    values = [
        one["bleu"].value if "bleu" in one else per_symbol(each.measured)
        for one, each in zip(judged, found, strict=True)
    ]
    first = found[0]
    return Row(
        model=model,
        parameters=first.facts["parameters"],
        train_seconds=fmean(each.facts["train_seconds"] for each in found),
        symbols_per_second=first.facts.get("symbols_per_second") or 0.0,
        peak_memory_bytes=max(peaks),
        measured=mean([each.measured for each in found]),
        values=tuple(values),
        runs=tuple(one.run for one in seeds),
        judged=mean_judged(judged),
        tokens_per_second=first.tokens_per_second,
        sentences_per_second=first.sentences_per_second if sentences else 0.0,
        epochs=first.facts.get("epochs") or 1.0,
    )


def per_symbol(cost: Measured) -> float:
    """Nats per symbol; infinite where something was held impossible."""
    return float("inf") if cost.impossible else float(cost.nats.sum() / cost.symbols.sum())
