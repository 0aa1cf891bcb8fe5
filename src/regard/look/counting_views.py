"""What is inside a model that counts: its table, its priors or discounts, and which of its n-grams
answered for the text.

What is inside a hidden Markov model: where its states lead, what they emit, and which of them
spelt the text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.look.forward_trace import ForwardTrace
from regard.look.page import Bars, Facts, Heatmap, Lines, Page, Table, Tagged
from regard.look.page.component import visible
from regard.models.counts import Bigram, TableModel
from regard.models.dirichlet_ngram import DirichletNGram
from regard.models.hidden_markov import HiddenMarkov
from regard.models.kneser_ney import KneserNey, adjust, discounts
from regard.models.ngrams import NGrams

MOST_SYMBOLS = 128  # a transition table up to this alphabet is shown whole
MOST_ROWS = 40  # of a table of transitions, and of the part of a transition table that is shown
MOST_CONTEXTS = 15  # whose posteriors are shown


def add_transitions(page: Page, reading: ForwardTrace, model: Bigram) -> None:
    """The table a bigram is, and its part in this text."""
    pairs, size = len(model.codes), model.vocab_size
    page.section(
        "Transition table",
        "All this model knows is how often each symbol followed each other one: the row says what "
        "was read, the column what came next, P(next | previous) = n(previous, next) / n(previous)."
        " A pair that was never seen has probability 0, and so has every text that contains it.",
    )
    page.add(
        Facts(
            [
                ("transitions counted", int(model.counts.sum())),
                ("different pairs seen", pairs),
                ("pairs possible", size * size),
                ("symbols with a row", int((model.totals > 0).sum())),
            ]
        )
    )
    rows, columns, part = chosen_symbols(reading, model)
    if len(rows) and len(columns):
        table = probabilities(model, rows)[:, columns]
        names = reading.names(rows), reading.names(columns)
        page.add(Heatmap(table, *names, title=f"P(next | previous){part}", unit="probability"))
    page.add(transitions(reading, model))


def probabilities(model: Bigram, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """(N, V) probabilities of what follows each of (N,) ids."""
    rows = model.log_rows([torch.from_numpy(ids)], len(ids))
    found: NDArray[np.float64] = rows.double().exp().numpy()
    return found


def chosen_symbols(
    reading: ForwardTrace, model: Bigram
) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """The rows and columns of the table that are shown, and in words which part of it that is.

    A small alphabet is shown whole, but for what never occurred; of a large one the rows are the
    text's own symbols and the columns those most probable after any of them.
    """
    totals = model.totals.numpy()
    if model.vocab_size <= MOST_SYMBOLS:
        followed = np.flatnonzero(totals)
        return followed, np.unique(model.codes.numpy() % model.vocab_size), ""
    own = list(dict.fromkeys(int(i) for i in reading.ids if totals[i]))[:MOST_ROWS]
    rows = np.array(own, dtype=np.int64)
    if not own:
        return rows, rows, ""
    likeliest = probabilities(model, rows).max(axis=0)  # (V,)
    columns = np.sort(np.argsort(-likeliest, kind="stable")[:MOST_ROWS])
    return rows, columns, ": the text's own symbols and what most often follows them"


def transitions(reading: ForwardTrace, model: Bigram) -> Table:
    """The text as a chain: counts and probability of each transition in it."""
    targets = reading.targets
    shown = list(zip(reading.ids, targets, strict=False))[:MOST_ROWS]
    counted = dict(zip(model.codes.tolist(), model.counts.tolist(), strict=True))
    rows: list[list[object]] = []
    for previous, following in shown:
        seen = counted.get(previous * model.vocab_size + following, 0)
        total = int(model.totals[previous])
        # A symbol that was never followed by anything says of the next only that it is not <S>.
        probability = seen / total if total else 1 / (model.vocab_size - 1)
        rows.append([*symbols(reading, [previous, following]), seen, total, probability])
        rows[-1].append(bits(probability))
    columns = ["previous", "next", "n(previous, next)", "n(previous)", "probability", "bits"]
    return Table(columns, rows, title=f"The text as a chain{first_of(targets, 'transitions')}")


def add_priors(page: Page, reading: ForwardTrace, model: DirichletNGram) -> None:
    """How strong the priors are, what is known of the most used contexts, and of the text."""
    uniform = model.config.prior == "symmetric"
    page.section(
        "Priors and posteriors",
        "Before anything is counted, each context expects what "
        + ("all symbols alike would give" if uniform else "the context shorter by a symbol says")
        + ", as firmly as if α symbols had been seen that way; then counts add up. A small α trusts"
        " the counts at once. What is known after counting is a distribution, so that every "
        "probability has a mean and an interval"
        + (
            "; P is where it is highest, over all symbols at once, and may well lie outside the "
            "interval of one of them where little was counted."
            if model.config.estimate == "map"
            else "."
        ),
    )
    orders = list(range(1, model.order + 1))
    page.add(strengths(model))
    if len(orders) > 1 and bool((model.alphas > 0).all()):
        page.add(
            Lines(
                [("α", orders, model.alphas.tolist())],
                x_label="symbols of the n-gram",
                y_label="α",
                log_y=True,
                title="Strength of the prior, by order",
            )
        )
    used = most_used(model.table, MOST_CONTEXTS)
    where = f"the {len(used)} contexts of {model.order - 1} symbols that were seen most"
    title = f"What follows {where}" if model.order > 1 else "The most frequent symbols"
    page.add(posteriors(reading, model, used, title))
    targets = reading.targets
    chain = [(list(reading.ids[: t + 1]), x) for t, x in enumerate(targets[:MOST_ROWS])]
    title = f"The text under the posterior{first_of(targets, 'symbols')}"
    page.add(posteriors(reading, model, chain, title))
    add_answers(page, reading, model)


def strengths(model: DirichletNGram) -> Table:
    """Each order's α, beside how much was counted there."""
    table, rows = model.table, []
    totals = table.totals(table.counts)
    for order, (low, high) in enumerate(pairwise(table.borders()), start=1):
        above = table.borders()[order - 2 : order] if order > 1 else None
        seen = totals[slice(*above)] if above else table.unigrams.sum()[None]
        seen = seen[seen > 0].double()
        alpha, typical = float(model.alphas[order - 1]), float(seen.median()) if len(seen) else 0.0
        grams = int((table.unigrams > 0).sum()) if order == 1 else high - low
        share = alpha / (alpha + typical) if alpha + typical else 1.0
        rows.append([order, alpha, grams, len(seen), typical, f"{share:.0%}"])
    columns = ["symbols", "α", "n-grams seen", "contexts seen", "median n(context)"]
    columns.append("the prior's share there")
    return Table(columns, rows, align=["right"] * 6, title="Strength of the priors")


