"""The vocabulary on a page: groups of atoms by tokenizer, nothing for others."""

import pytest

from regard.look import vocabulary_view
from regard.look.page import Facts, Page, Table
from regard.look.vocabulary_view import add_vocabulary
from regard.tokenizers import Characters
from regard.tokenizers.smiles import SmilesBPE

MOLECULES = ["CC(=O)O", "CCC(=O)O", "CC(=O)N", "c1ccccc1C(=O)O", "c1ccccc1CO"] * 5


def test_groups_are_listed_with_their_atoms_and_functional_groups():
    pytest.importorskip("rdkit")
    tokenizer = SmilesBPE.train(MOLECULES, 64 + 40)
    page = Page("t")
    add_vocabulary(tokenizer, page, "CC(=O)O")
    facts, table = page.components
    assert isinstance(facts, Facts) and isinstance(table, Table)
    counted = dict(facts.facts)
    merged = {tokenizer.text(i): n for i, n in enumerate(tokenizer.atoms.tolist()) if n > 1}
    assert counted["groups of several"] == len(merged) > 0
    assert {row[0]: row[1] for row in table.rows} == merged
    assert counted["this molecule"].replace(" · ", "") == "CC(=O)O"
    assert any("COO" in row[2] for row in table.rows)


def test_without_rdkit_groups_have_no_names_and_other_tokenizers_no_section(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert vocabulary_view.group_names(SmilesBPE.train(MOLECULES, 0)) == {}
    page = Page("t")
    add_vocabulary(Characters.train(["ab"]), page)
    assert not page.components
