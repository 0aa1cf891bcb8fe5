"""Position schemes: self-attention ignores order, so positions must be encoded.

A scheme may `add` a code to the embeddings (binary, sinusoidal, learned), give a `rotation` of
queries and keys (rotary), or a `bias` of the scores (T5, ALiBi); the defaults change nothing.

Image patches have coordinates (B, N, 2) on the grid of training, fractions between its cells for
images of another size, so that a finer image has the same codes. Points have coordinates (B, N, d);
their distances, as a bias or in a sum over neighbors, are unchanged by translations and rotations.
Coordinates are NaN for `<S>` and padding, which have no position.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean

TABLE = 1024  # least rows of a table: records packed into one row may start anywhere in it
WAVES = 100.0  # steps of the fixed waves over the largest distance

Rotation = tuple[Tensor, Tensor]  # cosine and signed sine, each (T, 1, K) or (B, T, 1, K)
Where = range | Tensor  # consecutive positions shared by all rows, or any positions (T,) or (B, T)


def as_tensor(where: Where, device: torch.device) -> Tensor:
    if isinstance(where, range):
        return torch.arange(where.start, where.stop, device=device)
    return where


class Positions(nn.Module):
    """No positions at all: the base of every scheme."""

    max_len: int | None = None  # the longest sequence whose positions differ; None: any
    biased: bool = False  # does it add a bias to the scores?

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """Return embeddings (B, T, D) with the code of their positions, which are below `end` (0:
        unknown).
        """
        return x

    def rotation(self, where: Where) -> Rotation | None:
        """Return what `rotate` applies to queries and keys at these positions."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return (H, T, S) or (B, H, T, S) to add to the scores, for query and key positions
        (..., T) and (..., S).
        """
        return None


def positions_in(segments: Tensor) -> Tensor:
    """Return positions (B, T) that restart at 0 with every segment; padding, segment 0, has 0."""
    index = torch.arange(segments.size(1), device=segments.device).expand_as(segments)
    starts = torch.ones_like(segments, dtype=torch.bool)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    positions = index - torch.where(starts, index, 0).cummax(dim=1).values
    return positions * (segments > 0)


class Binary(Positions):
    """Bit j of the position, as -1 or +1, in coordinate j."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.bits = max(1, (max_len - 1).bit_length())
        self.max_len = 1 << self.bits
        if self.bits > d_model:
            raise UsageError(
                f"positions = 'binary' needs d_model of at least {self.bits}, got {d_model}"
            )

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        positions = as_tensor(where, x.device)[..., None]
        bits = positions >> torch.arange(self.bits, device=positions.device) & 1  # (..., T, bits)
        return x + F.pad((2 * bits - 1).to(x.dtype), (0, x.size(-1) - self.bits))


def sinusoids(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """(..., T) to (..., T, D): coordinate 2i is sin(p / base^(2i/D)), 2i + 1 its cosine (Vaswani et
    al. 2017, section 3.5).
    """
    pairs = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None].double() / base ** (pairs / d_model)  # (..., T, D/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :d_model].float()


class Sinusoidal(Positions):
    """The fixed waves of Vaswani et al. 2017, read from a table where it is long enough."""

    waves: Tensor

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        waves = sinusoids(torch.arange(max(max_len, TABLE)), d_model)  # (S, D)
        self.register_buffer("waves", waves, persistent=False)

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        if isinstance(where, range) and where.stop <= len(self.waves):
            return x + self.waves[where.start : where.stop].to(x.dtype)
        positions = as_tensor(where, x.device)
        if 0 < end <= len(self.waves):
            return x + self.waves[positions].to(x.dtype)
        return x + sinusoids(positions, x.size(-1)).to(x.dtype)


