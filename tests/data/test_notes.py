"""Notes on records: what they say, what they count, and what they refuse."""

import pytest

from regard.data.inputs import Item, RecordNotes, TokenLimit
from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.tokenizers import KINDS

BASES = KINDS["nucleotides"].train(["ACGT"])


def test_each_record_has_its_own_note():
    notes = RecordNotes(BASES, TokenLimit(4, 4))
    records = [
        Item("ACGT", "a"),
        Item("MKVE*", "b"),
        Item("  ", "c"),
        Item("ACGTA", "d"),
        Item("", "e", note="2 fields, expected 3"),
    ]
    assert notes.of(records) == [
        "",
        "2 of 5 symbols unknown: 'E', '*'; truncated: 5 tokens, the model reads the first 4",
        "empty",
        "truncated: 5 tokens, the model reads the first 4",
        "2 fields, expected 3",
    ]
    assert notes.of([Item("TTTTTTTT", "f")])[0].startswith("truncated: 8 tokens")
    lines = notes.lines()
    assert (notes.records, notes.noted) == (6, 5) and len(lines) == 4
    assert "1 of 6 records has unknown symbols; first: b (2 of 5 symbols unknown" in lines[0]
    assert lines[1].startswith("3 of 6 records are longer than the model's context; first: b (")
    with pytest.raises(UserError, match=r"5 of 6 records have notes \(--strict\)"):
        notes.refuse()


def test_nothing_to_say_is_nothing_refused():
    notes = RecordNotes(BASES)
    assert notes.of([Item("ACGT" * 1000, "a")]) == [""] and notes.lines() == []
    notes.refuse()


def test_two_texts_are_as_long_as_both():
    """Read as `<S> a b <E> c d <E>`, of which max_len = 7 holds two and two."""
    notes = RecordNotes(BASES, TokenLimit(5, 5))
    assert notes.of([Item("AC", "a", "GT")]) == [""]
    assert notes.of([Item("AC", "a", "GTT")]) == [
        "truncated: 6 tokens, the model reads the first 5"
    ]


def test_a_shard_is_counted_as_its_records_are():
    texts = ["ACGT", "AXXT", "ACGTACGT", "XXXXXX"]
    ours, shard = RecordNotes(BASES, TokenLimit(4, 4)), RecordNotes(BASES, TokenLimit(4, 4))
    ours.of([Item(text, str(i)) for i, text in enumerate(texts)])
    shard.of_shard(shard_of(texts, BASES))
    assert (ours.counts, ours.noted) == (shard.counts, shard.noted)
    assert ours.counts == {"unknown": 2, "long": 2}


def test_molecules_that_are_none_are_noted_where_rdkit_is():
    pytest.importorskip("rdkit")
    notes = RecordNotes(KINDS["smiles"].train(["CCO", "c1ccccc1"]))
    found = notes.of([Item("CCO", "a"), Item("C1CC", "b"), Item("CC>>CO", "c")])
    assert found == ["", "RDKit cannot parse this SMILES", ""]
