"""Attention: every query takes a weighted mean of values, the weights a softmax of scores.

Equation 1 of Vaswani et al. 2017 (arXiv:1706.03762) with any score, mask and bias. The fused kernel
is the default path; the explicit one is its oracle and the only one that forms the (B, H, T, S)
weights. Short sequences in half precision take kernels of our own (`kernels/short_attention.py`).

Scores compare queries and keys: each is a function of q (B, H, T, K) and k (B, H, S, K) that
returns (B, H, T, S). With minus log distance the softmax is inverse-distance weighting,
w = (1/d) / sum(1/d); with the Gaussian it is Nadaraya-Watson smoothing with a normal kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean
from regard.layers import Layer, Mixer
from regard.layers.cache import CrossKV, KVCache
from regard.layers.masks import Mask
from regard.layers.norms import RMSNorm
from regard.layers.positions import Rotation, rotate
from regard.layers.tap import Tap, tapped

try:
    from regard.kernels.short_attention import short_attention
except ImportError:  # without Triton
    short_attention = None  # type: ignore[assignment, unused-ignore]

# Limits of the kernels for short sequences
MIN_QUERIES = 16  # fewer are decoding, which has its own kernels
MAX_LENGTH = 128  # queries or keys: one tile holds all scores, and more exceed the registers
MAX_TILE = 128 * 64  # numbers in a tile of keys: more exceed the shared memory of some GPUs
HEAD_WIDTHS = (16, 32, 64, 128)


Score = Callable[[Tensor, Tensor], Tensor]


def scaled_dot(q: Tensor, k: Tensor) -> Tensor:
    """q·k / sqrt(K): the variance does not grow with K (Vaswani et al. 2017, section 3.2.1)."""
    scale: float = q.size(-1) ** -0.5
    return q @ k.mT * scale  # (B, H, T, S)


def dot(q: Tensor, k: Tensor) -> Tensor:
    """q·k (Luong et al. 2015, arXiv:1508.04025)."""
    return q @ k.mT  # (B, H, T, S)


def squared_distance(q: Tensor, k: Tensor) -> Tensor:
    """|q - k|² by differences: the expanded square loses digits near zero."""
    return (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(-1)  # (B, H, T, S)


def distance(q: Tensor, k: Tensor) -> Tensor:
    """|q - k|, kept above zero, where the root has no gradient and the logarithm no value."""
    return squared_distance(q, k).clamp_min(1e-12).sqrt()  # (B, H, T, S)


def negative_distance(q: Tensor, k: Tensor) -> Tensor:
    """-|q - k|."""
    return -distance(q, k)


def negative_log_distance(q: Tensor, k: Tensor) -> Tensor:
    """-log |q - k|."""
    return -distance(q, k).log()


class Gaussian(nn.Module):
    """-|q - k|² / (2 h²) with a learned bandwidth h per head (Nadaraya 1964, Watson 1964)."""

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        # initially h² = sqrt(K), the scale of the dot product
        self.log_bandwidth = nn.Parameter(torch.full((n_heads, 1, 1), d_head**0.5).log() / 2)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return -squared_distance(q, k) / (2 * (2 * self.log_bandwidth).exp())  # (B, H, T, S)


class Cosine(nn.Module):
    """cos(q, k) times a learned scale per head; the cosine alone could prefer no key by more than
    a factor of e².
    """

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.log_sharpness = nn.Parameter(torch.full((n_heads, 1, 1), d_head**0.5).log())

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        cosine = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
        return cosine * self.log_sharpness.exp()  # (B, H, T, S)


class Bilinear(nn.Module):
    """q W k, one matrix per head (Luong et al. 2015, "general")."""

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        # initially W = I / sqrt(K), the scaled dot product
        weight = torch.eye(d_head).repeat(n_heads, 1, 1) * d_head**-0.5
        self.weight = nn.Parameter(weight)  # (H, K, K)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ self.weight @ k.mT  # (B, H, T, S)


class Additive(nn.Module):
    """v·tanh(W q + U k), a small network per head (Bahdanau et al. 2015, arXiv:1409.0473, A.1.2).

    It needs memory for (B, H, T, S, K).
    """

    def __init__(self, n_heads: int, d_head: int) -> None:
        super().__init__()
        scale = d_head**-0.5
        self.query = nn.Parameter(torch.randn(n_heads, d_head, d_head) * scale)  # (H, K, K)
        self.key = nn.Parameter(torch.randn(n_heads, d_head, d_head) * scale)
        self.value = nn.Parameter(torch.randn(n_heads, d_head, 1) * scale)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        hidden = torch.tanh((q @ self.query).unsqueeze(-2) + (k @ self.key).unsqueeze(-3))
        return (hidden @ self.value[:, None]).squeeze(-1)  # (B, H, T, S)


SCORE_FUNCTIONS: dict[str, Score] = {
    "scaled_dot": scaled_dot,
    "dot": dot,
    "negative_distance": negative_distance,
    "negative_log_distance": negative_log_distance,
}
LEARNED_SCORES: dict[str, type[nn.Module]] = {
    "gaussian": Gaussian,
    "cosine": Cosine,
    "bilinear": Bilinear,
    "additive": Additive,
}
SCORES = (*SCORE_FUNCTIONS, *LEARNED_SCORES)


def make_score(name: str, n_heads: int, d_head: int) -> Score:
    if name in SCORE_FUNCTIONS:
        return SCORE_FUNCTIONS[name]
    if name in LEARNED_SCORES:
        return LEARNED_SCORES[name](n_heads, d_head)
    raise UsageError(f"unknown score {name!r}; {did_you_mean(name, list(SCORES))}")


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
    """Return the attention (B, H, T, K) of q (B, H, T, K) to k and v (B, G, S, K), G dividing H.

    A query without allowed keys returns zeros. `bias` broadcasts to (B, H, T, S). The fused kernel
    runs unless `tap` wants the weights or the score is not the scaled dot product.
    """
    if score is scaled_dot and (tap is None or not (tap.wants("weights") or tap.wants("scores"))):
        return attend_fused(q, k, v, mask, bias)
    groups = q.size(1) // k.size(1)
    if groups > 1:  # grouped key-value heads (Ainslie et al. 2023, arXiv:2305.13245)
        k = k.repeat_interleave(groups, dim=1)  # (B, H, S, K)
        v = v.repeat_interleave(groups, dim=1)
    scores = score(q, k)  # (B, H, T, S)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        allowed = mask.tensor(q.size(0), q.size(2), k.size(2), q.device)
        scores = scores.masked_fill(~allowed, -torch.inf)
    scores = tapped(tap, "scores", scores)
    weights = tapped(tap, "weights", softmax(scores))
    return weights @ v  # (B, H, T, K)


def attend_memory(
    q: Tensor, memory: CrossKV, *, score: Score = scaled_dot, tap: Tap | None = None
) -> Tensor:
    """Return the attention (B·W, H, T, K) of q (B·W, H, T, K) to the memory of B sources.

    The W beams of source b, rows b·W to b·W + W - 1, share its keys without copies. With W > 1 the
    mask must be the same for all queries of a row.
    """
    beams, length = len(q) // len(memory.k), q.size(2)
    k, v = tapped(tap, "k", memory.k), tapped(tap, "v", memory.v)
    if beams > 1:
        q = q.unflatten(0, (-1, beams)).transpose(1, 2).flatten(2, 3)  # (B, H, W·T, K)
    y = attend(q, k, v, memory.mask, score=score, tap=tap)
    if beams > 1:
        y = y.unflatten(2, (beams, length)).transpose(1, 2).flatten(0, 1)  # (B·W, H, T, K)
    return y


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax over the keys, zeros instead of NaN for a row of -inf."""
    top = scores.amax(dim=-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    weights = (scores - top).exp()
    return weights / weights.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)


