"""Processes of the rows of a comparison, forked from one that has imported PyTorch.

A row is trained in a process of its own, so that its peak memory is known and a failure ends that
row alone. Importing PyTorch takes seconds, which a comparison of ten rows in a minute does not
have: one process imports it while the data are read, and then forks for each row. It computes
nothing itself, so that no threads and no GPU are shared.

    with Launcher() as launcher:
        code, peak = launcher.run(["regard", "train", …], log, check)
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self

from regard.storage import parse

TICK = 0.1  # seconds between two calls of `check`
# What most rows import. Elsewhere than on Linux, libraries of the system may not survive a fork.
IMPORTED = ("regard.api", "sklearn.linear_model", "sklearn.svm") if sys.platform == "linux" else ()
MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes, of ru_maxrss


class Launcher:
    """Runs one command of Python's `-m` after the other, each in a new process."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.process.kill()  # it may still import
            self.process.communicate()

    def start(self) -> None:
        """Start the process that forks the others."""
        command = [sys.executable, "-m", __name__]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def run(self, command: Sequence[str], log: Path, check: Callable[[], None]) -> tuple[int, int]:
        """Run `python -m COMMAND` and call `check` until it ends; return its exit code and its peak
        memory in bytes. Its stderr is appended to the log.
        """
        assert self.process and self.process.stdin and self.process.stdout
        request = {"command": list(command), "log": str(log.absolute()), "folder": os.getcwd()}
        answer = b""
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            while not answer.endswith(b"\n"):
                check()
                if select.select([self.process.stdout], [], [], TICK)[0]:
                    part = os.read(self.process.stdout.fileno(), 4096)
                    if not part:
                        return self.process.wait() or 1, 0
                    answer += part
        except BrokenPipeError:
            return self.process.wait() or 1, 0
        except KeyboardInterrupt:  # the row has the signal too, and saves
            self.process.stdout.readline()
            raise
        result = parse(answer)
        return os.waitstatus_to_exitcode(result["status"]), result["peak"] * MEMORY_UNIT


def serve() -> None:
    """Run commands from stdin, one line of JSON each, and write a line when one has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in IMPORTED:
        import_module(name)
    requests, answers = os.fdopen(0, "rb", buffering=0, closefd=False), os.dup(1)
    for line in requests:
        with warnings.catch_warnings():  # of threads: there are none that hold a lock
            warnings.simplefilter("ignore", DeprecationWarning)
            process = os.fork()
        if not process:
            os.close(answers)
            run_here(parse(line))
        _, status, usage = os.wait4(process, 0)
        document = json.dumps({"status": status, "peak": usage.ru_maxrss})
        os.write(answers, document.encode() + b"\n")


def run_here(request: dict[str, Any]) -> NoReturn:
    """Run a command in this process and end it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    nowhere = os.open(os.devnull, os.O_RDWR)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    for number, target in enumerate((nowhere, nowhere, log)):
        os.dup2(target, number)
    module, *sys.argv[1:] = request["command"]
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")  # imported before
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    serve()
