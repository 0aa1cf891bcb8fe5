"""What a comparison says while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table

from regard.evaluate.rungs import LOG, Rung
from regard.run import METRICS, read_facts, validations
from regard.train.progress import PLAIN_EVERY, Reporter, clock

LOOKED = 4096  # bytes at the end of a log


class Board:
    """The runs of a comparison and how far each has come; silent where the reporter is."""

    def __init__(self, reporter: Reporter, rungs: Sequence[Rung]) -> None:
        self.reporter, self.began = reporter, time.monotonic()
        self.spoke = self.began  # when the last line was said
        self.states = {one.row.name: "" for one in rungs}
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

    def __call__(self, one: Rung, state: str) -> None:
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


def reductions(one: Rung) -> list[str]:
    """What a run has left out because time was short."""
    return [str(line) for line in read_facts(one.run).get("reductions") or ()]


def latest(one: Rung) -> float | None:
    """The best validation figure that a run has logged so far."""
    if not (one.run / METRICS).exists():
        return None
    return min((nats for _, nats in validations(one.run)), default=None)
