"""Long work: commands of regard in processes of their own, which can be stopped.

A job is a `regard …` command line, as the page shows it. It runs in its own process group under
`guard`, which ends it when the studio ends, also by a crash. Its lines are kept; the curves of a
run are read from the run's folder, as those of any other run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from regard.errors import UserError, printable
from regard.studio import guard

LINES = 400  # of a job that are kept
MOST = 50  # jobs that are listed
AT_ONCE = 4
RUNNING, STOPPING, DONE, STOPPED, FAILED = "running", "stopping", "done", "stopped", "failed"


@dataclass
class Job:
    """A command that runs or ran; `run` is the name of the run that it makes, or ""."""

    number: int
    words: Sequence[str]  # after `regard`
    screen: str
    run: str
    process: subprocess.Popen[str]
    began: float = field(default_factory=time.monotonic)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    ended: float | None = None
    stopping: bool = False  # was it told to stop?
    follower: Thread | None = None

    @property
    def state(self) -> str:
        """What it does, in a word."""
        if self.ended is None:
            return STOPPING if self.stopping else RUNNING
        return DONE if self.process.returncode == 0 else STOPPED if self.stopping else FAILED

    def follow(self) -> None:
        """Keep the lines that it prints, until it ends."""
        with self.process as process:  # closes the pipes
            assert process.stdout is not None
            for line in process.stdout:
                self.lines.append(printable(line.rstrip("\n")))
        self.ended = time.monotonic()

    def signal(self, number: int) -> None:
        """Send a signal to the command and what it started."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def to_json(self) -> dict[str, Any]:
        """Return the job as the page shows it."""
        end = self.ended or time.monotonic()
        return {
            "number": self.number,
            "command": command_line(self.words),
            "screen": self.screen,
            "run": self.run,
            "state": self.state,
            "seconds": round(end - self.began, 1),
            "lines": list(self.lines),
        }


def command_line(words: Sequence[str]) -> str:
    """Return a command as it is typed."""
    return shlex.join(["regard", *words])


def option_words(options: Mapping[str, str]) -> list[str]:
    """Return the words of the options that have a value."""
    words: list[str] = []
    for name, value in options.items():
        if value:
            words += [f"{name}={value}"] if value.startswith("-") else [name, value]
    return words


def file_word(name: str) -> str:
    """Return the name of a file as a word that is no option."""
    return f"./{name}" if name.startswith("-") else name


class Jobs:
    """The jobs of a studio."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # where the commands run
        self._lock = Lock()
        self._jobs: dict[int, Job] = {}
        self._closed = False

    def start(self, words: Sequence[str], screen: str, run: str = "") -> Job:
        """Start `regard WORDS` for a screen. Two jobs may not write one run."""
        with self._lock:
            running = [job for job in self._jobs.values() if job.ended is None]
            if self._closed or len(running) >= AT_ONCE:
                raise UserError(f"{len(running)} jobs are running: stop one, or wait for its end")
            if run and any(job.run == run for job in running):
                raise UserError(f"{run} is being trained already")
            number = max(self._jobs, default=0) + 1
            job = Job(number, tuple(words), screen, run, self._spawn(words))
            self._jobs[number] = job
            for old in [one for one in self._jobs.values() if one.ended is not None][:-MOST]:
                del self._jobs[old.number]
        job.follower = Thread(target=job.follow, daemon=True)
        job.follower.start()
        return job

    def _spawn(self, words: Sequence[str]) -> subprocess.Popen[str]:
        command = [sys.executable, guard.__file__, sys.executable, "-m", "regard", *words]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"},
            stdin=subprocess.PIPE,  # its end is held by the studio alone
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def list(self, screen: str = "") -> list[Job]:
        """Return the jobs of a screen, or all of them, the newest first."""
        with self._lock:
            jobs = [job for job in self._jobs.values() if screen in ("", job.screen)]
        return jobs[::-1]

    def get(self, number: int) -> Job:
        """Return a job."""
        if number not in self._jobs:
            raise UserError(f"there is no job {number}")
        return self._jobs[number]

    def stop(self, number: int) -> Job:
        """Ask a job to save and end, as Ctrl-C does; asked again, it is ended at once."""
        job = self.get(number)
        job.signal(signal.SIGKILL if job.stopping else signal.SIGINT)
        job.stopping = True
        return job

    def close(self, grace: float = guard.GRACE) -> None:
        """End all jobs: they may save for a while, then they are killed."""
        with self._lock:
            self._closed = True
            running = [job for job in self._jobs.values() if job.ended is None]
        for job in running:
            job.stopping = True
            job.signal(signal.SIGTERM)
        end = time.monotonic() + grace
        for job in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.process.wait(max(0.1, end - time.monotonic()))
            job.signal(signal.SIGKILL)
            if job.follower is not None:
                job.follower.join(1)
