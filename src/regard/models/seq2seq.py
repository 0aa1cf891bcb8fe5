"""What reads one sequence and speaks another: a language model, once it has seen its source.

`given(source)` is that language model. Decoding, scoring, verifying and looking are written for
language models and need to know nothing of sources.

Several translators as one: the next word has the mean of the probabilities they give it.

Runs that differ in nothing but their seed make different mistakes, and their mean makes fewer
(Hansen and Salamon 1990, "Neural network ensembles"; of translators, Sutskever et al. 2014,
arXiv:1409.3215).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.layers.attention import Tap
from regard.layers.cache import ALL, DecodeState
from regard.layers.embeddings import Inputs
from regard.models.language_model import Constrain, LanguageModel


class Seq2SeqModel(nn.Module, ABC):
    """Predicts a target sequence from a source sequence, token by token."""

    task: ClassVar[str] = "target"
    Config: ClassVar[type]  # the family's frozen dataclass
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]]  # name to (n_layers, d_model) -> Config
    sized_by_config: ClassVar[bool] = True
    supports_packing: bool = False  # may several pairs share a row, kept apart by segments?
    static_shapes: bool = False  # are its steps the same kernels for every batch of a shape?

    vocab_size: int  # of targets
    config: Any

    @abstractmethod
    def condition(self, source: Inputs) -> ConditionedLM:
        """The language model of what follows from these sources, a row of targets for each."""


class NeuralSeq2Seq(Seq2SeqModel):
    """A translator trained by gradients: ids to hidden vectors, and a linear head to logits."""

    head: nn.Linear

    @abstractmethod
    def forward(self, ids: Tensor, segments: Tensor | None, source: Inputs) -> Tensor:
        """The (B, T, D) vectors that the head projects, for targets (B, T) given their sources."""


class ConditionedLM(LanguageModel):
    """A translator that has read its sources: a language model of their targets.

    It has as many rows as `source`, or a multiple: row b·W + w then belongs to source b. What it
    has read is kept in one memory, so that a recorded step stays valid when it reads other sources
    of the same shape.
    """

    def __init__(self, translator: Seq2SeqModel) -> None:
        super().__init__(translator.vocab_size, translator.config)
        self.training = translator.training  # it drops nothing that the translator does not

    @abstractmethod
    def read(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """Forget the sources and read these, of the same shape, in the same memory."""


class Ensemble(Seq2SeqModel):
    """Translators of the same tokens, each of which has a say."""

    def __init__(self, members: Sequence[Seq2SeqModel]) -> None:
        super().__init__()
        sizes = {member.vocab_size for member in members}
        if len(sizes) != 1:
            raise ValueError(
                f"members must be translators with one vocabulary, got sizes {sorted(sizes)}"
            )
        self.members = nn.ModuleList(members)
        self.vocab_size = members[0].vocab_size
        self.config = min((member.config for member in members), key=lambda one: one.max_len)

    def condition(self, source: Inputs) -> ConditionedLM:
        """See Translator."""
        return EnsembleLM(self, source)


class EnsembleLM(ConditionedLM):
    """Translators that have read the same sources."""

    def __init__(self, together: Ensemble, source: Inputs) -> None:
        super().__init__(together)
        found = [member.condition(source) for member in together.members]  # type: ignore[operator]
        self.members: Sequence[ConditionedLM] = nn.ModuleList(found)  # type: ignore[assignment]

    def read(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """See Given."""
        for member in self.members:
            member.read(source)

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See LanguageModel."""
        logits = mean(member.logits(ids, segments) for member in self.members)
        if tap is not None:
            tap("logits", logits)
        return logits

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """See LanguageModel."""
        asked = ids, targets, segments
        free = torch.stack([member.score(*asked) for member in self.members])  # (M, B, T)
        if constrain is None:
            return free.logsumexp(0) - math.log(len(free))
        bound = [member.score(*asked, constrain=constrain) for member in self.members]
        allowed = free - torch.stack(bound)  # log of what each gives to all that is not forbidden
        return free.logsumexp(0) - allowed.logsumexp(0)

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel."""
        layers = [MemberState(member.start(batch, capacity)) for member in self.members]
        return DecodeState(layers, batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        both = zip(self.members, state.layers, strict=True)
        logits = mean(member.extend(ids, lengths, own.state) for member, own in both)  # type: ignore[attr-defined]
        state.advance(lengths, ids.size(1))
        return logits


class MemberState:
    """The whole memory of one of several models, as a layer of the memory of all."""

    def __init__(self, state: DecodeState) -> None:
        self.state = state

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """See LayerState."""
        self.state.select(parents)

    def expand(self, width: int) -> None:
        """See LayerState."""
        self.state.expand(width)

    def reset(self) -> None:
        """See LayerState."""
        self.state.reset()


def mean(logits: Iterable[Tensor]) -> Tensor:
    """The logarithm of the mean of the probabilities that logits (…, V) stand for."""
    wide = (one.to(torch.promote_types(one.dtype, torch.float32)) for one in logits)
    logs = torch.stack([one.log_softmax(-1) for one in wide])  # (M, …, V)
    return logs.logsumexp(0) - math.log(len(logs))
