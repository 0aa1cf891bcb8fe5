"""Which records excite a unit or a head, as the screen Read lists them; see `activation_search`."""

from __future__ import annotations

import re
from typing import Any

from regard.look.activation_search import ActivationIndex, ActivationSearch, Excitation, searchable
from regard.look.records import split_at
from regard.pipelines import Pipeline
from regard.studio.reading import Given, Reader, title_of
from regard.tokenizers.spans import utf16_offsets

HEADS = "attention.heads"
WHAT = {
    "feedforward.hidden": "units of the feed-forward part",
    HEADS: "heads",
    "output": "residual stream",
}  # the names of activations within a block, those that are listed first
BLOCK = re.compile(r"(?:block|layer)\.\d+\.(.+)")


def activations_json(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Return the activations that can be searched, by layer."""
    shard = ActivationSearch(pipeline, HEADS).shard
    names = searchable(pipeline.model, pipeline.tokenizer, shard)
    rows = [describe(name) | {"name": name, "units": units} for name, units in names.items()]
    order = [*WHAT.values()]
    rank = {row["name"]: [*order, row["what"]].index(row["what"]) for row in rows}
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    return sorted(rows, key=lambda row: (layers.index(row["layer"]), rank[row["name"]]))


def describe(name: str) -> dict[str, Any]:
    """Return the layer of an activation, and what it is."""
    match = BLOCK.fullmatch(name)
    if match is None:
        return {"layer": "outside of the layers", "what": name, "heads": False}
    what = match[1]
    return {
        "layer": title_of(name),
        "what": WHAT.get(what, what.replace(".", ", ")),
        "heads": what == HEADS,
    }


def matches_json(index: ActivationIndex, reader: Reader, unit: int, count: int) -> dict[str, Any]:
    """Return the records that excite a unit most."""
    matches = index.search(unit, count)
    return {"note": index.note, "records": [match_json(index, reader, one) for one in matches]}


def match_json(index: ActivationIndex, reader: Reader, match: Excitation) -> dict[str, Any]:
    """Return a record as a text in three parts, and which of its tokens the second one is."""
    parts = split_at(reader.tokenizer, index.record(match.record), match.position)
    start = int(utf16_offsets(parts[0])[-1])
    text = "".join(parts)
    at, _ = reader.tokens(Given(text)).within(start, start + 1)
    return {
        "record": match.record,
        "position": match.position,
        "value": match.value,
        "parts": list(parts),
        "at": at,
    }
