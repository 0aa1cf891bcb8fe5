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

from regard.decoding import Sample
from regard.decoding.engine import evaluating
from regard.errors import UsageError, UserError
from regard.layers.tap import Edit, Tap
from regard.look.interventions import (
    Measure,
    Subject,
    head_effects,
    logit_lens,
    patch,
    residual_stream,
)
from regard.look.page import Component, Heatmap
from regard.look.tiles import Pyramid
from regard.pipelines import Pipeline
from regard.tokenizers import Tokenizer
from regard.tokenizers.spans import token_spans, utf16_offsets

MOST_WINDOW = 2000  # tokens that are read at once, of models with a longer context
LOGITS = 1 << 23  # in memory at once: 32 MB
SHOWN = 20  # expected tokens that are listed
LISTED = 3  # outputs after each block
MOST_WORK = 1 << 17  # tokens that are read to patch a text
KEPT_BYTES = 96 << 20  # of attention maps
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

    def name(self, token: int) -> str:
        """Return how a token is shown."""
        return str(self.tokenizer.text(token))

    def names(self, first: int = 0, last: int | None = None) -> list[str]:
        return [self.name(int(i)) for i in self.ids[first:last]]

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


class Reader(ABC):
    """Reads texts with one pipeline; what a model lacks is None."""

    second: ClassVar[str] = ""  # the name of the second text, if one is read
    first: ClassVar[str] = "text"
    at_once: ClassVar[int] = MOST_WINDOW  # tokens that are scored in one answer
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
        frame, name = attention.frame, self.tokens(given).name
        return [name(int(i)) for i in self.inputs(given)[frame.start : frame.stop]]

    def subject(self, given: Given, at: int) -> tuple[Subject, Measure] | None:
        """Return what is read up to a position, and the measure of what the model gives to the
        token there, or to its prediction; None where there is none.
        """
        return None

    def step(self, given: Given) -> int:
        """Return the position, from 1, that reads the first token or predicts it."""
        return int(self.tokenizer.markers[0]) + 1

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

    def true_outputs(self, ids: Sequence[int], targets: Ints | None) -> list[int]:
        """Return the number of the true output at each position of a record, -1 where it is
        unknown, from its tokens and stored targets.
        """
        return [*ids[1:], -1] if self.causal else list(ids)

    def target_columns(self, targets: NDArray[Any]) -> dict[str, list[Any]]:
        """Return the stored targets of records, in words or numbers, by column."""
        return {}

    def effects(self, given: Given, at: int) -> dict[str, Floats] | None:
        """Return by how many bits the log-probability of a token changes with each head off alone,
        (H,) by layer; the heads that are off in `given` are on.
        """
        probe = self.subject(given, at)
        if probe is None or not any(layer.switchable for layer in self.layers):
            return None
        losses = head_effects(*probe)
        return {name: (-x / math.log(2)).float().numpy() for name, x in losses.items()}

    def lens(self, given: Given, at: int) -> list[tuple[str, list[tuple[str, float]], float]]:
        """Return what would be expected at a position after each block: its name, the most probable
        outputs, and the bits of the token there.
        """
        probe = self.subject(given, at)
        if probe is None:
            return []
        subject, measure = probe
        names, outputs = logit_lens(subject)
        bits = measure(outputs.double()) / -math.log(2)
        titles = ["embedding", *map(title_of, names[1:])]
        listed = self.likeliest(outputs.float().flatten(0, -2))
        return list(zip(titles, listed, bits.tolist(), strict=True))

    def patch(self, given: Given, at: int, other: str) -> Heatmap | None:
        """Return which of the vectors of another text, put in place of those of this one, restore
        what the model gives to the token there: a share for each block and token.
        """
        probe = self.subject(given, at)
        if probe is None:
            return None
        clean = self.subject(self.replaced(given, other), at)
        if clean is None:
            raise UserError("the other text must have equally many tokens up to the position")
        if subject_work(probe[0]) > MOST_WORK:
            raise UsageError(f"at must be below {at}: patching runs the model for every token")
        shares = patch(clean[0], probe[0], probe[1])
        tokens = list(map(self.tokens(given).name, probe[0].source.ids[0].tolist()))
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
                switchable=f"{layer}.heads" in tap.names,
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
