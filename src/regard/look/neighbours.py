"""Held-out records as points: their vectors in the plane, and those nearest to a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.columns import Array
from regard.data.filling import Ints
from regard.data.questions import Asked
from regard.data.shards import Shard
from regard.data.targets import Targets
from regard.examiner import Examiner

from .page import Page, Scatter, Table
from .page.component import cell
from .plane import distances, principal, tsne

MOST_POINTS = 1000  # in the plane
NEAREST = 8  # records listed beside a text
CONTEXT = 8  # tokens on either side of a position that are quoted
FEWEST = 5  # points that make a picture


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points (N, D), what each is, and its groups or values."""

    vectors: NDArray[np.float64]
    texts: list[str]
    groups: list[str]
    values: list[float]


def spread(count: int, most: int) -> Ints:
    """At most so many of `count` records, evenly spread over them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def add_plane(page: Page, examiner: Examiner, shard: Shard, side: str, text: str) -> None:
    """Vectors of held-out records in the plane, and those nearest to a text, if there is one."""
    each = examiner.targets.task == "position-label"
    cloud = positions_of(examiner, shard) if each else records_of(examiner, shard)
    if len(cloud.vectors) < FEWEST:
        return
    own = None if each or not text else np.asarray(examiner.embed([text]), np.float64)  # (1, D)
    whole = cloud.vectors if own is None else np.concatenate([cloud.vectors, own])
    coordinates, directions, parts = principal(cloud.vectors)
    if own is not None:
        there = (own - cloud.vectors.mean(0)) @ directions.T
        coordinates = np.concatenate([coordinates, there])
    marks, near = {}, []
    if own is not None:
        squares = distances(own, cloud.vectors)[0]
        near = np.argsort(squares, kind="stable")[:NEAREST].tolist()
        marks = {i: str(n + 1) for n, i in enumerate(near)} | {len(cloud.vectors): "this text"}
    what, also = (
        "positions" if each else "records",
        "" if own is None else ", the text by its answer",
    )
    page.section(
        "Records in the plane" if not each else "Positions in the plane",
        f"Each point is the vector that the answer to one of {len(cloud.vectors):,} {what} of the "
        f"{side} part is read off, coloured by its truth{also}. Principal components keep "
        "directions and distances as well as two numbers can. t-SNE (van der Maaten & Hinton 2008, "
        "perplexity 30) keeps neighbours together; there the axes, sizes and gaps between clusters "
        "mean nothing.",
    )
    first, second = (
        f"component {i + 1}, {part:.0%} of the variance" for i, part in enumerate(parts)
    )
    groups, values = cloud.groups, cloud.values
    if own is not None:  # it has the colour of what is said of it
        (said,) = examiner.classify([text])
        groups = [*groups, said.label or "none"] if groups else groups
        values = [*values, next(iter(said.scores.values()))] if values else values
    shared: dict[str, Any] = {
        "texts": [*cloud.texts, *([text] if own is not None else [])],
        "groups": groups,
        "values": values,
        "marks": marks,
        "unit": examiner.targets.names[0],
    }
    linear: dict[str, Any] = {"title": "Principal components", "x_label": first, "y_label": second}
    page.add(
        Scatter(coordinates, **linear, **shared), Scatter(tsne(whole), title="t-SNE", **shared)
    )
    if own is not None:
        page.add(nearest(cloud, near, np.sqrt(squares)))


def nearest(cloud: Cloud, near: Sequence[int], away: NDArray[np.float64]) -> Table:
    """The records nearest to a text."""
    truths = cloud.groups or [cell(value) for value in cloud.values]
    rows = [[n + 1, cloud.texts[i], truths[i], float(away[i])] for n, i in enumerate(near)]
    return Table(
        ["", "text", "truth", "distance"],
        rows,
        align=["right", "left", "left", "right"],
        title="The records nearest to this text",
    )


def records_of(examiner: Examiner, shard: Shard) -> Cloud:
    """Records of a shard as points."""
    tokenizer = examiner.tokenizer
    asked = Asked(shard, tokenizer, int(examiner.model.config.max_len), first=True)
    records = spread(len(asked.sizes), MOST_POINTS)
    vectors = np.array(examiner.vectors(shard, records), np.float64)
    texts = []
    for record in records * shard.views:
        parts = [shard.record(int(record))]
        if shard.source is not None:
            parts.append(shard.source.record(int(record)))
        texts.append(" | ".join(tokenizer.decode(part[1:-1]) for part in parts))
    groups, values = truths_of(asked.targets[records], examiner.targets)
    return Cloud(vectors, texts, groups, values)


def positions_of(examiner: Examiner, shard: Shard) -> Cloud:
    """Positions of the records of a shard as points."""
    tokenizer = examiner.tokenizer
    asked = Asked(shard, tokenizer, int(examiner.model.config.max_len), first=True)
    records = spread(len(asked.sizes), MOST_POINTS)
    inside = np.maximum(asked.lengths[records] - 2, 0)  # without the markers
    enough = int(np.searchsorted(np.cumsum(inside), 4 * MOST_POINTS)) + 1
    records, inside = records[:enough], inside[:enough]
    found = np.concatenate(examiner.vectors(shard, records, positions=True)).astype(np.float64)
    record = np.repeat(np.arange(len(records)), inside)
    place = np.arange(len(record)) - np.repeat(np.cumsum(inside) - inside, inside)  # from 0
    at = asked.starts[records][record] + 1 + place  # in the shard
    chosen = np.flatnonzero(asked.targets[at] >= 0)
    chosen = chosen[spread(len(chosen), MOST_POINTS)] if len(chosen) else chosen
    texts = []
    for i in chosen:
        ids = shard.record(int(records[record[i]]))[1:-1]
        before, after = ids[max(0, place[i] - CONTEXT) : place[i]], ids[place[i] + 1 :][:CONTEXT]
        here = tokenizer.decode(ids[place[i] : place[i] + 1])
        texts.append(f"{tokenizer.decode(before)}[{here}]{tokenizer.decode(after)}")
    classes = examiner.targets.classes[0]
    return Cloud(found[chosen], texts, [classes[k] for k in asked.targets[at[chosen]]], [])


def truths_of(truths: Array, targets: Targets) -> tuple[list[str], list[float]]:
    """The truths (N,) or (N, O) of records: names of groups, or the values of the first column."""
    if targets.task == "value":
        return [], truths[:, 0].astype(float).tolist()
    if targets.task == "labels":
        names = np.array(targets.names)
        return [",".join(names[row == 1]) or "none" for row in truths], []
    classes = targets.classes[0]
    return [classes[k] if k >= 0 else "unknown" for k in truths], []
