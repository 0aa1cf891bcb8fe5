"""Steps through Transformers: decoders (Hyena's too), encoders of tokens, patches, points and
series, and encoder–decoders.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.layers.block import Block
from regard.layers.embeddings import Inputs
from regard.layers.hyena import Hyena
from regard.layers.positions import Where, as_tensor
from regard.look.steps.attention import MIXERS, Queries, cross_attention
from regard.look.steps.operations import Add, Apply, Scale
from regard.look.steps.outputs import next_token, pooled_classes
from regard.look.steps.parts import (
    POSITION_CODES,
    embed_steps,
    feedforward_steps,
    norm_steps,
    projection,
)
from regard.look.steps.stages import Names, Next, Stage, Tracer, Ways, chain
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.decoder import Decoder
from regard.models.encoder import Encoder, EncoderModel, MaskedLM
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.series_classifiers import MaskedSeries
from regard.models.transformer import TransformerStack

TITLES: dict[type, str] = {Hyena: "Hyena"}  # of mixers that are not attention
EXTRAS = Ways()  # (tracer, stack, ids, positions) -> steps that end the embedding


@register_steps(Decoder)
def decoder_steps(subject: StepSubject) -> None:
    """Follow the last token that a decoder reads to the distribution of the next one."""
    model, ids = cast(Decoder, subject.model), subject.tensors["ids"]
    names = subject.token_names(ids)
    t = subject.start(names)
    x = run_stack(t, model, ids, None, names)
    next_token(t, subject, model.head, x)


@register_steps(EncoderDecoder)
def encoder_decoder_steps(subject: StepSubject) -> None:
    """Follow a token of the target, which attends to the source in every block."""
    model = cast(EncoderDecoder, subject.model)
    source, ids = subject.tensors["source"], subject.tensors["ids"]
    names, read = subject.token_names(ids), subject.source_names(model.encoder.embedding, source)
    t = subject.start(names)
    with t.level("Source") as inner:
        words = f"what the encoder makes of the {len(read)} positions of the source"
        encoded = t.activations["encoder.norm"]
        z = inner.given("Encoded source", encoded, shown=True, formula=words, rows=read)
    x = run_stack(t, model.decoder, ids, None, names, source=z)
    next_token(t, subject, model.head, x)


def run_stack(
    t: Tracer,
    stack: TransformerStack,
    ids: Tensor,
    segments: Tensor | None,
    names: Names,
    *,
    source: Stage | None = None,
    where: Where | None = None,
) -> Stage:
    """Add the stages from the input to what the head reads; `source` is what cross-attention
    reads.
    """
    context, where = stack.make_context(ids, segments, explicit=True, where=where)
    x = stack_input(t, stack, ids, where)
    queries = Queries(names, context, stack.causal)
    for i, block in enumerate(stack.blocks):
        with t.level(f"Block {i + 1}", f"block.{i}") as inner:
            x = block_steps(inner, cast(Block, block), x, queries, source)
    with t.level("Output") as inner:
        return chain(
            inner, x, norm_steps(inner, stack.norm, "Last norm"), t.tapped("norm", t.position)
        )


def stack_input(t: Tracer, stack: TransformerStack, ids: Tensor, where: Where) -> Stage:
    """Add the embedding, its scale, and the code of the position."""
    embedded, more = stack.embedding(ids), list[Next]()
    with t.level("Input") as inner:
        if stack.config.scale_embedding:
            width = stack.config.d_model
            embedded = embedded * width**0.5
            scale = Scale(width**0.5, f"√{width}")
            more.append(Next("Embedding, scaled", scale, (), "xᵢ √D, D the width of the model"))
        way = POSITION_CODES.find(stack.positions)
        assert way is not None
        more += way(inner, stack.positions, where, embedded)
        way = EXTRAS.find(stack)
        more += way(inner, stack, ids, where) if way else []
        measured = t.tapped("embedding", t.position)
        return embed_steps(inner, stack.embedding, ids, more, measured)


@EXTRAS.register(Encoder)
def sentence_steps(t: Tracer, encoder: Encoder, ids: Tensor, where: Where) -> list[Next]:
    """Return the vector of the sentence, and the norm of embeddings, of encoders that have them."""
    steps = []
    if encoder.types is not None:
        index = as_tensor(where, ids.device).expand(ids.shape)
        row = int(encoder.sentence_types(ids, index)[0, t.position])
        code = t.given(f"vector of sentence {row + 1}", encoder.types.weight[row], shown=True)
        steps.append(Next("Sentence added", Add(), (code,), "xᵢ + sᵢ"))
    if encoder.embedding_norm is not None:
        steps += norm_steps(t, encoder.embedding_norm, "Norm of the embedding")
    return steps


def block_steps(t: Tracer, block: Block, x: Stage, queries: Queries, source: Stage | None) -> Stage:
    """Add the stages of one block: mixer, cross-attention if any, feed-forward network."""
    title = TITLES.get(type(block.mixer), "Attention")

    def mix(inner: Tracer, y: Stage) -> Stage:
        way = MIXERS.find(block.mixer)
        assert way is not None
        return cast(Stage, way(inner, block.mixer, y, queries))

    with t.level(title, "attention") as inner:
        x = residual(inner, block.mixer_norm, block.post_norm, x, mix, "residual", inner)
    if block.cross is not None and source is not None:
        cross, encoded = block.cross, source
        with t.level("Cross-attention", "cross") as inner:
            x = residual(
                inner,
                cast(nn.Module, block.cross_norm),
                block.post_norm,
                x,
                lambda inside, y: cross_attention(inside, cross, y, encoded),
                "residual",
                inner,
            )
    with t.level("Feed-forward", "feedforward") as inner:
        return residual(
            inner,
            block.feedforward_norm,
            block.post_norm,
            x,
            lambda inside, y: feedforward_steps(inside, block.feedforward, y),
            "output",
            t,
        )


def residual(
    t: Tracer, norm: nn.Module, post: bool, x: Stage, part: Any, name: str, outer: Tracer
) -> Stage:
    """Add one part with its norm and its residual connection, which has the activation `name`."""
    measured = outer.tapped(name, t.position)
    steps = norm_steps(t, norm, "Norm")
    if post:
        added = part(t, x)
        both = t.step("Residual", Add(), x, added, formula="xᵢ + yᵢ", lecture="residual")
        return chain(t, both, steps, measured)
    added = part(t, chain(t, x, steps, t.tapped("norm", t.position)))
    words = {"formula": "xᵢ + yᵢ", "lecture": "residual"}
    return t.step("Residual", Add(), x, added, measured=measured, **words)


@register_steps(EncoderModel)
def encoder_steps(subject: StepSubject) -> None:
    """Follow one position through an encoder, into the pooled vector and the scores."""
    model, ids = cast(EncoderModel, subject.model), subject.tensors["ids"]
    names = subject.source_names(model.encoder.embedding, ids)
    t = subject.start(names)
    x = encode(t, model.encoder, ids, names)
    after = [] if model.pooler is None else [model.pooler]
    pooled_classes(t, subject, x, t.activations["norm"], names, after)


def encode(t: Tracer, encoder: Encoder, ids: Tensor, names: Names) -> Stage:
    """Add the stages of an encoder."""
    segments = torch.ones(ids.shape[:2], dtype=torch.int64)
    where = encoder.embedding.where(Inputs(ids, segments))
    return run_stack(t, encoder, ids, segments, names, where=where)


class OutputMatrix(NamedTuple):
    """The embedding as the output layer."""

    weight: Tensor
    bias: Tensor | None


@register_steps(MaskedLM)
def masked_steps(subject: StepSubject) -> None:
    """Follow one position to the distribution of the token there."""
    model, ids = cast(MaskedLM, subject.model), subject.tensors["ids"]
    names = subject.token_names(ids)
    t = subject.start(names)
    x = encode(t, model.encoder, ids, names)
    with t.level("Output") as inner:
        if model.dense is not None and model.norm is not None:
            layer = projection(inner, "Dense layer", model.dense, "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ")
            steps = [layer, Next("Activation", Apply("gelu_exact"), (), "x Φ(x)")]
            x = chain(inner, x, [*steps, *norm_steps(inner, model.norm, "Norm")])
    head = OutputMatrix(model.encoder.embedding.weight, model.bias)
    next_token(t, subject, head, x, sampled=False)


@register_steps(MaskedSeries)
def masked_series_steps(subject: StepSubject) -> None:
    """Follow one patch of a series to the values that it should have."""
    model, ids = cast(MaskedSeries, subject.model), subject.tensors["ids"]
    t = subject.start(subject.source_names(model.encoder.embedding, ids))
    x = encode(t, model.encoder, ids, t.tokens)
    steps, columns = range(model.config.patch), range(model.config.n_channels)
    names = [f"step {i + 1}, column {j + 1}" for i in steps for j in columns]
    with t.level("Output") as inner:
        formula, measured = "ŷᵢ = Σₖ xₖ Wᵢₖ + bᵢ, standardized", subject.output[0, t.position]
        inner.linear(
            "Values of the patch", model.head, x, formula, measured=measured, columns=names
        )
