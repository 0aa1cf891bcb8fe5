"""Steps through Transformers: decoders (Hyena's too), encoders of tokens, patches, points and
series, encoder–decoders, and forecasters over patches.
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
from regard.look.steps.operations import Add, Apply, Largest, LinearAt, Mix, Scale
from regard.look.steps.outputs import class_steps, next_token
from regard.look.steps.parts import (
    POSITION_CODES,
    embed_steps,
    feedforward_steps,
    norm_steps,
    projection,
)
from regard.look.steps.stages import Names, Next, Stage, Tracer, Ways, chain
from regard.look.steps.subject import Subject, register_steps
from regard.models.decoder import Decoder
from regard.models.encoder import Encoder, EncoderModel, MaskedLM
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.patch_forecaster import DecoderForecaster, PatchForecaster
from regard.models.transformer import TransformerStack

TITLES: dict[type, str] = {Hyena: "Hyena"}  # of mixers that are not attention
EXTRAS = Ways()  # (tracer, stack, ids, positions) -> steps that end the embedding
READOUTS = Ways()  # (tracer, model, x, encoded) -> what the head of a forecaster reads


@register_steps(Decoder)
def decoder_steps(subject: Subject) -> None:
    """Follow the last token that a decoder reads to the distribution of the next one."""
    model, ids = cast(Decoder, subject.model), subject.tensors["ids"]
    names = subject.token_names(ids)
    t = subject.start(names)
    x = run_stack(t, model, ids, None, names)
    next_token(t, subject, model.head, x)


@register_steps(EncoderDecoder)
def encoder_decoder_steps(subject: Subject) -> None:
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
def encoder_steps(subject: Subject) -> None:
    """Follow one position through an encoder, into the pooled vector and the scores."""
    model, ids = cast(EncoderModel, subject.model), subject.tensors["ids"]
    names = subject.source_names(model.encoder.embedding, ids)
    t = subject.start(names)
    x = encode(t, model.encoder, ids, names)
    positional = model.output.positional
    with t.level("Output") as inner:
        if not positional:
            x = pool_steps(inner, model, subject, names)
        if model.pooler is not None and not positional:
            layer = projection(inner, "Pooler", model.pooler, "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ")
            x = chain(inner, x, [layer, Next("tanh", Apply("tanh"), (), "tanh(yᵢ)")])
    class_steps(t, subject, model, x)


def encode(t: Tracer, encoder: Encoder, ids: Tensor, names: Names) -> Stage:
    """Add the stages of an encoder."""
    segments = torch.ones(ids.shape[:2], dtype=torch.int64)
    where = encoder.embedding.where(Inputs(ids, segments))
    return run_stack(t, encoder, ids, segments, names, where=where)


def pool_steps(t: Tracer, model: EncoderModel, subject: Subject, names: Names) -> Stage:
    """Add the vector of the whole sequence, made of those of all positions."""
    vectors = t.given(
        "vectors of all positions", t.activations["norm"], rows=names, mark=t.position
    )
    if model.pool.name in MAXIMUM:
        return t.step("Pooled", Largest(), vectors, formula="yᵢ = maxⱼ xⱼᵢ over the positions")
    values = t.activations["pooling.weights"]
    title = f"Weights of the positions ({model.pool.name})"
    weights = t.given(title, values, shown=True, columns=names, mark=t.position)
    return t.step("Pooled", Mix(), weights, vectors, formula="yᵢ = Σⱼ wⱼ xⱼᵢ")


MAXIMUM = ("max",)


class OutputMatrix(NamedTuple):
    """The embedding as the output layer."""

    weight: Tensor
    bias: Tensor | None


@register_steps(MaskedLM)
def masked_steps(subject: Subject) -> None:
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


@register_steps(PatchForecaster)
def forecaster_steps(subject: Subject) -> None:
    """Follow a patch of the first channel through a stack, into the forecast."""
    model = cast(PatchForecaster, subject.model)
    past = subject.tensors["past"]
    values, mean, deviation = model.window_norm(model.covariates.subtract(past))
    patches = model.cut(values)[:1]
    c, count = model.config, patches.size(1)
    names = [f"patch {i + 1}" for i in range(count)]
    t = subject.start(names)
    t.trace.notes.append("The first channel is followed.")
    x = run_stack(t, model, patches, None, names)
    with t.level("Output") as inner:
        encoded = t.activations["norm"]
        way = READOUTS.find(model)
        assert way is not None
        x = way(inner, x, encoded)
        steps = [f"step {i + 1}" for i in range(c.horizon)]
        if c.n_outputs > 1:
            steps = [f"{s}, level {level:g}" for s in steps for level in c.quantiles]
        formula = "yᵢ = Σₖ xₖ Wᵢₖ + bᵢ"
        y = inner.linear("Forecast, normalized", model.head, x, formula, columns=steps)
        how = LinearAt(float(deviation[0, 0, 0]), float(mean[0, 0, 0]))
        measured = None if model.covariates.n_known else subject.output[0, :, 0].flatten()
        formula = "yᵢ · deviation + mean of the window"
        inner.step("Forecast", how, y, formula=formula, columns=steps, measured=measured)


@READOUTS.register(PatchForecaster)
def all_patches(t: Tracer, x: Stage, encoded: Tensor) -> Stage:
    """Return the vectors of all patches, one after the other."""
    words = "the vectors of all patches, one after the other"
    return t.given("All patches", encoded.flatten(), formula=words, shown=True)


@READOUTS.register(DecoderForecaster)
def last_patch(t: Tracer, x: Stage, encoded: Tensor) -> Stage:
    """Return the vector of the last patch, which has read all others."""
    if t.position == len(encoded) - 1:
        return x
    return t.given("Last patch", encoded[-1], formula="it has read all others", shown=True)
