"""Named activations: a tap is passed down `forward`, so nothing is ever stored on a module.

Names read like paths: `block.3.attention.weights`. Asking for attention weights selects the
explicit path of `attend`, because the fused kernel never forms them.

Compatibility functions: how well does a key fit a query?

The general f(Q, K), each a function or small class of q (B, H, T, K) and k (B, H, S, K) that
returns (B, H, T, S); softmax over the last axis, the keys, follows in `attend`. Scaled dot is the
default and the only one the fused kernel computes; the others take the explicit path. Minus log
distance turns the softmax into inverse-distance weighting, w = (1/d) / sum(1/d); the Gaussian is
Nadaraya-Watson smoothing with a normal kernel.

Which attention the kernels for short rows take over from PyTorch's: training on short or packed
records, each so little work that kernels made for long rows wait more than they compute.

Attention: every query takes a weighted mean of the values, the weights a softmax of how well its
key fits.

Equation 1 of Vaswani et al. 2017 (arXiv:1706.03762), with any score, mask and bias. The fused
kernel is the default path; the explicit one is its oracle and the only one that forms the (B, H, T,
S) weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean
from regard.layers.cache import CrossKV, KVCache
from regard.layers.masks import Mask
from regard.layers.norms import RMSNorm
from regard.layers.positions import Rotation, rotate
from regard.layers.sliding_window import Band


class Tap:
    """Collects the activations whose names match a pattern (`*.weights`, `logits`)."""

    def __init__(
        self, patterns: Iterable[str], *, _prefix: str = "", _store: dict[str, Tensor] | None = None
    ) -> None:
        self.patterns = tuple(patterns)
        self.prefix = _prefix
        self.found: dict[str, Tensor] = {} if _store is None else _store

    def at(self, name: str | int) -> Tap:
        """The same tap, one level down: `tap.at("block").at(3)("weights", w)` stores
        `block.3.weights`.
        """
        return Tap(self.patterns, _prefix=f"{self.prefix}{name}.", _store=self.found)

    def wants(self, name: str) -> bool:
        """Would this activation be kept? Lets `forward` skip work nobody asked for."""
        return any(fnmatchcase(self.prefix + name, pattern) for pattern in self.patterns)

    def __call__(self, name: str, tensor: Tensor) -> None:
        """Offer an activation; it is kept, detached, when wanted."""
        if self.wants(name):
            self.found[self.prefix + name] = tensor.detach()


Score = Callable[[Tensor, Tensor], Tensor]


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """q·k / sqrt(K), so that the variance does not grow with K (Vaswani et al. 2017, section
    3.2.1).
    """
    scale: float = q.size(-1) ** -0.5
    return q @ k.mT * scale  # (B, H, T, S)


def dot(q: Tensor, k: Tensor) -> Tensor:
    """q·k (Luong et al. 2015, arXiv:1508.04025)."""
    return q @ k.mT  # (B, H, T, S)


def squared_distance(q: Tensor, k: Tensor) -> Tensor:
    """|q - k|², by differences rather than by the expanded square, which loses digits near zero."""
    return (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)  # (B, H, T, S)


def distance(q: Tensor, k: Tensor) -> Tensor:
    """|q - k|, kept off zero where the root has no gradient and the logarithm no value."""
    return squared_distance(q, k).clamp_min(1e-12).sqrt()  # (B, H, T, S)


def negative_distance(q: Tensor, k: Tensor) -> Tensor:
    """-|q - k|."""
    return -distance(q, k)


def negative_log_distance(q: Tensor, k: Tensor) -> Tensor:
    """-log |q - k|: the softmax of it weighs keys by inverse distance."""
    return -distance(q, k).log()


class Gaussian(nn.Module):
    """-|q - k|² / (2 h²) with a learned bandwidth h per head (Nadaraya 1964, Watson 1964)."""

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        # h² = sqrt(K) at first: the scale of the dot product above
        self.log_bandwidth = nn.Parameter(torch.full((n_heads, 1, 1), d_head**0.5).log() / 2)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, T, S)."""
        return -squared_distance(q, k) / (2 * (2 * self.log_bandwidth).exp())


