"""From finished runs to the table: what came of each, and the rows that they make up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.data.targets import LABELLED
from regard.documents import read_json
from regard.evaluate import kept_answers, translation
from regard.evaluate.comparison import Comparison, Row, leading, mean, ranked
from regard.evaluate.estimates import Estimate, Folds, mean_over_seeds, symbol_cost
from regard.evaluate.kept_answers import Kept, together
from regard.evaluate.material import held_out
from regard.evaluate.report import Measured, measure
from regard.evaluate.rungs import MEMORY, Rung
from regard.evaluate.translation import Sentence, judged_of
from regard.evaluate.verdicts import verdict
from regard.models.translator import Translator
from regard.run import FACTS, TOKENIZER, load_model
from regard.schemas import Memory, TrainedFacts
from regard.tokens import load as load_tokenizer
from regard.tokens import load_sources


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a finished run on what was held out: what symbols cost it, what it translated,
    what it answered.
    """

    facts: dict[str, Any]
    side: str
    measured: Measured | None = None
    made: Sequence[Sentence] = ()
    seconds: float = 0.0  # that making them took
    answers: Kept | None = None

    @property
    def trained_on(self) -> dict[str, int]:
        """How much the training side holds."""
        held: dict[str, int] = self.facts["data"]["sides"]["train"]
        return held

    @property
    def tokens_per_second(self) -> float:
        """Tokens of training: as many more or less than symbols as the training data has."""
        rate = self.facts.get("symbols_per_second") or 0.0
        return float(rate * self.trained_on["tokens"] / max(1, self.trained_on["symbols"]))


def outcome(one: Rung, shared: Path) -> Outcome:
    """What came of a run on what was held out of the shared data; what it answered is kept."""
    facts = read_json(one.run / FACTS, TrainedFacts)
    if one.recipe.task in LABELLED:
        side = "test" if facts["data"]["sides"]["test"]["records"] else "valid"
        return Outcome(facts, side, answers=kept_answers.kept(one.run))
    tokenizer = load_tokenizer(one.run / TOKENIZER)
    side, shard = held_out(shared, tokenizer, load_sources(one.run, tokenizer))
    model = load_model(one.run)
    if facts.get("device", "cpu").startswith("cuda"):
        model = model.to(facts["device"])
    made, seconds = translation.kept(one.run) if isinstance(model, Translator) else ([], 0.0)
    return Outcome(facts, side, measure(model, shard, tokenizer), made, seconds)


@dataclass(frozen=True, eq=False)
class Seed:
    """One seed of a row: the runs of its folds, or its only one, and what came of each. Sentences
    are judged as far as all rows have translated them.
    """

    rungs: Sequence[Rung]
    found: Sequence[Outcome]
    sentences: int

    @cached_property
    def answers(self) -> Kept | None:
        """Those of all folds."""
        parts = [one.answers for one in self.found if one.answers is not None]
        return together(parts) if parts else None

    @cached_property
    def judged(self) -> dict[str, Estimate]:
        """How good translations or answers are; nothing of a language model."""
        if self.answers is not None:
            return self.answers.answered.estimates
        made = self.found[0].made[: self.sentences]
        return judged_of(made, lenient=True) if made else {}

    def value(self, name: str) -> float:
        """One of these figures, or else nats per symbol."""
        measured = self.found[0].measured
        if name in self.judged or measured is None:
            return self.judged[name].value
        return symbol_cost(measured).value


def compared(
    rungs: Sequence[Rung],
    shared: Path,
    found: Mapping[Path, Outcome] | None = None,
    *,
    left_out: Sequence[str] = (),
) -> Comparison:
    """The table of finished rungs; what came of them by run, where it is known already."""
    found = {one.run: outcome(one, shared) for one in rungs} if found is None else found
    found = on_common_records(rungs, found)
    sentences = min(len(each.made) for each in found.values())  # each has the first of the same
    rows, curves = [], {}
    for model in dict.fromkeys(one.model for one in rungs):
        points: dict[float, list[Rung]] = {}
        seeds: dict[int, list[Rung]] = {}
        for one in rungs:
            if one.model == model and one.fraction == 1:
                seeds.setdefault(one.seed, []).append(one)
            if one.model == model and one.seed == 0:
                points.setdefault(one.fraction, []).append(one)
        rows.append(row([Seed(some, of(some, found), sentences) for some in seeds.values()]))
        if len(points) > 1:
            sizes = [points[fraction] for fraction in sorted(points)]
            curves[model] = [point(Seed(some, of(some, found), 0)) for some in sizes]
    table = ranked(rows)
    return Comparison(
        rows=table,
        verdict=verdict(table, curves),
        curves=curves,
        sentences=sentences,
        left_out=tuple(left_out),
        **material(rungs[0], found[rungs[0].run], table[0]),
    )


