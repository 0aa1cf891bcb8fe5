"""Choosing for a user who gave pictures with captions: tokens of both, size, changes, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from regard.data.captions import Captions
from regard.recipe import TrainRecipe
from regard.registry import family
from regard.train.choose_images import CHANGES, LOOKED, MANY, Looked, cut, sized, where

WORDY = 0.08  # spaces per character from which captions have words,
LEAST = 20_000  # and characters from which parts of words can be learned
PER_TOKEN = 40  # characters for one token of the vocabulary: captions are short, and words few
LARGEST = 8_000  # tokens


@dataclass
class Said:
    """What the first captions are like."""

    characters: int = 0
    spaces: int = 0
    longest: int = 0  # characters
    words: int = 0  # of the one that has most


def look(source: Captions) -> tuple[Looked, Said]:
    """The first pictures and what is said of them."""
    seen, said = Looked(), Said()
    for chunk in source.examples():
        seen.add(chunk.sources)
        for text in chunk.texts:
            said.characters += len(text)
            said.spaces += text.count(" ")
            said.longest = max(said.longest, len(text))
            said.words = max(said.words, text.count(" ") + 1)
        if seen.records >= LOOKED:
            seen.whole = False
            break
    return seen, said


def choose_captions(result: dict[str, Any], source: Captions) -> tuple[dict[str, Any], list[str]]:
    """The tables with everything chosen that was left open, and two lines that say what and why."""
    seen, said = look(source)
    tokens, model = result.setdefault("tokens", {}), result.setdefault("model", {})
    train = result.setdefault("train", {})
    result.setdefault("data", {})["format"] = source.format
    tokens["source"] = "patches"
    patches, length = cut(tokens, seen)
    text = choose_tokens(tokens, said)
    first = (
        f"data: {source.format} ({source.why}), {'' if seen.whole else 'more than '}"
        f"{seen.records:,} of {seen.shown}, {said.characters:,} characters of captions → task "
        f"target, {patches}, captions as {text}"
    )
    return result, [first, size_captioner(model, train, tokens["kind"], seen, said, length)]


def choose_tokens(tokens: dict[str, Any], said: Said) -> str:
    """Fill in kind and size of the captions' tokens where they are open; what, and why."""
    why = "as asked"
    if tokens.get("kind", "auto") == "auto":
        wordy = said.spaces > WORDY * said.characters
        parts = wordy and said.characters >= LEAST
        tokens["kind"] = "bpe" if parts else "words" if wordy else "characters"
        why = "parts of words" if parts else "few words" if wordy else "no words"
    if tokens["kind"] == "bpe" and not tokens.get("size"):
        tokens["size"] = max(512, min(LARGEST, said.characters // PER_TOKEN // 8 * 8))
    of = f" of {tokens['size']:,}" if tokens.get("size") else ""
    return f"{tokens['kind']}{of} ({why})"


def size_captioner(
    model: dict[str, Any],
    train: dict[str, Any],
    kind: str,
    seen: Looked,
    said: Said,
    length: int,
) -> str:
    """Fill in depth, width and how it is trained where they are open; the line that says so.
    Pictures have `length` tokens.
    """
    model.setdefault("name", "transformer")
    name = model["name"]
    fields = family(name, "target", "patches").Config.__dataclass_fields__
    longest = 2 * said.words if kind == "words" else said.longest  # punctuation is a word too
    model.setdefault("max_len", max(16, min(512, -(-(longest + 2) // 16) * 16)))
    if "d_model" not in fields:
        return f"model: {name}: nothing to size"
    n_layers, d_model, words = sized(model, seen)
    shape = f"{n_layers} + {n_layers} × {d_model}{words}" if words else "as asked"
    train.setdefault("label_smoothing", 0.1)
    train.setdefault("average", 5)
    if not any(key in train for key in CHANGES):
        train |= CHANGES
    each = said.characters / max(1, seen.records) / {"characters": 1, "bytes": 1}.get(kind, 5)
    if "batch_tokens" not in train:  # of captions, so that MANY pictures are seen
        many = MANY * (4 if where() == "a GPU" and seen.records > 2_000 else 1)
        train["batch_tokens"] = max(64, round(many * (each + 1)))
    longer = 2 * model["max_len"] + length
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, longer))
    changed = ", ".join(f"{key} {train[key]:g}" for key in CHANGES if train.get(key))
    return (
        f"model: {name} {shape}, {length} patches to look at, context {model['max_len']}; pictures "
        f"changed by {changed or 'nothing'}, label smoothing {train['label_smoothing']:g}"
    )
