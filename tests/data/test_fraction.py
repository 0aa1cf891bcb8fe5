"""Training on a fraction: nested parts of one training side, everything else unchanged."""

from __future__ import annotations

import pytest

from regard.data.corpus import prepare
from regard.recipe import DataRecipe, TokensRecipe


def corpus_of(path, run, fraction, **options):
    data = DataRecipe(train=(str(path),), train_fraction=fraction, **options)
    run.mkdir()
    return prepare(data, TokensRecipe(kind="characters"), run, print)


def texts_of(corpus, shard):
    return [corpus.tokenizer.decode(shard.record(i)[1:-1]) for i in range(shard.records)]


def test_fractions_of_records_lie_in_one_another_and_share_all_else(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"word{i}\n" for i in range(2000)) + "rareé\n")
    found = {f: corpus_of(path, tmp_path / f"run{f}", f, format="lines") for f in (0.25, 0.5, 1.0)}
    train = {f: set(texts_of(c, c.train)) for f, c in found.items()}
    assert train[0.25] < train[0.5] < train[1.0]
    for f, words in train.items():
        assert len(words) == pytest.approx(f * len(train[1.0]), rel=0.1)
    for side in ("valid", "test"):
        held = {tuple(texts_of(c, c.side(side))) for c in found.values()}
        assert len(held) == 1
    assert len({c.tokenizer.vocab_size for c in found.values()}) == 1  # é is known to all


def test_a_fraction_of_running_text_is_its_beginning(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcdefghij" * 1000)
    whole = corpus_of(path, tmp_path / "whole", 1.0, format="text")
    half = corpus_of(path, tmp_path / "half", 0.5, format="text")
    assert texts_of(half, half.train)[0] == texts_of(whole, whole.train)[0][:4500]
    for side in ("valid", "test"):
        assert texts_of(half, half.side(side)) == texts_of(whole, whole.side(side))
