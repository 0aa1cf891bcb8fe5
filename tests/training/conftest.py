"""Small files to train on, and processes that may be killed."""

import multiprocessing
import os
import random

import pytest


@pytest.fixture(scope="module")
def processes():
    """Processes of their own to kill, forked from a server that has imported torch once."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["regard.api", "regard.cli", "torch._dynamo"])
    yield context
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = before


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    source = random.Random(7)
    lines = ["".join(source.choices("abcde", k=source.randint(1, 9))) for _ in range(400)]
    path = tmp_path_factory.mktemp("data") / "words.txt"
    path.write_text("\n".join(lines) + "\n")
    return path