def on_common_records(rungs: Sequence[Rung], found: Mapping[Path, Outcome]) -> dict[Path, Outcome]:
    """The same outcomes, each with its answers to those records that all runs of its fold answered:
    where time was short, a run has answered the first records only.
    """
    fewest: dict[int, int] = {}
    for one in rungs:
        answers = found[one.run].answers
        if answers is not None:
            fewest[one.fold] = min(answers.records, fewest.get(one.fold, answers.records))
    common = {}
    for one in rungs:
        each = common[one.run] = found[one.run]
        if each.answers is not None and each.answers.records > fewest[one.fold]:
            common[one.run] = replace(each, answers=each.answers.first(fewest[one.fold]))
    return common


def of(rungs: Sequence[Rung], found: Mapping[Path, Outcome]) -> list[Outcome]:
    """What came of some rungs."""
    return [found[one.run] for one in rungs]


def material(one: Rung, first: Outcome, row: Row) -> dict[str, Any]:
    """What was measured on, for the table."""
    task, folds = one.recipe.task, one.recipe.data.folds
    if first.measured is not None:
        symbols, records = int(first.measured.symbols.sum()), first.measured.records
        return {"side": first.side, "symbols": symbols, "records": records, "task": task}
    assert row.answers is not None
    sides = first.facts["data"]["sides"]
    held = sides.values() if folds else [sides[first.side]]
    return {
        "side": first.side,
        "symbols": sum(side["symbols"] for side in held),
        "records": row.answers.records,
        "unknown": row.answers.unknown,
        "task": task,
        "folds": len(row.runs) // len(row.values) if folds else 0,
    }


def point(seed: Seed) -> tuple[int, float]:
    """Symbols trained on, and nats per symbol or what leads the task."""
    leads = leading(seed.rungs[0].recipe.task, seed.judged)
    return int(seed.found[0].trained_on["symbols"]), seed.value(leads)


def row(seeds: Sequence[Seed]) -> Row:
    """The row of a model's seeds."""
    rungs = [one for seed in seeds for one in seed.rungs]
    found = [one for seed in seeds for one in seed.found]
    first, answers = found[0], seeds[0].answers
    leads = leading(rungs[0].recipe.task, seeds[0].judged)
    costs = [each.measured for each in found if each.measured is not None]
    made, seconds = (len(first.made) if seeds[0].sentences else 0), first.seconds
    if answers is not None:
        made, seconds = answers.records, answers.seconds
    return Row(
        model=rungs[0].model,
        parameters=first.facts["parameters"],
        train_seconds=sum(each.facts["train_seconds"] for each in found) / len(seeds),
        symbols_per_second=first.facts.get("symbols_per_second") or 0.0,
        peak_memory_bytes=max(memory_of(one.run) for one in rungs),
        measured=mean(costs) if costs else None,
        values=tuple(seed.value(leads) for seed in seeds),
        runs=tuple(one.run for one in rungs),
        judged=mean_over_seeds([seed.judged for seed in seeds]),
        tokens_per_second=first.tokens_per_second,
        answers_per_second=made / max(seconds, 1e-3),
        epochs=fmean(each.facts.get("epochs") or 1.0 for each in found),
        ranked_by=leads,
        folds=over_folds(seeds, leads),
        answers=answers,
    )


def memory_of(run: Path) -> int:
    """Bytes that the process of a run took at its peak."""
    return int(read_json(run / MEMORY, Memory)["peak_memory_bytes"])


def over_folds(seeds: Sequence[Seed], leads: str) -> Folds | None:
    """What leads, of each fold, the mean over seeds; nothing where a fold is a single record."""
    folds = len(seeds[0].found)
    if folds == 1 or all(one.answers and one.answers.records == 1 for one in seeds[0].found):
        return None
    figures = []
    for fold in range(folds):
        alone = [Seed([seed.rungs[fold]], [seed.found[fold]], 0).judged for seed in seeds]
        figures.append(mean_over_seeds(alone)[leads].figure())
    return Folds(tuple(figures))
