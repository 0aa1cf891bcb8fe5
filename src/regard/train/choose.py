"""Choosing for a user who gave a file and nothing else: format, tokens, size, budget, and why.

Only what was not asked for is chosen. The rules are few and were set on validation data: characters
for small alphabets; a model whose size follows the data, since a small file is soon memorised;
dropout where it will be seen many times.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from regard.data.inspection import suggest
from regard.data.sides import Sources
from regard.data.targets import LABELLED
from regard.models.assessor import FittedAssessor
from regard.models.sizing import Shape, suited
from regard.recipe import DataRecipe, TrainRecipe, check
from regard.registry import family
from regard.train.choose_labelled import choose_labelled
from regard.train.choose_masked import choose_masked
from regard.train.choose_pairs import choose_pairs
from regard.train.choose_vectors import choose_vectors

SAMPLE = 4_000_000  # characters looked at
# Up to so many characters: (layers, width, dropout) on a CPU, and on a GPU. A small file is seen
# many times in minutes, and what would be memorised must be kept small and disturbed.
SIZES = (
    (20_000, (2, 64, 0.2), (2, 64, 0.2)),
    (100_000, (3, 64, 0.2), (3, 64, 0.2)),
    (400_000, (8, 64, 0.25), (8, 64, 0.25)),
    (3_000_000, (4, 128, 0.1), (6, 384, 0.2)),
    (30_000_000, (5, 192, 0.0), (8, 512, 0.1)),
    (math.inf, (6, 256, 0.0), (12, 768, 0.0)),
)
STATES = 64  # of a hidden Markov model: more gain little on small files and cost their square


def choose(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    if values.get("task") == "vectors":
        return choose_vectors(values)
    if values.get("task") in ("target", "masked", *LABELLED):
        own = {"target": choose_pairs, "masked": choose_masked}
        chosen, lines = own.get(values["task"], choose_labelled)(values)
        kind = chosen["tokens"].get("source") or chosen["tokens"]["kind"]
        if issubclass(family(chosen["model"]["name"], chosen["task"], kind), FittedAssessor):
            return chosen, lines
        return chosen, [lines[0], f"{lines[1]}, {budget(chosen['train'])}"]
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
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
        why = hint.why.partition(";")[0]
    else:
        why = "as asked"
    model.setdefault("name", "transformer")
    longest = max(lengths, default=1) + 1
    first = (
        f"data: {source.format} ({source.why}), about {total:,} characters of "
        f"{len(characters)} kinds → task next, {tokens['kind']} ({why})"
    )
    second = size_model(model, source.format == "text", total, longest, tokens["kind"])
    if {"d_model", "n_states"} & set(family(model["name"]).Config.__dataclass_fields__):
        second += f", {budget(result.get('train', {}))}"
    return result, [first, second]


def budget(train: Mapping[str, Any]) -> str:
    """How long it will train, in words."""
    if train.get("steps"):
        return f"{train['steps']:,} steps, as asked"
    if train.get("minutes"):
        return f"{train['minutes']:g} minutes, as asked"
    return f"{TrainRecipe().minutes:g} minutes (--minutes changes that)"


def sample(sources: Sources) -> tuple[list[int], dict[str, int]]:
    """Lengths of the first records (or stretches of text), and how often each character occurs."""
    lengths: list[int] = []
    counts: dict[str, int] = {}
    taken = 0
    source = sources.train
    texts = (
        source.text() if source.format == "text" else (t for c in source.records() for t in c.texts)
    )
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
    """About how many characters: exact for what was read whole, else from bytes on disk."""
    if seen < SAMPLE:
        return seen
    size = sum(len(c.encode("utf-8", "replace")) * n for c, n in characters.items())
    packed = 3 if any(Path(f).suffix == ".gz" for f in sources.train.files) else 1
    return max(seen, int(sources.train.size * packed * seen / size))


def size_model(model: dict[str, Any], text: bool, total: int, longest: int, kind: str) -> str:
    """Fill in depth, width, context and dropout where they are open; the line that says so."""
    name = model["name"]
    fields = family(name).Config.__dataclass_fields__
    gpu = torch.cuda.is_available()
    if "max_len" in fields and "max_len" not in model:
        most = 1024 if gpu else 256
        longest = 4 * longest if kind == "bytes" else longest  # a character is at most four bytes
        model["max_len"] = most if text else max(16, min(most, -(-longest // 16) * 16))
    if "n_states" in fields:
        if "size" not in model:
            model.setdefault("n_states", STATES)
        sized = f"of {model['n_states']} states" if "n_states" in model else "as asked"
        return f"model: {name} {sized}, passes until nothing is gained"
    if "alpha" in fields:
        order = "as asked" if model.get("order") else "by held-out likelihood"
        alpha = "as asked" if model.get("alpha", -1) >= 0 else "by evidence"
        return f"model: {name}: counts, exactly; order {order}, strength of the priors {alpha}"
    if "d_model" not in fields:
        return f"model: {name}: counts, exactly; nothing to size"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    own = suited(name, Shape(*shape(total, gpu)), model["max_len"])
    if not given:
        model["n_layers"], model["d_model"] = own.n_layers, own.d_model
    model.setdefault("dropout", own.dropout)
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = f"{own.n_layers} × {own.d_model}, sized for {total:,} characters and {where}"
    sized = "as asked" if given else sized
    return f"model: {name} {sized}, context {model['max_len']}, dropout {model['dropout']:g}"


def shape(total: int, gpu: bool) -> tuple[int, int, float]:
    """Layers, width and dropout for so many characters; a GPU affords more once there is data."""
    for most, small, large in SIZES:
        if total < most:
            return large if gpu else small
    raise AssertionError("the last border is infinite")
