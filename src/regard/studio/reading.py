"""How a model reads one sequence: the surprise of its tokens, what was expected at a position and
where attention looked.

A text longer than the context is read in windows that advance by half of their size, the windows of
`Generator.score`, and only those are read that hold what is asked for. `register_reader` adds how
another pipeline reads.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batching import pieces
from regard.decoding import Sample
from regard.decoding.engine import device_of, evaluating
from regard.errors import UsageError, UserError
from regard.evaluation.masked_tokens import encode_masked, predict_masked
from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap
from regard.look.attribution import attribute_outputs, find_embedding
from regard.look.internals import PredictionContext, as_inputs
from regard.look.interventions import (
    Measure,
    Subject,
    head_effects,
    log_probability,
    logit_lens,
    output_score,
    patch,
    residual_stream,
)
from regard.look.page import Component, Heatmap, Page
from regard.look.prediction_page import add_prediction
from regard.look.tiles import Pyramid
from regard.models.language_model import Constrain, LanguageModel
from regard.pipelines import Pipeline
from regard.pipelines.generator import Generator
from regard.pipelines.masked_predictor import MaskedPredictor
from regard.pipelines.predictor import Predictor
from regard.pipelines.translator import Translator
from regard.tokenizers import Tokenizer
from regard.tokenizers.spans import token_spans, utf16_offsets

MOST_WINDOW = 2000  # tokens that are read at once, of models with a longer context
LOGITS = 1 << 23  # in memory at once: 32 MB
SHOWN = 20  # expected tokens that are listed
LISTED = 3  # outputs after each block
MOST_WORK = 1 << 17  # tokens that are read to patch a text
KEPT_BYTES = 256 << 20  # of attention maps
KEPT_PASSES = 16  # forward passes whose hidden vectors are kept
ALL_LAYERS = "all"  # the mean over all heads of all layers
MOST_WEIGHTS = 1 << 24  # attention weights of all layers together

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Given:
    """What is read: a text, the second text of a pair, and the heads that are off (LAYER:HEAD)."""

    text: str
    second: str = ""
    off: tuple[str, ...] = ()


@dataclass(frozen=True)
class AttentionLayer:
    """A layer with attention weights: how many heads, whether it looks at the source of a pair, and
    whether its heads can be switched off.
    """

    name: str
    heads: int
    source: bool
    switchable: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": title_of(self.name),
            "heads": self.heads,
            "source": self.source,
            "switchable": self.switchable,
        }


def subject_work(subject: Subject) -> int:
    """Return how many tokens are read to patch every vector of the residual stream."""
    return len(residual_stream(subject)) * subject.tokens**2


def title_of(layer: str) -> str:
    """Return how a layer is called: "layer 3", "layer 3, to the source"."""
    parts = layer.split(".")
    number = next((int(part) + 1 for part in parts if part.isdigit()), 1)
    return f"layer {number}{', to the source' if parts[-1] == 'cross' else ''}"


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of a text as they are shown: ids, names and spans (N, 2), in 16-bit units."""

    ids: Ints
    spans: Ints
    tokenizer: Tokenizer

    @classmethod
    def of(cls, text: str, ids: Sequence[int] | Ints, tokenizer: Tokenizer) -> Tokens:
        """Find the ids in the text; the markers have no characters, `<E>` is at the end."""
        array = np.asarray(ids, np.int64)
        spans = np.full((len(array), 2), len(text), np.int64)
        last = len(array) - int(len(array) > 0 and array[-1] == tokenizer.end)
        spans[:last] = token_spans(text, array[:last], tokenizer)
        return cls(array, utf16_offsets(text)[spans], tokenizer)

    def names(self, first: int = 0, last: int | None = None) -> list[str]:
        return [self.tokenizer.text(int(i)) for i in self.ids[first:last]]

    def within(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first and the last (exclusive) of the tokens in a part of the text."""
        first = int(np.searchsorted(self.spans[:, 1], start, side="right"))
        last = int(np.searchsorted(self.spans[:, 0], stop, side="left"))
        if len(self.ids) and stop >= self.spans[-1, 1]:  # the end marker belongs to the last part
            last = len(self.ids)
            first = min(first, last - int(self.spans[-1, 0] == self.spans[-1, 1]))
        return min(first, last), last


@dataclass(frozen=True, eq=False)
class Scores:
    """Of n tokens from `first` on: bits, NaN where nothing is scored, and ranks from 1, 0 there."""

    first: int
    bits: Floats
    ranks: Ints


@dataclass(frozen=True, eq=False)
class Expected:
    """The most probable tokens at a position with their probabilities, and what is left of them
    after temperature, top-K and top-P; `remaining` of `size` tokens are left.
    """

    ids: list[int]
    names: list[str]
    logits: Floats
    probabilities: Floats
    after: Floats
    remaining: int
    size: int


@dataclass(frozen=True)
class Cut:
    """How a next token would be drawn; see `decoding.Sample`."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class WindowPosition:
    """The window, inputs `start` to `stop`, that holds a position: `row` is the position there, and
    input `start` is shown token `first`, which is below 0 for a marker before the text.
    """

    start: int
    stop: int
    row: int
    first: int


@dataclass(frozen=True, eq=False)
class Attention:
    """The weights (H, T, S) of a layer in one window, at a position of it. Column 0 is token
    `first` of the text, or of the source if `source`.
    """

    weights: Floats
    frame: WindowPosition
    source: bool

    @property
    def first(self) -> int:
        return 0 if self.source else self.frame.first


class RecentResults(Generic[Result]):
    """The last results by key, of at most `most` by `size_of`. What several threads ask for at once
    is made once.
    """

    def __init__(self, most: int, size_of: Callable[[Result], int] = lambda result: 1) -> None:
        self.most, self.size_of = most, size_of
        self.results: OrderedDict[Hashable, Future[Result]] = OrderedDict()
        self.lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Result]) -> Result:
        """Return the result of this key, made if it is not there."""
        with self.lock:
            future = self.results.get(key)
            if future is not None:
                self.results.move_to_end(key)
            else:
                mine: Future[Result] = Future()
                self.results[key] = mine
        if future is not None:
            return future.result()
        try:
            mine.set_result(make())
        except BaseException as error:
            mine.set_exception(error)
            with self.lock:
                self.results.pop(key, None)
            raise
        with self.lock:
            self._drop()
        return mine.result()

    def _drop(self) -> None:
        """Forget the oldest results while there are too many."""
        sizes = {k: self.size_of(f.result()) for k, f in self.results.items() if f.done()}
        total = sum(sizes.values())
        for key, size in list(sizes.items())[:-1]:
            if total <= self.most:
                return
            del self.results[key]
            total -= size


