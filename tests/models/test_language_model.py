"""One body over every family and preset: the interface agrees with itself, and no one sees the
future.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from id_records import shard

from regard.models.language_model import IGNORE
from regard.models.ngrams import CountingModel
from regard.recipe import TrainRecipe
from regard.registry import MODELS
from regard.run import Run, weights, write_config
from regard.storage import write_tensors
from regard.training.step import settings

V, MAX_LEN = 23, 24
VARIANTS = {
    "windowed": {"window": 3},
    "grouped": {"n_kv_heads": 2},
    "global tokens": {"window": 3, "global_tokens": 2},
    "linear": {"mixers": ("linear",), "n_kv_heads": 2},
    "third order": {"mixers": ("hyena",), "order": 3},
    "hybrid": {"mixers": ("window", "hyena"), "window": 4},
    "identity": {"projections": "identity"},
    **{
        f"positions {p}": {"positions": p}
        for p in ("none", "binary", "sinusoidal", "learned", "t5", "alibi")
    },
    **{f"score {s}": {"score": s} for s in ("dot", "additive", "bilinear", "gaussian", "cosine")},
}
CASES = [(name, preset, "") for name in MODELS.names("next") for preset in MODELS.get(name).PRESETS]
CASES += [("transformer", "modern", variant) for variant in VARIANTS]


def make(name, preset, variant=""):
    torch.manual_seed(5)
    cls = MODELS.get(name)
    config = cls.PRESETS[preset](2, 32)
    heads = {"n_heads": 4, "n_kv_heads": 4, "d_head": 8} if name == "transformer" else {}
    heads |= {"order": 2} if name == "map" else {}  # which would find that there is nothing to know
    config = dataclasses.replace(config, max_len=MAX_LEN, **{**heads, **VARIANTS.get(variant, {})})
    model = cls(V, config)
    if isinstance(model, CountingModel):
        records = np.random.default_rng(0).integers(3, V, (400, 9)).tolist()
        model.fit(shard(records, V), None, print)
    return model.eval()


def name_of(model):
    return next(name for name in MODELS.names("next") if MODELS.get(name) is type(model))


@pytest.fixture(params=CASES, ids=[" ".join(case).strip() for case in CASES])
def model(request):
    return make(*request.param)


def ids(*shape, seed=0):
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_score_is_the_log_softmax_of_the_logits_and_ignores_what_it_should(model):
    x, targets = ids(3, 9), ids(3, 9, seed=1)
    targets[0, 4:] = IGNORE
    logs = model.logits(x).log_softmax(-1)
    expected = logs.gather(-1, targets.clamp_min(0)[..., None])[..., 0].masked_fill(
        targets == IGNORE, 0
    )
    torch.testing.assert_close(model.score(x, targets), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@torch.no_grad()
def test_a_gpu_computes_what_the_cpu_does(model):
    x, targets = ids(3, 9), ids(3, 9, seed=1)
    expected = [
        model.logits(x),
        model.score(x, targets),
        model.step(x, None, model.init_state(3, 9)),
    ]
    there, x, targets = model.cuda(), x.cuda(), targets.cuda()
    with settings(TrainRecipe(precision="fp32"), x.device):  # cuDNN's own default has ten bits
        found = [
            there.logits(x),
            there.score(x, targets),
            there.step(x, None, there.init_state(3, 9)),
        ]
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_stepwise_and_chunked_decoding_equals_reading_it_all_at_once(model):
    x = ids(2, 11)
    whole = model.logits(x)
    for cuts in ([1] * 11, [4, 1, 6], [11]):
        state, at = model.init_state(2, 11), 0
        for width in cuts:
            logits = model.step(x[:, at : at + width], None, state)
            at += width
            torch.testing.assert_close(logits, whole[:, at - 1], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_ragged_prompts_and_reordered_rows_equal_single_ones(model):
    x, lengths = ids(3, 7), torch.tensor([2, 7, 5])
    state = model.init_state(3, 12)
    first = model.step(x, lengths, state)
    parents = torch.tensor([2, 0, 0])
    state.select(parents)
    more = ids(3, 1, seed=3)
    second = model.step(more, torch.ones(3, dtype=torch.long), state)
    for row in range(3):
        prompt = x[row : row + 1, : lengths[row]]
        torch.testing.assert_close(first[row], model.logits(prompt)[0, -1], atol=1e-5, rtol=1e-5)
        parent = int(parents[row])
        full = torch.cat([x[parent : parent + 1, : lengths[parent]], more[row : row + 1]], dim=1)
        torch.testing.assert_close(second[row], model.logits(full)[0, -1], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_packed_records_score_as_they_do_alone(model):
    if not model.supports_packing:
        with_padding = torch.cat([ids(1, 5), torch.zeros(1, 3, dtype=torch.long)], dim=1)
        torch.testing.assert_close(
            model.logits(with_padding)[:, :5], model.logits(ids(1, 5)), atol=1e-5, rtol=1e-5
        )
        return
    a, b = ids(1, 5), ids(1, 8, seed=2)
    row = torch.cat([a, b, torch.zeros(1, 2, dtype=torch.long)], dim=1)
    segments = torch.tensor([[1] * 5 + [2] * 8 + [0] * 2])
    packed = model.logits(row, segments)
    torch.testing.assert_close(packed[:, :5], model.logits(a), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(packed[:, 5:13], model.logits(b), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_changing_the_future_changes_nothing_before_it(model):
    x, y = ids(1, 9), ids(1, 9)
    y[0, 5:] = (y[0, 5:] + 1) % V
    torch.testing.assert_close(model.logits(x)[:, :5], model.logits(y)[:, :5], atol=1e-6, rtol=1e-6)
    if name_of(model) not in ("uniform", "unigram"):  # which remember nothing
        assert not torch.allclose(model.logits(x)[:, 5:], model.logits(y)[:, 5:])


def test_probabilities_sum_to_one(model):
    total = model.logits(ids(2, 6)).log_softmax(-1).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones(2, 6), atol=1e-5, rtol=0)


def test_saving_and_loading_is_the_identity(model, tmp_path):
    write_config(tmp_path, name_of(model), model)
    write_tensors(tmp_path / "model.safetensors", weights(model))
    again = Run(tmp_path).model()
    assert again.config == model.config
    assert torch.equal(again.logits(ids(2, 6)), model.logits(ids(2, 6)))


def test_a_state_refuses_to_grow_past_its_capacity(model):
    state = model.init_state(1, 3)
    model.step(ids(1, 3), None, state)
    with pytest.raises(ValueError, match="capacity"):
        model.step(ids(1, 1), None, state)
