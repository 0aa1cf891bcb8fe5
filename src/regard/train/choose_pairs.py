"""Choosing for a user who gave pairs and nothing else: tokens, size, regularisation, and why."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from regard.data.captions import Captions
from regard.data.pairs import Pairs, looks_paired
from regard.data.sides import Sources
from regard.recipe import DataRecipe, check
from regard.registry import family
from regard.train.choose_captions import choose_captions

SAMPLE = 4_000_000  # characters looked at, of both sides
WORDY = 0.08  # spaces per character from which a text has words,
LEAST = 300_000  # and characters of both sides from which subwords can be learned
PER_TOKEN = 400  # characters of both sides for one token of the vocabulary
# Up to so many characters of both sides: (layers of each stack, width, dropout), CPU and GPU.
SIZES = (
    (1_500_000, (2, 128, 0.1), (3, 192, 0.1)),
    (12_000_000, (3, 192, 0.1), (4, 256, 0.3)),
    (100_000_000, (4, 256, 0.1), (6, 512, 0.2)),
    (math.inf, (4, 256, 0.0), (6, 512, 0.1)),
)


@dataclass
class Looked:
    """What the first pairs are like."""

    pairs: int = 0
    characters: int = 0
    spaces: int = 0
    longest: int = 0  # characters of a side
    whole: bool = True  # was that all?


def choose_pairs(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    pairs = Sources(data, "target").train
    if isinstance(pairs, Captions):
        return choose_captions(result, pairs)
    assert isinstance(pairs, Pairs)
    seen = look(pairs)
    total = seen.characters
    if not seen.whole:
        total = max(
            total, round(pairs.size * (3 if ".gz" in pairs.files[0].suffixes else 1) / 1.05)
        )
    count = round(seen.pairs * total / max(1, seen.characters))
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = pairs.format
    said = choose_tokens(tokens, seen, total)
    why = looks_paired(pairs.files) or pairs.why
    first = (
        f"data: pairs ({why}), about {count:,} of them, {total:,} characters → task target, {said}"
    )
    second = size_translator(model, tokens["kind"], seen, total)
    if "dropout" in model:  # it learns by gradients
        train.setdefault("label_smoothing", 0.1)
        train.setdefault("average", 5)
        second += f", label smoothing {train['label_smoothing']:g}"
    return result, [first, second]


def look(pairs: Pairs) -> Looked:
    """The first pairs, counted."""
    seen = Looked()
    for chunk in pairs.records():
        for texts in (chunk.texts, chunk.sources):
            assert texts is not None
            seen.characters += sum(map(len, texts))
            seen.spaces += sum(text.count(" ") for text in texts)
            seen.longest = max(seen.longest, max(map(len, texts)))
        seen.pairs += len(chunk)
        if seen.characters > SAMPLE:
            seen.whole = False
            break
    return seen


def choose_tokens(tokens: dict[str, Any], seen: Looked, total: int) -> str:
    """Fill in kind and size where they are open; what they are, and why."""
    why = "as asked"
    if tokens.get("kind", "auto") == "auto":
        wordy = seen.spaces > WORDY * seen.characters and total >= LEAST
        long = seen.longest > 200
        tokens["kind"] = "bpe" if wordy or (long and total >= LEAST) else "characters"
        why = "sentences of words" if tokens["kind"] == "bpe" else "short, or few"
    if tokens["kind"] == "bpe" and not tokens.get("size"):
        tokens["size"] = max(512, min(32_000, total // PER_TOKEN // 8 * 8))
    of = f" of {tokens['size']:,}" if tokens.get("size") else ""
    sides = "for both sides" if tokens.get("joint", True) else "for each side"
    return f"{tokens['kind']}{of} {sides} ({why})"


def size_translator(model: dict[str, Any], kind: str, seen: Looked, total: int) -> str:
    """Fill in depth, width, context and dropout where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name, gpu = model["name"], torch.cuda.is_available()
    fields = family(name, "target").Config.__dataclass_fields__
    if "max_len" in fields and "max_len" not in model:
        longest = seen.longest + 1 if kind == "characters" else seen.longest // 2
        model["max_len"] = max(64, min(512, -(-longest // 16) * 16))
    if "d_model" not in fields:
        return f"model: {name}: counts; nothing to size"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in SIZES if total < most)
    n_layers, d_model, dropout = large if gpu else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    if "dropout" in fields:
        model.setdefault("dropout", dropout)
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = f"{n_layers} + {n_layers} × {d_model}, sized for {total:,} characters and {where}"
    sized = "as asked" if given else sized
    return f"model: {name} {sized}, context {model['max_len']}"
