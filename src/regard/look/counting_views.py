"""Views of language models that count: transition tables, priors, discounts and the n-grams that a
text is predicted from; and of hidden Markov models: their states and the path through them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.look.internals import ForwardTrace, register_view
from regard.look.page import Bars, Facts, Heatmap, Lines, Page, Table, Tagged
from regard.look.page.component import visible
from regard.models.counts import Bigram, TableModel
from regard.models.dirichlet_ngram import DirichletNGram
from regard.models.hidden_markov import HiddenMarkov
from regard.models.kneser_ney import KneserNey, adjust_counts, discounts
from regard.models.ngrams import NGrams

MOST_SYMBOLS = 128  # all transitions between up to this many symbols are drawn
MOST_ROWS = 40  # of a table, and of a transition table of more symbols
MOST_CONTEXTS = 15  # whose posteriors are listed
MOST_STATES = 64
MOST_EMITTED = 48  # symbols whose emissions are drawn
DESCRIBED = 4  # symbols in the description of a state


@register_view(Bigram)
def add_transitions(page: Page, trace: ForwardTrace, model: Bigram) -> None:
    """Draw the transition table, and list the transitions of the text."""
    size = model.vocab_size
    page.section(
        "Transition table",
        "All this model knows is how often each symbol followed each other: the row is the "
        "previous symbol, the column the next one, P(next | previous) = n(previous, next) / "
        "n(previous). A pair that never occurred has probability 0, and so has every text with it.",
    )
    facts = [
        ("transitions counted", int(model.counts.sum())),
        ("different pairs seen", len(model.codes)),
        ("pairs possible", size * size),
        ("symbols with a row", int((model.totals > 0).sum())),
    ]
    page.add(Facts(facts))
    rows, columns, part = _shown_symbols(trace, model)
    if len(rows) and len(columns):
        table = _next_probabilities(model, rows)[:, columns]
        names = trace.names(rows), trace.names(columns)
        page.add(Heatmap(table, *names, title=f"P(next | previous){part}", unit="probability"))
    counts = dict(zip(model.codes.tolist(), model.counts.tolist(), strict=True))
    cells: list[list[object]] = []
    for previous, following in list(zip(trace.ids, trace.targets, strict=False))[:MOST_ROWS]:
        count, total = counts.get(previous * size + following, 0), int(model.totals[previous])
        # After a symbol that nothing followed, all symbols but <S> are equally probable.
        p = count / total if total else 1 / (size - 1)
        cells.append([*_names(trace, [previous, following]), count, total, p, _bits(p)])
    labels = ["previous", "next", "n(previous, next)", "n(previous)", "probability", "bits"]
    title = f"The transitions of the text{_part(trace, 'transitions')}"
    page.add(Table(labels, cells, title=title))


def _next_probabilities(model: Bigram, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (N, V): the probabilities of what follows each of (N,) ids."""
    rows = model.log_rows([torch.from_numpy(ids)], len(ids))
    return np.asarray(rows.double().exp().numpy())


def _shown_symbols(
    trace: ForwardTrace, model: Bigram
) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """Return the rows and columns of the table that are drawn, and words for which part it is.

    Of many symbols, rows are those of the text, and columns the most probable ones after them.
    """
    totals = model.totals.numpy()
    if model.vocab_size <= MOST_SYMBOLS:
        columns = np.unique(model.codes.numpy() % model.vocab_size)
        return np.flatnonzero(totals), columns, ""
    symbols = list(dict.fromkeys(int(i) for i in trace.ids if totals[i]))[:MOST_ROWS]
    rows = np.array(symbols, dtype=np.int64)
    if not symbols:
        return rows, rows, ""
    largest = _next_probabilities(model, rows).max(axis=0)  # (V,)
    columns = np.sort(np.argsort(-largest, kind="stable")[:MOST_ROWS])
    return rows, columns, ": the symbols of the text and what most often follows them"