class Learned(Positions):
    """One trained vector per position, none beyond `max_len`."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.max_len = max_len
        self.embedding = nn.Embedding(max_len, d_model)

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        if isinstance(where, range):
            return x + self.embedding.weight[where.start : where.stop]
        return x + self.embedding(where)  # type: ignore[no-any-return]


class Rotary(Positions):
    """Rotates pairs of coordinates by an angle proportional to the position (Su et al. 2021,
    arXiv:2104.09864). Coordinate i is paired with i + K/2, as in Hugging Face's Llama and Qwen.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, d_head: int, max_len: int, theta: float) -> None:
        super().__init__()
        if d_head % 2:
            raise UsageError(f"positions = 'rotary' needs an even d_head, got {d_head}")
        self.d_head, self.theta = d_head, theta
        cosine, sine = self._tables(torch.arange(max_len))
        self.register_buffer("cosine", cosine, persistent=False)  # (max_len, 1, K)
        self.register_buffer("sine", sine, persistent=False)

    def _tables(self, positions: Tensor) -> Rotation:
        exponent = torch.arange(0, self.d_head, 2, device=positions.device).float() / self.d_head
        angles = positions[..., None, None].float() * self.theta**-exponent  # (..., T, 1, K/2)
        return pair_halves(angles.cos(), angles.sin())

    def rotation(self, where: Where) -> Rotation | None:
        if isinstance(where, range) and where.stop <= self.cosine.size(0):
            return self.cosine[where.start : where.stop], self.sine[where.start : where.stop]
        cosine, sine = self._tables(as_tensor(where, self.cosine.device))
        return cosine.to(self.cosine.dtype), sine.to(self.cosine.dtype)  # bf16 if the model is


def pair_halves(cosine: Tensor, sine: Tensor) -> Rotation:
    """(..., K/2) to the factors (..., K) of both halves of a head."""
    return torch.cat((cosine, cosine), dim=-1), torch.cat((-sine, sine), dim=-1)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Rotate x (B, T, N, K): x · cos + swap(x) · (∓sin), where swap exchanges the halves of K."""
    cosine, sine = rotation
    rotated = torch.addcmul(x * cosine, x.roll(x.size(-1) // 2, dims=-1), sine)
    return rotated.to(x.dtype)  # the angles may have a higher precision than x


class T5Bias(Positions):
    """A learned bias per head and bucket of distance, buckets widening with distance (Raffel et al.
    2020, arXiv:1910.10683).
    """

    biased = True

    def __init__(self, n_heads: int, *, buckets: int = 32, farthest: int = 128) -> None:
        super().__init__()
        self.buckets, self.farthest = buckets, farthest
        self.embedding = nn.Embedding(buckets, n_heads)

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of the distance from a query back to a key: half of the buckets are
        exact, the rest logarithmic; later keys count as distance 0.
        """
        exact = self.buckets // 2
        distance = distance.clamp_min(0)
        scale = (self.buckets - exact) / math.log(self.farthest / exact)
        far = exact + ((distance.float() / exact).clamp_min(1).log() * scale).long()
        return torch.where(distance < exact, distance, far.clamp_max(self.buckets - 1))

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        distance = queries[..., :, None] - keys[..., None, :]  # (..., T, S)
        bias: Tensor = self.embedding(self.bucket(distance))  # (..., T, S, H)
        return bias.movedim(-1, -3)  # (..., H, T, S)


class ALiBi(Positions):
    """A penalty linear in distance, one slope per head (Press et al. 2022, arXiv:2108.12409)."""

    biased = True
    slopes: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # (..., T, S)
        return -self.slopes[:, None, None] * distance.unsqueeze(-3)


def alibi_slopes(n_heads: int) -> list[float]:
    """Return the paper's geometric slopes; for head counts that are no power of two, every other
    one of the next power's.
    """
    power = 1 << (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * (n_heads - power), 2)]
    return slopes + extra


POSITIONS = ("none", "binary", "sinusoidal", "learned", "t5", "alibi", "rotary")