def attend_fused(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, bias: Tensor | None) -> Tensor:
    """Scaled dot-product attention by the mask's own kernel, the one for short sequences, or
    PyTorch's, with `is_causal` where that is the whole mask.
    """
    kernel = None if mask is None else mask.kernel()
    if kernel is not None:
        return kernel(q, k, v, bias)
    gqa = q.size(1) != k.size(1)
    if bias is None and (mask is None or mask.is_causal(q.size(2), k.size(2))):
        if fits_short_kernel(q, k, v):
            return short_attention(q, k, v, None, mask is not None)  # type: ignore[no-any-return]
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None, enable_gqa=gqa)
    if mask is None:
        assert bias is not None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), enable_gqa=gqa)
    allowed = mask.tensor(q.size(0), q.size(2), k.size(2), q.device)  # (B or 1, 1, T, S)
    if bias is None and fits_short_kernel(q, k, v, allowed):
        return short_attention(q, k, v, allowed, False)  # type: ignore[no-any-return]
    has_keys = allowed.any(dim=-1, keepdim=True) if mask.may_be_empty else None
    if has_keys is not None:
        allowed = allowed | ~has_keys  # let empty rows attend to all, then drop their results
    scores = allowed if bias is None else torch.where(allowed, bias, -torch.inf).to(q.dtype)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=scores, enable_gqa=gqa)
    return y if has_keys is None else y * has_keys


