"""Which records of a run's corpus excite a unit or a head of its model most.

    index = open_index(regard.load(run), "block.1.feedforward.hidden")
    index.search(unit=7)

or `regard look RUN --excites block.1.feedforward.hidden:7`.

An index holds the largest value of every unit of one activation in each record, and where it is. It
is kept in RUN/look and built again when the weights, the data or the activation are others. Large
corpora are searched in a sample of evenly spaced records; `note` says how many. Units are the
numbers of a vector (B, T, U), or heads by the length of what each writes, (B, H, T, K).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data import Progress, no_progress
from regard.data.batching import Ints
from regard.data.shards import Shard
from regard.errors import UsageError, UserError, did_you_mean
from regard.evaluation.eval_data import open_corpus
from regard.evaluation.record_activations import (
    RecordActivations,
    count_records,
    in_records,
    read_records,
    strongest_positions,
)
from regard.look.records import mark_position
from regard.pipelines import Pipeline
from regard.run import weights
from regard.storage import digest, read_tensors, write_tensors
from regard.tokenizers import Tokenizer

FOLDER = "look"  # in a run folder: what pages and searches keep
MOST_RECORDS = 5000  # of a sample
MOST_TOKENS = 200_000  # of all its records
MOST_VALUES = 1 << 24  # records times units: 128 MB with positions
MOST_WORK = 1e12  # products of tokens and parameters: half a minute on two cores
BLOCK = 128  # tokens of running text that count as a record
MAPS = "scores", "weights"  # activations of pairs of tokens, which have no units

Log = Callable[[str], object]


@dataclass(frozen=True)
class Excitation:
    """A record that excites a unit, the position where it does most, and how much; `text` marks the
    token there.
    """

    record: int
    position: int
    value: float
    text: str = ""


@dataclass(frozen=True, eq=False)
class ActivationIndex:
    """The largest value (R, U) of each unit of an activation in each of R records, and its
    position.
    """

    name: str
    split: str
    shard: Shard
    tokenizer: Tokenizer
    records: Ints  # (R,) of the shard
    values: Tensor
    positions: Tensor

    @property
    def units(self) -> int:
        """The number of units."""
        return self.values.size(1)

    @property
    def note(self) -> str:
        """Which records were searched, in words."""
        count, total = len(self.records), count_records(self.shard)
        if not self.shard.has_records:
            size = int(self.shard.offsets[1])
            return f"{count:,} blocks of {size} tokens, evenly spaced over the {self.split} split"
        if count == total:
            return f"all {total:,} records of the {self.split} split"
        return f"{count:,} of {total:,} records of the {self.split} split, evenly spaced"

    def search(self, unit: int, count: int = 10) -> list[Excitation]:
        """Return the records that excite a unit most, the strongest first."""
        if not 0 <= unit < self.units:
            raise UsageError(f"{self.name} has units 0 to {self.units - 1}, got {unit}")
        values = self.values[:, unit]
        order = torch.argsort(values, descending=True, stable=True)[:count]
        return [self._match(int(i), unit) for i in order if values[i].isfinite()]

    def _match(self, row: int, unit: int) -> Excitation:
        record, position = int(self.records[row]), int(self.positions[row, unit])
        ids = self.record(record)
        text = mark_position(self.tokenizer, ids, position) if self.tokenizer.reads_text else ""
        return Excitation(record, position, float(self.values[row, unit]), text)

    def record(self, number: int) -> Ints:
        """Return the tokens of a record, or its features."""
        return np.asarray(self.shard.record(number * self.shard.views))


@dataclass(frozen=True, eq=False)
class ActivationSearch:
    """An activation of a model over the records of a split, and the file of its index."""

    pipeline: Pipeline
    name: str
    split: str = "train"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.]+", self.name):
            raise UsageError(f"{self.name!r} is no name of an activation, such as block.0.output")

    @cached_property
    def shard(self) -> Shard:
        """The records, or blocks of running text."""
        return searched_records(self.pipeline, self.split)

    @property
    def path(self) -> Path:
        assert self.pipeline.run is not None
        return self.pipeline.run / FOLDER / f"{self.name}-{self.split}.safetensors"

    @cached_property
    def key(self) -> Tensor:
        return key_of(self.pipeline.model, self.name, self.shard)

    def stored(self) -> ActivationIndex | None:
        """Return the index that is kept; None if it is missing or stale."""
        if not self.path.exists():
            return None
        tensors = read_stored(self.path, self.key)
        return None if tensors is None else self.opened(tensors)

    def opened(self, tensors: Mapping[str, Tensor]) -> ActivationIndex:
        return ActivationIndex(
            self.name,
            self.split,
            self.shard,
            self.pipeline.tokenizer,
            tensors["records"].numpy(),
            tensors["values"],
            tensors["positions"],
        )

    def build(self, log: Log, progress: Progress) -> ActivationIndex:
        """Read the records, and keep the index."""
        log(f"building an index of {self.name}")
        tensors = build(self.pipeline, self.name, self.shard, progress) | {"key": self.key}
        try:
            self.path.parent.mkdir(exist_ok=True)
            write_tensors(self.path, tensors)
        except (OSError, UserError) as error:
            log(f"the index is not kept: {error}")
        return self.opened(tensors)


def open_index(
    pipeline: Pipeline,
    name: str,
    split: str = "train",
    *,
    log: Log = lambda line: None,
    progress: Progress = no_progress,
) -> ActivationIndex:
    """Return the index of an activation over a split of the run; it is built where it is missing or
    stale, which `log` is told.
    """
    search = ActivationSearch(pipeline, name, split)
    return search.stored() or search.build(log, progress)


def unit_of(text: str) -> tuple[str, int]:
    """Return the name of an activation and the number of its unit, written NAME:UNIT."""
    name, _, unit = text.rpartition(":")
    if not name or not unit.isdecimal():
        raise UsageError(
            f"name an activation and a unit, such as block.0.attention.heads:1, got {text!r}"
        )
    return name, int(unit)


def searched_records(pipeline: Pipeline, split: str = "train") -> Shard:
    """Return the records of a split of the run; of running text, blocks."""
    if pipeline.run is None:
        raise UserError("this pipeline belongs to no run, whose records could be searched")
    shard = open_corpus(pipeline.run.path).split(split)
    if shard is None or not shard.records:
        raise UserError(f"{pipeline.run} has no {split} split")
    return in_records(shard, min(BLOCK, int(pipeline.model.config.max_len)), MOST_RECORDS)


def key_of(model: Any, name: str, shard: Shard) -> Tensor:
    """Return a digest (16,) of all that an index depends on."""
    limits = (MOST_RECORDS, MOST_TOKENS, MOST_VALUES, MOST_WORK)
    tensors = {key: tensor.cpu() for key, tensor in weights(model).items()}
    sizes = (shard.records, shard.tokens, shard.views, *limits)
    text = f"{digest(tensors)} {name} {sizes}"
    return torch.tensor(list(hashlib.blake2b(text.encode(), digest_size=16).digest()))


def read_stored(path: Path, key: Tensor) -> dict[str, Tensor] | None:
    """Return the tensors of an index; None if it is damaged or of another key."""
    try:
        stored = read_tensors(path)
    except UserError:
        return None  # it is built again
    complete = stored.keys() == {"key", "records", "values", "positions"}
    return stored if complete and torch.equal(stored["key"], key) else None


def build(
    pipeline: Pipeline, name: str, shard: Shard, progress: Progress = no_progress
) -> dict[str, Tensor]:
    """Read a sample of the records; return their numbers, values and positions."""
    model, tokenizer = pipeline.model, pipeline.tokenizer
    records = sample_records(model, shard, units_of(model, tokenizer, name, shard))
    rows, values, positions, done = [], [], [], 0
    for batch in read_records(model, shard, tokenizer, [name], records=records):
        strength = by_unit(batch.activations[name])  # (B, U, T)
        largest, where = strongest_positions(strength, content(batch, tokenizer))
        rows.append(torch.from_numpy(batch.records))
        values.append(largest)
        positions.append(where.to(torch.int32))
        done += len(batch.records)
        progress("reading records", done, len(records))
    order = torch.cat(rows).argsort()
    return {
        "records": torch.cat(rows)[order],
        "values": torch.cat(values)[order],
        "positions": torch.cat(positions)[order],
    }


def sample_records(model: Any, shard: Shard, units: int) -> Ints:
    """Return evenly spaced records, as many as time and memory allow."""
    parameters = sum(p.numel() for p in model.parameters())
    tokens = min(MOST_TOKENS, MOST_WORK / max(1, parameters))
    total = count_records(shard)
    mean = min(shard.tokens / shard.records, int(model.config.max_len))
    most = max(1, min(total, MOST_RECORDS, MOST_VALUES // units, int(tokens / mean)))
    return np.unique(np.linspace(0, total - 1, most).astype(np.int64))


def units_of(model: Any, tokenizer: Tokenizer, name: str, shard: Shard) -> int:
    """Return the number of units of an activation."""
    known = searchable(model, tokenizer, shard)
    if name not in known:
        raise UserError(
            f"no activation of tokens is called {name!r}; {did_you_mean(name, list(known))}"
        )
    return known[name]


def searchable(model: Any, tokenizer: Tokenizer, shard: Shard) -> dict[str, int]:
    """Return the activations that have a vector, or heads, at each token: names and units."""
    (first,) = read_records(model, shard, tokenizer, ["*"], records=np.arange(1))
    by_token = {
        name: x
        for name, x in first.activations.items()
        if x.dim() in (3, 4) and name.rpartition(".")[2] not in MAPS
    }
    return {name: by_unit(x).size(1) for name, x in by_token.items()}


def by_unit(activation: Tensor) -> Tensor:
    """Return (B, U, T) from units (B, T, U), or from heads (B, H, T, K)."""
    return activation.mT if activation.dim() == 3 else activation.norm(dim=-1)


def content(batch: RecordActivations, tokenizer: Tokenizer) -> Tensor:
    """Return which positions (B, T) hold tokens of a record rather than markers."""
    before, _ = tokenizer.markers
    if tokenizer.reads_text:
        return batch.valid & ~torch.isin(batch.ids, torch.tensor(sorted(tokenizer.names)))
    return batch.valid & (torch.arange(batch.valid.size(1)) >= before)  # of patches: `<S>` alone
