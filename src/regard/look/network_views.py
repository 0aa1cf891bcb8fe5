"""Views of recurrent networks and of networks over a window of tokens.

Of a recurrent network: the state after every token, its units sorted by what they follow, its
gates, and how far back the gradient of each prediction reaches. Of a window: what each of its
places weighs. What a unit follows is measured on texts that the model generates, since one text has
too few tokens to tell a letter from its position.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.decoding.engine import evaluating
from regard.look.internals import ForwardTrace, register_view
from regard.look.page import Bars, Choices, Heatmap, Page
from regard.look.page.document import visible
from regard.models.language_model import NeuralLanguageModel
from regard.models.mlp import MLP
from regard.models.recurrent import ConditionedRecurrent, RecurrentModel

MOST_UNITS = 48  # of a state that are drawn
SAMPLED, LONGEST_SAMPLE = 32, 48  # texts that units are measured on, and the most tokens of one
MOST_TRACED = 64  # predictions whose gradient is followed back
LAST_POSITION = 12  # from which on positions count as one
FOLLOWS = 0.2  # share of the variance from which on a unit follows something
FEATURES = (
    "the token read",
    "the token before it",
    "the position",
    "its own past",
    "nothing of it",
)
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RecurrentSteps:
    """The last layer over T tokens: its state (T, D) of each name, gates included; for an LSTM
    "cell" and "output", else "output" alone; and the size of the change of each layer (L, T).
    """

    values: dict[str, Tensor]
    changes: Tensor


def run_cells(cells: nn.RNNBase, x: Tensor, initial: Sequence[Tensor]) -> RecurrentSteps:
    """Run the layers of torch's LSTM, GRU or RNN over x (T, D) step by step, by their equations.

    `initial` holds the hidden vectors and, of an LSTM, the cell vectors: (layers, D) each.
    """
    step = {"LSTM": _lstm_step, "GRU": _gru_step}.get(cells.mode, _rnn_step)
    changes, values = [], dict[str, Tensor]()
    for layer in range(cells.num_layers):
        state = tuple(vector[layer] for vector in initial)
        steps: list[dict[str, Tensor]] = []
        before, sizes = state[0], []
        weights = [getattr(cells, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh")]
        biases = [getattr(cells, f"{name}_l{layer}") for name in ("bias_ih", "bias_hh")]
        for row in x:
            inputs, recurrent = row @ weights[0].T + biases[0], state[0] @ weights[1].T + biases[1]
            state, gates = step(inputs, recurrent, state)
            steps.append(gates | {"output": state[0]})
            sizes.append((state[0] - before).norm())
            before = state[0]
        values = {name: torch.stack([one[name] for one in steps]) for name in steps[0]}
        x = values["output"]
        changes.append(torch.stack(sizes))
    return RecurrentSteps(values, torch.stack(changes))


State = tuple[Tensor, ...]


def _lstm_step(x: Tensor, h: Tensor, state: State) -> tuple[State, dict[str, Tensor]]:
    """c ← f c + i g, h ← o tanh(c) (Hochreiter & Schmidhuber 1997; Gers et al. 2000)."""
    i, f, g, o = (x + h).chunk(4)
    i, f, o = i.sigmoid(), f.sigmoid(), o.sigmoid()
    cell = f * state[1] + i * g.tanh()
    gates = {"cell": cell, "forget gate": f, "input gate": i, "output gate": o}
    return (o * cell.tanh(), cell), gates


def _gru_step(x: Tensor, h: Tensor, state: State) -> tuple[State, dict[str, Tensor]]:
    """h ← (1 − z) n + z h (Cho et al. 2014)."""
    (r, z, n), (hr, hz, hn) = x.chunk(3), h.chunk(3)
    r, z = (r + hr).sigmoid(), (z + hz).sigmoid()
    new = (n + r * hn).tanh()
    return ((1 - z) * new + z * state[0],), {"update gate": z, "reset gate": r}


def _rnn_step(x: Tensor, h: Tensor, state: State) -> tuple[State, dict[str, Tensor]]:
    return ((x + h).tanh(),), {}


@dataclass(frozen=True, eq=False)
class UnitSummary:
    """What each of D units follows: the share of its variance that each of FEATURES but the last
    explains, (D, 4), and the tokens after which it is largest.
    """

    shares: Floats
    favourites: list[list[int]]

    @property
    def groups(self) -> NDArray[np.int64]:
        """The feature of each unit; the last one where none explains enough."""
        best = self.shares.argmax(1)
        return np.where(self.shares.max(1) >= FOLLOWS, best, len(FEATURES) - 1)

    def order(self, count: int) -> list[int]:
        """Return about `count` units, the clearest of each feature in proportion, by feature, then
        by the token they follow.
        """
        groups, most = self.groups, self.shares.max(1)
        share, chosen = min(1.0, count / len(groups)), set[int]()
        for group in range(len(FEATURES)):
            members = np.flatnonzero(groups == group)
            clear = members[np.argsort(-most[members], kind="stable")]
            chosen |= set(clear[: math.ceil(share * len(members))].tolist())
        keys = [
            (int(groups[i]), self.favourites[i][:1] if groups[i] < 2 else [], -float(most[i]))
            for i in range(len(groups))
        ]
        return sorted(chosen, key=keys.__getitem__)


def summarize_units(states: Sequence[Floats], ids: Sequence[Sequence[int]]) -> UnitSummary:
    """Return what units follow, given their states (T, D) over several texts and their ids (T,)."""
    values = np.concatenate(states)
    tokens = np.concatenate([np.asarray(text) for text in ids])
    before = np.concatenate([np.r_[-1, np.asarray(text)[:-1]] for text in ids])
    position = np.concatenate([np.minimum(np.arange(len(text)), LAST_POSITION) for text in ids])
    past = np.concatenate([np.vstack([np.zeros_like(x[:1]), x[:-1]]) for x in states])
    shares = [explained_share(values, labels) for labels in (tokens, before, position)]
    centred = [x - x.mean(0) for x in (values, past)]
    norms = np.sqrt((centred[0] ** 2).sum(0) * (centred[1] ** 2).sum(0))
    shares.append(((centred[0] * centred[1]).sum(0) / np.maximum(norms, 1e-12)) ** 2)
    table = np.stack(shares, 1)
    favourites = []
    for unit in range(values.shape[1]):
        labels = before if table[unit].argmax() == 1 else tokens
        means = {int(k): values[labels == k, unit].mean() for k in np.unique(labels) if k >= 0}
        favourites.append(sorted(means, key=lambda k: -means[k])[:3])
    return UnitSummary(table, favourites)


def explained_share(values: Floats, labels: NDArray[Any]) -> Floats:
    """Return (D,): the share of the variance of values (N, D) between groups of labels (N,),
    adjusted for their number (as R² is), at least 0.
    """
    groups, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.zeros((len(groups), values.shape[1]))
    np.add.at(sums, index, values)
    residual = ((values - (sums / counts[:, None])[index]) ** 2).sum(0)
    total = ((values - values.mean(0)) ** 2).sum(0)
    freedom = (len(values) - 1) / max(1, len(values) - len(groups))
    return np.asarray(np.maximum(0.0, 1 - freedom * residual / np.maximum(total, 1e-12)))


@register_view(RecurrentModel)
def add_recurrence(page: Page, trace: ForwardTrace, model: RecurrentModel) -> None:
    """Draw the state with its gates, what its units follow, and the gradient through time."""

    def run(ids: Sequence[int]) -> RecurrentSteps:
        with evaluating(model):
            x = model.embedding(trace.tensor(ids))[0]
            return run_cells(model.cells.cells, x, _initial(model.cells.new_state(1, x).vectors))

    _add_states(page, trace, run)
    add_gradients(page, trace, model, model.embedding)


@register_view(ConditionedRecurrent)
def add_conditioned_recurrence(
    page: Page, trace: ForwardTrace, model: ConditionedRecurrent
) -> None:
    """Draw the state of a decoder; it starts from what the encoder makes of the source."""
    inner = model.model

    def run(ids: Sequence[int]) -> RecurrentSteps:
        with evaluating(model):
            x = inner.embed(trace.tensor(ids), inner.embedding)[0]
            initial = _initial(model.source.init_recurrence(1).vectors)
            return run_cells(inner.cells.cells, x, initial)

    _add_states(page, trace, run)


def _initial(vectors: Sequence[Tensor]) -> list[Tensor]:
    """Return the state of the only row, (layers, D) each."""
    return [vector[:, 0] for vector in vectors]


def _add_states(page: Page, trace: ForwardTrace, run: Any) -> None:
    """Draw the state and its gates; `run` computes the steps of any ids."""
    steps: RecurrentSteps = run(trace.ids)
    start = trace.prompt[:1]
    texts = [list(trace.ids)]
    for sample in trace.continuations(start, SAMPLED, LONGEST_SAMPLE):
        texts.append([*start, *sample.ids])
    main = "cell" if "cell" in steps.values else "output"
    states = [run(text).values["output"].double().cpu().numpy() for text in texts]
    units = summarize_units(states, texts)
    width, n_tokens = units.shares.shape[0], sum(map(len, texts))
    gates = [name for name in steps.values if name.endswith("gate")]
    page.section(
        "Hidden state",
        f"All memory of a recurrent network is one vector of {width:,} units, which every token "
        "changes. Units are sorted by what their output follows, as measured on "
        f"{n_tokens:,} tokens that the model generated: the feature that explains most of a unit's "
        f"variance, {FOLLOWS:.0%} at least. Its own past means memory: the unit changes slowly."
        + (" Gates are between 0, closed, and 1, open." if gates else ""),
    )
    counts = np.bincount(units.groups, minlength=len(FEATURES)).tolist()
    title = "What the units follow"
    page.add(Bars([*FEATURES], counts, title=title, unit=f"of {width:,} units"))
    order = units.order(MOST_UNITS)
    names = [_unit_name(trace, units, unit) for unit in order]
    part = f", {len(order)} of {width:,} units" if len(order) < width else ""
    maps = []
    for name in [main, *gates, *(["output"] if main != "output" else [])]:
        values = steps.values[name][:, order].T.float().cpu().numpy()
        gate = name in gates
        scale, unit = ("weights", "open") if gate else ("diverging", "")
        title = f"{name.capitalize()} of the last layer after each token{part}"
        maps.append((name, Heatmap(values, names, trace.tokens, title, scale=scale, unit=unit)))
    page.add(Choices(maps))
    layers = [f"layer {i + 1}" for i in range(len(steps.changes))]
    title = "How much each token changes the state"
    changes = steps.changes.float().cpu().numpy()
    page.add(Heatmap(changes, layers, trace.tokens, title, unit="length of the change"))


def _unit_name(trace: ForwardTrace, units: UnitSummary, unit: int) -> str:
    """Return the number of a unit and what it follows."""
    group = int(units.groups[unit])
    tokens = " ".join(visible(name) for name in trace.names(units.favourites[unit]))
    what = (f"reads {tokens}", f"after {tokens}", "position", "memory", "")[group]
    return f"{unit + 1} {what}".strip()


@contextmanager
def differentiating(model: nn.Module) -> Iterator[None]:
    """Disable dropout, keep gradients, and restore training mode afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            yield  # cuDNN differentiates recurrent layers in training mode only
    finally:
        model.train(training)


