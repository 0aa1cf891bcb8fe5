"""Shapes: how deep and wide each family is made, and families of equal size for fair comparisons.

A Transformer of n layers is the measure. Recurrences gain from width rather than depth; a network
over a window needs one wide layer; a convolution is as deep as its context is long, since every
layer doubles what it sees.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from regard.errors import UsageError
from regard.registry import family

WIDEST = 1 << 14  # d_model tried
NEAR = 0.1  # of the wanted parameters that a configuration may miss them by
SMALL = 0.4  # of a Transformer's dropout suits a network of a fifth of its size


@dataclasses.dataclass(frozen=True)
class Shape:
    """Depth, width and dropout."""

    n_layers: int
    d_model: int
    dropout: float = 0.0


def recurrent(shape: Shape, max_len: int) -> Shape:
    """Wide rather than deep."""
    return Shape(min(shape.n_layers, 2), 2 * shape.d_model, shape.dropout)


def window(shape: Shape, max_len: int) -> Shape:
    """One wide layer, which sees too little to be disturbed much."""
    return Shape(1, 4 * shape.d_model, SMALL * shape.dropout)


def convolution(shape: Shape, max_len: int) -> Shape:
    """Just deep enough to see the context, as far as dilations go."""
    return Shape(max(1, min(10, (max_len - 1).bit_length())), shape.d_model, SMALL * shape.dropout)


# From a Transformer's shape and max_len to that of another family.
SUITED: dict[str, Callable[[Shape, int], Shape]] = {
    "mlp": window,
    "cnn": convolution,
    "rnn": recurrent,
    "gru": recurrent,
    "lstm": recurrent,
    "rnn-attention": recurrent,
    "transformer": lambda shape, max_len: shape,
}


def suited(name: str, shape: Shape, max_len: int) -> Shape:
    """The shape of a family where a Transformer would have this one."""
    return SUITED.get(name, SUITED["transformer"])(shape, max_len)


def parameters(
    name: str, vocab_size: int, config: Any, task: str = "next", tokens: str = ""
) -> int:
    """How many numbers training would move; nothing is allocated to know."""
    with torch.device("meta"):
        model = family(name, task, tokens)(vocab_size, config)
    return sum(p.numel() for p in model.parameters())


def sized(
    name: str,
    wanted: int,
    vocab_size: int,
    *,
    n_layers: int = 4,
    max_len: int = 256,
    preset: str = "",
    task: str = "next",
    tokens: str = "",
    decided: Mapping[str, Any] | None = None,
) -> Any:
    """The configuration of a family with `wanted` parameters, to a tenth: its depth is what suits
    it beside a Transformer of n_layers, its width is solved for, and where widths are too coarse
    d_ff. `decided` is what the data decide of it, such as the vocabulary of sources with one of
    their own.

    UsageError where there is none: the vocabulary alone may take more.
    """
    presets = family(name, task, tokens).PRESETS
    make = presets[preset or next(iter(presets))]
    depth = n_layers  # of what answers: presets know how deep they go
    if task in ("next", "target"):
        depth = suited(name, Shape(n_layers, 1), max_len).n_layers

    def of(width: int) -> Any:
        try:
            return dataclasses.replace(make(depth, width), max_len=max_len, **(decided or {}))
        except ValueError:
            return None  # too narrow for its parts

    def count(config: Any) -> int:
        return parameters(name, vocab_size, config, task, tokens)

    def miss(config: Any) -> float:
        return abs(count(config) / wanted - 1)

    widest = min(WIDEST, 2 * (wanted // vocab_size) + 64)  # an embedding alone would take more
    made = map(of, range(1, widest + 1))
    configs = [config for config in made if config is not None and whole_heads(config)]
    at = bisect.bisect_left(configs, wanted, key=count)
    config = min(configs[max(0, at - 1) : at + 1], key=miss)
    if miss(config) > NEAR / 2 and hasattr(config, "d_ff"):  # which a count is linear in
        wider = dataclasses.replace(config, d_ff=config.d_ff + 1)
        more = round((wanted - count(config)) / (count(wider) - count(config)))
        config = dataclasses.replace(config, d_ff=max(1, config.d_ff + more))
    if miss(config) > NEAR:
        raise UsageError(
            f"model {name} has {count(config):,} parameters at the nearest, {wanted:,} were wanted "
            f"(vocabulary {vocab_size:,}, {depth} layers)"
        )
    return config


def whole_heads(config: Any) -> bool:
    """Do heads, where there are any, share the width out evenly, and can their parts be rotated?"""
    if not hasattr(config, "n_heads"):
        return True
    return bool(config.d_head % 2 == 0 and config.n_heads * config.d_head == config.d_model)
