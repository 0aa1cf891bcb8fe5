"""The end of training: evaluate the best model, write regard.json and README.md."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard
from regard.data.batching import sample
from regard.data.shards import Shard
from regard.evaluation.metrics import Metric, metric_title, to_document
from regard.evaluation.scoring import truncate_shard
from regard.recipe import Recipe
from regard.run import METADATA, Run
from regard.storage import write_json, write_text
from regard.training.session import TrainingOutcome, context
from regard.training.throughput import final_parts

BLOCK_TOKENS = 4096  # the least size of a block, if only a sample of running text is evaluated


@dataclass(frozen=True)
class TrainResult:
    """The result of training: the run folder, how it ended, metrics of each held-out split."""

    run: Path
    task: str
    outcome: str  # done, early or interrupted
    signal: int  # that interrupted it, else 0
    steps: int
    seconds: float
    parameters: int
    figures: dict[str, dict[str, Metric]]  # metrics by split and name
    measured: dict[str, float]  # share of the tokens of each split that was evaluated
    epochs: float | None = None  # None if the model is fitted in one pass
    forecast: dict[str, Any] | None = None  # of memory and time, if there was one
    warnings: tuple[str, ...] = ()  # about the data

    def to_json(self) -> dict[str, Any]:
        """Return the document of `regard train --json`."""
        return {
            "run": str(self.run),
            "outcome": self.outcome,
            "steps": self.steps,
            "train_seconds": round(self.seconds, 3),
            "parameters": self.parameters,
            "epochs": self.epochs,
            "metrics": {split: to_document(metrics) for split, metrics in self.figures.items()},
            "measured": self.measured,
            "forecast": self.forecast,
            "warnings": list(self.warnings),
        }


def evaluate_and_write(run: Path, fitted: TrainingOutcome, *, measures: bool = True) -> TrainResult:
    """Evaluate the model (on a part of a large split) and write the files of a finished run.

    Neither is done if the run was interrupted, or without `measures`, in all processes but one.
    """
    measures = measures and fitted.outcome != "interrupted"
    facts, recipe, corpus = fitted.facts, fitted.recipe, fitted.corpus
    task = recipe.build_task()
    metrics: dict[str, dict[str, Metric]] = {}
    shares: dict[str, float] = {}
    metadata: dict[str, Any] = {}
    if measures:
        model = Run(run).model().to(facts["device"])
        parts = fitted.parts or final_parts(recipe.train, corpus, facts["steps"])
        for split, tokens in parts.items():
            shard = corpus.split(split)
            assert shard is not None
            part = final_sample(shard, tokens, getattr(model.config, "max_len", 0))
            shares[split] = round(part.tokens / shard.tokens, 4)
            metrics[split] = task.evaluate(fitted, model, Run(run), split, part)
        if fitted.clock is None or fitted.clock.left > 0:  # otherwise `look` computes it
            metadata = task.metadata(model, corpus)
    result = TrainResult(
        run=run,
        task=recipe.task.name,
        outcome=fitted.outcome,
        signal=fitted.signal,
        steps=facts["steps"],
        seconds=facts["train_seconds"],
        parameters=facts["parameters"],
        figures=metrics,
        measured=shares,
        epochs=facts.get("epochs"),
        forecast=facts.get("forecast"),
        warnings=(*corpus.warnings, *corpus.truncation_warnings(context(recipe.model.config))),
    )
    if measures:
        write_json(run / METADATA, facts_of(fitted, result) | metadata)
        write_text(run / "README.md", model_card(recipe, result))
    return result


def final_sample(shard: Shard, tokens: int, context: int) -> Shard:
    """Return a sample of about `tokens` tokens of a split, the same for all models.

    Running text is sampled in blocks that are long compared with `context`. Labelled records are in
    random order already: the sample is the first of them.
    """
    if shard.targets is not None:
        return truncate_shard(shard, tokens)
    return sample(shard, tokens, 0, block=max(BLOCK_TOKENS, 8 * context))


def facts_of(fitted: TrainingOutcome, result: TrainResult) -> dict[str, Any]:
    """Return the contents of regard.json."""
    document = result.to_json()
    return {
        "regard": regard.__version__,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seed": fitted.recipe.train.seed,
        "outcome": fitted.outcome,
        "data": fitted.corpus.facts,
        **fitted.facts,
        "metrics": document["metrics"],
        "measured": document["measured"],
    }


def model_card(recipe: Recipe, result: TrainResult) -> str:
    """Return the README of a run folder."""
    card = recipe.build_task().card
    known = list(dict.fromkeys(name for metrics in result.figures.values() for name in metrics))
    shown = [name for name in card.metrics if name in known] or known
    *first, last = (f"`regard {verb.format(run='.')}`" for verb in card.verbs)
    uses = f"{', '.join(first)} and {last}"
    table = metric_table(result.figures, shown)
    return "\n".join(
        [
            f"# {recipe.model.name}, trained with regard",
            "",
            f"{result.parameters:,} parameters, "
            f"{result.steps:,} steps, {result.seconds:,.0f} seconds of training. "
            "Intervals are 95%.",
            "",
            *table,
            "",
            f"`recipe.toml` says how it was made; {uses} use it.",
            "`data/` and `checkpoints/` are only needed to resume training.",
            "",
        ]
    )


def metric_table(figures: Mapping[str, Mapping[str, Metric]], shown: Sequence[str]) -> list[str]:
    """Return the lines of a Markdown table: a row for each metric, a column for each split."""
    if not figures:
        return []
    rows = []
    for name in shown:
        metrics = [split.get(name) for split in figures.values()]
        title = next((metric_title(name, one) for one in metrics if one is not None), name)
        cells = [title.replace("|", "\\|"), *("–" if one is None else str(one) for one in metrics)]
        rows.append(f"| {' | '.join(cells)} |")
    head = f"| metric | {' | '.join(figures)} |"
    return [head, "|---" * (len(figures) + 1) + "|", *rows]
