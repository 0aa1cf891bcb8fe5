"""Roles: which tables of a recipe a task has, and which fields its examples have."""

import pytest

from regard.data import Roles
from regard.errors import UsageError
from regard.recipe import build, tables
from regard.registry import TASKS

# The tables of tokenizers or featurizers, whether examples are pairs, and whether they have labels.
EXPECTED = {
    "next": (("output",), False, False),
    "position-label": (("input",), False, True),
    "label": (("input",), False, True),
    "labels": (("input",), False, True),
    "value": (("input",), False, True),
    "target": (("input", "output"), True, False),
    "masked": (("input",), False, False),
    "vectors": (("input",), False, False),
}


@pytest.mark.parametrize("task", EXPECTED)
def test_every_task_has_its_tables(task):
    roles = TASKS[task].roles
    assert (roles.encoded, roles.paired, roles.labels) == EXPECTED[task]
    model = {"name": "skipgram"} if task == "vectors" else {}
    recipe = tables(build({"task": {"name": task}, "model": model}))
    assert tuple(name for name in ("input", "output") if name in recipe) == roles.encoded


@pytest.mark.parametrize(("task", "role"), [("next", "input"), ("label", "output")])
def test_a_table_that_a_task_does_not_have_is_refused(task, role):
    other = TASKS[task].roles.encoded[0]
    message = rf"\[{role}\]: task {task} has no such table; it has \[{other}\]"
    with pytest.raises(UsageError, match=message):
        build({"task": {"name": task}, role: {"tokenizer": "words"}})


def test_examples_of_no_fields_encode_nothing():
    assert Roles().encoded == () and not Roles().paired
    assert Roles(input=True, output=True).paired and not Roles(input=True, labels=True).paired
