"""Steps through the parts of a block that see one position alone: norms, position codes,
embeddings and feed-forward networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from regard.layers.convolution import Gated
from regard.layers.embeddings import N_COORDINATES, PatchEmbedding, PointEmbedding, patch_positions
from regard.layers.embeddings import Inputs as Inputs
from regard.layers.feedforward import FeedForward, SwiGLU
from regard.layers.norms import RMSNorm
from regard.layers.positions import (
    ALiBi,
    Learned,
    Positions,
    Rotary,
    RotaryGrid,
    T5Bias,
    Where,
    as_tensor,
)
from regard.layers.series import SeriesEmbedding
from regard.look.page.document import visible
from regard.look.steps.operations import (
    Add,
    Apply,
    Dot,
    Gather,
    Largest,
    LayerNormalization,
    Multiply,
    Part,
    RootMeanSquareNorm,
    Standardize,
)
from regard.look.steps.stages import Names, Next, Stage, Tracer, Ways, chain

NORMS = Ways()  # (tracer, norm, title) -> steps
POSITION_CODES = Ways()  # (tracer, positions, where, embedded) -> steps
EMBEDDINGS = Ways()  # (tracer, embedding, tokens) -> a first stage, steps
POSITION_NAMES = Ways()  # (embedding, ids, tokenizer) -> a name for each position
FEEDFORWARDS = Ways()  # (tracer, network, x) -> what it adds
Parts = list[Next]


def norm_steps(t: Tracer, norm: nn.Module, title: str) -> Parts:
    """Return the steps of a norm; none for the identity."""
    way = NORMS.find(norm)
    steps: Parts = [] if way is None else way(t, norm, title)
    return steps


@NORMS.register(nn.RMSNorm, RMSNorm)
def rms_norm(t: Tracer, norm: nn.RMSNorm, title: str) -> Parts:
    """x / sqrt(mean(x²) + ε) · gain."""
    gain, formula = t.given(f"gain of “{title}”", norm.weight), "yᵢ = gᵢ xᵢ / √(mean(x²) + ε)"
    how = RootMeanSquareNorm(float(norm.eps or 0.0))
    return [Next(title, how, (gain,), formula, {"lecture": "norm"})]


@NORMS.register(nn.LayerNorm)
def layer_norm(t: Tracer, norm: nn.LayerNorm, title: str) -> Parts:
    """(x − mean) / sqrt(variance + ε) · gain + bias."""
    inputs = [t.given(f"gain of “{title}”", norm.weight)]
    formula = "yᵢ = gᵢ (xᵢ − mean) / √(variance + ε)"
    if norm.bias is not None:
        inputs.append(t.given(f"bias of “{title}”", norm.bias))
        formula += " + bᵢ"
    how = LayerNormalization(float(norm.eps))
    return [Next(title, how, tuple(inputs), formula, {"lecture": "norm"})]


@POSITION_CODES.register(Positions)
def position_code(t: Tracer, positions: Positions, where: Where, embedded: Tensor) -> Parts:
    """Return what a scheme adds, as one vector that is given."""
    code = positions.add(embedded, where, embedded.size(1)) - embedded
    words = f"code of position {t.position + 1} ({type(positions).__name__})"
    return added(t.given(words, code[0, t.position], shown=True))


@POSITION_CODES.register(Rotary, RotaryGrid, T5Bias, ALiBi)
def no_code(t: Tracer, positions: Positions, where: Where, embedded: Tensor) -> Parts:
    """Return nothing: these act within attention."""
    return []


@POSITION_CODES.register(Learned)
def learned_code(t: Tracer, positions: Learned, where: Where, embedded: Tensor) -> Parts:
    """Return the row of the table that belongs to the position."""
    index = as_tensor(where, embedded.device)
    row = int((index if index.dim() == 1 else index[0])[t.position])
    table = t.given("position codes", positions.embedding.weight)
    formula = "the row of the table that belongs to this position"
    return added(t.step("Code of the position", Gather(row), table, formula=formula))


def added(code: Stage) -> Parts:
    return [Next("Position added", Add(), (code,), "xᵢ + pᵢ", {"lecture": "position"})]


@EMBEDDINGS.register(nn.Embedding)
def token_embedding(t: Tracer, embedding: nn.Embedding, ids: Tensor) -> tuple[Stage, Parts]:
    """Return the row of a table that belongs to the token."""
    row = int(ids[0, t.position])
    words = f"the number of “{visible(t.tokens[t.position])}” in the vocabulary, from 0"
    numbers = ids_given(t, ids[0])
    t.step("Id", Part(t.position, t.position + 1), numbers, formula=words)
    table = t.given("embedding table", embedding.weight)
    formula = f"row {row} of the table: the vector of this token"
    return table, [Next("Embedding", Gather(row), (), formula, {"lecture": "embedding"})]


def ids_given(t: Tracer, ids: Tensor | Sequence[int]) -> Stage:
    """Add the numbers of the tokens."""
    formula = "the numbers of all tokens that are read, <S> among them"
    return t.given("Ids", ids, shown=True, formula=formula, columns=t.tokens, lecture="id")


@EMBEDDINGS.register(nn.Linear)
def linear_embedding(t: Tracer, layer: nn.Linear, patches: Tensor) -> tuple[Stage, Parts]:
    """Return a linear map of a patch of steps (1, N, P)."""
    words = "the steps of this patch, normalized"
    steps = t.given("Steps", patches[0, t.position], shown=True, formula=words)
    return steps, [projection(t, "Embedding", layer, "xᵢ = Σₖ stepₖ Wᵢₖ + bᵢ")]


def projection(t: Tracer, title: str, layer: Any, formula: str) -> Next:
    """Return a linear map as a step of a chain."""
    inputs = [t.given(f"matrix of “{title}”", layer.weight)]
    if layer.bias is not None:
        inputs.append(t.given(f"bias of “{title}”", layer.bias))
    return Next(title, Dot(), tuple(inputs), formula)


def marker(t: Tracer, vector: Tensor) -> tuple[Stage, Parts]:
    """Return the learned vector of `<S>`, which has no content."""
    table = t.given("vector of <S>", vector[None])
    return table, [Next("Embedding", Gather(0), (), "a learned vector, the same for every input")]


@EMBEDDINGS.register(PatchEmbedding)
def patch_embedding(t: Tracer, embedding: PatchEmbedding, ids: Tensor) -> tuple[Stage, Parts]:
    """Return a linear map of the standardized pixels of a patch."""
    if t.position == 0:
        return marker(t, embedding.marker)
    pixels = ids[0, t.position, N_COORDINATES:]
    start = t.given("Pixels", pixels, shown=True, formula="bytes, channel by channel, row by row")
    mean, deviation = t.given("mean", embedding.mean), t.given("deviation", embedding.deviation)
    formula = "(pixelᵢ − mean) / deviation of the channel"
    return start, [
        Next("Standardized pixels", Standardize(), (mean, deviation), formula),
        projection(t, "Embedding", embedding.project, "xᵢ = Σₖ pixelₖ Wᵢₖ + bᵢ"),
    ]


@EMBEDDINGS.register(PointEmbedding)
def point_embedding(t: Tracer, embedding: PointEmbedding, ids: Tensor) -> tuple[Stage, Parts]:
    """Return a small network of every neighbor of a point, and the maximum over neighbors."""
    if t.position == 0:
        return marker(t, embedding.marker)
    token = ids[:, t.position : t.position + 1].to(embedding.marker.dtype)
    exists = embedding.split(token)[1][0, 0]
    features = embedding.features(token)[0, 0]
    features = features if embedding.group_size == 1 else features[exists]
    count = len(features)
    names = [f"neighbor {i + 1}" for i in range(count)]
    words = "of every neighbor: what is known of it, its distances and offsets"
    rows = {"rows": names}
    start = t.given("Group of points", features, shown=True, formula=words, rows=names)
    first = projection(t, "First layer, of each neighbor", embedding.first, "Σₖ fₖ Wᵢₖ + bᵢ")
    second = projection(t, "Second layer, of each neighbor", embedding.second, "Σₖ hₖ Wᵢₖ + bᵢ")
    return start, [
        Next(first.title, first.how, first.inputs, first.formula, dict(rows)),
        Next("Its GELU", Apply("gelu_exact"), (), "x Φ(x)", dict(rows)),
        Next(second.title, second.how, second.inputs, second.formula, dict(rows)),
        Next("Largest over the group", Largest(), (), "yᵢ = maxⱼ hⱼᵢ (PointNet)"),
        Next("GELU", Apply("gelu_exact"), (), "x Φ(x)"),
        projection(t, "Embedding", embedding.project, "xᵢ = Σₖ yₖ Wᵢₖ + bᵢ"),
    ]


@EMBEDDINGS.register(SeriesEmbedding)
def series_embedding(t: Tracer, embedding: SeriesEmbedding, ids: Tensor) -> tuple[Stage, Parts]:
    """Return a linear map of the values of a patch of steps and of which are known."""
    if t.position == 0:
        return marker(t, embedding.marker)
    tokens = ids[:, 1:].to(embedding.marker.dtype)
    values = tokens[..., 1:]
    known = values.isfinite() & (tokens[..., :1] > 0)
    x = torch.cat((torch.where(known, values, 0.0), known.to(values.dtype)), -1)
    if embedding.reach:
        padded = nn.functional.pad(x, (0, 0, embedding.reach, embedding.reach))
        x = padded.unfold(1, 2 * embedding.reach + 1, 1).flatten(2)
    words = "the values of the patch, standardized (0 where missing), then 1 for each known value"
    start = t.given("Steps", x[0, t.position - 1], shown=True, formula=words)
    return start, [projection(t, "Embedding", embedding.project, "xᵢ = Σₖ stepₖ Wᵢₖ + bᵢ")]


@POSITION_NAMES.register(nn.Module)
def token_names(embedding: nn.Module, ids: Tensor, tokenizer: Any) -> Names:
    """Show the tokens."""
    return [tokenizer.text(int(i)) for i in ids[0].tolist()]


@POSITION_NAMES.register(PatchEmbedding)
def patch_names(embedding: nn.Module, ids: Tensor, tokenizer: Any) -> Names:
    """Name patches by row and column."""
    places = patch_positions(Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64)))[0]
    return ["<S>", *(f"row {r}, column {c}" for r, c in places[1:].tolist())]


@POSITION_NAMES.register(PointEmbedding)
def point_names(embedding: PointEmbedding, ids: Tensor, tokenizer: Any) -> Names:
    what = "group" if embedding.group_size > 1 else "point"
    return ["<S>", *(f"{what} {i}" for i in range(1, ids.size(1)))]


@POSITION_NAMES.register(SeriesEmbedding)
def series_names(embedding: SeriesEmbedding, ids: Tensor, tokenizer: Any) -> Names:
    return ["<S>", *(f"patch {i}" for i in range(1, ids.size(1)))]


@FEEDFORWARDS.register(FeedForward)
def feed_forward(t: Tracer, network: FeedForward, x: Stage) -> Stage:
    """down(activation(up(x)))."""
    wide = t.linear("Wide layer", network.up, x, "hᵢ = Σₖ xₖ Wᵢₖ", lecture="feedforward")
    measured = t.tapped("hidden", t.position)
    hidden = t.step(
        "Activation",
        Apply(network.name),
        wide,
        formula=f"hᵢ = {network.name}(hᵢ)",
        measured=measured,
    )
    return narrow(t, network.down, hidden)


def gate_and_values(t: Tracer, network: Gated | SwiGLU, x: Stage) -> tuple[Stage, Stage]:
    """Trace the halves of one projection: the gates, and the values that they let through."""
    both = t.linear("Gate and values", network.gate_up, x, "(g, u)ᵢ = Σₖ xₖ Wᵢₖ")
    width = network.down.in_features
    gate = t.step("Gate", Part(0, width), both, formula=f"entries 1 to {width}")
    up = t.step("Values", Part(width, 2 * width), both, formula="the other half")
    return gate, up


@FEEDFORWARDS.register(Gated)
def gated(t: Tracer, network: Gated, x: Stage) -> Stage:
    """down(tanh(filter(x)) · sigmoid(gate(x)))."""
    gate, up = gate_and_values(t, network, x)
    opened = t.step("Gate, opened", Apply("sigmoid"), gate, formula="σ(gᵢ)")
    squashed = t.step("Values, squashed", Apply("tanh"), up, formula="tanh uᵢ")
    hidden = t.step("Gated values", Multiply(), opened, squashed, formula="σ(gᵢ) tanh uᵢ")
    return narrow(t, network.down, hidden)


@FEEDFORWARDS.register(SwiGLU)
def swiglu(t: Tracer, network: SwiGLU, x: Stage) -> Stage:
    """down(silu(gate(x)) · up(x))."""
    gate, up = gate_and_values(t, network, x)
    opened = t.step("Gate, opened", Apply("silu"), gate, formula="silu(gᵢ) = gᵢ σ(gᵢ)")
    measured = t.tapped("hidden", t.position)
    formula = "hᵢ = silu(gᵢ) uᵢ"
    hidden = t.step("Gated values", Multiply(), opened, up, formula=formula, measured=measured)
    return narrow(t, network.down, hidden)


def narrow(t: Tracer, down: nn.Linear, hidden: Stage) -> Stage:
    """Add the map back to the width of the model."""
    measured = t.tapped("output", t.position)
    return t.linear(
        "Back to the width of the model", down, hidden, "yᵢ = Σₖ hₖ Wᵢₖ", measured=measured
    )


def feedforward_steps(t: Tracer, network: nn.Module, x: Stage) -> Stage:
    """Add the stages of a feed-forward network, or its output alone."""
    way = FEEDFORWARDS.find(network)
    if way is not None:
        stage: Stage = way(t, network, x)
        return stage
    values = t.tapped("output", t.position)
    return t.opaque("Output", x.values if values is None else values, type(network).__name__)


def embed_steps(
    t: Tracer, embedding: nn.Module, tokens: Tensor, more: Parts, measured: Any
) -> Stage:
    """Add the embedding of the token at the position, followed by more steps."""
    way = EMBEDDINGS.find(embedding)
    if way is None:
        words = f"computed by {type(embedding).__name__}"
        start, steps = t.opaque("Embedding", embedding(tokens)[0, t.position], words), []
    else:
        start, steps = way(t, embedding, tokens)
    return chain(t, start, [*steps, *more], measured)
