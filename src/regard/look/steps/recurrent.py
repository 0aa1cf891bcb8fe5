"""Steps through recurrent networks, gate by gate."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.layers.attention import AttentionContext
from regard.look.steps.attention import Queries, weigh
from regard.look.steps.operations import (
    Add,
    Apply,
    Complement,
    Dot,
    Join,
    Multiply,
    Part,
    Products,
    Scale,
)
from regard.look.steps.outputs import next_token, pooled_classes
from regard.look.steps.parts import embed_steps
from regard.look.steps.stages import Next, Stage, Tracer, Ways
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.recurrent import (
    BidirectionalStack,
    RecurrentClassifier,
    RecurrentModel,
    RecurrentSeq2SeqBase,
)

CELLS = Ways()  # (tracer, size, inputs, recurrent, hidden, cell, measured) -> hidden
Vectors = tuple[Tensor, ...]  # hidden and, of an LSTM, cell: (layers, D) each


def _states(cells: nn.RNNBase, x: Tensor, initial: Vectors) -> Vectors:
    """Return the state after reading x (1, T, D) from a state; torch's own numbers."""
    if not x.size(1):
        return initial
    batched = tuple(vector[:, None].contiguous() for vector in initial)
    after = cells(x, batched if len(batched) > 1 else batched[0])[1]
    return tuple(vector[:, 0] for vector in (after if isinstance(after, tuple) else (after,)))


def cell_steps(t: Tracer, cells: nn.RNNBase, x: Stage, every: Tensor, initial: Vectors) -> Stage:
    """Add every layer of a recurrent network at the position; `every` (1, T, D) is its input."""
    before = _states(cells, every[:, : t.position], initial)
    after = _states(cells, every[:, : t.position + 1], initial)
    for layer in range(cells.num_layers):
        with t.level(f"Layer {layer + 1}") as inner:
            x = layer_steps(inner, cells, layer, x, before, after)
    return x


def layer_steps(
    t: Tracer, cells: nn.RNNBase, layer: int, x: Stage, before: Vectors, after: Vectors
) -> Stage:
    """Add one layer at one position, between the states before and after it."""
    way = CELLS.find(cells)
    assert way is not None
    state = [
        t.given(f"{name} before", vector[layer], shown=True, formula=words)
        for (name, words), vector in zip(STATES, before, strict=False)
    ]
    parts = [
        affine(t, "From the input", cells, "ih", layer, x),
        affine(t, "From the state", cells, "hh", layer, state[0]),
    ]
    hidden: Stage = way(t, cells.hidden_size, parts, state, [vector[layer] for vector in after])
    return hidden


STATES = (
    ("Hidden state", "the output of this layer one position earlier, in the order of reading"),
    ("Cell", "the memory of this layer one position earlier, in the order of reading"),
)


def affine(t: Tracer, title: str, cells: Any, which: str, layer: int, x: Stage) -> Stage:
    """Add the input of all gates that comes from a vector."""
    weight = t.given(f"matrix of “{title}”", getattr(cells, f"weight_{which}_l{layer}"))
    bias = t.given(f"bias of “{title}”", getattr(cells, f"bias_{which}_l{layer}"))
    formula = "Σₖ xₖ Wᵢₖ + bᵢ, of all gates"
    return t.step(title, Dot(), x, weight, bias, formula=formula, lecture="gates")


def gate(t: Tracer, title: str, both: Stage, number: int, size: int, function: str) -> Stage:
    """Add one gate: its entries of the sum, through a function."""
    cut = f"entries {number * size + 1} to {(number + 1) * size} of the sum"
    symbol = {"sigmoid": "σ", "tanh": "tanh"}[function]
    with t.level(title) as inner:
        part = inner.step("Its sum", Part(number * size, (number + 1) * size), both, formula=cut)
        return inner.step(title, Apply(function), part, formula=f"{symbol}(sumᵢ)", lecture="gates")


@CELLS.register(nn.LSTM)
def lstm_steps(
    t: Tracer, size: int, parts: list[Stage], state: list[Stage], measured: list[Tensor]
) -> Stage:
    """c ← f c + i g, h ← o tanh(c)."""
    both = t.step("Sum of both", Add(), *parts, formula="W x + U h + b")
    i = gate(t, "Input gate", both, 0, size, "sigmoid")
    f = gate(t, "Forget gate", both, 1, size, "sigmoid")
    g = gate(t, "New content", both, 2, size, "tanh")
    o = gate(t, "Output gate", both, 3, size, "sigmoid")
    formula = "cₖ = fₖ cₖ (before) + iₖ gₖ"
    cell = t.step(
        "Cell", Products(), f, state[1], i, g, formula=formula, measured=measured[1], lecture="cell"
    )
    shown = t.step("Cell, squashed", Apply("tanh"), cell, formula="tanh cₖ")
    formula = "hₖ = oₖ tanh cₖ"
    return t.step("Hidden state", Multiply(), o, shown, formula=formula, measured=measured[0])


