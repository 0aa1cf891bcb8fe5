"""Configurations of different families with the same number of parameters, for fair comparisons."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from regard.errors import UsageError
from regard.models.model import Shape
from regard.registry import MODELS

WIDEST = 1 << 14  # d_model tried
TOLERANCE = 0.1  # relative difference from the wanted number of parameters


def count_parameters(
    name: str, vocab_size: int, config: Any, task: str = "next", reads: str = "tokens"
) -> int:
    """Return the number of trainable parameters of a family, without allocating any."""
    with torch.device("meta"):
        model = MODELS.get(name, task, reads)(vocab_size, config)
    return sum(p.numel() for p in model.parameters())


def find_config(
    name: str,
    wanted: int,
    vocab_size: int,
    *,
    n_layers: int = 4,
    max_len: int = 256,
    preset: str = "",
    task: str = "next",
    reads: str = "tokens",
    decided: Mapping[str, Any] | None = None,
) -> Any:
    """Return the configuration of a family with `wanted` parameters, to a tenth.

    Its depth is the family's where a Transformer has n_layers; its width is solved for, and d_ff
    where widths are too coarse. `decided` are settings that follow from the data, such as the size
    of a separate source vocabulary. Raise UsageError where there is no such configuration: the
    vocabulary alone may need more parameters.
    """
    cls = MODELS.get(name, task, reads)
    make = cls.PRESETS[preset or next(iter(cls.PRESETS))]
    depth = cls.adapt_shape(Shape(n_layers, 1), max_len).n_layers

    def config_of(width: int) -> Any:
        try:
            return dataclasses.replace(make(depth, width), max_len=max_len, **(decided or {}))
        except ValueError:
            return None  # too narrow for its parts

    def count(config: Any) -> int:
        return count_parameters(name, vocab_size, config, task, reads)

    def error(config: Any) -> float:
        return abs(count(config) / wanted - 1)

    widest = min(WIDEST, 2 * (wanted // vocab_size) + 64)  # the embedding alone would exceed it
    candidates = map(config_of, range(1, widest + 1))
    configs = [config for config in candidates if config is not None and splits_evenly(config)]
    index = bisect.bisect_left(configs, wanted, key=count)
    config = min(configs[max(0, index - 1) : index + 1], key=error)
    if error(config) > TOLERANCE / 2 and hasattr(config, "d_ff"):  # the count is linear in d_ff
        wider = dataclasses.replace(config, d_ff=config.d_ff + 1)
        more = round((wanted - count(config)) / (count(wider) - count(config)))
        config = dataclasses.replace(config, d_ff=max(1, config.d_ff + more))
    if error(config) > TOLERANCE:
        raise UsageError(
            f"no model {name} has {wanted:,} parameters, the closest has {count(config):,} "
            f"(vocabulary {vocab_size:,}, {depth} layers)"
        )
    return config


def splits_evenly(config: Any) -> bool:
    """Return whether heads, if any, share the width evenly and have the even size of rotations."""
    if not hasattr(config, "n_heads"):
        return True
    return bool(config.d_head % 2 == 0 and config.n_heads * config.d_head == config.d_model)
