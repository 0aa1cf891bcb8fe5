"""Choosing for a user who gave labelled records: tokens, size, regularisation, and why."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.data.clouds import Clouds
from regard.data.labelled import Labelled
from regard.data.pictures import Pictures
from regard.data.readers import Files
from regard.data.sides import Sources
from regard.recipe import DataRecipe, check
from regard.registry import family
from regard.tokens.nucleotides import AMBIGUOUS, GAP
from regard.tokens.smiles import written_as_smiles
from regard.train.choose_images import choose_images
from regard.train.choose_points import choose_points

SAMPLE = 2_000_000  # characters looked at
WORDY = 0.08  # spaces per character from which a text has words
BASES, RARE = "ACGTU", 0.05  # letters of DNA and RNA, and how much else may be among them
FIRST, MOLECULES = 200, 10  # records tried as SMILES, and how many there must be
RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
# Up to so many records: (layers, width, dropout), on a CPU and on a GPU.
SIZES = (
    (500, (1, 64, 0.3), (1, 64, 0.3)),
    (5_000, (2, 96, 0.3), (2, 128, 0.3)),
    (50_000, (2, 128, 0.3), (4, 256, 0.3)),
    (math.inf, (4, 192, 0.1), (6, 384, 0.2)),
)


@dataclass
class Looked:
    """What the first records are like."""

    records: int = 0
    characters: Counter[str] = field(default_factory=Counter)
    longest: int = 0
    words: int = 0  # of the longest
    whole: bool = True  # was that all?
    first: list[str] = field(default_factory=list)  # a few of them

    @property
    def total(self) -> int:
        """Characters."""
        return sum(self.characters.values())

    @property
    def molecules(self) -> bool:
        """Are the first records SMILES, and more than chains of a few letters?"""
        if len(self.first) < MOLECULES or not any(set("=#()[") & set(text) for text in self.first):
            return False
        read = sum(map(written_as_smiles, self.first))
        return read >= (1 - RARE) * len(self.first)

    def share(self, letters: str) -> float:
        """Of the characters, those that are among these letters or the same in lower case."""
        found = sum(n for c, n in self.characters.items() if c.upper() in letters)
        return found / max(1, self.total)


def choose_labelled(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    source = Sources(data, result["task"]).train
    if isinstance(source, Pictures):
        return choose_images(result, source)
    if isinstance(source, Clouds):
        return choose_points(result, source)
    assert isinstance(source, Labelled)
    seen = look(source)
    count = seen.records
    if not seen.whole:
        count = max(count, round(source.size / max(1, seen.total) * seen.records))
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    why = choose_tokens(
        tokens, seen, smiles=source.format == "smi" or "smiles" in data.input.lower()
    )
    first = (
        f"data: {source.format} ({source.why}), about {count:,} records → task {result['task']}, "
        f"{tokens['kind']} ({why})"
    )
    second = size_assessor(model, result["task"], tokens["kind"], seen, count)
    if result["task"] == "label":
        train.setdefault("label_smoothing", 0.1)
    return result, [first, second]


def look(source: Files) -> Looked:
    """The first records, counted."""
    seen = Looked()
    for chunk in source.records():
        for text, more in zip(chunk.texts, chunk.sources or [""] * len(chunk.texts), strict=True):
            both = text + (" " + more if more else "")
            seen.characters.update(both)
            seen.longest = max(seen.longest, len(both))
            seen.words = max(seen.words, both.count(" ") + 1)
        seen.records += len(chunk.texts)
        seen.first += chunk.texts[: FIRST - len(seen.first)]
        if seen.total > SAMPLE:
            seen.whole = False
            break
    return seen


def choose_tokens(tokens: dict[str, Any], seen: Looked, *, smiles: bool) -> str:
    """Fill in the kind where it is open; why it is that."""
    if tokens.get("kind", "auto") != "auto":
        return "as asked"
    spaces = seen.characters[" "] / max(1, seen.total)
    kind, why = "characters", f"an alphabet of {len(seen.characters)} characters"
    if smiles:
        kind, why = "smiles", "the column says so"
    elif seen.molecules:
        kind, why = "smiles", "the texts are SMILES of molecules"
    elif spaces > WORDY:
        kind, why = "words", "text of words"
    elif seen.share(BASES) > 1 - RARE and seen.share(BASES + AMBIGUOUS + GAP) == 1:
        kind, why = "nucleotides", "all letters are of DNA or RNA"
    elif seen.share(RESIDUES) > 1 - RARE and len(seen.characters) > len(BASES):
        kind, why = "residues", "nearly all letters are amino acids"
    tokens["kind"] = kind
    return why


def size_assessor(model: dict[str, Any], task: str, kind: str, seen: Looked, records: int) -> str:
    """Fill in depth, width, context and dropout where they are open; the line that says so."""
    model.setdefault("name", "transformer")
    name, gpu = model["name"], torch.cuda.is_available()
    fields = family(name, task).Config.__dataclass_fields__
    if "max_len" not in model:
        longest = 2 * seen.words if kind == "words" else seen.longest  # punctuation is a word too
        model["max_len"] = max(16, min(1024, -(-(longest + 3) // 16) * 16))
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go, context {model['max_len']}"
    given = [key for key in ("size", "n_layers", "d_model") if key in model]
    small, large = next((one, two) for most, one, two in SIZES if records < most)
    n_layers, d_model, dropout = large if gpu else small
    if not given:
        model["n_layers"], model["d_model"] = n_layers, d_model
    if "dropout" in fields:
        model.setdefault("dropout", dropout)
    where = "a GPU" if gpu else f"{os.cpu_count() or 1} CPU cores"
    sized = "as asked" if given else f"{n_layers} × {d_model}, for {records:,} records and {where}"
    return f"model: {name} {sized}, context {model['max_len']}"
