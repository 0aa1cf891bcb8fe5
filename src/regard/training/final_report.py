"""The end of training: measure the best model on what was held out, write regard.json, README."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard
from regard.data.batching import sample
from regard.data.corpus import Corpus
from regard.data.shards import Shard
from regard.data.targets import LABELLED
from regard.evaluation.language_modeling import Metric, measure, metrics_of, title, to_document
from regard.evaluation.masked_lm import measure_masked_lm
from regard.evaluation.predictions import predict_shard, store_predictions
from regard.evaluation.translation import agreement, measure_translation
from regard.evaluation.word_similarity import word_losses
from regard.models.encoder import MaskedLM
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.models.supervised import SupervisedModel
from regard.models.word2vec import Word2Vec
from regard.pipelines.translator import Translator
from regard.recipe import Recipe
from regard.run import FACTS, load_model, write_json, write_text
from regard.training.session import TrainingOutcome, context
from regard.training.throughput import final_parts
from regard.training.validation import beginning

BLOCK_TOKENS = 4096  # of running text that is measured in parts: the least that is read at a time
TRANSLATED = 500  # sentences of a held-out side that are translated when training ends, at most


@dataclass(frozen=True)
class TrainResult:
    """What training left behind: the run folder, how it ended, figures of each held-out side."""

    run: Path
    task: str
    outcome: str  # done, early or interrupted
    signal: int  # that interrupted it, else 0
    steps: int
    seconds: float
    parameters: int
    figures: dict[str, dict[str, Metric]]  # side -> metric -> figure
    measured: dict[str, float]  # side -> share of its tokens that the figures are from
    epochs: float | None = None  # passes over the training data; None of what counts once
    forecast: dict[str, Any] | None = None  # what was foretold of memory and time, if anything
    warnings: tuple[str, ...] = ()  # of the data: what was left out or cut, what looks wrong

    def to_json(self) -> dict[str, Any]:
        """The document `regard train --json` prints."""
        return {
            "run": str(self.run),
            "outcome": self.outcome,
            "steps": self.steps,
            "train_seconds": round(self.seconds, 3),
            "parameters": self.parameters,
            "epochs": self.epochs,
            "metrics": {side: to_document(found) for side, found in self.figures.items()},
            "measured": self.measured,
            "forecast": self.forecast,
            "warnings": list(self.warnings),
        }


def evaluate_and_write(run: Path, fitted: TrainingOutcome, *, measures: bool = True) -> TrainResult:
    """Measure (a large side in part) and write; an interrupted run is only reported.

    So is any run by a process that is not the one that `measures`.
    """
    measures = measures and fitted.outcome != "interrupted"
    facts, recipe, corpus = fitted.facts, fitted.recipe, fitted.corpus
    found: dict[str, dict[str, Metric]] = {}
    shares: dict[str, float] = {}
    aligned: dict[str, Any] = {}
    if measures:
        model = load_model(run).to(facts["device"])
        parts = fitted.parts or final_parts(recipe.train, corpus, facts["steps"])
        for side, tokens in parts.items():
            shard = corpus.side(side)
            assert shard is not None
            part = final_sample(shard, tokens, getattr(model.config, "max_len", 0))
            shares[side] = round(part.tokens / shard.tokens, 4)
            found[side] = figures_of(model, side, shard, part, fitted, run)
        if fitted.clock is None or fitted.clock.left > 0:  # else left to whoever looks
            aligned = alignment(model, corpus)
    result = TrainResult(
        run=run,
        task=recipe.task,
        outcome=fitted.outcome,
        signal=fitted.signal,
        steps=facts["steps"],
        seconds=facts["train_seconds"],
        parameters=facts["parameters"],
        figures=found,
        measured=shares,
        epochs=facts.get("epochs"),
        forecast=facts.get("forecast"),
        warnings=(*corpus.warnings, *corpus.cut(context(recipe.model.config))),
    )
    if measures:
        write_json(run / FACTS, facts_of(fitted, result) | aligned)
        write_text(run / "README.md", model_card(recipe, result))
    return result


def figures_of(
    model: LanguageModel | Seq2SeqModel | SupervisedModel | Word2Vec,
    side: str,
    shard: Shard,
    part: Shard,
    fitted: TrainingOutcome,
    run: Path,
) -> dict[str, Metric]:
    """What a part of a held-out side costs the model, how good its answers are and, of a
    translator, its translations of some of the whole.

    They take longer than all else: only those of the side that is reported are made, and kept in
    the run, as its answers are.
    """
    corpus = fitted.corpus
    if isinstance(model, Word2Vec):
        return word_losses(model, part).figures()
    if isinstance(model, MaskedLM):
        return measure_masked_lm(model, part, corpus.tokenizer).figures()
    if isinstance(model, SupervisedModel):
        began = time.monotonic()
        told = predict_shard(model, part, corpus.tokenizer, corpus.targets)
        if reported(side, corpus):
            store_predictions(run, told, time.monotonic() - began)
        return told.figures()
    if isinstance(model, Seq2SeqModel) and reported(side, corpus):
        translator = Translator(
            model,
            corpus.tokenizer,
            corpus.source_tokenizer,
            forbidden=fitted.forbidden,
            told=corpus.facts,
        )
        clock = fitted.clock
        until = math.inf if clock is None else time.monotonic() + clock.left
        found = measure_translation(
            translator, shard, part=part, most=TRANSLATED, until=until, lenient=True
        )
        found.keep(run, side)
        return found.figures()
    return metrics_of(measure(model, part, corpus.tokenizer, constrain=fitted.forbidden))


def final_sample(shard: Shard, tokens: int, context: int) -> Shard:
    """About so many tokens of a held-out split, the same for all models: drawn by a fixed seed, of
    running text in blocks long enough that their beginnings, which lack context, count little.
    Labelled records lie in an order drawn by a hash already: the first of them are taken.
    """
    if shard.targets is not None:
        return beginning(shard, tokens)
    return sample(shard, tokens, 0, block=max(BLOCK_TOKENS, 8 * context))


def reported(side: str, corpus: Corpus) -> bool:
    """Is it what a run is judged by: the test side or, where there is none, the other?"""
    return side == "test" or corpus.test is None


def alignment(model: nn.Module, corpus: Corpus) -> dict[str, Any]:
    """Which head of a translator aligns, for regard.json; nothing where it has none."""
    pictured = corpus.train.source is not None and not corpus.train.source.cuttable
    if not isinstance(model, Seq2SeqModel) or pictured:  # words of pictures come from no word
        return {}
    found = agreement(model, corpus.train, corpus.valid)
    return {"alignment": found.to_json()} if found is not None else {}


def facts_of(fitted: TrainingOutcome, result: TrainResult) -> dict[str, Any]:
    """The contents of regard.json."""
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
    """A short README for the run folder, from its own figures."""
    shown = ["nats_per_symbol", "bits_per_symbol"]
    uses = "`regard generate .`, `regard evaluate .`,\n`regard look . TEXT` and `regard verify .`"
    if recipe.task == "target":
        shown = [name for name in ("bleu", "chrf", "exact") if any_has(result, name)] + shown
        uses = "`regard translate .`, `regard evaluate .`\nand `regard look . TEXT`"
    if recipe.task in (*LABELLED, "masked"):
        shown = list(dict.fromkeys(name for found in result.figures.values() for name in found))
        uses = "`regard classify . FILE`, `regard embed . FILE` and `regard evaluate .`"
    if recipe.task == "masked":
        uses = "`regard train FILE --pretrain .`, `regard embed . FILE` and `regard evaluate .`"
    if recipe.task == "vectors":
        shown = ["loss"]
        uses = "`regard look .`, `regard embed . FILE` and `regard export . OUT --to vec`"
    table = metric_table(result.figures, shown)
    return "\n".join(
        [
            f"# {recipe.model.name}, trained with regard",
            "",
            f"{result.parameters:,} parameters, {recipe.tokens.kind} tokens, "
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
    """Lines of Markdown: a row for each metric, a column for each split; of classes and targets
    that metrics are of, the names.
    """
    if not figures:
        return []
    rows = []
    for name in shown:
        found = [side.get(name) for side in figures.values()]
        words = next((title(name, one) for one in found if one is not None), name)
        cells = [words.replace("|", "\\|"), *("–" if one is None else str(one) for one in found)]
        rows.append(f"| {' | '.join(cells)} |")
    head = f"| metric | {' | '.join(figures)} |"
    return [head, "|---" * (len(figures) + 1) + "|", *rows]


def any_has(result: TrainResult, name: str) -> bool:
    """Was this measured?"""
    return any(name in found for found in result.figures.values())