class Cosine(nn.Module):
    """cos(q, k) times a learned sharpness per head; alone it could never prefer one key by more
    than e².
    """

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.full((n_heads, 1, 1), d_head**0.5).log())

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, T, S)."""
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.log_sharpness.exp()


class Bilinear(nn.Module):
    """q W k, one matrix per head (Luong et al. 2015, "general")."""

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        # W = I / sqrt(K): scaled dot product at first
        self.weight = nn.Parameter(
            torch.eye(d_head).repeat(n_heads, 1, 1) * d_head**-0.5
        )  # (H, K, K)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, T, S)."""
        return q @ self.weight @ k.mT


class Additive(nn.Module):
    """v·tanh(W q + U k), one small network per head (Bahdanau et al. 2015, arXiv:1409.0473, section
    A.1.2).
    """

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        scale = d_head**-0.5
        self.query = nn.Parameter(torch.randn(n_heads, d_head, d_head) * scale)  # (H, K, K)
        self.key = nn.Parameter(torch.randn(n_heads, d_head, d_head) * scale)
        self.value = nn.Parameter(torch.randn(n_heads, d_head, 1) * scale)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, T, S); holds (B, H, T, S, K) for a moment."""
        mixed = torch.tanh((q @ self.query).unsqueeze(-2) + (k @ self.key).unsqueeze(-3))
        return (mixed @ self.value[:, None]).squeeze(-1)


PLAIN: dict[str, Score] = {
    "scaled_dot": scaled_dot,
    "dot": dot,
    "negative_distance": negative_distance,
    "negative_log_distance": negative_log_distance,
}
LEARNED: dict[str, type[nn.Module]] = {
    "gaussian": Gaussian,
    "cosine": Cosine,
    "bilinear": Bilinear,
    "additive": Additive,
}
SCORES = (*PLAIN, *LEARNED)


def make_score(name: str, n_heads: int, d_head: int) -> Score:
    """The score of that name, with its own parameters where it has any."""
    if name in PLAIN:
        return PLAIN[name]
    if name in LEARNED:
        return LEARNED[name](n_heads, d_head)
    raise UsageError(f"unknown score {name!r}; {did_you_mean(name, list(SCORES))}")


try:
    from regard.kernels.short_attention import short_attention
except ImportError:  # no Triton here: PyTorch's own kernels
    short_attention = None  # type: ignore[assignment, unused-ignore]

__all__ = ["fits", "short_attention"]

FEWEST = 16  # queries; fewer are decoding, which has its own kernels
MOST = 128  # queries or keys: one tile holds all scores, and more do not fit into the registers
LARGEST = 128 * 64  # numbers in a tile of keys: more do not fit into every GPU's shared memory
WIDTHS = (16, 32, 64, 128)  # of a head


def fits(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> bool:
    """May `short_attention` take q (B, H, T, K), k and v (B, G, S, K) and a boolean mask?

    It wants half precision on a GPU, G = H, one mask for all heads, and short rows.
    """
    t, s, d = q.size(2), k.size(2), q.size(3)
    return (
        short_attention is not None
        and q.is_cuda
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.dtype == k.dtype == v.dtype
        and q.shape[:2] == k.shape[:2]
        and FEWEST <= t <= MOST
        and s <= MOST
        and d in WIDTHS
        and max(t, s) * d <= LARGEST
        and (mask is None or mask.size(1) == 1)
    )


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    *,
    bias: Tensor | None = None,
    score: Score = scaled_dot,
    tap: Tap | None = None,
) -> Tensor:
    """q (B, H, T, K) looks at k and v (B, G, S, K), G dividing H; returns (B, H, T, K).

    A query that may look nowhere returns zeros. `bias` broadcasts to (B, H, T, S). Asking `tap` for
    the weights, or any score but the scaled dot product, takes the explicit path; otherwise the
    fused kernel runs.
    """
    if score is scaled_dot and (tap is None or not (tap.wants("weights") or tap.wants("scores"))):
        return fused(q, k, v, mask, bias)
    groups = q.size(1) // k.size(1)
    if groups > 1:  # each key-value head serves several queries (Ainslie et al. 2023, 2305.13245)
        k, v = (
            k.repeat_interleave(groups, dim=1),
            v.repeat_interleave(groups, dim=1),
        )  # (B, H, S, K)
    scores = score(q, k)  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        allowed = mask.tensor(q.size(0), q.size(2), k.size(2), q.device)
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = softmax(scores)
    if tap is not None:
        tap("scores", scores)
        tap("weights", weights)
    return weights @ v  # (B, H, T, K)


def attend_memory(
    q: Tensor, memory: CrossKV, *, score: Score = scaled_dot, tap: Tap | None = None
) -> Tensor:
    """q (B·W, H, T, K) looks at the memory of B sources; returns (B·W, H, T, K).

    Row b·W + w, one of the W beams of source b, looks at the same keys as its neighbours: they need
    no copies. With more than one, each mask row must be for all queries alike.
    """
    beams, length = len(q) // len(memory.k), q.size(2)
    if beams > 1:
        q = q.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)  # (B, H, W·T, K)
    y = attend(q, memory.k, memory.v, memory.mask, score=score, tap=tap)
    if beams > 1:
        y = y.unflatten(2, (beams, length)).transpose(1, 2).flatten(0, 1)  # (B·W, H, T, K)
    return y


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the keys; a row of -inf only gives zeros, not NaN."""
    top = scores.amax(dim=-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)  # a row that may look nowhere
    weights = (scores - top).exp()
    return weights / weights.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