READERS: dict[type[Pipeline], type[Reader]] = {}
ReaderT = TypeVar("ReaderT", bound="type[Reader]")


def register_reader(*pipelines: type[Pipeline]) -> Callable[[ReaderT], ReaderT]:
    """Register how a pipeline, or a subclass of it, reads a sequence."""

    def register(reader: ReaderT) -> ReaderT:
        READERS.update(dict.fromkeys(pipelines, reader))
        return reader

    return register


def open_reader(pipeline: Pipeline) -> Reader | None:
    """Return what reads texts with a pipeline; None if it reads other items, or none alone."""
    if not pipeline.source_tokenizer.reads_text:
        return None
    reader = next((READERS[cls] for cls in type(pipeline).__mro__ if cls in READERS), None)
    return None if reader is None else reader(pipeline)


class Reader(ABC):
    """Reads texts with one pipeline; what a model lacks is None."""

    second: ClassVar[str] = ""  # the name of the second text, if one is read
    first: ClassVar[str] = "text"
    at_once: ClassVar[int] = MOST_WINDOW  # tokens that are scored in one answer
    switches: ClassVar[bool] = True  # whether heads can be switched off
    expects: ClassVar[bool] = True  # whether tokens are predicted
    causal: ClassVar[bool] = False  # the row of a position is that of the token before it

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self.model, self.tokenizer = pipeline.model, pipeline.tokenizer
        self.window = min(int(self.model.config.max_len), MOST_WINDOW)
        self.maps: RecentResults[Floats] = RecentResults(
            KEPT_BYTES, lambda weights: int(weights.nbytes)
        )
        self.pyramids: RecentResults[Pyramid] = RecentResults(
            KEPT_BYTES, lambda pyramid: pyramid.nbytes
        )

    @abstractmethod
    def tokens(self, given: Given) -> Tokens:
        """Return the tokens that are predicted or labelled."""

    def source_tokens(self, given: Given) -> Tokens | None:
        """Return the tokens of the source of a pair."""
        return None

    def example(self, most: int) -> tuple[str, str] | None:
        """Return a held-out text to begin with, of `most` tokens, and the second of a pair; None if
        any will do.
        """
        return None

    def scores(self, given: Given, first: int, last: int) -> Scores | None:
        """Return the surprise of tokens first to last, at most `at_once` of them."""
        return None

    def expected(self, given: Given, at: int, cut: Cut = Cut()) -> Expected | None:  # noqa: B008 - frozen
        """Return what is expected in place of a token or, after the last one, of the next."""
        logits = self.logits(given, at)
        return None if logits is None else self.choose(logits, cut)

    def logits(self, given: Given, at: int) -> Tensor | None:
        """Return the logits (V,) at a position; None where nothing is predicted."""
        return None

    def added(self, given: Given) -> tuple[str, Floats] | None:
        """Return what each token adds to the score of the prediction, and the name of this."""
        return None

    def classes(self, given: Given) -> tuple[list[str], Floats] | None:
        """Return the classes of positions and their probabilities (N, C)."""
        return None

    def answer(self, given: Given) -> list[Component]:
        """Return what the model answers to the whole text."""
        return []

    def notes(self, given: Given) -> list[str]:
        """Return what a reader should know, such as that only a part of a text is read."""
        return []

    @abstractmethod
    def inputs(self, given: Given) -> Ints:
        """Return the ids that the model reads."""

    def columns(self, given: Given, attention: Attention) -> list[str]:
        """Return the tokens that a window looks at."""
        source = self.source_tokens(given) if attention.source else None
        if source is not None:
            return source.names()
        frame = attention.frame
        return [self.tokenizer.text(int(i)) for i in self.inputs(given)[frame.start : frame.stop]]

    def subject(self, given: Given, at: int) -> tuple[Subject, Measure] | None:
        """Return what is read up to a position, and the measure of what the model gives to the
        token there, or to its prediction; None where there is none.
        """
        return None

    @property
    def measures(self) -> bool:
        """Whether there is something to measure at a position: see `subject`."""
        return False

    def output_name(self, number: int) -> str:
        """Return the name of an output: of a token or a class."""
        return str(self.tokenizer.text(number))

    def probabilities_of(self, outputs: Tensor) -> Tensor:
        """Return the probabilities (N, O) of outputs."""
        return outputs.softmax(-1)

    def likeliest(self, outputs: Tensor) -> list[list[tuple[str, float]]]:
        """Return the most probable outputs of each row, with their probabilities."""
        p, ids = self.probabilities_of(outputs).topk(min(LISTED, outputs.size(-1)))
        return [
            [(self.output_name(i), x) for i, x in zip(row, values, strict=True)]
            for row, values in zip(ids.tolist(), p.tolist(), strict=True)
        ]

    def effects(self, given: Given, at: int) -> dict[str, Floats] | None:
        """Return by how many bits the log-probability of a token changes with each head off alone,
        (H,) by layer; the heads that are off in `given` are on.
        """
        found = self.subject(given, at)
        if found is None or not any(layer.switchable for layer in self.layers):
            return None
        losses = head_effects(*found)
        return {name: (-x / math.log(2)).float().numpy() for name, x in losses.items()}

    def lens(self, given: Given, at: int) -> list[tuple[str, list[tuple[str, float]], float]]:
        """Return what would be expected at a position after each block: its name, the most probable
        outputs, and the bits of the token there.
        """
        found = self.subject(given, at)
        if found is None:
            return []
        subject, measure = found
        names, outputs = logit_lens(subject)
        bits = measure(outputs.double()) / -math.log(2)
        titles = ["embedding", *map(title_of, names[1:])]
        listed = self.likeliest(outputs.float().flatten(0, -2))
        return list(zip(titles, listed, bits.tolist(), strict=True))

    def patch(self, given: Given, at: int, other: str) -> Heatmap | None:
        """Return which of the vectors of another text, put in place of those of this one, restore
        what the model gives to the token there: a share for each block and token.
        """
        found = self.subject(given, at)
        if found is None:
            return None
        clean = self.subject(self.replaced(given, other), at)
        if clean is None:
            raise UserError("the other text must have equally many tokens up to the position")
        if subject_work(found[0]) > MOST_WORK:
            raise UsageError(f"at must be below {at}: patching runs the model for every token")
        shares = patch(clean[0], found[0], found[1])
        ids = found[0].source.ids[0].tolist()
        tokens = [self.tokenizer.text(int(i)) for i in ids]
        return Heatmap(
            torch.stack(list(shares.values())).numpy(),
            [title_of(name) for name in shares],
            tokens,
            "What the other text restores, by block and token",
            scale="diverging",
            unit="of the difference",
        )

    def replaced(self, given: Given, text: str) -> Given:
        """Return what is read with another text in place of the one that is predicted."""
        return replace(given, text=text)

    @abstractmethod
    def frame(self, given: Given, at: int) -> WindowPosition:
        """Return the window that holds a position."""

    @abstractmethod
    def activations(self, given: Given, frame: WindowPosition, tap: Tap) -> None:
        """Read a window, with a tap."""

    @abstractmethod
    def look(self, tap: Tap) -> None:
        """Read something short, to learn the names of activations."""

    @cached_property
    def layers(self) -> list[AttentionLayer]:
        """The layers that have attention weights."""
        tap = Tap(["*.weights"])
        with evaluating(self.model):
            self.look(tap)
        return [
            AttentionLayer(
                layer,
                heads=x.size(1),
                source=layer.endswith(".cross"),
                switchable=self.switches and f"{layer}.heads" in tap.names,
            )
            for name, x in tap.activations.items()
            if (layer := name.removesuffix(".weights")) and x.dim() == 4
        ]

    @property
    def averages(self) -> bool:
        """Whether the mean over all layers is at hand: their weights fit in memory together."""
        heads = [layer.heads for layer in self.layers if not layer.source]
        return len(heads) > 1 and sum(heads) * self.window**2 <= MOST_WEIGHTS

    def edits(self, given: Given) -> list[Edit]:
        """Return the edits that switch heads off."""
        known = {
            f"{layer.name}:{head}": Edit.zero(f"{layer.name}.heads", (slice(None), head))
            for layer in self.layers
            if layer.switchable
            for head in range(layer.heads)
        }
        for name in given.off:
            if name not in known:
                raise UsageError(f"off must name heads as LAYER:HEAD, got {name!r}")
        return [known[name] for name in given.off]

    def tap(self, given: Given, patterns: Iterable[str] = ()) -> Tap | None:
        """Return a tap for these activations and edits, None if there are none of both."""
        edits = self.edits(given) if given.off else []
        patterns = tuple(patterns)
        return Tap(patterns, edits=edits) if patterns or edits else None

    def attention(self, given: Given, at: int, layer: str) -> Attention | None:
        """Return the attention of a layer in the window of a position, or its mean over all layers
        of the text itself; None where no layer attends.
        """
        if not self.layers:
            return None
        layers, frame = self.choose_layers(layer), self.frame(given, at)
        key = given, frame.start, frame.stop, layer
        weights = self.maps.get(key, lambda: self._weights(given, frame, layers))
        return Attention(weights, frame, layers[0].source)

    def choose_layers(self, name: str) -> list[AttentionLayer]:
        """Return the layer of a name, or all of the text itself if their mean is wanted."""
        if name == ALL_LAYERS and self.averages:
            return [layer for layer in self.layers if not layer.source]
        chosen = [layer for layer in self.layers if layer.name == name]
        if not chosen:
            names = [ALL_LAYERS] * self.averages + [layer.name for layer in self.layers]
            raise UsageError(f"layer must be one of {', '.join(names)}, got {name!r}")
        return chosen

    def _weights(
        self, given: Given, frame: WindowPosition, layers: Sequence[AttentionLayer]
    ) -> Floats:
        names = [f"{layer.name}.weights" for layer in layers]
        tap = self.tap(given, names)
        assert tap is not None
        self.activations(given, frame, tap)
        weights = [tap.activations[name][0].float().cpu() for name in names]  # (H, T, S) each
        if len(weights) > 1:
            weights = [torch.stack([w.mean(0) for w in weights]).mean(0, keepdim=True)]
        return np.ascontiguousarray(weights[0].numpy())

    def pyramid(self, given: Given, at: int, layer: str, head: int) -> Pyramid | None:
        """Return the map of one head, or of the mean of all (-1), in tiles."""
        attention = self.attention(given, at, layer)
        if attention is None:
            return None
        if not -1 <= head < len(attention.weights):
            raise UsageError(f"head must be from -1 to {len(attention.weights) - 1}, got {head}")
        weights = attention.weights.mean(0) if head < 0 else attention.weights[head]
        key = given, attention.frame.start, attention.frame.stop, layer, head
        return self.pyramids.get(key, lambda: Pyramid.of(weights))

    def choose(self, logits: Tensor, cut: Cut) -> Expected:
        """List the most probable tokens, before and after the cuts of sampling."""
        logits = logits.float().cpu()
        probabilities = logits.softmax(-1)
        possible = logits.clone()
        possible[self.tokenizer.never_produced(len(logits))] = -math.inf
        sample = Sample(cut.temperature, cut.top_k, cut.top_p)
        after = torch.zeros_like(logits)
        if possible.isfinite().any():
            weights, ids = sample.weights(possible[None])
            if ids is None:
                after = weights[0]
            else:
                after[ids[0]] = weights[0]
            after = after / after.sum()
        top = torch.sort(probabilities, descending=True, stable=True).indices[:SHOWN]
        return Expected(
            ids=top.tolist(),
            names=[self.tokenizer.text(int(i)) for i in top],
            logits=logits[top].numpy(),
            probabilities=probabilities[top].numpy(),
            after=after[top].numpy(),
            remaining=int((after > 0).sum()),
            size=len(logits),
        )


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


