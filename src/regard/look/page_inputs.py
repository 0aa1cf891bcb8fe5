"""What a page is about: the text or item to read, the facts of its run, and which heads align
source and target words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batching import LabelledExamples
from regard.data.corpus import FOLDER, MANIFEST, reopen
from regard.data.shards import Shard
from regard.data.text_files import TextFiles
from regard.decoding.engine import device_of, evaluating
from regard.errors import UserError
from regard.evaluation.classification import MultilabelReport
from regard.evaluation.head_alignment import HeadAlignment, measure_head_alignment
from regard.evaluation.regression import RegressionReport
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.seq2seq import Seq2SeqModel
from regard.models.supervised import SupervisedModel
from regard.pipelines.pipeline import Pipeline
from regard.pipelines.predictor import Predictor
from regard.run import METADATA, Run
from regard.tokenizers import Tokenizer

Facts = list[tuple[str, object]]
TARGET_METRICS = (MultilabelReport.target_metric, RegressionReport.target_metric)
SHAPE = (
    ("n_encoder_layers", "encoder layers"),
    ("n_layers", "layers"),
    ("n_heads", "heads"),
    ("d_model", "width"),
    ("source_vocab", "source vocabulary"),
    ("n_words", "words"),
    ("window", "window"),
    ("negatives", "words drawn"),
)
ENOUGH_RECORDS = 50  # to show what a model does with many of them
METRICS = (  # and their digits
    ("bleu", "BLEU", 1),
    ("chrf", "chrF", 1),
    ("exact", "exact, %", 1),
    ("bits_per_symbol", "bits per symbol", 3),
    ("nats_per_token", "nats per masked token", 3),
    ("loss", "loss", 3),
    ("accuracy", "accuracy", 3),
    ("f1", "F1", 3),
    ("precision", "precision", 3),
    ("recall", "recall", 3),
    ("average_precision", "average precision", 3),
    ("f1_macro", "macro F1", 3),
    ("auroc", "AUROC", 3),
    ("auroc_mean", "mean AUROC of the labels", 3),
    ("rmse", "RMSE", 3),
    ("rmse_standardized_mean", "mean standardized RMSE of the targets", 3),
    ("r2", "R²", 3),
)


def find_file(text: str) -> Path | None:
    """Return the existing file that this text names, if any."""
    try:
        path = Path(text)
        return path if path.is_file() else None
    except OSError:  # longer than any path may be
        return None


def read_text(path: Path, *, running: bool, most: int) -> str:
    """Return the first record of a file, or the first `most` characters of running text."""
    if not running:
        source = TextFiles([path])
        if source.format == "text":  # a model of records reads lines
            source = TextFiles([path], format="lines")
        return next(chunk.texts[0] for chunk in source.records())
    source, text = TextFiles([path], format="text"), ""
    for piece in source.text():
        text += piece
        if len(text) >= most:
            break
    return text[:most]


def read_given(text: str, *, running: bool, most: int, log: Callable[[str], None]) -> str:
    """Return the text, or the beginning of the file that it names."""
    path = find_file(text) if text else None
    if path is None:
        return text
    log(f"reading the beginning of the file {path}")
    return read_text(path, running=running, most=most)


def require_held_out(pipeline: Pipeline, what: str) -> tuple[str, Shard]:
    """Return a split and its shard, or raise an error that says that nothing was given either."""
    try:
        return pipeline.held_out()
    except UserError as error:
        raise UserError(f"no {what} given, and {error}") from None


def quote(text: str) -> str:
    """Return the beginning of a text in quotation marks."""
    text = " ".join(text.split())
    return f"“{text[:40]}{'…' if len(text) > 40 else ''}”"


def log_unknown(ids: Sequence[int], tokenizer: Tokenizer, log: Callable[[str], None]) -> None:
    """Log how many symbols are not in the vocabulary."""
    unknown = sum(i == tokenizer.unk for i in ids if tokenizer.unk != tokenizer.end)
    if unknown:
        log(f"{unknown:,} symbols are not in the vocabulary and are read as <unk>")


def truncate(ids: Sequence[int], max_len: int) -> tuple[list[int], str]:
    """Return the first max_len ids, and a note if these are not all."""
    if len(ids) <= max_len:
        return list(ids), ""
    note = f"only the first {max_len:,} of {len(ids):,} tokens are read: the model's max_len"
    return list(ids[:max_len]), note


def run_facts(run: Run, model: nn.Module, tokenizer: Tokenizer) -> Facts:
    """Return what the files of a run say: model, size, tokens and metrics."""
    name, vocab_size, config = run.description[1:4]
    parameters = sum(t.numel() for t in model.parameters())
    stored = sum(t.numel() for t in model.buffers())  # counting models have nothing else
    facts: Facts = [
        ("model", name),
        ("parameters", parameters) if parameters else ("numbers stored", stored),
        ("tokens", tokenizer.name),
        ("vocabulary", vocab_size),
    ]
    for key, label in SHAPE:
        if getattr(config, key, 0):
            decoder = key == "n_layers" and hasattr(config, "n_encoder_layers")
            facts.append(("decoder " * decoder + label, getattr(config, key)))
    if hasattr(config, "max_len"):
        facts.append(("context", config.max_len))
    metadata = run.metadata
    for key, label in (("imported_from", "imported from"), ("steps", "steps")):
        if key in metadata:
            facts.append((label, metadata[key]))
    for split, words in (("valid", "validation"), ("test", "test")):
        metrics = metadata.get("metrics", {}).get(split, {})
        facts += metric_facts(metrics, words)
        for target, all_of_target in metrics.get("targets", {}).items():
            shown = {key: metric for key, metric in all_of_target.items() if key in TARGET_METRICS}
            facts += metric_facts(shown, f"{words}, {target}")
    return facts


def metric_facts(metrics: dict[str, Any], words: str) -> Facts:
    """Return stored metrics as facts; `words` names the split or the target."""
    facts: Facts = []
    for key, label, digits in METRICS:
        metric = metrics.get(key)
        if metric:
            of = f" of {metric['class']}" if metric.get("class") else ""
            facts.append((f"{label}{of}, {words}", format_metric(metric, digits)))
    return facts


def choose_sample(run: Run, held_out: tuple[str, Shard]) -> tuple[str, Shard]:
    """Return the name of a split and records of it to look at, though not to measure on: the
    held-out ones or, where these are few, those of training.
    """
    shard = held_out[1]
    if shard.records // shard.views >= ENOUGH_RECORDS:
        return held_out
    corpus = reopen(run.path)
    return ("train", corpus.train) if corpus.train.records > shard.records else held_out


def load_head_alignment(
    run: Run, model: Seq2SeqModel, log: Callable[[str], object]
) -> HeadAlignment | None:
    """Return how well the heads of a translator align, as stored with the run or measured now;
    None where it has no heads, or no data to measure on.
    """
    stored = run.metadata.get("alignment")
    if stored is not None:
        config = model.config
        heads = (config.n_layers, config.n_heads) if hasattr(config, "n_heads") else (1, 1)
        try:
            alignment = HeadAlignment.from_json(stored)
            if np.shape(alignment.per_head) != heads:
                raise ValueError(f"alignment must be of {heads[0]} layers of {heads[1]} heads")
            return alignment
        except ValueError as error:
            raise UserError(f"{run / METADATA} is damaged: {error}") from None
    if not (run / FOLDER / MANIFEST).exists():
        return None
    corpus = reopen(run.path)
    if corpus.train.source is None or corpus.train.vocab_size != model.vocab_size:
        return None
    notice = "the run does not store which head aligns: measuring it now"
    return measure_head_alignment(model, corpus.train, corpus.valid, on_start=lambda: log(notice))


def format_metric(metric: dict[str, Any], digits: int = 3) -> str:
    """Return a stored metric with its 95% interval."""
    if metric.get("undefined"):
        return f"undefined ({metric['undefined']})"
    if metric.get("value") is None:
        return f"infinite ({metric.get('impossible', 0):,} impossible)"
    value, low, high = (metric.get(key, metric["value"]) for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


@dataclass(frozen=True, eq=False)
class PredictionContext:
    """A predictor and one item, text or other; `sample`, a split and its shard, are records to look
    at, and `target` is an output to explain besides the predicted one.
    """

    predictor: Predictor
    item: Any = None
    sample: tuple[str, Shard] | None = None
    target: str = ""

    @property
    def model(self) -> SupervisedModel:
        model: SupervisedModel = self.predictor.model
        return model

    @property
    def tokenizer(self) -> Tokenizer:
        return self.predictor.tokenizer

    @property
    def outputs(self) -> list[str]:
        """The names of the model's outputs: classes, labels or values."""
        targets = self.predictor.targets
        return list(targets.names if targets.kind.per_column else targets.classes[0])

    @property
    def text(self) -> str:
        """The item if it is a text, else empty."""
        return self.item if isinstance(self.item, str) else ""

    @cached_property
    def shard(self) -> Shard:
        """The item, in all its views."""
        return self.predictor.shard([self.item])

    @cached_property
    def examples(self) -> LabelledExamples:
        """The item without other views, cut to max_len."""
        return LabelledExamples(
            self.shard, self.tokenizer, int(self.model.config.max_len), first=True
        )

    @cached_property
    def source(self) -> Inputs:
        """The same as model inputs, one row."""
        (batch,) = self.examples.batches(1)
        assert batch.segments is not None
        return Inputs(batch.ids, batch.segments).to(device_of(self.model))

    @property
    def tokens(self) -> list[str]:
        """The tokens the model reads, as displayed."""
        return [self.tokenizer.text(i) for i in self.source.ids[0].tolist()]

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """(O,) probabilities or values, or (T, O) of positions: the mean over all views."""
        predictions = self.predictor.predictions(self.shard)
        scores = self.model.output.probabilities(torch.from_numpy(predictions.scores)).numpy()
        return np.asarray(scores if predictions.positional else scores[0])

    @cached_property
    def explained(self) -> list[int]:
        """The outputs to explain: the prediction, and `target` or else the runner-up.

        For two classes the runner-up mirrors the prediction and is left out.
        """
        kind, names = self.predictor.targets.kind, self.outputs
        order = list(range(len(names)))
        if kind.categorical:
            order = [int(i) for i in np.argsort(-self.probabilities, kind="stable")]
        if self.target:
            other = names.index(self.target)
            return [order[0], *([other] if other != order[0] else [])]
        return order[:1] if kind.single and len(names) == 2 else order[:2]

    @property
    def unit(self) -> str:
        """The unit of scores."""
        return "logits" if self.predictor.targets.kind.categorical else ""

    @property
    def cut_note(self) -> str:
        """Which part of the text is explained, where that is not all of it."""
        cut = "Only the part of the text that the model reads is shown. "
        views = "Of several views, this is the text as given." if self.predictor.views else ""
        return (cut * bool(self.examples.cut) + views).strip()

    def activations(self, *patterns: str) -> dict[str, Tensor]:
        """Return the named activations, in the order of computation."""
        tap = Tap(patterns)
        with evaluating(self.model):
            self.model.predict(self.source, tap=tap)
        return {name: value.float().cpu() for name, value in tap.activations.items()}
