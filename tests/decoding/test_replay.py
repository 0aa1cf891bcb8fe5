"""A replayed step is the step it was recorded from, for every kind of decoder."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.decoding import Beam, Greedy, Sample, cpu_replay, engine, generate
from regard.decoding.cpu_replay import STEPS, Replay, pays
from regard.layers.embeddings import Inputs
from regard.layers.int8 import to_int8
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.recurrent import LSTMConfig, LSTMModel

V = 29
VARIANTS = {
    **{preset: {"preset": preset} for preset in Decoder.PRESETS},
    "grouped": {"n_kv_heads": 2},
    "window": {"window": 5},
    **{p: {"positions": p} for p in ("none", "binary", "learned", "t5", "alibi")},
    **{s: {"score": s} for s in ("additive", "gaussian")},
    "relu2": {"feedforward": "relu2"},
    "first seen": {"window": 5, "first_seen": 2},
    "window alibi": {"window": 5, "positions": "alibi"},
    "linear": {"mixers": ("linear",)},
    "hyena": {"mixers": ("hyena",)},
    "third order": {"mixers": ("hyena",), "order": 3},
    "hybrid": {"mixers": ("hyena", "attention")},
}


def make(variant: str) -> Decoder:
    options = dict(VARIANTS[variant])
    torch.manual_seed(3)
    config = Decoder.PRESETS[options.pop("preset", "modern")](2, 32)
    heads = {"n_heads": 4, "n_kv_heads": 4, "d_head": 8}
    return Decoder(V, dataclasses.replace(config, max_len=80, **{**heads, **options})).eval()


def farthest(model: Decoder, rows: int) -> float:
    """How far replayed logits are from those of `extend`, over thirty steps of ragged rows."""
    prompt = torch.randint(0, V, (rows, 4), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([2, 4, 3, 1, 4])[:rows]
    most = 0.0
    with torch.inference_mode():
        one, other = model.start(rows, 40), model.start(rows, 40)
        for state in (one, other):
            model.extend(prompt, None if rows == 1 else lengths, state)
        recorded = Replay(model, one)
        for step in range(30):
            ids = torch.randint(0, V, (rows,), generator=torch.Generator().manual_seed(step))
            ones = None if rows == 1 else torch.ones(rows, dtype=torch.long)
            expected = model.extend(ids[:, None], ones, other)
            most = max(most, float((recorded(ids) - expected).abs().max()))
    return most


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_replayed_steps_give_the_logits_of_extend(variant, rows):
    assert farthest(make(variant), rows) < 1e-5


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("variant", ["modern", "gpt2", "grouped", "window", "alibi"])
def test_so_do_steps_of_large_models_with_the_kernels_chosen_for_them(variant, rows, monkeypatch):
    monkeypatch.setattr(cpu_replay, "LARGE", 0)
    monkeypatch.setattr(cpu_replay, "HEADS", 0)
    monkeypatch.setattr(cpu_replay, "KEYS", 0)
    monkeypatch.setattr(cpu_replay, "WIDE", 0)
    assert farthest(make(variant), rows) < 1e-5


@pytest.mark.parametrize("rows", [1, 5])
def test_so_do_steps_in_int8(rows):
    model = make("modern")
    to_int8(model)
    assert pays(model, model.start(rows, 40), STEPS)
    assert farthest(model, rows) < 0.02  # a difference in the last bit may move a rounding


@pytest.mark.parametrize("keys", [0, 64])  # by PyTorch, by NumPy
@pytest.mark.parametrize("preset", EncoderDecoder.PRESETS)
def test_beams_look_at_their_own_source_and_their_own_past(preset, keys, monkeypatch):
    monkeypatch.setattr(cpu_replay, "HEADS", 0)
    monkeypatch.setattr(cpu_replay, "KEYS", keys)
    torch.manual_seed(3)
    heads = {"n_heads": 4, "n_kv_heads": 4, "d_head": 8, "max_len": 80}
    config = dataclasses.replace(EncoderDecoder.PRESETS[preset](2, 32), **heads)
    generator = torch.Generator().manual_seed(1)
    segments = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    with torch.inference_mode():
        source = Inputs(torch.randint(4, V, (2, 7), generator=generator), segments)
        model = EncoderDecoder(V, config).eval().condition(source)
        one, other = model.start(2, 40), model.start(2, 40)
        for state in (one, other):
            model.extend(torch.ones(2, 1, dtype=torch.long), None, state)
            state.expand(3)
        recorded = Replay(model, one)
        for _ in range(30):
            ids = torch.randint(4, V, (6,), generator=generator)
            parents = torch.randint(0, 3, (2, 3), generator=generator)
            parents = (parents + torch.tensor([[0], [3]])).flatten()
            expected = model.extend(ids[:, None], None, other)
            torch.testing.assert_close(recorded(ids), expected, atol=1e-5, rtol=1e-5)
            one.select(parents)
            for layer in other.layers:  # all of it
                layer.select(parents)


@pytest.mark.parametrize("strategy", [Greedy(), Sample(seed=4), Beam(width=3)])
@pytest.mark.parametrize("context", [None, 24])
def test_every_strategy_decodes_the_same_with_and_without_replay(strategy, context, monkeypatch):
    model = make("modern")
    prompts = [[1, 5], [1, 7, 8, 9], [1]]

    def decoded():
        return generate(model, prompts, strategy, max_new=50, end=2, banned=[2], context=context)

    used = []
    monkeypatch.setattr(engine, "Replay", lambda *args: used.append(1) or Replay(*args))
    replayed = decoded()
    assert used or context == 24  # a short context leaves too few steps to record
    monkeypatch.setattr(engine, "pays", lambda *args: False)
    for ours, plain in zip(replayed, decoded(), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in plain]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=3)])
def test_batches_of_one_shape_share_one_recording(strategy, monkeypatch):
    model, used = make("modern"), []
    monkeypatch.setattr(engine, "Replay", lambda *args: used.append(1) or Replay(*args))
    prompts = [[1, 5, 4], [1, 7, 8], [1, 6, 6], [1, 2, 3]]

    def decoded(batch_size):
        return generate(
            model, prompts, strategy, max_new=50, end=2, banned=[2], batch_size=batch_size
        )

    apart = [generate(model, [p], strategy, max_new=50, end=2, banned=[2])[0] for p in prompts]
    used.clear()
    together = decoded(strategy.rows)
    assert len(used) == 1
    assert [[one.ids for one in found] for found in together] == [
        [one.ids for one in found] for found in apart
    ]


def test_recording_is_left_alone_where_it_cannot_or_need_not_work(monkeypatch):
    lstm = LSTMModel(V, LSTMConfig(d_model=8))
    assert not pays(lstm, lstm.start(1, 99), 99)  # its state moves from step to step
    model = make("modern")
    assert pays(model, model.start(1, 99), STEPS)
    assert not pays(model, model.start(1, 99), STEPS - 1)
    monkeypatch.setattr(cpu_replay, "OVERHEAD", 0)
    assert pays(model, model.start(1, 99), STEPS) == torch.backends.mkldnn.is_available()
    monkeypatch.setattr(cpu_replay, "WEIGHTS", 0)  # too large for a copy
    assert not pays(model, model.start(1, 99), STEPS)
    monkeypatch.undo()
    assert not pays(model.double(), model.start(1, 99), STEPS)


def test_a_replay_refuses_to_pass_the_capacity():
    model = make("gpt2")
    with torch.inference_mode():
        state = model.start(1, 3)
        model.extend(torch.zeros(1, 2, dtype=torch.long), None, state)
        replay = Replay(model, state)
        replay(torch.tensor([1]))
        with pytest.raises(ValueError, match="capacity"):
            replay(torch.tensor([1]))


def test_large_activations_saturate_without_a_warning():
    model = make("modern")
    with torch.inference_mode():
        for block in model.blocks:
            block.feedforward.gate_up.weight.mul_(1000)
        one, other = model.start(1, 9), model.start(1, 9)
        for state in (one, other):
            model.extend(torch.tensor([[1, 5]]), None, state)
        ids = torch.tensor([7])
        ours, plain = Replay(model, one)(ids), model.extend(ids[:, None], None, other)
        torch.testing.assert_close(ours, plain, atol=1e-3, rtol=1e-4)
