"""Decoders whose heads are looked at: that of a run, or a small one that learns to repeat itself;
and the same without some of their heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.data.batching import windows as laid_out
from regard.errors import UserError
from regard.evaluate.material import held_out
from regard.lab.practice import practise
from regard.lab.result import Options
from regard.layers.attention import SelfAttention
from regard.layers.block import Block
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.language_model import IGNORE
from regard.recipe import TrainRecipe
from regard.run import TOKENIZER, load_model, open_run
from regard.tokens import load
from regard.train.loop import seed_of

SYMBOLS = 24  # of the sequences that repeat themselves
POSITIONS = 20_000  # tokens at most whose loss is measured each time
MOST_HEADS = 400  # each costs a pass over them


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the small decoder learns, where no run is given."""

    steps: int
    batch: int = 32
    half: int = 16  # symbols, at most, before they are repeated

    @property
    def config(self) -> DecoderConfig:
        """Two layers: the least that induction needs."""
        return DecoderConfig(
            n_layers=2,
            d_model=64,
            n_heads=4,
            n_kv_heads=4,
            d_head=16,
            d_ff=128,
            max_len=2 * self.half,
        )


LARGE, SMALL = Plan(steps=1500), Plan(steps=250, batch=16)


@dataclass(frozen=True, eq=False)
class Losses:
    """The nats of every row (R,), and the tokens (R,) that they are of."""

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Nats per token."""
        return float(self.nats.sum() / self.tokens.sum())

    def resampled(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """(N,) nats per token of rows (N, R) drawn with replacement."""
        return np.asarray(self.nats[rows].sum(1) / np.maximum(1, self.tokens[rows].sum(1)))


@dataclass(frozen=True, eq=False)
class Subject:
    """A decoder and (B, T) ids with their targets; `segments` where records share rows."""

    model: Decoder
    batches: Sequence[tuple[Tensor, Tensor, Tensor | None]]
    what: str
    spell: Callable[[int], str] = str  # a token as it is read

    def loss(self) -> float:
        """Nats per token on all batches."""
        return self.losses().mean

    def losses(self) -> Losses:
        """The same, row by row."""
        nats, many = [], []
        with torch.no_grad():
            for ids, targets, segments in self.batches:
                nats.append(-self.model.score(ids, targets, segments).double().sum(1))
                many.append((targets != IGNORE).sum(1))
        return Losses(torch.cat(nats).numpy(), torch.cat(many).numpy())


def repeats(half: int, many: int, random: np.random.Generator) -> Tensor:
    """(B, 2·half) random symbols, then the same again."""
    first = random.integers(0, SYMBOLS, (many, half))
    return torch.from_numpy(np.concatenate([first, first], axis=1))


def batch_of(ids: Tensor) -> Batch:
    """Every symbol is asked for; those of the first half cannot be known."""
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    many = targets.numel()
    return Batch(inputs, targets, None, np.arange(len(ids)), many, many)


def learned(plan: Plan, options: Options) -> Subject:
    """A small decoder that has learned sequences which repeat themselves."""
    work = options.work(plan.steps)
    recipe = TrainRecipe(steps=plan.steps, device="cpu", compile="off", seed=options.seed)

    def at(step: int) -> Batch:
        random = np.random.default_rng(seed_of(options.seed, step))
        half = int(random.integers(plan.half // 2, plan.half + 1))  # no fixed offset will do
        return batch_of(repeats(half, plan.batch, random))

    model = practise(
        "transformer", SYMBOLS, plan.config, recipe, at, lambda b: work.add("heads", 1)
    )
    assert isinstance(model, Decoder)
    test = batch_of(repeats(plan.half, 64, np.random.default_rng(seed_of(options.seed, -1))))
    return Subject(model, [(test.ids, test.targets, None)], "sequences that repeat themselves")


def of_run(path: Path) -> Subject:
    """The decoder of a run folder, on what was held out when it was trained."""
    folder = open_run(path)
    model = load_model(folder)
    if not isinstance(model, Decoder):
        raise UserError(
            f"{folder} holds a {type(model).__name__}: this takes a decoder-only Transformer"
        )
    layers = [i for i, block in enumerate(model.blocks) if has_heads(block)]
    if not layers:
        raise UserError(
            f"{folder}: its layers are {', '.join(sorted(set(model.config.kinds)))}, which have no "
            "attention heads to take away; give the run of a model with attention"
        )
    heads = len(layers) * model.config.n_heads
    if heads > MOST_HEADS:
        raise UserError(f"{folder}: {heads:,} heads; at most {MOST_HEADS} are tried one by one")
    if model.config.projections != "learned":
        raise UserError(f"{folder}: its heads have no projections of their own to take away")
    tokenizer = load(folder / TOKENIZER)
    side, shard = held_out(folder, tokenizer)
    size = model.config.max_len
    batches, seen = [], 0
    for batch in laid_out(
        shard, tokenizer, max_len=size, stride=size, batch_tokens=max(4096, size), packs=model.packs
    ):
        batches.append((batch.ids, batch.targets, batch.segments))
        seen += batch.ids.numel()
        if seen >= POSITIONS:
            break
    return Subject(model, batches, f"{folder.name}, its {side} part", tokenizer.text)


@contextmanager
def without(model: Decoder, heads: Sequence[tuple[int, int]]) -> Iterator[None]:
    """The model while these heads write nothing to the residual stream; a head is a layer and a
    number in it.
    """
    width = model.config.d_head
    outs = {layer: _output(model.blocks[layer]).weight for layer, _ in heads}
    kept = {layer: weight.detach().clone() for layer, weight in outs.items()}
    try:
        with torch.no_grad():
            for layer, head in heads:
                outs[layer][:, head * width : (head + 1) * width] = 0
        yield
    finally:
        with torch.no_grad():
            for layer, weight in outs.items():
                weight.copy_(kept[layer])


def has_heads(block: nn.Module) -> bool:
    """Does a layer attend, with heads that can be taken away?"""
    return isinstance(block, Block) and isinstance(block.mixer, SelfAttention)


def _output(block: nn.Module) -> nn.Linear:
    assert isinstance(block, Block) and isinstance(block.mixer, SelfAttention)
    assert isinstance(block.mixer.out, nn.Linear)
    return block.mixer.out
