"""Edits of activations: a plain-PyTorch oracle, laws, and errors."""

import pytest
import torch
from plain_gpt2 import GPT2, decoder, plain_gpt2

from regard.errors import UsageError
from regard.layers.tap import Edit, Tap
from regard.models.convolution import CNN, CNNConfig
from regard.models.mlp import MLP, MLPConfig
from regard.models.recurrent import LSTMModel, RecurrentConfig

ALL = slice(None)


@pytest.fixture
def ids():
    return torch.randint(0, 17, (2, 9), generator=torch.Generator().manual_seed(1))


def test_ablated_heads_equal_plain_pytorch(ids):
    model = decoder(**GPT2)
    edits = [
        Edit.zero("block.0.attention.heads", (ALL, 2)),
        Edit.zero("block.1.attention.heads", (ALL, 0)),
    ]
    found = model.logits(ids, tap=Tap(edits=edits))
    torch.testing.assert_close(
        found, plain_gpt2(model, ids, heads={(0, 2), (1, 0)}), atol=1e-6, rtol=0
    )
    assert (found - model.logits(ids)).abs().max() > 1e-3


@pytest.mark.parametrize("position", [None, 4])
def test_a_patched_residual_stream_equals_plain_pytorch(ids, position):
    model, other = decoder(**GPT2), ids.flip(1)
    tap = Tap(["block.0.output"])
    model.logits(other, tap=tap)
    source = tap.activations["block.0.output"]
    where = () if position is None else (ALL, position)
    value = source if position is None else source[:, position]
    found = model.logits(ids, tap=Tap(edits=[Edit.replace("block.0.output", value, where)]))
    expected = plain_gpt2(model, ids, swap=(0, source, position))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_rows_of_a_batch_can_have_different_edits(ids):
    """The effect of every head in one batch: row h has head h switched off."""
    model, row = decoder(), ids[:1]
    factor = (1 - torch.eye(3))[:, :, None, None]  # (B, H, 1, 1)
    edit = Edit.scale("block.1.attention.heads", factor)
    together = model.logits(row.expand(3, -1), tap=Tap(edits=[edit]))
    for h in range(3):
        alone = Edit.zero("block.1.attention.heads", (ALL, h))
        one = model.logits(row, tap=Tap(edits=[alone]))
        torch.testing.assert_close(together[h : h + 1], one, atol=1e-5, rtol=0)


def test_an_edit_that_changes_nothing_leaves_every_logit(ids):
    model = decoder(feedforward="swiglu")
    tap = Tap(["*"])
    expected = model.logits(ids, tap=tap)
    for name, activation in tap.activations.items():
        same = [Edit.scale(name, 1.0), Edit.add(name, 0.0), Edit.replace(name, activation)]
        found = model.logits(ids, tap=Tap(edits=same))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0, msg=name)


@pytest.mark.parametrize("feedforward", ["swiglu", "gelu"])
def test_every_activation_of_a_decoder_has_an_effect(ids, feedforward):
    """Each is what `forward` goes on with, not a copy."""
    model = decoder(feedforward=feedforward)
    tap = Tap(["*"])
    expected = model.logits(ids, tap=tap)
    assert {name.rpartition(".")[2] for name in tap.activations} == {
        *("embedding", "norm", "q", "k", "v", "scores", "weights", "heads", "output"),
        *("residual", "hidden", "logits"),
    }
    for name in tap.activations:
        where = (ALL, ALL, 3) if tap.activations[name].dim() == 4 else (ALL, 3)
        factor = 1 + torch.rand_like(tap.activations[name][where])  # norms undo equal factors
        found = model.logits(ids, tap=Tap(edits=[Edit.scale(name, factor, where)]))
        assert (found - expected).abs().max() > 1e-6, name
        assert (found - expected)[:, :3].abs().max() < 1e-5, name  # nothing of the past changes


@pytest.mark.parametrize(
    "model",
    [
        lambda: CNN(17, CNNConfig(n_layers=2, d_model=16, max_len=16)),
        lambda: LSTMModel(17, RecurrentConfig(n_layers=2, d_model=16, max_len=16)),
        lambda: MLP(17, MLPConfig(n_layers=2, d_model=16, max_len=16)),
        lambda: decoder(mixers=("hyena", "linear")),
    ],
    ids=["cnn", "lstm", "mlp", "hyena and linear"],
)
def test_the_activations_of_other_families_can_be_edited(model, ids):
    torch.manual_seed(0)
    model, tap = model().eval(), Tap(["*"])
    expected = model.logits(ids, tap=tap)
    assert len(tap.activations) > 1
    for name in tap.activations:
        edit = Edit.scale(name, 1 + torch.rand_like(tap.activations[name]))
        found = model.logits(ids, tap=Tap(edits=[edit]))
        assert (found - expected).abs().max() > 1e-6, name


def test_what_is_recorded_is_what_the_edit_leaves(ids):
    tap = Tap(["embedding"], edits=[Edit.zero("embedding", (0,)), Edit.add("embedding", 2.0)])
    decoder().logits(ids, tap=tap)
    assert (tap.activations["embedding"][0] == 2).all()
    assert tap.names >= {"embedding", "block.1.attention.heads", "logits"}


def test_unknown_names_are_refused(ids):
    tap = Tap(edits=[Edit.zero("block.0.attention.head")])
    decoder().logits(ids, tap=tap)
    with pytest.raises(
        UsageError, match=r"no activation is called 'block.0.attention.head'.*heads"
    ):
        tap.check_edits()
