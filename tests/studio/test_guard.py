"""The guard returns what its command returns, and leaves nothing behind when its input closes."""

import os
import signal
import subprocess
import sys

import pytest

from regard.studio import guard

PYTHON = [sys.executable, "-S", "-c"]


def start(code):
    command = [sys.executable, "-S", guard.__file__, *PYTHON, code]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(3)", 3),
        ("pass", 0),
        ("import os; os.kill(os.getpid(), 15)", 128 + signal.SIGTERM),
    ],
)
def test_the_exit_code_is_that_of_the_command(code, expected):
    with start(code) as process:
        assert process.wait(20) == expected


def test_a_signal_to_the_group_is_for_the_command():
    code = "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(7))"
    with start(f"{code}; print('ready', flush=True); time.sleep(60)") as process:
        assert process.stdout.readline() == "ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 7


def test_when_its_input_closes_the_command_may_save_and_then_all_end():
    code = "import signal, sys, time; signal.signal(15, lambda *_: (print('saved'), sys.exit(0)))"
    with start(f"{code}; print('ready', flush=True); time.sleep(60)") as process:
        assert process.stdout.readline() == "ready\n"
        process.stdin.close()
        assert process.stdout.read() == "saved\n"
        assert process.wait(20) == -signal.SIGKILL  # the guard ends with its group
