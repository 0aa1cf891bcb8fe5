"""The base class of all model families: what training, run folders and comparisons ask of them."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data.shards import Shard
from regard.models.config import Presets

if TYPE_CHECKING:
    from regard.data.corpus import Corpus

LESS_DROPOUT = 0.4  # of a Transformer's dropout, for networks of a fifth of its size


@dataclass(frozen=True)
class Shape:
    """Depth, width and dropout of a model."""

    n_layers: int
    d_model: int
    dropout: float = 0.0


class Model(nn.Module, ABC):
    """A model with the size of its vocabulary and its configuration."""

    loop: ClassVar[str]  # how it is trained: "gradient", "count", "solve", "em" or "word2vec"
    Config: ClassVar[type]  # the family's frozen dataclass
    PRESETS: ClassVar[Presets]
    reads: ClassVar[str] = "tokens"  # the kind of input: tokens, patches, points
    sized_by_config: ClassVar[bool] = True  # are all tensor shapes known before a file is read?
    supports_packing: bool = False  # may records share a row, separated by `segments`?
    static_shapes: bool = False  # do inputs of one shape always run the same kernels?

    def __init__(self, vocab_size: int, config: Any) -> None:
        super().__init__()
        self.vocab_size, self.config = vocab_size, config

    @classmethod
    def fits_at_once(cls) -> bool:
        """Return whether it is trained by a single call of `fit` instead of steps."""
        return cls.loop in ("count", "solve")

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
