"""Progress of a run on stderr, and its interruption.

All activities share one line of a terminal, which fits its width; it stays out of the way of what
is printed. A notebook shows the same line. Elsewhere a line is logged now and then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from regard.errors import human_size, one_line, printable


class Interrupt:
    """A context in which the first SIGINT or SIGTERM sets `asked`, and a second one has its usual
    effect; with `repeated`, a second one is ignored, since a launcher may send each signal twice.
    """

    def __init__(self, *, repeated: bool = False) -> None:
        self.asked = 0  # the number of the signal
        self.repeated = repeated
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = number
        if not self.repeated:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, *_: object) -> None:
        self._restore()


PLAIN_EVERY = 30.0  # seconds between lines where there is no terminal
NOTEBOOK_EVERY = 0.3  # seconds between changes of the line of a notebook
PATIENCE = 2.0  # seconds after which an activity is shown
BAR = 8, 24  # the least and the most cells of a bar


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def clock(seconds: float) -> str:
    """Return a time as 1:02:03, or 2:03 below an hour."""
    total = max(0, round(seconds))
    hours, minutes = divmod(total // 60, 60)
    return f"{hours}:{minutes:02d}:{total % 60:02d}" if hours else f"{minutes}:{total % 60:02d}"


@dataclass(frozen=True)
class Status:
    """How far an activity is."""

    activity: str
    done: float
    total: float = 0  # 0: not known
    items: str = ""  # what is done, in the plural; or "bytes", "seconds" or "%"
    rate: float = 0.0  # items per second
    left: float | None = None  # seconds; None until they are known
    detail: str = ""

    @property
    def amount(self) -> str:
        """The activity, and how much of it is done."""
        if self.items == "seconds":
            total = f"/{clock(self.total)}" if self.total else ""
            return f"{self.activity} {clock(self.done)}{total}"
        if self.items == "%":
            return f"{self.activity} {self.done:.0f}%"
        if self.items == "bytes":
            share = f"{min(1.0, self.done / self.total):.0%} of " if self.total else ""
            return f"{self.activity} {share}{human_size(self.total or self.done)}"
        return f"{self.activity} {self.done:,.0f}" + (f"/{self.total:,.0f}" if self.total else "")

    @property
    def speed(self) -> str:
        """The speed, or "" if it is not known."""
        if not self.rate or self.items in ("", "seconds", "%"):
            return ""
        if self.items == "bytes":
            return f"{human_size(self.rate)}/s"
        return f"{self.rate:,.{0 if self.rate >= 10 else 1}f} {self.items}/s"

    def line(self, width: int = 1000) -> str:
        """Return the status as a line of at most `width` characters: the speed is left out first,
        then the detail is cut.
        """
        left = "" if self.left is None else f"{clock(self.left)} left"
        line = " · ".join(filter(None, (self.amount, self.detail, self.speed, left)))
        if len(line) > width:
            line = " · ".join(filter(None, (self.amount, self.detail, left)))
        if len(line) > width:
            over = len(line) - width + 1
            detail = f"{self.detail[:-over]}…" if len(self.detail) > over else ""
            line = " · ".join(filter(None, (self.amount, detail, left)))
        return line[:width]


class ProgressLine(Protocol):
    """Where the line of progress is shown."""

    def show(self, status: Status) -> None:
        """Show a status in place of the one before."""

    def close(self) -> None:
        """Remove the line."""


class TerminalLine:
    """The last line of a terminal."""

    def __init__(self, console: Console) -> None:
        # stdout is left alone: it may be a file
        self.live = Live(console=console, transient=True, redirect_stdout=False)
        self.live.start()

    def show(self, status: Status) -> None:
        self.live.update(self.render(status, self.live.console.width))

    def close(self) -> None:
        self.live.stop()

    @staticmethod
    def render(status: Status, width: int) -> RenderableType:
        """Return the line, after a bar if there is room for one."""
        text = Text(status.line(width), no_wrap=True, overflow="ellipsis")
        cells = min(BAR[1], width - text.cell_len - 1)
        if not status.total or cells < BAR[0]:
            return text
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_row(ProgressBar(status.total, min(status.done, status.total), width=cells), text)
        return grid


class NotebookLine:
    """A line below the cell of a notebook."""

    def __init__(self) -> None:
        from IPython.display import display

        self.handle = display(Text(""), display_id=True)
        self.last = 0.0

    def show(self, status: Status) -> None:
        if time.monotonic() - self.last >= NOTEBOOK_EVERY:
            self.last = time.monotonic()
            self.handle.update(Text(status.line()))

    def close(self) -> None:
        self.handle.update(Text(""))


class LoggedLines:
    """Lines of a log, one now and then."""

    def __init__(self, console: Console, every: float = PLAIN_EVERY) -> None:
        self.console, self.every, self.last = console, every, time.monotonic()

    def show(self, status: Status) -> None:
        if time.monotonic() - self.last >= self.every:
            self.last = time.monotonic()
            self.console.print(printable(status.line()), markup=False)

    def close(self) -> None:
        """The lines stay."""


class Reporter:
    """Print progress and warnings on stderr, or on stdout; if `quiet`, only warnings. Without a
    terminal, progress is a line every so many seconds.
    """

    def __init__(
        self, *, quiet: bool = False, stderr: bool = True, every: float = PLAIN_EVERY
    ) -> None:
        self.console = Console(stderr=stderr, highlight=False, soft_wrap=True)
        self.quiet = quiet
        self.shows = not quiet  # the line of progress
        self.warned: set[str] = set()  # a warning is printed once
        self.logged = LoggedLines(self.console, every)
        self.current: ProgressLine | None = None
        self.activity, self.began, self.first = "", 0.0, 0.0  # what is shown, since when and what

    def quieter(self) -> Reporter:
        """Return a reporter that prints only progress and warnings, and none of these twice."""
        other = Reporter(quiet=True)
        other.console, other.logged = self.console, self.logged
        other.warned, other.shows = self.warned, self.shows
        return other

    def say(self, text: str) -> None:
        """Print a line, unless quiet."""
        if not self.quiet:
            self.console.print(printable(text), markup=False)

    def warn(self, text: str) -> None:
        """Print a warning, even if quiet, but never twice."""
        if text not in self.warned:
            self.warned.add(text)
            self.console.print(f"warning: {one_line(text)}", markup=False)

    def show(self, status: Status) -> None:
        """Show how far an activity is."""
        if not self.shows:
            return
        if self.current is None:
            self.current = self._line()
        self.current.show(status)

    def _line(self) -> ProgressLine:
        if self.console.is_jupyter:
            return NotebookLine()
        return TerminalLine(self.console) if self.console.is_terminal else self.logged

    def progress(
        self,
        activity: str,
        done: float,
        total: float = 0,
        items: str = "records",
        detail: str = "",
    ) -> None:
        """Show how far an activity is, once it has taken a while (see `data.Progress`)."""
        now = time.monotonic()
        if activity != self.activity:
            self.activity, self.began, self.first = activity, now, done
        elapsed = now - self.began
        if elapsed <= PATIENCE:
            return
        rate = (done - self.first) / elapsed
        unknown = items == "seconds" or rate <= 0 or total <= done
        left = None if unknown else (total - done) / rate
        self.show(Status(activity, done, total, items, rate, left, detail))

    def stop(self) -> None:
        """Remove the line of progress."""
        self.activity = ""
        if self.current is not None:
            self.current.close()
            self.current = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
