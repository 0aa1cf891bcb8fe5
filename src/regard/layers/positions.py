"""Position schemes: self-attention is blind to order, so order must be put in.

Three doors, one class: a scheme may `add` a code to the embeddings (binary, sinusoidal, learned),
`rotate` queries and keys (rotary), or give a `bias` to the scores (T5, ALiBi). Each scheme opens
the doors it needs; the rest pass through.

Positions in the plane: the schemes of `positions` for tokens that stand at a row and a column.

`where` is (B, N, 2): coordinates on the grid that training had, fractions between its places for
pictures of another size, so that nothing changes when a picture is only finer; NaN stands nowhere.

Positions in space: the doors of `positions` for tokens that stand at any coordinates.

`where` is (B, N, d), NaN for what stands nowhere. Three things can be told, each or all: where a
token stands, by a code that is added; how far two tokens are from each other, as a bias of their
score; and what stands around a token, at which distance. The last two change nothing when all is
moved or turned.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean

TABLE = 1024  # rows of a table, at least: sequences that share a row stand anywhere in it
Rotation = tuple[Tensor, Tensor]  # cosine and signed sine, each (T, 1, K) or (B, T, 1, K)
Where = range | Tensor  # consecutive positions shared by all rows, or any positions (T,) or (B, T)


def as_tensor(where: Where, device: torch.device) -> Tensor:
    """Positions as an index tensor."""
    return (
        torch.arange(where.start, where.stop, device=device) if isinstance(where, range) else where
    )


class Positions(nn.Module):
    """No positions at all: the base every scheme refines."""

    max_len: int | None = None  # the longest sequence the scheme can tell apart; None = any
    biased: bool = False  # does it add something to the scores?

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """Embeddings (B, T, D) with the code of their positions added, all of which are below `end`
        (0: nobody knows).
        """
        return x

    def rotation(self, where: Where) -> Rotation | None:
        """What `rotate` needs to turn queries and keys at these positions."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """(H, T, S) or (B, H, T, S) to add to the scores, for query and key positions (..., T) and
        (..., S).
        """
        return None


def positions_in(segments: Tensor) -> Tensor:
    """(B, T) positions that restart at 0 wherever a new segment begins; padding, segment 0, stays
    at 0.
    """
    index = torch.arange(segments.size(1), device=segments.device).expand_as(segments)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    positions = index - torch.where(begins, index, 0).cummax(dim=1).values
    return positions * (segments > 0)


class Binary(Positions):
    """Bit j of the position at coordinate j, as -1 or +1: a clock whose hands double in speed."""

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.bits = max(1, (max_len - 1).bit_length())
        self.max_len = 1 << self.bits
        if self.bits > d_model:
            raise UsageError(
                f"positions = 'binary' needs d_model of at least {self.bits}, got {d_model}"
            )

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
        positions = as_tensor(where, x.device)
        bits = (
            positions[..., None] >> torch.arange(self.bits, device=positions.device) & 1
        )  # (..., T, bits)
        return x + nn.functional.pad((2 * bits - 1).to(x.dtype), (0, x.size(-1) - self.bits))


def sinusoids(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """(..., T) to (..., T, D): coordinate 2i is sin(p / base^(2i/D)), 2i + 1 its cosine (Vaswani et
    al. 2017, 3.5).
    """
    pairs = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = positions[..., None].double() / base ** (pairs / d_model)  # (..., T, D/2)
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[..., :d_model].float()


class Sinusoidal(Positions):
    """The fixed waves of the 2017 paper, from a table where positions are known to be in it."""

    waves: Tensor

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        waves = sinusoids(torch.arange(max(max_len, TABLE)), d_model)  # (S, D)
        self.register_buffer("waves", waves, persistent=False)

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
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
        """See Positions."""
        if isinstance(where, range):
            return x + self.embedding.weight[where.start : where.stop]
        return x + self.embedding(where)  # type: ignore[no-any-return]


class Rotary(Positions):
    """Turns pairs of coordinates by an angle proportional to the position (Su et al. 2021,
    arXiv:2104.09864).

    Coordinate i is paired with i + K/2, as Hugging Face's Llama and Qwen do it.
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
        sine = angles.sin()
        return torch.cat((angles.cos(),) * 2, dim=-1), torch.cat((-sine, sine), dim=-1)

    def rotation(self, where: Where) -> Rotation | None:
        """See Positions. Consecutive positions within max_len are read from a table; others are
        computed.
        """
        if isinstance(where, range) and where.stop <= self.cosine.size(0):
            return self.cosine[where.start : where.stop], self.sine[where.start : where.stop]
        cosine, sine = self._tables(as_tensor(where, self.cosine.device))
        return cosine.to(self.cosine.dtype), sine.to(self.cosine.dtype)  # bf16 if the model is


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn x (B, T, N, K): x · cos + swap(x) · (∓sin), where swap exchanges the halves of K."""
    cosine, sine = rotation
    turned = torch.addcmul(x * cosine, x.roll(x.size(-1) // 2, dims=-1), sine)
    return turned.to(x.dtype)  # the angles may be finer than x


class T5Bias(Positions):
    """A learned bias per head and bucket of distance, buckets widening with distance (Raffel et al.
    2020, arXiv:1910.10683).
    """

    biased = True

    def __init__(self, n_heads: int, *, buckets: int = 32, farthest: int = 128) -> None:
        super().__init__()
        self.buckets, self.farthest = buckets, farthest
        self.embedding = nn.Embedding(buckets, n_heads)

    def bucket(self, back: Tensor) -> Tensor:
        """How far back a key stands to its bucket: half of the buckets exact, the rest logarithmic;
        ahead counts as 0.
        """
        exact = self.buckets // 2
        back = back.clamp_min(0)
        scale = (self.buckets - exact) / math.log(self.farthest / exact)
        far = exact + ((back.float() / exact).clamp_min(1).log() * scale).long()
        return torch.where(back < exact, back, far.clamp_max(self.buckets - 1))

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """See Positions."""
        back = queries[..., :, None] - keys[..., None, :]  # (..., T, S)
        bias: Tensor = self.embedding(self.bucket(back))  # (..., T, S, H)
        return bias.movedim(-1, -3)  # (..., H, T, S)


class ALiBi(Positions):
    """A penalty linear in distance, one slope per head (Press et al. 2022, arXiv:2108.12409)."""

    biased = True
    slopes: Tensor

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(n_heads)), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """See Positions."""
        back = (queries[..., :, None] - keys[..., None, :]).abs()  # (..., T, S)
        return -self.slopes[:, None, None] * back.unsqueeze(-3)


def alibi_slopes(n_heads: int) -> list[float]:
    """The paper's geometric slopes; for head counts that are no power of two, every other one of
    the next power's.
    """
    power = 1 << (n_heads.bit_length() - 1)
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    extra = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(0, 2 * (n_heads - power), 2)]
    return slopes + extra


POSITIONS = ("none", "binary", "sinusoidal", "learned", "t5", "alibi", "rotary")


def make_positions(
    name: str, *, d_model: int, d_head: int, n_heads: int, max_len: int, theta: float
) -> Positions:
    """The scheme of that name."""
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
    """One trained vector for every place of the grid and one for what stands nowhere; between
    places, what lies around is mixed (bilinear).
    """

    def __init__(self, d_model: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.embedding = nn.Embedding(1 + grid[0] * grid[1], d_model)  # the first: nowhere

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
        return x + self.shares(where).to(x.dtype) @ self.embedding.weight.to(x.dtype)

    def shares(self, where: Where) -> Tensor:
        """(B, N, 1 + places): how much of each vector stands at these coordinates."""
        assert isinstance(where, Tensor)
        nowhere = where[..., 0].isnan()
        tents = []
        for axis, size in enumerate(self.grid):
            at = where[..., axis].nan_to_num(-2.0)[..., None]  # (B, N, 1)
            tents.append((1 - (at - torch.arange(size, device=at.device)).abs()).clamp_min(0))
        both = (tents[0][..., :, None] * tents[1][..., None, :]).flatten(-2)
        return torch.cat((nowhere[..., None].to(both.dtype), both), -1)


class SinusoidalGrid(Positions):
    """The fixed waves of 2017, of the row in the first half of the coordinates and of the column in
    the second; nothing where it stands nowhere.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 4:
            raise UsageError(
                f"positions = 'sinusoidal' of a picture needs d_model to be a multiple of 4, "
                f"got {d_model}"
            )

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
        assert isinstance(where, Tensor)
        half = x.size(-1) // 2
        waves = torch.cat([sinusoids(where[..., i].nan_to_num(), half) for i in range(2)], -1)
        return x + waves.masked_fill(where[..., :1].isnan(), 0).to(x.dtype)


