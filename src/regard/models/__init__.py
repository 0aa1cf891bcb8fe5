"""Model families, one file each, and their base class: what training, run folders and comparisons
ask of them.

`find_config` gives families the same number of parameters, for fair comparisons.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data.shards import Shard
from regard.errors import UsageError, UserError
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.registry import MODELS

if TYPE_CHECKING:
    from regard.data.corpus import Corpus


Presets = dict[str, Callable[[int, int], Any]]  # name to (n_layers, d_model) -> config


def check_ranges(config: Any, least: int = 1, **most: int) -> None:
    """Raise ValueError unless each named field lies between `least` and its own bound."""
    for name, bound in most.items():
        if not least <= getattr(config, name) <= bound:
            raise ValueError(f"{name} must be from {least} to {bound}, got {getattr(config, name)}")


def check_choices(config: Any, **allowed: Iterable[str]) -> None:
    """Raise ValueError unless each named field is one of its allowed values."""
    for name, choices in allowed.items():
        if getattr(config, name) not in choices:
            raise ValueError(
                f"{name} must be one of {', '.join(choices)}, got {getattr(config, name)!r}"
            )


def check_dropout(config: Any) -> None:
    """Raise ValueError unless dropout is a probability below 1."""
    if not 0 <= config.dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {config.dropout}")


LESS_DROPOUT = 0.4  # of a Transformer's dropout, for networks of a fifth of its size


@dataclass(frozen=True)
class Shape:
    """Depth, width and dropout of a model."""

    n_layers: int
    d_model: int
    dropout: float = 0.0


@dataclass(frozen=True)
class LossMetric:
    """What the mean loss of training and validation is called, and how users read it.

    `name` is the metric of that name in regard.json, if the task reports the same number.
    """

    name: str
    unit: str
    words: str = "{}"  # around the value in a progress line, such as "RMSE {}"
    items: str = ""  # what the speed counts; "" = the items of the modality, such as molecules

    def value(self, loss: float) -> float:
        """Return the metric of a mean loss."""
        return loss

    def error(self, loss: float, error: float) -> float:
        """Return the standard error of the metric from that of the loss."""
        return error

    def show(self, value: float) -> str:
        """Return a value with its name, for a progress line."""
        exact = abs(value) < 1000
        return self.words.format(f"{value:.3g}" if exact else f"{value:,.0f}")


@dataclass(frozen=True)
class RootMeanSquare(LossMetric):
    """The root of a loss that is half of a squared error, in units of `deviation`."""

    deviation: float = 1.0

    def value(self, loss: float) -> float:
        return self.deviation * math.sqrt(2 * loss)

    def error(self, loss: float, error: float) -> float:
        return self.deviation * error / math.sqrt(2 * loss) if loss else 0.0


@dataclass(frozen=True)
class Bits(LossMetric):
    """A loss in nats, read in bits."""

    def value(self, loss: float) -> float:
        return loss / math.log(2)

    def error(self, loss: float, error: float) -> float:
        return error / math.log(2)


BITS = Bits("bits_per_symbol", "bits per symbol", "{} bits per symbol", "symbols")


class Model(nn.Module, ABC):
    """A model with the size of its vocabulary and its configuration."""

    loop: ClassVar[str]  # how it is trained: "gradient", "count", "solve", "em" or "word2vec"
    Config: ClassVar[type]  # the family's frozen dataclass
    PRESETS: ClassVar[Presets]
    reads: ClassVar[str] = "tokens"  # the kind of input: tokens, patches, points
    reads_end: ClassVar[bool] = True  # does it read the end token of a record, or only predict it?
    sized_by_config: ClassVar[bool] = True  # are all tensor shapes known before a file is read?
    supports_packing: bool = False  # may records share a row, separated by `segments`?
    static_shapes: bool = False  # do inputs of one shape always run the same kernels?

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config

    @property
    def loss_metric(self) -> LossMetric:
        """What its loss is called."""
        return BITS

    @classmethod
    def fits_at_once(cls) -> bool:
        """Return whether it is trained by a single call of `fit` instead of steps."""
        return cls.loop in ("count", "solve")

    def read_batch(
        self, source: Inputs, *, positions: Sequence[int] | None = None, tap: Tap | None = None
    ) -> Tensor:
        """Return the outputs for sequences, a row for each: logits (B, T, V) of language models,
        scores (B, O) or (B, T, O) of models of labels and values; with `positions` only there.
        """
        raise UserError(f"{type(self).__name__} does not read single sequences of tokens")

    def prepare(self, shard: Shard) -> None:
        """Set what depends on the training data, before the first step."""

    @classmethod
    def unsuitable(cls, corpus: Corpus) -> str:
        """Return why comparisons leave this family out for a corpus, or ""."""
        return ""

    @classmethod
    def adapt_shape(cls, shape: Shape, max_len: int) -> Shape:
        """Return the shape of this family where a Transformer would have `shape`."""
        return shape


class VariableBuffers(nn.Module):
    """A module whose `variable` buffers (all if empty) take their sizes from the loaded file."""

    sized_by_config: ClassVar[bool] = False
    variable: ClassVar[tuple[str, ...]] = ()

    def buffer_error(self) -> str:
        """Return what is inconsistent in the loaded buffers, or ""."""
        return ""

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        for name in self.variable or tuple(self._buffers):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if error := self.buffer_error():
            rest[-1].append(error)


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
