"""A thousand records of all lengths, alone and in shuffled batches: equal answers and vectors."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.batching import LabelledExamples, LabelledLoader
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.registry import family
from regard.tokenizers import Characters

pytestmark = pytest.mark.slow

TOKENIZER = Characters("abcdefgh")
FAMILIES = [("transformer", "modern"), ("transformer", "bert"), ("cnn", "kim"), ("lstm", "")]
FAMILIES += [("hyena", "hyena")]


def texts():
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("abcdefgh"), n)) for n in draw.integers(1, 40, 1000)]


@torch.inference_mode()
@pytest.mark.parametrize(("name", "preset"), FAMILIES)
def test_a_record_is_answered_the_same_whoever_stands_beside_it(name, preset):
    torch.manual_seed(0)
    cls = family(name, "label")
    config = cls.PRESETS[preset or "both-ways"](2, 32)
    model = cls(TOKENIZER.vocab_size, dataclasses.replace(config, n_outputs=3, max_len=48)).eval()
    shard = dataclasses.replace(shard_of(texts(), TOKENIZER), targets=np.zeros(1000, np.int32))
    asked = LabelledExamples(shard, TOKENIZER, 48)
    answers, vectors = torch.zeros(2, 1000, 3), torch.zeros(2, 1000, 32)
    orders = [[np.array([i]) for i in range(1000)]]
    orders.append(np.array_split(np.random.default_rng(1).permutation(1000), 25))
    for turn, groups in enumerate(orders):
        for records in groups:
            for batch in asked.batches(1 << 20, records):
                source = Inputs(batch.ids, batch.segments)
                answers[turn, batch.items] = model.answers(source)
                vectors[turn, batch.items] = model.embed(source)
    torch.testing.assert_close(answers[0], answers[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors[0], vectors[1], atol=1e-5, rtol=0)
    if model.supports_packing:  # and packed into rows, as training on a GPU has them
        options = {
            "max_len": 48,
            "batch_tokens": 1 << 16,
            "seed": 0,
            "few": True,
            "supports_packing": True,
        }
        (batch,) = LabelledLoader(shard, TOKENIZER, **options).step(0)
        packed = model(Inputs(batch.ids, batch.segments), count=1000)
        torch.testing.assert_close(packed, answers[0][batch.items], atol=1e-5, rtol=0)