def fits_short_kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> bool:
    """Return whether `short_attention` takes q (B, H, T, K), k and v (B, G, S, K) and a boolean
    mask: half precision on a GPU, G = H, one mask for all heads, and short sequences.
    """
    t, s, d = q.size(2), k.size(2), q.size(3)
    return (
        short_attention is not None
        and q.is_cuda
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.dtype == k.dtype == v.dtype
        and q.shape[:2] == k.shape[:2]
        and MIN_QUERIES <= t <= MAX_LENGTH
        and s <= MAX_LENGTH
        and d in HEAD_WIDTHS
        and max(t, s) * d <= MAX_TILE
        and (mask is None or mask.size(1) == 1)
    )


@dataclass(frozen=True, slots=True)
class MaskAndBias:
    """The mask of attention, and what is added to its scores."""

    mask: Mask | None = None
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """What a block needs to know about the T queries of one call, computed once for all layers."""

    mask: Mask | None = None
    rotation: Rotation | None = None
    bias: Tensor | None = None
    windowed: MaskAndBias | None = None  # the mask and bias of windowed attention
    valid: Tensor | None = None  # (B, T) False for padding, where rows are padded
    slots: int | Tensor = 0  # in the cache: that of the first query, or all of them (B, T)
    end: int = 0  # number of cached keys after this call
    lengths: Tensor | None = None  # (B,) queries of each row that are not padding; None: all
    longest: int = 0  # tokens of the longest row before this call
    longest_after: int = 0
    n_first: int = 0  # compute only so many leading positions; 0: all

    @property
    def start(self) -> int | Tensor:
        """The position of the first query, an int for all rows or (B,)."""
        return self.slots if isinstance(self.slots, int) else self.slots[:, 0]

    def for_first(self, n_first: int) -> AttentionContext:
        bias = None if self.bias is None else self.bias[..., :n_first, :]
        mask = None if self.mask is None else self.mask.for_first(n_first)
        return replace(self, bias=bias, mask=mask, n_first=n_first)


