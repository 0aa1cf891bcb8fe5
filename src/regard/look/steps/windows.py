"""Steps through networks over a window of positions: MLPs and causal convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor

from regard.layers.convolution import ConvolutionBlock
from regard.look.page.document import visible
from regard.look.steps.operations import Add, Apply, Join
from regard.look.steps.outputs import next_token
from regard.look.steps.parts import embed_steps, feedforward_steps, norm_steps
from regard.look.steps.stages import Stage, Tracer, chain
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.convolution import CNN
from regard.models.mlp import MLP

WORDS = "the vectors of the window, one after the other, the first ones first"


def window(
    t: Tracer, every: Tensor, distances: Sequence[int], own: Stage | None, *, shown: bool = False
) -> Stage:
    """Add the vectors (T, D) of the positions at these distances before the chosen one, joined;
    `own` is that of the position itself if it has stages.
    """
    places = [t.position - distance for distance in distances]
    known = {} if own is None else {t.position: own}
    return neighbors(t, every, places, known, position_name, shown=shown)


def position_name(t: Tracer, at: int) -> str:
    """Name a position by its token."""
    inside = 0 <= at < len(t.tokens)
    return f"Position {at + 1}: {visible(t.tokens[at])}" if inside else outside(at)


def outside(at: int) -> str:
    """Name what is beyond the ends of the input."""
    return "Before the text" if at < 0 else "After the text"


def neighbors(
    t: Tracer,
    every: Tensor,
    places: Sequence[int],
    known: dict[int, Stage],
    name: Callable[[Tracer, int], str],
    *,
    shown: bool = False,
) -> Stage:
    """Add the vectors (T, D) at some places, joined: those that are `known` have stages, others are
    given, and beyond the ends there are zeros.
    """
    vectors = []
    for at in places:
        if at in known:
            vectors.append(known[at])
            continue
        values = every[at] if 0 <= at < len(every) else torch.zeros_like(every[0])
        vectors.append(t.given(name(t, at), values, shown=shown))
    return t.step("Window", Join(), *vectors, formula=WORDS)


@register_steps(CNN)
def cnn_steps(subject: StepSubject) -> None:
    """Follow a token through convolutions, each a network over a window of the layer before."""
    model, ids = cast(CNN, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    every = t.activations["embedding"]
    with t.level("Input") as inner:
        x = embed_steps(inner, model.embedding, ids, [], every[t.position])
    for i, block in enumerate(model.blocks):
        with t.level(f"Block {i + 1}", f"block.{i}") as inner:
            x = convolution_steps(inner, cast(ConvolutionBlock, block), x, every)
        every = t.activations[f"block.{i}.output"]
    with t.level("Output") as inner:
        x = chain(inner, x, norm_steps(inner, model.norm, "Last norm"))
    next_token(t, subject, model.head, x)


def convolution_steps(t: Tracer, block: ConvolutionBlock, x: Stage, every: Tensor) -> Stage:
    """Add one dilated convolution with its norm and its residual connection."""
    normed = chain(t, x, norm_steps(t, block.norm, "Norm"))
    joined = window(t, block.norm(every), block.past.distances, normed)
    with t.level("Network", "feedforward") as inner:
        y = feedforward_steps(inner, block.feedforward, joined)
    measured = t.tapped("output", t.position)
    return t.step("Residual", Add(), x, y, formula="xᵢ + yᵢ", lecture="residual", measured=measured)


@register_steps(MLP)
def mlp_steps(subject: StepSubject) -> None:
    """Follow the window before the next token."""
    model, ids = cast(MLP, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    distances = range(int(model.config.window) - 1, -1, -1)
    with t.level("Input") as inner:
        x = window(inner, model.embedding(ids)[0], distances, None, shown=True)
    for i, layer in enumerate(model.layers):
        with t.level(f"Layer {i + 1}", f"layer.{i}") as inner:
            x = inner.linear("Sums", layer, x, "Σₖ xₖ Wᵢₖ + bᵢ")
            how = Apply(model.config.activation)
            measured = inner.tapped("output", t.position)
            x = inner.step("Activation", how, x, formula="f(xᵢ)", measured=measured)
    next_token(t, subject, model.head, x)
