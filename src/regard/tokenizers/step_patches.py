"""Time series as items: a series is cut into patches of a few steps, which are its tokens (Nie et
al. 2023, arXiv:2211.14730).

A token is the number of its steps, all but the last having as many as a patch, and their values,
step by step, standardized with the mean and deviation of their column in training; NaN is missing.
A record is `<S>`, which is zeros, and the patches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.tokenizers.tokenizer import Document, Featurizer, Ids

Floats = NDArray[np.float64]
MAX_PATCH = 1 << 12
WANTED_TOKENS = 64  # of the longest series, about
MAX_PATCH_BY_DEFAULT = 64
ROUNDING = 1e-12  # of a variance, relative to the mean square


def default_patch(longest: int) -> int:
    """Return the steps of a patch for series of at most `longest` steps: a power of two."""
    patch = 1
    while patch < MAX_PATCH_BY_DEFAULT and longest > patch * WANTED_TOKENS:
        patch *= 2
    return patch


class StepPatches(Featurizer):
    """Patches of series of any length. `columns` are the names of the values of a step, `mean` and
    `deviation` those of training; `longest` is the number of steps of the longest series there.
    """

    name: ClassVar[str] = "step-patches"
    modality = "time-series"
    options: ClassVar[Mapping[str, Any]] = {"patch": 0, "columns": ()}
    words: ClassVar[tuple[str, str]] = ("series", "series")
    item: ClassVar[str] = "an array (steps,) or (steps, columns), or the path of a table"

    def __init__(
        self,
        columns: Sequence[str],
        mean: Sequence[float],
        deviation: Sequence[float],
        *,
        patch: int = 1,
        longest: int = 1,
    ) -> None:
        self.columns, self.patch, self.longest = tuple(columns), patch, longest
        self.mean, self.deviation = np.asarray(mean, float), np.asarray(deviation, float)
        super().__init__(1 + patch * len(self.columns), np.float32)

    def reads(self, value: object) -> bool:
        if not isinstance(value, np.ndarray):
            return isinstance(value, str | Path)
        columns = len(self.columns)
        if value.ndim != 2:
            return value.ndim == 1
        return bool(value.shape[1] == columns or 1 < columns == value.shape[0])

    @property
    def model_config(self) -> dict[str, Any]:
        return {"patch": self.patch, "n_channels": len(self.columns), "longest": self.longest}

    @classmethod
    def train(
        cls, texts: Iterable[Any], size: int = 0, *, patch: int = 0, columns: Sequence[str] = ()
    ) -> Self:
        """Measure series (T, C); a `patch` of 0 follows from the longest."""
        moments: Any = None  # (3, C): how many are known, their sum, that of their squares
        longest = 0
        for values in texts:
            known = np.isfinite(values)
            plain = np.where(known, values, 0.0)
            added = np.stack([known.sum(0), plain.sum(0), np.square(plain).sum(0)])
            moments = added if moments is None else moments + added
            longest = max(longest, len(values))
        if moments is None:
            raise UserError("there is no series to measure")
        mean, square = moments[1:] / np.maximum(moments[0], 1)
        variance = square - np.square(mean)
        constant = variance <= ROUNDING * square
        deviation = np.where(constant, 1.0, np.sqrt(np.maximum(variance, 0)))
        names = tuple(columns) or tuple(str(i + 1) for i in range(len(mean)))
        return cls(
            names,
            mean.tolist(),
            deviation.tolist(),
            patch=patch or default_patch(longest),
            longest=longest,
        )

    def encode_batch(self, texts: Sequence[Any]) -> tuple[Ids, Ids]:
        """Return the tokens (N, V) of all series, `<S>` before each, and the number of each."""
        parts = [self._encode(np.asarray(values, float)) for values in texts]
        lengths = np.array([len(tokens) for tokens in parts], np.int64)
        flat = np.concatenate(parts) if parts else np.empty((0, self.vocab_size), np.float32)
        return flat, lengths

    def _encode(self, values: Floats) -> Ids:
        values = values[:, None] if values.ndim == 1 else values
        steps, width = values.shape
        if width != len(self.columns):
            names = ", ".join(self.columns[:8])
            raise UserError(
                f"a series has {width} columns, the model reads {len(self.columns)} ({names})"
            )
        if not steps:
            raise UserError("a series has no steps")
        count = -(-steps // self.patch)
        padded = np.full((count * self.patch, width), np.nan)
        padded[:steps] = (values - self.mean) / self.deviation
        tokens = np.zeros((1 + count, self.vocab_size), np.float32)
        tokens[1:, 0] = self.patch
        tokens[-1, 0] = steps - (count - 1) * self.patch
        tokens[1:, 1:] = padded.reshape(count, -1)
        return tokens

    def decode_record(self, record: Ids) -> Floats:
        """Return the series (T, C) of tokens, in the units of the data."""
        tokens = np.asarray(record, float)[1:]
        steps = int(tokens[:, 0].sum())
        values = tokens[:, 1:].reshape(-1, len(self.columns))[:steps]
        decoded: Floats = values * self.deviation + self.mean
        return decoded

    def record_round_trip(self, record: Ids) -> bool:
        again = self.encode(self.decode_record(record))
        return again.shape == record.shape and bool(
            np.allclose(again, record, rtol=1e-4, atol=1e-4, equal_nan=True)
        )

    def round_trip(self, item: Any) -> bool:
        values = np.asarray(item, float).reshape(len(item), -1)
        decoded = self.decode_record(self.encode(values))
        size = np.abs(self.mean) + self.deviation  # float32 keeps seven digits of the standardized
        scaled = np.abs(values - decoded) / size
        same = np.array_equal(np.isnan(values), np.isnan(decoded))
        return same and bool(np.nanmax(scaled, initial=0.0) <= 1e-4)

    def sample_items(self, count: int) -> list[Floats]:
        random = np.random.default_rng(0)
        items = []
        for number in range(count):
            walk = random.normal(size=(2 + 5 * number, len(self.columns))).cumsum(0) / 3
            walk[random.random(walk.shape) < 0.1] = np.nan
            items.append(walk * self.deviation + self.mean)
        return items

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Describe the series of tokens in words."""
        tokens = np.asarray(ids)
        if tokens.ndim != 2 or len(tokens) < 2:
            return "a series"
        return f"a series of {int(tokens[1:, 0].sum()):,} steps"

    def document(self) -> Document:
        return {
            "patch_processor_type": "StepPatches",
            "columns": list(self.columns),
            "mean": self.mean.tolist(),
            "deviation": self.deviation.tolist(),
            "patch": self.patch,
            "longest": self.longest,
        }

    @classmethod
    def recognises(cls, document: Document) -> bool:
        return document.get("patch_processor_type") == "StepPatches"

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        try:
            columns = [str(column) for column in document["columns"]]
            mean, deviation = (list(map(float, document[key])) for key in ("mean", "deviation"))
            patch, longest = int(document["patch"]), int(document["longest"])
            if not 1 <= len(columns) == len(mean) == len(deviation) or not min(deviation) > 0:
                raise ValueError("every column has a mean and a positive deviation")
            if not 1 <= patch <= MAX_PATCH or longest < 1:
                raise ValueError(f"patch must be from 1 to {MAX_PATCH}, and longest positive")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{name} is damaged: {error}") from None
        return cls(columns, mean, deviation, patch=patch, longest=longest)
