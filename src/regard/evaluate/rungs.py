"""Training the rows of a comparison: each in its own process, on one tokenised copy of the data.
The folds of a row are runs of their own, which share its process and, with the same fold of other
rows, the data.

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
from itertools import groupby
from pathlib import Path

from regard.data.corpus import FOLDER
from regard.documents import read_json
from regard.errors import UserError
from regard.evaluate.schedule import Schedule, priority
from regard.models.assessor import FittedAssessor
from regard.models.counts import Counting
from regard.recipe import Recipe, build, read, to_toml
from regard.run import (
    FACTS,
    PREPROCESSOR,
    RECIPE,
    SOURCE_TOKENIZER,
    TOKENIZER,
    read_facts,
    write_json,
    write_text,
)
from regard.schemas import TrainedFacts

FRACTIONS = (0.125, 0.25, 0.5)  # of the training part, besides all of it
TICK = 0.1  # seconds between two looks at a run that trains
MEMORY = "memory.json"  # what the process of a row took at its peak
LOG = "train.log"


@dataclass(frozen=True)
class Rung:
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
        return issubclass(self.recipe.family, (Counting, FittedAssessor))


def finished(run: Path) -> bool:
    """Was training in this folder brought to its end?"""
    return read_facts(run).get("outcome") in ("done", "early")


def seconds_of(run: Path) -> float:
    """How long a finished run was trained."""
    return float(read_json(run / FACTS, TrainedFacts)["train_seconds"])


def rung(recipe: Recipe, folder: Path, seed: int = 0, fraction: float = 1.0, fold: int = 0) -> Rung:
    """The run of a recipe with another seed, on a fraction of its training data or another fold."""
    name = recipe.model.name
    ending = "".join([f"-seed{seed}" if seed else "", f"-{fraction:g}" if fraction < 1 else ""])
    run = folder / f"{name}{ending}" / (f"fold-{fold:03d}" if recipe.data.folds else "")
    recipe = recipe.replace(train={"seed": seed}, data={"train_fraction": fraction, "fold": fold})
    return Rung(name, recipe, run, seed, fraction)


def share_minutes(rungs: Sequence[Rung], share: float) -> float:
    """Minutes for each of the rungs that take as long as they are given: an equal share.

    Where one of them has begun, as many as it was given: a row that is made up later, or added, has
    no advantage.
    """
    begun = [one for one in rungs if not one.counts and (one.run / RECIPE).exists()]
    return build(read(begun[0].run / RECIPE)).train.minutes if begun else share


def climb(
    rungs: Sequence[Rung],
    end: float,
    shared: Path,
    told: Callable[[Rung, str], None],
    *,
    judge: Callable[[Rung], object] = bool,
    warn: Callable[[str], object] = bool,
) -> list[Rung]:
    """Train all that is not done until `end` (time.monotonic); those that were made, in order.

    `told(rung, state)` hears of each what it does, `judge` takes each that is done, and `warn`
    hears which rows are left out because the time does not hold them. The `shared` folder holds the
    tokenised data, those of the first fold where there are several.
    """
    data, share = {(1.0, 0): shared}, 0.0
    rows = [list(group) for _, group in groupby(rungs, key=lambda one: one.row)]
    timed = not rungs[0].recipe.train.steps
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
            share = share or share_minutes(rungs, minutes)
            minutes = min(share, minutes)
        for one in row:
            if not one.done:
                prepare(one, minutes, data.get((one.fraction, one.fold)))
        fit(row, told, schedule)
        ahead.remove(row)
        finish(row, data, told, judge)
    left_out = without(ahead, schedule, warn)
    return [one for one in rungs if one not in left_out]


def finish(
    row: Sequence[Rung],
    data: dict[tuple[float, int], Path],
    told: Callable[[Rung, str], None],
    judge: Callable[[Rung], object],
) -> None:
    """Hand on what a row that is done has: its tokenised data, and what came of it."""
    for one in row:
        data.setdefault((one.fraction, one.fold), one.run)
        judge(one)
    told(row[-1], "done")


def complete(row: Sequence[Rung]) -> bool:
    """Were all folds of a row finished before?"""
    return all(one.done for one in row)


def fit(row: Sequence[Rung], told: Callable[[Rung, str], None], schedule: Schedule) -> None:
    """Train the folds of a row that are not done; the schedule learns what that took beside."""
    left = [one for one in row if not one.done]
    began = time.monotonic()
    train(row[0], told) if len(row) == 1 else train_folds(row, told)
    if row[0].counts:
        fitting = sum(seconds_of(one.run) for one in left)
        schedule.starts.append(max(0.0, time.monotonic() - began - fitting))


def without(
    lost: Sequence[Sequence[Rung]], schedule: Schedule, warn: Callable[[str], object]
) -> list[Rung]:
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


def prepare(one: Rung, minutes: float, source: Path | None) -> None:
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


def train(one: Rung, told: Callable[[Rung, str], None]) -> None:
    """`regard train` in a process of its own; what it took at its peak is noted."""
    words = ["regard", "train", str(one.run / RECIPE), "--out", str(one.run)]
    words += ["--resume", "--json"]
    peak = watched(words, one, lambda: told(one, "training"))
    write_json(one.run / MEMORY, {"peak_memory_bytes": peak})


def train_folds(several: Sequence[Rung], told: Callable[[Rung, str], None]) -> None:
    """The folds of a row one after the other, in one process; what that took at its peak is noted
    of each.
    """
    left = list(several)

    def look() -> None:
        while len(left) > 1 and left[0].done:
            left.pop(0)
        told(left[0], "training")

    words = ["regard.evaluate.several", *(str(one.run) for one in several)]
    peak = watched(words, several[0], look)
    for one in several:
        write_json(one.run / MEMORY, {"peak_memory_bytes": peak})


def watched(words: Sequence[str], one: Rung, look: Callable[[], None]) -> int:
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
