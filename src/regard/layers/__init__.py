"""The layers of models, and what optimizers and stacks of blocks need to know about each.

A mixer is the part of a block that combines positions: attention of some kind, or long
convolutions. To add one, write a subclass of `Mixer` and register it under a name; `model.mixers`
then accepts that name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, ClassVar, Self, TypeVar

from torch import Tensor, nn


class Layer(nn.Module):
    """A layer with parameters that an optimizer treats differently."""

    def fused_weights(self) -> dict[Tensor, tuple[int, ...]]:
        """Return the matrices that consist of several, with the number of rows of each part: Muon
        orthogonalises the parts one by one.
        """
        return {}

    def embedding_weights(self) -> Iterable[Tensor]:
        """Return the matrices that belong to an input embedding, which Muon does not update."""
        return ()

    def undecayed_parameters(self) -> Iterable[Tensor]:
        """Return the parameters without weight decay, which Muon does not update either."""
        return ()


def find_layers(model: nn.Module) -> Iterator[Layer]:
    """Yield the `Layer`s of a model."""
    return (module for module in model.modules() if isinstance(module, Layer))


class Mixer(Layer, ABC):
    """A layer that combines positions. Class attributes tell what it can do, and what it uses of
    the context that a stack computes once for all layers.
    """

    uses_mask: ClassVar[bool] = False  # `mask` and `bias` of the context
    uses_window: ClassVar[bool] = False  # the mask and bias of a sliding window
    uses_longest: ClassVar[bool] = False  # the length of the longest row after a call
    supports_packing: ClassVar[bool] = False  # can it separate records that share a row?
    supports_subset: ClassVar[bool] = False  # can it compute the first positions alone?
    exactly_causal: ClassVar[bool] = True  # gradients of the future are 0, not only up to rounding
    has_weights: ClassVar[bool] = False  # does it have attention weights to show?
    extrapolates: ClassVar[bool] = False  # is it defined beyond the lengths of training?

    out: nn.Module  # the projection that writes to the residual stream

    @classmethod
    @abstractmethod
    def from_config(cls, config: Any, *, causal: bool) -> Self:
        """Create the layer of a stack with this configuration."""

    @classmethod
    def check_config(cls, config: Any) -> None:
        """Raise ValueError for settings that do not go together with this mixer."""

    def reset(self) -> None:
        """Set the initial values of parameters that are not in linear layers."""

    @abstractmethod
    def new_state(self, batch: int, capacity: int, like: Tensor) -> Any:
        """Return an empty decoding state for `batch` rows of at most `capacity` tokens."""


M = TypeVar("M", bound=type[Mixer])
MIXERS: dict[str, str | type[Mixer]] = {  # built-in ones are imported when they are first used
    "attention": "regard.layers.attention:SelfAttention",
    "window": "regard.layers.sliding_window:WindowedAttention",
    "linear": "regard.layers.linear_attention:LinearAttention",
    "hyena": "regard.layers.hyena:Hyena",
}


def register_mixer(name: str) -> Callable[[M], M]:
    """Register a class under a name."""

    def register(cls: M) -> M:
        MIXERS[name] = cls
        return cls

    return register


def find_mixer(name: str) -> type[Mixer]:
    """Return the class that is registered under a name."""
    entry = MIXERS[name]
    if not isinstance(entry, str):
        return entry
    module, _, attribute = entry.partition(":")
    cls: type[Mixer] = getattr(import_module(module), attribute)
    return cls
