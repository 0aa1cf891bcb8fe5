"""Symbols that are unknown, or read as others, are counted, named and placed; strict refuses."""

import pytest

from regard.data import corpus, inputs
from regard.errors import UserError
from regard.recipe import build
from regard.run import read_json
from regard.tokenizers import KINDS

CHAINS = ["MKTAYIAK", "mktay", "MK?AY??", "MKTAY", "M1K"]


def prepared(folder, lines, kind, **options):
    (folder / "data.txt").write_text("\n".join(lines) + "\n")
    data = {"train": [str(folder / "data.txt")], "format": "lines"}
    data |= {"valid_fraction": 0.0, "test_fraction": 0.0}
    recipe = build({"data": data, "tokens": {"kind": kind, **options}})
    said = []
    found = corpus.prepare(recipe.data, recipe.tokens, folder / "run", said.append)
    return found, said


@pytest.mark.parametrize("kind", ["residues", "motifs"])
def test_unknown_symbols_are_counted_by_record_and_the_records_named(kind, tmp_path):
    found, said = prepared(tmp_path, CHAINS, kind)
    facts = found.facts["sides"]["train"]
    assert facts["unknown"] == 4 and facts["unknown_records"] == 2
    assert facts["unknown_symbols"] == {"?": 3, "1": 1}
    path = tmp_path / "data.txt"
    assert facts["unknown_places"] == [f"{path}:3 (3)", f"{path}:5 (1)"]
    assert facts["read_as_others"] == {f"{c} as {c.upper()}": 1 for c in "mktay"}
    assert f"unknown in 2 records of train: '?' × 3, '1' × 1; {path}:3 (3), {path}:5 (1)" in said
    assert any("5 symbols of train are read as others: " in line for line in said)
    assert read_json(tmp_path / "run" / "data" / "manifest.json")["facts"] == found.facts


def test_strict_names_the_first_record_and_what_is_unknown_in_it(tmp_path):
    with pytest.raises(UserError, match=r"data.txt:3: unknown to residues: '\?' × 3; with tokens"):
        prepared(tmp_path, CHAINS, "residues", strict=True)
    assert not list((tmp_path / "run" / "data").glob("train*"))
    found, said = prepared(tmp_path, CHAINS[:2], "residues", strict=True, case="keep")
    assert found.facts["sides"]["train"]["unknown"] == 0 and not said


def test_records_of_validation_files_are_placed_in_their_own_file(tmp_path):
    (tmp_path / "a.txt").write_text("one two\ntwo\n")
    (tmp_path / "b.txt").write_text("two\n\nthree four\n")
    data = {"train": [str(tmp_path / "a.txt")], "valid": [str(tmp_path / "b.txt")]}
    data |= {"test_fraction": 0.0, "format": "lines"}
    recipe = build({"data": data, "tokens": {"kind": "words"}})
    facts = corpus.prepare(recipe.data, recipe.tokens, tmp_path / "run", print).facts["sides"]
    assert facts["valid"]["unknown_symbols"] == {"three": 1, "four": 1}
    assert facts["valid"]["unknown_places"] == [f"{tmp_path / 'b.txt'}:3 (2)"]
    assert facts["train"]["unknown_records"] == 0


def test_not_every_record_is_looked_into_but_every_one_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "LOOKED_INTO", 3)
    found, _ = prepared(tmp_path, ["AC?T"] * 9, "nucleotides")
    facts = found.facts["sides"]["train"]
    assert facts["unknown_records"] == 9 and facts["unknown_symbols"] == {"?": 3}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_called_unknown_is_as_much_as_becomes_unk(kind):
    tokenizer = KINDS[kind].train(["ACGTAC", "CC(=O)Cl", "one two"])
    for text in ("AC?GT??", "é [nH] three", "", "ACGT"):
        assert tokenizer.unknown(text).total() == (tokenizer.encode(text) == tokenizer.unk).sum()
