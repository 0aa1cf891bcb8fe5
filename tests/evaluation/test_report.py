"""Bits per raw symbol whatever the tokenizer, against arithmetic on the texts themselves."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.evaluation.eval_data import held_out, shard_of
from regard.evaluation.language_modeling import (
    BLOCK,
    BlockUnits,
    Metric,
    bytes_of,
    difference,
    measure,
    metrics_of,
    score,
    verdict,
)
from regard.models.language_model import IGNORE, LanguageModel
from regard.tokenizers import KINDS, TEXT_KINDS

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

    def start(self, batch, capacity):
        raise NotImplementedError

    def extend(self, ids, lengths, state):
        raise NotImplementedError


def uniform(kind, texts=WORDS):
    tokenizer = KINDS[kind].train(texts)
    return Uniform(tokenizer.vocab_size, Context()), tokenizer


@pytest.mark.parametrize("kind", ["characters", "bytes"])
def test_the_denominator_is_characters_and_ends_for_every_tokenizer(kind):
    model, tokenizer = uniform(kind)
    m = measure(model, shard_of(WORDS, tokenizer), tokenizer)
    found = metrics_of(m)
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
    gap = difference(measured["characters"], whole)
    assert gap.value < 0 and verdict(gap) == "better"


def test_a_token_across_the_border_of_two_blocks_is_shared_out():
    symbols = np.array([0, BLOCK - 1, 4, BLOCK])  # the third token begins one before the border
    blocks = BlockUnits(symbols)
    nats = blocks(np.array([0.0, 10.0, 8.0, 5.0]))
    assert blocks(symbols).tolist() == [BLOCK, BLOCK + 3]
    assert nats == pytest.approx([10 + 8 / 4, 8 * 3 / 4 + 5])


def test_short_text_is_one_block():
    assert BlockUnits(np.array([1, 1, 1]))(np.array([1.0, 2.0, 3.0])).tolist() == [6.0]


def test_what_is_impossible_makes_the_figures_infinite_and_is_counted():
    model, tokenizer = uniform("characters")
    shard = shard_of(WORDS, tokenizer)
    banned = int(tokenizer.encode("é")[0])

    class Never(Uniform):
        def score(self, ids, targets, segments=None, *, constrain=None):
            scores = super().score(ids, targets, segments)
            return scores.masked_fill(targets == banned, -torch.inf)

    m = measure(Never(tokenizer.vocab_size, Context()), shard, tokenizer)
    assert m.impossible == 1
    for figure in metrics_of(m).values():
        assert figure.to_json() == {"value": None, "infinite": True, "impossible": 1}
    assert str(metrics_of(m)["nats_per_symbol"]) == "infinite (1 impossible)"
    fine = measure(model, shard, tokenizer)
    assert verdict(difference(m, fine)) == "worse" and verdict(difference(fine, m)) == "better"
    assert "both" in verdict(difference(m, m))
    assert difference(m, fine).to_json()["infinite"] is True


def test_bytes_per_symbol_are_not_told_where_symbols_are_unknown():
    model, tokenizer = uniform("characters", ["plain", "ok"])
    m = measure(model, shard_of(["plain", "naïve"], tokenizer), tokenizer)
    assert m.unknown == 3  # ï, v and e
    assert "bits_per_byte" not in metrics_of(m) and "bits_per_symbol" in metrics_of(m)


def test_two_runs_on_other_symbols_are_not_compared():
    model, tokenizer = uniform("characters")
    a = measure(model, shard_of(WORDS, tokenizer), tokenizer)
    b = measure(model, shard_of(WORDS[:-1], tokenizer), tokenizer)
    with pytest.raises(UserError, match="do not score the same symbols"):
        difference(a, b)


@pytest.mark.parametrize("kind", TEXT_KINDS)
@pytest.mark.parametrize("form", ["records", "text"])
def test_the_bytes_counted_are_those_of_the_raw_text(kind, form):
    """A space that word tokens put before every text was once counted as part of it."""
    texts = ["one two", "", "é three  four"]
    tokenizer = KINDS[kind].train(texts)
    counts = bytes_of(shard_of(texts, tokenizer, kind=form), tokenizer)
    assert counts.sum() == len("".join(texts).encode())


def test_a_shard_of_another_vocabulary_and_a_wrong_stride_are_refused():
    model, tokenizer = uniform("characters")
    large = KINDS["bytes"].train(WORDS)
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


def test_figures_change_units_exactly():
    figure = Metric(1.0, 0.5, 2.0)
    assert figure.scaled(1 / math.log(2)).value == pytest.approx(1.4426950408889634)
    assert figure.exponential() == Metric(math.e, math.exp(0.5), math.exp(2.0))
    assert Metric(1e9, 1e9, 1e9).exponential().to_json()["value"] < math.inf


def test_a_folder_without_data_says_to_name_a_file(tmp_path):
    with pytest.raises(UserError, match="name a file to measure on"):
        held_out(tmp_path, KINDS["characters"].train(["a"]))
