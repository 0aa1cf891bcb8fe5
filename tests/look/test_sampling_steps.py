"""The distribution at each step of a sample, against numpy and against what is drawn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import TOKENIZER, bigram, decoder, lstm

from regard.decoding import Sample
from regard.decoding.constraints import ForbiddenTransitions
from regard.look.page import Distribution
from regard.look.sampling_steps import sampling_steps
from regard.pipelines.generator import Generator


def distribution(generator, ids):
    """P(next token), markers that are never generated excluded."""
    with torch.inference_mode():
        logits = generator.model.logits(torch.tensor([ids]))[0, -1].double().numpy()
    logits[list(TOKENIZER.never_produced(TOKENIZER.vocab_size))] = -np.inf
    return np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()


@pytest.mark.parametrize("make", [decoder, lstm, bigram])
@pytest.mark.parametrize(
    "sample",
    [Sample(0.7, 3, 0.9, 5), Sample(1.5, 0, 0.6, 5), Sample(1.0, 2, 1.0, 5), Sample(0.0, seed=5)],
)
def test_each_step_is_the_model_before_the_filters_and_what_is_drawn_from_after_them(make, sample):
    generator = Generator(make(), TOKENIZER)
    prompt = generator.prompt_ids("a")
    ((one,),) = generator.generate_ids([prompt], sample, max_new=5)
    steps = sampling_steps(generator, prompt, one.ids, sample)
    assert len(steps) == len(one.ids) + (not one.finished)
    for i, step in enumerate(steps):
        p = distribution(generator, [*prompt, *one.ids[:i]])
        np.testing.assert_allclose(step.before, p[step.ids], atol=1e-5)
        assert step.ids == sorted(step.ids, key=lambda k: (-p[k], k))
        if sample.temperature:  # the look pages compute the same
            chart = Distribution(
                [str(k) for k in range(len(p))],
                probabilities=p,
                temperature=sample.temperature,
                top_k=sample.top_k,
                top_p=sample.top_p,
            )
            np.testing.assert_allclose(step.after, chart.cut()[1][step.ids], atol=1e-5)
        assert sum(step.after) == pytest.approx(1) and step.possible == int((p > 0).sum())
        assert step.n_kept == sum(q > 0 for q in step.after)
        if i < len(one.ids):
            assert step.chosen == one.ids[i] and step.after[step.ids.index(step.chosen)] > 0


def test_forbidden_tokens_have_no_probability():
    a, b = (int(TOKENIZER.encode(c)[0]) for c in "ab")
    forbidden = ForbiddenTransitions.from_pairs([(a, b)], TOKENIZER.vocab_size)
    generator = Generator(decoder(), TOKENIZER, forbidden=forbidden)
    (step,) = sampling_steps(generator, generator.prompt_ids("a"), [], Sample())
    assert b not in step.ids and a in step.ids and step.chosen is None


def test_a_drawn_token_is_listed_and_steps_end_with_the_context():
    generator = Generator(decoder(), TOKENIZER)  # of 11 tokens
    prompt = generator.prompt_ids("ab")
    steps = sampling_steps(generator, prompt, [4] * 20, Sample(), most=1)
    assert all(step.ids[-1] == 4 for step in steps[:8]) and len(steps) == 9
    long = [*prompt, *[4] * 20]
    assert len(sampling_steps(generator, long, [], Sample())) == 1
