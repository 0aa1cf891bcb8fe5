"""Files to shards: what is stored is what the tokenizer says of the whole text."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data import corpus, formats
from regard.data import corpus as encoding
from regard.data.corpus import prepare
from regard.data.sources import SourceChunk
from regard.errors import UserError
from regard.recipe import DataRecipe, TokensRecipe, build
from regard.tokenizers import KINDS

TEXT = "".join(
    f"The {i}th  line, of words\tand  spaces;\n\n  x{i % 7} é😀 <S> don't\n" for i in range(60)
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [16, 57, 4 << 20])
def test_a_text_read_in_blocks_is_stored_as_if_it_were_encoded_whole(
    kind, block, tmp_path, monkeypatch
):
    """Words that met the end of a block were once encoded as two."""
    (tmp_path / "a.txt").write_text(TEXT)
    monkeypatch.setattr(formats, "BLOCK", block)
    values = {
        "data": {"train": [str(tmp_path / "a.txt")], "format": "text", "test_fraction": 0.0},
        "tokens": {"kind": kind},
    }
    recipe = build(values)
    found = corpus.prepare(recipe.data, recipe.tokens, tmp_path / "run", print)
    cut = len(TEXT) - round(0.05 * len(TEXT))
    for shard, part in ((found.train, TEXT[:cut]), (found.valid, TEXT[cut:])):
        ids = shard.record(0)
        assert (ids[0], ids[-1]) == (found.tokenizer.start, found.tokenizer.end)
        assert np.array_equal(ids[1:-1], found.tokenizer.encode(part))


def test_a_text_without_spaces_is_not_held_back(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "LONGEST_WORD", 10)
    pieces = [SourceChunk(0, (), begins=True), SourceChunk(0, ["acgt" * 9])]
    pieces += [SourceChunk(0, ["acgt ac"]), SourceChunk(0, (), ends=True)]
    cut = KINDS["words"].train(["a"]).cut
    texts = ["".join(piece.texts) for piece in encoding.at_borders(pieces, cut, 0)]
    assert texts == ["", "acgt" * 9, "acgt", " ac", ""]


@pytest.mark.parametrize(
    ("name", "content", "task", "needed"),
    [
        ("a.txt", "only one\n", "next", "holds one record: training needs at least two"),
        ("a.fa", ">x\nACGT\n", "next", "--set data.format=text reads one long sequence"),
        ("a.txt", "  \n \n\t\n", "next", "holds 3 records of nothing but blanks"),
        ("a.txt", "\n\n", "next", "nothing to read (2 blank records)"),
        ("a.csv", "text,y\na,x\n", "label", "holds one record"),
        ("a.csv", "text,y\na,x\nb,x\n", "label", "all 2 training records are 'x' under 'y'"),
        ("a.csv", "text,y\na,3\nb,3\nc,3\n", "value", "at least two classes or values"),
        ("a.csv", "text,y\nabc,HHH\nabd,HHH\n", "position-label", "nothing to tell apart"),
    ],
)
def test_too_little_to_learn_from_is_refused_with_what_is_needed(
    tmp_path, name, content, task, needed
):
    (tmp_path / name).write_text(content)
    target = {"target": "y"} if name.endswith("csv") else {}
    data = DataRecipe(train=(str(tmp_path / name),), valid_fraction=0, test_fraction=0, **target)
    with pytest.raises(UserError) as caught:
        prepare(data, TokensRecipe(kind="characters"), tmp_path / "run", print, task=task)
    assert needed in str(caught.value) and name in str(caught.value) + name
    assert "\n" not in str(caught.value)


def test_records_longer_than_the_context_are_counted(tmp_path):
    rows = [("a" * 30, "x"), ("b" * 5, "y"), ("c" * 31, "x"), ("d" * 8, "y")]
    (tmp_path / "t.csv").write_text("text,y\n" + "".join(f"{a},{b}\n" for a, b in rows))
    data = DataRecipe(train=(str(tmp_path / "t.csv"),), target="y", valid_fraction=0)
    tokens = TokensRecipe(kind="characters")
    corpus = prepare(data, tokens, tmp_path / "run", print, task="label")
    assert corpus.cut(33) == [] and corpus.cut(0) == []
    assert corpus.cut(32) == [  # a start and an end belong to every record
        "1 of 4 records are longer than model.max_len = 32 tokens and were cut to their first 32; "
        "--set model.max_len=33 reads all of the longest"
    ]
    assert corpus.cut(16)[0].startswith("2 of 4 records")
    plain = DataRecipe(train=(str(tmp_path / "t.csv"),), input="text", valid_fraction=0)
    assert prepare(plain, tokens, tmp_path / "other", print).cut(4) == []  # read in windows
