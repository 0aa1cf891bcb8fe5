"""A replayed step gives the logits of the plain one, for every kind of decoder."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.decoding import Beam, Greedy, Sample, cpu_replay, engine, generate
from regard.decoding.cpu_replay import MIN_STEPS, ReplayedStep, replay_pays
from regard.layers.embeddings import Inputs
from regard.layers.int8 import to_int8
from regard.models.decoder import Decoder
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.recurrent import LSTMModel, RecurrentConfig

V = 29
VARIANTS = {
    **{preset: {"preset": preset} for preset in Decoder.PRESETS},
    "grouped": {"n_kv_heads": 2},
    "window": {"window": 5},
    **{p: {"positions": p} for p in ("none", "binary", "learned", "t5", "alibi")},
    **{s: {"score": s} for s in ("additive", "gaussian")},
    "relu2": {"feedforward": "relu2"},
    "global tokens": {"window": 5, "global_tokens": 2},
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


def max_error(model: Decoder, rows: int) -> float:
    """The largest difference of replayed logits from those of `step`, over thirty steps."""
    prompt = torch.randint(0, V, (rows, 4), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([2, 4, 3, 1, 4])[:rows]
    error = 0.0
    with torch.inference_mode():
        one, other = model.init_state(rows, 40), model.init_state(rows, 40)
        for state in (one, other):
            model.step(prompt, None if rows == 1 else lengths, state)
        recorded = ReplayedStep(model, one)
        for step in range(30):
            ids = torch.randint(0, V, (rows,), generator=torch.Generator().manual_seed(step))
            ones = None if rows == 1 else torch.ones(rows, dtype=torch.long)
            expected = model.step(ids[:, None], ones, other)
            error = max(error, float((recorded(ids) - expected).abs().max()))
    return error


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_replayed_steps_give_the_logits_of_extend(variant, rows):
    assert max_error(make(variant), rows) < 1e-5


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("variant", ["modern", "gpt2", "grouped", "window", "alibi"])
def test_so_do_steps_of_large_models_with_the_kernels_chosen_for_them(variant, rows, monkeypatch):
    monkeypatch.setattr(cpu_replay, "LARGE", 0)
    monkeypatch.setattr(cpu_replay, "HEADS", 0)
    monkeypatch.setattr(cpu_replay, "KEYS", 0)
    monkeypatch.setattr(cpu_replay, "WIDE", 0)
    assert max_error(make(variant), rows) < 1e-5


@pytest.mark.parametrize("rows", [1, 5])
def test_so_do_steps_in_int8(rows):
    model = make("modern")
    to_int8(model)
    assert replay_pays(model, model.init_state(rows, 40), MIN_STEPS)
    assert max_error(model, rows) < 0.02  # a difference in the last bit may move a rounding


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
        one, other = model.init_state(2, 40), model.init_state(2, 40)
        for state in (one, other):
            model.step(torch.ones(2, 1, dtype=torch.long), None, state)
            state.expand(3)
        recorded = ReplayedStep(model, one)
        for _ in range(30):
            ids = torch.randint(4, V, (6,), generator=generator)
            parents = torch.randint(0, 3, (2, 3), generator=generator)
            parents = (parents + torch.tensor([[0], [3]])).flatten()
            expected = model.step(ids[:, None], None, other)
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

    recordings = []
    monkeypatch.setattr(
        engine, "ReplayedStep", lambda *args: recordings.append(1) or ReplayedStep(*args)
    )
    replayed = decoded()
    assert recordings or context == 24  # a short context leaves too few steps to record
    monkeypatch.setattr(engine, "replay_pays", lambda *args: False)
    for ours, plain in zip(replayed, decoded(), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in plain]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=3)])
def test_batches_of_one_shape_share_one_recording(strategy, monkeypatch):
    model, recordings = make("modern"), []
    monkeypatch.setattr(
        engine, "ReplayedStep", lambda *args: recordings.append(1) or ReplayedStep(*args)
    )
    prompts = [[1, 5, 4], [1, 7, 8], [1, 6, 6], [1, 2, 3]]

    def decoded(batch_size):
        return generate(
            model, prompts, strategy, max_new=50, end=2, banned=[2], batch_size=batch_size
        )

    alone = [generate(model, [p], strategy, max_new=50, end=2, banned=[2])[0] for p in prompts]
    recordings.clear()
    batches = decoded(strategy.rows)
    assert len(recordings) == 1
    assert [[one.ids for one in found] for found in batches] == [
        [one.ids for one in found] for found in alone
    ]


def test_recording_is_left_alone_where_it_cannot_or_need_not_work(monkeypatch):
    lstm = LSTMModel(V, RecurrentConfig(d_model=8))
    assert not replay_pays(lstm, lstm.init_state(1, 99), 99)  # its state moves from step to step
    model = make("modern")
    assert replay_pays(model, model.init_state(1, 99), MIN_STEPS)
    assert not replay_pays(model, model.init_state(1, 99), MIN_STEPS - 1)
    monkeypatch.setattr(cpu_replay, "OVERHEAD", 0)
    assert (
        replay_pays(model, model.init_state(1, 99), MIN_STEPS)
        == torch.backends.mkldnn.is_available()
    )
    monkeypatch.setattr(cpu_replay, "WEIGHTS", 0)  # too large for a copy
    assert not replay_pays(model, model.init_state(1, 99), MIN_STEPS)
    monkeypatch.undo()
    assert not replay_pays(model.double(), model.init_state(1, 99), MIN_STEPS)


def test_a_replay_refuses_to_pass_the_capacity():
    model = make("gpt2")
    with torch.inference_mode():
        state = model.init_state(1, 3)
        model.step(torch.zeros(1, 2, dtype=torch.long), None, state)
        replay = ReplayedStep(model, state)
        replay(torch.tensor([1]))
        with pytest.raises(ValueError, match="capacity"):
            replay(torch.tensor([1]))


def test_large_activations_saturate_without_a_warning():
    model = make("modern")
    with torch.inference_mode():
        for block in model.blocks:
            block.feedforward.gate_up.weight.mul_(1000)
        one, other = model.init_state(1, 9), model.init_state(1, 9)
        for state in (one, other):
            model.step(torch.tensor([[1, 5]]), None, state)
        ids = torch.tensor([7])
        ours, plain = ReplayedStep(model, one)(ids), model.step(ids[:, None], None, other)
        torch.testing.assert_close(ours, plain, atol=1e-3, rtol=1e-4)
