"""Models that generate a target sequence from a source, and ensembles of them.

`condition(source)` returns a language model of the targets, so that decoding, scoring, verifying
and the pages are written for language models alone.

An ensemble averages the probabilities of its members: models that differ only in their seed make
different errors, and their mean makes fewer (Hansen and Salamon 1990, "Neural network ensembles";
for translation Sutskever et al. 2014, arXiv:1409.3215).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from regard.layers.cache import ALL, DecodeState, LayerState
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap, tapped
from regard.models import Model
from regard.models.language_model import Constrain, LanguageModel


class Seq2SeqModel(Model):
    """Predicts a target sequence from a source sequence, token by token. Its vocabulary is that of
    the targets.
    """

    task: ClassVar[str] = "target"

    @abstractmethod
    def condition(self, source: Inputs) -> ConditionedLM:
        """Return the language model of the targets of these sources, a row for each."""


class NeuralSeq2Seq(Seq2SeqModel):
    """A model trained by gradients: ids to hidden vectors, and a linear head to logits."""

    loop = "gradient"
    head: nn.Linear

    @abstractmethod
    def forward(self, ids: Tensor, segments: Tensor | None, source: Inputs) -> Tensor:
        """Return the (B, T, D) vectors that the head projects, of targets (B, T) given sources."""


class ConditionedLM(LanguageModel):
    """A language model of the targets of given sources.

    It has as many rows as `source`, or a multiple: row b·W + w then belongs to source b. The
    encoded sources stay in the same memory, so that a recorded decoding step remains valid when
    they are replaced by others of the same shape.
    """

    def __init__(self, model: Seq2SeqModel) -> None:
        super().__init__(model.vocab_size, model.config)
        self.training = model.training

    @abstractmethod
    def set_source(self, source: Inputs, *, tap: Tap | None = None) -> None:
        """Replace the sources by others of the same shape."""


class Ensemble(Seq2SeqModel):
    """Models with one vocabulary whose probabilities are averaged."""

    def __init__(self, members: Sequence[Seq2SeqModel]) -> None:
        sizes = {member.vocab_size for member in members}
        if len(sizes) != 1:
            raise ValueError(
                f"members must be translators with one vocabulary, got sizes {sorted(sizes)}"
            )
        configs = (member.config for member in members)
        super().__init__(sizes.pop(), min(configs, key=lambda config: config.max_len))
        self.members = nn.ModuleList(members)

    def condition(self, source: Inputs) -> ConditionedLM:
        return EnsembleLM(self, source)


class EnsembleLM(ConditionedLM):
    """The members of an ensemble, conditioned on the same sources."""

    def __init__(self, ensemble: Ensemble, source: Inputs) -> None:
        super().__init__(ensemble)
        members = [member.condition(source) for member in ensemble.members]  # type: ignore[operator]
        self.members: Sequence[ConditionedLM] = nn.ModuleList(members)  # type: ignore[assignment]

    def set_source(self, source: Inputs, *, tap: Tap | None = None) -> None:
        for member in self.members:
            member.set_source(source)

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        logits = average_logits(member.logits(ids, segments) for member in self.members)
        return tapped(tap, "logits", logits)

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        batch = ids, targets, segments
        scores = torch.stack([member.score(*batch) for member in self.members])  # (M, B, T)
        if constrain is None:
            return scores.logsumexp(0) - math.log(len(scores))
        constrained = [member.score(*batch, constrain=constrain) for member in self.members]
        allowed = scores - torch.stack(constrained)  # log-probability of all that is permitted
        return scores.logsumexp(0) - allowed.logsumexp(0)

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        layers = [MemberState(member.init_state(batch, capacity)) for member in self.members]
        return DecodeState(layers, batch, capacity)

    def step(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        state.check(ids.size(1))
        logits = average_logits(
            member.step(ids, lengths, cast(MemberState, layer).state)
            for member, layer in zip(self.members, state.layers, strict=True)
        )
        state.advance(lengths, ids.size(1))
        return logits


class MemberState(LayerState):
    """The decode state of one member, as a layer of the ensemble's state."""

    def __init__(self, state: DecodeState) -> None:
        self.state = state

    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        self.state.select(parents)

    def expand(self, width: int) -> None:
        self.state.expand(width)

    def reset(self) -> None:
        self.state.reset()


def average_logits(logits: Iterable[Tensor]) -> Tensor:
    """Return the logarithm of the mean of the probabilities that logits (…, V) stand for."""
    log_probs = torch.stack(
        [x.to(torch.promote_types(x.dtype, torch.float32)).log_softmax(-1) for x in logits]
    )  # (M, …, V)
    return log_probs.logsumexp(0) - math.log(len(log_probs))
