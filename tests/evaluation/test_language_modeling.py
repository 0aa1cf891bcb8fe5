"""Bits per raw symbol whatever the tokenizer, against arithmetic on the texts themselves."""

import dataclasses
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.evaluation.language_modeling import (
    BLOCK,
    BlockUnits,
    SingleProcess,
    Stopped,
    count_bytes,
    log_probs,
    mean_loss,
    mean_losses,
    measure,
    score,
    symbol_loss,
    truncate_shard,
)
from regard.models.decoder import Decoder, modern
from regard.models.language_model import IGNORE, LanguageModel
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


WORDS = ["naïve", "", "café", "日本", "plain", "ok"]  # one, two and three bytes a character


@dataclass(frozen=True)
class Context:
    max_len: int = 7


class Uniform(LanguageModel):
    """Every token equally likely, always."""

    def logits(self, ids, segments=None, *, tap=None):
        return torch.zeros(*ids.shape, self.vocab_size)

    def score(self, ids, targets, segments=None, *, constrain=None):
        return torch.where(targets == IGNORE, 0.0, -math.log(self.vocab_size))

    def init_state(self, batch, capacity):
        raise NotImplementedError

    def step(self, ids, lengths, state):
        raise NotImplementedError


def uniform(kind, texts=WORDS):
    tokenizer = TOKENIZERS[kind].train(texts)
    return Uniform(tokenizer.vocab_size, Context()), tokenizer


@pytest.mark.parametrize("kind", ["characters", "bytes"])
def test_the_denominator_is_characters_and_ends_for_every_tokenizer(kind):
    model, tokenizer = uniform(kind)
    m = measure(model, shard_of(WORDS, tokenizer), tokenizer)
    found = m.metrics()
    characters = sum(map(len, WORDS))
    size = sum(len(w.encode()) for w in WORDS)
    predictions = (characters if kind == "characters" else size) + len(WORDS)
    nats = predictions * math.log(tokenizer.vocab_size)
    assert m.symbols.tolist() == [len(w) + 1 for w in WORDS]
    assert m.bytes.tolist() == [len(w.encode()) for w in WORDS]
    assert found["nats_per_symbol"].value == pytest.approx(nats / (characters + len(WORDS)))
    assert found["bits_per_symbol"].value == pytest.approx(
        nats / math.log(2) / (characters + len(WORDS))
    )
    assert found["bits_per_byte"].value == pytest.approx(nats / math.log(2) / size)
    assert found["nats_per_token"].value == pytest.approx(math.log(tokenizer.vocab_size))
    assert found["perplexity_per_token"].value == pytest.approx(tokenizer.vocab_size)


def test_running_text_has_the_same_blocks_of_symbols_for_every_tokenizer():
    text = "".join(np.random.default_rng(0).choice(list("aé日 b"), 2 * BLOCK + 300))
    measured = {}
    for kind in ("characters", "bytes", "bpe"):
        model, tokenizer = uniform(kind, [text])
        measured[kind] = measure(model, shard_of([text], tokenizer, kind="text"), tokenizer)
        assert measured[kind].symbols.tolist() == [BLOCK, BLOCK + 301]  # the end is one too
        assert measured[kind].bytes.sum() == len(text.encode())
    whole = measured["bytes"]
    expected = (len(text.encode()) + 1) * math.log(260)
    assert whole.nats.sum() == pytest.approx(expected)
    first = len(text[:BLOCK].encode()) * math.log(260)
    assert whole.nats[0] == pytest.approx(first)  # a character's later bytes stay with its first
    characters = measured["characters"].per_symbol
    assert characters.minus(whole.per_symbol).value < 0
    assert characters.verdict(whole.per_symbol) == "better"


def test_a_token_across_the_border_of_two_blocks_is_divided():
    symbols = np.array([0, BLOCK - 1, 4, BLOCK])  # the third token begins one before the border
    blocks = BlockUnits(symbols)
    nats = blocks(np.array([0.0, 10.0, 8.0, 5.0]))
    assert blocks(symbols).tolist() == [BLOCK, BLOCK + 3]
    assert nats == pytest.approx([10 + 8 / 4, 8 * 3 / 4 + 5])


def test_short_text_is_one_block():
    assert BlockUnits(np.array([1, 1, 1]))(np.array([1.0, 2.0, 3.0])).tolist() == [6.0]


