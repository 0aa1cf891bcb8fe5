"""A language model reading one text, or a translator one pair: all that a page about it shows,
computed from the model.

A reading works on any `LanguageModel`, through the interface and through named activations, so that
a family has nothing to do to be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding import Beam, Generated, Node, Sample, Strategy, Trace, generate
from regard.decoding.engine import device_of, evaluating
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.language_model import Constrain, LanguageModel, NeuralLanguageModel
from regard.models.seq2seq import ConditionedLM, Seq2SeqModel
from regard.tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class ForwardTrace:
    """What a model makes of `ids`: at least one, at most its max_len, normally `<S>` and a text.

    `continues` tells a stretch of something longer, which goes on after its last token, from a
    complete record, which is over and therefore scored with its `<E>`. `banned` tokens and what
    `constrain` forbids are never said; `constrain` holds in the scores too.
    """

    model: LanguageModel
    tokenizer: Tokenizer
    ids: Sequence[int]
    continues: bool
    constrain: Constrain | None = None
    banned: Sequence[int] = ()

    def __post_init__(self) -> None:
        most = self.model.config.max_len
        if not 1 <= len(self.ids) <= most:
            raise ValueError(f"ids must hold 1 to max_len = {most} tokens, got {len(self.ids)}")
        wrong = [i for i in self.ids if not 0 <= i < self.model.vocab_size]
        if wrong:
            raise ValueError(f"ids must be from 0 to {self.model.vocab_size - 1}, got {wrong[0]}")

    @property
    def tokens(self) -> list[str]:
        """The tokens the model reads, as they are displayed."""
        return self.names(self.ids)

    def names(self, ids: Iterable[int]) -> list[str]:
        """How each of these tokens is displayed."""
        return [self.tokenizer.text(int(i)) for i in ids]

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], dtype=torch.int64, device=device_of(self.model))  # (1, T)

    @property
    def targets(self) -> list[int]:
        """The token that follows each of `ids`: of a complete record the last one's is `<E>`, of a
        stretch it is not known.
        """
        return [*self.ids[1:], *([] if self.continues else [self.tokenizer.end])]

    def surprise(self) -> tuple[list[int], NDArray[np.float64]]:
        """The tokens that were to be predicted and the bits each cost, ∞ for an impossible one.

        A text entered in its middle has a first token that nothing predicts: it costs NaN.
        """
        targets = self.targets
        bits = np.zeros(0)
        if targets:
            inputs = self._tensor(self.ids[: len(targets)])
            with evaluating(self.model):
                nats = self.model.score(inputs, self._tensor(targets), constrain=self.constrain)
            bits = nats[0].double().cpu().numpy() / -math.log(2) + 0.0  # no -0
        if self.ids[0] != self.tokenizer.start:
            return [self.ids[0], *targets], np.concatenate([[math.nan], bits])
        return targets, bits

    def next_logits(self) -> NDArray[np.float64]:
        """(V,) logits of the token after the last; −∞ for what is banned or forbidden."""
        with evaluating(self.model):
            state = self.model.start(1, len(self.ids))
            ids = self._tensor(self.ids)
            logits = self.model.extend(ids, None, state).float()  # (1, V)
            if self.banned:
                logits[:, list(self.banned)] = -math.inf
            if self.constrain is not None:
                logits = self.constrain(logits, ids[:, -1])
        found: NDArray[np.float64] = logits[0].double().cpu().numpy()
        return found

    def activations(self, *patterns: str, first: int | None = None) -> dict[str, Tensor]:
        """The named activations over the `first` tokens, in the order in which they arise.

        The models are causal: what they do at a position is the same without those after it.
        """
        tap = Tap(patterns)
        ids = self._tensor(self.ids[:first])
        with evaluating(self.model):
            self._read(ids, tap)
        return {name: value.float().cpu() for name, value in tap.found.items()}

    def _read(self, ids: Tensor, tap: Tap) -> None:
        if isinstance(self.model, NeuralLanguageModel):
            self.model.hidden(ids, tap=tap)  # spares the (T, V) logits
        else:
            self.model.logits(ids, tap=tap)

    @property
    def prompt(self) -> list[int]:
        """What continuations start from: all of a stretch, the first half of a complete record."""
        if self.continues:
            return list(self.ids)
        begun = int(self.ids[0] == self.tokenizer.start)
        return list(self.ids[: max(1, begun + (len(self.ids) - begun) // 2)])

    def search(self, width: int, steps: int) -> tuple[list[Node], Generated | None]:
        """A beam search from the prompt: every candidate weighed, and the best sequence found."""
        trace = Trace()
        (found,) = self._generate([self.prompt], Beam(width=width, trace=trace), max_new=steps)
        return trace.trees[0], found[0] if found else None

    def samples(self, count: int, most: int, seed: int = 0) -> list[Generated]:
        """`count` continuations of the prompt drawn at temperature 1, of at most `most` tokens."""
        prompts = [self.prompt] * count
        return [one for (one,) in self._generate(prompts, Sample(seed=seed), max_new=most)]

    def _generate(
        self, prompts: list[list[int]], strategy: Strategy, *, max_new: int
    ) -> list[list[Generated]]:
        config: Any = self.model.config
        # Only a model with positions has a limit to what it can see; the others carry a state.
        limited = getattr(config, "positions", None) is not None
        return generate(
            self.model,
            prompts,
            strategy,
            max_new=max_new,
            end=self.tokenizer.end,
            pad=self.tokenizer.pad,
            banned=sorted(self.banned),
            constraint=self.constrain,
            context=config.max_len if limited else None,
        )


@dataclass(frozen=True, eq=False)
class PairTrace(ForwardTrace):
    """What a translator that has read `source` (ids, `<E>` at the last, or the tokens of a picture)
    makes of a target, `ids`.

    Its search goes from `<S>`. Activations of the encoder are among the others.
    """

    model: ConditionedLM
    source: Sequence[int] | NDArray[Any] = field(kw_only=True)
    source_tokenizer: Tokenizer = field(kw_only=True)
    translator: Seq2SeqModel | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls, translator: Seq2SeqModel, source: Sequence[int] | NDArray[Any], **rest: Any
    ) -> PairTrace:
        """The reading of a translator to whom this source is given."""
        with evaluating(translator):
            given = translator.condition(one(source, device_of(translator)))
        return cls(model=given, source=source, translator=translator, **rest)

    @property
    def read_source(self) -> Inputs:
        """The source as the model reads it."""
        return one(self.source, device_of(self.model))

    @property
    def sources(self) -> list[str]:
        """The tokens of the source, as they are displayed."""
        return [self.source_tokenizer.text(int(i)) for i in self.source]

    @property
    def prompt(self) -> list[int]:
        """See Reading."""
        return [self.tokenizer.start]

    def _read(self, ids: Tensor, tap: Tap) -> None:
        self.model.read(self.read_source, tap=tap)
        super()._read(ids, tap)


def one(ids: Sequence[int] | NDArray[Any], device: torch.device) -> Inputs:
    """One source."""
    row = torch.from_numpy(np.array(ids, np.int64))[None].to(device)  # (1, S) or (1, S, V)
    return Inputs(row, torch.ones(row.shape[:2], dtype=torch.int64, device=device))
