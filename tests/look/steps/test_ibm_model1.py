"""IBM model 1 as stages, against its formula written out."""

from __future__ import annotations

import numpy as np
import torch
from step_models import STEP_MODELS

from regard.look.steps import trace_steps


def test_the_mixture_is_that_of_the_formula():
    pipeline = STEP_MODELS["ibm1"]()
    model, source = pipeline.model, pipeline.prepared.tensors["source"][0].tolist()
    ids, lexicon = pipeline.prepared.tensors["ids"], model.lexicon
    length = len(source) - 1  # without <E>
    null = [lexicon.source_vocab, *source]
    t = lexicon.probability(torch.tensor(null)[:, None], torch.arange(model.vocab_size)).numpy()
    for position in (1, 3):
        trace = trace_steps(pipeline, position=position)
        j = min(position - 1, length - 1)
        weights = np.array([0.6, *(0.6 ** abs(j - k) for k in range(length)), 0])
        weights /= weights.sum()
        np.testing.assert_allclose(trace.find("Source word › Weights").values, weights, atol=1e-12)
        lexical = trace.find("Source word › From the source").values
        np.testing.assert_allclose(lexical, weights @ t, atol=1e-12)
        bigram = model.bigram.logits(ids)[0, position - 1].double().softmax(-1).numpy()
        end, share = int(model.end_id), 0.6
        p = (1 - share) * bigram / (1 - bigram[end]) + share * lexical
        stop = model.ends[position - 1 - length + 24].item()
        p *= 1 - stop
        p[end] = stop
        np.testing.assert_allclose(trace.find("Mixture › Probabilities").values, p, atol=1e-6)
        assert trace.find("Source word › Weights").columns[0] == "NULL"
