"""The types of the library as a user's type checker sees them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import regard

ROOT = Path(__file__).parents[1]
MISTAKES = """
import regard

result = regard.train("questions.tsv", task="label", target="kind")
result.model.generate("ma")
regard.train("questions.tsv", taget="kind")
regard.train("questions.tsv", minutes="1")
regard.load("runs/names", kind=regard.Generator).predict("ma")
regard.trian
"""
FOUND = {  # by line
    5: '"Predictor" has no attribute "generate"',
    6: 'Unexpected keyword argument "taget"',
    7: "No overload variant",
    8: '"Generator" has no attribute "predict"',
    9: "Module has no attribute",
}


def mypy(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", str(path)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_script_of_a_user_is_understood_by_a_strict_type_checker():
    checked = mypy(ROOT / "tests" / "mypy_user_script.py")
    assert checked.returncode == 0, checked.stdout


def test_a_type_checker_finds_the_mistakes_of_a_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(MISTAKES)
    lines = [line for line in mypy(script).stdout.splitlines() if " error: " in line]
    for number, message in FOUND.items():
        assert any(f":{number}: " in line and message in line for line in lines), message
    assert {int(line.split(":")[1]) for line in lines} == set(FOUND)


def test_the_package_says_that_it_is_typed():
    assert (files("regard") / "py.typed").is_file()


def test_every_public_name_is_listed_and_has_its_own_signature():
    for name in regard.__all__:
        assert name in dir(regard) and getattr(regard, name).__doc__, name
    parameters = inspect.signature(regard.train).parameters
    assert list(parameters)[:2] == ["source", "out"]
    assert parameters["minutes"].default is None and parameters["progress"].default is True
