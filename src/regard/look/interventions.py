"""What the parts of a model do for one input, measured by edits of its activations.

- `head_effects`: how much an output drops without each attention head, all heads in one batch.
- `patch`: which activation, at which position, carries the difference between two inputs (Vig et
  al. 2020, arXiv:2004.12265; Meng et al. 2022, arXiv:2202.05262).
- `logit_lens`: what the model would predict after each block (nostalgebraist 2020).
- `head_scores`, `repeat_scores`, `copying_scores`: where heads attend, and what they write.
- `mean_direction`: a direction to steer into (Turner et al. 2023, arXiv:2308.10248).

Each works on a `Subject`, one input of any model with named activations, and in rows of a batch
that differ in their edits alone.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.decoding.engine import device_of, evaluating
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.evaluation.head_scores import NONE, HeadScores, entropy_bits, score_heads
from regard.evaluation.record_activations import read_records
from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap, Value
from regard.models import Model
from regard.models.language_model import LanguageModel
from regard.models.supervised import SupervisedModel
from regard.tokenizers import Tokenizer

BATCH_TOKENS = 1 << 14  # positions in a batch, at most
BATCH_OUTPUTS = 1 << 24  # numbers in the outputs of a batch, at most: 64 MB
ALL = slice(None)
BLOCK = r"block\.\d+\.output"  # the names of the residual stream

Measure = Callable[[Tensor], Tensor]  # the number (B,) that is taken from outputs (B, ...)


@dataclass(frozen=True)
class Change:
    """In one row of a batch, the entries `where` of an activation are set to a value."""

    name: str
    where: tuple[Any, ...] = ()
    value: Value = 0.0


@dataclass(frozen=True, eq=False)
class Subject:
    """One input, the only row of `source`, and a model that reads it. Of outputs at every position
    only those at `positions` count, if these are given.
    """

    model: Model
    source: Inputs
    positions: Sequence[int] | None = None

    @classmethod
    def of_ids(
        cls, model: Model, ids: Sequence[int], positions: Sequence[int] | None = None
    ) -> Subject:
        """Return a sequence of tokens."""
        row = torch.tensor([list(ids)], device=device_of(model))
        return cls(model, Inputs(row, torch.ones_like(row)), positions)

    @property
    def tokens(self) -> int:
        """The number of tokens of the input."""
        return self.source.ids.size(1)

    def read(self, rows: int, tap: Tap | None = None) -> Tensor:
        """Return the outputs of the input, repeated in this many rows."""
        return self.model.read_batch(self.source.repeat(rows), positions=self.positions, tap=tap)

    def activations(self, *patterns: str) -> dict[str, Tensor]:
        """Return the named activations of the input, without a batch dimension."""
        return {name: x[0] for name, x in self.record([None], *patterns).items()}

    def record(self, changes: Sequence[Change | None], *patterns: str) -> dict[str, Tensor]:
        """Return the named activations of rows with one change each, in one batch."""
        tap = Tap(patterns, edits=edits_of(changes))
        with evaluating(self.model):
            self.read(len(changes), tap)
        return tap.activations

    def outputs(self, changes: Sequence[Change | None]) -> Iterator[Tensor]:
        """Yield the outputs of rows with one change each, batch by batch; None changes nothing."""
        with evaluating(self.model):
            size = self.read(1).numel()
            rows = max(1, min(BATCH_TOKENS // self.tokens, BATCH_OUTPUTS // size))
            for first in range(0, len(changes), rows):
                part = changes[first : first + rows]
                yield self.read(len(part), Tap(edits=edits_of(part)))

    def measure(self, changes: Sequence[Change | None], measure: Measure) -> Tensor:
        """Return what is measured of rows with one change each, (N,), in double precision."""
        return torch.cat([measure(x.double()).cpu() for x in self.outputs(changes)])


def edits_of(changes: Sequence[Change | None]) -> list[Edit]:
    """Return one edit for each activation that changes in some row."""
    by_name: dict[str, list[tuple[tuple[Any, ...], Value]]] = defaultdict(list)
    for row, change in enumerate(changes):
        if change is not None:
            by_name[change.name].append(((row, *change.where), change.value))

    def set_entries(name: str) -> Edit:
        def change(entries: Tensor, value: Value) -> Tensor:
            for where, new in by_name[name]:
                entries[where] = new  # of the edit's own copy
            return entries

        return Edit(name, change)

    return [set_entries(name) for name in by_name]


# What is measured


def log_probability(token: int, position: int = -1) -> Measure:
    """Measure the log-probability of a token at a position of logits (B, T, V)."""
    return lambda logits: logits[:, position].log_softmax(-1)[:, token]


def text_log_probability(targets: Sequence[int]) -> Measure:
    """Measure the log-probability of all targets, one at each position of logits (B, T, V)."""

    def measure(logits: Tensor) -> Tensor:
        logs = logits.log_softmax(-1)[:, : len(targets)]
        return logs[:, range(len(targets)), list(targets)].sum(-1)

    return measure


def logit_difference(token: int, other: int, position: int = -1) -> Measure:
    """Measure how much higher the logit of a token is than that of another one."""
    return lambda logits: logits[:, position, token] - logits[:, position, other]


def output_score(model: SupervisedModel, output: int, position: int | None = None) -> Measure:
    """Measure the log-probability of a class or label, or a value; `position` is that of a model
    with an output at each position.
    """

    def measure(scores: Tensor) -> Tensor:
        logs = model.output.log_probabilities(scores)
        return logs[:, output] if position is None else logs[:, position, output]

    return measure


# Heads


def head_effects(subject: Subject, measure: Measure) -> dict[str, Tensor]:
    """Return how much is lost of what is measured without each head, (H,) by attention layer.

    A head is switched off by setting its weighted values to zero.
    """
    heads = subject.activations("*.heads")
    if not heads:
        raise UserError(
            f"{type(subject.model).__name__} has no attention heads to switch off; "
            "give a model with attention"
        )
    sites = [(name, head) for name, x in heads.items() for head in range(len(x))]
    changes = [None, *(Change(name, (head,)) for name, head in sites)]
    values = subject.measure(changes, measure)
    losses = iter((values[0] - values[1:]).split([len(x) for x in heads.values()]))
    return {name.removesuffix(".heads"): next(losses) for name in heads}


def head_scores(
    subject: Subject, *, causal: bool, words: bool = True
) -> dict[str, list[HeadScores]]:
    """Return where each head attends in this input, by attention layer; only entropies without
    `words`, whose order has a meaning and which can be equal.
    """
    ids = subject.source.ids.cpu()
    scores = {}
    for name, weights in subject.activations("*attention.weights").items():
        layer = name.removesuffix(".weights")
        if words:
            scores[layer] = score_heads(weights[None].cpu(), ids, causal=causal)
        else:
            bits = entropy_bits(weights).mean(-1).tolist()
            scores[layer] = [HeadScores(entropy, NONE) for entropy in bits]
    return scores


def repeated_sequences(
    tokens: Sequence[int], half: int, rows: int, random: np.random.Generator
) -> Tensor:
    """Return rows (B, 2·half) of tokens drawn at random, then the same again; those of the first
    half cannot be predicted.
    """
    first = np.asarray(tokens)[random.integers(0, len(tokens), (rows, half))]
    return torch.from_numpy(np.concatenate([first, first], axis=1).astype(np.int64))


def repeat_scores(
    model: LanguageModel,
    tokens: Sequence[int],
    half: int,
    *,
    start: int | None = None,
    rows: int = 16,
    seed: int = 0,
) -> dict[str, list[HeadScores]]:
    """Return where each head attends in random sequences of these tokens that are repeated once,
    after a `start` token; an induction head attends to what followed the last occurrence.
    """
    ids = repeated_sequences(tokens, half, rows, np.random.default_rng(seed))
    if start is not None:
        ids = torch.cat([torch.full((rows, 1), start), ids], 1)
    tap = Tap(["*.attention.weights"])
    with evaluating(model):
        model.logits(ids.to(device_of(model)), tap=tap)
    return {
        name.removesuffix(".weights"): score_heads(weights.cpu(), ids, causal=True)
        for name, weights in tap.activations.items()
    }


def copying_scores(model: LanguageModel, ids: Sequence[int]) -> dict[str, Tensor]:
    """Return how much each head raises the logits of the tokens that it attends to above those of
    all tokens, (H,) by attention layer, on average over the text.

    This is its direct effect: what it adds to the last residual stream, through the final norm and
    the head, and through no other layer (Elhage et al. 2021). Of a copying head it is positive.
    """
    subject = Subject.of_ids(model, ids)
    last, end = list(residual_stream(subject).items())[-1]
    activations = subject.activations("*.attention.weights", "*.attention.heads")
    scores: dict[str, Tensor] = {}
    for name in [name for name in activations if name.endswith(".heads")]:
        layer = name.removesuffix(".heads")
        weights, wrote = activations[f"{layer}.weights"], f"{layer}.output"
        removed = [None, *(Change(name, (head,)) for head in range(len(weights)))]
        written = subject.record(removed, wrote)[wrote]  # (1 + H, T, D)
        parts = written[:1] - written[1:]
        logits = torch.cat(
            list(subject.outputs([None, *(Change(last, (), end - x) for x in parts)]))
        )
        raised = logits[:1] - logits[1:]  # (H, T, V)
        raised = (raised - raised.mean(-1, keepdim=True))[..., list(ids)]  # (H, T, S)
        scores[layer] = (raised * weights).sum(-1).mean(-1).double().cpu()
    return scores


@contextmanager
def edited_layers(edits: Mapping[nn.Module, Sequence[Edit]]) -> Iterator[None]:
    """While open, these layers apply edits to their own activations, whoever runs the model: while
    it scores, generates or is evaluated. The names are those within a layer, such as `heads`.
    """
    with ExitStack() as hooks:
        for layer, changes in edits.items():
            hooks.callback(tap_layer(layer, Tap(edits=changes)).remove)
        yield


def tap_layer(layer: nn.Module, tap: Tap) -> Any:
    """Give a layer this tap in each call from now on; return the handle of the hook."""
    signature = inspect.signature(layer.forward)

    def add(module: nn.Module, args: Any, kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.arguments["tap"] = tap
        return call.args, call.kwargs

    return layer.register_forward_pre_hook(add, with_kwargs=True)


HeadPosition = tuple[int, int]  # the number of an attention layer, and of a head there


@contextmanager
def without_heads(layers: Sequence[nn.Module], heads: Sequence[HeadPosition]) -> Iterator[None]:
    """While open, these heads write nothing to the residual stream."""
    removed: dict[nn.Module, list[int]] = defaultdict(list)
    for layer, head in heads:
        removed[layers[layer]].append(head)
    edits = {layer: [Edit.zero("heads", (ALL, numbers))] for layer, numbers in removed.items()}
    with edited_layers(edits):
        yield


# The residual stream


def patch(clean: Subject, corrupt: Subject, measure: Measure, *patterns: str) -> dict[str, Tensor]:
    """Return, for each position of each activation, the share of the difference between two inputs
    that its value in `clean` restores in the run on `corrupt`: 0 changes nothing, 1 all.

    Without patterns it is the residual stream, (T,) after each block; `*.attention.heads` gives
    (H, T) for each layer.
    """
    if clean.source.ids.shape != corrupt.source.ids.shape:
        raise UserError(
            f"both inputs must have equally many tokens, got {clean.tokens} and {corrupt.tokens}"
        )
    values = clean.activations(*patterns) if patterns else residual_stream(clean)
    if not values:
        names = " or ".join(map(repr, patterns))
        raise UserError(f"no activation is called {names}; `regard look --shapes` lists them")
    (best,), (worst,) = (subject.measure([None], measure) for subject in (clean, corrupt))
    if best == worst:
        raise UserError("the model gives both inputs the same result: there is nothing to restore")
    restored = {}
    for name, value in values.items():
        where = list(np.ndindex(*value.shape[:-1]))
        changes = [Change(name, index, value[index]) for index in where]
        shares = (corrupt.measure(changes, measure) - worst) / (best - worst)
        restored[name] = shares.view(value.shape[:-1])
    return restored


def residual_stream(subject: Subject) -> dict[str, Tensor]:
    """Return the residual stream (T, D) after each block."""
    activations = subject.activations("block.*.output")  # the pattern fits parts of blocks, too
    stream = {name: x for name, x in activations.items() if re.fullmatch(BLOCK, name)}
    if not stream:
        raise UserError(
            f"{type(subject.model).__name__} has no residual stream: each layer has a space of its "
            "own, which only the next layer reads. The logit lens and what heads write to the "
            "stream are defined for Transformers and other stacks of blocks"
        )
    return stream


def logit_lens(subject: Subject) -> tuple[list[str], Tensor]:
    """Return the names of the embedding and of each block, and the outputs (L + 1, ...) that the
    model would have if the blocks after it were left out.

    What comes after the last block, be it a norm, a pooling or a head, reads the residual stream of
    each block in turn; the last row is the output of the model.
    """
    stream = residual_stream(subject)
    values, last = subject.activations("embedding") | stream, list(stream)[-1]
    changes = [Change(last, (), value) for value in values.values()]
    return list(values), torch.cat([x.cpu() for x in subject.outputs(changes)])


# Steering


def mean_activation(model: Model, tokenizer: Tokenizer, texts: Sequence[Any], name: str) -> Tensor:
    """Return the mean (D,) of an activation (B, T, D) over all tokens of some texts."""
    parts = []
    for batch in read_records(model, shard_of(texts, tokenizer), tokenizer, [name]):
        if name not in batch.activations:
            raise UserError(f"no activation is called {name!r}; `regard look --shapes` lists them")
        parts.append(batch.activations[name][batch.valid])
    return torch.cat(parts).double().mean(0).float()


def mean_direction(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Any], others: Sequence[Any], name: str
) -> Tensor:
    """Return the direction (D,) from the mean activation of others to that of texts.

    `Edit.add(name, 4 * direction)` steers the model towards the texts.
    """
    one, other = (mean_activation(model, tokenizer, part, name) for part in (texts, others))
    return one - other
