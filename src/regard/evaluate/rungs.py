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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.data.corpus import FOLDER
from regard.errors import UserError
from regard.evaluate.comparison import Comparison, Row, mean, ranked, verdict
from regard.evaluate.material import held_out
from regard.evaluate.report import Figure, Measured, measure
from regard.models.counts import Counting
from regard.recipe import Recipe, to_toml
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


def share_minutes(rungs: Sequence[Rung], minutes: float) -> float:
    """Minutes for each of the rungs that take as long as they are given and are not done."""
    left = [r for r in rungs if not r.counts and not r.done]
    return minutes / max(1, len(left))


def climb(
    rungs: Sequence[Rung], minutes: float, shared: Path, told: Callable[[Rung, str], None]
) -> None:
    """Train all that is not done, in order; `told(rung, state)` hears of each what it does.

    The `shared` folder holds the tokenised data.
    """
    began, data = time.monotonic(), {1.0: shared}
    for at, one in enumerate(rungs):
        if not one.done:
            left = minutes - (time.monotonic() - began) / 60
            share = max(0.05, share_minutes(rungs[at:], left))
            prepare(one, share, data.get(one.fraction))
            train(one, told)
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


def measured(one: Rung, shared: Path) -> tuple[Measured, str, dict[str, Any]]:
    """What a finished run costs on what was held out of the shared data; and its facts."""
    name, shard = held_out(shared, tokenizer := load_tokenizer(one.run / TOKENIZER))
    facts = read_json(one.run / FACTS)
    model = load_model(one.run)
    if facts.get("device", "cpu").startswith("cuda"):
        model = model.to(facts["device"])
    return measure(model, shard, tokenizer), name, facts


def compared(rungs: Sequence[Rung], shared: Path) -> Comparison:
    """The table of finished rungs."""
    rows, curves, name = [], {}, ""
    whole: Measured | None = None
    for model in dict.fromkeys(r.model for r in rungs):
        seeds = [r for r in rungs if r.model == model and r.fraction == 1]
        found = [measured(r, shared) for r in seeds]
        whole, name = found[0][0], found[0][1]
        costs = [m for m, _, _ in found]
        facts = [f for _, _, f in found]
        peaks = [read_json(r.run / MEMORY)["peak_memory_bytes"] for r in seeds]
        rows.append(
            Row(
                model=model,
                parameters=facts[0]["parameters"],
                train_seconds=sum(f["train_seconds"] for f in facts) / len(facts),
                symbols_per_second=facts[0].get("symbols_per_second") or 0.0,
                peak_memory_bytes=max(peaks),
                measured=mean(costs),
                values=tuple(per_symbol(m) for m in costs),
                runs=tuple(r.run for r in seeds),
                quality=quality(facts[0], name),
            )
        )
        parts = [r for r in rungs if r.model == model and r.seed == 0]
        if len(parts) > 1:
            curves[model] = points(parts, shared)
    assert whole is not None
    table = ranked(rows)
    symbols = int(whole.symbols.sum())
    return Comparison(name, symbols, whole.records, table, verdict(table, curves), curves)


def quality(facts: Mapping[str, Any], side: str) -> dict[str, Figure]:
    """How good the translations of a run were when it ended, where it makes any."""
    known = facts.get("metrics", {}).get(side, {})
    return {
        name: Figure(known[name]["value"], known[name]["low"], known[name]["high"], digits=2)
        for name in ("bleu", "chrf", "exact")
        if name in known
    }


def points(rungs: Sequence[Rung], shared: Path) -> list[tuple[int, float]]:
    """Symbols trained on and nats per symbol, of runs on growing fractions."""
    found = []
    for one in sorted(rungs, key=lambda r: r.fraction):
        cost, _, facts = measured(one, shared)
        found.append((int(facts["data"]["sides"]["train"]["symbols"]), per_symbol(cost)))
    return found


def per_symbol(cost: Measured) -> float:
    """Nats per symbol; infinite where something was held impossible."""
    return float("inf") if cost.impossible else float(cost.nats.sum() / cost.symbols.sum())
