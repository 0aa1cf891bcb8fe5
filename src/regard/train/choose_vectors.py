"""Choosing for a user who wants word vectors: tokens, passes, learning rate, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regard.data.sides import Sources
from regard.recipe import DataRecipe, check
from regard.train.choose_labelled import choose_tokens, look
from regard.train.choose_masked import look_at_text

WIDTH = 100  # of a vector, as gensim's; `regard lab dimensions` shows what more would give
ENOUGH = 40_000_000  # words that are read in all, ...
PASSES = 5, 50  # ... in at least and at most so many passes
EVERY_WORD = 1 << 20  # words that a vocabulary may hold: model.min_count leaves the rare ones out
STEP, LEAST = 1 << 16, 1 << 11  # tokens between two mergings, of large files and of small ones
MERGINGS = 20  # in a pass over a small file
# Skip-gram's is the authors'. CBOW's steps go down the exact gradient of a mean, and so must be
# longer; this was the best of 0.025, 0.075 and 0.15 on WikiText-2.
RATES = {"skipgram": 0.025, "cbow": 0.15}
SEPARATED = 6  # characters of a word and the space after it, about


def choose_vectors(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    result: dict[str, Any] = {
        k: dict(v) if isinstance(v, Mapping) else v for k, v in values.items()
    }
    data: DataRecipe = check("data", DataRecipe, result.get("data", {}))
    source = Sources(data, "vectors").train
    seen = look_at_text(source) if source.format == "text" else look(source)
    total = seen.total if seen.whole else max(seen.total, source.size)
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    smiles = source.format == "smi" or "smiles" in data.input.lower()
    why = choose_tokens(tokens, seen, smiles=smiles)
    if tokens["kind"] == "nucleotides" and why != "as asked":
        tokens["kind"], why = "kmers", "words of bases: four letters alone have little to say"
    if tokens["kind"] == "words":
        tokens.setdefault("size", EVERY_WORD)
    name = model.setdefault("name", "skipgram")
    words = max(1, total // (SEPARATED if tokens["kind"] in ("words", "bpe") else 1))
    width = model.setdefault("d_model", 64 * model["size"] if "size" in model else WIDTH)
    train.setdefault("lr", RATES[name])
    train.setdefault("warmup", 0.0)
    train.setdefault("batch_tokens", min(STEP, max(LEAST, words // MERGINGS)))
    first = (
        f"data: {source.format} ({source.why}), about {total:,} characters → task vectors, "
        f"{tokens['kind']} ({why})"
    )
    return result, [first, f"model: {name} of {width} numbers, {passes(model, train, words)}"]


def passes(model: dict[str, Any], train: Mapping[str, Any], words: int) -> str:
    """Fill in how many passes where it is open; in words."""
    if train.get("steps"):
        return f"{train['steps']:,} steps, as asked"
    if model.get("epochs"):
        return f"{model['epochs']:,} passes, as asked"
    if train.get("minutes"):
        return f"{train['minutes']:g} minutes, as asked"
    least, most = PASSES
    model["epochs"] = min(most, max(least, round(ENOUGH / words)))
    return f"{model['epochs']} passes over about {words:,} words (model.epochs changes that)"
