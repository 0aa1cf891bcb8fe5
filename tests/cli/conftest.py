"""The command line, run in this process; and small runs that several tests look at."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import regard.cli

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=8", "--set=train.batch_tokens=64"]


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Models this small only wait for a second thread, most of all on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Result:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """stdout, which must be one JSON document without NaN or Infinity."""

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is not JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def cli(capsys, tmp_path, monkeypatch):
    """Run `regard ARGUMENTS` in an empty folder of its own; no traceback ever reaches the user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        try:
            code = regard.cli.run([str(a) for a in arguments])
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Result(code, printed.out, printed.err)

    return run


@pytest.fixture(scope="session")
def words(tmp_path_factory) -> Path:
    """300 words over five letters, each letter at most two places from the one before it."""
    source, lines = random.Random(3), []
    for _ in range(300):
        word = source.choice("abcde")
        for _ in range(source.randint(0, 7)):
            word += "abcde"[(("abcde".index(word[-1])) + source.choice([1, 2])) % 5]
        lines.append(word)
    path = tmp_path_factory.mktemp("words") / "words.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """Running text: 60 paragraphs."""
    source = random.Random(4)
    some = ["the", "cat", "sat", "on", "a", "mat", "and", "slept"]
    parts = [" ".join(source.choices(some, k=40)) + "." for _ in range(60)]
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def trained(folder: Path, *arguments: object) -> Path:
    code = regard.cli.run(["train", *map(str, arguments), "--out", str(folder), "--quiet"])
    assert code == 0
    return folder


@pytest.fixture(scope="session")
def bigram(words, tmp_path_factory) -> Path:
    """A bigram of the words."""
    return trained(tmp_path_factory.mktemp("runs") / "bigram", words, "--model", "bigram")


@pytest.fixture(scope="session")
def transformer(words, tmp_path_factory) -> Path:
    """A small transformer of the words."""
    folder = tmp_path_factory.mktemp("runs") / "transformer"
    return trained(folder, words, "--set=train.steps=30", *SMALL)


@pytest.fixture(scope="session")
def reader(text, tmp_path_factory) -> Path:
    """A small transformer of the running text."""
    folder = tmp_path_factory.mktemp("runs") / "reader"
    return trained(folder, text, "--set=train.steps=12", "--set=model.max_len=24", *SMALL)
