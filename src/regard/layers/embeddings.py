"""The inputs of models, and the embeddings of image patches and points.

A patch token is V numbers: row and column, counted from 1, then the pixels, channel by channel;
`<S>` has row and column 0 (`tokenizers/patches.py`). A point token is a center and its neighbors
(`tokenizers/points.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers import Layer

N_COORDINATES = 2  # numbers before the pixels, as in tokenizers/patches.py


@dataclass(frozen=True, eq=False)
class Inputs:
    """Sequences (B, S) of `ids`; `segments` (B, S) numbers those of a row from 1, 0 being padding.
    A target in segment n of row b belongs to the source in segment n of row b.

    Where tokens are V numbers instead of one of V ids, as those of images are, `ids` is (B, S, V).
    """

    ids: Tensor
    segments: Tensor

    def to(self, device: torch.device) -> Inputs:
        ids, segments = (x.to(device, non_blocking=True) for x in (self.ids, self.segments))
        return Inputs(ids, segments)

    def repeat(self, count: int) -> Inputs:
        """Return the only sequence as `count` equal rows."""
        rest = [-1] * (self.ids.dim() - 1)
        return Inputs(self.ids.expand(count, *rest), self.segments.expand(count, -1))


def patch_positions(source: Inputs) -> Tensor:
    """Return the row and column (B, N, 2) of every patch, from 1; 0 for `<S>` and padding."""
    return source.ids[..., :N_COORDINATES].long() * (source.segments > 0)[..., None]


def grid_sizes(source: Inputs) -> Tensor:
    """Return the number of rows and columns of patches of each image, (B, 2)."""
    return patch_positions(source).amax(1).clamp_min(1)


def grid_coordinates(source: Inputs, grid: Tensor) -> Tensor:
    """Return the row and column (B, N, 2) of patches, from 0, on a grid of size (2,) to which every
    image is scaled; NaN for `<S>` and padding.
    """
    position = patch_positions(source)
    scaled = (position - 0.5) * (grid / position.amax(1).clamp_min(1))[:, None] - 0.5
    scaled = torch.minimum(scaled.clamp_min(0), grid - 1.0)
    return scaled.masked_fill(position[..., :1] == 0, torch.nan)


def to_image(source: Inputs, rows: int, columns: int, patch: int) -> tuple[Tensor, Tensor]:
    """Return the pixels (B, C, rows · patch, columns · patch) of patches, and a mask (B, 1, …) that
    is 1 where there are any. Pixels outside a smaller image are 0; patches outside the grid are
    dropped.
    """
    position = patch_positions(source)
    inside = (position[..., 0] > 0) & (position[..., 0] <= rows) & (position[..., 1] <= columns)
    cell = ((position[..., 0] - 1) * columns + position[..., 1]).where(inside, 0)  # (B, N), 0: none
    pixels = source.ids[..., N_COORDINATES:].float()  # (B, N, C · patch²)
    marked = torch.cat((pixels, torch.ones_like(pixels[..., :1])), -1)  # the last one: the mask
    canvas = marked.new_zeros(len(marked), 1 + rows * columns, marked.size(-1))
    canvas = canvas.scatter(1, cell[..., None].expand_as(marked), marked)[:, 1:]
    mask = canvas[..., -1].unflatten(1, (rows, columns))[:, None]  # (B, 1, rows, columns)
    mask = mask.repeat_interleave(patch, 2).repeat_interleave(patch, 3)
    patches = canvas[..., :-1].unflatten(2, (-1, patch, patch)).unflatten(1, (rows, columns))
    image = patches.permute(0, 3, 1, 4, 2, 5)  # (B, C, rows, patch, columns, patch)
    return image.flatten(4, 5).flatten(2, 3), mask


def to_tokens(image: Tensor, source: Inputs, patch: int) -> Tensor:
    """Return the source's tokens (B, N, V) with the pixels of an image (B, C, Y, X)."""
    columns = image.size(3) // patch
    patches = image.unflatten(3, (columns, patch)).unflatten(2, (-1, patch))
    patches = patches.permute(0, 2, 4, 1, 3, 5)  # (B, rows, columns, C, patch, patch)
    flat = patches.flatten(3).flatten(1, 2)  # (B, rows · columns, C · patch²)
    position = patch_positions(source)
    cell = ((position[..., 0] - 1) * columns + position[..., 1] - 1).clamp_min(0)  # (B, N)
    pixels = flat.gather(1, cell[..., None].expand(-1, -1, flat.size(-1)))
    pixels = pixels * (position[..., :1] > 0)
    return torch.cat((position.to(pixels.dtype), pixels), -1)