def gradient_norms(
    trace: ForwardTrace, model: NeuralLanguageModel, embedding: nn.Module
) -> tuple[NDArray[np.int64], Floats]:
    """Return the positions (R,) of the last predictions and the size (R, T) of the gradient of each
    log-probability with respect to the vector of each token before it.
    """
    targets = trace.targets
    positions = np.arange(len(targets))[-MOST_TRACED:]
    vectors: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        vectors.append(output.detach().requires_grad_())
        return vectors[-1]

    ids = trace.tensor(trace.ids[: len(targets)]).expand(len(positions), -1)
    handle = embedding.register_forward_hook(keep)
    try:
        with differentiating(model):
            rows = torch.arange(len(positions), device=ids.device)
            places = torch.as_tensor(positions, device=ids.device)
            logits = model.head(model.hidden(ids)[rows, places]).float()  # (R, V)
            wanted = torch.tensor([targets[i] for i in positions], device=ids.device)
            total = logits.log_softmax(-1)[rows, wanted].sum()
            (gradient,) = torch.autograd.grad(total, vectors[0])  # (R, T, D)
    finally:
        handle.remove()
    return positions, gradient.norm(dim=-1).double().cpu().numpy()


def _shares(norms: Floats) -> Floats:
    """Return rows that sum to 1, or to 0."""
    totals = norms.sum(1, keepdims=True)
    return np.asarray(norms / np.where(totals > 0, totals, 1.0))


