"""Steps through what mixes positions: attention to the same sequence or to a source, with every
score, and Hyena's long convolutions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.layers.attention import (
    Additive,
    AttentionContext,
    Bilinear,
    Cosine,
    CrossAttention,
    Gaussian,
    SelfAttention,
    dot,
    negative_distance,
    negative_log_distance,
    scaled_dot,
)
from regard.layers.convolution import long_convolution
from regard.layers.hyena import SHORT, Hyena
from regard.layers.linear_attention import LinearAttention
from regard.look.steps.operations import (
    Add,
    Apply,
    Columns,
    Dot,
    Join,
    MaskOut,
    Mix,
    Multiply,
    Operation,
    Part,
    Rotate,
    RowDots,
    Scale,
    Softmax,
    SquaredDistance,
    Unit,
)
from regard.look.steps.parts import norm_steps
from regard.look.steps.stages import Names, Next, Stage, Tracer, Ways, chain

Parts = list[Next]
MIXERS = Ways()  # (tracer, mixer, x, what the queries know, names) -> what it adds


@dataclass(frozen=True, eq=False)
class Queries:
    """What a stack knows of its T positions: the names, the context of its layers, and whether it
    looks at the past alone.
    """

    names: Names
    context: AttentionContext
    causal: bool

    def bias(self, head: int, position: int) -> Tensor | None:
        """Return what is added to the scores of a head, (S,)."""
        both = self.context.bias
        if both is None and self.context.windowed is not None:
            both = self.context.windowed.bias
        return None if both is None else first_row(both, 3)[head, position]

    def rotation(self, position: int) -> tuple[Tensor, Tensor] | None:
        """Return cosines and signed sines (K,) of a position."""
        if self.context.rotation is None:
            return None
        cosine, sine = (first_row(x, 3)[position, 0] for x in self.context.rotation)
        return cosine, sine


def first_row(x: Tensor, dimensions: int) -> Tensor:
    """Return the first row of a batch; what all rows share is returned as it is."""
    return x[0] if x.dim() > dimensions else x


@MIXERS.register(nn.Module, LinearAttention)
def opaque_mixer(t: Tracer, mixer: nn.Module, x: Stage, queries: Queries) -> Stage:
    """Show what a mixer adds, where nothing is known of how."""
    words = f"computed by {type(mixer).__name__}; its steps are not shown"
    values = t.tapped("output", t.position)
    return t.opaque("Output", x.values if values is None else values, words)


@MIXERS.register(SelfAttention)
def self_attention(t: Tracer, attention: SelfAttention, x: Stage, queries: Queries) -> Stage:
    """Add the stages of every head, and what they add to the residual stream."""
    joint = x
    if attention.qkv is not None:
        joint = t.linear(
            "Queries, keys and values",
            attention.qkv,
            x,
            "(q, k, v)ᵢ = Σₖ xₖ Wᵢₖ: of all heads, in one product",
            lecture="qkv",
        )
    heads = []
    for head in range(attention.n_heads):
        with t.level(f"Head {head + 1}") as inner:
            heads.append(one_head(inner, attention, joint, head, queries))
    return close_heads(t, attention.out, heads)


def close_heads(t: Tracer, out: nn.Module, heads: list[Stage]) -> Stage:
    """Join the heads and project them."""
    measured = t.tapped("output", t.position)
    if not isinstance(out, nn.Linear):
        words = "the heads one after the other; no projection follows"
        return t.step("Heads joined", Join(), *heads, formula=words, measured=measured)
    joined = t.step("Heads joined", Join(), *heads, formula="the heads one after the other")
    formula = "yᵢ = Σₖ headₖ Wᵢₖ"
    return t.linear("Output projection", out, joined, formula, measured=measured, lecture="out")


def one_head(
    t: Tracer, attention: SelfAttention, joint: Stage, head: int, queries: Queries
) -> Stage:
    """Add the stages of one head: query, key, value, scores, weights, weighted values."""
    n, g, k = attention.n_heads, attention.n_kv_heads, attention.d_head
    group = head // (n // g)
    shared = "" if n == g else f", which {n // g} heads share"
    first = [head, n + group, n + g + group] if attention.qkv is not None else [head] * 3
    parts: dict[str, Stage] = {}
    for name, title, number, norm in (
        ("q", "Query", first[0], attention.q_norm),
        ("k", "Key", first[1], attention.k_norm),
        ("v", "Value", first[2], None),
    ):
        where = head if name == "q" else group
        cut = f"entries {number * k + 1} to {(number + 1) * k}, those of this head{shared}"
        steps = [Next(title, Part(number * k, (number + 1) * k), (), cut, {"lecture": name})]
        if norm is not None:
            steps += norm_steps(t, norm, f"{title}, normalized")
        if name != "v":
            steps += rotation_steps(t, queries, f"{title}, rotated")
        parts[name] = chain(t, joint, steps, t.tapped(name, where, t.position))
    keys = t.given("keys of all positions", others(t, "k", group), rows=queries.names)
    values = t.given("values of all positions", others(t, "v", group), rows=queries.names)
    return weigh(t, attention.score, head, parts["q"], keys, values, queries)


def others(t: Tracer, name: str, group: int) -> Any:
    """Return the keys or values (S, K) of a head."""
    values = t.tapped(name, group)
    assert values is not None
    return values


def rotation_steps(t: Tracer, queries: Queries, title: str) -> Parts:
    """Return the rotation by the position, if there is one."""
    rotation = queries.rotation(t.position)
    if rotation is None:
        return []
    cosine = t.given(f"cosines of position {t.position + 1}", rotation[0])
    sine = t.given(f"signed sines of position {t.position + 1}", rotation[1])
    formula = "yᵢ = xᵢ cos(p θᵢ) ∓ xⱼ sin(p θᵢ), j half of the width away"
    return [Next(title, Rotate(), (cosine, sine), formula, {"lecture": "rotate"})]


def weigh(
    t: Tracer, score: Any, head: int, q: Stage, keys: Stage, values: Stage, queries: Queries
) -> Stage:
    """Add scores, mask, weights, and the weighted values."""
    steps = score_steps(t, score, head, keys)
    bias, measured = queries.bias(head, t.position), t.tapped("scores", head, t.position)
    if bias is not None:
        row = t.given("bias of the distances", bias, columns=queries.names)
        formula = "sⱼ + bⱼ: a bias for the distance of the key"
        steps.append(keyed("Bias added", Add(), keys, formula, row))
    if measured is not None and (queries.causal or not np.isfinite(measured).all()):
        allowed = t.given("mask", np.isfinite(measured) * 1.0, columns=queries.names)
        formula = "sⱼ where the mask is 1, −∞ where it is 0"
        steps.append(keyed("Masked scores", MaskOut(), keys, formula, allowed, lecture="mask"))
    scores = chain(t, q, steps, measured)
    weights = t.step(
        "Weights",
        Softmax(),
        scores,
        formula="αⱼ = exp(sⱼ) / Σₖ exp(sₖ)",
        lecture="weights",
        measured=t.tapped("weights", head, t.position),
        columns=queries.names,
    )
    return t.step(
        "Weighted values",
        Mix(),
        weights,
        values,
        formula="headᵢ = Σⱼ αⱼ vⱼᵢ",
        lecture="mix",
        measured=t.tapped("heads", head, t.position),
    )


def keyed(
    title: str, how: Operation, keys: Stage, formula: str, *inputs: Stage, lecture: str = ""
) -> Next:
    """Return a step that gives a number for each key."""
    return Next(title, how, inputs, formula, {"lecture": lecture, "columns": keys.rows})


def score_steps(t: Tracer, score: Any, head: int, keys: Stage) -> Parts:
    """Return how a query and keys become scores."""
    key = score if score in SCORES else type(score)
    return SCORES[key](t, score, head, keys) if key in SCORES else []


def dot_scores(t: Tracer, score: Any, head: int, keys: Stage) -> Parts:
    """q·k."""
    return [keyed("Scores", Dot(), keys, "sⱼ = Σₖ qₖ kⱼₖ", keys, lecture="scores")]


def scaled_scores(t: Tracer, score: Any, head: int, keys: Stage) -> Parts:
    """q·k / √K."""
    width = keys.values.shape[1]
    scale = Scale(width**-0.5, f"1/√{width}")
    formula = "sⱼ / √K, K the width of a head"
    scaled = keyed("Scores, scaled", scale, keys, formula, lecture="scale")
    return [*dot_scores(t, score, head, keys), scaled]


def distance_scores(function: str) -> Callable[..., Parts]:
    """−|q − k|, or a function of the distance."""

    def steps(t: Tracer, score: Any, head: int, keys: Stage) -> Parts:
        parts = [
            keyed("Scores: squared distances", SquaredDistance(), keys, "|q − kⱼ|²", keys),
            keyed("Scores: distances", Apply("sqrt"), keys, "|q − kⱼ|"),
            keyed("Scores", Apply("negative"), keys, "the nearest key has the highest score"),
        ]
        if function:
            parts.insert(2, keyed("Scores: their logarithm", Apply(function), keys, "ln |q − kⱼ|"))
        return parts

    return steps


def gaussian_scores(t: Tracer, score: Gaussian, head: int, keys: Stage) -> Parts:
    """−|q − k|² / (2 h²)."""
    factor = -float(1 / (2 * (2 * score.log_bandwidth[head]).exp()))
    formula = "−|q − kⱼ|² / (2 h²), h the bandwidth of this head"
    return [
        keyed("Scores: squared distances", SquaredDistance(), keys, "|q − kⱼ|²", keys),
        Next("Scores, scaled", Scale(factor, "−1 / (2 h²)"), (), formula),
    ]


def cosine_scores(t: Tracer, score: Cosine, head: int, keys: Stage) -> Parts:
    """cos(q, k) times a learned scale."""
    unit = t.step("keys of length 1", Unit(), keys, rows=keys.rows, shown=False)
    factor = float(score.log_sharpness[head].exp())
    return [
        Next("Query of length 1", Unit(), (), "q / |q|"),
        keyed("Scores", Dot(), keys, "cos(q, kⱼ)", unit),
        keyed(
            "Scores, scaled", Scale(factor, "the scale of this head"), keys, "cos(q, kⱼ) · scale"
        ),
    ]


def bilinear_scores(t: Tracer, score: Bilinear, head: int, keys: Stage) -> Parts:
    """q W k."""
    matrix = t.given("matrix W of the score, transposed", score.weight[head].T)
    return [
        Next("Query times W", Dot(), (matrix,), "(q W)ᵢ = Σₖ qₖ Wₖᵢ"),
        keyed("Scores", Dot(), keys, "sⱼ = Σᵢ (q W)ᵢ kⱼᵢ", keys),
    ]


def additive_scores(t: Tracer, score: Additive, head: int, keys: Stage) -> Parts:
    """v·tanh(W q + U k)."""
    query = t.given("matrix W of the query, transposed", score.query[head].T)
    key = t.given("matrix U of the keys, transposed", score.key[head].T)
    value = t.given("vector v of the score", score.value[head][:, 0])
    projected = t.step("keys times U", Dot(), keys, key, rows=keys.rows, shown=False)
    return [
        Next("Query times W", Dot(), (query,), "W q"),
        Next("Query and keys", Add(), (projected,), "W q + U kⱼ", {"rows": keys.rows}),
        Next("Their tanh", Apply("tanh"), (), "tanh(W q + U kⱼ)", {"rows": keys.rows}),
        keyed("Scores", RowDots(), keys, "sⱼ = Σᵢ vᵢ tanhⱼᵢ", value),
    ]


SCORES: dict[Any, Callable[..., Parts]] = {
    dot: dot_scores,
    scaled_dot: scaled_scores,
    negative_distance: distance_scores(""),
    negative_log_distance: distance_scores("log"),
    Gaussian: gaussian_scores,
    Cosine: cosine_scores,
    Bilinear: bilinear_scores,
    Additive: additive_scores,
}


def cross_attention(t: Tracer, cross: CrossAttention, x: Stage, source: Stage) -> Stage:
    """Add the stages of attention to an encoded source (S, D)."""
    formula = "qᵢ = Σₖ xₖ Wᵢₖ: of all heads"
    query = t.linear("Queries", cross.q, x, formula, lecture="q")
    width = cross.q.out_features
    k, queries = width // cross.n_heads, Queries(source.rows, AttentionContext(), causal=False)
    heads = []
    for head in range(cross.n_heads):
        with t.level(f"Head {head + 1}") as inner:
            part = Part(head * k, (head + 1) * k)
            words = f"entries {head * k + 1} to {(head + 1) * k}, those of this head"
            measured = inner.tapped("q", head, t.position)
            q = inner.step("Query", part, query, formula=words, measured=measured)
            keys, values = (
                source_part(inner, title, cross.kv, source, slice(first, first + k), name, head)
                for title, first, name in (
                    ("Keys of the source", head * k, "k"),
                    ("Values of the source", width + head * k, "v"),
                )
            )
            heads.append(weigh(inner, cross.score, head, q, keys, values, queries))
    return close_heads(t, cross.out, heads)


def source_part(
    t: Tracer, title: str, layer: nn.Linear, source: Stage, entries: slice, name: str, head: int
) -> Stage:
    """Add the keys or values of a head, (S, K), as a product with the encoded source."""
    inputs = [source, t.given(f"matrix of “{title}”", layer.weight[entries])]
    if layer.bias is not None:
        inputs.append(t.given(f"bias of “{title}”", layer.bias[entries]))
    formula, measured = f"{name}ⱼᵢ = Σₖ zⱼₖ Wᵢₖ, z the encoded source", others(t, name, head)
    return t.step(
        title, Dot(), *inputs, formula=formula, lecture=name, measured=measured, rows=source.rows
    )


@MIXERS.register(Hyena)
def hyena(t: Tracer, mixer: Hyena, x: Stage, queries: Queries) -> Stage:
    """Add the stages of a Hyena operator: projections, short filters, gates, long convolutions."""
    position, width, order = t.position, mixer.d_model, mixer.order
    every = t.activations[t.prefix + "norm"] if t.has("norm") else None
    streams = t.linear("Streams", mixer.streams, x, "uᵢ = Σₖ xₖ Wᵢₖ", lecture="hyena")
    before = SHORT - 1 if mixer.causal else SHORT // 2
    assert every is not None
    u = torch.nn.functional.pad(mixer.streams(every), (0, 0, before, SHORT - 1 - before))
    window = t.given(
        "streams of the positions under the short filter",
        u[position : position + SHORT],
        rows=window_names(queries.names, position - before, SHORT),
    )
    del streams
    filters = t.given("short filters", mixer.short, rows=[f"filter {n + 1}" for n in range(SHORT)])
    formula = f"yᵢ = Σₙ hₙᵢ uₙᵢ over {SHORT} positions"
    smooth = t.step("Short filters", Columns(), window, filters, formula=formula, lecture="hyena")
    gates, v = t.tapped("gates"), t.tapped("values")
    assert gates is not None and v is not None
    cuts = [
        t.step(
            "Value" if n == order else f"Gate {n + 1}",
            Part(n * width, (n + 1) * width),
            smooth,
            formula=f"entries {n * width + 1} to {(n + 1) * width}",
            measured=(v if n == order else gates[:, n * width : (n + 1) * width])[position],
        )
        for n in range(order + 1)
    ]
    mixed = long_filters(t, mixer, cuts, gates, v, queries)
    product = t.step("First gate", Multiply(), mixed, cuts[0], formula="yᵢ = xᵢ gᵢ")
    measured = t.tapped("output", position)
    formula = "yᵢ = Σₖ xₖ Wᵢₖ"
    return t.linear("Output projection", mixer.out, product, formula, measured=measured)


def window_names(names: Names, first: int, count: int) -> list[str]:
    """Return the names of positions, of which some may lie outside of the sequence."""
    return [names[i] if 0 <= i < len(names) else "outside" for i in range(first, first + count)]


def long_filters(
    t: Tracer, mixer: Hyena, cuts: list[Stage], gates: Any, v: Any, queries: Queries
) -> Stage:
    """Add each long convolution: a weighted sum over the positions that its filter reaches."""
    position, length, width, order = t.position, len(v), mixer.d_model, mixer.order
    filters = mixer.filters(length).chunk(order - 1)
    ahead = [None] * (order - 1) if mixer.ahead is None else mixer.ahead(length).chunk(order - 1)
    signal, stage = torch.as_tensor(v), cuts[order]
    for n in range(order - 1):
        gate = order - 1 - n
        signal = signal * torch.as_tensor(gates[:, gate * width : (gate + 1) * width])
        stage = t.step(f"Gate {gate + 1} applied", Multiply(), stage, cuts[gate], formula="xᵢ gᵢ")
        taps = filter_at(filters[n], ahead[n], position, length)
        used = len(taps)
        past = t.given("gated values of the positions", signal[:used], rows=queries.names[:used])
        weights = t.given("filter, by position", taps, rows=queries.names[:used])
        formula = "yᵢ = Σₛ h(t − s)ᵢ uₛᵢ: a filter as long as the sequence"
        stage = t.step(
            "Long convolution", Columns(), weights, past, formula=formula, lecture="long"
        )
        reach = ahead[n]
        later = None if reach is None else reach.double()
        signal = long_convolution(signal.mT[None], filters[n].double(), later)[0].mT
    return stage


def filter_at(filters: Tensor, ahead: Tensor | None, position: int, length: int) -> Tensor:
    """Return the weight (S, D) of each position in the convolution at one position."""
    past = filters[:, : position + 1].flip(-1).T
    if ahead is None:
        return past
    return torch.cat((past, ahead[:, : length - position - 1].T))
