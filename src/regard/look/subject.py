"""What a page is about: the text to read, cut to what the model sees, and the facts of its run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.data.readers import Source
from regard.errors import UserError
from regard.models.counts import CountingModel
from regard.models.language_model import LanguageModel
from regard.run import FACTS, read_config, read_json
from regard.tokens import Tokenizer


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
        source = Source([path])
        if source.format == "text":  # a model of records reads lines, whatever else they could be
            source = Source([path], format="lines")
        return next(chunk.texts[0] for chunk in source.records())
    source, text = Source([path], format="text"), ""
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


def run_facts(run: Path, model: LanguageModel, tokenizer: Tokenizer) -> list[tuple[str, object]]:
    """What a run is, from its own files: model, size, tokens and the figures it was measured at."""
    name, vocab_size, config = read_config(run)
    counting = isinstance(model, CountingModel)
    size = sum(t.numel() for t in (model.buffers() if counting else model.parameters()))
    facts: list[tuple[str, object]] = [
        ("model", name),
        ("numbers stored" if counting else "parameters", size),
        ("tokens", tokenizer.kind),
        ("vocabulary", vocab_size),
    ]
    for key, label in (("n_layers", "layers"), ("n_heads", "heads"), ("d_model", "width")):
        if hasattr(config, key):
            facts.append((label, getattr(config, key)))
    facts.append(("context", config.max_len))
    stored = read_json(run / FACTS) if (run / FACTS).exists() else {}
    if not isinstance(stored, dict):
        raise UserError(f"{run / FACTS} is damaged: it must hold a JSON object")
    for key, label in (("imported_from", "imported from"), ("steps", "steps")):
        if key in stored:
            facts.append((label, stored[key]))
    for side, words in (
        ("valid", "bits per symbol, validation"),
        ("test", "bits per symbol, test"),
    ):
        figure = stored.get("metrics", {}).get(side, {}).get("bits_per_symbol")
        if figure:
            facts.append((words, figure_words(figure)))
    return facts


def figure_words(figure: dict[str, Any]) -> str:
    """A stored figure with its 95% interval."""
    if figure.get("value") is None:
        return f"infinite ({figure.get('impossible', 0):,} impossible)"
    value, low, high = (figure.get(key, figure["value"]) for key in ("value", "low", "high"))
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"