def make_positions(
    name: str, *, d_model: int, d_head: int, n_heads: int, max_len: int, theta: float
) -> Positions:
    if name not in POSITIONS:
        raise UsageError(f"unknown positions {name!r}; {did_you_mean(name, list(POSITIONS))}")
    makers: dict[str, Callable[[], Positions]] = {
        "none": Positions,
        "binary": lambda: Binary(d_model, max_len),
        "sinusoidal": lambda: Sinusoidal(d_model, max_len),
        "learned": lambda: Learned(d_model, max_len),
        "t5": lambda: T5Bias(n_heads),
        "alibi": lambda: ALiBi(n_heads),
        "rotary": lambda: Rotary(d_head, max_len, theta),
    }
    return makers[name]()


class LearnedGrid(Positions):
    """One trained vector for every cell of the grid and one for tokens without a position; between
    cells, bilinear interpolation.
    """

    def __init__(self, d_model: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.embedding = nn.Embedding(1 + grid[0] * grid[1], d_model)  # the first: no position

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        return x + self.interpolation(where).to(x.dtype) @ self.embedding.weight.to(x.dtype)

    def interpolation(self, where: Where) -> Tensor:
        """Return the share (B, N, 1 + cells) of each vector at these coordinates."""
        assert isinstance(where, Tensor)
        missing = where[..., 0].isnan()
        shares = []
        for axis, size in enumerate(self.grid):
            at = where[..., axis].nan_to_num(-2.0)[..., None]  # (B, N, 1)
            shares.append((1 - (at - torch.arange(size, device=at.device)).abs()).clamp_min(0))
        cells = (shares[0][..., :, None] * shares[1][..., None, :]).flatten(-2)
        return torch.cat((missing[..., None].to(cells.dtype), cells), -1)


class SinusoidalGrid(Positions):
    """The waves of the row in the first half of the vector and those of the column in the second;
    zeros without a position.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 4:
            raise UsageError(
                f"positions = 'sinusoidal' of an image needs d_model to be a multiple of 4, "
                f"got {d_model}"
            )

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        assert isinstance(where, Tensor)
        half = x.size(-1) // 2
        waves = torch.cat([sinusoids(where[..., i].nan_to_num(), half) for i in range(2)], -1)
        return x + waves.masked_fill(where[..., :1].isnan(), 0).to(x.dtype)


class RotaryGrid(Positions):
    """Rotates half of the pairs of coordinates by an angle proportional to the row, the others by
    one proportional to the column (Heo et al. 2024, arXiv:2403.13298, "axial"). Coordinate i is
    paired with i + K/2, as in `Rotary`; tokens without a position are not rotated.
    """

    rates: Tensor

    def __init__(self, d_head: int, theta: float) -> None:
        super().__init__()
        if d_head % 4:
            raise UsageError(
                f"positions = 'rotary' of an image needs d_head to be a multiple of 4, got {d_head}"
            )
        rates = theta ** -(torch.arange(0, d_head // 2, 2).float() / (d_head // 2))  # (K/4,)
        self.register_buffer("rates", rates, persistent=False)

    def rotation(self, where: Where) -> Rotation | None:
        assert isinstance(where, Tensor)
        angles = (where.nan_to_num()[..., None] * self.rates).flatten(-2)[:, :, None]
        return pair_halves(angles.cos(), angles.sin())  # (B, N, 1, K) each


GRID_POSITIONS = ("learned", "sinusoidal", "rotary", "none")


def make_grid_positions(
    name: str, *, d_model: int, d_head: int, grid: tuple[int, int], theta: float
) -> Positions:
    if name == "learned":
        return LearnedGrid(d_model, grid)
    if name == "sinusoidal":
        return SinusoidalGrid(d_model)
    if name == "rotary":
        return RotaryGrid(d_head, theta)
    if name == "none":
        return Positions()
    hint = did_you_mean(name, list(GRID_POSITIONS))
    raise UsageError(f"positions {name!r} are not for images; {hint}")


SPACE_POSITIONS = ("learned", "sinusoidal", "none")


class Radial(nn.Module):
    """Distances as values of n Gaussian radial basis functions with centers from 0 to a maximum."""

    centers: Tensor

    def __init__(self, count: int, max_distance: float) -> None:
        super().__init__()
        self.register_buffer("centers", torch.linspace(0, max_distance, count), persistent=False)
        self.width = max_distance / max(1, count - 1)

    def forward(self, distances: Tensor) -> Tensor:
        """(...) to (..., n); NaN gives zeros."""
        gaps = (distances.nan_to_num(-1e3 * self.width)[..., None] - self.centers) / self.width
        return torch.exp(-gaps.square() / 2)


def pairwise_distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the distances (B, T, S) of coordinates (B, T, d) and (B, S, d); NaN where one is."""
    return (queries[:, :, None] - keys[:, None]).square().sum(-1).sqrt()


class NeighborFeatures(nn.Module):
    """The sum over all other tokens of their vectors, each weighted, feature by feature, by its
    distance (Schütt et al. 2017, "SchNet", arXiv:1706.08566).
    """

    def __init__(self, d_model: int, count: int) -> None:
        super().__init__()
        self.filter = nn.Linear(count, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model, bias=False)
        self.first = nn.Linear(d_model, d_model)
        self.second = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, radial: Tensor) -> Tensor:
        """(B, N, D) from vectors (B, N, D) and radial basis functions (B, N, N, n)."""
        weights = self.filter(radial)  # (B, N, N, D)
        diagonal = torch.eye(x.size(1), device=x.device, dtype=torch.bool)[None, :, :, None]
        sums = (weights.masked_fill(diagonal, 0) * self.value(x)[:, None]).sum(2)  # (B, N, D)
        return self.second(F.gelu(self.first(sums)))  # type: ignore[no-any-return]