class RotaryGrid(Positions):
    """Turns pairs of coordinates: half of them by an angle proportional to the row, the other half
    by one proportional to the column (Heo et al. 2024, arXiv:2403.13298, "axial"). Coordinate i is
    paired with i + K/2, as everywhere here; what stands nowhere is not turned.
    """

    rates: Tensor

    def __init__(self, d_head: int, theta: float) -> None:
        super().__init__()
        if d_head % 4:
            raise UsageError(
                f"positions = 'rotary' of a picture needs d_head to be a multiple of 4, "
                f"got {d_head}"
            )
        rates = theta ** -(torch.arange(0, d_head // 2, 2).float() / (d_head // 2))  # (K/4,)
        self.register_buffer("rates", rates, persistent=False)

    def rotation(self, where: Where) -> Rotation | None:
        """See Positions."""
        assert isinstance(where, Tensor)
        angles = (where.nan_to_num()[..., None] * self.rates).flatten(-2)  # (B, N, K/2)
        cosine, sine = angles.cos()[:, :, None], angles.sin()[:, :, None]  # (B, N, 1, K/2)
        return torch.cat((cosine,) * 2, dim=-1), torch.cat((-sine, sine), dim=-1)


GRID_POSITIONS = ("learned", "sinusoidal", "rotary", "none")


def make_grid_positions(
    name: str, *, d_model: int, d_head: int, grid: tuple[int, int], theta: float
) -> Positions:
    """The scheme of that name for a grid of so many rows and columns."""
    if name == "learned":
        return LearnedGrid(d_model, grid)
    if name == "sinusoidal":
        return SinusoidalGrid(d_model)
    if name == "rotary":
        return RotaryGrid(d_head, theta)
    if name == "none":
        return Positions()
    hint = did_you_mean(name, list(GRID_POSITIONS))
    raise UsageError(f"positions {name!r} are not for pictures; {hint}")


SPACE_POSITIONS = ("learned", "sinusoidal", "none")
WAVES = 100.0  # steps of the fixed waves in the largest distance


class Radial(nn.Module):
    """Distances as heights of n bells, side by side from 0 to `reach`."""

    centres: Tensor

    def __init__(self, count: int, reach: float) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, reach, count), persistent=False)
        self.width = reach / max(1, count - 1)

    def forward(self, distances: Tensor) -> Tensor:
        """(...) to (..., n); what is NaN has no height anywhere."""
        gaps = (distances.nan_to_num(-1e3 * self.width)[..., None] - self.centres) / self.width
        return torch.exp(-gaps.square() / 2)