def add_gradients(
    page: Page, trace: ForwardTrace, model: NeuralLanguageModel, embedding: nn.Module
) -> None:
    """Draw how much each prediction depends on each token before it, by gradients."""
    if not trace.targets:
        return
    positions, norms = gradient_norms(trace, model, embedding)
    shares = _shares(norms)
    distance = float(
        (shares * np.clip(positions[:, None] - np.arange(shares.shape[1]), 0, None)).sum(1).mean()
    )
    rest = f" The last {len(positions)} predictions are drawn." if positions[0] else ""
    page.section(
        "Back through time",
        "How much the log-probability of each token (down) would change with the vector of each "
        "token before it (across): the length of the gradient, as a share of its row. On average "
        f"it reaches {distance:.1f} tokens back from the last one read.{rest}",
    )
    rows = trace.names(trace.targets[i] for i in positions)
    columns = trace.tokens[: shares.shape[1]]
    title = "Share of the gradient"
    page.add(Heatmap(shares, rows, columns, title, scale="weights", unit="of the gradient"))


@register_view(MLP)
def add_window(page: Page, trace: ForwardTrace, model: MLP) -> None:
    """Draw what each place of the window weighs: by gradients on the text, and in the weights."""
    window = model.config.window
    places = [_place_name(n) for n in range(window)]
    first = cast(nn.Linear, model.layers[0]).weight.detach()  # (D, window · d_embedding)
    blocks = first.view(len(first), window, -1).square().mean((0, 2)).sqrt().flip(0)  # near first
    page.section(
        "Window",
        f"This network reads the last {window:,} tokens and nothing else. Their vectors are joined "
        "and multiplied by one matrix: a place with small weights hardly matters. The gradient "
        "says the same of the predictions of this text.",
    )
    bars = [Bars(places, blocks.tolist(), title="Size of the weights of each place", unit="RMS")]
    if trace.targets:
        positions, norms = gradient_norms(trace, model, model.embedding)
        shares, at = _shares(norms), np.arange(len(positions))
        means = [
            float(shares[at, positions - n][positions >= n].mean())
            if (positions >= n).any()
            else 0.0
            for n in range(window)
        ]
        title = "Share of the gradient of this text"
        bars.append(Bars(places, means, title=title, unit="mean share"))
    page.add(*bars)
    add_gradients(page, trace, model, model.embedding)


def _place_name(distance: int) -> str:
    if not distance:
        return "the last token"
    return f"{distance} before it"
