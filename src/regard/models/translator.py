"""What reads one sequence and speaks another: a language model, once it has seen its source.

`given(source)` is that language model. Decoding, scoring, verifying and looking are written for
language models and need to know nothing of sources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from regard.layers.source import Source
from regard.layers.tap import Tap
from regard.models.language_model import LanguageModel


class Translator(nn.Module, ABC):
    """Predicts a target sequence from a source sequence, token by token."""

    task: ClassVar[str] = "target"
    Config: ClassVar[type]  # the family's frozen dataclass
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]]  # name to (n_layers, d_model) -> Config
    sized_by_config: ClassVar[bool] = True
    packs: bool = False  # may several pairs share a row, kept apart by segments?
    steps_alike: bool = False  # are its steps the same kernels for every batch of a shape?

    vocab_size: int  # of targets
    config: Any

    @abstractmethod
    def given(self, source: Source) -> Given:
        """The language model of what follows from these sources, a row of targets for each."""


class NeuralTranslator(Translator):
    """A translator trained by gradients: ids to hidden vectors, and a linear head to logits."""

    head: nn.Linear

    @abstractmethod
    def forward(self, ids: Tensor, segments: Tensor | None, source: Source) -> Tensor:
        """The (B, T, D) vectors that the head projects, for targets (B, T) given their sources."""


class Given(LanguageModel):
    """A translator that has read its sources: a language model of their targets.

    It has as many rows as `source`, or a multiple: row b·W + w then belongs to source b. What it
    has read is kept in one memory, so that a recorded step stays valid when it reads other sources
    of the same shape.
    """

    def __init__(self, translator: Translator) -> None:
        super().__init__(translator.vocab_size, translator.config)
        self.training = translator.training  # it drops nothing that the translator does not

    @abstractmethod
    def read(self, source: Source, *, tap: Tap | None = None) -> None:
        """Forget the sources and read these, of the same shape, in the same memory."""
