"""How each pipeline reads a text: language models and translators token after token, masked models
each token alone, classifiers as a whole or at each position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import pieces
from regard.data.targets import Targets
from regard.decoding.engine import device_of, evaluating
from regard.evaluation.masked_tokens import MASK, encode_masked, predict_masked
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look.attribution import attribute_outputs, find_embedding
from regard.look.internals import PredictionContext, as_inputs
from regard.look.interventions import Measure, Subject, log_probability, output_score
from regard.look.page import Component, Page
from regard.look.prediction_page import add_prediction
from regard.models.language_model import Constrain, LanguageModel
from regard.pipelines import Pipeline
from regard.pipelines.generator import Generator
from regard.pipelines.masked_predictor import MaskedPredictor
from regard.pipelines.predictor import Predictor
from regard.pipelines.translator import Translator
from regard.studio.reading import (
    READERS,
    Floats,
    Given,
    Ints,
    Reader,
    RecentResults,
    Scores,
    Tokens,
    WindowPosition,
    register_reader,
)

LOGITS = 1 << 23  # in memory at once: 32 MB
KEPT_PASSES = 16  # forward passes whose hidden vectors are kept


@register_reader(Generator)
class LanguageReader(Reader):
    """A language model: every token is predicted from those before it."""

    causal = True

    def __init__(self, pipeline: Any) -> None:
        super().__init__(pipeline)
        self.stride = max(1, self.window // 2)
        self.passes: RecentResults[Callable[[slice], Tensor]] = RecentResults(KEPT_PASSES)
        self.encoded: RecentResults[tuple[Ints, bool]] = RecentResults(8)
        self.shown: RecentResults[Tokens] = RecentResults(8)

    @property
    def constrain(self) -> Constrain | None:
        constrain: Constrain | None = self.pipeline.forbidden
        return constrain

    def example(self, most: int) -> tuple[str, str] | None:
        return self.pipeline.example(most), ""

    def condition(self, given: Given) -> LanguageModel:
        """Return the language model, of pairs the one of this source."""
        model: LanguageModel = self.model
        return model

    def encode(self, given: Given) -> tuple[Ints, bool]:
        """Return the ids that are read, `<S>` and `<E>` included, and whether they are complete."""
        ids = self.pipeline.prompt_ids(given.text)
        complete = not self.pipeline.text
        return np.array([*ids, *([self.tokenizer.end] if complete else [])], np.int64), complete

    def ids(self, given: Given) -> tuple[Ints, bool]:
        key = given.text, given.second
        return self.encoded.get(key, lambda: self.encode(given))

    def target_text(self, given: Given) -> str:
        """Return the text whose tokens are predicted."""
        return given.text

    def tokens(self, given: Given) -> Tokens:
        def find() -> Tokens:
            ids = self.ids(given)[0]
            return Tokens.of(self.target_text(given), ids[1 - self.lead(ids) :], self.tokenizer)

        return self.shown.get((given.text, given.second), find)

    def lead(self, ids: Ints) -> int:
        """Return how many shown tokens nothing predicts: 1 where there is no `<S>`."""
        return int(ids[0] != self.tokenizer.start)

    def step(self, given: Given) -> int:
        return 1 - self.lead(self.ids(given)[0])

    def inputs(self, given: Given) -> Ints:
        ids, complete = self.ids(given)
        return ids[:-1] if complete else ids

    def window_of(self, t: int, count: int) -> tuple[int, int]:
        """Return the first and the last (exclusive) input of the window that scores input `t`."""
        number = max(0, -(-(t + 1 - self.window) // self.stride))
        return number * self.stride, min(count, number * self.stride + self.window)

    def read(self, given: Given, window: tuple[int, int]) -> Callable[[slice], Tensor]:
        """Return the forward pass over a window: from positions in it to logits."""
        ids = self.inputs(given)[slice(*window)]
        key = ids.tobytes(), given.off, self.source_key(given)

        def run() -> Callable[[slice], Tensor]:
            return self.forward(given, ids, self.tap(given))

        return self.passes.get(key, run)

    def source_key(self, given: Given) -> str:
        """Return what else the forward pass depends on."""
        return ""

    def forward(self, given: Given, ids: Ints, tap: Tap | None) -> Callable[[slice], Tensor]:
        with evaluating(self.model):
            row = torch.from_numpy(ids)[None].to(device_of(self.model))  # (1, T)
            return self.condition(given).predictions(row, tap=tap)

    def rows(self, given: Given, window: tuple[int, int], rows: slice) -> Tensor:
        """Return logits (n, V) after some inputs, counted from the beginning of the text."""
        inside = slice(rows.start - window[0], rows.stop - window[0])
        with evaluating(self.model):
            logits = self.read(given, window)(inside)
            if self.constrain is not None:
                previous = torch.from_numpy(self.inputs(given)[rows]).to(logits.device)
                logits = self.constrain(logits, previous)
        return logits.float()

    def scores(self, given: Given, first: int, last: int) -> Scores:
        ids, inputs = self.ids(given)[0], self.inputs(given)
        lead, at_once = self.lead(ids), max(1, LOGITS // self.model.vocab_size)
        last = min(last, len(self.tokens(given).ids), first + self.at_once)
        bits = np.full(max(0, last - first), np.nan, np.float32)
        ranks = np.zeros(len(bits), np.int64)
        t = max(0, first - lead)
        while t < last - lead:
            window = self.window_of(t, len(inputs))
            stop = min(window[1], last - lead, t + at_once)
            logits = self.rows(given, window, slice(t, stop))  # (n, V)
            targets = torch.from_numpy(ids[t + 1 : stop + 1]).to(logits.device)[:, None]
            chosen = logits.gather(1, targets)
            part = slice(t + lead - first, stop + lead - first)
            logs = (chosen - logits.logsumexp(1, keepdim=True))[:, 0].double().cpu().numpy()
            bits[part] = logs / -math.log(2) + 0.0  # no -0
            ranks[part] = 1 + (logits > chosen).sum(1).cpu().numpy()
            t = stop
        return Scores(first, bits, ranks)

    def logits(self, given: Given, at: int) -> Tensor | None:
        inputs = self.inputs(given)
        t = at - self.lead(self.ids(given)[0])
        if not 0 <= t < len(inputs):
            return None
        return self.rows(given, self.window_of(t, len(inputs)), slice(t, t + 1))[0]

    def frame(self, given: Given, at: int) -> WindowPosition:
        inputs, lead = self.inputs(given), self.lead(self.ids(given)[0])
        t = min(max(0, at - lead), len(inputs) - 1)
        start, stop = self.window_of(t, len(inputs))
        return WindowPosition(start, stop, t - start, start + lead - 1)

    def activations(self, given: Given, frame: WindowPosition, tap: Tap) -> None:
        self.forward(given, self.inputs(given)[frame.start : frame.stop], tap)

    @property
    def measures(self) -> bool:
        return True

    def subject(self, given: Given, at: int) -> tuple[Subject, Measure] | None:
        t = at - self.lead(self.ids(given)[0])
        shown = self.tokens(given).ids
        if not 0 <= t < len(self.inputs(given)) or at >= len(shown):
            return None
        start, _ = self.window_of(t, len(self.inputs(given)))
        ids = self.inputs(given)[start : t + 1]
        subject = Subject.of_ids(self.condition(given), ids.tolist(), [-1])
        return subject, log_probability(int(shown[at]))

    def look(self, tap: Tap) -> None:
        self.model.predictions(self.short_row, tap=tap)

    @property
    def short_row(self) -> Tensor:
        return torch.tensor([[self.tokenizer.start]], device=device_of(self.model))

    def notes(self, given: Given) -> list[str]:
        count = len(self.inputs(given))
        if count <= self.window:
            return []
        return [
            f"The text has {count:,} tokens; the model reads {self.window:,} at once. Each token "
            f"is predicted from {self.window - self.stride:,} to {self.window:,} tokens before it."
        ]


@register_reader(Translator)
class TargetReader(LanguageReader):
    """A translator: every token of the target is predicted from the source and those before it."""

    first, second = "source", "translation"

    def __init__(self, pipeline: Any) -> None:
        super().__init__(pipeline)
        self.conditioned: RecentResults[LanguageModel] = RecentResults(4)

    def example(self, most: int) -> tuple[str, str] | None:
        source, target = self.pipeline.example(most)
        return source, target

    def source(self, given: Given) -> Inputs:
        """Return the source as the model reads it."""
        ids = self.pipeline.source_tokenizer.encode(given.text)
        return as_inputs(self.pipeline.readable([int(i) for i in ids]), device_of(self.model))

    def condition(self, given: Given) -> LanguageModel:
        def condition() -> LanguageModel:
            with evaluating(self.model):
                model: LanguageModel = self.model.condition(self.source(given))
            return model

        return self.conditioned.get(given.text, condition)

    def encode(self, given: Given) -> tuple[Ints, bool]:
        content = [int(i) for i in self.tokenizer.encode(given.second)][: self.window - 1]
        return np.array([self.tokenizer.start, *content, self.tokenizer.end], np.int64), True

    def target_text(self, given: Given) -> str:
        return given.second

    def replaced(self, given: Given, text: str) -> Given:
        return replace(given, second=text)

    def source_key(self, given: Given) -> str:
        return given.text

    def source_tokens(self, given: Given) -> Tokens:
        ids = self.source(given).ids[0].cpu().numpy()
        return Tokens.of(given.text, ids, self.pipeline.source_tokenizer)

    def look(self, tap: Tap) -> None:
        short = as_inputs([self.pipeline.source_tokenizer.end], device_of(self.model))
        self.model.condition(short).predictions(self.short_row, tap=tap)


class TokensWithMasks(Tokens):
    """Tokens of a text with masks."""

    def name(self, token: int) -> str:
        return MASK if token == self.tokenizer.mask else super().name(token)


@register_reader(MaskedPredictor)
class MaskedReader(Reader):
    """A masked language model: every token is predicted from all others, masked alone."""

    at_once = 32  # each takes a forward pass

    def ids(self, given: Given) -> list[int]:
        return encode_masked(given.text, self.tokenizer)

    def inputs(self, given: Given) -> Ints:
        return np.array(self.ids(given), np.int64)

    def tokens(self, given: Given) -> Tokens:
        return TokensWithMasks.of(given.text, self.ids(given)[1:-1], self.tokenizer)

    def piece(self, ids: Sequence[int], at: int) -> tuple[int, list[int]]:
        """Return the piece of a long text that holds position `at`, and where it begins."""
        starts, lengths = pieces(np.array([0, len(ids)]), int(self.model.config.max_len))
        number = int(np.searchsorted(starts, at, side="right")) - 1
        start = int(starts[number])
        return start, list(ids[start : start + int(lengths[number])])

    def predicted(self, id: int) -> bool:
        """Return whether a token is predicted: a mask, or one that is no marker."""
        return id == self.tokenizer.mask or id not in self.tokenizer.names

    def log_probs(self, given: Given, positions: Iterable[int]) -> dict[int, NDArray[np.float64]]:
        """Return log P of every token at positions in `ids`, those of markers left out."""
        tap = self.tap(given)
        ids, rows = self.ids(given), dict[int, NDArray[np.float64]]()
        by_piece: dict[int, list[int]] = {}
        for at in positions:
            if self.predicted(ids[at]):
                by_piece.setdefault(self.piece(ids, at)[0], []).append(at)
        for start, chosen in by_piece.items():
            piece = self.piece(ids, start)[1]
            inside = [at - start for at in chosen]
            logs = predict_masked(self.model, piece, inside, self.tokenizer.mask, tap=tap)
            rows |= dict(zip(chosen, logs, strict=True))
        return rows

    def scores(self, given: Given, first: int, last: int) -> Scores:
        ids = self.ids(given)
        last = min(last, len(ids) - 2, first + self.at_once)
        bits = np.full(max(0, last - first), np.nan, np.float32)
        ranks = np.zeros(len(bits), np.int64)
        for at, row in self.log_probs(given, range(first + 1, last + 1)).items():
            if ids[at] != self.tokenizer.mask:
                bits[at - 1 - first] = row[ids[at]] / -math.log(2)
                ranks[at - 1 - first] = 1 + int((row > row[ids[at]]).sum())
        return Scores(first, bits, ranks)

    def logits(self, given: Given, at: int) -> Tensor | None:
        if not 0 <= at < len(self.ids(given)) - 2:
            return None
        rows = self.log_probs(given, [at + 1])
        return torch.from_numpy(rows[at + 1]).float() if rows else None

    def frame(self, given: Given, at: int) -> WindowPosition:
        ids = self.ids(given)
        at = min(max(0, at), len(ids) - 2) + 1
        start, piece = self.piece(ids, at)
        return WindowPosition(start, start + len(piece), at - start, start - 1)

    def activations(self, given: Given, frame: WindowPosition, tap: Tap) -> None:
        piece = self.ids(given)[frame.start : frame.stop]
        with evaluating(self.model):
            self.model.vectors(as_inputs(piece, device_of(self.model)), tap=tap)

    @property
    def measures(self) -> bool:
        return True

    def subject(self, given: Given, at: int) -> tuple[Subject, Measure] | None:
        """Return the text with this token masked, and the measure of what the model gives to it; of
        a mask in the text, to what is expected most there.
        """
        ids, at = self.ids(given), at + 1
        if not 0 < at < len(ids) - 1 or not self.predicted(ids[at]):
            return None
        start, piece = self.piece(ids, at)
        known, piece[at - start] = piece[at - start], self.tokenizer.mask
        if known == self.tokenizer.mask:
            logs = predict_masked(self.model, piece, [at - start], known)[0]
            logs[list(self.tokenizer.names)] = -math.inf
            known = int(logs.argmax())
        return Subject.of_ids(self.model, piece, [at - start]), log_probability(known)

    def look(self, tap: Tap) -> None:
        ids = [self.tokenizer.start, self.tokenizer.end]
        self.model.vectors(as_inputs(ids, device_of(self.model)), tap=tap)


@register_reader(Predictor)
class PredictionReader(Reader):
    """A model of labels or values: what each token adds to the prediction, or the classes of
    positions.
    """

    def __init__(self, pipeline: Any) -> None:
        super().__init__(pipeline)
        self.contexts: RecentResults[PredictionContext] = RecentResults(8)

    def context(self, given: Given) -> PredictionContext:
        return self.contexts.get(given.text, lambda: PredictionContext(self.pipeline, given.text))

    expects = False

    def inputs(self, given: Given) -> Ints:
        return self.ids(given)

    def ids(self, given: Given) -> Ints:
        """Return the ids that the model reads, markers included; of a long text the first ones."""
        return np.asarray(self.context(given).source.ids[0].cpu().numpy(), np.int64)

    @property
    def inside(self) -> slice:
        before, after = self.tokenizer.markers
        return slice(before, -after or None)

    def tokens(self, given: Given) -> Tokens:
        return Tokens.of(given.text, self.ids(given)[self.inside], self.tokenizer)

    def predict(self, given: Given, tap: Tap | None) -> Tensor:
        source = self.context(given).source
        with evaluating(self.model):
            outputs: Tensor = self.model.predict(source, tap=tap)
        return outputs

    def probabilities(self, given: Given) -> NDArray[np.float64]:
        """Return the probabilities or values (O,), or (T, O) of positions, with heads off."""
        if not given.off:
            return self.context(given).probabilities
        outputs = self.predict(given, self.tap(given)).float().cpu()
        return np.asarray(self.model.output.probabilities(outputs)[0].double().numpy())

    def classes(self, given: Given) -> tuple[list[str], Floats] | None:
        if not self.pipeline.targets.kind.aligned:
            return None
        return self.context(given).outputs, self.probabilities(given)[self.inside].astype(
            np.float32
        )

    def subject(self, given: Given, at: int) -> tuple[Subject, Measure] | None:
        kind, context = self.pipeline.targets.kind, self.context(given)
        if not given.text.strip() or not kind.categorical:
            return None
        source = context.source
        if not kind.aligned:
            return Subject(self.model, source), output_score(self.model, context.explained[0])
        rows = context.probabilities[self.inside]
        if not 0 <= at < len(rows):
            return None
        position = at + self.tokenizer.markers[0]
        score = output_score(self.model, int(rows[at].argmax()), 0)
        return Subject(self.model, source, [position]), score

    @property
    def measures(self) -> bool:
        return bool(self.pipeline.targets.kind.categorical)

    def true_outputs(self, ids: Sequence[int], targets: Ints | None) -> list[int]:
        kind = self.pipeline.targets.kind
        return [] if targets is None or not (kind.aligned or kind.single) else targets.tolist()

    def target_columns(self, targets: NDArray[Any]) -> dict[str, list[Any]]:
        known: Targets = self.pipeline.targets
        if not known.kind.categorical:
            values = targets.reshape(len(targets), -1)
            return {name: values[:, i].tolist() for i, name in enumerate(known.names)}
        even = np.full(known.n_outputs, 0.5)  # the truth in words depends on no prediction
        truths = [known.kind.outcome(known, even, row).truth for row in targets]
        return {", ".join(known.names): truths}

    def output_name(self, number: int) -> str:
        return str(PredictionContext(self.pipeline).outputs[number])

    def probabilities_of(self, outputs: Tensor) -> Tensor:
        probabilities: Tensor = self.model.output.probabilities(outputs)
        return probabilities

    def added(self, given: Given) -> tuple[str, Floats] | None:
        context = self.context(given)
        if self.pipeline.targets.kind.aligned or find_embedding(self.model) is None:
            return None
        chosen = context.explained[:1]
        values = attribute_outputs(self.model, context.source, chosen)[0]
        name = f"gradient × input for {context.outputs[chosen[0]]}"
        return name, values[self.inside].float().cpu().numpy()

    def answer(self, given: Given) -> list[Component]:
        if not given.text.strip():
            return []
        page = Page("")
        context = self.context(given)
        if given.off:
            context = PredictionContext(self.pipeline, given.text)
            context.__dict__["probabilities"] = self.probabilities(given)
        add_prediction(page, context, ())
        return list(page.components)

    def frame(self, given: Given, at: int) -> WindowPosition:
        count, (before, _) = len(self.ids(given)), self.tokenizer.markers
        return WindowPosition(0, count, min(max(0, at + before), count - 1), -before)

    def activations(self, given: Given, frame: WindowPosition, tap: Tap) -> None:
        self.predict(given, tap)

    def look(self, tap: Tap) -> None:
        ids = [self.tokenizer.start, self.tokenizer.end]
        self.model.predict(as_inputs(ids, device_of(self.model)), tap=tap)


def reader_of(pipeline: Pipeline) -> Reader | None:
    """Return how a pipeline reads, items that are no texts among others; None if it reads pairs."""
    reader = next((READERS[cls] for cls in type(pipeline).__mro__ if cls in READERS), None)
    return None if reader is None else reader(pipeline)


def open_reader(pipeline: Pipeline) -> Reader | None:
    """Return what reads texts with a pipeline; None if it reads other items, or none alone."""
    return reader_of(pipeline) if pipeline.source_tokenizer.reads_text else None