@register_view(DirichletNGram)
def add_priors(page: Page, trace: ForwardTrace, model: DirichletNGram) -> None:
    """List the concentrations of the priors, and the posteriors of frequent contexts and of the
    text.
    """
    uniform = model.config.prior == "symmetric"
    prior = "a uniform distribution" if uniform else "the distribution of the next shorter context"
    note = (
        f"The prior of each context is centred on {prior}, with the weight of α symbols; counts "
        "are added to it. A small α trusts the counts at once. The posterior is a distribution, so "
        "every probability has a mean and an interval"
    )
    if model.config.estimate == "map":
        note += (
            "; P is the mode over all symbols at once, and may lie outside the interval of one of "
            "them where counts are small"
        )
    page.section("Priors and posteriors", f"{note}.")
    page.add(_concentrations(model))
    if model.order > 1 and bool((model.alphas > 0).all()):
        series = [("α", list(range(1, model.order + 1)), model.alphas.tolist())]
        title = "Concentration of the prior, by order"
        page.add(Lines(series, "symbols of the n-gram", "α", title, log_y=True))
    frequent = frequent_contexts(model.table, MOST_CONTEXTS)
    title = "The most frequent symbols"
    if model.order > 1:
        title = f"The {len(frequent)} most frequent contexts of {model.order - 1} symbols"
    page.add(_posteriors(trace, model, frequent, title))
    text = [(trace.ids[: t + 1], x) for t, x in enumerate(trace.targets[:MOST_ROWS])]
    title = f"The text under the posterior{_part(trace, 'symbols')}"
    page.add(_posteriors(trace, model, text, title))
    _add_longest_ngrams(page, trace, model)


def _concentrations(model: DirichletNGram) -> Table:
    """Return the table of the α of each order and the counts there."""
    table, rows = model.table, []
    borders, totals = table.borders(), table.totals(table.counts)
    for order, (low, high) in enumerate(pairwise(borders), start=1):
        counts = table.unigrams.sum()[None]
        if order > 1:
            counts = totals[borders[order - 2] : borders[order - 1]]
        counts = counts[counts > 0].double()
        alpha = float(model.alphas[order - 1])
        median = float(counts.median()) if len(counts) else 0.0
        ngrams = int((table.unigrams > 0).sum()) if order == 1 else high - low
        share = alpha / (alpha + median) if alpha + median else 1.0
        rows.append([order, alpha, ngrams, len(counts), median, f"{share:.0%}"])
    columns = ["symbols", "α", "n-grams seen", "contexts seen", "median n(context)"]
    columns.append("the prior's share there")
    return Table(columns, rows, align=["right"] * 6, title="Concentration of the priors")


def _posteriors(
    trace: ForwardTrace,
    model: DirichletNGram,
    pairs: Iterable[tuple[Sequence[int], int]],
    title: str,
) -> Table:
    """Return the table of P(symbol | context), its posterior mean and interval, of (context,
    symbol) pairs.
    """
    table, rows = model.table, list[list[object]]()
    for context, symbol in pairs:
        last = list(context)[max(0, len(context) - model.order + 1) :]
        a, b = model.posterior(last, symbol)
        low, high = model.interval(last, symbol)
        ids = torch.tensor([last], dtype=torch.int64)
        nodes = [node[:, -1] for node in table.contexts(ids)[: len(last)]]
        target = torch.tensor([symbol])
        *_, p = (float(p) for p in model.probabilities(nodes, target))
        count, total = int(table.unigrams[symbol]), int(table.unigrams.sum())
        if nodes:
            child, node = int(table.find(nodes[-1], target)), int(nodes[-1])
            count = int(table.counts[child - table.vocab_size]) if child >= 0 else 0
            total = int(table.totals(table.counts)[node]) if node >= 0 else 0
        names = ["".join(_names(trace, last)) or "∅", *_names(trace, [symbol])]
        interval = f"{low:.4f} to {high:.4f}"
        rows.append([*names, count, total, p, a / (a + b), interval, _bits(p)])
    columns = ["context", "next", "n(context, next)", "n(context)", "P", "posterior mean"]
    align = ["left", "left", *["right"] * 6]
    return Table([*columns, "95% interval", "bits"], rows, align=align, title=title)


