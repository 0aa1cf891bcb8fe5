"""Attention is no linear map: the layers of a run held against one (deck 003).

A map f is linear if f(a + b) = f(a) + f(b) and f(2 a) = 2 f(a). The vectors a and b are those that
reach a layer of self-attention from two held-out records. What a bias adds is subtracted. With the
weights of a held fixed the layer is linear: what makes it none is that its weights depend on what
they average.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.lab.head_models import HeadsOfRun
from regard.layers.attention import AttentionContext, SelfAttention
from regard.layers.tap import Tap
from regard.look.page import Table

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class LayerLinearity:
    """How far a layer is from linear, as shares of the length of what a linear map would give."""

    layer: str
    added: float  # f(a + b) from f(a) + f(b)
    doubled: float  # f(2 a) from 2 f(a)
    fixed: float  # f(a + b) from f(a) + f(b), with the weights of a


def measure_run(path: Path) -> list[LayerLinearity]:
    """Measure each layer of self-attention of a run."""
    run = HeadsOfRun(path)
    first, *rest = run.forwards(2)
    other, found = rest[0] if rest else first, []
    for name, layer in run.layers.items():
        if isinstance(layer, SelfAttention):
            a, context = first.inputs[name][:2]
            b = other.inputs[name][0][:1]
            times = -(-a.size(1) // b.size(1))  # a shorter record is repeated, a longer one cut
            b = b.repeat(1, times, 1)[:, : a.size(1)].expand_as(a)
            found.append(measure_layer(name, layer, (a, b), context))
    return found


@torch.no_grad()
def measure_layer(
    name: str, layer: SelfAttention, pair: tuple[Tensor, Tensor], context: AttentionContext
) -> LayerLinearity:
    """Measure one layer on two inputs (B, T, D)."""
    a, b = pair
    tap = Tap(["weights"])
    layer(a, context, None, tap)
    weights = tap.activations["weights"].to(a.dtype)  # (B, H, T, S)

    def with_fixed_weights(x: Tensor) -> Tensor:
        v = layer.project(x, context)[2].transpose(1, 2)  # (B, G, S, K)
        v = v.repeat_interleave(layer.n_heads // layer.n_kv_heads, dim=1)
        return layer.out((weights @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    f = without_bias(lambda x: layer(x, context), a)
    fixed = without_bias(with_fixed_weights, a)
    return LayerLinearity(
        name,
        relative_gap(f(a + b), f(a) + f(b)),
        relative_gap(f(2 * a), 2 * f(a)),
        relative_gap(fixed(a + b), fixed(a) + fixed(b)),
    )


def without_bias(f: Map, like: Tensor) -> Map:
    """Return f less what it makes of zeros."""
    zero = f(torch.zeros_like(like))
    return lambda x: f(x) - zero


def relative_gap(value: Tensor, expected: Tensor) -> float:
    return float((value - expected).norm() / expected.norm().clamp_min(1e-30))


def linearity_table(layers: list[LayerLinearity], name: str) -> Table:
    """Return the table of the layers of a run."""
    rows = [[x.layer, x.added, x.doubled, f"{x.fixed:.1e}"] for x in layers]
    columns = [
        "layer",
        "f(a + b) from f(a) + f(b)",
        "f(2a) from 2 f(a)",
        "the first, weights fixed",
    ]
    return Table(columns, rows, title=f"How far the attention of {name} is from a linear map")
