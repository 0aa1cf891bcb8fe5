"""The attention heads of any run: classifiers, masked language models, translators, image models
and captioners, beside decoders.

Without a head, its weighted values are zero. Its weights are those of the layer while the model
reads a held-out record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import regard
from regard.data.shards import Shard
from regard.errors import UserError
from regard.evaluation.head_scores import NONE, HeadScores, entropy_bits, score_heads
from regard.lab.experiment import BITS_PER_NAT
from regard.layers.attention import CrossAttention
from regard.layers.tap import Tap
from regard.look.interventions import HeadPosition, tap_layer, without_heads
from regard.look.page import AttentionMaps
from regard.models.encoder import Encoder
from regard.models.transformer import TransformerStack
from regard.pipelines import Pipeline
from regard.run import Run

MAX_RECORDS = 300  # whose loss is measured for each head
MAX_POSITIONS = 20_000  # of them
N_ROWS = 8  # records on which heads are described
N_TOKENS = 64  # of the record whose attention is drawn


@dataclass(frozen=True, eq=False)
class Losses:
    """The nats of every row (R,), and its number of tokens (R,)."""

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Bits per token."""
        return float(self.nats.sum() / self.tokens.sum()) * BITS_PER_NAT

    def resample(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return bits per token (N,) of rows (N, R) drawn with replacement."""
        nats = self.nats[rows].sum(1) / np.maximum(1, self.tokens[rows].sum(1))
        return np.asarray(nats * BITS_PER_NAT)


@dataclass(frozen=True)
class Head:
    """One head: where it attends, on all rows and row by row, and how much the loss rises without
    it.
    """

    position: HeadPosition
    scores: HeadScores
    rows: Sequence[HeadScores]
    loss: float
    layer: str = ""  # its name; by default its number

    @property
    def name(self) -> str:
        layer, head = self.position
        return f"{self.layer or f'layer {layer + 1}'}, head {head + 1}"


def attention_layers(model: nn.Module) -> dict[str, Any]:
    """Return the layers with weights and a projection that mixes their heads, by what they are."""
    layers: dict[str, Any] = {}
    for path, module in model.named_modules():
        attends = isinstance(module, CrossAttention) or getattr(module, "has_weights", False)
        if attends and isinstance(module.out, nn.Linear):
            layers[layer_name(path, several=hasattr(model, "decoder"))] = module
    return layers


def layer_name(path: str, *, several: bool) -> str:
    """Return a readable name of a layer, given its path among the modules; `several` stacks are
    told apart.
    """
    parts = path.split(".")
    number = next(int(part) + 1 for part in parts if part.isdigit())
    if parts[-1] == "cross":
        return f"cross layer {number}"
    return f"{parts[0]} layer {number}" if several else f"layer {number}"


@dataclass(eq=False)
class Forward:
    """What reached the stacks and the attention layers of a model while it read a record."""

    layers: Mapping[str, Any]
    inputs: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # of each layer
    taps: dict[str, Tap] = field(default_factory=dict)  # of each layer
    causal: dict[str, bool] = field(default_factory=dict)  # of each stack
    ids: dict[str, Tensor] = field(default_factory=dict)  # (T,) of each stack of tokens
    places: dict[str, Tensor] = field(default_factory=dict)  # (N, 2 or 3) of patches or points

    @contextmanager
    def recorded(self, model: nn.Module) -> Iterator[None]:
        """While open, store what the model reads."""
        with ExitStack() as hooks:

            def attach(module: nn.Module, store: Any) -> None:
                handle = module.register_forward_pre_hook(store, with_kwargs=True)
                hooks.callback(handle.remove)

            for name, layer in self.layers.items():
                attach(layer, partial(self._add, name))
                self.taps[name] = Tap(["weights"])
                hooks.callback(tap_layer(layer, self.taps[name]).remove)
            for path, module in model.named_modules():
                if isinstance(module, Encoder):
                    attach(module, partial(self._read, path))
                if isinstance(module, TransformerStack):
                    self.causal[path] = module.causal
                    attach(module.embedding, partial(self._look_up, path))
            yield

    def _add(self, name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        self.inputs.setdefault(name, args)

    def _read(self, path: str, encoder: Any, args: tuple[Any, ...], kwargs: Any) -> None:
        where = encoder.embedding.where(args[0])
        if isinstance(where, Tensor) and where.dim() == 3:
            self.places.setdefault(path, where[0].double())

    def _look_up(self, path: str, table: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        if args[0].dim() == 2 and not args[0].is_floating_point():
            self.ids.setdefault(path, args[0][0])

    def weights(self, name: str) -> Tensor:
        """Return the weights (H, T, S) of a layer for the first row it read."""
        return self.taps[name].activations["weights"][0].float()

    def scores(self, name: str) -> list[HeadScores]:
        """Return where each head of a layer attends."""
        weights = self.weights(name)
        _, t, s = weights.shape
        if name.startswith("cross"):
            return [HeadScores(float(bits), NONE) for bits in entropy_bits(weights).mean(-1)]
        stack = self._stack_of(name)
        ids, places = self.ids.get(stack), self.places.get(stack)
        if places is not None and len(places) >= s:
            known = ~places[:s].isnan().any(-1)
            known[0] = False  # <S> has no place
            where = places[:s].nan_to_num()
            gaps = torch.cdist(where, where)[:t]
            return [score_among_places(head, gaps, known) for head in weights]
        tokens = None if ids is None or len(ids) < s else ids[None, :s]
        return score_heads(weights[None], tokens, causal=self.causal.get(stack, False))

    def _stack_of(self, name: str) -> str:
        """Return the path of the stack whose layer this is: the only one, or the one named."""
        paths = {*self.ids, *self.places}
        return next((path for path in paths if path == name.split()[0]), next(iter(paths), ""))


def score_among_places(weights: Tensor, gaps: Tensor, known: Tensor) -> HeadScores:
    """Return where a head (T, S) attends among places with these distances (T, S)."""
    weights = weights.to(gaps.dtype)
    among = weights * known  # to places, not to <S>
    rows = known[: len(weights)] & (among.sum(-1) > 0)
    offset = (among * gaps).sum(-1)[rows] / among.sum(-1)[rows]
    return HeadScores(
        float(entropy_bits(weights).mean()), float(offset.mean()) if len(offset) else NONE
    )


class HeadsOfRun:
    """The attention heads of a run, and the loss of its held-out records without some of them."""

    unit: ClassVar[str] = "loss per target"

    def __init__(self, path: Any) -> None:
        run = Run.open(path)
        self.pipeline: Pipeline = regard.load(run)
        model = self.pipeline.model
        self.layers = attention_layers(model)
        if not self.layers:
            raise UserError(
                f"{run} holds a {type(model).__name__}, which has no attention heads to remove; "
                "give the run of a model with attention"
            )
        split, shard = self.pipeline.held_out()
        self.shard = first_records(shard)
        self.name = f"{run.name}, its {split} part"

    def losses(self, removed: Sequence[HeadPosition] = ()) -> Losses:
        """Return the loss of every record without some heads."""
        with without_heads(list(self.layers.values()), removed), torch.no_grad():
            losses, targets = self.pipeline.record_losses(self.shard)
        return Losses(np.asarray(losses, np.float64), np.asarray(targets, np.int64))

    def describe_heads(self) -> list[Head]:
        """Return all heads, the most missed first."""
        base, heads = self.losses().mean, []
        forwards = self.forwards(N_ROWS)
        for number, name in enumerate(self.layers):
            rows = list(zip(*(forward.scores(name) for forward in forwards), strict=True))
            for head, one_by_one in enumerate(rows):
                loss = self.losses([(number, head)]).mean - base
                scores = HeadScores.mean(one_by_one)
                heads.append(Head((number, head), scores, one_by_one, loss, name))
        return sorted(heads, key=lambda head: -head.loss)

    def maps(self) -> list[AttentionMaps]:
        """Return the attention of every head on one record, a component for each stack."""
        (forward,) = self.forwards(1)
        by_stack: dict[tuple[str, torch.Size], dict[str, Tensor]] = {}
        for name in self.layers:
            weights = forward.weights(name)[:, :N_TOKENS, :N_TOKENS]
            stack = " ".join(name.split()[:-1])
            by_stack.setdefault((stack, weights.shape), {})[name] = weights
        return [
            AttentionMaps(
                torch.stack(list(layers.values())).numpy(),
                [str(i) for i in range(shape[1])],
                [str(i) for i in range(shape[2])],
                layers=list(layers),
                title=f"Attention of every head on one record: {stack}, positions by number",
            )
            for (stack, shape), layers in by_stack.items()
        ]

    def forwards(self, rows: int) -> list[Forward]:
        """Return what the layers read of each of the first records."""
        found = []
        for number in range(min(rows, self.shard.records // self.shard.views)):
            forward = Forward(self.layers)
            first = number * self.shard.views
            one = self.shard.take(np.arange(first, first + self.shard.views))
            with forward.recorded(self.pipeline.model), torch.no_grad():
                self.pipeline.record_losses(one)
            found.append(forward)
        return found


def first_records(shard: Shard) -> Shard:
    """Return the first records of a shard, in all their views, as many as are measured."""
    if not shard.has_records:
        return shard
    lengths = np.diff(shard.offsets)
    within = int(np.searchsorted(np.cumsum(lengths), MAX_POSITIONS))
    count = max(1, min(shard.records, MAX_RECORDS, within))
    return shard.take(np.arange(max(shard.views, count - count % shard.views)))
