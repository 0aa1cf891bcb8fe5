"""Steps through models that count: n-grams, order by order, and hidden Markov models."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor

from regard.look.page.document import visible
from regard.look.steps.operations import (
    Add,
    Apply,
    Discount,
    Dot,
    Gather,
    Mix,
    Multiply,
    Normalize,
    Scale,
)
from regard.look.steps.outputs import sampling_steps, vocabulary
from regard.look.steps.stages import Names, Stage, Tracer, Ways, as_floats
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.hidden_markov import HiddenMarkov
from regard.models.ngrams import (
    DirichletNGram,
    KneserNey,
    NGrams,
    TableModel,
    adjust_counts,
    discounts,
    uniform,
)

ORDERS = Ways()  # (tracer, model, context) -> the probabilities of an order
MOST_SYMBOLS = 8  # of the past that a hidden Markov model is followed through
UNSEEN = "this context never occurs in the training data: the shorter one decides"


class Context:
    """The last n symbols before the prediction, and what was counted after them."""

    def __init__(self, model: TableModel, length: int, node: int, lower: Stage | None) -> None:
        self.model, self.length, self.node, self.lower = model, length, node, lower

    @property
    def table(self) -> NGrams:
        return self.model.table

    def of_children(self, values: Tensor) -> Tensor:
        """Return a quantity (V + N,) of the n-grams that extend this context, by symbol (V,)."""
        table = self.table
        size = table.vocab_size
        if self.length == 0:
            return values[:size].double()
        row = torch.zeros(size, dtype=torch.float64)
        if self.node >= 0:
            children = torch.nonzero(table.parents == self.node).flatten()
            row[table.symbols[children]] = values[size + children].double()
        return row


@register_steps(TableModel)
def table_steps(subject: StepSubject) -> None:
    """Follow the estimate from no context at all to the longest one."""
    model, ids = cast(TableModel, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    words = vocabulary(subject)
    stage = order_steps(t, model, ids, words, t.position)
    with t.level("Output") as inner:
        measured = subject.output[0, t.position]
        formula = "zᵢ = ln pᵢ"
        logits = inner.step(
            "Logits", Apply("log"), stage, formula=formula, measured=measured, columns=words
        )
    sampling_steps(t, logits, words)


def order_steps(t: Tracer, model: TableModel, ids: Tensor, words: Names, at: int) -> Stage:
    """Add the probabilities of the token after a position, order by order; return the last."""
    nodes = [int(node[0, at]) for node in model.table.contexts(ids)]
    every = torch.arange(model.vocab_size)
    repeated = [torch.full_like(every, node) for node in nodes]
    known = list(model.probabilities(repeated, every))
    way = ORDERS.find(model)
    assert way is not None
    stage: Stage | None = None
    for length, p in enumerate(known):
        if length > at + 1:
            break
        past = [visible(name) for name in t.tokens[at + 1 - length : at + 1]]
        context = " ".join(past)
        with t.level(f"After {context}" if length else "Without context") as inner:
            node = nodes[length - 1] if length else 0
            stage = way(inner, Context(model, length, node, stage), words, p, context)
    assert stage is not None
    return stage


def counted(t: Tracer, context: Context, values: Tensor, words: Names, past: str) -> Stage:
    """Add how often each symbol followed the context."""
    after = f"how often each token follows {past}" if past else "how often each token occurs"
    title = "Counts"
    row = context.of_children(values)
    return t.given(title, row, shown=True, formula=after, columns=words, lecture="counts")


def all_counts(model: TableModel) -> Tensor:
    """Return the counts of all n-grams, (V + N,)."""
    return torch.cat([model.table.unigrams, model.table.counts])


@ORDERS.register(TableModel)
def relative_frequencies(
    t: Tracer, context: Context, words: Names, measured: Tensor, past: str
) -> Stage:
    """p = n / Σ n."""
    counts = counted(t, context, all_counts(context.model), words, past)
    if counts.values.sum() and np.allclose(
        counts.values / counts.values.sum(), as_floats(measured)
    ):
        formula = "pᵢ = nᵢ / Σₖ nₖ"
        return t.step(
            "Probabilities", Normalize(), counts, formula=formula, measured=measured, columns=words
        )
    if context.lower is not None:
        how = Scale(1.0)
        return t.step("Probabilities", how, context.lower, formula=UNSEEN, columns=words)
    formula = "all tokens but <S> alike"
    return t.given("Probabilities", measured, shown=True, formula=formula, columns=words)


@ORDERS.register(KneserNey)
def kneser_ney(t: Tracer, context: Context, words: Names, measured: Tensor, past: str) -> Stage:
    """p = (a − D(a)) / Σ a + λ p(shorter)."""
    table = context.table
    adjusted = adjust_counts(table, table.suffixes())
    low, high = table.borders()[context.length : context.length + 2]
    paid = discounts(adjusted[low:high])
    counts = counted(t, context, adjusted, words, past)
    lower = context.lower
    if lower is None:
        lower = t.given(
            "No context: all alike",
            uniform(table),
            shown=True,
            formula="every token but <S> has the same probability",
            columns=words,
        )
    if not counts.values.sum():
        how = Scale(1.0)
        return t.step("Probabilities", how, lower, formula=UNSEEN, measured=measured, columns=words)
    names = ["of 1", "of 2", "of 3 and more"]
    given = t.given("Discounts of counts", paid, shown=True, columns=names, formula="D₁, D₂, D₃₊")
    formula = "(nᵢ − D(nᵢ)) / Σₖ nₖ"
    discounted = t.step("Discounted", Discount(), counts, given, formula=formula, columns=words)
    used = np.r_[0.0, paid][np.minimum(counts.values, 3).astype(int)]
    weight = float(used.sum() / counts.values.sum())
    formula = "λ p(shorter context)ᵢ, λ what the discounts took"
    shared = t.step("Lower order", Scale(weight, "λ"), lower, formula=formula, columns=words)
    formula = "pᵢ = discountedᵢ + λ lowerᵢ"
    return t.step(
        "Probabilities",
        Add(),
        discounted,
        shared,
        formula=formula,
        measured=measured,
        columns=words,
    )


@ORDERS.register(DirichletNGram)
def dirichlet(t: Tracer, context: Context, words: Names, measured: Tensor, past: str) -> Stage:
    """p = (n + 1 + α prior) / (Σ n + V + α); without the 1 for the mode."""
    model = cast(DirichletNGram, context.model)
    base, alpha = uniform(context.table), float(model.alphas[context.length])
    counts = counted(t, context, all_counts(model), words, past)
    hierarchical = context.lower is not None and model.config.prior in ("hierarchical",)
    prior = context.lower if hierarchical else None
    if prior is None:
        words_of = "all tokens but <S> alike"
        prior = t.given("Prior", base, shown=True, formula=words_of, columns=words)
    total = float(counts.values.sum()) + alpha + model.ones * int((base > 0).sum())
    if not total:
        how = Scale(1.0)
        return t.step("Probabilities", how, prior, formula=UNSEEN, measured=measured, columns=words)
    formula = "α p(prior)ᵢ, α the strength of the prior"
    pseudo = t.step("Prior counts", Scale(alpha, "α"), prior, formula=formula, columns=words)
    parts = [counts, pseudo]
    if model.ones:
        ones = (base > 0).double() * model.ones
        formula = "1 for every token that may follow: the mean of the posterior"
        parts.append(t.given("One more", ones, shown=True, formula=formula, columns=words))
    both = t.step("Counts and prior", Add(), *parts, formula="nᵢ + α p(prior)ᵢ", columns=words)
    formula = "pᵢ = (nᵢ + α p(prior)ᵢ) / (Σₖ nₖ + α)"
    how = Scale(1 / total, f"1 / {total:,.6g}")
    return t.step("Probabilities", how, both, formula=formula, measured=measured, columns=words)


@register_steps(HiddenMarkov)
def hidden_markov_steps(subject: StepSubject) -> None:
    """Follow the distribution of the hidden state, symbol by symbol, to the next symbol."""
    model, ids = cast(HiddenMarkov, subject.model), subject.tensors["ids"]
    t = subject.start(subject.token_names(ids))
    states = [f"state {i + 1}" for i in range(int(model.config.n_states))]
    words = vocabulary(subject)
    tables = (
        t.given("emissions, by symbol", model.emission, rows=words, columns=states),
        t.given("transitions", model.transition, rows=states, columns=states),
    )
    first = max(0, t.position + 1 - MOST_SYMBOLS)
    x = start_state(t, model, ids, first, states)
    for at in range(first, t.position + 1):
        with t.level(f"Token {at + 1}: {visible(t.tokens[at])}") as inner:
            x = forward_step(inner, model, ids, at, x, tables, states)
    with t.level("Output") as inner:
        formula = "pᵢ = Σₛ P(state s) P(i | s)"
        p = inner.step(
            "Probabilities of the next token", Dot(), x, tables[0], formula=formula, columns=words
        )
        measured = subject.output[0, t.position]
        logits = inner.step(
            "Logits", Apply("log"), p, formula="ln pᵢ", measured=measured, columns=words
        )
    sampling_steps(t, logits, words)


def start_state(t: Tracer, model: HiddenMarkov, ids: Tensor, first: int, states: Names) -> Stage:
    """Add the distribution of the state before the first symbol that is followed."""
    with t.level("Input") as inner:
        values = predicted(model, ids, first)
        formula = f"the distribution of the state before token {first + 1}"
        return inner.given("State", values, shown=True, formula=formula, columns=states)


def predicted(model: HiddenMarkov, ids: Tensor, count: int) -> Tensor:
    """Return the distribution (K,) of the next state after `count` symbols, the model's own."""
    if not count:
        return model.anywhere
    state = model.init_state(1, count)
    model.step(ids[:, :count], None, state)
    layer = state.layers[0]
    return cast(Tensor, layer.vectors[0][0, 0])  # type: ignore[attr-defined]


def forward_step(
    t: Tracer,
    model: HiddenMarkov,
    ids: Tensor,
    at: int,
    x: Stage,
    tables: tuple[Stage, Stage],
    states: Names,
) -> Stage:
    """Add what one symbol changes: its emission, the posterior, the next state."""
    after, symbol = predicted(model, ids, at + 1), int(ids[0, at])
    if symbol == int(model.marker):
        words = "no state emits <S>: the chain is about to start"
        start = t.given("initial distribution", model.initial[None])
        return t.step("State", Gather(0), start, formula=words, measured=after, columns=states)
    formula = "P(this symbol | state)"
    emitted = t.step("Emission", Gather(symbol), tables[0], formula=formula, columns=states)
    formula = "P(state) P(symbol | state)"
    joint = t.step("Joint", Multiply(), x, emitted, formula=formula, columns=states)
    formula = "jointₛ / Σ joint: the state, given the symbols so far"
    posterior = t.step(
        "State, given the symbol", Normalize(), joint, formula=formula, columns=states
    )
    formula = "Σₛ P(state s) P(s → next)"
    return t.step(
        "Next state", Mix(), posterior, tables[1], formula=formula, measured=after, columns=states
    )
