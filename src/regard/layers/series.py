"""The steps of series in tokens that are patches of them (`tokenizers/step_patches.py`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers import Layer
from regard.layers.embeddings import Inputs


def without_padding(source: Inputs) -> Inputs:
    """Return the same inputs with zeros in padding."""
    return Inputs(source.ids.masked_fill((source.segments == 0)[..., None], 0.0), source.segments)


@dataclass(frozen=True, eq=False)
class StepValues:
    """The steps of a batch of series: `values` (B, T, C), 0 where unknown, whether each is `known`
    (B, T, C), and whether a step `exists` (B, T). StepValues that exist come first.
    """

    values: Tensor
    known: Tensor
    exists: Tensor

    @property
    def lengths(self) -> Tensor:
        """The number of steps of each series, (B,)."""
        return self.exists.sum(1)


def read_steps(source: Inputs, patch: int, n_channels: int) -> StepValues:
    """Return the steps in the tokens of series, one to a row, `<S>` the first."""
    ids = source.ids[:, 1:]
    counts = ids[..., 0] * (source.segments[:, 1:] > 0)  # (B, N)
    number = torch.arange(patch, device=ids.device)
    exists = (number < counts[..., None]).flatten(1)  # (B, T)
    values = ids[..., 1:].unflatten(-1, (patch, n_channels)).flatten(1, 2)  # (B, T, C)
    known = values.isfinite() & exists[..., None]
    return StepValues(torch.where(known, values, 0.0), known, exists)


def neighbors_in_time(steps: StepValues) -> tuple[Tensor, Tensor]:
    """Return the positions (B, T, C) of the last known value up to each step, -1 where there is
    none, and of the next one from it on, T where there is none.
    """
    length = steps.known.size(1)
    index = torch.arange(length, device=steps.known.device)[:, None].expand_as(steps.known)
    before = torch.where(steps.known, index, -1).cummax(1).values
    after = torch.where(steps.known, index, length).flip(1).cummin(1).values.flip(1)
    return before, after


def fill_linearly(steps: StepValues) -> Tensor:
    """Return the values (B, T, C) with a line between known neighbors where they are missing, and
    the nearest known value at both ends; a series without any is 0, and so is padding.
    """
    length = steps.known.size(1)
    before, after = neighbors_in_time(steps)
    first = steps.values.gather(1, before.clamp_min(0))
    second = steps.values.gather(1, after.clamp_max(max(0, length - 1)))
    first = torch.where(before < 0, second, first)
    second = torch.where(after >= length, first, second)
    index = torch.arange(length, device=first.device)[:, None]
    share = (index - before) / (after - before).clamp_min(1)
    filled = torch.where(first == second, first, torch.lerp(first, second, share.to(first.dtype)))
    return filled * steps.exists[..., None]


class SeriesEmbedding(Layer):
    """A linear map of the values of a patch, with those of the `reach` patches before and after it,
    and of which are known; a learned vector for `<S>`. What is missing is 0, the mean.
    """

    def __init__(self, d_model: int, patch: int, n_channels: int, reach: int) -> None:
        super().__init__()
        self.width, self.reach = patch * n_channels, reach
        self.project = nn.Linear(2 * self.width * (2 * reach + 1), d_model)
        self.marker = nn.Parameter(torch.zeros(d_model))

    def embedding_weights(self) -> Iterable[Tensor]:
        return (self.project.weight,)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, N, V) tokens without anything in padding, `<S>` the first of each row, to (B, N,
        D).
        """
        tokens = ids[:, 1:].to(self.marker.dtype)
        values = tokens[..., 1:]
        known = values.isfinite() & (tokens[..., :1] > 0)
        x = torch.cat((torch.where(known, values, 0.0), known.to(values.dtype)), -1)
        if self.reach:
            padded = F.pad(x, (0, 0, self.reach, self.reach))
            x = padded.unfold(1, 2 * self.reach + 1, 1).flatten(2)  # (B, N, 2 W (2 r + 1))
        embedded = self.project(x)
        marker = self.marker.to(embedded.dtype).expand(len(x), 1, -1)
        return torch.cat((marker, embedded), 1)

    def where(self, source: Inputs) -> None:
        """Return None: patches stand in the order of time."""
