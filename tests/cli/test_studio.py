"""regard studio: what it prints, how it ends, and how it says no."""

import builtins
import os
import signal
import socket
import subprocess
import sys
import time

import pytest


def test_a_folder_that_is_not_there_is_named(cli):
    found = cli("studio", "nothing", "--no-open")
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith("error: nothing: no such folder")


def test_a_port_that_is_taken_is_named(cli):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = cli("studio", "--no-open", "--port", port)
    assert found.code == 1
    lines = found.err.splitlines()
    assert lines[0] == "no runs in runs yet: begin with the screen Train"
    assert lines[1].startswith(f"error: --port {port}: ")


def test_a_missing_extra_is_named(cli, monkeypatch):
    imported = builtins.__import__

    def missing(name, *arguments, **named):
        if name == "starlette":
            raise ImportError(name)
        return imported(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    found = cli("studio", "--no-open")
    assert (found.code, found.out) == (1, "")
    assert found.err == "error: regard studio needs Starlette: pip install 'regard[studio]'\n"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
def test_enter_prints_another_link_and_control_c_ends_it(tmp_path):
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "regard", "studio", "--no-open"]
    studio = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        first, words = studio.stdout.readline(), studio.stdout.readline()
        assert "Enter prints another link" in words
        os.write(ours, b"\n")
        second = studio.stdout.readline()
        assert first.partition("#")[0] == second.partition("#")[0]
        assert first != second and "#token=" in second
        time.sleep(0.5)  # let it serve
        studio.send_signal(signal.SIGINT)
        assert studio.wait(20) == 0
        assert studio.stderr.read().splitlines()[-1] == "closed"
    finally:
        studio.kill()
        studio.communicate()
        os.close(ours)
        os.close(theirs)
