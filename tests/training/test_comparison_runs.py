"""The rows of a comparison: default models, how they share the time, and the common records."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from regard.data.corpus import prepare
from regard.errors import UsageError
from regard.evaluation.predictions import Predictions
from regard.planning import plan_recipe
from regard.registry import MODELS, TASKS
from regard.training import comparison_runs
from regard.training.comparison_runs import (
    COUNTING,
    KEPT,
    NEURAL,
    SPAWN,
    ProgressTable,
    RunResult,
    Schedule,
    comparison_run,
    default_models,
    match_parameters,
    on_common_records,
    priority,
)
from regard.training.progress import Reporter


@dataclass
class Run:
    """What a schedule asks of a run."""

    model: str
    counts: bool = False
    seed: int = 0
    fraction: float = 1.0


class Clock:
    """Time that stands still."""

    def monotonic(self):
        return 100.0


@pytest.fixture
def still(monkeypatch):
    monkeypatch.setattr(comparison_runs, "time", Clock())


def test_every_model_of_a_comparison_has_a_place_in_the_order():
    compared = [task.name for task in TASKS.values() if task.compares]
    assert {name for task in compared for name in MODELS.names(task)} == set(KEPT)


def test_points_of_curves_go_first_then_later_seeds_then_models():
    runs = [
        Run("transformer"),
        Run("uniform", counts=True),
        Run("bigram", counts=True, seed=1),
        Run("bigram", counts=True, fraction=0.5),
        Run("bigram", counts=True, fraction=0.125),
    ]
    kept = sorted(reversed(runs), key=priority)
    assert kept == [runs[0], runs[1], runs[2], runs[4], runs[3]]


@pytest.mark.parametrize(
    ("seconds", "names"), [(60, "lbt"), (40, "bt"), (28, "bt"), (27, "b"), (17, "b"), (10, "")]
)
def test_the_rows_that_fit_are_kept_in_their_order(still, seconds, names):
    plan = Schedule(100.0 + seconds, [20.0, 8.0, 10.0])  # the first waited for imports
    rows = [[Run("lstm")], [Run("bigram", counts=True)], [Run("transformer")]]
    assert plan.need(rows[0]) == 9.0 + NEURAL and plan.need(rows[1]) == 9.0 + COUNTING
    assert "".join(row[0].model[0] for row in plan.holds(rows)) == names


def test_a_cheap_row_fits_where_a_better_one_does_not(still):
    """Thirteen of thirty seconds were left unused, because the Transformer did not fit."""
    plan = Schedule(100.0 + 16.0, [4.0])
    rows = [[Run("pwm", counts=True)], [Run("naive-bayes", counts=True)], [Run("transformer")]]
    assert [row[0].model for row in plan.holds(rows)] == ["transformer"]
    plan = Schedule(100.0 + 11.0, [4.0])
    assert [row[0].model for row in plan.holds(rows)] == ["naive-bayes"]
    plan = Schedule(100.0 + 14.0, [4.0])
    assert [row[0].model for row in plan.holds(rows)] == ["transformer"]


def test_what_no_row_needs_is_shared_equally(still):
    plan = Schedule(100.0 + 100.0, [4.0])
    bigram, neural = [Run("bigram", counts=True)], [[Run("lstm")], [Run("gru")]]
    need = 4.0 + COUNTING
    spare = 100.0 - need - 2 * (4.0 + NEURAL)
    assert 60 * plan.minutes(bigram, [bigram, *neural]) == pytest.approx(need + spare / 3 - SPAWN)
    folds = [Run("lstm")] * 4
    spare = 100.0 - plan.need(folds)
    assert 60 * plan.minutes(folds, [folds]) == pytest.approx(NEURAL + spare / 4)
    assert 60 * Schedule(90.0, [4.0]).minutes(bigram, [bigram]) == pytest.approx(need - SPAWN)


@pytest.mark.parametrize(
    ("texts", "left_out"),
    [(["abcd", "bcda", "cdab", "dabc"], []), (["abcd", "abc", "a", "ab"], ["pwm"])],
)
def test_rows_that_the_data_do_not_allow_are_left_out_and_named(tmp_path, texts, left_out):
    lines = [f"{text[i % 2 :]}{text[: i % 2]}\t{'pq'[i % 2]}" for i in range(10) for text in texts]
    (tmp_path / "some.tsv").write_text("\n".join(["text\tkind", *lines]) + "\n")
    recipe, _ = plan_recipe([tmp_path / "some.tsv"], data={"input": "text", "target": "kind"})
    corpus, said = prepare(recipe, tmp_path, str), []
    rows = default_models(recipe, corpus, said.append)
    assert rows[0] == "majority" and rows[-1] == "transformer" and "markov" in rows
    assert [line.split()[0] for line in said] == left_out
    assert ("pwm" in rows) == (not left_out)
    for task in ("labels", "value", "position-label"):
        other = replace(recipe, task=replace(recipe.task, name=task))
        rows = set(default_models(other, corpus, said.append))
        simple = {"mean", "ridge"} if task == "value" else {"majority", "logistic"}
        assert {*simple, "transformer"} <= rows <= set(MODELS.names(task, "tokens"))


def test_a_row_that_cannot_be_as_small_is_left_out_or_refused(tmp_path, monkeypatch):
    def refuse(name, *size, **shape):
        raise UsageError(f"no model {name} has 10 parameters")

    monkeypatch.setattr(comparison_runs, "find_config", refuse)
    lines = [f"2024-01-{1 + i // 24:02}T{i % 24:02},{i % 24}" for i in range(480)]
    (tmp_path / "load.csv").write_text("\n".join(["time,load", *lines]) + "\n")
    sizes = {"name": "transformer", "n_layers": 1, "d_model": 8}
    recipe, _ = plan_recipe([tmp_path / "load.csv"], input={"lookback": 24}, model=sizes)
    corpus, said = prepare(recipe, tmp_path, str), []
    recipes = match_parameters(recipe, ["naive", "hyena"], corpus, said.append)
    assert [one.model.name for one in recipes] == ["naive"]
    assert said == ["hyena is left out: no model hyena has 10 parameters"]
    with pytest.raises(UsageError, match="no model hyena"):
        match_parameters(recipe, ["hyena"], corpus)


def test_the_live_table_names_what_validation_measures(tmp_path):
    (tmp_path / "some.txt").write_text("".join(f"ab{i % 4}c\n" for i in range(31)))
    recipe, _ = plan_recipe([tmp_path / "some.txt"], data={"format": "lines"})
    one = comparison_run(recipe, tmp_path)
    progress = ProgressTable(Reporter(quiet=True), [one])
    assert "validation" not in str(progress.table().title)
    one.run.mkdir()
    event = {"event": "valid", "seconds": 1.0, "metric": "log_loss", "unit": "nats"}
    lines = [json.dumps(event | {"value": value}) for value in (0.75, 0.5, None, 0.625)]
    (one.run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    progress(one, "training")
    assert str(progress.table().title).endswith("validation: log loss")
    assert progress.losses == {one.model: "0.5000"}


@dataclass(frozen=True)
class FoldRun:
    run: Path
    fold: int


@pytest.mark.parametrize("counts", [(9, 5, 7), (4, 4, 4)])
def test_runs_of_a_fold_are_compared_on_the_records_that_all_predicted(counts):
    runs = [FoldRun(Path(f"{i}"), 0) for i in range(3)] + [FoldRun(Path("other"), 1)]
    found = {}
    for one, count in zip(runs, (*counts, 8), strict=True):
        arrays = np.zeros((count, 2)), np.zeros(count, np.int64), np.ones(count, np.int64)
        found[one.run] = RunResult({}, "test", answers=Predictions("label", *arrays))
    after = on_common_records(runs, found)
    assert [after[one.run].answers.records for one in runs] == [min(counts)] * 3 + [8]