def posteriors(
    reading: ForwardTrace,
    model: DirichletNGram,
    asked: Iterable[tuple[Sequence[int], int]],
    title: str,
) -> Table:
    """P(symbol | context) as the model says it and as a distribution, for (context, symbol)s."""
    rows: list[list[object]] = []
    start = max(0, model.order - 1)
    for context, symbol in asked:
        last = list(context)[max(0, len(context) - start) :]
        a, b = model.posterior(last, symbol)
        low, high = model.interval(last, symbol)
        ids = torch.tensor([last], dtype=torch.int64)
        nodes = [node[:, -1] for node in model.table.contexts(ids)[: len(last)]]
        *_, p = (float(p) for p in model.probabilities(nodes, torch.tensor([symbol])))
        names = ["".join(symbols(reading, last)) or "∅", *symbols(reading, [symbol])]
        seen, total = counted(model.table, nodes[-1] if nodes else None, symbol)
        rows.append([*names, seen, total, p, a / (a + b), f"{low:.4f} to {high:.4f}", bits(p)])
    columns = ["context", "next", "n(context, next)", "n(context)", "P", "posterior mean"]
    sides = ["left", "left", *["right"] * 6]
    return Table([*columns, "95% interval", "bits"], rows, align=sides, title=title)


def counted(table: NGrams, node: torch.Tensor | None, symbol: int) -> tuple[int, int]:
    """How often the symbol was seen after a node (1,), and how often anything was."""
    if node is None:
        return int(table.unigrams[symbol]), int(table.unigrams.sum())
    child = int(table.find(node, torch.tensor([symbol])))
    seen = int(table.counts[child - table.vocab_size]) if child >= 0 else 0
    total = int(table.totals(table.counts)[node]) if int(node) >= 0 else 0
    return seen, total


