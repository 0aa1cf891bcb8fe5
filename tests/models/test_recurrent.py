"""Recurrences against torch's cells and against the cells' equations, written out in fp64."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from regard.models.recurrent import GRUModel, LSTMModel, RecurrentConfig, RNNModel
from regard.run import load_model, write_tensors
from regard.training.optimizer import block_matrices

V, D, LAYERS = 11, 7, 2
FAMILIES = {"rnn": RNNModel, "gru": GRUModel, "lstm": LSTMModel}
TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


def make(name, **options):
    torch.manual_seed(4)
    config = RecurrentConfig(**{"n_layers": LAYERS, "d_model": D, "max_len": 20, **options})
    model = FAMILIES[name](V, config).double().eval()
    for key, parameter in model.cells.named_parameters():
        if "bias" in key:  # zeros at first, which would hide them
            nn.init.normal_(parameter)
    return model


def ids(*shape, seed=0):
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


def rnn(x, memory, w, u, a, b):
    h = torch.tanh(w @ x + a + u @ memory[0] + b)
    return (h,)


def gru(x, memory, w, u, a, b):
    """Cho et al. 2014, the state reset after its product with U (torch's and cuDNN's variant)."""
    (h,) = memory
    r, z, n = (w @ x + a).chunk(3)
    ru, zu, nu = (u @ h + b).chunk(3)
    r, z = torch.sigmoid(r + ru), torch.sigmoid(z + zu)
    return ((1 - z) * torch.tanh(n + r * nu) + z * h,)


def lstm(x, memory, w, u, a, b):
    """Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000."""
    h, c = memory
    i, f, g, o = (w @ x + a + u @ h + b).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


EQUATIONS = {"rnn": rnn, "gru": gru, "lstm": lstm}


@torch.no_grad()
def test_the_logits_are_those_of_the_equations(name):
    model, x = make(name), ids(2, 6)
    cells = model.cells.cells
    logits = model.logits(x)
    for row in range(2):
        memories = [tuple(torch.zeros(D).double() for _ in range(1 + (name == "lstm")))] * LAYERS
        for t in range(6):
            h = model.embedding.weight[x[row, t]]
            for layer in range(LAYERS):
                weights = [
                    getattr(cells, f"{key}_l{layer}")
                    for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                ]
                memories[layer] = EQUATIONS[name](h, memories[layer], *weights)
                h = memories[layer][0]
            torch.testing.assert_close(logits[row, t], model.head.weight @ h)


@torch.no_grad()
def test_the_cells_are_torchs_on_the_same_weights(name):
    model, x = make(name), ids(3, 8)
    theirs = TORCH[name](D, D, LAYERS, batch_first=True).double()
    theirs.load_state_dict(model.cells.cells.state_dict())
    torch.testing.assert_close(model.hidden(x), theirs(model.embedding(x))[0], rtol=0, atol=0)


@torch.no_grad()
def test_a_state_is_carried_over_ragged_pieces(name):
    model, x = make(name), ids(3, 9)
    whole, state = model.logits(x), model.start(3, 9)
    lengths = torch.tensor([2, 6, 4])
    rows = torch.arange(3)
    torch.testing.assert_close(model.extend(x[:, :6], lengths, state), whole[rows, lengths - 1])
    more = x.gather(1, lengths[:, None] + torch.arange(2))
    torch.testing.assert_close(model.extend(more, None, state), whole[rows, lengths + 1])
    assert len(state.layers[0].vectors) == (2 if name == "lstm" else 1)


def test_muon_takes_each_gate_by_itself(name):
    model = make(name)
    matrices, parts = block_matrices(model)
    assert len(matrices) == 2 * LAYERS  # input and recurrent; embedding and head stay outside
    for matrix in matrices:
        assert parts[matrix] == (D,) * GATES[name]


def test_an_lstm_remembers_at_first(name):
    torch.manual_seed(0)
    model = FAMILIES[name](V, RecurrentConfig(n_layers=1, d_model=D))
    biases = torch.cat([p for n, p in model.cells.named_parameters() if "bias" in n])
    ones = biases == 1
    assert int(ones.sum()) == (D if name == "lstm" else 0) and not biases[~ones].any()
    if name == "lstm":
        assert bool(model.cells.cells.bias_ih_l0[D : 2 * D].eq(1).all())  # i, f, g, o


def test_runs_of_lstms_made_before_there_were_others_load(tmp_path):
    """Their config.json says only this, and their tensors are named like this."""
    config = {"n_layers": 2, "d_model": 4, "max_len": 16, "dropout": 0.0}
    (tmp_path / "config.json").write_text(
        json.dumps({"family": "lstm", "vocab_size": 5, "config": config})
    )
    tensors = {"embedding.weight": torch.randn(5, 4), "head.weight": torch.randn(5, 4)}
    for layer in range(2):
        for kind in ("ih", "hh"):
            tensors[f"cells.cells.weight_{kind}_l{layer}"] = torch.randn(16, 4)
            tensors[f"cells.cells.bias_{kind}_l{layer}"] = torch.randn(16)
    write_tensors(tmp_path / "model.safetensors", tensors)
    model = load_model(tmp_path)
    assert type(model) is LSTMModel
    for key, value in model.state_dict().items():
        assert torch.equal(value, tensors[key])


def test_packed_records_are_refused(name):
    with pytest.raises(ValueError, match="cannot keep packed records apart"):
        make(name).hidden(ids(1, 4), torch.ones(1, 4, dtype=torch.long))


@pytest.mark.parametrize("change", [{"n_layers": 0}, {"d_model": 0}, {"dropout": 1.0}])
def test_a_wrong_config_names_the_field(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        RecurrentConfig(**change)