@CELLS.register(nn.GRU)
def gru_steps(
    t: Tracer, size: int, parts: list[Stage], state: list[Stage], measured: list[Tensor]
) -> Stage:
    """h ← (1 − z) n + z h, the reset gate acting on the state within n."""
    third = [Part(2 * size, 3 * size)] * 2
    two = Part(0, 2 * size)
    gates = [t.step("Gates " + name, two, x) for name, x in zip(SOURCES, parts, strict=True)]
    both = t.step("Sum for the gates", Add(), *gates, formula="W x + U h + b")
    r = gate(t, "Reset gate", both, 0, size, "sigmoid")
    z = gate(t, "Update gate", both, 1, size, "sigmoid")
    content = [
        t.step("Content " + name, how, x)
        for name, how, x in zip(SOURCES, third, parts, strict=True)
    ]
    reset = t.step("State, reset", Multiply(), r, content[1], formula="rₖ (U h + b)ₖ")
    total = t.step(
        "Sum for the new content", Add(), content[0], reset, formula="W x + b + r (U h + b)"
    )
    new = t.step("New content", Apply("tanh"), total, formula="nₖ = tanh(sumₖ)")
    rest = t.step("Share of the new", Complement(), z, formula="1 − zₖ")
    formula = "hₖ = (1 − zₖ) nₖ + zₖ hₖ (before)"
    return t.step(
        "Hidden state", Products(), rest, new, z, state[0], formula=formula, measured=measured[0]
    )


SOURCES = ("from the input", "from the state")


@CELLS.register(nn.RNN)
def rnn_steps(
    t: Tracer, size: int, parts: list[Stage], state: list[Stage], measured: list[Tensor]
) -> Stage:
    """h ← tanh(W x + U h + b)."""
    both = t.step("Sum of both", Add(), *parts, formula="W x + U h + b")
    formula = "hₖ = tanh(sumₖ)"
    return t.step("Hidden state", Apply("tanh"), both, formula=formula, measured=measured[0])


@register_steps(RecurrentModel)
def recurrent_steps(subject: StepSubject) -> None:
    """Follow a token through the gates of every layer."""
    model, ids = cast(RecurrentModel, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    every = model.embedding(ids)
    with t.level("Input") as inner:
        x = embed_steps(inner, model.embedding, ids, [], every[0, t.position])
    initial = tuple(v[:, 0] for v in model.cells.new_state(1, every).vectors)
    x = cell_steps(t, model.cells.cells, x, every, initial)
    next_token(t, subject, model.head, x)


@register_steps(RecurrentSeq2SeqBase)
def recurrent_seq2seq_steps(subject: StepSubject) -> None:
    """Follow a token of the target through the decoder, and its attention to the source."""
    model, ids = cast(RecurrentSeq2SeqBase, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    every = model.embed(ids, model.embedding)
    scaled = []
    if model.config.tied:
        width = int(model.config.d_model)
        scaled = [Next("Embedding, scaled", Scale(width**0.5, f"√{width}"), (), "xᵢ √D")]
    with t.level("Input") as inner:
        x = embed_steps(inner, model.embedding, ids, scaled, every[0, t.position])
    source = subject.encoded()
    initial = tuple(vector[:, 0] for vector in source.first)
    x = cell_steps(t, model.cells.cells, x, every, initial)
    if model.attentive:
        x = attend_source(t, subject, model, x)
    next_token(t, subject, model.head, x)


def attend_source(t: Tracer, subject: StepSubject, model: Any, x: Stage) -> Stage:
    """Add attention of the decoder's output to the source: one head, whose keys are its values."""
    names = subject.source_names(model.source_embedding, subject.tensors["source"])
    with t.level("Attention to the source", "decoder.cross") as inner:
        encoded = inner.tapped("k", 0)
        assert encoded is not None
        keys = inner.given("encoded source", encoded, rows=names)
        queries = Queries(names, AttentionContext(), causal=False)
        context = weigh(inner, model.score, 0, x, keys, keys, queries)
        both = inner.step("Context and state", Join(), context, x, formula="(context, h)")
        y = inner.linear("Combined", model.combine, both, "yᵢ = Σₖ xₖ Wᵢₖ")
        return inner.step("Output", Apply("tanh"), y, formula="tanh yᵢ")


@register_steps(RecurrentClassifier)
def classifier_steps(subject: StepSubject) -> None:
    """Follow one position through layers that read from both ends, into the scores."""
    model, ids = cast(RecurrentClassifier, subject.model), subject.tensors["ids"]
    names = subject.source_names(model.embedding, ids)
    t = subject.start(names)
    every = model.embedding(ids)
    with t.level("Input") as inner:
        x = embed_steps(inner, model.embedding, ids, [], every[0, t.position])
    for i, (layer, join) in enumerate(zip(model.layers, model.joins, strict=True)):
        length = torch.tensor([every.size(1)])
        output = torch.tanh(join(layer(every, length)[0]))
        with t.level(f"Layer {i + 1}") as inner:
            both = both_directions(inner, cast(BidirectionalStack, layer), x, every)
            y = inner.linear("Directions joined", join, both, "yᵢ = Σₖ hₖ Wᵢₖ + bᵢ")
            how, measured = Apply("tanh"), output[0, t.position]
            x = inner.step("Output", how, y, formula="tanh yᵢ", measured=measured)
        every = output
    pooled_classes(t, subject, x, t.activations["recurrent.output"], names)


def both_directions(t: Tracer, layer: BidirectionalStack, x: Stage, every: Tensor) -> Stage:
    """Add a layer that reads from the start and one that reads from the end."""
    last = every.size(1) - 1 - t.position
    ends = []
    for title, stack, read, at in (
        ("From the start", layer.onward, every, t.position),
        ("From the end", layer.backward, every.flip(1), last),
    ):
        initial = tuple(v[:, 0] for v in stack.new_state(1, every).vectors)
        before, after = (_states(stack.cells, read[:, :n], initial) for n in (at, at + 1))
        with t.level(title) as inner:
            ends.append(layer_steps(inner, stack.cells, 0, x, before, after))
    return t.step("Both directions", Join(), *ends, formula="(h from the start, h from the end)")
