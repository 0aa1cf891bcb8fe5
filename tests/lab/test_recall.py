"""Recall and induction: sequences and targets, lessons, and claims by their numbers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.batching import IGNORE
from regard.lab import recall
from regard.lab.experiment import Options, Proportion
from regard.lab.recall import (
    EARLY_TARGETS,
    HYENA,
    KEYS,
    LSTM,
    MARK,
    MIXERS,
    RECALL,
    TASKS,
    VOCABULARY,
    WINDOWED,
    Lesson,
    Plan,
    evaluate,
)
from regard.models import count_parameters


def test_in_far_recall_the_last_key_occurs_in_the_first_quarter_and_targets_can_be_looked_up():
    batch = Lesson("far recall", 65, 200).draw(np.random.default_rng(0))
    assert batch.ids.shape == (200, 65) and batch.ids.max() < VOCABULARY
    for ids, targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True):
        at = [i for i in range(0, 64, 2) if ids[i] == ids[-1]]
        assert at and at[-1] < 16 and targets[-1] == ids[at[0] + 1]
        known = {}
        for i in range(0, 64, 2):
            assert ids[i] < KEYS <= ids[i + 1] < MARK
            assert targets[i] in (IGNORE, known.get(ids[i])) and targets[i + 1] == IGNORE
            assert known.setdefault(ids[i], ids[i + 1]) == ids[i + 1]
    assert 200 * 3 < (batch.targets[:, :-1] != IGNORE).sum() < 200 * EARLY_TARGETS


def test_in_recall_the_last_key_occurs_anywhere_and_all_repeated_keys_are_targets():
    batch = Lesson(RECALL, 65, 200).draw(np.random.default_rng(0))
    late = 0
    for ids, targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True):
        known = {}
        for i in range(0, 64, 2):
            assert targets[i] == known.get(ids[i], IGNORE)
            known[ids[i]] = ids[i + 1]
        assert targets[-1] == known[ids[-1]]
        late += ids[-1] in ids[32:-1:2]
    assert late > 0.5 * 200


def test_the_target_after_the_mark_is_the_letter_that_followed_it():
    batch = Lesson("induction", 40, 200).draw(np.random.default_rng(1))
    for ids, targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True):
        first, last = (i for i, letter in enumerate(ids) if letter == MARK)
        assert first < 10 and last == 39 and targets[-1] == ids[first + 1]
    assert (batch.targets[:, :-1] == IGNORE).all() and batch.symbols == 200


def test_lessons_grow_to_the_longest_and_return_to_shorter_ones():
    plan = Plan(lengths=(64, 100), steps=200, tokens=512)
    assert plan.train_lengths == [16, 32, 64, 100]
    lengths = [plan.lesson(step).length for step in range(200)]
    assert set(lengths[:20]) == {16} and set(lengths[-40:]) == {16, 32, 64, 100}
    assert {plan.lesson(step).task for step in range(3)} == set(TASKS)
    assert all(plan.lesson(s).n * plan.lesson(s).length <= 512 for s in range(200))


def test_mixers_have_equal_size_and_two_layers():
    plan = dataclasses.replace(recall.LARGE, parameters=100_000)
    for name in (recall.ATTENTION, recall.HYBRID, HYENA):
        mixer = MIXERS[name]
        config = mixer.config(plan.parameters, VOCABULARY, max(plan.lengths))
        assert config.n_layers == recall.LAYERS and config.max_len == 512
        size = count_parameters(mixer.family, VOCABULARY, config)
        assert size == pytest.approx(plan.parameters, rel=0.1)


class Oracle(torch.nn.Module):
    """Predicts the letter after the first occurrence of the last one."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.head = torch.nn.Identity()

    def forward(self, ids):
        first = (ids == ids[:, -1:]).int().argmax(1)
        prediction = ids.gather(1, first[:, None] + 1)[:, 0]
        logits = torch.nn.functional.one_hot(prediction, VOCABULARY).float()
        return logits[:, None].expand(-1, ids.size(1), -1)


def test_a_model_that_looks_back_is_always_right():
    plan = Plan(lengths=(32, 64), steps=1, tested=50)
    assert all(share.value == 1 for share in evaluate(Oracle(), plan, 0).values())


def test_claims_follow_the_accuracies():
    lengths = recall.LARGE.lengths

    def row(share):
        return {(task, n): Proportion(round(200 * share), 200) for task in TASKS for n in lengths}

    unable = (WINDOWED, LSTM, recall.LINEAR)
    result = recall.report({name: row(0.05 if name in unable else 1) for name in MIXERS}, lengths)
    assert all(claim.holds for claim in result.claims)
    result = recall.report({name: row(0.5) for name in MIXERS}, lengths)
    assert not any(claim.holds for claim in result.claims)
    assert "hyena" in result.page().render()


def test_recall_quick_form(monkeypatch):
    plan = Plan(lengths=(32, 64), steps=2, tokens=128, tested=8, parameters=40_000)
    monkeypatch.setattr(recall, "SMALL", plan)
    result = recall.recall(Options(quick=True))
    assert [table.title.partition(":")[0] for table in result.tables] == list(TASKS)
    assert [row[0] for row in result.tables[0].rows] == list(MIXERS)
    assert len(result.claims) == 12
    few = dataclasses.replace(plan, mixers=(recall.ATTENTION, WINDOWED), steps=1)
    monkeypatch.setattr(recall, "SMALL", few)
    assert len(recall.recall(Options(quick=True)).claims) == 5


@pytest.mark.slow
def test_attention_learns_to_recall_and_a_window_cannot():
    plan = Plan(lengths=(32, 64), steps=250, tokens=1024, tested=100, parameters=60_000)
    accuracies = evaluate(recall.learn(recall.ATTENTION, plan, 0), plan, 0)
    assert accuracies["far recall", 64].value > 0.9
    accuracies = evaluate(recall.learn(WINDOWED, plan, 0), plan, 0)
    assert accuracies["far recall", 64].value < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", [HYENA, recall.HYBRID])
def test_training_stays_finite_for_every_seed(name, seed):
    """Short training at full rates: the gradient of every step is finite, or it is refused."""
    plan = Plan(lengths=(256,), steps=60, tokens=1024, parameters=60_000)
    model = recall.learn(name, plan, seed)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
