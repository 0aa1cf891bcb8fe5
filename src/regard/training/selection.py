"""Selection of a model: fit the cheap rows of a task, try networks, train the best of these in the
rest of the time, and keep the row that is best on validation.

The best row becomes the run itself. The others stay in RUN/candidates/ROW and load as any run.
RUN/candidates/selection.json has the score of every row that is done: a run that was stopped goes
on with the next row, and makes the same choice.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from regard.data.corpus import FOLDER, Corpus, reopen
from regard.errors import UserError, one_line
from regard.evaluation import Metric, Metrics
from regard.recipe import SPLITS, Recipe, build, read
from regard.registry import MODELS
from regard.run import METADATA, METRICS, RECIPE, Run
from regard.run_folders import CANDIDATES, measurements
from regard.storage import StoredSelection, read_json, write_json
from regard.tokenizers import PREPROCESSOR, SOURCE_TOKENIZER, TOKENIZER
from regard.training.comparison_runs import (
    ComparisonRun,
    default_models,
    match_parameters,
    prepare,
)
from regard.training.defaults import ONE_PASS, has_gpu, settings_from_scratch
from regard.training.distributed import ALONE
from regard.training.loggers import check_loggers
from regard.training.progress import Reporter
from regard.training.step import choose_device
from regard.training.throughput import Clock
from regard.training.trainer import Session, TrainingOutcome, TrainResult, evaluate_and_write

SELECTION = "selection.json"
CHEAP_SHARE = 0.3  # of the time left, at most, for all rows that are fitted at once
TRIAL_SHARE = 0.25  # of the time, at most, for short trials of networks
# Of three networks two are trained on after their trials, since four seconds may mislead: on the
# structures of proteins and BACE the LSTM is then 0.01 and 0.06 behind the CNN, and after fifteen
# 0.05 and 0.03 ahead.
FINALISTS = 2
TRIAL = "-trial"  # the ending of their names
STARTED = "-pretrained"  # the ending of the name of a network that starts from a pre-trained one
TRIAL_CPU, TRIAL_GPU = 3.5, 15.0  # the least seconds of each: a GPU takes 6 s to start and be timed
LEAST = 3.0  # seconds of such a row, with its start and end
CLOSING = 0.5  # seconds for moving files
SHOWN = 2  # rows that the line about the best row compares it with
STEADY = 0.8  # a loss whose minimum comes before this share of the validations is flat
LOSSES = ("log_loss", "bits_per_symbol")  # the first that a task measures breaks ties
MOST_TIMES = 50  # times the minutes: more is no advice
SHARED = (FOLDER, TOKENIZER, SOURCE_TOKENIZER, PREPROCESSOR)  # the run has these already


@dataclass(frozen=True)
class Score:
    """A row on the validation part, by the metric that ranks models."""

    model: str
    metric: str
    value: float
    low: float
    high: float
    lower_is_better: bool
    loss: float  # decides between equal accuracies; 0 if the task has none
    seconds: float  # of training
    falling: bool = False  # its loss was lowest at the end of training
    slope: float = 0.0  # share by which its error falls when the time is doubled; 0 = not known
    most: float = 1.0  # the value of a perfect model, if higher is better

    @classmethod
    def of(cls, model: str, result: TrainResult[Any]) -> Score | None:
        """Return the score of a trained row; None if validation does not define it."""
        metrics = result.splits.get("valid", Metrics())
        name, metric = next(iter(metrics.items()), ("", Metric(math.nan, math.nan, math.nan)))
        if not math.isfinite(metric.value):
            return None
        loss = next((metrics[name].value for name in LOSSES if name in metrics), 0.0)
        return cls(
            model,
            name.replace("_", " "),
            metric.value,
            metric.low,
            metric.high,
            metric.lower_is_better,
            loss if math.isfinite(loss) else 1e9,
            round(result.seconds, 3),
            still_falling(result.run),
            most=metric.most,
        )

    @property
    def key(self) -> tuple[float, float]:
        """A sort key: the best row comes first."""
        return (self.value if self.lower_is_better else -self.value), self.loss

    @property
    def error(self) -> float:
        """What training lowers: the metric, or what it lacks to that of a perfect model."""
        return self.value if self.lower_is_better else self.most - self.value

    def __str__(self) -> str:
        return f"{self.metric} {self.value:.4g}"


def still_falling(run: Path) -> bool:
    """Return whether the validation loss of a run had its minimum at its end, and the run did not
    go back to its best weights because it overfitted.
    """
    if not (run / METRICS).exists() or any(measurements(run, "anneal", "best_step")):
        return False
    losses = [one.value for one in Run(run).validations()]
    return len(losses) >= 3 and losses.index(min(losses)) >= STEADY * (len(losses) - 1)


def slope_of(score: Score, trial: Score | None) -> float:
    """Return the share by which the error of a network falls when its time is doubled, from a trial
    and a longer run: errors follow a power of the time (Kaplan et al. 2020, arXiv:2001.08361).
    Learning rates fall to 0 in both, so that the curve within one run says little.
    """
    if trial is None or not 0 < score.error < trial.error or score.seconds <= trial.seconds:
        return 0.0
    doublings = math.log2(score.seconds / trial.seconds)
    return 1 - float((score.error / trial.error) ** (1 / doublings))


@dataclass
class Selection:
    """Trains candidates in RUN/candidates and keeps the best; `began` is when the time started."""

    run: Path
    resume: bool
    reporter: Reporter
    began: float
    scores: list[Score] = field(default_factory=list)
    sessions: dict[str, TrainingOutcome] = field(default_factory=dict)  # of rows, by name

    def fit(self, recipe: Recipe) -> TrainResult[Any]:
        """Train the rows for a recipe; return the result of the best, or of the one that was
        interrupted.
        """
        choose_device(recipe.train.device, ALONE)  # a missing one is an error before all else
        check_loggers(recipe)
        session = Session(self.run, self.resume, self.reporter, self.began)
        with session.folder() as new:
            recipe = session.store(recipe, new)
            clock = Clock(self.began, recipe.train.minutes * 60)
            best = "" if new else self.load()
            if not best:
                result = self.train_all(session.corpus(from_scratch(recipe)), recipe)
                if result.outcome == "interrupted":
                    return replace(result, run=self.run)
                best = result.run.name
                self.store(best)
            self.move(best)
        # without an outcome, it was stopped while the files were moved
        outcome = self.sessions.get(best) or session.fit(session.stored())
        outcome = replace(outcome, clock=clock, corpus=reopen(self.run))  # its files were moved
        result = evaluate_and_write(self.run, outcome)
        selection = self.describe(best)
        facts = read_json(self.run / METADATA, dict[str, Any])
        write_json(self.run / METADATA, facts | {"selection": selection})
        return replace(result, selection=selection)

    def load(self) -> str:
        """Load the scores of a run that is resumed; return the best row, "" if rows are missing."""
        path = self.run / CANDIDATES / SELECTION
        if not path.exists():
            return ""
        document = read_json(path, StoredSelection)
        self.scores = [Score(**row) for row in document["rows"]]
        return str(document["best"])

    def store(self, best: str = "") -> None:
        """Store the scores so far, and the best row when all are done."""
        document = {"best": best, "rows": [asdict(score) for score in self.scores]}
        write_json(self.run / CANDIDATES / SELECTION, document)

    def train_all(self, corpus: Corpus, recipe: Recipe) -> TrainResult[Any]:
        """Train all rows; return the result of the best, or of the one that was interrupted.

        Several networks have a short trial each; the best one is then trained in the rest of the
        time, or the best two of three in half of it each.
        """
        (self.run / CANDIDATES).mkdir(exist_ok=True)
        cheap, networks = self.rows(corpus, recipe)
        minutes = recipe.train.minutes * 60
        now, end = time.monotonic(), self.began + minutes
        results = self.train_group(cheap, now + CHEAP_SHARE * max(0.0, end - now), quiet=True)
        if len(networks) > 1 and not interrupted(results):
            trials = {f"{name}{TRIAL}": row for name, row in networks.items()}
            until = time.monotonic() + TRIAL_SHARE * minutes
            results |= self.train_group(trials, until, quiet=True)
            ranked = [name.removesuffix(TRIAL) for name in self.ranked(trials)] or list(networks)
            finalists = ranked[: min(FINALISTS, len(networks) - 1)]
            networks = {name: networks[name] for name in finalists}
        if not interrupted(results):
            results |= self.train_group(networks, end - CLOSING, quiet=False)
        if not results:
            raise UserError("no model can be trained on these data; --model NAME says why")
        full = [name for name in results if not name.endswith(TRIAL)] or list(results)
        return interrupted(results) or results[self.best(full) or full[-1]]

    def has_trials(self, recipe: Recipe, count: int) -> bool:
        """Return whether there is time for a trial of several networks."""
        least = TRIAL_GPU if has_gpu() else TRIAL_CPU
        return count > 1 and TRIAL_SHARE * recipe.train.minutes * 60 >= count * least

    def ranked(self, names: Iterable[str]) -> list[str]:
        """Return those of some rows whose score validation defines, the best first."""
        scores = [score for score in self.scores if score.model in names]
        return [score.model for score in sorted(scores, key=lambda score: score.key)]

    def best(self, names: Iterable[str]) -> str:
        """Return the name of the best of some rows, "" if validation defines the score of none."""
        return next(iter(self.ranked(names)), "")

    def rows(self, corpus: Corpus, recipe: Recipe) -> tuple[dict[str, Recipe], dict[str, Recipe]]:
        """Return the recipes of the rows that are fitted at once, and of the networks, by name."""
        chosen, kind = list(recipe.model.choose), recipe.reads
        scratch = from_scratch(recipe)
        started = {f"{recipe.model.name}{STARTED}": recipe.replace(model={"choose": ()})}
        if corpus.valid is None:
            first = started if recipe.train.init_from else {chosen[0]: scratch}
            self.reporter.say(
                f"no validation part to choose a model by: {next(iter(first))} is trained"
            )
            return {}, self.sized(first, scratch, corpus)
        suitable = default_models(recipe, corpus, self.reporter.say)
        loops = {name: MODELS.get(name, recipe.task.name, kind).loop for name in suitable}
        cheap = {name: scratch for name in suitable if loops[name] in ONE_PASS}
        networks = dict.fromkeys(chosen, scratch)
        if recipe.train.init_from:
            networks = started | networks
        trials = self.has_trials(recipe, len(networks))
        networks = networks if trials else dict(list(networks.items())[:1])
        cheap, networks = (self.sized(rows, scratch, corpus) for rows in (cheap, networks))
        names = f"trying {', '.join([*cheap, *networks])}"
        if trials:
            best, have = ("best", "has") if len(networks) == FINALISTS else ("best two", "share")
            names += f"; of the networks, the {best} in a short trial {have} the rest of the time"
        self.reporter.say(f"{names}; the best on validation is kept (--model NAME trains only it)")
        return cheap, networks

    def sized(
        self, rows: Mapping[str, Recipe], scratch: Recipe, corpus: Corpus
    ) -> dict[str, Recipe]:
        """Return rows with the size of the chosen network; one that starts from another model has
        the size of that.
        """
        names = [name for name, recipe in rows.items() if recipe is scratch]
        recipes = match_parameters(scratch, names, corpus, self.reporter.say)
        matched = {recipe.model.name: recipe for recipe in recipes}
        started = {name: recipe for name, recipe in rows.items() if name not in names}
        return {name: row for name in rows if (row := started.get(name) or matched.get(name))}

    def train_group(
        self, rows: Mapping[str, Recipe], end: float, *, quiet: bool
    ) -> dict[str, TrainResult[Any]]:
        """Train rows one after the other until `end` (time.monotonic), each in an equal share of
        the time. Return the results, the last of them interrupted if one was.
        """
        results = dict[str, TrainResult[Any]]()
        for i, (name, row) in enumerate(rows.items()):
            seconds = max(LEAST, (end - time.monotonic()) / (len(rows) - i))
            result = self.train(name, row, seconds, quiet=quiet)
            if result is not None:
                results[name] = result
                if interrupted(results):
                    break
        return results

    def train(
        self, name: str, row: Recipe, seconds: float, *, quiet: bool
    ) -> TrainResult[Any] | None:
        """Train a row in its share of the time; None if it cannot be trained."""
        one = ComparisonRun(name, row, self.run / CANDIDATES / name)
        # a pre-trained model has a tokenizer of its own, and with it other data
        prepare(one, seconds / 60, None if row.train.init_from else self.run)
        session = Session(
            one.run, True, self.reporter.quieter() if quiet else self.reporter, time.monotonic()
        )
        try:
            outcome = self.sessions[name] = session.fit(session.stored())
            chosen_by = replace(outcome, reported=SPLITS[1])
            result = evaluate_and_write(one.run, chosen_by, splits=SPLITS[:2])
        except UserError as error:
            self.reporter.warn(f"{name} is left out: {one_line(str(error))}")
            shutil.rmtree(one.run, ignore_errors=True)
            return None
        if result.outcome != "interrupted":
            self.record(name, result)
        return result

    def record(self, name: str, result: TrainResult[Any]) -> None:
        """Store and print the score of a row."""
        score = Score.of(name, result)
        if score is not None and score.falling:
            trial = next((one for one in self.scores if one.model == f"{name}{TRIAL}"), None)
            score = replace(score, slope=slope_of(score, trial))
        self.scores = [one for one in self.scores if one.model != name]
        if score is not None:
            self.scores.append(score)
            self.reporter.say(f"{name}: {score} on validation after {score.seconds:.0f} s")
        self.store()

    def describe(self, name: str) -> dict[str, Any]:
        """Return the selection for regard.json: the scores, and lines that explain it."""
        scores = sorted(self.scores, key=lambda score: (not is_full(score), score.key))
        best = next((score for score in scores if score.model == name), None)
        lines = [f"kept {name}"]
        if best is not None:
            others = [score for score in scores if score is not best and is_full(score)]
            lines = [explain(best, others), *name_cheaper(best, others), *gain(scores)]
            lines += [hint for score in scores if (hint := more_time(score, best))]
        return {"best": name, "rows": [asdict(score) for score in scores], "lines": lines}

    def move(self, best: str) -> None:
        """Move the files of the best row into the run, which has the data of most rows; its recipe
        comes last, so that a run that was stopped here repeats the rest.
        """
        folder = self.run / CANDIDATES / best
        has_own = bool(build(read(folder / RECIPE)).train.init_from)
        for name in () if has_own else SHARED:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for path in sorted(folder.iterdir(), key=lambda path: path.name == RECIPE):
            target = self.run / path.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(path, target)
        folder.rmdir()


def from_scratch(recipe: Recipe) -> Recipe:
    """Return the recipe of the same model with random weights at first."""
    if not recipe.train.init_from:
        return recipe
    return recipe.replace(train=settings_from_scratch())


def interrupted(results: Mapping[str, TrainResult[Any]]) -> TrainResult[Any] | None:
    """Return the result that was interrupted, if one was."""
    return next((one for one in results.values() if one.outcome == "interrupted"), None)


def explain(best: Score, others: Sequence[Score]) -> str:
    """Return the line that says which row was kept, and what the next ones and the network, which
    comes last in the table, reached.
    """
    networks = [score for score in others[SHOWN:] if score.falling]
    shown = [
        f"{score.model} {score.value:.4g} after {score.seconds:.0f} s"
        for score in [*others[:SHOWN], *networks]
    ]
    return f"kept {best.model} ({'; '.join([f'{best} on validation', *shown])})"


def name_cheaper(best: Score, others: Sequence[Score]) -> list[str]:
    """Return a line that names the cheapest row within the interval of the best, if it took less
    than a third of its time.
    """
    tied = [
        score
        for score in others
        if best.low <= score.value <= best.high and 3 * score.seconds < best.seconds
    ]
    if not tied or best.seconds < 1:
        return []
    cheapest = min(tied, key=lambda score: score.seconds)
    return [
        f"{cheapest.model} ({cheapest.value:.4g}) is within the interval of {best.model} "
        f"[{best.low:.4g}, {best.high:.4g}] and took {cheapest.seconds:.1f} s instead of "
        f"{best.seconds:.1f} s"
    ]


def is_full(score: Score) -> bool:
    """Return whether a row had its full share of the time, rather than a trial."""
    return not score.model.endswith(TRIAL)


def gain(scores: Sequence[Score]) -> list[str]:
    """Return a line that says what pre-training gained, if the same network was tried without."""
    by_name = {score.model: score for score in scores}
    for name, score in by_name.items():
        if name.endswith(f"{STARTED}{TRIAL}"):
            other = by_name.get(name.replace(STARTED, ""))
            if other is not None:
                return [
                    f"pre-training: {score} with it, {other.value:.4g} without, after "
                    f"{score.seconds:.0f} s and {other.seconds:.0f} s"
                ]
    return []


def more_time(score: Score, best: Score) -> str:
    """Return the line that says how much more time a row whose loss still falls may need, or "".

    Its error is supposed to fall by the same share whenever the time is doubled.
    """
    if not score.falling or not is_full(score) or score.error <= 0:
        return ""
    if score is best:
        return f"{best.model} was still improving: more --minutes will help"
    if not score.slope:
        return f"{score.model} was still improving: more --minutes will help it"
    if best.error <= 0 or score.error <= best.error:
        return ""
    doublings = math.log(best.error / score.error) / math.log(1 - score.slope)
    if doublings > math.log2(MOST_TIMES):
        return ""
    times = max(2, math.ceil(2**doublings - 0.01))
    return (
        f"{score.model} was still improving: with about {times} times the --minutes it may "
        f"overtake {best.model}"
    )
