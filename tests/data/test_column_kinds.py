"""What the modalities recognize in cells: one answer for every command."""

from __future__ import annotations

from regard.data.column_kinds import ROWS, SEQUENCE, CellSample, recognize, text_sample
from regard.data.text_files import TextFiles

DNA = ["ACGTACGTTA", "GGCATTACGA"] * 9


def test_the_highest_score_wins():
    """All letters of bases are those of residues, too."""
    kind = recognize(CellSample(cells=DNA))
    assert (kind.tokenizer, kind.modality, kind.rank) == ("nucleotides", "biology", SEQUENCE)
    assert recognize(CellSample(cells=["anna", "bob"])).tokenizer == "characters"
    assert recognize(CellSample(cells=["a cat sat", "the dog ran"])).tokenizer == "words"


def test_a_name_decides_nothing():
    words = CellSample(cells=["a cat sat", "the dog ran"], column="smiles")
    assert recognize(words).tokenizer == "words"


def test_records_and_lines_of_running_text_are_sampled(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(" one \n\ntwo\n" * ROWS)
    lines = text_sample(TextFiles([path], format="lines"), "c")
    assert lines.cells == text_sample(TextFiles([path], format="text")).cells
    assert lines.cells[:3] == ["one", "two", "one"] and len(lines.cells) == ROWS
    assert (lines.column, lines.format) == ("c", "lines")