@register_reader(MaskedPredictor)
class MaskedReader(Reader):
    """A masked language model: every token is predicted from all others, masked alone."""

    at_once = 32  # each takes a forward pass
    switches = False

    def ids(self, given: Given) -> list[int]:
        return encode_masked(given.text, self.tokenizer)

    def inputs(self, given: Given) -> Ints:
        return np.array(self.ids(given), np.int64)

    def tokens(self, given: Given) -> Tokens:
        return Tokens.of(given.text, self.ids(given)[1:-1], self.tokenizer)

    def piece(self, ids: Sequence[int], at: int) -> tuple[int, list[int]]:
        """Return the piece of a long text that holds position `at`, and where it begins."""
        starts, lengths = pieces(np.array([0, len(ids)]), int(self.model.config.max_len))
        number = int(np.searchsorted(starts, at, side="right")) - 1
        start = int(starts[number])
        return start, list(ids[start : start + int(lengths[number])])

    def log_probs(self, given: Given, positions: Iterable[int]) -> dict[int, NDArray[np.float64]]:
        """Return log P of every token at positions in `ids`, those of markers left out."""
        ids, rows = self.ids(given), dict[int, NDArray[np.float64]]()
        by_piece: dict[int, list[int]] = {}
        for at in positions:
            if ids[at] == self.tokenizer.mask or ids[at] not in self.tokenizer.names:
                by_piece.setdefault(self.piece(ids, at)[0], []).append(at)
        for start, chosen in by_piece.items():
            piece = self.piece(ids, start)[1]
            inside = [at - start for at in chosen]
            logs = predict_masked(self.model, piece, inside, self.tokenizer.mask)
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

    def notes(self, given: Given) -> list[str]:
        return self.context(given).reading_notes[:1] if given.text else []

    def frame(self, given: Given, at: int) -> WindowPosition:
        count, (before, _) = len(self.ids(given)), self.tokenizer.markers
        return WindowPosition(0, count, min(max(0, at + before), count - 1), -before)

    def activations(self, given: Given, frame: WindowPosition, tap: Tap) -> None:
        self.predict(given, tap)

    def look(self, tap: Tap) -> None:
        ids = [self.tokenizer.start, self.tokenizer.end]
        self.model.predict(as_inputs(ids, device_of(self.model)), tap=tap)
