"""Tokens that are patches of a picture: what is in them, where they stand, and the picture again.

A token is V numbers: row and column, counted from 1, then the pixels, channel by channel; `<S>`
stands at 0, 0. See tokens/patches.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.layers.source import Source

PLACE = 2  # numbers before the pixels, as in tokens/patches.py


def places(source: Source) -> Tensor:
    """(B, N, 2): row and column of every patch, from 1; 0 for what stands nowhere, `<S>` and
    padding.
    """
    return source.ids[..., :PLACE].long() * (source.segments > 0)[..., None]


def extents(source: Source) -> Tensor:
    """(B, 2): how many rows and columns of patches each picture has."""
    return places(source).amax(1).clamp_min(1)


def coordinates(source: Source, grid: Tensor) -> Tensor:
    """(B, N, 2): where patches stand, as rows and columns from 0 on a grid of (2,) this size, onto
    which every picture is stretched; NaN for what stands nowhere.
    """
    place = places(source)
    stretched = (place - 0.5) * (grid / place.amax(1).clamp_min(1))[:, None] - 0.5
    stretched = torch.minimum(stretched.clamp_min(0), grid - 1.0)
    return stretched.masked_fill(place[..., :1] == 0, torch.nan)


def to_picture(source: Source, rows: int, columns: int, patch: int) -> tuple[Tensor, Tensor]:
    """Pixels (B, C, rows · patch, columns · patch) of patches, and (B, 1, …) 1 where there are any;
    what is beyond a smaller picture is 0, what is beyond the grid is left out.
    """
    place = places(source)
    inside = (place[..., 0] > 0) & (place[..., 0] <= rows) & (place[..., 1] <= columns)
    cell = ((place[..., 0] - 1) * columns + place[..., 1]).where(inside, 0)  # (B, N), 0: nowhere
    pixels = source.ids[..., PLACE:].float()  # (B, N, C · patch²)
    filled = torch.cat((pixels, torch.ones_like(pixels[..., :1])), -1)  # the last: there is one
    canvas = filled.new_zeros(len(filled), 1 + rows * columns, filled.size(-1))
    canvas = canvas.scatter(1, cell[..., None].expand_as(filled), filled)[:, 1:]
    there = canvas[..., -1].unflatten(1, (rows, columns))[:, None]  # (B, 1, rows, columns)
    there = there.repeat_interleave(patch, 2).repeat_interleave(patch, 3)
    cut = canvas[..., :-1].unflatten(2, (-1, patch, patch)).unflatten(1, (rows, columns))
    picture = cut.permute(0, 3, 1, 4, 2, 5)  # (B, C, rows, patch, columns, patch)
    return picture.flatten(4, 5).flatten(2, 3), there


def to_tokens(picture: Tensor, source: Source, patch: int) -> Tensor:
    """Tokens (B, N, V) like those of the source, with the pixels of a picture (B, C, Y, X)."""
    columns = picture.size(3) // patch
    cut = picture.unflatten(3, (columns, patch)).unflatten(2, (-1, patch))
    cut = cut.permute(0, 2, 4, 1, 3, 5)  # (B, rows, columns, C, patch, patch)
    flat = cut.flatten(3).flatten(1, 2)  # (B, rows · columns, C · patch²)
    place = places(source)
    cell = ((place[..., 0] - 1) * columns + place[..., 1] - 1).clamp_min(0)  # (B, N)
    pixels = flat.gather(1, cell[..., None].expand(-1, -1, flat.size(-1)))
    pixels = pixels * (place[..., :1] > 0)
    return torch.cat((place.to(pixels.dtype), pixels), -1)