class SpacePositions(Positions):
    """A code of the coordinates, the distances as a bias of the scores by `n_rbf` radial basis
    functions (0: no bias), and, with `neighborhood`, a sum over the neighbors.
    """

    def __init__(
        self,
        name: str,
        *,
        d_model: int,
        n_heads: int,
        dimensions: int,
        n_rbf: int,
        max_distance: float,
        neighborhood: bool,
    ) -> None:
        super().__init__()
        if name not in SPACE_POSITIONS:
            hint = did_you_mean(name, list(SPACE_POSITIONS))
            raise UsageError(f"positions {name!r} are not for points; {hint}")
        self.name, self.max_distance, self.biased = name, max_distance, n_rbf > 0
        self.first = self.second = self.head_bias = self.neighbors = None
        if name == "learned":
            self.first = nn.Linear(dimensions, d_model)
            self.second = nn.Linear(d_model, d_model)
        if n_rbf:
            self.radial = Radial(n_rbf, max_distance)
            self.head_bias = nn.Linear(n_rbf, n_heads, bias=False)
            self.neighbors = NeighborFeatures(d_model, n_rbf) if neighborhood else None

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        assert isinstance(where, Tensor)
        at = where.nan_to_num() / (self.max_distance / 2)
        if self.neighbors is not None:
            x = x + self.neighbors(x, self.radial(pairwise_distances(where, where)).to(x.dtype))
        if self.first is not None and self.second is not None:
            code = self.second(F.gelu(self.first(at.to(self.first.weight.dtype))))
        elif self.name == "sinusoidal":
            d = where.size(-1)
            part = -(-x.size(-1) // d)
            waves = [sinusoids(at[..., i] * WAVES / 2, part + part % 2) for i in range(d)]
            code = torch.cat(waves, -1)[..., : x.size(-1)]
        else:
            return x
        code = code.masked_fill(where[..., :1].isnan(), 0).to(x.dtype)
        return x + code  # type: ignore[no-any-return]

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        if self.head_bias is None:
            return None
        radial = self.radial(pairwise_distances(queries, keys))  # (B, T, S, n)
        bias: Tensor = self.head_bias(radial.to(self.head_bias.weight.dtype))
        return bias.movedim(-1, 1)  # (B, H, T, S)