def test_a_symbol_of_probability_0_makes_the_metrics_infinite_and_is_counted():
    model, tokenizer = uniform("characters")
    shard = shard_of(WORDS, tokenizer)
    banned = int(tokenizer.encode("é")[0])

    class Never(Uniform):
        def score(self, ids, targets, segments=None, *, constrain=None):
            scores = super().score(ids, targets, segments)
            return scores.masked_fill(targets == banned, -torch.inf)

    m = measure(Never(tokenizer.vocab_size, Context()), shard, tokenizer)
    assert m.impossible == 1
    for metric in m.metrics().values():
        assert metric.to_json() == {"value": None, "infinite": True, "impossible": 1}
    assert str(m.metrics()["nats_per_symbol"]) == "infinite (1 impossible)"
    fine = measure(model, shard, tokenizer)
    assert m.per_symbol.verdict(fine.per_symbol) == "worse"
    assert fine.per_symbol.verdict(m.per_symbol) == "better"
    assert "both" in m.per_symbol.verdict(m.per_symbol)
    assert m.per_symbol.minus(fine.per_symbol).to_json()["infinite"] is True


def test_there_are_no_bits_per_byte_of_unknown_symbols():
    model, tokenizer = uniform("characters", ["plain", "ok"])
    m = measure(model, shard_of(["plain", "naïve"], tokenizer), tokenizer)
    assert m.unknown == 3  # ï, v and e
    assert "bits_per_byte" not in m.metrics() and "bits_per_symbol" in m.metrics()


def test_models_that_score_different_symbols_are_not_compared():
    model, tokenizer = uniform("characters")
    a = measure(model, shard_of(WORDS, tokenizer), tokenizer)
    b = measure(model, shard_of(WORDS[:-1], tokenizer), tokenizer)
    with pytest.raises(UserError, match="not measured on the same records"):
        a.per_symbol.minus(b.per_symbol)


@pytest.mark.parametrize("kind", ["characters", "bytes", "words", "bpe"])
@pytest.mark.parametrize("form", ["records", "text"])
def test_the_bytes_counted_are_those_of_the_raw_text(kind, form):
    """A space that word tokens put before every text was once counted as part of it."""
    texts = ["one two", "", "é three  four"]
    tokenizer = TOKENIZERS[kind].train(texts)
    counts = count_bytes(shard_of(texts, tokenizer, kind=form), tokenizer)
    assert counts.sum() == len("".join(texts).encode())


def test_a_shard_of_another_vocabulary_and_a_wrong_stride_are_refused():
    model, tokenizer = uniform("characters")
    large = TOKENIZERS["bytes"].train(WORDS)
    with pytest.raises(UserError, match="another tokenizer"):
        measure(model, shard_of(WORDS, large), large)
    with pytest.raises(UserError, match="max_len 7, got 8"):
        measure(model, shard_of(WORDS, tokenizer), tokenizer, stride=8)


def test_every_token_of_a_long_record_is_scored_once():
    model, tokenizer = uniform("characters")
    (record,) = score(model, tokenizer, ["plain" * 9])
    assert record.tokens == [*("plain" * 9), "<E>"]
    assert record.log_probs == pytest.approx([-math.log(tokenizer.vocab_size)] * 46)
    assert record.total == pytest.approx(-46 * math.log(tokenizer.vocab_size))


def test_units_are_converted_exactly():
    model, tokenizer = uniform("characters")
    metrics = measure(model, shard_of(WORDS, tokenizer), tokenizer).metrics()
    nats = metrics["nats_per_symbol"]
    for end in ("value", "low", "high"):
        assert getattr(metrics["bits_per_symbol"], end) == getattr(nats, end) * (1 / math.log(2))
        assert getattr(metrics["perplexity"], end) == math.exp(getattr(nats, end))


def test_losses_of_seeds_are_averaged_unit_by_unit():
    model, tokenizer = uniform("characters")
    one = measure(model, shard_of(WORDS, tokenizer), tokenizer)
    two = replace(one, nats=one.nats * 3, impossible=2)
    mean = mean_losses([one, two])
    np.testing.assert_allclose(mean.nats, 2 * one.nats)
    assert mean.impossible == 2 and mean.estimates["nats_per_symbol"].value == math.inf
