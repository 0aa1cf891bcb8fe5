"""Int8 layers against the same sums in double precision: only rounding differs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from regard.decoding import Greedy, generate
from regard.errors import UsageError
from regard.layers.int8 import Int8Linear, quantize, to_int8
from regard.models.decoder import Decoder, gpt2, modern
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.registry import MODELS

V = 23


def layer(bias: bool = True) -> nn.Linear:
    torch.manual_seed(5)
    return nn.Linear(48, 17, bias=bias)


def stored(linear: Int8Linear) -> torch.Tensor:
    """The weights that the layer really has."""
    return linear.weight.double() * linear.scale.double()[:, None]


def test_no_weight_moves_by_more_than_half_a_step():
    linear = layer()
    small = Int8Linear(linear)
    assert small.weight.dtype == torch.int8 and small.weight.abs().max() == 127
    steps = small.scale.double()[:, None]
    assert ((stored(small) - linear.weight.double()).abs() <= steps * 0.5001).all()


@pytest.mark.parametrize("bias", [False, True])
def test_outputs_are_those_of_the_stored_weights_up_to_the_rounding_of_the_input(bias):
    small = Int8Linear(layer(bias))
    x = torch.randn(3, 5, 48) * torch.logspace(-3, 3, 15).view(3, 5, 1)
    exact = x.double() @ stored(small).t()
    if bias:
        exact = exact + small.bias.double()
    step = x.double().abs().amax(-1, keepdim=True) / 127  # each input moves by half of it at most
    bound = step / 2 * stored(small).abs().sum(-1) * 1.001 + 1e-6 * exact.abs()
    assert small(x).shape == (3, 5, 17)
    assert ((small(x).double() - exact).abs() <= bound).all()
    assert ((small(x).double() - exact).abs() > 0).any()


def test_whole_numbers_go_through_without_any_error():
    small = Int8Linear(layer())
    x = torch.randint(-127, 128, (4, 48)).float()
    x[:, 0] = 127
    exact = x.double() @ stored(small).t() + small.bias.double()
    torch.testing.assert_close(small(x).double(), exact, atol=1e-5, rtol=1e-5)


def test_a_row_does_not_depend_on_the_rows_beside_it():
    small = Int8Linear(layer())
    x = torch.randn(6, 48)
    x[3] *= 1e4
    assert torch.equal(small(x), torch.cat([small(row[None]) for row in x]))


def test_zeros_stay_zeros_and_nonsense_stays_nonsense():
    small = Int8Linear(layer(bias=False))
    assert torch.equal(small(torch.zeros(2, 48)), torch.zeros(2, 17))
    assert small(torch.full((1, 48), torch.nan)).isnan().all()
    assert torch.equal(quantize(torch.zeros(1, 4))[0], torch.zeros(1, 4, dtype=torch.int8))


def test_a_tied_head_gets_weights_of_its_own_and_the_embedding_keeps_its():
    model = Decoder(V, gpt2(1, 32)).eval()
    before = model.embedding.weight.clone()
    to_int8(model)
    assert isinstance(model.head, Int8Linear)
    assert torch.equal(model.embedding.weight, before)
    assert not [m for m in model.modules() if type(m) is nn.Linear]


@pytest.mark.parametrize(
    "model",
    [Decoder(V, modern(2, 32)), LSTMModel(V, RecurrentConfig(d_model=32))],
    ids=["decoder", "lstm"],
)
def test_models_predict_nearly_the_same(model):
    model = copy.deepcopy(model).eval()
    ids = torch.randint(0, V, (4, 12), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        exact = model.logits(ids).log_softmax(-1)
        to_int8(model)
        rough = model.logits(ids).log_softmax(-1)
    assert 0 < (exact - rough).abs().mean() < 0.02


def test_a_trained_model_makes_mostly_the_same_tokens():
    torch.manual_seed(0)
    model = Decoder(V, modern(2, 32))
    rows = torch.randint(3, V, (4, 1)) + torch.arange(25) * torch.tensor([[1], [2], [3], [5]])
    rows = 3 + (rows - 3) % (V - 3)  # four ways of counting round
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(120):
        logits = model.logits(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    prompts = rows[:, :3].tolist()

    def tokens() -> torch.Tensor:
        sequences = generate(model, prompts, Greedy(), max_new=20, end=2, banned=[2])
        return torch.tensor([best.ids for (best,) in sequences])

    exact = tokens()
    assert (exact == rows[:, 3:23]).float().mean() > 0.9  # it has learnt something
    to_int8(model)
    assert (tokens() == exact).float().mean() > 0.9


def test_models_that_cannot_be_converted_are_refused():
    with pytest.raises(UsageError, match="no linear layers"):
        to_int8(MODELS.get("bigram")(V, MODELS.get("bigram").Config()))
    with torch.device("meta"):
        meta = Decoder(V, modern(1, 32))
    with pytest.raises(UsageError, match=r"for a CPU.*meta"):
        to_int8(meta)
