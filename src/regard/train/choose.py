"""Choosing for a user who gave a file and nothing else: format, tokens, size, budget, and why.

Only what was not asked for is chosen. The rules are few and were set on validation data: characters for small
alphabets; a model whose size follows the data, since a small file is soon memorised; dropout where it will be seen
many times.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.data.corpus import Sources
from regard.data.inspection import suggest
from regard.recipe import DataRecipe, check
from regard.registry import family

SAMPLE = 4_000_000  # characters looked at


def choose(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()}
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    sources = Sources(data)
    source = sources.train
    lengths, characters = sample(sources)
    seen = sum(lengths)
    spaces = characters.get(" ", 0) / max(1, seen)
    total = estimate(sources, seen, characters)
    result.setdefault("data", {})["format"] = source.format
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    hint = suggest(total, len(characters), spaces)
    if tokens.get("kind", "auto") == "auto":
        tokens["kind"] = hint.tokens
    model.setdefault("name", "transformer")
    longest = max(lengths, default=1) + 1
    records = "running text" if source.format == "text" else "one record each"
    first = (
        f"data: {source.format} ({source.why}), about {total:,} characters of {len(characters)} kinds, {records}"
        f" → {tokens['kind']}"
    )
    second = size_model(model, source.format == "text", total, longest, lengths, tokens["kind"])
    return result, [first, second]


def sample(sources: Sources) -> tuple[list[int], dict[str, int]]:
    """Lengths of the first records (or stretches of text) and how often each character occurs in them."""
    lengths: list[int] = []
    counts: dict[str, int] = {}
    taken = 0
    source = sources.train
    texts = source.text() if source.format == "text" else (t for c in source.records() for t in c.texts)
    for text in texts:
        text = text[: SAMPLE - taken]
        for character in set(text) if len(text) < 64 else sorted(set(text)):
            counts[character] = counts.get(character, 0) + text.count(character)
        lengths.append(len(text))
        taken += len(text)
        if taken >= SAMPLE:
            break
    return lengths, counts


def estimate(sources: Sources, seen: int, characters: Mapping[str, int]) -> int:
    """About how many characters there are in all: exact for what was read whole, else from the bytes on disk."""
    if seen < SAMPLE:
        return seen
    bytes_each = sum(len(c.encode("utf-8", "replace")) * n for c, n in characters.items()) / max(1, seen)
    packed = 3 if any(Path(f).suffix == ".gz" for f in sources.train.files) else 1
    return max(seen, int(sources.train.size * packed / bytes_each))


def size_model(
    model: dict[str, Any], text: bool, total: int, longest: int, lengths: list[int], kind: str
) -> str:
    """Fill in depth, width, context and dropout where they are open; the line that says so."""
    name = model["name"]
    fields = family(name).Config.__dataclass_fields__
    gpu = torch.cuda.is_available()
    if "max_len" in fields and "max_len" not in model:
        most = 1024 if gpu else 256
        model["max_len"] = most if text else max(16, min(most, -(-longest // 16) * 16))
    if "d_model" not in fields:
        return f"model: {name}: counts, exactly; nothing to size"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    if not given:
        layers, width = shape(total, gpu)
        model |= {"n_layers": layers, "d_model": width}
    if "dropout" not in model and total < 3_000_000:
        model["dropout"] = 0.1
    threads = os.cpu_count() or 1
    where = "a GPU" if gpu else f"{threads} CPU cores"
    sized = "as asked" if given else f"sized for {total:,} characters and {where}"
    shown = f"{model.get('n_layers', '')} × {model.get('d_model', '')}" if not given else ""
    return (
        f"model: {name} {shown} {sized}, context {model['max_len']}, dropout {model.get('dropout', 0.0)}"
    ).replace("  ", " ")


def shape(total: int, gpu: bool) -> tuple[int, int]:
    """Layers and width for so many characters: a step up for every tenfold, two more on a GPU."""
    ladder = [(2, 64), (3, 96), (4, 128), (5, 192), (6, 256), (6, 384), (8, 512), (12, 768)]
    rung = 0 if total < 20_000 else 1 if total < 100_000 else 2 if total < 3_000_000 else 3
    rung = rung if total < 30_000_000 else 4
    return ladder[min(len(ladder) - 1, rung + (3 if gpu else 0))]



