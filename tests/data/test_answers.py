"""Labelled records as a corpus: shards with targets beside them, and what the manifest says."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from regard.data.corpus import prepare, reopen
from regard.errors import UserError
from regard.recipe import DataRecipe, TokensRecipe

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def build(tmp_path):
    """Prepare a table for a task; what was said is kept."""

    def build(text, task, kind="characters", name="t.csv", **keys):
        path = tmp_path / name
        path.write_text(text)
        data = DataRecipe(train=(str(path),), **{"target": "y", **keys})
        said = []
        corpus = prepare(data, TokensRecipe(kind=kind), tmp_path / "run", said.append, task=task)
        return corpus, [*said, *corpus.warnings]

    return build


def text_of(corpus, shard, number):
    return corpus.tokenizer.decode(shard.record(number)[1:-1])


SPLIT = "text,y,z,s\nab,no,1,train\nba,yes,,train\nb,no,3,train\naa,maybe,4,test\nab,yes,2,valid\n"


def test_labels_are_classes_of_training_and_others_are_unseen(build):
    corpus, _ = build(SPLIT, "label", split="s")
    said = corpus.warnings
    assert corpus.targets.classes == (("no", "yes"),)
    texts = [text_of(corpus, corpus.train, i) for i in range(3)]
    found = dict(zip(texts, corpus.train.targets.tolist(), strict=True))
    assert found == {"ab": 0, "ba": 1, "b": 0}
    assert corpus.test.targets.tolist() == [-1]
    assert corpus.valid.targets.tolist() == [1]
    unseen = r"unseen in test: maybe \(\S+:5\) × 1: training .+"
    assert any(re.fullmatch(unseen, line) for line in said)
    assert any(re.fullmatch(r"one example: maybe \(\S+:5\)", line) for line in said)
    assert any(
        line.startswith("conflicts: 1 inputs come with different targets: 'ab'") for line in said
    )
    labels = corpus.facts["labels"]
    assert labels["classes"]["y"]["yes"] == {"train": 1, "valid": 1}
    assert labels["leaks"]["valid"]["records"] == 1
    assert json.loads(json.dumps(corpus.facts, allow_nan=False)) == corpus.facts


def test_values_keep_their_gaps(build):
    corpus, _ = build(SPLIT, "value", split="s", target="z,z")
    expected = np.array([[1, 1], [3, 3]], np.float32)  # a record without any target is left out
    assert np.array_equal(np.sort(corpus.train.targets, axis=0), expected)
    text = "text,y,z\n" + "".join(f"a{i},{i},\n" for i in range(3)) + "b,,7\n"
    corpus, _ = build(text, "value", target="y,z", valid_fraction=0, test_fraction=0)
    wanted = {"a0": [0, None], "a1": [1, None], "a2": [2, None], "b": [None, 7]}
    for i, row in enumerate(corpus.train.targets.tolist()):
        known = [None if math.isnan(cell) else cell for cell in row]
        assert known == wanted.pop(text_of(corpus, corpus.train, i))
    assert not wanted
    assert (corpus.valid, corpus.test) == (None, None)
    assert corpus.facts["labels"]["gaps"] == {"y": 1, "z": 3}


def test_several_labels_are_zero_one_or_open(build):
    text = "text,y,z\na,0,no\nb,1,\nc,,yes\n"
    corpus, _ = build(text, "labels", target="y,z", valid_fraction=0, test_fraction=0)
    texts = [text_of(corpus, corpus.train, i) for i in range(3)]
    found = dict(zip(texts, corpus.train.targets.tolist(), strict=True))
    assert found == {"a": [0, 0], "b": [1, -1], "c": [-1, 1]}
    assert corpus.train.targets.dtype == np.int8


def test_labels_of_positions_lie_beside_their_tokens(build):
    text = "text,y\nabc,HEE\nba,CH\n"
    keys = {"valid_fraction": 0, "test_fraction": 0}
    corpus, _ = build(text, "position-label", **keys)
    assert corpus.targets.classes == (("C", "E", "H"),)
    shard = corpus.train
    assert shard.targets.tolist() == [-1, 2, 1, 1, -1, -1, 0, 2, -1]
    for i in range(shard.records):
        inside = slice(shard.offsets[i] + 1, shard.offsets[i + 1] - 1)
        letters = "".join(corpus.targets.classes[0][c] for c in shard.targets[inside])
        assert letters == ["HEE", "CH"][i]
    with pytest.raises(
        UserError, match=r"t\.csv:2: 3 labels of positions, but 1 tokens.*characters"
    ):
        build(text, "position-label", kind="words", **keys)
    with pytest.raises(UserError, match="manifest"):  # nothing half-made is left to be opened
        reopen(Path(shard.path).parents[1])


def test_two_texts_stand_side_by_side(build):
    text = "a,b,y\nxx,z,1\ny,zz,0\n"
    corpus, _ = build(text, "label", input="a,b", valid_fraction=0, test_fraction=0)
    assert [text_of(corpus, corpus.train, i) for i in range(2)] == ["xx", "y"]
    assert [text_of(corpus, corpus.train.source, i) for i in range(2)] == ["z", "zz"]
    assert corpus.train.targets.tolist() == [1, 0]


def test_a_corpus_is_used_again_and_damage_is_found(build, tmp_path):
    first, said = build(SPLIT, "label", split="s")
    stamp = (tmp_path / "run/data/train.targets.bin").stat().st_mtime_ns
    again, _ = build_again(tmp_path, said)
    assert again.targets == first.targets
    assert (tmp_path / "run/data/train.targets.bin").stat().st_mtime_ns == stamp
    file = tmp_path / "run/data/train.targets.bin"
    raw = bytearray(file.read_bytes())
    raw[0] ^= 1
    file.write_bytes(raw)
    with pytest.raises(UserError, match=r"train\.targets\.bin is damaged: its checksum"):
        reopen(tmp_path / "run", verify=True)
    file.write_bytes(raw[:-1])
    with pytest.raises(UserError, match=r"train\.targets\.bin is damaged: it must hold 12 bytes"):
        reopen(tmp_path / "run")
    facts = tmp_path / "run/data/train.targets.json"
    for content, message in (
        ("{", "it is not JSON"),
        ("[]", "valid dictionary"),
        ('{"task": "label", "blake2b": ""}', "shape: is missing"),
        (None, "cannot read"),
    ):
        facts.unlink() if content is None else facts.write_text(content)
        with pytest.raises(UserError, match=message):
            reopen(tmp_path / "run")
    facts.write_text('{"task": "label", "shape": [9], "blake2b": ""}')
    with pytest.raises(UserError, match=r"its shape must begin with 3, got \[9\]"):
        reopen(tmp_path / "run")


def build_again(tmp_path, said):
    data = DataRecipe(train=(str(tmp_path / "t.csv"),), target="y", split="s")
    tokens = TokensRecipe(kind="characters")
    return prepare(data, tokens, tmp_path / "run", said.append, task="label"), said


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data folder is not here")
def test_promoters_become_a_corpus(tmp_path):
    data = DataRecipe(
        train=(str(SHARED / "dna/uci_promoters/promoters.data"),),
        format="csv",
        input="3",
        target="1",
        split="stratified",
    )
    corpus = prepare(data, TokensRecipe(kind="nucleotides"), tmp_path, print, task="label")
    counts = [np.bincount(corpus.side(s).targets).tolist() for s in ("train", "valid", "test")]
    assert np.sum(counts, axis=0).tolist() == [53, 53]
    assert all(abs(a - b) <= 1 for a, b in counts)
    assert corpus.train.tokens == corpus.train.records * 59
