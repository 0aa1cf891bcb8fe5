"""Scores of the tokens of a shard, mean losses, and shards cut at their beginning."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.evaluation.eval_data import shard_of
from regard.evaluation.scoring import (
    SingleProcess,
    Stopped,
    log_probs,
    mean_loss,
    symbol_loss,
    truncate_shard,
)
from regard.models.decoder import Decoder, modern
from regard.registry import TOKENIZERS

TEXTS = ["abc", "", "cab", "bbbbbb", "a"]


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    tokenizer = TOKENIZERS["characters"].train(TEXTS)
    config = dataclasses.replace(modern(1, 16), max_len=16, dropout=0.0)
    return Decoder(tokenizer.vocab_size, config), tokenizer, shard_of(TEXTS, tokenizer)


def test_every_token_but_the_start_is_scored_once(parts):
    model, tokenizer, shard = parts
    values, scored = log_probs(model, shard, tokenizer)
    assert (scored == (shard.ids != tokenizer.start)).all()
    for number in range(shard.records):
        ids = torch.tensor(shard.record(number).astype(np.int64))[None]
        with torch.no_grad():
            alone = model.logits(ids[:, :-1]).log_softmax(-1)[0]
        expected = alone.gather(1, ids[0, 1:, None])[:, 0]
        span = slice(shard.offsets[number] + 1, shard.offsets[number + 1])
        torch.testing.assert_close(torch.from_numpy(values[span]).float(), expected)
    loss = symbol_loss(values, scored, shard, tokenizer)
    assert loss.value == pytest.approx(-values.sum() / sum(len(text) + 1 for text in TEXTS))


def test_processes_divide_the_batches_and_a_stop_restores_the_mode(parts):
    model, tokenizer, shard = parts
    values, scored = log_probs(model, shard, tokenizer)
    shares = [log_probs(model, shard, tokenizer, world=SingleProcess(i, 2)) for i in range(2)]
    np.testing.assert_array_equal(shares[0][0] + shares[1][0], values)
    assert all((share[1] == scored).all() for share in shares)
    model.train()
    with pytest.raises(Stopped):
        log_probs(model, shard, tokenizer, stop=lambda: True)
    assert model.training


def test_the_standard_error_is_that_of_repeated_draws():
    random = np.random.default_rng(0)
    losses = []
    for _ in range(2000):
        counts = random.integers(1, 9, 200).astype(float)
        losses.append(mean_loss(counts * random.normal(2.0, 0.7, 200), counts))
    values = np.array([loss.value for loss in losses])
    errors = np.array([loss.error for loss in losses])
    assert errors.mean() == pytest.approx(values.std(), rel=0.1)
    assert losses[0].to_json() == {"standard_error": losses[0].error}


def test_one_record_has_no_standard_error():
    loss = mean_loss(np.array([3.0]), np.array([2.0]))
    assert loss == (1.5, None) and loss.to_json() == {}


def test_a_truncated_shard_has_whole_records_or_cut_text(parts):
    _, tokenizer, shard = parts
    pairs = shard.paired(shard)
    for tokens, records in ((1, 1), (5, 1), (6, 1), (7, 2), (12, 3), (99, 5)):
        short = truncate_shard(pairs, tokens)
        assert short.records == short.source.records == records
        assert short.tokens == len(short.ids) == shard.offsets[records]
    text = truncate_shard(shard_of(["abcabc", "ab"], tokenizer, kind="text"), 4)
    assert text.tokens == 4 and text.offsets.tolist() == [0, 4]
    labelled = dataclasses.replace(shard, targets=np.arange(5), views=2)
    assert truncate_shard(labelled, 20).targets.tolist() == [0, 1, 2, 3]
    assert truncate_shard(labelled, 19).records == 2  # both views of a record or none
    aligned = dataclasses.replace(shard, targets=np.arange(shard.tokens), aligned=True)
    assert len(truncate_shard(aligned, 7).targets) == 7
