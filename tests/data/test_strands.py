"""Both strands of running text: the other one is learned from, and nothing held out is."""

from __future__ import annotations

import numpy as np
import pytest

from regard.api import plan
from regard.data.corpus import prepare
from regard.data.sources import SourceChunk
from regard.data.views import both_strands, strands
from regard.errors import UsageError

RANDOM = np.random.default_rng(0)
GENOME = "".join("ACGT"[i] for i in RANDOM.integers(0, 4, 1000))
PAIRS = dict(zip("ACGT", "TGCA", strict=True))
DNA = {"format": "text", "augment": "strands"}


def opposite(text):
    return "".join(PAIRS[letter] for letter in reversed(text))


def test_the_training_part_has_its_other_strand_behind_it_and_the_rest_has_none(tmp_path):
    file = tmp_path / "genome.txt"
    file.write_text(GENOME)
    recipe, _ = plan([file], data=DNA, tokens={"kind": "nucleotides"}, model={"name": "hyena"})
    corpus = prepare(recipe.data, recipe.tokens, tmp_path / "run", print)
    train, valid, test = (
        [corpus.tokenizer.decode(shard.record(i)).replace("\n", "") for i in range(shard.records)]
        for shard in (corpus.train, corpus.valid, corpus.test)
    )
    assert train == [GENOME[:900], opposite(GENOME[:900])]
    assert valid == [GENOME[900:950]] and test == [GENOME[950:]]
    assert corpus.facts["sides"]["train"]["records"] == 2


def test_each_document_is_followed_by_its_own_strand():
    pieces = [
        SourceChunk(0, (), begins=True), SourceChunk(0, ["AAC"]), SourceChunk(0, ["GT"]),
        SourceChunk(0, (), ends=True), SourceChunk(1, (), begins=True), SourceChunk(1, ["CCA"]),
        SourceChunk(1, (), ends=True), SourceChunk(0, (), begins=True), SourceChunk(0, ["TTN"]),
        SourceChunk(0, (), ends=True),
    ]  # fmt: skip
    documents, open_ = [], ""
    for piece in both_strands(pieces):
        open_ = "" if piece.begins else open_ + "".join(piece.texts)
        if piece.ends:
            documents.append((piece.side, open_))
    assert documents == [(0, "AACGT"), (0, "ACGTT"), (1, "CCA"), (0, "TTN"), (0, "NAA")]
    assert strands("AACGT")[1] == "ACGTT"


def test_records_to_be_continued_have_one_strand(tmp_path):
    file = tmp_path / "records.txt"
    file.write_text("ACGT\nGGCA\n" * 20)
    data = {"format": "lines", "augment": "strands"}
    recipe, _ = plan([file], data=data, tokens={"kind": "nucleotides"}, model={"name": "bigram"})
    with pytest.raises(UsageError, match=r"data\.format = 'text'"):
        prepare(recipe.data, recipe.tokens, tmp_path / "run", print)
