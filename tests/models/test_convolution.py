"""Convolutions against torch's, what they see by gradient, and decoding against reading at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from regard.decoding import Beam, Greedy, Sample, engine, generate
from regard.layers.cache import DecodeState, Ring
from regard.layers.convolution import (
    FILTERS,
    ConvolutionBlock,
    ConvolutionContext,
    Gated,
    PastWindow,
)
from regard.models.convolution import CNN, CNNConfig, modern, wavenet
from regard.models.mlp import MLP, MLPConfig

V = 13
SHAPES = [
    {"n_layers": 3, "kernel": 2},
    {"n_layers": 2, "kernel": 3},
    {"n_layers": 5, "kernel": 2, "cycle": 2},
    {"n_layers": 1, "kernel": 1},
]


def ids(*shape, seed=0):
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


def cnn(**options):
    torch.manual_seed(3)
    return CNN(V, CNNConfig(**{"n_layers": 3, "d_model": 6, "d_ff": 7, **options})).eval()


def mlp(**options):
    torch.manual_seed(4)
    return MLP(V, MLPConfig(**{"d_model": 8, "d_embedding": 5, **options})).eval()


@pytest.mark.parametrize("kernel", [1, 2, 4])
@pytest.mark.parametrize("dilation", [1, 3])
@pytest.mark.parametrize("length", [2, 11])
def test_the_past_times_a_matrix_is_torchs_convolution(kernel, dilation, length):
    torch.manual_seed(0)
    x = torch.randn(2, length, 3, dtype=torch.double)
    weight = torch.randn(5, 3, kernel, dtype=torch.double)  # (out, in, k)
    padded = F.pad(x.mT, ((kernel - 1) * dilation, 0))
    expected = F.conv1d(padded, weight, dilation=dilation).mT  # (B, T, 5)
    seen = PastWindow(kernel, dilation)(x, ConvolutionContext())
    torch.testing.assert_close(seen @ weight.mT.flatten(1).mT, expected)


def test_wavenets_gate_is_its_equation_two():
    torch.manual_seed(1)
    part = Gated(4, 6, bias=True, d_in=8).double()
    block = ConvolutionBlock("gated", 4, 6, nn.Identity(), PastWindow(2, 3), dropout=0.0).double()
    block.feedforward = part
    x = torch.randn(2, 9, 4, dtype=torch.double)
    kernels = part.gate_up.weight.view(2, 6, 2, 4).mT  # gate and filter, each (F, D, k)
    padded = F.pad(x.mT, (3, 0))
    biases = part.gate_up.bias.view(2, 6)
    gate, filtered = (
        F.conv1d(padded, kernels[i], biases[i], dilation=3) for i in range(2)
    )  # (B, F, T)
    z = torch.tanh(filtered) * torch.sigmoid(gate)
    torch.testing.assert_close(block(x, ConvolutionContext()), x + part.down(z.mT))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("feedforward", FILTERS)
def test_the_receptive_field_is_exact_by_gradient(shape, feedforward):
    model = cnn(feedforward=feedforward, **shape).double()
    field = model.config.receptive_field
    check_field(model, field)


@pytest.mark.parametrize("window", [1, 3, 6])
@pytest.mark.parametrize("n_layers", [1, 2])
def test_so_is_an_mlps_window(window, n_layers):
    model = mlp(window=window, n_layers=n_layers).double()
    check_field(model, window)


def check_field(model, field):
    """What is read at each of the last positions by gradient: `field` of them, and not one more."""
    inputs = []
    handle = model.embedding.register_forward_hook(
        lambda module, given, out: inputs.append(out.detach().requires_grad_()) or inputs[-1]
    )
    y = model.hidden(ids(1, field + 3))
    handle.remove()
    at = field + 1  # not the last position: what comes after it must not matter either
    y[0, at].square().sum().backward()
    size = inputs[0].grad[0].abs().amax(-1)  # (T,)
    assert (size > 0).tolist() == [at - field < s <= at for s in range(field + 3)]


def test_receptive_fields_and_dilations_by_hand():
    assert modern(3, 64).receptive_field == 8 and modern(3, 64).dilations == [1, 2, 4]
    assert wavenet(30, 8).dilations == 3 * [1 << i for i in range(10)]  # the paper's stack
    assert wavenet(10, 8).receptive_field == 1024  # section 2.1
    assert CNNConfig(n_layers=3, kernel=3).receptive_field == 1 + 2 * (1 + 2 + 4)


@torch.no_grad()
def test_records_that_share_a_row_do_not_meet():
    model = cnn(n_layers=4).double()
    a, b, c = ids(1, 3), ids(1, 9, seed=1), ids(1, 5, seed=2)
    row = torch.cat([a, b, c], 1)
    segments = torch.tensor([[1] * 3 + [2] * 9 + [3] * 5])
    expected = torch.cat([model.logits(x) for x in (a, b, c)], 1)
    torch.testing.assert_close(model.logits(row, segments), expected)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 7), min_size=3, max_size=3), min_size=1, max_size=7),
    st.booleans(),
    st.sampled_from([cnn(n_layers=3, kernel=3), cnn(n_layers=4), mlp(), mlp(window=1)]),
)
@torch.no_grad()
def test_any_pieces_fed_to_any_rows_give_what_reading_at_once_gives(pieces, even, model):
    model = model.double()
    x, seen = ids(3, 50), torch.zeros(3, dtype=torch.long)
    whole = model.logits(x)
    state = model.init_state(3, 50)
    for piece in pieces:
        lengths = torch.tensor([piece[0]] * 3 if even else piece)
        places = (seen[:, None] + torch.arange(int(lengths.max()))).clamp_max(49)
        logits = model.step(x.gather(1, places), None if even else lengths, state)
        seen = seen + lengths
        torch.testing.assert_close(logits, whole[torch.arange(3), seen - 1])


@torch.no_grad()
def test_a_step_of_decoding_touches_as_much_however_far_back_is_seen():
    near, far = cnn(n_layers=2), cnn(n_layers=10)
    assert [len(r.tensor[0]) for r in far.init_state(1, 5000).layers] == [
        (1 << i) + 1 for i in range(10)
    ]
    assert [r.tensor.shape for r in near.init_state(1, 9).layers] == [
        r.tensor.shape for r in near.init_state(1, 5000).layers
    ]
    state = far.init_state(1, 5000)
    far.step(ids(1, 2000), None, state)
    before = [ring.tensor.clone() for ring in state.layers]
    far.step(ids(1, 1), None, state)
    for ring, old in zip(state.layers, before, strict=True):
        assert int((ring.tensor != old).any(-1).sum()) == 1  # one vector of each layer moves


def test_a_ring_keeps_order_over_reordering_expanding_and_resetting():
    ring = Ring(2, 3, 1, torch.zeros(1))
    state = DecodeState([ring], 2, 9)
    for p in range(5):
        ring.write(p, torch.tensor([[p + 1.0], [p + 11.0]]))
    assert ring.last(5)[..., 0].tolist() == [[3, 4, 5], [13, 14, 15]]
    assert ring.read(torch.tensor([4, 3]))[:, 0].tolist() == [5, 14]
    state.expand(2)
    assert ring.last(5)[..., 0].tolist() == [[3, 4, 5]] * 2 + [[13, 14, 15]] * 2
    wide = ring.tensor
    state.select(torch.tensor([0, 1, 0, 3]))
    assert ring.tensor is wide and ring.read(4)[:, 0].tolist() == [5, 5, 5, 15]
    ring.refill(torch.tensor([5, 5, 6, 7]), torch.arange(12.0).view(4, 3, 1))
    assert ring.last(torch.tensor([5, 5, 6, 7])).flatten().tolist() == list(range(12))
    state.reset()
    assert ring.tensor.shape == (2, 3, 1) and not ring.tensor.any()
    state.expand(2)
    assert ring.tensor is wide and not wide.any()


MODELS = {"cnn": cnn, "wavenet": lambda: cnn(feedforward="gated"), "mlp": mlp}
MODELS["onehot"] = lambda: mlp(embedding="onehot", activation="relu")


@pytest.mark.parametrize("strategy", [Greedy(), Sample(seed=4), Beam(width=3)], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_recorded_steps_decode_as_plain_ones(name, strategy, monkeypatch):
    model, used = MODELS[name](), []
    prompts = [[1, 5], [1, 7, 8, 9], [1]]

    def decoded():
        return generate(model, prompts, strategy, max_new=50, end=2, banned=[2], batch_size=6)

    record = engine.ReplayedStep
    monkeypatch.setattr(engine, "ReplayedStep", lambda *args: used.append(1) or record(*args))
    replayed = decoded()
    assert used
    monkeypatch.setattr(engine, "replay_pays", lambda *args: False)
    for ours, plain in zip(replayed, decoded(), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in plain]
        assert ours[0].score == pytest.approx(plain[0].score, abs=1e-4)


def test_it_learns_what_lies_within_its_receptive_field_and_nothing_beyond():
    """The task: say again the symbol that stood seven before the last. Eight are seen, or four."""
    losses = {}
    for n_layers in (2, 3):
        torch.manual_seed(0)
        model = CNN(V, modern(n_layers, 24))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        for step in range(50):
            x = ids(32, 20, seed=step)
            loss = -model.score(x, x.roll(7, 1))[:, 7:].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[n_layers] = loss.item()
    assert losses[3] < 0.5 and losses[2] > 2.4  # ln 13 = 2.56 is guessing


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kernel": 0}, "kernel must be from 1"),
        ({"cycle": 17}, "cycle must be from 1 to 16"),
        (
            {"feedforward": "tanh"},
            "feedforward must be one of relu, gelu, gelu_exact, relu2, swiglu, gated",
        ),
        ({"norm": "batch"}, "norm must be one of rms, layer"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"n_layers": 0}, "n_layers must be from 1"),
    ],
)
def test_a_wrong_config_names_the_field(change, words):
    with pytest.raises(ValueError, match=words):
        CNNConfig(**change)


def test_the_initial_loss_is_near_that_of_guessing():
    torch.manual_seed(0)
    for preset in CNN.PRESETS.values():
        model = CNN(50, preset(4, 64))
        x = torch.randint(0, 50, (4, 33))
        loss = -model.score(x[:, :-1], x[:, 1:]).detach().mean()
        assert abs(float(loss) - 3.91) < 0.3  # ln 50
