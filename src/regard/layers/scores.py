"""Compatibility functions: how well does a key fit a query?

The general f(Q, K), each a function or small class of q (B, H, T, K) and k (B, H, S, K) that
returns (B, H, T, S); softmax over the last axis, the keys, follows in `attend`. Scaled dot is the
default and the only one the fused kernel computes; the others take the explicit path. Minus log
distance turns the softmax into inverse-distance weighting, w = (1/d) / sum(1/d); the Gaussian is
Nadaraya-Watson smoothing with a normal kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import UsageError, did_you_mean

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
