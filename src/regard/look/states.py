"""What is inside a hidden Markov model: where its states lead, what they emit, and which of them
spelt the text.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.models.hidden_markov import HiddenMarkov

from .page import Heatmap, Page, Tagged
from .page.component import visible
from .reading import Reading

MOST_STATES = 64
MOST_EMITTED = 48  # rows of the emissions that are shown
TOLD = 4  # symbols named when a state is described


def add_states(page: Page, reading: Reading, model: HiddenMarkov) -> None:
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


def path(reading: Reading, model: HiddenMarkov) -> Tagged:
    """The text, each token under the state that the most probable path gives it."""
    ids = [*reading.ids[:1], *reading.targets]
    found = model.viterbi(torch.tensor([ids]))[0].tolist()
    notes = {named(i): emits(reading, model, i) for i in set(found) if i >= 0}
    tags = [None if i < 0 else named(i) for i in found]
    return Tagged(reading.names(ids), tags, notes=notes, title="The most probable path")


def visited(reading: Reading, posterior: Tensor) -> Heatmap:
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


def emits(reading: Reading, model: HiddenMarkov, state: int) -> str:
    """What a state emits most, in words."""
    strength, symbol = model.emission[:, state].topk(min(TOLD, model.vocab_size))
    names = map(visible, reading.names(symbol.tolist()))
    told = zip(names, strength.tolist(), strict=True)
    return "emits " + ", ".join(f"{name} {p:.0%}" for name, p in told)


def named(state: int) -> str:
    """How a state is called on the page."""
    return f"state {state + 1}"
