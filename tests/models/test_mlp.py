"""The window network against the same sums written out, position by position."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.models.mlp import ACTIVATIONS, MAX_ONEHOT, MLP, MLPConfig, bengio, onehot

V = 11


def make(**options):
    torch.manual_seed(2)
    config = MLPConfig(**{"window": 4, "d_model": 7, "d_embedding": 5, **options})
    model = MLP(V, config).double().eval()
    for layer in model.layers:  # zeros at first, which would hide them
        torch.nn.init.normal_(layer.bias)
    return model


def ids(*shape, seed=0):
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("embedding", ["learned", "onehot"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("n_layers", [1, 3])
@torch.no_grad()
def test_every_position_is_bengios_equation_on_the_last_symbols(embedding, activation, n_layers):
    model, x = make(embedding=embedding, activation=activation, n_layers=n_layers), ids(2, 9)
    table = model.embedding.weight if embedding == "learned" else torch.eye(V).double()
    activate = ACTIVATIONS[activation]
    logits = model.logits(x)
    for row in range(2):
        for t in range(9):
            seen = [table[x[row, s]] if s >= 0 else torch.zeros_like(table[0])
                    for s in range(t - 3, t + 1)]  # fmt: skip
            h = torch.cat(seen)
            for layer in model.layers:
                h = activate(layer.weight @ h + layer.bias)
            torch.testing.assert_close(logits[row, t], model.head.weight @ h)


@torch.no_grad()
def test_one_hot_symbols_are_an_identity_embedding():
    plain, learned = make(embedding="onehot"), make(d_embedding=V)
    learned.embedding.weight.copy_(torch.eye(V))
    learned.layers.load_state_dict(plain.layers.state_dict())
    learned.head.load_state_dict(plain.head.state_dict())
    x = ids(3, 8)
    torch.testing.assert_close(plain.logits(x), learned.logits(x))
    assert "embedding.weight" not in plain.state_dict()


@torch.no_grad()
def test_records_that_share_a_row_do_not_meet():
    model = make()
    a, b = ids(1, 2), ids(1, 6, seed=1)
    segments = torch.tensor([[1] * 2 + [2] * 6 + [0]])
    row = torch.cat([a, b, torch.zeros(1, 1, dtype=torch.long)], 1)
    expected = torch.cat([model.logits(a), model.logits(b)], 1)
    torch.testing.assert_close(model.logits(row, segments)[:, :8], expected)


def test_it_learns_a_rule_of_three_symbols():
    """The next symbol is the sum of the last three, modulo V: none of them alone says anything."""
    x = ids(256, 3, seed=3)
    torch.manual_seed(0)
    model = MLP(V, MLPConfig(d_model=128, d_embedding=16, activation="relu2"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(80):
        loss = F.cross_entropy(model.logits(x)[:, -1], x.sum(1) % V)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1 * math.log(V)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"window": 0}, "window must be from 1"),
        ({"embedding": "random"}, "embedding must be one of learned, onehot"),
        ({"activation": "swiglu"}, "activation must be one of tanh, relu, gelu, gelu_exact, relu2"),
        ({"dropout": -0.1}, "dropout must be"),
        ({"d_embedding": 0}, "d_embedding must be from 1"),
    ],
)
def test_a_wrong_config_names_the_field(change, words):
    with pytest.raises(ValueError, match=words):
        MLPConfig(**change)


def test_vectors_as_wide_as_a_large_vocabulary_are_refused():
    with torch.device("meta"):
        MLP(MAX_ONEHOT, onehot(1, 8))
        with pytest.raises(UsageError, match="at most 4,096 symbols, got 4,097"):
            MLP(MAX_ONEHOT + 1, onehot(1, 8))


def test_the_initial_loss_is_near_that_of_guessing():
    torch.manual_seed(0)
    for preset in (bengio, onehot):
        model = MLP(50, preset(1, 64))
        x = torch.randint(0, 50, (4, 33))
        loss = -model.score(x[:, :-1], x[:, 1:]).detach().mean()
        assert abs(float(loss) - math.log(50)) < 0.3