class SelfAttention(Mixer):
    """Multi-head self-attention with grouped key-value heads; one matrix computes queries, keys and
    values.

    `projections="identity"` takes the heads from x itself: attention without parameters.
    """

    uses_mask: ClassVar[bool] = True
    supports_packing: ClassVar[bool] = True
    supports_subset: ClassVar[bool] = True
    has_weights: ClassVar[bool] = True

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

    @classmethod
    def from_config(cls, config: Any, *, causal: bool) -> Self:
        return cls(config.d_model, config.n_heads, **cls.config_options(config, causal=causal))

    @classmethod
    def config_options(cls, config: Any, *, causal: bool) -> dict[str, Any]:
        """Return the keyword arguments of the constructor for a stack."""
        return {
            "n_kv_heads": config.n_kv_heads,
            "d_head": config.d_head,
            "bias": config.bias,
            "qk_norm_eps": config.norm_eps if config.qk_norm else 0.0,
            "score": config.score,
            "projections": config.projections,
        }

    def fused_weights(self) -> dict[Tensor, tuple[int, ...]]:
        if self.qkv is None:
            return {}
        keys = self.n_kv_heads * self.d_head
        return {self.qkv.weight: (self.n_heads * self.d_head, keys, keys)}

    def forward(
        self, x: Tensor, context: AttentionContext, state: Any = None, tap: Tap | None = None
    ) -> Tensor:
        """(B, T, D) to (B, T, D); a state's keys and values are attended to and extended."""
        q, k, v = self.project(x, context)  # (B, T, H or G, K)
        if context.n_first:
            q = q[:, : context.n_first]
        parts = zip("qkv", (q, k, v), strict=True)
        q, k, v = (tapped(tap, name, x.transpose(1, 2)) for name, x in parts)  # (B, H or G, T, K)
        y = tapped(tap, "heads", self.mix(q, k, v, context, state, tap))  # (B, H, T, K)
        return self.out(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]  # (B, T, D)

    def mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        state: Any,
        tap: Tap | None,
    ) -> Tensor:
        """Return the attention of q (B, H, T, K) to k and v (B, G, T, K) and those of the state."""
        if state is not None:
            k, v = state.write(k, v, context.slots, context.end)  # (B, G, S, K)
        return attend(q, k, v, context.mask, bias=context.bias, score=self.score, tap=tap)

    def project(self, x: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, T, H, K), keys and values (B, T, G, K); queries and keys pass through
        norm and rotation as one tensor.
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
            qk = self.q_norm.normalize(qk, gain)
        if context.rotation is not None:
            qk = rotate(qk, context.rotation)
        return qk[:, :, :n], qk[:, :, n:], v

    def new_state(self, batch: int, capacity: int, like: Tensor) -> Any:
        return KVCache(batch, self.n_kv_heads, capacity, self.d_head, like)


class CrossAttention(Layer):
    """Attention with queries from one sequence, keys and values from another."""

    def __init__(
        self, d_model: int, n_heads: int, *, bias: bool = False, score: str = "scaled_dot"
    ) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.q = nn.Linear(d_model, d_model, bias=bias)
        self.kv = nn.Linear(d_model, 2 * d_model, bias=bias)
        self.out = nn.Linear(d_model, d_model, bias=bias)
        self.score = make_score(score, n_heads, d_model // n_heads)

    def fused_weights(self) -> dict[Tensor, tuple[int, ...]]:
        return {self.kv.weight: (self.kv.out_features // 2,) * 2}

    def memory(self, source: Tensor, mask: Mask | None = None) -> CrossKV:
        """Return the keys and values of a source (B, S, D), which serve all decoding steps."""
        kv = self.kv(source).unflatten(-1, (2, self.n_heads, -1))  # (B, S, 2, H, K)
        k, v = kv.unbind(2)
        return CrossKV(k.transpose(1, 2), v.transpose(1, 2), mask)

    def forward(self, x: Tensor, memory: CrossKV, *, tap: Tap | None = None) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        q = self.q(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)  # (B·W, H, T, K)
        q = tapped(tap, "q", q)
        y = tapped(tap, "heads", attend_memory(q, memory, score=self.score, tap=tap))
        return self.out(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]
