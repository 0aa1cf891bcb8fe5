"""Default sizes of models of series with labels, by the amount of data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from regard.errors import UserError
from regard.modalities import Tables
from regard.recipe import TrainRecipe
from regard.registry import MODELS
from regard.tokenizers.step_patches import default_patch
from regard.training.defaults import (
    SERIES_CLASSIFIERS,
    default_network,
    default_shape,
    fill_batch,
    fill_shape,
    hardware,
)

BATCH_SERIES = 32  # in a step
MIN_BATCH_TOKENS = 1024
SMALL = 5_000  # series
PATIENCE = 12  # validations without progress


@dataclass(frozen=True)
class SeriesSizes:
    """How many series there are, how long, of how many columns, and what is missing."""

    count: int
    shortest: int
    longest: int
    channels: int
    missing: float  # share of values

    @classmethod
    def of(cls, chunks: Iterable[Any]) -> SeriesSizes:
        """Return the sizes of the series of all chunks."""
        import numpy as np

        lengths: list[int] = []
        channels = missing = total = 0
        for chunk in chunks:
            for values in chunk.texts:
                lengths.append(len(values))
                if channels and values.shape[1] != channels:
                    raise UserError(
                        f"series of {channels} and of {values.shape[1]} columns cannot be mixed"
                    )
                channels = values.shape[1]
                missing += int(np.isnan(values).sum())
                total += values.size
        return cls(len(lengths), min(lengths), max(lengths), channels, missing / max(1, total))

    @property
    def description(self) -> str:
        """How many, how long, in words."""
        steps = f"{self.longest:,}"
        if self.shortest < self.longest:
            steps = f"{self.shortest:,} to {self.longest:,}"
        columns = "1 column" if self.channels == 1 else f"{self.channels:,} columns"
        missing = f", {self.missing:.1%} missing" if self.missing else ""
        return f"{self.count:,} series of {steps} steps, {columns}{missing}"


def fill_columns(table: Tables, source: Any, facts: SeriesSizes) -> None:
    """Fill in the columns of values and those of targets, so that other files are read alike."""
    names = source.value_names()
    if names and not table.get("columns"):
        table["columns"] = ",".join(names)
    if source.labelled and not table.get("exclude"):
        table["exclude"] = ",".join(source.taken())


def size_series_model(tables: Tables, facts: SeriesSizes, read: str, why: str) -> list[str]:
    """Fill in patch, depth, width and training settings; return the lines that say so."""
    table, model, train = tables["input"], tables["model"], tables["train"]
    patch = table["patch"] = table.get("patch") or default_patch(facts.longest)
    length = 1 + -(-facts.longest // patch)
    each = "each step is a token" if patch == 1 else f"patches of {patch} steps"
    columns = f", columns {table['columns']}" if table.get("columns") else ""
    task = tables["task"]["name"]
    first = f"data: {read}; {facts.description}{columns} → task {task}, {each} ({why})"
    name = default_network(SERIES_CLASSIFIERS, tables)
    fields = MODELS.get(name, task, "series").Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return [first, f"model: {name}: fitted in one go"]
    shape = default_shape(SERIES_CLASSIFIERS, facts.count, facts.count * length, tables)
    given = fill_shape(model, fields, shape)
    fill_batch(train, max(MIN_BATCH_TOKENS, BATCH_SERIES * length), large=facts.count > SMALL)
    train.setdefault("micro_tokens", max(TrainRecipe().micro_tokens, train["batch_tokens"]))
    size = f"{shape.n_layers} × {shape.d_model}, for {facts.count:,} series and {hardware()}"
    at_most = f"at most {length} tokens each"
    return [first, f"model: {name} {'as asked' if given else size}, {at_most}"]