class PatchEmbedding(Layer):
    """A linear map of the pixels of each patch, and a learned vector for `<S>`.

    Pixels are bytes; they are divided by 255 and standardized by the mean and deviation of their
    channel. `grid` is the number of rows and columns to which coordinates are scaled.
    """

    grid: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        grid: tuple[int, int],
        mean: Sequence[float],
        deviation: Sequence[float],
    ) -> None:
        super().__init__()
        pixels = (vocab_size - N_COORDINATES) // len(mean)
        self.register_buffer("grid", torch.tensor(grid), persistent=False)
        self.project = nn.Linear(vocab_size - N_COORDINATES, d_model)
        self.marker = nn.Parameter(torch.zeros(d_model))
        for name, values in (("mean", mean), ("deviation", deviation)):
            each = torch.tensor(values, dtype=torch.float32).repeat_interleave(pixels)  # (C · P²,)
            self.register_buffer(name, 255 * each, persistent=False)

    def embedding_weights(self) -> Iterable[Tensor]:
        return (self.project.weight,)

    def features(self, ids: Tensor) -> Tensor:
        """Return the standardized pixels (B, N, V - 2) of tokens (B, N, V)."""
        return (ids[..., N_COORDINATES:].to(self.mean.dtype) - self.mean) / self.deviation

    def forward(self, ids: Tensor) -> Tensor:
        """(B, N, V) tokens, `<S>` the first of each row, to (B, N, D)."""
        x = self.project(self.features(ids[:, 1:]))
        marker = self.marker.to(x.dtype).expand(len(x), 1, -1)
        return torch.cat((marker, x), 1)

    def where(self, source: Inputs) -> Tensor:
        """Return the coordinates (B, N, 2) of the tokens."""
        return grid_coordinates(source, self.grid)


class PointEmbedding(nn.Module):
    """A small network of every neighbor of a center, the maximum over neighbors, and a linear map
    of it (Qi et al. 2017, "PointNet", arXiv:1612.00593); a learned vector for `<S>`.

    The features of a neighbor are those of the point, its distances from the center and from the
    centroid, that of the center from the centroid and, unless `invariant`, its offset from the
    center. Distances from the center are in units of `neighbor_scale`. A center without neighbors
    has the features of the point alone or, without any, its distance from the centroid.
    """

    def __init__(
        self,
        d_model: int,
        dimensions: int,
        group_size: int,
        n_features: int,
        *,
        invariant: bool,
        neighbor_scale: float,
    ) -> None:
        super().__init__()
        self.dimensions, self.group_size, self.n_features = dimensions, group_size, n_features
        self.invariant, self.neighbor_scale = invariant, neighbor_scale
        width = n_features
        if group_size > 1:
            width += 3 if invariant else 3 + dimensions
        self.first = nn.Linear(max(1, width), d_model)
        self.second = nn.Linear(d_model, d_model)
        self.project = nn.Linear(d_model, d_model)
        self.marker = nn.Parameter(torch.zeros(d_model))

    def split(self, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Split tokens (B, N, V) into centers (B, N, d), whether each neighbor exists (B, N, k),
        offsets from the center (B, N, k, d), and features (B, N, k, C).
        """
        d = self.dimensions
        neighbors = ids[..., d:].unflatten(-1, (self.group_size, -1))
        exists, offsets = neighbors[..., 0] > 0.5, neighbors[..., 1 : 1 + d]
        return ids[..., :d], exists, offsets, neighbors[..., 1 + d :]

    def features(self, ids: Tensor) -> Tensor:
        """Return the features (B, N, k, F) of every neighbor."""
        center, _, offsets, features = self.split(ids)
        if self.group_size == 1:
            return features if self.n_features else center.norm(dim=-1)[..., None, None]
        from_centroid = (center[..., None, :] + offsets).norm(dim=-1, keepdim=True)
        of_center = center.norm(dim=-1)[..., None, None].expand_as(from_centroid)
        from_center = offsets.norm(dim=-1, keepdim=True) / self.neighbor_scale
        parts = [features, from_center, from_centroid, of_center]
        if not self.invariant:
            parts.append(offsets / self.neighbor_scale)
        return torch.cat(parts, -1)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, N, V) tokens, `<S>` the first of each row, to (B, N, D)."""
        tokens = ids[:, 1:].to(self.marker.dtype)
        hidden = self.second(F.gelu(self.first(self.features(tokens))))  # (B, N, k, D)
        if self.group_size == 1:
            pooled = hidden[:, :, 0]
        else:
            exists = self.split(tokens)[1][..., None]
            pooled = hidden.masked_fill(~exists, -torch.inf).amax(2)
            pooled = pooled.masked_fill(pooled == -torch.inf, 0)  # padding has no neighbors
        x = self.project(F.gelu(pooled))
        marker = self.marker.to(x.dtype).expand(len(x), 1, -1)
        return torch.cat((marker, x), 1)

    def where(self, source: Inputs) -> Tensor:
        """Return the coordinates (B, N, d) of the tokens; NaN for `<S>` and padding."""
        center = source.ids[..., : self.dimensions].float()
        first = torch.arange(center.size(1), device=center.device) == 0
        return center.masked_fill(((source.segments == 0) | first)[..., None], torch.nan)
