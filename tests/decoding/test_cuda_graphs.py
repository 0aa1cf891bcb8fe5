"""A step captured as a CUDA graph against the plain one; skipped without a GPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from regard.decoding import Beam, Greedy, Sample, engine, generate
from regard.decoding.engine import translate
from regard.models import encoder_decoder
from regard.models.decoder import Decoder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

V = 53
VARIANTS = {
    **{preset: {"preset": preset} for preset in Decoder.PRESETS},
    "grouped": {"n_kv_heads": 2},
    "window": {"window": 5},
    "alibi": {"positions": "alibi"},
    "additive": {"score": "additive"},
}


def make(variant, dtype=torch.float32):
    options = dict(VARIANTS[variant])
    torch.manual_seed(3)
    config = Decoder.PRESETS[options.pop("preset", "modern")](2, 64)
    heads = {"n_heads": 4, "n_kv_heads": 4, "d_head": 16}
    config = dataclasses.replace(config, max_len=256, **{**heads, **options})
    return Decoder(V, config).cuda().to(dtype).eval()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_captured_steps_give_the_logits_of_extend(variant, rows):
    from regard.decoding.cuda_graphs import GraphStep

    model = make(variant)
    prompt = torch.randint(0, V, (rows, 4), device="cuda")
    lengths = torch.tensor([2, 4, 3], device="cuda")[:rows]
    with torch.inference_mode():
        one, other = model.init_state(rows, 128), model.init_state(rows, 128)
        for state in (one, other):
            model.step(prompt, None if rows == 1 else lengths, state)
        graph = GraphStep(model, one, prompt.device)
        for _ in range(100):
            ids = torch.randint(0, V, (rows,), device="cuda")
            ones = None if rows == 1 else torch.ones(rows, dtype=torch.long, device="cuda")
            expected = model.step(ids[:, None], ones, other)
            torch.testing.assert_close(graph(ids), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("strategy", [Greedy(), Sample(seed=4), Beam(width=3)])
@pytest.mark.parametrize("context", [None, 48])
def test_every_strategy_decodes_the_same_with_and_without_graphs(strategy, context, monkeypatch):
    model = make("modern")
    prompts = [[1, 5], [1, 7, 8, 9], [1], [1, 4, 4]]

    def decoded():
        options = {"max_new": 60, "end": 2, "banned": [2], "context": context}
        return generate(model, prompts, strategy, batch_size=2 * strategy.rows, **options)

    captured = decoded()
    monkeypatch.setattr(engine, "MIN_GRAPH_STEPS", 1 << 30)
    for ours, plain in zip(captured, decoded(), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in plain]


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=4, n_best=2)])
def test_translations_are_the_same_with_and_without_graphs(strategy, monkeypatch):
    torch.manual_seed(5)
    config = dataclasses.replace(encoder_decoder.vaswani(2, 64), max_len=128)
    model = encoder_decoder.EncoderDecoder(V, config).cuda().eval()
    sources = [[*torch.randint(4, V, (n,)).tolist(), 2] for n in (3, 17, 9, 23, 18, 20)]

    def translations():
        found = translate(
            model,
            sources,
            strategy,
            start=1,
            end=2,
            banned=[2],
            max_new=40,
            batch_size=2 * strategy.rows,
        )
        return [[one.ids for one in n_best] for n_best in found]

    captured = translations()
    monkeypatch.setattr(engine, "MIN_GRAPH_STEPS", 1 << 30)
    assert captured == translations()
