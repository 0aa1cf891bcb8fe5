"""What is inside a language model as it reads: attention, a recurrent state, a table of counts."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.models.counts import Bigram
from regard.models.decoder import Decoder

from .page import Attention, Facts, Heatmap, Lines, Mask, Page, Table
from .page.component import visible
from .reading import Reading

MOST_WEIGHTS = 1 << 23  # attention weights on one page: 8 MB at one byte each
MOST_MASKED = 16  # positions of the mask that are drawn
MOST_UNITS = 64  # of a recurrent state
MOST_SYMBOLS = 128  # a transition table up to this alphabet is shown whole
MOST_ROWS = 40  # of a table of transitions, and of the part of a transition table that is shown


def add_inside(page: Page, reading: Reading) -> None:
    """Add the sections about this model's own way of working; a family without any adds none."""
    model = reading.model
    if isinstance(model, Bigram):
        add_transitions(page, reading, model)
        return
    if isinstance(model, Decoder):
        add_attention(page, reading, model)
        return
    found = reading.activations("recurrent.output", "states")
    if "states" in found:
        add_states(page, reading, found["states"][0])
    if "recurrent.output" in found:
        add_recurrence(page, reading, found["recurrent.output"][0])


def add_attention(page: Page, reading: Reading, model: Decoder) -> None:
    """Every head of every layer, and who may look at whom."""
    heads = model.config.n_layers * model.config.n_heads
    first = min(len(reading.ids), max(2, math.isqrt(MOST_WEIGHTS // heads)))
    weights = torch.stack(
        [w[0] for w in reading.activations("*.attention.weights", first=first).values()]
    )  # (L, H, T, S)
    tokens = reading.tokens[:first]
    cut = ""
    if first < len(reading.ids):
        cut = (
            f" Only the first {first:,} of {len(reading.ids):,} tokens are drawn, to keep the page "
            "small; later tokens change nothing about them."
        )
    page.section(
        "Attention",
        "Reading a token, each head looks back at the tokens before it and mixes what it finds "
        "there; a row shows how it shares its attention out, and sums to 1. Choose a small map "
        f"to see that head large, as a map or as arcs.{cut}",
    )
    page.add(Attention(weights.numpy(), tokens, title="Attention weights"))
    add_reach(page, model, weights, tokens)


def add_reach(page: Page, model: Decoder, weights: Tensor, tokens: list[str]) -> None:
    """Where the heads may look, and how far back they do; weights are (L, H, T, S)."""
    window = model.config.window
    shown = min(len(tokens), max(MOST_MASKED, window + MOST_MASKED // 2))
    allowed = model.mask().tensor(1, shown, shown, torch.device("cpu"))[0, 0]  # (T, S)
    back = f" and at most {window - 1:,} positions back" if window else ""
    page.section(
        "Mask and reach",
        f"A token may look at itself and at what came before{back}, never ahead: otherwise the "
        "model could read the answer that it is to predict. Within that, some heads stay close by "
        "and others look far back.",
    )
    part = f", the first {shown} tokens" if shown < len(tokens) else ""
    layers = [f"layer {i + 1}" for i in range(weights.size(0))]
    heads = [f"head {i + 1}" for i in range(weights.size(1))]
    page.add(
        Mask(allowed.numpy(), tokens[:shown], title=f"Who may look at whom{part}"),
        Heatmap(
            distances(weights).numpy(),
            layers,
            heads,
            title="How far back each head looks on average",
            unit="tokens",
        ),
    )


def distances(weights: Tensor) -> Tensor:
    """(L, H) mean distance from a query to what it looks at, of causal weights (L, H, T, S)."""
    at = torch.arange(weights.size(-1))
    back = (at[:, None] - at).clamp_min(0)  # (T, S)
    return (weights * back).sum(dim=-1).mean(dim=-1)


def add_recurrence(page: Page, reading: Reading, states: Tensor) -> None:
    """The hidden state (T, D) of the last layer while it reads, and how far each token moved it."""
    length, width = states.shape
    units = min(width, MOST_UNITS)
    names = [f"unit {i + 1}" for i in range(units)]
    values = states[:, :units].numpy()
    short = length <= units
    page.section(
        "Hidden state",
        "A recurrent network keeps all it remembers in one vector, which every token changes. "
        f"{'Each row' if short else 'Each column'} is that vector after a token"
        f"{f', its first {units} of {width:,} units' if units < width else ''}; units that hold "
        "their colour remember, units that flicker follow the text.",
    )
    title = "output of the last layer"
    if short:
        page.add(Heatmap(values, reading.tokens, names, title=title, scale="diverging"))
    else:
        page.add(Heatmap(values.T, names, reading.tokens, title=title, scale="diverging"))
    before = torch.cat([torch.zeros(1, width), states[:-1]])  # the state starts at zero
    change = (states - before).norm(dim=1).numpy()
    at = list(range(1, length + 1))
    page.add(
        Lines(
            [("change", at, change.tolist())],
            x_label="token read",
            y_label="length of the change",
            title="How far each token moved the state",
        )
    )


def add_states(page: Page, reading: Reading, states: Tensor) -> None:
    """The probabilities (T, K) of the states of a hidden Markov model at each token of the text."""
    visits = states.sum(dim=0)  # (K,)
    likeliest = visits.argsort(descending=True)[:MOST_UNITS].sort().values
    share = float(visits[likeliest].sum() / visits.sum().clamp_min(1e-30))
    part = f", the {len(likeliest)} most visited ({share:.0%})" if share < 1 - 1e-6 else ""
    page.section(
        "Hidden states",
        "Each token was emitted by a state that nobody sees. A row says which it may have been, "
        "given the whole text: what came before and what came after. <S> is emitted by none.",
    )
    names = [f"state {i + 1}" for i in likeliest.tolist()]
    values, title = states[:, likeliest].numpy(), f"P(state | text){part}"
    page.add(Heatmap(values, reading.tokens, names, title=title, unit="probability"))


def add_transitions(page: Page, reading: Reading, model: Bigram) -> None:
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
    reading: Reading, model: Bigram
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


def transitions(reading: Reading, model: Bigram) -> Table:
    """The text as a chain: counts and probability of each transition in it."""
    targets = [*reading.ids[1:], *([] if reading.continues else [reading.tokenizer.end])]
    shown = list(zip(reading.ids, targets, strict=False))[:MOST_ROWS]
    counted = dict(zip(model.codes.tolist(), model.counts.tolist(), strict=True))
    rows: list[list[object]] = []
    for previous, following in shown:
        seen = counted.get(previous * model.vocab_size + following, 0)
        total = int(model.totals[previous])
        # A symbol that was never followed by anything says of the next only that it is not <S>.
        probability = seen / total if total else 1 / (model.vocab_size - 1)
        bits = -math.log2(probability) if probability else math.inf
        names = [visible(name) for name in reading.names([previous, following])]
        rows.append([*names, seen, total, probability, bits])
    columns = ["previous", "next", "n(previous, next)", "n(previous)", "probability", "bits"]
    more = f", its first {MOST_ROWS} transitions" if len(targets) > MOST_ROWS else ""
    return Table(columns, rows, title=f"The text as a chain{more}")
