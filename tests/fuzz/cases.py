"""One case: damage a file, give it to a command, and look at how the command ends."""

import contextlib
import io
import os
import random
import signal
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import regard.cli
from regard.errors import MAX_MESSAGE, UserError

SLOW = 5.0  # seconds
STUCK = 20  # seconds after which a case is broken off
MEMORY = 1 << 30  # bytes
OVERRIDES = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


Action = Callable[[], int]


class Stuck(BaseException):
    """A case that does not end."""


@dataclass
class Outcome:
    """How a command ended; `problem` is empty where that is as it should be."""

    problem: str
    detail: str
    seconds: float
    grown: int  # bytes of memory at the peak, over what there was before
    code: object = None
    printed: str = ""


def command(*arguments: object) -> Action:
    """The command line, in this process."""
    return lambda: regard.cli.run([str(one) for one in arguments])


def call(function: Callable[..., object], *arguments: object) -> Action:
    """A function that has no command of its own; its errors are printed as those of commands."""

    def action() -> int:
        try:
            function(*arguments)
        except UserError as error:
            return regard.cli.fail(str(error), error.exit_code)
        except OSError as error:  # as the command line has it: the file and the reason
            return regard.cli.fail(f"{error.filename}: {error.strerror}", 1)
        return 0

    return action


def attempt(action: Action) -> Outcome:
    """Run something within the limits."""
    out, err = io.StringIO(), io.StringIO()
    _reset_peak()
    before, began = _status("VmRSS"), time.monotonic()
    problem = detail = ""
    code: object = None
    try:
        with limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            warnings.simplefilter("error")
            code = action()
    except SystemExit as stop:
        code = stop.code
    except Stuck:
        problem, detail = "slow", "".join(traceback.format_exc().splitlines(True)[-6:])
    except Exception as error:
        problem, detail = f"traceback: {type(error).__name__}", traceback.format_exc()
    seconds, grown = time.monotonic() - began, max(0, _status("VmHWM") - before)
    if not problem and code not in (0, 1, 2):
        problem = f"exit {code}"
    if not problem:
        problem, detail = wrong_with(out.getvalue(), err.getvalue())
    if not problem and seconds > SLOW:
        problem = "slow"
    if not problem and grown > MEMORY:
        problem = "memory"
    return Outcome(problem, detail, seconds, grown, code, err.getvalue())


def wrong_with(out: str, err: str) -> tuple[str, str]:
    """What a terminal should not be shown, or a reader would not read."""
    for line in err.splitlines():
        if line.startswith("error: out of memory"):  # what the last resort says
            return "out of memory", line
        if line.startswith(("error: ", "warning: ")) and len(line) > MAX_MESSAGE + len("warning: "):
            return "long message", line
    at = err.find("error: ")
    if at >= 0 and err[at:].count("\n") > 2:
        return "message of many lines", err[at:]
    for text, plain in ((out, "\n\t"), (err, "\n")):  # columns of results are cut by tabs
        odd = [c for c in text if c not in plain and obeyed(c)]
        if odd:
            return f"control character {ord(odd[0]):#x}", text[-2000:]
    return "", ""


def obeyed(character: str) -> bool:
    """Does a terminal obey it, or not show it at all?"""
    if unicodedata.bidirectional(character) in OVERRIDES:
        return True
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """A time limit, and an environment like that of a pipe; no warning is passed over."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stuck

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(STUCK)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _reset_peak() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _status(name: str) -> int:
    """A figure of this process in bytes; 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    return 0


def seeded(door: str, number: int) -> random.Random:
    """The chance of one case."""
    return random.Random(f"{door} {number}")


def quiet() -> None:
    """Settings of a process that runs cases."""
    os.environ["COLUMNS"] = "100"
