"""Steps through networks over a window of positions: MLPs and causal convolutions."""

from __future__ import annotations

from collections.abc import Sequence
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

WORDS = "the vectors of the window, one after the other, the oldest first"


def window(
    t: Tracer, every: Tensor, distances: Sequence[int], own: Stage | None, *, shown: bool = False
) -> Stage:
    """Add the vectors (T, D) of the positions at these distances before the chosen one, joined;
    `own` is that of the position itself if it has stages.
    """
    vectors = []
    for distance in distances:
        at = t.position - distance
        if own is not None and not distance:
            vectors.append(own)
            continue
        name = f"Position {at + 1}: {visible(t.tokens[at])}" if at >= 0 else "Before the text"
        values = every[at] if at >= 0 else torch.zeros_like(every[0])
        vectors.append(t.given(name, values, shown=shown))
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