def frequent_contexts(table: NGrams, most: int) -> list[tuple[list[int], int]]:
    """Return the most frequent of the longest contexts, each with its most frequent next symbol."""
    if table.order == 1:
        frequent = table.unigrams.argsort(descending=True, stable=True)[:most].tolist()
        return [([], symbol) for symbol in frequent if table.unigrams[symbol]]
    low, high = table.borders()[table.order - 2 : table.order]
    totals = table.totals(table.counts)[low:high]
    contexts = []
    for node in (low + totals.argsort(descending=True, stable=True)[:most]).tolist():
        children = (table.parents == node).nonzero()[:, 0]
        if len(children):
            best = children[table.counts[children].argmax()]
            contexts.append((ngram_ids(table, node), int(table.symbols[best])))
    return contexts


def ngram_ids(table: NGrams, node: int) -> list[int]:
    """Return the symbols of an n-gram."""
    ids: list[int] = []
    while node >= table.vocab_size:
        node, last = divmod(int(table.codes[node - table.vocab_size]), table.vocab_size)
        ids.append(last)
    return [node, *ids[::-1]]


@register_view(KneserNey)
def add_discounts(page: Page, trace: ForwardTrace, model: KneserNey) -> None:
    """List what is subtracted from counts in favour of shorter contexts."""
    page.section(
        "Discounts",
        "A discount D is subtracted from each count, and the probability mass this frees is "
        "distributed by the context shorter by a symbol, down to single symbols and then evenly. "
        "Shorter n-grams count how many different symbols preceded them instead of how often they "
        "occurred: what only ever follows one symbol is not expected after others.",
    )
    table = model.table
    borders, adjusted = table.borders(), adjust_counts(table, table.suffixes())
    totals, rows = table.totals(table.counts), list[list[object]]()
    for order, (low, high) in enumerate(pairwise(borders), start=1):
        share = None
        if order > 1:
            part = slice(borders[order - 2], borders[order - 1])
            weights = model.backoff.weight[part][totals[part] > 0]
            share = f"{float(weights.mean()):.0%}" if len(weights) else None
        ngrams = int((adjusted[low:high] > 0).sum())
        rows.append([order, ngrams, *discounts(adjusted[low:high]), share])
    columns = ["symbols", "n-grams seen", "D of 1", "D of 2", "D of 3 or more"]
    columns.append("left to shorter ones, on average")
    page.add(Table(columns, rows, align=["right"] * 6, title="Discounts"))
    _add_longest_ngrams(page, trace, model)


def _add_longest_ngrams(page: Page, trace: ForwardTrace, model: TableModel) -> None:
    """Draw and list the longest n-grams of training that the text is predicted from."""
    targets = trace.targets
    if not targets:
        return
    lengths = longest_ngrams(trace, model)
    page.section(
        "Longest n-grams",
        "For every symbol of the text, the longest n-gram ending in it that occurred in training: "
        f"the longer, the more context is used. This model uses n-grams of at most {model.order} "
        "symbols, including the predicted one.",
    )
    labels = [f"{n} symbol{'s' * (n > 1)}" for n in range(model.order, 0, -1)] + ["never seen"]
    counts = [lengths.count(n) for n in range(model.order, -1, -1)]
    title = "How often each length occurs in this text"
    page.add(Bars(labels, counts, title=title, unit=f"of {len(targets)} symbols"))
    bits = trace.surprise()[1][-len(targets) :]
    rows: list[list[object]] = []
    for t, (length, x) in enumerate(zip(lengths[:MOST_ROWS], targets, strict=False)):
        before = trace.ids[max(0, t + 2 - length) : t + 1] if length else []
        ngram = "".join(_names(trace, [*before, x])) if length else "–"
        rows.append([*_names(trace, [x]), ngram, length, float(bits[t])])
    columns = ["symbol", "longest n-gram seen", "symbols", "bits"]
    page.add(Table(columns, rows, title=f"Symbol by symbol{_part(trace, 'symbols')}"))


def longest_ngrams(trace: ForwardTrace, model: TableModel) -> list[int]:
    """Return the length of the longest n-gram of training that ends in each target; 0 if none."""
    table, targets = model.table, torch.tensor(trace.targets)
    ids = torch.tensor([list(trace.ids[: len(targets)])])
    lengths = (table.unigrams[targets] > 0).long()
    for length, nodes in enumerate(table.contexts(ids), start=2):
        lengths[table.find(nodes[0], targets) >= 0] = length
    return [int(length) for length in lengths]


