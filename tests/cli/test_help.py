"""Help, completion and words that are no verbs: what a stranger meets first."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import typer

import regard
from regard import cli as command_line
from regard.bundled.examples import EXAMPLES, write_example
from regard.cli import VERBS
from regard.registry import LOGGERS, MODELS, TABLES, TASKS, TOKENIZERS

SOURCE = Path(regard.__file__).parents[1]


@pytest.fixture(scope="module")
def verbs():
    """The commands by name, as the parser knows them."""
    if not command_line.app.registered_commands:
        command_line._fill()
    return typer.main.get_command(command_line.app).commands


def examples_of(verb):
    """The commands in the help of a verb, each after the words that introduce it."""
    text = import_module(f"regard.cli.{VERBS[verb]}").command.__doc__
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    return [part.partition(": regard ")[2] for part in paragraphs if ": regard " in part]


@cache
def bundled():
    """The names of all files and folders that `regard example` writes."""
    with TemporaryDirectory() as folder:
        return {path.name for name in EXAMPLES for path in write_example(name, Path(folder))}


def is_known(path):
    """Whether a path is one that the examples, or verbs before, write."""
    made = {"names-hf", "text.vec", "look.html", "new.npy", "figures", "."}
    return str(path).startswith("runs") or str(path) in bundled() | made


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_a_verb_are_of_files_that_regard_example_writes(verb, verbs):
    commands = [shlex.split(line.partition(" |")[0]) for line in examples_of(verb)]
    assert verb in {words[0] for words in commands}
    for name, *words in commands:
        command = verbs[name]
        context = command.make_context(name, list(words), resilient_parsing=True)
        options = {option for param in command.params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= options
        for value in context.params.values():
            paths = value if isinstance(value, list) else [value]
            assert all(is_known(path) for path in paths if isinstance(path, Path)), words


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_that_reports_prints_a_document_and_names_the_device_it_computes_on(verb, verbs):
    options = {option for param in verbs[verb].params for option in param.opts}
    assert ("--json" in options) == (verb != "studio")  # it opens a page
    computes = {"train", "compare", "evaluate", "generate", "translate", "predict", "embed"}
    assert ("--device" in options) == (verb in computes | {"score", "look", "retrieve", "fill"})


def test_help_lists_what_the_registries_have(cli):
    text = cli("train", "--help").out
    words = set(re.findall(r"[\w-]+", text))
    for registry in (TASKS, TOKENIZERS, LOGGERS, TABLES):
        assert set(registry) <= words
    assert {entry.name for entry in MODELS.entries} <= words
    assert all(TASKS[name].purpose in text for name in TASKS)


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_is_printed(cli, flag):
    assert cli(flag).out.strip() == regard.__version__


@pytest.mark.parametrize(
    ("word", "meant"),
    [("classify", "predict"), ("eval", "evaluate"), ("trian", "train"), ("ls", "runs")],
)
def test_a_word_of_another_program_is_answered_with_the_verb(cli, word, meant):
    found = cli(word, "x")
    assert found.code == 2
    assert f"no such command: {word}; did you mean {meant!r}?" in found.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["train", "x", "--lr", "3"], "use --set train.lr=VALUE"),
        (["train", "x", "--epochs", "3"], "use --set train.steps=VALUE"),
        (["train", "x", "--batch-size", "3"], "use --set train.batch_tokens=VALUE"),
        (["compare", "x", "--d-model", "3"], "use --set model.d_model=VALUE"),
        (["train", "x", "--modle", "lstm"], "did you mean '--model'?"),
        (["evaluate", "x", "--with", "y"], "did you mean '--ensemble'?"),
        (["train", "x", "--set", "train.learning_rate=1"], "did you mean 'lr'?"),
    ],
)
def test_an_option_or_key_of_another_program_is_answered_with_ours(cli, words, arguments, hint):
    found = cli(*[str(words) if word == "x" else word for word in arguments])
    assert found.code == 2 and hint in found.err and len(found.err.splitlines()) == 1


def completed(line, folder, shell="bash"):
    """What a shell is told that may come next."""
    words = line.split(" ")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "_REGARD_COMPLETE": f"complete_{shell}"}
    environment |= {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    environment |= {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    command = [sys.executable, "-m", "regard"]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_shell_completes_verbs_options_names_and_runs(tmp_path, bigram):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "names").symlink_to(bigram, target_is_directory=True)
    assert completed("regard tr", tmp_path) == ["train", "translate"]
    assert "--horizon" in completed("regard train x --hor", tmp_path)
    assert completed("regard train x --model kn", tmp_path) == ["kneser-ney"]
    assert completed("regard evaluate runs/n", tmp_path) == ["runs/names"]
    for shell in ("zsh", "fish"):
        assert "translate" in " ".join(completed("regard tr", tmp_path, shell))


@pytest.mark.parametrize("verb", ["score", "data", "generate", "runs"])
def test_a_reader_that_stops_early_is_no_failure(verb, words, bigram, tmp_path):
    """`regard score | head -1` once failed under pipefail, and `regard data` did too."""
    many = tmp_path / "many.txt"
    many.write_text(words.read_text() * 60)
    arguments = {
        "score": ["score", bigram, many],
        "data": ["data", words],
        "generate": ["generate", bigram, "--num", "5000"],
        "runs": ["runs", bigram.parent],
    }[verb]
    command = shlex.join([sys.executable, "-m", "regard", *map(str, arguments)])
    line = f"set -o pipefail; {command} | head -1"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr
