"""The film of training as the screen Read shows it: one record, all records as points of the plane,
and what each head of attention does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.data.shards import Array, Shard
from regard.errors import UserError
from regard.evaluation.eval_data import open_corpus
from regard.look.page import ItemPicture
from regard.look.records import draw_picture, has_picture
from regard.studio.reading import Reader, title_of
from regard.studio.screens import figure
from regard.studio.wire import column_json
from regard.training.film import SUMMARY, Film, filmed_split

MEASURES = {
    "bits": "entropy, in bits",
    "offset": "distance, in positions",
    "first": "weight on the first position",
    "previous": "weight on the position before",
}  # of a head
LONGEST_NAME = 80  # characters


def record_json(film: Film, reader: Reader, split: Shard | None, number: int) -> dict[str, Any]:
    """Return the frames of one record: its tokens, what was expected at its positions, and the
    number of the true output there.
    """
    if not 0 <= number < len(film.records):
        raise UserError(f"number must be from 0 to {len(film.records) - 1}, got {number}")
    top = film.top_ids[:, number].int().numpy()  # (F, P, K)
    ids = tokens_of(film, number)
    known = sorted({int(i) for i in top.ravel()})
    targets = None if split is None else targets_of(split, int(film.records[number]))
    return {
        "steps": film.steps.tolist(),
        "records": len(film.records),
        "tokens": [reader.tokenizer.text(i) for i in ids],
        "truths": reader.true_outputs(ids, targets),
        "predicts": reader.causal,
        "top": np.ascontiguousarray(top),
        "logs": np.ascontiguousarray(film.top_logs[:, number].float().numpy()),
        "names": {str(i): reader.output_name(i) for i in known},
        "picture": picture_of(reader, split, int(film.records[number])),
    }


def map_json(film: Film, reader: Reader, split: Shard | None) -> dict[str, Any]:
    """Return all records as points (F, R, 2), with their names and columns to colour them by; and
    what each head does (F, H), by measure and layer.
    """
    cells = {**true_columns(film, reader, split), **token_columns(film, reader)}
    columns = {name: column_json(column) for name, column in cells.items()}
    first = next(iter(columns.values()), {})
    points = film.points.float().numpy()
    return {
        "steps": film.steps.tolist(),
        "points": np.ascontiguousarray(points),
        "numbers": film.records.tolist(),
        "names": [name_of(film, reader, number) for number in range(len(film.records))],
        "columns": columns,
        "expected": most_expected(film, reader, first.get("names", [])),
        "layers": [{"name": name, "title": title_of(name)} for name in film.attention],
        "measures": MEASURES,
        "heads": {
            measure: [
                np.ascontiguousarray(x[..., SUMMARY.index(measure)].float().numpy())
                for x in film.attention.values()
            ]
            for measure in MEASURES
        },
    }


def split_of(reader: Reader) -> Shard | None:
    """Return the records that the film of a run numbers; None where its data are gone."""
    run = reader.pipeline.run
    if run is None:
        return None
    try:
        return filmed_split(open_corpus(run.path), int(reader.model.config.max_len))
    except UserError:
        return None


def picture_of(reader: Reader, split: Shard | None, record: int) -> dict[str, Any] | None:
    """Return a drawing of a record that is no text; None of texts, and without the data."""
    if split is None or reader.tokenizer.reads_text or not has_picture(reader.tokenizer):
        return None
    row = np.asarray(split.record(record * split.views))
    return figure(ItemPicture(draw_picture(reader.tokenizer, row)))


def tokens_of(film: Film, number: int) -> list[int]:
    """Return the first tokens of a record."""
    return [i for i in film.ids[number].tolist() if i >= 0]


def targets_of(split: Shard, record: int) -> Array | None:
    """Return the targets of a record, one for each token if they are aligned; None without any."""
    if split.targets is None:
        return None
    at = record * split.views
    if split.aligned:
        return np.asarray(split.targets[split.offsets[at] : split.offsets[at + 1]])
    return np.asarray(split.targets[at : at + 1])


def name_of(film: Film, reader: Reader, number: int) -> str:
    """Return the beginning of a record, without markers."""
    ids = [i for i in tokens_of(film, number) if i not in reader.tokenizer.names]
    text = str(reader.tokenizer.decode(ids)) if ids else ""
    return text[:LONGEST_NAME] or f"record {int(film.records[number]) + 1}"


def true_columns(
    film: Film, reader: Reader, split: Shard | None
) -> Mapping[str, Sequence[str] | Sequence[float]]:
    """Return the targets of the records."""
    if split is None or split.targets is None or split.aligned:
        return {}
    return reader.target_columns(np.asarray(split.targets)[film.records.numpy() * split.views])


def token_columns(film: Film, reader: Reader) -> Mapping[str, Sequence[str] | Sequence[float]]:
    """Return the first token of each record, and how many tokens the film has of it."""
    tokens = [tokens_of(film, number) for number in range(len(film.records))]
    inside = [[i for i in ids if i not in reader.tokenizer.names] for ids in tokens]
    if not any(inside):
        return {}
    firsts = [reader.tokenizer.text(ids[0]) if ids else "" for ids in inside]
    return {"first token": firsts, "tokens": [float(len(ids)) for ids in inside]}


def most_expected(film: Film, reader: Reader, order: Sequence[str]) -> dict[str, Any] | None:
    """Return the most probable output (F, R) of each record, named in this order; None of models
    that predict at each position.
    """
    if film.top_ids.size(2) > 1 or film.top_ids.size(3) < 2:  # of values there is only one
        return None
    best = film.top_ids[:, :, 0, 0].int().numpy()
    by_number = {int(i): reader.output_name(int(i)) for i in np.unique(film.top_ids.numpy())}
    names = sorted(set(by_number.values()), key=lambda name: [*order, name].index(name))
    codes = np.vectorize(lambda i: names.index(by_number[i]), otypes=[np.int32])(best)
    return {"names": names, "codes": codes}