def fused(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Tensor | None) -> Tensor:
    """PyTorch's fused scaled dot-product attention, with `is_causal` where that says it all; our
    own kernels where rows are short.
    """
    if isinstance(mask, Band):
        return mask.attend(q, k, v, bias)
    gqa = q.size(1) != k.size(1)
    if bias is None and (mask is None or mask.is_causal(q.size(2), k.size(2))):
        if fits(q, k, v):
            return short_attention(q, k, v, None, mask is not None)  # type: ignore[no-any-return]
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None, enable_gqa=gqa)
    if mask is None:
        assert bias is not None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), enable_gqa=gqa)
    allowed = mask.tensor(q.size(0), q.size(2), k.size(2), q.device)  # (B or 1, 1, T, S)
    if bias is None and fits(q, k, v, allowed):
        return short_attention(q, k, v, allowed, False)  # type: ignore[no-any-return]
    seeing = allowed.any(dim=-1, keepdim=True) if mask.may_be_empty else None
    if seeing is not None:
        allowed = allowed | ~seeing  # let the blind look anywhere, then drop what they saw
    scores = allowed if bias is None else torch.where(allowed, bias, -torch.inf).to(q.dtype)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=scores, enable_gqa=gqa)
    return y if seeing is None else y * seeing


@dataclass(frozen=True, slots=True)
class MaskAndBias:
    """Who sees whom, and what is added to the scores."""

    mask: Mask | None = None
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """Where the T queries of one call stand: what a block needs besides x, computed once for all
    layers.
    """

    mask: Mask | None = None
    rotation: Rotation | None = None
    bias: Tensor | None = None
    near: MaskAndBias | None = None  # the mask and bias of windowed attention
    there: Tensor | None = None  # (B, T) where rows hold something, if they are padded
    places: int | Tensor = 0  # where in the cache: the first query's place, or all of them (B, T)
    end: int = 0  # keys known after this call
    lengths: Tensor | None = None  # (B,) queries of each row that count; None: all
    longest: int = 0  # tokens of the longest row before this call
    until: int = 0  # and after it
    asked: int = 0  # how many positions, from the first, are wanted of this block; 0: all

    def for_first(self, asked: int) -> AttentionContext:
        """The same where only the first positions are asked for."""
        bias = None if self.bias is None else self.bias[..., :asked, :]
        mask = None if self.mask is None else self.mask.for_first(asked)
        return replace(self, bias=bias, mask=mask, asked=asked)


