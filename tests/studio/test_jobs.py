"""Jobs start, print, stop, and end with the studio, however it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from regard.errors import UserError
from regard.studio import guard
from regard.studio.jobs import Jobs, command_line, file_word, option_words

# In place of `python -m regard`: prints its process group and sleeps; saves at SIGINT.
SLEEPER = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, lambda *_: (print("saved", flush=True), sys.exit(130)))
child = subprocess.Popen(["sleep", "60"])  # it prints nothing when it is interrupted
print("group", os.getpgrp(), "\\x1b[31m" + sys.argv[1], flush=True)
if sys.argv[1] == "fail": child.kill(); sys.exit(1)
if sys.argv[1] == "done": child.kill(); sys.exit(0)
time.sleep(60)
"""


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    def spawn(self, words):
        command = [
            sys.executable,
            "-S",
            guard.__file__,
            sys.executable,
            "-S",
            "-c",
            SLEEPER,
            *words,
        ]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    monkeypatch.setattr(Jobs, "_spawn", spawn)
    jobs = Jobs(tmp_path)
    yield jobs
    jobs.close(grace=0.2)


def wait(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def group_is_gone(number):
    """Whether no process of a group is left but for those that nobody has reaped."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return True
    states = [
        line.split()
        for line in subprocess.run(
            ["ps", "-eo", "pgid=,stat="], capture_output=True, text=True
        ).stdout.splitlines()
    ]
    return all(state.startswith("Z") for group, state in states if int(group) == number)


def test_a_job_ends_well_or_badly(jobs):
    done, failed = jobs.start(["done"], "train"), jobs.start(["fail"], "train")
    wait(lambda: done.ended and failed.ended)
    assert (done.state, failed.state) == ("done", "failed")
    assert done.to_json()["lines"][0].endswith("\\x1b[31mdone")  # what terminals obey is escaped
    assert done.to_json()["command"] == "regard done"
    assert [job.number for job in jobs.list("train")] == [2, 1]
    assert jobs.list("other") == []


def test_a_stopped_job_may_save(jobs):
    job = jobs.start(["run"], "train", run="names")
    wait(lambda: job.lines)
    with pytest.raises(UserError, match="names"):
        jobs.start(["run"], "train", run="names")
    assert jobs.stop(job.number).state in ("stopping", "stopped")
    wait(lambda: job.ended)
    assert job.state == "stopped" and "saved" in job.lines
    with pytest.raises(UserError, match="no job 9"):
        jobs.stop(9)


def test_only_some_run_at_once(jobs):
    for _ in range(4):
        jobs.start(["run"], "train")
    with pytest.raises(UserError, match="4 jobs"):
        jobs.start(["run"], "train")


def test_closing_ends_every_process_of_every_job(jobs):
    job = jobs.start(["run"], "train")
    wait(lambda: job.lines)
    group = int(job.lines[0].split()[1])
    assert group == job.process.pid
    jobs.close(grace=0.2)
    wait(lambda: group_is_gone(group))
    with pytest.raises(UserError):
        jobs.start(["run"], "train")


def test_a_studio_that_is_killed_takes_its_jobs_with_it(jobs):
    """Then the pipe closes that only the studio holds open."""
    job = jobs.start(["run"], "train")
    wait(lambda: job.lines)
    group = int(job.lines[0].split()[1])
    job.process.stdin.close()
    wait(lambda: group_is_gone(group))
    assert job.process.wait(5) in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)


def test_words_are_no_options_by_accident():
    words = [file_word("-x.csv"), *option_words({"--target": "a b", "--input": "-c", "--task": ""})]
    assert command_line(["train", *words]) == "regard train ./-x.csv --target 'a b' --input=-c"
