"""Views of recurrent networks and of windows: their numbers against torch's cells and against
finite differences.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_models import TOKENIZER, lstm, record
from torch import nn

from regard.look import network_views
from regard.look.internals import ForwardTrace, add_inside
from regard.look.network_views import (
    FEATURES,
    explained_share,
    gradient_norms,
    run_cells,
    summarize_units,
)
from regard.look.page import Bars, Heatmap, Page
from regard.models.mlp import MLP, MLPConfig
from regard.models.recurrent import GRUModel, RecurrentConfig, RNNModel


def inner(model, text):
    page = Page("inside")
    add_inside(page, ForwardTrace(model, TOKENIZER, record(text), continues=False))
    return page


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_the_steps_are_those_of_torchs_cells(cell):
    torch.manual_seed(0)
    cells, x = cell(5, 5, 2, batch_first=True), torch.randn(1, 7, 5)
    initial = [torch.randn(2, 1, 5) for _ in range(2 if cell is nn.LSTM else 1)]
    with torch.no_grad():
        output, last = cells(x, tuple(initial) if cell is nn.LSTM else initial[0])
        steps = run_cells(cells, x[0], [vector[:, 0] for vector in initial])
    assert steps.values["output"].numpy() == pytest.approx(output[0].numpy(), abs=1e-6)
    if cell is nn.LSTM:
        assert steps.values["cell"][-1].numpy() == pytest.approx(last[1][-1, 0].numpy(), abs=1e-6)
    gates = {name for name in steps.values if name.endswith("gate")}
    assert len(gates) == {nn.LSTM: 3, nn.GRU: 2, nn.RNN: 0}[cell]
    before = torch.cat([initial[0][-1], output[0, :-1]])
    assert steps.changes[-1].tolist() == pytest.approx(
        (output[0] - before).norm(dim=1).tolist(), abs=1e-6
    )


def test_the_hidden_state_is_the_state_the_model_carries():
    model, ids = lstm(), record("cabb")
    page = inner(model, "cabb")
    maps = {heatmap.title.split()[0]: heatmap for heatmap in of(page, Heatmap)}
    state, carried = model.init_state(1, 5), []
    with torch.no_grad():
        for i in ids:
            model.step(torch.tensor([[i]]), None, state)
            carried.append([vector[-1, 0].numpy() for vector in state.layers[0].vectors])
    for name, part in (("Output", 0), ("Cell", 1)):
        shown = maps[name]
        units = [int(row.split()[0]) - 1 for row in shown.rows]
        assert sorted(units) == list(range(7)) and list(shown.columns) == ["<S>", *"cabb"]
        expected = np.array([step[part] for step in carried]).T[units]
        assert shown.array() == pytest.approx(expected, abs=1e-6)
    assert {"Forget", "Input", "Cell", "Output", "How", "Share"} == set(maps)
    (bars,) = of(page, Bars)
    assert list(bars.labels) == list(FEATURES) and sum(bars.values) == 7


def test_a_unit_is_said_to_follow_what_it_was_planted_to_follow():
    random = np.random.default_rng(0)
    ids = [random.integers(0, 4, 30) for _ in range(20)]
    states = []
    for text in ids:
        before, walk = np.r_[3, text[:-1]], np.cumsum(random.normal(size=len(text)))
        columns = [text == 2, before == 1, np.minimum(np.arange(30), 12), 5 * walk]
        states.append(np.stack([*columns, random.normal(size=30)], 1).astype(float))
    units = summarize_units(states, ids)
    assert [FEATURES[i] for i in units.groups] == list(FEATURES)
    assert units.favourites[0][0] == 2 and units.favourites[1][0] == 1
    assert units.order(5) == [0, 1, 2, 3, 4] and len(units.order(1)) == 5  # one of each feature


def test_the_explained_share_is_adjusted_for_the_number_of_groups():
    random = np.random.default_rng(1)
    noise = random.normal(size=(40, 2000))
    assert explained_share(noise, np.arange(40) % 20).mean() < 0.2  # plain R² would be a half
    labels = np.arange(40) % 2
    assert explained_share(labels[:, None].astype(float), labels).tolist() == [1.0]


def tiny_mlp(window=3):
    torch.manual_seed(0)
    return MLP(TOKENIZER.vocab_size, MLPConfig(window=window, d_model=9, d_embedding=4)).eval()


@pytest.mark.parametrize(
    "model",
    [lstm(), GRUModel(TOKENIZER.vocab_size, RecurrentConfig(n_layers=1, d_model=6)), tiny_mlp()],
    ids=["lstm", "gru", "mlp"],
)
def test_the_gradient_is_that_of_finite_differences(model):
    model = model.double().eval()
    ids = record("abca")
    trace = ForwardTrace(model, TOKENIZER, ids, continues=False)
    positions, norms = gradient_norms(trace, model, model.embedding)
    assert positions.tolist() == [0, 1, 2, 3, 4] and norms.shape == (5, 5)
    assert np.triu(norms, 1).max() == 0  # later tokens do not matter
    row, step = torch.tensor([ids]), 1e-6
    vectors = model.embedding(row).detach()

    def log_p(changed, at):
        handle = model.embedding.register_forward_hook(lambda *_: changed)
        with torch.no_grad():
            logs = model.logits(row)[0, at].log_softmax(-1)
        handle.remove()
        return float(logs[trace.targets[at]])

    for at, token in ((4, 4), (4, 3), (2, 0)):
        slopes = []
        for d in range(vectors.size(-1)):
            delta = torch.zeros_like(vectors)
            delta[0, token, d] = step
            up, down = log_p(vectors + delta, at), log_p(vectors - delta, at)
            slopes.append((up - down) / (2 * step))
        assert norms[at, token] == pytest.approx(math.hypot(*slopes), abs=1e-5)
    model.float()


def test_a_long_text_traces_its_last_predictions(monkeypatch):
    monkeypatch.setattr(network_views, "MOST_TRACED", 3)
    model = lstm()
    shares = of(inner(model, "abbacab"), Heatmap)[-1]
    assert shares.array().shape == (3, 8) and list(shares.rows) == ["a", "b", "<E>"]
    assert shares.array().sum(1) == pytest.approx(np.ones(3))
    assert not any(p.grad is not None for p in model.parameters())


def test_a_window_sees_only_its_places():
    model = tiny_mlp(window=2)
    page = inner(model, "abbaca")
    weights, shares = of(page, Bars)
    assert list(weights.labels) == ["the last token", "1 before it"]
    first = model.layers[0].weight.detach()
    assert weights.values == pytest.approx(
        [float(first[:, 4:].square().mean().sqrt()), float(first[:, :4].square().mean().sqrt())]
    )
    (table,) = of(page, Heatmap)
    assert np.tril(table.array(), -2).max() == 0
    assert shares.values[0] == pytest.approx(np.diagonal(table.array()).mean())


def test_a_plain_recurrence_has_no_gates():
    model = RNNModel(TOKENIZER.vocab_size, RecurrentConfig(n_layers=1, d_model=6)).eval()
    titles = [heatmap.title for heatmap in of(inner(model, "abc"), Heatmap)]
    assert not any("gate" in title for title in titles) and titles[0].startswith("Output")
