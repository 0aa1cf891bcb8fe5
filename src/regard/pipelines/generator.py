"""What `regard.load` returns for a language model: continue, score, measure, look inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import torch

from regard.arguments import one_or_many
from regard.data.inputs import TokenLimit
from regard.data.shards import Shard
from regard.decoding import (
    DecodeSession,
    ForbiddenTransitions,
    Generated,
    Sample,
    Strategy,
    generate,
)
from regard.evaluation.language_modeling import TokenLosses, measure, score
from regard.layers.attention import Tap
from regard.models.language_model import LanguageModel
from regard.run import read_metadata
from regard.tokenizers import Tokenizer


class Generator:
    """What `load` returns: a trained model and its tokenizer, to generate, score and explain."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        run: Path,
        forbidden: ForbiddenTransitions | None,
    ) -> None:
        self.model, self.tokenizer, self.run, self.forbidden = model, tokenizer, run, forbidden
        self.workspace = DecodeSession(model)  # one for all that it generates, in any thread

    @cached_property
    def text(self) -> bool:
        """Was it trained on running text rather than on records?"""
        return bool(read_metadata(self.run).get("data", {}).get("format") == "text")

    @cached_property
    def beginning(self) -> list[int]:
        """What stands before a prompt: `<S>`, as in training, or where the model was imported what
        its own tokenizer puts there, which may be nothing.
        """
        own = self.tokenizer
        return own.beginning if "imported_from" in read_metadata(self.run) else [own.start]

    def prompt_ids(self, prompt: str) -> list[int]:
        """The beginning and the ids of a prompt; running text is entered in its middle, without a
        beginning. A prompt without any ids is `<S>`.
        """
        ids = [int(i) for i in self.tokenizer.encode(prompt)]
        return (ids if self.text and ids else [*self.beginning, *ids]) or [self.tokenizer.start]

    @property
    def context(self) -> TokenLimit | None:
        """What of a long prompt is used; models without a limit use all of it."""
        if not getattr(self.model.config, "limited", False):
            return None
        limit = int(self.model.config.max_len)
        before = 0 if self.text else len(self.beginning)
        return TokenLimit(limit - before, limit // 2, "last")

    @overload
    def generate(  # type: ignore[overload-overlap]
        self,
        prompts: str,
        strategy: Strategy | None = ...,
        *,
        max_new: int = ...,
        forbidden: ForbiddenTransitions | None = ...,
        on_token: Callable[[int, int], None] | None = ...,
        batch_size: int = ...,
    ) -> list[Generated]: ...

    @overload
    def generate(
        self,
        prompts: Sequence[str] = ...,
        strategy: Strategy | None = ...,
        *,
        max_new: int = ...,
        forbidden: ForbiddenTransitions | None = ...,
        on_token: Callable[[int, int], None] | None = ...,
        batch_size: int = ...,
    ) -> list[list[Generated]]: ...

    def generate(
        self,
        prompts: str | Sequence[str] = ("",),
        strategy: Strategy | None = None,
        *,
        max_new: int = 200,
        forbidden: ForbiddenTransitions | None = None,
        on_token: Callable[[int, int], None] | None = None,
        batch_size: int = 64,
    ) -> list[Generated] | list[list[Generated]]:
        """Continue one prompt, or each of several: a list of sequences, or one for each prompt.

        Samples by default. Never makes `<pad>`, `<S>` or `<unk>`.
        """
        several, one = one_or_many("prompts", prompts)
        tokenizer = self.tokenizer
        rules = [r for r in (self.forbidden, forbidden) if r is not None]
        constraint = rules[0] | rules[1] if len(rules) == 2 else rules[0] if rules else None
        limited = getattr(self.model.config, "limited", False)
        found = generate(
            self.model,
            [self.prompt_ids(p) for p in several],
            strategy or Sample(),
            max_new=max_new,
            end=tokenizer.end,
            pad=tokenizer.pad,
            banned=tokenizer.never_produced(self.model.vocab_size),
            constraint=constraint,
            context=self.model.config.max_len if limited else None,
            on_token=on_token,
            batch_size=batch_size,
            workspace=self.workspace,
        )
        return found[0] if one else found

    @overload
    def score(  # type: ignore[overload-overlap]
        self, texts: str
    ) -> tuple[list[str], list[float]]: ...

    @overload
    def score(self, texts: Sequence[str]) -> list[tuple[list[str], list[float]]]: ...

    def score(
        self, texts: str | Sequence[str]
    ) -> tuple[list[str], list[float]] | list[tuple[list[str], list[float]]]:
        """The tokens of a text, or of each of several (without `<S>`, with `<E>`), and their
        natural log-probabilities.
        """
        several, one = one_or_many("texts", texts)
        scored = score(self.model, self.tokenizer, several, constrain=self.forbidden)
        found = [(record.tokens, record.log_probs) for record in scored]
        return found[0] if one else found

    def measure(self, shard: Shard, stride: int = 0) -> TokenLosses:
        """What this model costs on a shard, by unit."""
        return measure(self.model, shard, self.tokenizer, stride=stride, constrain=self.forbidden)

    @torch.inference_mode()
    def activations(self, text: str, patterns: Iterable[str]) -> dict[str, torch.Tensor]:
        """The named activations (`*.attention.weights`, `logits`) while the model reads a text."""
        tap = Tap(patterns)
        self.model.logits(torch.tensor([self.prompt_ids(text)]), tap=tap)
        return tap.found


@dataclass(frozen=True)
class GeneratedText:
    """One sequence that a model made, as text."""

    input: str
    text: str
    tokens: list[str]
    score: float
    finished: bool
    dead_end: bool

    def to_json(self) -> dict[str, Any]:
        """An entry of `regard generate --json` and `regard translate --json`."""
        return {
            "input": self.input,
            "text": self.text,
            "tokens": self.tokens,
            "score": self.score if abs(self.score) < float("inf") else None,
            "finished": self.finished,
        }


class Continuation(GeneratedText):
    """One generated sequence; its text is the prompt and what follows."""


def continuations(
    generator: Generator,
    prompts: str | Sequence[str],
    strategy: Strategy,
    *,
    copies: int = 1,
    max_new: int = 200,
    forbidden: ForbiddenTransitions | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> list[Continuation]:
    """A prompt, or each of several, `copies` times, continued, as text."""
    repeated = [p for p in one_or_many("prompts", prompts)[0] for _ in range(copies)]
    found = generator.generate(
        repeated, strategy, max_new=max_new, forbidden=forbidden, on_token=on_token
    )
    tokenizer = generator.tokenizer
    return [
        Continuation(
            input=prompt,
            text=prompt + tokenizer.decode(one.ids),
            tokens=[tokenizer.text(i) for i in one.ids],
            score=one.score,
            finished=one.finished,
            dead_end=one.dead_end,
        )
        for prompt, several in zip(repeated, found, strict=True)
        for one in several
    ]
