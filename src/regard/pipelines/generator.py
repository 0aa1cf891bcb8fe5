"""The pipeline of language models: generate, score, evaluate and inspect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from regard.data.inputs import InputReader, Item, RecordNotes, TokenLimit, quiet
from regard.data.shards import Shard
from regard.decoding import (
    DecodeSession,
    ForbiddenTransitions,
    Generated,
    Sample,
    Strategy,
    generate,
)
from regard.errors import UsageError, UserError
from regard.evaluation.bootstrap import Floats
from regard.evaluation.eval_data import open_corpus, shard_from
from regard.evaluation.language_modeling import ScoredRecord, TokenLosses, measure, score
from regard.evaluation.record_errors import RecordErrors, errors_of_tokens
from regard.evaluation.validity import Validity, measure_validity
from regard.layers.tap import Tap
from regard.models.language_model import LanguageModel
from regard.pipelines import (
    MOST_RECORDS,
    EvaluationRequest,
    Pipeline,
    PreparedInput,
    one_or_many,
)
from regard.run import Run
from regard.tokenizers import Tokenizer

REQUEST = EvaluationRequest()
MOST_EXAMPLES = 200  # held-out records among which one is chosen to be shown


@dataclass(frozen=True)
class GeneratedText:
    """A generated sequence as text."""

    input: str
    text: str
    tokens: list[str]
    score: float
    finished: bool
    dead_end: bool

    def to_json(self) -> dict[str, Any]:
        """Return an entry of `regard generate --json` and `regard translate --json`."""
        return {
            "input": self.input,
            "text": self.text,
            "tokens": self.tokens,
            "score": self.score if abs(self.score) < float("inf") else None,
            "finished": self.finished,
        }


class Continuation(GeneratedText):
    """A generated sequence; its text includes the prompt."""


class Generator(Pipeline):
    """A language model, to generate, score and explain."""

    task = "next"
    activities = ("sample", "beam")

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        run: Run | None = None,
        forbidden: ForbiddenTransitions | None = None,
    ) -> None:
        super().__init__(model, tokenizer, run)
        self.forbidden = forbidden
        self.session = DecodeSession(model)  # shared by all calls, in any thread

    @cached_property
    def text(self) -> bool:
        """Whether the model was trained on running text rather than on records."""
        return bool(self.data.get("format") == "text")

    @cached_property
    def beginning(self) -> list[int]:
        """The ids before a prompt: `<S>` as in training or, if the model was imported, those that
        its tokenizer adds, which may be none.
        """
        imported = self.run is not None and "imported_from" in self.run.metadata
        return self.tokenizer.beginning if imported else [self.tokenizer.start]

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the beginning and the ids of a prompt; a prompt of running text has no beginning.
        A prompt without any ids is `<S>`.
        """
        ids = [int(i) for i in self.tokenizer.encode(prompt)]
        return (ids if self.text and ids else [*self.beginning, *ids]) or [self.tokenizer.start]

    @property
    def context(self) -> TokenLimit | None:
        """How much of a long prompt is used; None if the model has no limit."""
        limit = self.model.max_context
        if limit is None:
            return None
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
        """Return the sequences that continue a prompt, or a list of them for each prompt.

        Samples by default. Never produces `<pad>`, `<S>` or `<unk>`.
        """
        items, one = one_or_many("prompts", prompts)
        sequences = self.generate_ids(
            [self.prompt_ids(prompt) for prompt in items],
            strategy,
            max_new=max_new,
            forbidden=forbidden,
            on_token=on_token,
            batch_size=batch_size,
        )
        return sequences[0] if one else sequences

    def generate_ids(
        self,
        prompts: Sequence[Sequence[int]],
        strategy: Strategy | None = None,
        *,
        max_new: int = 200,
        forbidden: ForbiddenTransitions | None = None,
        on_token: Callable[[int, int], None] | None = None,
        batch_size: int = 64,
    ) -> list[list[Generated]]:
        """Continue prompts given as ids, with their beginning (`prompt_ids`)."""
        tokenizer = self.tokenizer
        rules = [r for r in (self.forbidden, forbidden) if r is not None]
        constraint = rules[0] | rules[1] if len(rules) == 2 else rules[0] if rules else None
        return generate(
            self.model,
            prompts,
            strategy or Sample(),
            max_new=max_new,
            end=tokenizer.end,
            pad=tokenizer.pad,
            banned=tokenizer.never_produced(self.model.vocab_size),
            constraint=constraint,
            context=self.model.max_context,
            on_token=on_token,
            batch_size=batch_size,
            session=self.session,
        )

    def continuations(
        self,
        prompts: str | Sequence[str] = ("",),
        strategy: Strategy | None = None,
        *,
        copies: int = 1,
        max_new: int = 200,
        forbidden: ForbiddenTransitions | None = None,
        on_token: Callable[[int, int], None] | None = None,
    ) -> list[Continuation]:
        """Return the texts that continue a prompt, or each of a list, `copies` times: what
        `generate` produces, as text that includes the prompt.
        """
        repeated = [p for p in one_or_many("prompts", prompts)[0] for _ in range(copies)]
        sequences = self.generate(
            repeated, strategy, max_new=max_new, forbidden=forbidden, on_token=on_token
        )
        tokenizer = self.tokenizer
        return [
            Continuation(
                input=prompt,
                text=prompt + tokenizer.decode(sequence.ids),
                tokens=[tokenizer.text(i) for i in sequence.ids],
                score=sequence.score,
                finished=sequence.finished,
                dead_end=sequence.dead_end,
            )
            for prompt, candidates in zip(repeated, sequences, strict=True)
            for sequence in candidates
        ]

    def validity(self, texts: Sequence[str]) -> Validity | None:
        """Return how many generated texts are valid, different and new; None if the modality knows
        no invalid ones.
        """
        rule = self.modality.validity_rule(self.tokenizer)
        return None if rule is None else measure_validity(texts, rule, self._training_texts())

    def _training_texts(self) -> Iterator[str] | None:
        """Return the training records as texts; None if the run does not hold them."""
        if self.run is None or self.text:
            return None
        try:
            train = open_corpus(self.run.path).train
        except UserError:
            return None
        records = (train.record(i) for i in range(train.records))
        return (self.tokenizer.decode_record(record) for record in records)

    @overload
    def score(  # type: ignore[overload-overlap]
        self, texts: str
    ) -> tuple[list[str], list[float]]: ...

    @overload
    def score(self, texts: Sequence[str]) -> list[tuple[list[str], list[float]]]: ...

    def score(
        self, texts: str | Sequence[str]
    ) -> tuple[list[str], list[float]] | list[tuple[list[str], list[float]]]:
        """Return the tokens of a text (without `<S>`, with `<E>`) and their natural
        log-probabilities, or a list of these for a list of texts.
        """
        items, one = one_or_many("texts", texts)
        records = score(self.model, self.tokenizer, items, constrain=self.forbidden)
        scores = [(record.tokens, record.log_probs) for record in records]
        return scores[0] if one else scores

    def example(self, most: int) -> str:
        """Return a held-out text to show: the beginning of running text, `most` tokens, else the
        record of median length that the model finds most probable, a familiar one.
        """
        shard = self.held_out()[1]
        if self.text:
            return self.tokenizer.decode([int(i) for i in shard.record(0)[1 : 1 + most]])
        lengths = np.diff(shard.offsets)
        median = np.sort(lengths)[len(lengths) // 2]
        numbers = np.flatnonzero(lengths == median)[:MOST_EXAMPLES]
        texts = [self.tokenizer.decode([int(i) for i in shard.record(n)[1:-1]]) for n in numbers]
        scored = score(self.model, self.tokenizer, texts, constrain=self.forbidden)
        return max(zip(texts, scored, strict=True), key=lambda pair: pair[1].total)[0]

    def score_example(self, example: str) -> tuple[list[str], list[float]]:
        return self.score(example)

    def score_files(
        self, files: Sequence[Path], reader: InputReader, log: Any
    ) -> tuple[Iterator[list[Item]], RecordNotes]:
        """Return the records of a file, or of standard input (`-`), and an object for notes."""
        if len(files) > 1 or reader.target_asked:
            raise UsageError(f"{self.run} predicts the next symbol (task next): it has no targets")
        path = None if str(files[0]) == "-" else files[0]
        if path is not None and (why := reader.running_text(path)):
            raise UserError(f"{path} is read as running text ({why}): regard evaluate measures it")
        items = reader.records(path, self.modality, self.tokenizer, log)
        return items, RecordNotes(self.tokenizer)

    def score_items(self, items: Sequence[Item]) -> list[ScoredRecord]:
        texts = [item.text for item in items]
        return score(self.model, self.tokenizer, texts, constrain=self.forbidden)

    def read(
        self, files: Sequence[Path], reader: InputReader, *, strict: bool = False, log: Any = quiet
    ) -> Shard:
        if reader.target_asked:
            raise UsageError(f"{self.run} predicts the next symbol (task next): it has no --target")
        return shard_from(files, self.tokenizer, self.modality, reader, strict=strict, log=log)

    def _log_notes(self, shard: Shard, request: EvaluationRequest) -> None:
        """Log nothing: long records are read in windows, and the document has unknown symbols."""

    def prepare(self, item: str = "", target: str = "", record: int = 0) -> PreparedInput:
        ids = self.prompt_ids(item) if item else self.held_out_record(record).record(0)[:-1]
        most = int(self.model.config.max_len)
        row = torch.from_numpy(np.array(ids[:most], np.int64))[None]  # (1, T)
        return PreparedInput({"ids": row}, lambda tap: self.model.logits(row, tap=tap))

    def record_errors(self, most: int = MOST_RECORDS) -> RecordErrors:
        split, shard, numbers = self.held_out_part(most)
        return errors_of_tokens(self.model, shard, self.tokenizer, split, numbers, self.forbidden)

    def record_losses(self, shard: Shard) -> tuple[Floats, Floats]:
        losses = self.measure(shard)
        return losses.nats, losses.tokens

    def measure(self, shard: Shard, request: EvaluationRequest = REQUEST) -> TokenLosses:
        """Return the losses on a shard, by record or by block of running text."""
        return measure(
            self.model,
            shard,
            self.tokenizer,
            stride=request.stride,
            constrain=self.forbidden,
            progress=request.progress,
        )

    @torch.inference_mode()
    def activations(self, text: str, patterns: Iterable[str]) -> dict[str, torch.Tensor]:
        """Return the activations on a text by name (`*.attention.weights`, `logits`)."""
        tap = Tap(patterns)
        self.model.logits(torch.tensor([self.prompt_ids(text)]), tap=tap)
        return tap.activations
