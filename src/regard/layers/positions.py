"""Position schemes: self-attention is blind to order, so order must be put in.

Three doors, one class: a scheme may `add` a code to the embeddings (binary, sinusoidal, learned),
`rotate` queries and keys (rotary), or give a `bias` to the scores (T5, ALiBi). Each scheme opens
the doors it needs; the rest pass through.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

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
