"""Views of models that count or are linear.

Of language models that count: transition tables, priors, discounts and the n-grams that a text is
predicted from; of hidden Markov models: their states and the path through them.

Of classifiers: weight matrices with sequence logos (`pwm`), transition tables (`markov`),
coefficients of n-grams and of windows of tokens, and exactly what each token or n-gram of a text
adds to a score.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.layers.embeddings import Inputs
from regard.look.attribution import center, find_alphabet, subtract_mean
from regard.look.figures import motif_logo
from regard.look.internals import ForwardTrace, PredictionContext, register_evidence, register_view
from regard.look.page import (
    Bars,
    Contributions,
    Facts,
    Heatmap,
    Logo,
    Page,
    Table,
    Tagged,
    Text,
)
from regard.look.page.document import visible
from regard.models.class_counts import ClassMarkov, PWMClassifier, log_likelihoods
from regard.models.hidden_markov import HiddenMarkov
from regard.models.linear import NGramModel, WindowLogistic, decode_ngram, list_ngrams
from regard.models.motifs import PositionWeightMatrix
from regard.models.ngrams import (
    Bigram,
    DirichletNGram,
    KneserNey,
    NGrams,
    TableModel,
    adjust_counts,
    discounts,
)
from regard.tokenizers import Tokenizer

MOST_SYMBOLS = 128  # all transitions between up to this many symbols are drawn
MOST_ROWS = 40  # of a table, and of a transition table of more symbols
MOST_CONTEXTS = 15  # whose posteriors are listed
MOST_STATES = 64
MOST_EMITTED = 48  # symbols whose emissions are drawn
LEAST_USED = 0.05  # probability of a state, somewhere in a text, from which on it is drawn
LEAST_EMITTED = 0.1  # probability of a symbol in the name of a state
DESCRIBED = 4  # symbols in the description of a state


@register_view(Bigram)
def add_transitions(page: Page, trace: ForwardTrace, model: Bigram) -> None:
    """Draw the transition table, and list the transitions of the text."""
    size = model.vocab_size
    page.section(
        "Transition table",
        "All this model knows is how often each symbol followed each other: the row is the "
        "previous symbol, the column the next one, P(next | previous) = n(previous, next) / "
        "n(previous), here in thousandths, coloured by their logarithm. A pair that never occurred "
        "has probability 0, and so has every text with it.",
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
        table = 1000 * _next_probabilities(model, rows)[:, columns]
        names, title = (trace.names(rows), trace.names(columns)), f"P(next | previous){part}"
        page.add(Heatmap(table, *names, title, scale="logarithmic", unit="of 1,000"))
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
        "are added to it. A small α trusts the counts at once. The posterior is a distribution "
        "over probabilities: the tables show its mean with the interval that holds 95% of it, and "
        "P, with which the model predicts."
    )
    if model.config.estimate == "map":
        note += (
            " P is its mode, (n + α prior) / (n(context) + α). The prior also counts every symbol "
            "once, which moves the mean and its interval, not the mode, towards equal "
            "probabilities: in rare contexts P lies outside the interval of the mean."
        )
    page.section("Priors and posteriors", note)
    page.add(_concentrations(model))
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
        mean = f"{a / (a + b):.4f} [{low:.4f}, {high:.4f}]"
        rows.append([*names, count, total, mean, p, _bits(p)])
    columns = ["context", "next", "n(context, next)", "n(context)", "posterior mean [95%]"]
    columns.append("P, its mode" if model.config.estimate == "map" else "P")
    align = ["left", "left", *["right"] * 5]
    return Table([*columns, "bits"], rows, align=align, title=title)


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
        "Each token is emitted by a hidden state, numbered below it. The path is the one sequence "
        "of states that makes the text most probable (Viterbi 1967). The map sums over all paths: "
        "a column is the distribution of the state, given the tokens before and after; the path is "
        "outlined. States are named by what they emit. No state emits <S>.",
    )
    ids = [*trace.ids[:1], *trace.targets]
    path = model.viterbi(torch.tensor([ids]))[0].tolist()
    notes = {_state_name(i): _describe_state(trace, model, i) for i in set(path) if i >= 0}
    tags = [None if i < 0 else _state_name(i) for i in path]
    page.add(Tagged(trace.names(ids), tags, notes=notes, title="The most probable path"))
    page.add(_state_posterior(trace, model, trace.activations("states")["states"][0], path))
    order = "Paths only move on to states of higher numbers."
    if model.config.topology == "ergodic":
        order = "States are sorted by their most probable symbol."
    page.section(
        "States",
        "What the model has learned: the probability of each symbol in each state, and of each "
        f"state after each; states by their number. {order}",
    )
    states = _shown_states(model)
    names = [str(i + 1) for i in states.tolist()]
    part = f", {len(states)} of {model.config.n_states}" if len(states) < len(model.initial) else ""
    emitted = model.emission[:, states]  # (V, K)
    largest = emitted.amax(1)
    largest[list(trace.banned)] = 0
    rows = largest.argsort(descending=True, stable=True)[:MOST_EMITTED].sort().values
    rows = rows[largest[rows] > 0]
    labels, title = trace.names(rows.tolist()), f"P(symbol | state){part}"
    page.add(Heatmap(emitted[rows].numpy(), labels, names, title=title, unit="probability"))
    moves = model.transition[states][:, states].numpy()
    page.add(Heatmap(moves, names, names, title=f"P(next state | state){part}", unit="probability"))


def _state_posterior(
    trace: ForwardTrace, model: HiddenMarkov, posterior: Tensor, path: Sequence[int]
) -> Heatmap:
    """Draw the states that a text uses, of probabilities (T, K), in the order of their use: tokens
    across, with the path outlined.
    """
    largest = posterior.amax(dim=0)  # (K,)
    used = [i for i in largest.argsort(descending=True).tolist() if largest[i] >= LEAST_USED]
    used = used[:MOST_STATES] or [int(largest.argmax())]
    places = torch.arange(len(posterior), dtype=posterior.dtype)
    centres = (posterior.T @ places) / posterior.sum(0).clamp_min(1e-30)  # (K,)
    states = sorted(used, key=lambda i: float(centres[i]))
    rest = len(largest) - len(states)
    part = f"; {rest:,} other states are below {LEAST_USED:.0%} everywhere" if rest else ""
    names = [f"{i + 1} {_emitted(trace, model, i)}" for i in states]
    values, title = posterior[:, states].T.numpy(), f"P(state | text){part}"
    marks = [(states.index(i), t) for t, i in enumerate(path[: len(posterior)]) if i in set(states)]
    columns = trace.tokens
    return Heatmap(
        values.clip(0, 1), names, columns, title, scale="weights", unit="probability", marks=marks
    )


def _emitted(trace: ForwardTrace, model: HiddenMarkov, state: int) -> str:
    """Return the most probable symbols of a state, falling."""
    p, symbols = model.emission[:, state].topk(min(DESCRIBED, model.vocab_size))
    frequent = [i for i, q in zip(symbols.tolist(), p.tolist(), strict=True) if q >= LEAST_EMITTED]
    return " ".join(_names(trace, frequent or symbols.tolist()[:1]))


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


MOST_CLASSES = 6  # whose tables are drawn
MOST_POSITIONS = 300  # of a weight matrix
LOGO_WIDTH = 50  # positions of one logo
LEAST_PROBABLE = 0.01  # a token that is less probable everywhere is not drawn
MOST_TOKENS = 32  # rows of a weight matrix, columns of a transition table
MOST_CLASS_CONTEXTS = 64  # rows of a transition table
MOST_BARS = 12  # n-grams of a text that are drawn
MOST_LISTED = 60  # n-grams of a text that are listed
MOST_NGRAMS = 10  # of each output, for it and against it
MOST_OUTPUTS = 12


def _add_token_sum(
    page: Page, context: PredictionContext, added: Tensor, tokens: Sequence[str], terms: str
) -> None:
    """Draw each score as the sum of a bias and of what the tokens add, (T, C).

    Both are logarithms of probabilities. Minus their means over the classes, they give the same
    probabilities of the classes.
    """
    page.section(
        "What the prediction rests on",
        f"The score of a class is a sum over the tokens of the text, {terms}, plus the logarithm "
        "of the frequency of the class, each minus the mean over the classes: this is exact. "
        "Positive values support the class.",
    )
    model: Any = context.model
    added, bias = subtract_mean(added), subtract_mean(model.bias)
    rows = [(f"for {context.outputs[k]}", added[:, k].tolist()) for k in context.explained]
    page.add(Contributions(tokens, rows, title="What each token adds to the score", unit="nats"))
    for k in context.explained:
        total, constant = float(added[:, k].sum()), float(bias[k])
        facts = [("tokens add", total), ("bias", constant), ("score", total + constant)]
        page.add(Facts(facts, title=f"The score of {context.outputs[k]}"))
    _add_cut_note(page, context)


def _add_cut_note(page: Page, context: PredictionContext) -> None:
    if context.cut_note:
        page.add(Text(context.cut_note))


def _add_class_note(page: Page, names: Sequence[str]) -> None:
    if len(names) > MOST_CLASSES:
        page.add(Text(f"The first {MOST_CLASSES} of {len(names):,} classes are drawn."))


@register_evidence(PWMClassifier)
def add_pwm_sum(page: Page, context: PredictionContext, model: PWMClassifier) -> None:
    ids = context.source.ids[0, 1:-1]  # (W,)
    added = model.logs[torch.arange(len(ids)), ids]  # (W, C)
    tokens = [context.tokenizer.text(i) for i in ids.tolist()]
    _add_token_sum(page, context, added, tokens, "log P(token at its position | class)")


@register_view(PWMClassifier)
def add_weight_matrices(page: Page, context: PredictionContext, model: PWMClassifier) -> None:
    """Draw the weight matrix of every class, and its sequence logo where tokens are letters."""
    tokenizer, names = context.tokenizer, context.outputs
    count = len(model.logs)
    shown = min(count, MOST_POSITIONS)
    cut = f" The first {shown:,} of {count:,} positions are drawn." if shown < count else ""
    logs = model.logs[:shown].numpy()  # (W, V, C)
    ids = _frequent_tokens(np.exp(logs).max(axis=(0, 2)), tokenizer)
    page.section(
        "Weight matrices",
        "All that this model knows: the probability of each token at each position, for each "
        "class. The map shows what a token adds to the score of the class, its log-probability "
        "minus the mean over the classes; the logo shows the information of each position of a "
        f"class.{cut}",
    )
    weights = logs - logs.mean(axis=2, keepdims=True)
    tokens, positions = [tokenizer.text(i) for i in ids], [str(j + 1) for j in range(shown)]
    classes = list(enumerate(names))[:MOST_CLASSES]
    for k, name in classes:
        if k or len(names) != 2:  # the matrices of two classes have opposite signs
            values, title = weights[:, ids, k].T, f"Weight matrix of {name}"
            page.add(Heatmap(values, tokens, positions, title, scale="diverging", unit="nats"))
    motifs = [_as_motif(np.exp(logs[:, ids, k]), ids, tokenizer) for k, _ in classes]
    tallest = max(float(motif.information().max()) if motif else 0.0 for motif in motifs)
    for (_, name), motif in zip(classes, motifs, strict=True):
        if motif is not None:
            page.add(*_logos(motif, f"Sequence logo of {name}", tallest))
    _add_class_note(page, names)


def _frequent_tokens(largest: NDArray[np.float64], tokenizer: Tokenizer) -> list[int]:
    """Return the tokens worth a row, in order, given the largest probability (V,) of each."""
    best = np.argsort(-largest, kind="stable")[:MOST_TOKENS]
    return sorted(int(i) for i in best if largest[i] >= LEAST_PROBABLE and i != tokenizer.start)


def _as_motif(
    probabilities: NDArray[np.float64], ids: Sequence[int], tokenizer: Tokenizer
) -> PositionWeightMatrix | None:
    """Return the motif of probabilities (W, A), without unknown letters such as N; None if tokens
    are words.
    """
    texts = [tokenizer.text(i) for i in ids]
    alphabet = find_alphabet(set(texts))
    if alphabet is None:
        return None
    letters = np.zeros((len(probabilities), alphabet.size))
    for i, text in enumerate(texts):
        digit = int(alphabet.encode(text)[0])
        if digit < alphabet.size:
            letters[:, digit] += probabilities[:, i]
    letters /= np.maximum(letters.sum(1, keepdims=True), 1e-300)
    return PositionWeightMatrix.of_counts(letters, alphabet, pseudocount=0)


def _logos(motif: PositionWeightMatrix, title: str, tallest: float) -> Iterator[Logo]:
    """Yield a sequence logo in parts that can be read, on an axis that fits the tallest stack."""
    possible = math.log2(motif.alphabet.size)
    most = min(possible, max(0.02, 1.1 * tallest))
    for first in range(0, motif.width, LOGO_WIDTH):
        rows = motif.probabilities[first : first + LOGO_WIDTH]
        part = PositionWeightMatrix.of_counts(rows, motif.alphabet, pseudocount=0)
        bits = float(part.information().sum())
        note = (
            f"positions {first + 1} to {first + len(rows)}, {bits:.2g} bits in all; a position can "
            f"have {possible:.3g}"
        )
        yield motif_logo(part, title, first=first + 1, note=note, most=most)


@register_evidence(ClassMarkov)
def add_markov_sum(page: Page, context: PredictionContext, model: ClassMarkov) -> None:
    source = context.source
    added = log_likelihoods(model.chains, source.ids, source.segments)[0]  # (T - 1, C)
    length = model.config.order - 1
    before = f"the {length} tokens before it" if length > 1 else "the token before it"
    terms = f"log P(token | {before}, class)" if length else "log P(token | class)"
    _add_token_sum(page, context, added, context.tokens[1:], terms)


@register_view(ClassMarkov)
def add_transition_tables(page: Page, context: PredictionContext, model: ClassMarkov) -> None:
    """Draw the transition table of every class, and where the classes differ."""
    tokenizer, names = context.tokenizer, context.outputs
    contexts, complete = _frequent_contexts(model)
    length = model.config.order - 1
    logs = torch.stack([_next_logs(chain, contexts) for chain in model.chains])  # (C, N, V)
    columns = _frequent_tokens(logs.exp().numpy().max(axis=(0, 1)), tokenizer)
    rows = ["".join(map(tokenizer.text, ids)).strip() or "any" for ids in contexts]
    part = f" Rows are the {len(rows)} contexts most frequent in training." * (not complete)
    page.section(
        "Transition tables",
        f"A Markov chain for every class: the probability of each token (across) after the "
        f"{length} before it (down). <S> is the beginning of a record, <E> its end.{part}"
        if length
        else "The chosen model has no context: the probability of each token in each class.",
    )
    tokens = [tokenizer.text(i) for i in columns]
    logs = logs[..., columns]
    probabilities, weights = logs.exp().numpy(), (logs.double() - logs.double().mean(0)).numpy()
    weights[~np.isfinite(weights)] = np.nan  # what can never follow is hatched
    tables, differences = [], []
    for k, name in list(enumerate(names))[:MOST_CLASSES]:
        values, title = probabilities[k], f"P(next | before), {name}"
        tables.append(Heatmap(values, rows, tokens, title, scale="weights", unit="probability"))
        if k or len(names) != 2:  # the differences of two classes have opposite signs
            values, title = weights[k], f"What a transition adds to the score of {name}"
            heatmap = Heatmap(values, rows, tokens, title, scale="diverging", unit="nats")
            differences.append(heatmap)
    tables += differences
    for i in range(0, len(tables), 3):
        page.add(*tables[i : i + 3])
    _add_class_note(page, names)


def _frequent_contexts(model: ClassMarkov) -> tuple[list[list[int]], bool]:
    """Return the most frequent contexts, each as long as a chain reads back, and whether these are
    all that occur in training.
    """
    length = model.config.order - 1
    if not length:
        return [[]], True
    counts: Counter[tuple[int, ...]] = Counter()
    complete = True
    for chain in model.chains:
        table: Any = chain.table
        low, high = table.borders()[length - 1 : length + 1]
        totals = table.totals(table.counts)[low:high]  # (N,) of the class
        complete &= int((totals > 0).sum()) <= MOST_CLASS_CONTEXTS
        for i in totals.argsort(descending=True, stable=True)[:MOST_CLASS_CONTEXTS].tolist():
            if totals[i]:
                counts[tuple(ngram_ids(table, low + i))] += int(totals[i])
    most = [list(ids) for ids, _ in counts.most_common(MOST_CLASS_CONTEXTS)]
    return sorted(most), complete and len(counts) <= MOST_CLASS_CONTEXTS


def _next_logs(chain: Any, contexts: Sequence[Sequence[int]]) -> Tensor:
    """Return (N, V): log P of every token after each of N contexts of one length."""
    ids = torch.tensor([list(context) for context in contexts], dtype=torch.int64)
    nodes = [node[:, -1] for node in chain.table.contexts(ids)] if ids.size(1) else []
    logs: Tensor = chain.log_rows(nodes, len(contexts))
    return logs


@register_view(WindowLogistic)
def add_window_coefficients(page: Page, context: PredictionContext, model: WindowLogistic) -> None:
    """Draw the coefficient of every token at every distance, for each class."""
    names = context.outputs
    table = center(model, model.coefficients).view(-1, model.vocab_size, len(names)).numpy()
    largest = np.abs(table).max(axis=(0, 2))  # of (W, V, O)
    best = np.argsort(-largest, kind="stable")[:MOST_TOKENS]
    ids = sorted(int(i) for i in best if largest[i] > 0)
    if not ids:
        return
    page.section(
        "Coefficients",
        "The score of a class at a position is a sum over the tokens around it, one coefficient "
        "for each token (down) at each distance (across; 0 is the position itself), plus a bias: "
        "this is exact.",
    )
    half, bias = len(table) // 2, center(model, model.bias).tolist()
    tokens = [context.tokenizer.text(i) for i in ids]
    distances = [f"{j - half:+d}" if j != half else "0" for j in range(len(table))]
    for k, name in list(enumerate(names))[:MOST_CLASSES]:
        title, unit = f"Coefficients of {name}", f"logits; bias {bias[k]:.3g}"
        values = table[:, ids, k].T
        page.add(Heatmap(values, tokens, distances, title, scale="diverging", unit=unit))
    _add_class_note(page, names)


def ngram_name(code: int, model: NGramModel, tokenizer: Tokenizer) -> str:
    """Return how an n-gram is displayed: `TATA`, or `TATA at 12` if the model distinguishes
    positions. The first token of a text is at 1.
    """
    ids, second, position = decode_ngram(code, model.vocab_size, model.config.n_positions)
    start, end = model.markers.tolist()
    first, last = len(ids) > 1 and ids[0] == start, len(ids) > 1 and ids[-1] == end
    name = written(ids[first : len(ids) - last], tokenizer)
    name = first * tokenizer.text(start) + name + last * tokenizer.text(end)
    if position is not None and not first:  # what follows `<S>` is at the beginning anyway
        name += f" at {position}"
    return name + (" (second text)" if second else "")


def written(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return tokens as text with visible spaces at its ends; overlapping tokens are separated."""
    if not ids:
        return ""
    texts = [tokenizer.text(i) for i in ids]
    text = tokenizer.decode(list(ids))
    if text.strip() != "".join(texts).strip():
        return " ".join(texts)
    return text if text and text == text.strip() and text.isprintable() else visible(text)


