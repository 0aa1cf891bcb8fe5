"""What the tests of many processes share."""

import random
from pathlib import Path

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """As the processes of a group have; sums then do not depend on the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def words(tmp_path_factory) -> Path:
    """400 words over five letters."""
    source = random.Random(7)
    lines = ["".join(source.choices("abcde", k=source.randint(1, 9))) for _ in range(400)]
    path = tmp_path_factory.mktemp("data") / "words.txt"
    path.write_text("\n".join(lines) + "\n")
    return path