def most_used(table: NGrams, most: int) -> list[tuple[list[int], int]]:
    """The longest contexts that were seen most, each with what most often followed it."""
    if table.order == 1:
        frequent = table.unigrams.argsort(descending=True, stable=True)[:most].tolist()
        return [([], symbol) for symbol in frequent if table.unigrams[symbol]]
    low, high = table.borders()[table.order - 2 : table.order]
    totals = table.totals(table.counts)[low:high]
    found = []
    for node in (low + totals.argsort(descending=True, stable=True)[:most]).tolist():
        children = (table.parents == node).nonzero()[:, 0]
        if len(children):
            best = children[table.counts[children].argmax()]
            found.append((spelt(table, node), int(table.symbols[best])))
    return found


def spelt(table: NGrams, node: int) -> list[int]:
    """The symbols of an n-gram."""
    found: list[int] = []
    while node >= table.vocab_size:
        node, last = divmod(int(table.codes[node - table.vocab_size]), table.vocab_size)
        found.append(last)
    return [node, *found[::-1]]


def add_discounts(page: Page, reading: ForwardTrace, model: KneserNey) -> None:
    """What is taken from each count in favour of shorter contexts, and who answers for the text."""
    page.section(
        "Discounts",
        "Each count pays a little, D, and what was paid is shared out by the context shorter by a "
        "symbol, down to single symbols and then to all alike. Shorter n-grams are not counted but "
        "weighed by how many different symbols stood before them: what only ever follows one "
        "symbol is not to be expected after others.",
    )
    table = model.table
    borders, adjusted = table.borders(), adjust(table, table.suffixes())
    totals, rows = table.totals(table.counts), []
    for order, (low, high) in enumerate(pairwise(borders), start=1):
        left: float | None = None
        if order > 1:
            part = slice(borders[order - 2], borders[order - 1])
            weights = model.rules.weight[part][totals[part] > 0]
            left = float(weights.mean()) if len(weights) else None
        seen = int((adjusted[low:high] > 0).sum())
        share = None if left is None else f"{left:.0%}"
        rows.append([order, seen, *discounts(adjusted[low:high]), share])
    columns = ["symbols", "n-grams seen", "D of 1", "D of 2", "D of 3 or more"]
    columns.append("left to shorter ones, on average")
    page.add(Table(columns, rows, align=["right"] * 6, title="Discounts"))
    add_answers(page, reading, model)


def add_answers(page: Page, reading: ForwardTrace, model: TableModel) -> None:
    """Which n-grams the text was predicted from: the longest that had been seen."""
    targets = reading.targets
    if not targets:
        return
    lengths = answering(reading, model)
    page.section(
        "Who answers",
        "For every symbol of the text, the longest n-gram ending in it that was ever seen: the "
        f"longer, the more of the past had a say. This model looks at {model.order} symbols at "
        "most, the one to come among them.",
    )
    labels = [f"{n} symbol{'s' * (n > 1)}" for n in range(model.order, 0, -1)] + ["never seen"]
    many = [lengths.count(n) for n in range(model.order, -1, -1)]
    title = "How often each order answers on this text"
    page.add(Bars(labels, many, title=title, unit=f"of {len(targets)} symbols"))
    _, cost = reading.surprise()
    rows: list[list[object]] = []
    for t, (length, x) in enumerate(zip(lengths[:MOST_ROWS], targets, strict=False)):
        seen = reading.ids[max(0, t + 2 - length) : t + 1] if length else []
        gram = "".join(symbols(reading, [*seen, x])) if length else "–"
        rows.append(
            [*symbols(reading, [x]), gram, length, float(cost[len(cost) - len(targets) + t])]
        )
    columns = ["symbol", "longest n-gram seen", "symbols", "bits"]
    page.add(Table(columns, rows, title=f"Symbol by symbol{first_of(targets, 'symbols')}"))


def answering(reading: ForwardTrace, model: TableModel) -> list[int]:
    """For each target the symbols of the longest n-gram that was seen and ends in it; 0: none."""
    table, targets = model.table, torch.tensor(reading.targets)
    ids = torch.tensor([list(reading.ids[: len(targets)])])
    lengths = (table.unigrams[targets] > 0).long()
    for length, nodes in enumerate(table.contexts(ids), start=2):
        lengths[table.find(nodes[0], targets) >= 0] = length
    found: list[int] = lengths.tolist()
    return found


def symbols(reading: ForwardTrace, ids: Iterable[int]) -> list[str]:
    """How tokens stand in a table."""
    return [visible(name) for name in reading.names(ids)]