def ngram_terms(model: NGramModel, source: Inputs, output: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the n-grams of one sequence that the model knows, by index, with their values and
    weights: (N,) each. The sum of value × weight and the bias is the output.
    """
    row = model.features(source)
    index = torch.from_numpy(row.indices.astype(np.int64))
    weights = center(model, model.coefficients)[index, output]
    return index, torch.from_numpy(row.data), weights


def count_unknown(model: NGramModel, source: Inputs, known: int) -> int:
    """Return how many different n-grams of one sequence have no coefficient."""
    start, end = model.markers.tolist()
    config = model.config
    _, codes = list_ngrams(source, config.order, model.vocab_size, start, end, config.n_positions)
    return len(torch.unique(codes)) - known


@register_evidence(NGramModel)
def add_ngram_sum(page: Page, context: PredictionContext, model: NGramModel) -> None:
    """Draw and list what the n-grams of a text add to the scores."""
    names = context.outputs
    positions = (
        " “TA at 12” is an n-gram that begins at token 12 of the text, the first being 1: all "
        "training records have one length, and the model has a weight for each position."
        if model.config.n_positions > 1
        else ""
    )
    single = context.predictor.targets.kind.single
    mean = f", each minus the mean over the {len(names)} classes" if single else ""
    page.section(
        "What the prediction rests on",
        "A score is a sum over the n-grams of the text, each value × weight, plus a bias"
        f"{mean}: this is exact. <S> and <E> are the ends of the text.{positions}",
    )
    for output in context.explained:
        index, values, weights = ngram_terms(model, context.source, output)
        added, bias = values * weights, float(center(model, model.bias)[output])
        order = added.abs().argsort(descending=True, stable=True).tolist()
        labels = [
            ngram_name(int(model.codes[index[i]]), model, context.tokenizer)
            for i in order[:MOST_LISTED]
        ]
        unit = f"{len(added):,} n-grams add {float(added.sum()):.3g}, the bias {bias:.3g}"
        if unknown := count_unknown(model, context.source, len(index)):
            unit += f"; {unknown:,} others are not in the training records and add nothing"
        if order:
            title = f"The n-grams with the largest terms for {names[output]}"
            terms = [float(added[i]) for i in order[:MOST_BARS]]
            page.add(Bars(labels[:MOST_BARS], terms, title=title, unit=unit))
        rows: list[list[object]] = [
            [label, float(values[i]), float(weights[i]), float(added[i])]
            for label, i in zip(labels, order, strict=False)
        ]
        if len(order) > MOST_LISTED:
            rest = order[MOST_LISTED:]
            rows.append([f"{len(rest):,} other n-grams", None, None, float(added[rest].sum())])
        rows += [["bias", None, None, bias], ["score", None, None, float(added.sum()) + bias]]
        columns = ["n-gram", "value", "weight", "value × weight"]
        title, last = f"The score of {names[output]}", [len(rows) - 1]
        page.add(Table(columns, rows, ["left", *["right"] * 3], highlight=last, title=title))
    _add_cut_note(page, context)


@register_view(NGramModel)
def add_coefficients(page: Page, context: PredictionContext, model: NGramModel) -> None:
    """List the n-grams with the largest coefficients, for and against each output."""
    weights = center(model, model.coefficients)  # (F, O)
    if not len(weights):
        return
    positions = ", each at its position in the record" if model.config.n_positions > 1 else ""
    page.section(
        "Largest coefficients",
        f"Of {len(weights):,} n-grams{positions}, those with the largest coefficients for and "
        "against each output.",
    )

    def largest(column: Tensor, sign: str) -> str:
        top = torch.topk(column, min(MOST_NGRAMS, len(column)))
        return ", ".join(
            f"{ngram_name(int(model.codes[i]), model, context.tokenizer)} ({sign}{value:.2g})"
            for value, i in zip(*map(Tensor.tolist, top), strict=True)
            if value > 0
        )

    rows = [
        [name, largest(column, "+"), largest(-column, "−")]
        for name, column in list(zip(context.outputs, weights.T, strict=True))[:MOST_OUTPUTS]
    ]
    page.add(Table(["", "for it", "against it"], rows))
