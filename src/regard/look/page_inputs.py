"""What a page is about: the text to read, cut to what the model sees, the facts of its run, and
which head of it aligns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.corpus import FOLDER, MANIFEST, reopen
from regard.data.readers import TextFiles
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.comparison import OF_TARGET
from regard.evaluation.translation import Agreement, agreement
from regard.models.counts import CountingFit
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.models.supervised import FittedModel, SupervisedModel
from regard.models.word2vec import Word2Vec
from regard.run import FACTS, read_config, read_metadata
from regard.tokenizers import Tokenizer

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
FEW = 50  # records that show little
FIGURES = (  # and the digits they are told with
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


def file_named(text: str) -> Path | None:
    """The existing file this text is the path of, if any."""
    try:
        path = Path(text)
        return path if path.is_file() else None
    except OSError:  # longer than any path may be
        return None


def text_of(path: Path, *, running: bool, most: int) -> str:
    """The first record of a file, or the first `most` characters of running text."""
    if not running:
        source = TextFiles([path])
        if source.format == "text":  # a model of records reads lines, whatever else they could be
            source = TextFiles([path], format="lines")
        return next(chunk.texts[0] for chunk in source.records())
    source, text = TextFiles([path], format="text"), ""
    for piece in source.text():
        text += piece
        if len(text) >= most:
            break
    return text[:most]


def fitted(ids: Sequence[int], max_len: int) -> tuple[list[int], str]:
    """The first max_len ids, and a note if that is not all of them."""
    if len(ids) <= max_len:
        return list(ids), ""
    note = f"only the first {max_len:,} of {len(ids):,} tokens are read: the model's max_len"
    return list(ids[:max_len]), note


def run_facts(
    run: Path,
    model: LanguageModel | Seq2SeqModel | SupervisedModel | Word2Vec,
    tokenizer: Tokenizer,
) -> list[tuple[str, object]]:
    """What a run is, from its own files: model, size, tokens and the figures it was measured at."""
    name, vocab_size, config = read_config(run)
    counting = isinstance(model, CountingFit | FittedModel)
    size = sum(t.numel() for t in (model.buffers() if counting else model.parameters()))
    facts: list[tuple[str, object]] = [
        ("model", name),
        ("numbers stored" if counting else "parameters", size),
        ("tokens", tokenizer.kind),
        ("vocabulary", vocab_size),
    ]
    for key, label in SHAPE:
        if getattr(config, key, 0):
            whose = "decoder " if key == "n_layers" and hasattr(config, "n_encoder_layers") else ""
            facts.append((whose + label, getattr(config, key)))
    if hasattr(config, "max_len"):
        facts.append(("context", config.max_len))
    stored = read_metadata(run)
    for key, label in (("imported_from", "imported from"), ("steps", "steps")):
        if key in stored:
            facts.append((label, stored[key]))
    for side, words in (("valid", "validation"), ("test", "test")):
        measured = stored.get("metrics", {}).get(side, {})
        facts += measured_facts(measured, words)
        for target, found in measured.get("targets", {}).items():
            led = {key: figure for key, figure in found.items() if key in OF_TARGET}
            facts += measured_facts(led, f"{words}, {target}")
    return facts


def measured_facts(measured: dict[str, Any], words: str) -> list[tuple[str, object]]:
    """Stored figures and what they are of: the split or target in `words`, and the class."""
    facts: list[tuple[str, object]] = []
    for key, label, digits in FIGURES:
        figure = measured.get(key)
        if figure:
            of = f" of {figure['class']}" if figure.get("class") else ""
            facts.append((f"{label}{of}, {words}", figure_words(figure, digits)))
    return facts


def enough(run: Path, held: tuple[str, Shard]) -> tuple[str, Shard]:
    """Records to look at, though not to measure on: those held out or, where these are few, those
    of training; with the name of their side.
    """
    shard = held[1]
    if shard.records // shard.views >= FEW:
        return held
    corpus = reopen(run)
    return ("train", corpus.train) if corpus.train.records > shard.records else held


def agreement_of(run: Path, model: Seq2SeqModel, say: Callable[[str], object]) -> Agreement | None:
    """How well the heads of a run's translator align: as its facts say, or else judged now; None
    where it has no heads, or no data to judge by.
    """
    stored = read_metadata(run).get("alignment")
    if stored is not None:
        config = model.config
        heads = (config.n_layers, config.n_heads) if hasattr(config, "n_heads") else (1, 1)
        try:
            found = Agreement.from_json(stored)
            if np.shape(found.per_head) != heads:
                raise ValueError(f"alignment must be of {heads[0]} layers of {heads[1]} heads")
            return found
        except ValueError as error:
            raise UserError(f"{run / FACTS} is damaged: {error}") from None
    if not (run / FOLDER / MANIFEST).exists():
        return None
    corpus = reopen(run)
    if corpus.train.source is None or corpus.train.vocab_size != model.vocab_size:
        return None
    judging = "the run does not say which head aligns: judging it now"
    return agreement(model, corpus.train, corpus.valid, begins=lambda: say(judging))


def figure_words(figure: dict[str, Any], digits: int = 3) -> str:
    """A stored figure with its 95% interval."""
    if figure.get("undefined"):
        return f"undefined ({figure['undefined']})"
    if figure.get("value") is None:
        return f"infinite ({figure.get('impossible', 0):,} impossible)"
    value, low, high = (figure.get(key, figure["value"]) for key in ("value", "low", "high"))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
