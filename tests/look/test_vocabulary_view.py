"""The vocabulary on a page: groups of atoms by tokenizer, nothing for others."""

import pytest

from regard.look import vocabulary_view
from regard.look.page import Facts, Page, RecordList, Table
from regard.look.vocabulary_view import add_vocabulary, describe, draw_groups, group_names
from regard.tokenizers import Characters
from regard.tokenizers.smiles import SmilesBPE, silence

MOLECULES = ["CC(=O)O", "CCC(=O)O", "CC(=O)N", "c1ccccc1C(=O)O", "c1ccccc1CO"] * 5


def test_groups_are_listed_with_their_atoms_and_functional_groups():
    pytest.importorskip("rdkit")
    tokenizer = SmilesBPE.train(MOLECULES, 64 + 40)
    page = Page("t")
    add_vocabulary(tokenizer, page, "CC(=O)O")
    facts, drawn, table = page.components
    assert isinstance(facts, Facts) and isinstance(table, Table) and isinstance(drawn, RecordList)
    counted = dict(facts.facts)
    merged = {tokenizer.text(i): n for i, n in enumerate(tokenizer.atoms.tolist()) if n > 1}
    assert counted["groups of several"] == len(merged) > 0
    assert {row[0]: row[1] for row in table.rows} == merged
    assert counted["this molecule"].replace(" · ", "") == "CC(=O)O"
    assert any("carboxylic acids" in row[2] for row in table.rows)


def test_groups_that_are_molecules_are_drawn_once_each_with_their_atoms():
    chem = pytest.importorskip("rdkit.Chem")
    tokenizer = SmilesBPE.train(MOLECULES, 64 + 40)
    atoms = {tokenizer.text(i): n for i, n in enumerate(tokenizer.atoms.tolist()) if n > 1}
    records = draw_groups(atoms, group_names(tokenizer)).records
    drawn = [one.picture["text"] for one in records]
    with silence():
        molecules = {t: chem.MolFromSmiles(t) for t in atoms}
    spelled = {chem.MolToSmiles(m) for m in molecules.values() if m is not None}
    assert sorted(chem.MolToSmiles(molecules[t]) for t in drawn) == sorted(spelled)
    for one in records:
        assert len(one.picture["paths"]) >= 1 and one.prediction.split()[0].isdigit()
    acids = [one.truth for one in records if "C(=O)O" in one.picture["text"]]
    assert acids and all("carboxylic acids" in names for names in acids)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Number of ether oxygens (including phenoxy)", "ether oxygens"),
        ("Number of Imines", "imines"),
        ("Number of H-pyrrole nitrogens", "H-pyrrole nitrogens"),
        ("Number of carbonyl O, excluding COOH", "carbonyl O"),
    ],
)
def test_what_rdkit_counts_is_described_in_few_words(text, words):
    assert describe(text) == words


def test_without_rdkit_groups_have_no_names_and_other_tokenizers_no_section(monkeypatch):
    monkeypatch.setattr(vocabulary_view, "find_spec", lambda name: None)
    assert group_names(SmilesBPE.train(MOLECULES, 0)) == {}
    assert not draw_groups({"CO": 2}, {}).records
    page = Page("t")
    add_vocabulary(Characters.train(["ab"]), page)
    assert not page.components
