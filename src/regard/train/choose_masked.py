"""Choosing for a user whose records are to be filled in: tokens, size and context, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from regard.data.readers import Files
from regard.data.sides import Sources
from regard.recipe import DataRecipe, check
from regard.train.choose_labelled import SAMPLE, Looked, choose_tokens, look, size_assessor

RECORD = 200  # characters of running text that count as a record
CONTEXT = {False: 128, True: 512}  # tokens read at once of running text, on a CPU and on a GPU


def choose_masked(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    source = Sources(data, "masked").train
    running = source.format == "text"
    seen = look_at_text(source) if running else look(source)
    count = seen.records
    if not seen.whole:
        count = max(count, round(source.size / max(1, seen.total) * seen.records))
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    smiles = source.format == "smi" or "smiles" in data.input.lower()
    why = choose_tokens(tokens, seen, smiles=smiles)
    what = f"about {seen.total:,} characters" if running else f"about {count:,} records"
    first = f"data: {source.format} ({source.why}), {what} → task masked, {tokens['kind']} ({why})"
    if running:
        model.setdefault("max_len", CONTEXT[torch.cuda.is_available()])
    return result, [first, size_assessor(model, "masked", tokens["kind"], seen, count)]


def look_at_text(source: Files) -> Looked:
    """The beginning of running text, counted as records of usual length."""
    seen = Looked()
    for text in source.text():
        seen.characters.update(text)
        if seen.total > SAMPLE:
            seen.whole = False
            break
    seen.records = max(1, seen.total // RECORD)
    return seen
