"""Kept answers: the first records of them, where runs have answered different numbers."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from regard.data.targets import Targets
from regard.evaluation.predictions import Predictions, StoredPredictions
from regard.training.comparison_runs import RunResult, on_common_records


def kept(task, records, lengths=None):
    lengths = np.array(lengths if lengths is not None else [1] * records)
    rows = int(lengths.sum())
    scores = np.stack([np.arange(rows), -np.arange(rows)], axis=1).astype(float)
    targets = Targets(task, ("y",), (("a", "b"),))
    told = Predictions(task, scores, np.arange(rows) % 2, lengths, targets)
    return StoredPredictions(told, targets, 1.0)


def test_the_first_records_keep_their_own_positions():
    short = kept("position-label", 3, [2, 4, 3]).first(2)
    assert short.records == 2 and len(short.answered.scores) == len(short.answered.truths) == 6
    assert short.answered.scores[-1, 0] == 5


@dataclass(frozen=True)
class Run:
    run: Path
    fold: int


@pytest.mark.parametrize("counts", [(9, 5, 7), (4, 4, 4)])
def test_runs_of_a_fold_are_compared_on_the_records_that_all_answered(counts):
    runs = [Run(Path(f"{i}"), 0) for i in range(3)] + [Run(Path("other"), 1)]
    found = {
        one.run: RunResult({}, "test", answers=kept("label", count))
        for one, count in zip(runs, (*counts, 8), strict=True)
    }
    after = on_common_records(runs, found)
    assert [after[one.run].answers.records for one in runs] == [min(counts)] * 3 + [8]
