"""Files to shards: what is stored is what the tokenizer says of the whole text."""

from __future__ import annotations

import numpy as np
import pytest

from regard.data import corpus, encoding, formats
from regard.data.sides import Piece
from regard.recipe import build
from regard.tokens import KINDS

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
    pieces = [Piece(0, (), begins=True), Piece(0, ["acgt" * 9])]
    pieces += [Piece(0, ["acgt ac"]), Piece(0, (), ends=True)]
    cut = KINDS["words"].train(["a"]).cut
    texts = ["".join(piece.texts) for piece in encoding.at_borders(pieces, cut, 0)]
    assert texts == ["", "acgt" * 9, "acgt", " ac", ""]
