"""Metrics of masked tokens against a loop over the tokens."""

import dataclasses
import random

import numpy as np
import pytest
import torch

from regard.data.batching import Masked
from regard.evaluation.eval_data import shard_of
from regard.evaluation.language_modeling import measure_masked_lm
from regard.layers.embeddings import Inputs
from regard.models.encoder import MaskedLM, bert_masked
from regard.tokenizers import Characters

LETTERS = "abcdefgh"


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    tokenizer, draw = Characters.train([LETTERS]), random.Random(0)
    texts = ["".join(draw.choices(LETTERS, k=draw.randint(1, 30))) for _ in range(50)]
    config = dataclasses.replace(bert_masked(1, 32), max_len=12, dropout=0.0)
    return MaskedLM(tokenizer.vocab_size, config).eval(), shard_of(texts, tokenizer), tokenizer


def test_metrics_are_those_of_a_loop_over_tokens(parts):
    model, shard, tokenizer = parts
    nats, correct = [], []
    for batch in Masked(shard, tokenizer, 12).batches(64):
        with torch.no_grad():
            logits = model.predict(Inputs(batch.ids, batch.segments))
        for b, t in (batch.targets >= 0).nonzero().tolist():
            truth = batch.targets[b, t]
            nats.append(-logits[b, t].log_softmax(-1)[truth].item())
            correct.append(bool(logits[b, t].argmax() == truth))
    predictions = measure_masked_lm(*parts)
    metrics = predictions.metrics()
    assert metrics["nats_per_token"].value == pytest.approx(np.mean(nats), rel=1e-5)
    assert metrics["accuracy"].value == pytest.approx(np.mean(correct))
    assert predictions.report.ranked_by == "nats_per_token"
    assert predictions.estimates["nats_per_token"].lower_is_better


def test_without_masks_the_metrics_are_undefined(parts):
    predictions = dataclasses.replace(measure_masked_lm(*parts), scores=np.zeros((4, 3)))
    assert {metric.undefined for metric in predictions.metrics().values()} == {"no token is masked"}
