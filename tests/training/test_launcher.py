"""Commands in processes that are forked from one."""

import os
import signal
import time

import pytest

from regard.training.launcher import Launcher


@pytest.fixture(scope="module")
def launcher():
    with Launcher() as launcher:
        yield launcher


def test_commands_run_one_after_the_other_and_end_with_their_codes(launcher, tmp_path):
    path, checks = tmp_path / "log", []
    (tmp_path / "good.json").write_text("[1]")
    command = ["json.tool", str(tmp_path / "good.json"), str(tmp_path / "out.json")]
    code, peak = launcher.run(command, path, lambda: checks.append(1))
    assert code == 0 and (tmp_path / "out.json").read_text().split() == ["[", "1", "]"]
    assert checks and 10 << 20 < peak < 4 << 30
    code, _ = launcher.run(["regard", "show", str(tmp_path / "none")], path, bool)
    assert code == 1 and "none" in path.read_text().splitlines()[-1]
    assert launcher.run(["regard", "--version"], path, bool)[0] == 0


def test_a_command_that_is_killed_has_a_negative_code_and_the_next_one_runs(launcher, tmp_path):
    def kill():
        for process in children(launcher.process.pid):
            os.kill(process, signal.SIGKILL)

    command = ["timeit", "-n1", "-r1", "import time; time.sleep(60)"]
    assert launcher.run(command, tmp_path / "log", kill)[0] == -signal.SIGKILL
    assert launcher.run(["timeit", "-n1", "pass"], tmp_path / "log", bool)[0] == 0


def test_an_interrupted_command_saves_before_the_interrupt_goes_on(launcher, tmp_path):
    """As on a terminal: the signal reaches all processes of the group."""
    saved, began = tmp_path / "saved", []
    code = f"""
try:
    import time; time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.2); open({str(saved)!r}, "w").close()
"""

    def interrupt():
        processes = children(launcher.process.pid)
        began.extend(processes)
        if processes:
            time.sleep(0.3)  # until it sleeps
            for process in (*processes, launcher.process.pid):
                os.kill(process, signal.SIGINT)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher.run(["timeit", "-n1", "-r1", code], tmp_path / "log", interrupt)
    assert began and saved.exists() and not children(launcher.process.pid)


def test_leaving_early_waits_for_no_import():
    began = time.monotonic()
    with Launcher() as launcher:
        process = launcher.process
    assert process.returncode == -signal.SIGKILL and time.monotonic() - began < 2


def test_a_launcher_that_died_is_a_failure(tmp_path):
    with Launcher() as launcher:
        launcher.process.kill()
        launcher.process.wait()
        assert launcher.run(["timeit", "pass"], tmp_path / "log", bool) == (-signal.SIGKILL, 0)


def children(process):
    path = f"/proc/{process}/task/{process}/children"
    with open(path) as file:
        return list(map(int, file.read().split()))