def bits(probability: float) -> float:
    """What a symbol of this probability costs."""
    return -math.log2(probability) if probability else math.inf


def first_of(targets: Sequence[int], what: str) -> str:
    """Of a long text, that only its beginning is in a table."""
    return f", its first {MOST_ROWS} {what}" if len(targets) > MOST_ROWS else ""


MOST_STATES = 64
MOST_EMITTED = 48  # rows of the emissions that are shown
TOLD = 4  # symbols named when a state is described


def add_states(page: Page, reading: ForwardTrace, model: HiddenMarkov) -> None:
    """The most probable path through the states, all paths weighed, and the states themselves."""
    posterior = reading.activations("states")["states"][0]  # (T, K)
    page.section(
        "Hidden states",
        "Each token was emitted by a state that nobody sees. The path is the one sequence of states"
        " that makes the text most probable (Viterbi 1967); the map below weighs all paths: a row "
        "says which state it may have been, given what came before and what came after. <S> is "
        "emitted by none.",
    )
    page.add(path(reading, model))
    page.add(visited(reading, posterior))
    page.section(
        "States",
        "What the model has learned: which state tends to follow which, and what each emits. States"
        " are in the order of the symbol each emits most"
        + (
            "."
            if model.config.topology == "ergodic"
            else ", but a path through them only ever moves on to higher numbers."
        ),
    )
    shown = chosen(model)
    names = [named(i) for i in shown.tolist()]
    part = f", {len(shown)} of {model.config.n_states}" if len(shown) < len(model.initial) else ""
    moves = model.transition[shown][:, shown].numpy()
    page.add(Heatmap(moves, names, names, title=f"P(next state | state){part}", unit="probability"))
    emitted = model.emission[:, shown]  # (V, K)
    likeliest = emitted.amax(1)
    likeliest[list(reading.banned)] = 0
    rows = likeliest.argsort(descending=True, stable=True)[:MOST_EMITTED].sort().values
    rows = rows[likeliest[rows] > 0]
    labels = reading.names(rows.tolist())
    title = f"P(symbol | state){part}"
    page.add(Heatmap(emitted[rows].numpy(), labels, names, title=title, unit="probability"))


def path(reading: ForwardTrace, model: HiddenMarkov) -> Tagged:
    """The text, each token under the state that the most probable path gives it."""
    ids = [*reading.ids[:1], *reading.targets]
    found = model.viterbi(torch.tensor([ids]))[0].tolist()
    notes = {named(i): emits(reading, model, i) for i in set(found) if i >= 0}
    tags = [None if i < 0 else named(i) for i in found]
    return Tagged(reading.names(ids), tags, notes=notes, title="The most probable path")


def visited(reading: ForwardTrace, posterior: Tensor) -> Heatmap:
    """(T, K) probabilities of the states at each token, of those that matter to this text."""
    visits = posterior.sum(dim=0)  # (K,)
    likeliest = visits.argsort(descending=True)[:MOST_STATES].sort().values
    share = float(visits[likeliest].sum() / visits.sum().clamp_min(1e-30))
    part = f", the {len(likeliest)} most visited ({share:.0%})" if share < 1 - 1e-6 else ""
    names = [named(i) for i in likeliest.tolist()]
    values, title = posterior[:, likeliest].numpy(), f"P(state | text){part}"
    return Heatmap(values, reading.tokens, names, title=title, unit="probability")


def chosen(model: HiddenMarkov) -> Tensor:
    """The states that are shown: those entered most often, ordered by what they emit most, or as
    they are where their order means something.
    """
    entered = model.initial + model.transition.sum(0)  # (K,)
    states = entered.argsort(descending=True, stable=True)[:MOST_STATES].sort().values
    if model.config.topology != "ergodic":
        return states
    strength, symbol = model.emission[:, states].max(0)
    order = sorted(range(len(states)), key=lambda i: (int(symbol[i]), -float(strength[i])))
    return states[order]


def emits(reading: ForwardTrace, model: HiddenMarkov, state: int) -> str:
    """What a state emits most, in words."""
    strength, symbol = model.emission[:, state].topk(min(TOLD, model.vocab_size))
    names = map(visible, reading.names(symbol.tolist()))
    told = zip(names, strength.tolist(), strict=True)
    return "emits " + ", ".join(f"{name} {p:.0%}" for name, p in told)


def named(state: int) -> str:
    """How a state is called on the page."""
    return f"state {state + 1}"