class SelfAttention(nn.Module):
    """Multi-head self-attention with grouped key-value heads; queries, keys and values are one
    product.

    `projections="identity"` takes the heads straight from x: attention without parameters.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int = 0,
        d_head: int = 0,
        bias: bool = False,
        qk_norm_eps: float = 0.0,
        score: str = "scaled_dot",
        projections: str = "learned",
    ) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d_head = d_head or d_model // n_heads
        width = n_heads * self.d_head
        if n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads, got {n_heads} and {n_kv_heads}"
            )
        self.qkv: nn.Linear | None = None
        self.out: nn.Module = nn.Identity()
        if projections == "learned":
            self.qkv = nn.Linear(d_model, width + 2 * self.n_kv_heads * self.d_head, bias=bias)
            self.out = nn.Linear(width, d_model, bias=bias)
        elif width != d_model or self.n_kv_heads != n_heads:
            raise ValueError(
                "identity projections need n_heads · d_head = d_model and no grouped heads"
            )
        # QK-norm (Henry et al. 2020, arXiv:2010.04245), per head, as in Qwen3
        self.q_norm = RMSNorm(self.d_head, qk_norm_eps) if qk_norm_eps else None
        self.k_norm = RMSNorm(self.d_head, qk_norm_eps) if qk_norm_eps else None
        self.score = make_score(score, n_heads, self.d_head)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many rows of `qkv` make queries, keys and values."""
        return (self.n_heads * self.d_head, *(self.n_kv_heads * self.d_head,) * 2)

    def forward(
        self, x: Tensor, place: AttentionContext, state: Any = None, tap: Tap | None = None
    ) -> Tensor:
        """(B, T, D) to (B, T, D); with a state, also looks at what it holds and adds to it."""
        q, k, v = self.heads(x, place)  # (B, T, H or G, K)
        if place.asked:
            q = q[:, : place.asked]
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, H or G, T, K)
        y = self.mix(q, k, v, place, state, tap)  # (B, H, T, K)
        return self.out(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # (B, T, D)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        place: AttentionContext,
        state: Any,
        tap: Tap | None,
    ) -> Tensor:
        """q (B, H, T, K) looking at k and v (B, G, T, K), and at those of the state."""
        if state is not None:
            k, v = state.write(k, v, place.places, place.end)  # (B, G, S, K)
        return attend(q, k, v, place.mask, bias=place.bias, score=self.score, tap=tap)

    def heads(self, x: Tensor, place: AttentionContext) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, T, H, K), keys and values (B, T, G, K); queries and keys go through norm and
        rotation as one.
        """
        n, g = self.n_heads, self.n_kv_heads
        if self.qkv is None:
            v = x.unflatten(-1, (n, self.d_head))
            qk = torch.cat((v, v), dim=2)  # (B, T, H + G, K)
        else:
            qkv = self.qkv(x).unflatten(-1, (n + 2 * g, self.d_head))
            qk, v = qkv[:, :, : n + g], qkv[:, :, n + g :]
        if self.q_norm is not None and self.k_norm is not None:
            gain = torch.cat((self.q_norm.weight.expand(n, -1), self.k_norm.weight.expand(g, -1)))
            qk = self.q_norm.normalise(qk, gain)
        if place.rotation is not None:
            qk = rotate(qk, place.rotation)
        return qk[:, :, :n], qk[:, :, n:], v

    def new_state(self, batch: int, capacity: int, like: Tensor) -> Any:
        """An empty cache for this layer."""
        return KVCache(batch, self.n_kv_heads, capacity, self.d_head, like)


class CrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another, its memory."""

    def __init__(
        self, d_model: int, n_heads: int, *, bias: bool = False, score: str = "scaled_dot"
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q = nn.Linear(d_model, d_model, bias=bias)
        self.kv = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        self.score = make_score(score, n_heads, d_model // n_heads)

    def memory(self, source: Tensor, mask: Mask | None = None) -> CrossKV:
        """Of a source (B, S, D): computed once, used at every step."""
        kv = self.kv(source).unflatten(-1, (2, self.n_heads, -1))  # (B, S, 2, H, K)
        k, v = kv.unbind(2)
        return CrossKV(k.transpose(1, 2), v.transpose(1, 2), mask)

    def forward(self, x: Tensor, memory: CrossKV, *, tap: Tap | None = None) -> Tensor:
        """(B, T, D) looking at `memory`, to (B, T, D)."""
        q = self.q(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B·W, H, T, K)
        y = attend_memory(q, memory, score=self.score, tap=tap)
        return self.out(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]
