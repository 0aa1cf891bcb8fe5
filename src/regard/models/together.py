"""Several translators as one: the next word has the mean of the probabilities they give it.

Runs that differ in nothing but their seed make different mistakes, and their mean makes fewer
(Hansen and Salamon 1990, "Neural network ensembles"; of translators, Sutskever et al. 2014,
arXiv:1409.3215).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from regard.layers.source import Source
from regard.layers.state import ALL, State
from regard.layers.tap import Tap
from regard.models.language_model import Constrain
from regard.models.translator import Given, Translator


class Together(Translator):
    """Translators of the same tokens, each of which has a say."""

    def __init__(self, members: Sequence[Translator]) -> None:
        super().__init__()
        sizes = {member.vocab_size for member in members}
        if len(sizes) != 1:
            raise ValueError(
                f"members must be translators with one vocabulary, got sizes {sorted(sizes)}"
            )
        self.members = nn.ModuleList(members)
        self.vocab_size = members[0].vocab_size
        self.config = min((member.config for member in members), key=lambda one: one.max_len)

    def given(self, source: Source) -> Given:
        """See Translator."""
        return Agreed(self, source)


class Agreed(Given):
    """Translators that have read the same sources."""

    def __init__(self, together: Together, source: Source) -> None:
        super().__init__(together)
        found = [member.given(source) for member in together.members]  # type: ignore[operator]
        self.members: Sequence[Given] = nn.ModuleList(found)  # type: ignore[assignment]

    def read(self, source: Source, *, tap: Tap | None = None) -> None:
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

    def start(self, batch: int, capacity: int) -> State:
        """See LanguageModel."""
        layers = [Whole(member.start(batch, capacity)) for member in self.members]
        return State(layers, batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: State) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        both = zip(self.members, state.layers, strict=True)
        logits = mean(member.extend(ids, lengths, own.state) for member, own in both)  # type: ignore[attr-defined]
        state.advance(lengths, ids.size(1))
        return logits


class Whole:
    """The whole memory of one of several models, as a layer of the memory of all."""

    def __init__(self, state: State) -> None:
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
