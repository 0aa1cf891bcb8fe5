"""Supervised models: time budgets, configurations of heads, and equal predictions in any batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.batching import LabelledExamples, LabelledLoader
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.models import supervised
from regard.models.supervised import Budget, HeadConfig
from regard.registry import MODELS
from regard.tokenizers import Characters

TOKENIZER = Characters("abcdefgh")
FAMILIES = [
    ("transformer", "modern"),
    ("transformer", "bert"),
    ("cnn", "kim"),
    ("lstm", "bidirectional"),
]
FAMILIES += [("hyena", "hyena")]


def texts():
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("abcdefgh"), n)) for n in draw.integers(1, 40, 1000)]


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize(("name", "preset"), FAMILIES)
def test_predictions_do_not_depend_on_the_other_records_of_a_batch(name, preset):
    torch.manual_seed(0)
    cls = MODELS.get(name, "label")
    config = cls.PRESETS[preset](2, 32)
    model = cls(TOKENIZER.vocab_size, dataclasses.replace(config, n_outputs=3, max_len=48)).eval()
    shard = dataclasses.replace(shard_of(texts(), TOKENIZER), targets=np.zeros(1000, np.int32))
    examples = LabelledExamples(shard, TOKENIZER, 48)
    predictions, vectors = torch.zeros(2, 1000, 3), torch.zeros(2, 1000, 32)
    orders = [[np.array([i]) for i in range(1000)]]
    orders.append(np.array_split(np.random.default_rng(1).permutation(1000), 25))
    for turn, groups in enumerate(orders):
        for records in groups:
            for batch in examples.batches(1 << 20, records):
                source = Inputs(batch.ids, batch.segments)
                predictions[turn, batch.items] = model.predict(source)
                vectors[turn, batch.items] = model.embed(source)
    torch.testing.assert_close(predictions[0], predictions[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors[0], vectors[1], atol=1e-5, rtol=0)
    if model.supports_packing:  # as in training on a GPU
        options = {
            "max_len": 48,
            "batch_tokens": 1 << 16,
            "seed": 0,
            "few": True,
            "supports_packing": True,
        }
        (batch,) = LabelledLoader(shard, TOKENIZER, **options).step(0)
        packed = model(Inputs(batch.ids, batch.segments), count=1000)
        torch.testing.assert_close(packed, predictions[0][batch.items], atol=1e-5, rtol=0)


def test_a_budget_logs_progress_now_and_then_and_each_reduction_once(monkeypatch):
    now, lines = [100.0], []
    monkeypatch.setattr(supervised.time, "monotonic", lambda: now[0])
    budget = Budget(lines.append, 60.0)
    assert budget.limited and budget.left == 60.0 and not Budget(lines.append).limited
    for seconds in (3.0, 9.0, 12.0, 15.0, 25.0):
        now[0] = 100.0 + seconds
        budget.progress(f"after {seconds:g}")
    assert lines == ["12 s: after 12", "25 s: after 25"] and budget.left == 35.0
    for _ in range(2):
        budget.reduce("fewer settings are tried")
    assert lines[2:] == ["time is short: fewer settings are tried"]
    assert budget.reductions == ["fewer settings are tried"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "next"}, "task must be one of label"),
        ({"n_outputs": 0}, "n_outputs must be from 1 to"),
        ({"pooling": "last"}, "pooling must be one of mean"),
    ],
)
def test_a_wrong_setting_of_a_head_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        HeadConfig(**options)


def test_values_are_standardised_by_what_is_known():
    cls = MODELS.get("transformer", "value")
    config = dataclasses.replace(cls.PRESETS["modern"](1, 32), task="value", n_outputs=3)
    model = cls(TOKENIZER.vocab_size, config)
    nan = float("nan")
    model.standardise(torch.tensor([[1.0, 5.0, nan], [3.0, nan, nan], [5.0, 5.0, nan]]))
    torch.testing.assert_close(model.shift, torch.tensor([3.0, 5.0, 0.0]))
    torch.testing.assert_close(model.scale, torch.tensor([(8 / 3) ** 0.5, 1.0, 1.0]))
