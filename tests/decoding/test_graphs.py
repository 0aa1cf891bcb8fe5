"""A step captured as a CUDA graph, and its kernels, against plain extend; skipped without a GPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from regard.decoding import Beam, Greedy, Sample, engine, generate
from regard.decoding.seq2seq import translate
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
    from regard.decoding.cuda_graphs import Graph

    model = make(variant)
    prompt = torch.randint(0, V, (rows, 4), device="cuda")
    lengths = torch.tensor([2, 4, 3], device="cuda")[:rows]
    with torch.inference_mode():
        one, other = model.start(rows, 128), model.start(rows, 128)
        for state in (one, other):
            model.extend(prompt, None if rows == 1 else lengths, state)
        graph = Graph(model, one, prompt.device)
        for _ in range(100):
            ids = torch.randint(0, V, (rows,), device="cuda")
            ones = None if rows == 1 else torch.ones(rows, dtype=torch.long, device="cuda")
            expected = model.extend(ids[:, None], ones, other)
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
    monkeypatch.setattr(engine, "STEPS", 1 << 30)
    for ours, plain in zip(captured, decoded(), strict=True):
        assert [one.ids for one in ours] == [one.ids for one in plain]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(1, 96, 80), (1, 768, 50_257), (8, 64, 51)])
def test_linear_is_a_matrix_product(dtype, size):
    from regard.kernels.decode import linear

    rows, d, n_out = size
    x = torch.randn(rows, d, device="cuda", dtype=dtype)
    w = torch.randn(n_out, d, device="cuda", dtype=dtype)
    found, expected = linear(x, w), F.linear(x.double(), w.double())
    got = found if isinstance(found, torch.Tensor) else found.run()
    assert (got - expected).norm() / expected.norm() < (1e-6 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("queries", [1, 4])
def test_attention_skips_what_the_mask_rules_out_and_a_blind_row_gives_zeros(queries):
    from regard.kernels.decode import CacheAttention as Attention

    q = torch.randn(3, 4, queries, 32, device="cuda")
    k, v = torch.randn(2, 3, 2, 300, 32, device="cuda")
    mask = torch.rand(3, 1, 1, 300, device="cuda") < 0.3
    mask[1, ..., 40:] = False
    mask[2] = False
    k[1, :, 40:] = torch.nan  # never read
    expected = F.scaled_dot_product_attention(
        q[:2], k[:2].nan_to_num(), v[:2], attn_mask=mask[:2], enable_gqa=True
    )
    got = Attention()(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(got[:2], expected, atol=1e-5, rtol=1e-5)
    assert (got[2] == 0).all()


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=4, n_best=2)])
def test_translations_are_the_same_with_and_without_graphs(strategy, monkeypatch):
    torch.manual_seed(5)
    config = dataclasses.replace(encoder_decoder.vaswani(2, 64), max_len=128)
    model = encoder_decoder.EncoderDecoder(V, config).cuda().eval()
    sources = [[*torch.randint(4, V, (n,)).tolist(), 2] for n in (3, 17, 9, 23, 18, 20)]

    def said():
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
        return [[one.ids for one in several] for several in found]

    captured = said()
    monkeypatch.setattr(engine, "STEPS", 1 << 30)
    assert captured == said()