def _names(trace: ForwardTrace, ids: Iterable[int]) -> list[str]:
    return [visible(name) for name in trace.names(ids)]


def _bits(probability: float) -> float:
    return -math.log2(probability) if probability else math.inf


def _part(trace: ForwardTrace, what: str) -> str:
    """Return words for the part of a long text that is in a table."""
    return f", its first {MOST_ROWS} {what}" if len(trace.targets) > MOST_ROWS else ""


@register_view(HiddenMarkov)
def add_states(page: Page, trace: ForwardTrace, model: HiddenMarkov) -> None:
    """Draw the most probable path through the states, their posterior, and their parameters."""
    page.section(
        "Hidden states",
        "Each token is emitted by a hidden state. The path is the one sequence of states that "
        "makes the text most probable (Viterbi 1967). The map below sums over all paths: a row is "
        "the distribution of the state, given the tokens before and after. No state emits <S>.",
    )
    ids = [*trace.ids[:1], *trace.targets]
    path = model.viterbi(torch.tensor([ids]))[0].tolist()
    notes = {_state_name(i): _describe_state(trace, model, i) for i in set(path) if i >= 0}
    tags = [None if i < 0 else _state_name(i) for i in path]
    page.add(Tagged(trace.names(ids), tags, notes=notes, title="The most probable path"))
    page.add(_state_posterior(trace, trace.activations("states")["states"][0]))
    order = "Paths only move on to states of higher numbers."
    if model.config.topology == "ergodic":
        order = "States are sorted by their most probable symbol."
    page.section(
        "States",
        "What the model has learned: the probability of each state after each, and of each symbol "
        f"in each state. {order}",
    )
    states = _shown_states(model)
    names = [_state_name(i) for i in states.tolist()]
    part = f", {len(states)} of {model.config.n_states}" if len(states) < len(model.initial) else ""
    moves = model.transition[states][:, states].numpy()
    page.add(Heatmap(moves, names, names, title=f"P(next state | state){part}", unit="probability"))
    emitted = model.emission[:, states]  # (V, K)
    largest = emitted.amax(1)
    largest[list(trace.banned)] = 0
    rows = largest.argsort(descending=True, stable=True)[:MOST_EMITTED].sort().values
    rows = rows[largest[rows] > 0]
    labels, title = trace.names(rows.tolist()), f"P(symbol | state){part}"
    page.add(Heatmap(emitted[rows].numpy(), labels, names, title=title, unit="probability"))


def _state_posterior(trace: ForwardTrace, posterior: Tensor) -> Heatmap:
    """Draw the most probable states of probabilities (T, K)."""
    visits = posterior.sum(dim=0)  # (K,)
    states = visits.argsort(descending=True)[:MOST_STATES].sort().values
    share = float(visits[states].sum() / visits.sum().clamp_min(1e-30))
    part = f", the {len(states)} most visited ({share:.0%})" if share < 1 - 1e-6 else ""
    names = [_state_name(i) for i in states.tolist()]
    values, title = posterior[:, states].numpy(), f"P(state | text){part}"
    return Heatmap(values, trace.tokens, names, title=title, unit="probability")


def _shown_states(model: HiddenMarkov) -> Tensor:
    """Return the states entered most often, sorted by their most probable symbol, or as they are if
    their order means something.
    """
    entered = model.initial + model.transition.sum(0)  # (K,)
    states = entered.argsort(descending=True, stable=True)[:MOST_STATES].sort().values
    if model.config.topology != "ergodic":
        return states
    largest, symbol = model.emission[:, states].max(0)
    order = sorted(range(len(states)), key=lambda i: (int(symbol[i]), -float(largest[i])))
    return states[order]


def _describe_state(trace: ForwardTrace, model: HiddenMarkov, state: int) -> str:
    p, symbols = model.emission[:, state].topk(min(DESCRIBED, model.vocab_size))
    pairs = zip(_names(trace, symbols.tolist()), p.tolist(), strict=True)
    return "emits " + ", ".join(f"{name} {p:.0%}" for name, p in pairs)


def _state_name(state: int) -> str:
    return f"state {state + 1}"
