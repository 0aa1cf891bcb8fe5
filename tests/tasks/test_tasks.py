"""What all tasks have in common: names, cards, models, and what they start from."""

import dataclasses

import pytest

from regard.data.targets import UNDECIDED
from regard.errors import UsageError
from regard.registry import MODELS, TASKS
from regard.tasks import LookRequest
from regard.tasks.prediction import LabelTask

ALL = list(TASKS.values())


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_a_task_is_registered_under_its_name_and_has_models(task):
    assert TASKS[task.name] is task and task.purpose
    assert MODELS.names(task.name) and MODELS.kinds(task.name)
    assert task.roles.encoded


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_settings_begin_with_the_name_and_have_defaults(task):
    assert dataclasses.fields(task.Config)[0].name == "name"
    assert task().config.name == task.name


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_the_commands_of_a_card_are_for_its_run(task):
    verbs = [verb.format(run="runs/some run") for verb in task.card.verbs]
    assert all("runs/some run" in verb for verb in verbs)
    words = {verb.split()[0] for verb in verbs}
    assert {"evaluate", "verify", "look"} <= words


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.name)
def test_a_task_starts_from_tasks_that_there_are(task):
    assert set(task.starts_from) <= set(TASKS)
    assert not task.pretrains_with or task.pretrains_with in task.starts_from


def test_a_subclass_uses_the_models_and_labels_of_its_base():
    class Rating(LabelTask):
        name = "rating"

    assert Rating.model_task == "label" and Rating().kind is LabelTask().kind
    assert Rating().config.name == "rating"


def test_what_a_task_does_not_say_is_undecided():
    task = TASKS["next"]()
    assert task.kind is UNDECIDED and task.metadata(None, None) == {}
    assert task.suggest([], [], texts=True) is None
    pipeline = type("Pipeline", (), {"run": "runs/a"})
    with pytest.raises(UsageError, match="--ensemble is for translations; runs/a is of task next"):
        task.ensemble(pipeline, [], [])


def test_a_look_asks_for_nothing_by_default():
    request = LookRequest()
    assert (request.text, request.target, request.beams) == ("", "", 0)