def pairwise_distances(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, T, S) distances of coordinates (B, T, d) and (B, S, d); NaN where one stands nowhere."""
    return (queries[:, :, None] - keys[:, None]).square().sum(-1).sqrt()


class NeighborFeatures(nn.Module):
    """What stands around each token: the sum over all others of their vectors, each weighed,
    feature by feature, by its distance (Schütt et al. 2017, "SchNet", arXiv:1706.08566).
    """

    def __init__(self, d_model: int, count: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(count, d_model, bias=False)
        self.read = nn.Linear(d_model, d_model, bias=False)
        self.first = nn.Linear(d_model, d_model)
        self.second = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, bells: Tensor) -> Tensor:
        """(B, N, D) from vectors (B, N, D) and distances (B, N, N, n), 0 for what is nowhere."""
        weights = self.weigh(bells)  # (B, N, N, D)
        own = torch.eye(x.size(1), device=x.device, dtype=torch.bool)[None, :, :, None]
        sums = (weights.masked_fill(own, 0) * self.read(x)[:, None]).sum(2)  # (B, N, D)
        return self.second(F.gelu(self.first(sums)))  # type: ignore[no-any-return]


class SpacePositions(Positions):
    """Coordinates by the code of that name, distances by so many bells up to `reach`, and what
    stands `around`; no bells tell nothing of distances.
    """

    def __init__(
        self,
        name: str,
        *,
        d_model: int,
        n_heads: int,
        dimensions: int,
        distances: int,
        reach: float,
        around: bool,
    ) -> None:
        super().__init__()
        if name not in SPACE_POSITIONS:
            hint = did_you_mean(name, list(SPACE_POSITIONS))
            raise UsageError(f"positions {name!r} are not for points; {hint}")
        self.name, self.reach, self.biased = name, reach, distances > 0
        self.first = self.second = self.weigh = self.around = None
        if name == "learned":
            self.first = nn.Linear(dimensions, d_model)
            self.second = nn.Linear(d_model, d_model)
        if distances:
            self.bells = Radial(distances, reach)
            self.weigh = nn.Linear(distances, n_heads, bias=False)
            self.around = NeighborFeatures(d_model, distances) if around else None

    def add(self, x: Tensor, where: Where, end: int = 0) -> Tensor:
        """See Positions."""
        assert isinstance(where, Tensor)
        nowhere = where[..., :1].isnan()
        at = where.nan_to_num() / (self.reach / 2)
        if self.around is not None:
            x = x + self.around(x, self.bells(pairwise_distances(where, where)).to(x.dtype))
        if self.first is not None and self.second is not None:
            code = self.second(F.gelu(self.first(at.to(self.first.weight.dtype))))
        elif self.name == "sinusoidal":
            d = where.size(-1)
            part = -(-x.size(-1) // d)
            waves = [sinusoids(at[..., i] * WAVES / 2, part + part % 2) for i in range(d)]
            code = torch.cat(waves, -1)[..., : x.size(-1)]
        else:
            return x
        told: Tensor = code.masked_fill(nowhere, 0).to(x.dtype)
        return x + told

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """See Positions."""
        if self.weigh is None:
            return None
        bells = self.bells(pairwise_distances(queries, keys))  # (B, T, S, n)
        bias: Tensor = self.weigh(bells.to(self.weigh.weight.dtype))
        return bias.movedim(-1, 1)  # (B, H, T, S)
