"""Molecules: atoms are whole, every SMILES comes back, groups are merges of atoms."""

import csv
import gzip
import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.tokenizers import Smiles, SmilesBPE, load
from regard.tokenizers.smiles import fragments, functional_groups, written_as_smiles

MOLECULES = Path(__file__).parents[2].parent / "shared" / "data" / "moleculenet"
needs_molecules = pytest.mark.skipif(
    not MOLECULES.exists(), reason="the shared data folder is not here"
)
SOME = settings(max_examples=80, deadline=None, database=None)
SEEN = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "C[C@@H](N)C(=O)O",
    "C[C@H](N)C(=O)[O-].[Na+]",
    "Clc1c[nH]c2ccc(Br)cc12",
    "CCl.BrC>>CBr",
    "C%10CCCCC%10",
    "[13CH3]C/C=C/C#N",
]
ATOMS = ["C", "N", "O", "S", "P", "F", "I", "B", "c", "n", "o", "s", "Cl", "Br", "*"]
BRACKETS = ["[nH]", "[C@@H]", "[C@H]", "[O-]", "[Na+]", "[13CH3]", "[Cl-]", "[Pt+2]", "[H]", "[Sc]"]
OTHERS = ["(", ")", "1", "2", "%10", "%(123)", "=", "#", "/", "\\", ".", ">", "-", ":", "~", "$"]
STRINGS = st.lists(st.sampled_from(ATOMS + BRACKETS + OTHERS), max_size=25)
SMILES = Smiles.train([*SEEN, "".join(BRACKETS), "%(123)"])
GROUPS = SmilesBPE.train([*SEEN * 3, "".join(BRACKETS) * 3, "%(123)" * 3], 600)


@SOME
@given(STRINGS)
def test_the_parts_that_a_string_was_made_of_are_its_tokens(parts):
    """ChemBERTa's vocabulary once had no Cl: chlorine became carbon, and an l was lost."""
    text = "".join(parts)
    ids = SMILES.encode(text)
    assert [SMILES.text(id) for id in ids] == parts
    assert SMILES.decode(ids) == text
    assert SMILES.atoms[ids].sum() == sum(p in ATOMS or p in BRACKETS for p in parts)
    groups = GROUPS.encode(text)
    assert GROUPS.decode(groups) == text
    assert GROUPS.atoms[groups].sum() == SMILES.atoms[ids].sum()
    assert GROUPS.symbols[groups].sum() == SMILES.symbols[ids].sum() == len(text)


@SOME
@given(st.text("CNclBrn[]@H+-0123%()=#.>é \n", max_size=30))
def test_what_is_no_smiles_comes_back_too_and_only_foreign_signs_are_unknown(text):
    for tokenizer in (SMILES, GROUPS):
        ids = tokenizer.encode(text)
        unknown = sum(text.count(sign) for sign in "é \n")
        assert (ids == 3).sum() == tokenizer.count_unknown(text).total() == unknown
        assert tokenizer.decode(ids) == re.sub("[é \n]", "<unk>", text)
        assert tokenizer.symbols[ids].sum() == len(text)
        library = tokenizers.Tokenizer.from_str(json.dumps(tokenizer.document()))
        assert library.encode(text).ids == ids.tolist()


def test_an_atom_that_training_has_not_met_is_spelt():
    small = Smiles.train(["CC"])
    assert [small.text(i) for i in small.encode("C[Pt+2]Cl")] == [*"C[Pt+2]", "Cl"]
    assert small.decode(small.encode("C[Pt+2]Cl")) == "C[Pt+2]Cl"
    kept = Smiles.train(["[nH][nH][nH][O-][O-][Na+]"], small.vocab_size + 2)
    assert kept.tokens[-2:] == ("[nH]", "[O-]")


def merged(parts, merges):
    """Sennrich et al. 2016, over atoms: apply the best-ranked merge until none applies."""
    ranks = {tuple(pair): rank for rank, pair in enumerate(merges)}
    while True:
        best = min(pairwise(parts), key=lambda pair: ranks.get(pair, len(ranks)), default=None)
        if best not in ranks:
            return parts
        i = 0
        while i < len(parts) - 1:
            if (parts[i], parts[i + 1]) == best:
                parts[i : i + 2] = ["".join(best)]
            i += 1


@SOME
@given(STRINGS)
def test_groups_are_those_of_the_merge_loop_over_atoms(parts):
    expected, component = [], []
    for part in [*parts, "."]:
        if part in ".>":
            expected += [*merged(component, GROUPS.merges), part]
            component = []
        else:
            component.append(part)
    found = [GROUPS.text(id) for id in GROUPS.encode("".join(parts))]
    assert found == expected[:-1]


def test_groups_merge_what_is_frequent_and_nothing_across_molecules():
    assert "C(=O)O" in GROUPS.tokens and GROUPS.vocab_size <= 600
    assert not any(set(".>") & set(token) for token in GROUPS.tokens if len(token) > 1)
    assert SmilesBPE.train(
        iter([*SEEN * 3, "".join(BRACKETS) * 3, "%(123)" * 3]), 600
    ).document() == (GROUPS.document())
    small = SmilesBPE.train(SEEN * 3, 90)  # half of it has no room for atoms in brackets
    assert "[nH]" not in small.tokens and small.decode(small.encode(SEEN[3])) == SEEN[3]


def test_groups_are_recognised_with_their_atoms(tmp_path):
    GROUPS.save(tmp_path / "tokenizer.json")
    again = load(tmp_path / "tokenizer.json")
    assert isinstance(again, SmilesBPE) and again.document() == GROUPS.document()
    np.testing.assert_array_equal(again.atoms, GROUPS.atoms)


def column(name, key):
    opened = gzip.open if name.endswith(".gz") else open
    with opened(MOLECULES / name, "rt", newline="") as stream:
        return [(row["smiles"].strip(), row[key]) for row in csv.DictReader(stream)]


@needs_molecules
@pytest.mark.parametrize("kind", [Smiles, SmilesBPE])
def test_every_molecule_of_a_large_set_comes_back_though_most_were_not_seen(kind):
    smiles = [text for text, _ in column("hiv.csv.gz", "HIV_active")]
    tokenizer = kind.train(smiles[::20])
    ids, lengths = tokenizer.encode_batch(smiles)
    assert len(smiles) > 41_000 and 3 not in ids
    assert tokenizer.decode(ids) == "".join(smiles)
    spelt = np.cumsum(tokenizer.symbols[ids])[np.cumsum(lengths) - 1]  # where each record ends
    assert spelt.tolist() == np.cumsum([len(text) for text in smiles]).tolist()


@needs_molecules
def test_ring_closures_are_twice_the_rings_that_others_counted():
    """A ring is closed by a number that is written twice. RDKit, which counted here, counts every
    smallest ring of a cage, so that cages, and nothing else, have more rings than closures.
    """
    rows = column("esol_delaney-processed.csv", "Number of Rings")
    tokenizer = Smiles.train(text for text, _ in rows)
    equal = 0
    for text, rings in rows:
        numbers = [t for t in map(tokenizer.text, tokenizer.encode(text)) if t.strip("%").isdigit()]
        assert len(numbers) <= 2 * int(rings), text
        equal += len(numbers) == 2 * int(rings)
    assert equal > 0.97 * len(rows) > 1000


@needs_molecules
def test_atoms_are_as_many_as_rdkit_finds():
    chem = pytest.importorskip("rdkit.Chem", reason="pip install 'regard[chem]'")
    smiles = [text for text, _ in column("hiv.csv.gz", "HIV_active")][::40]
    tokenizer = Smiles.train(smiles)
    options = chem.SmilesParserParams()
    options.removeHs, options.sanitize = False, False
    compared = 0
    for text in smiles:
        if (molecule := chem.MolFromSmiles(text, options)) is not None:
            compared += 1
            assert tokenizer.atoms[tokenizer.encode(text)].sum() == molecule.GetNumAtoms(), text
    assert compared > 900


def test_functional_groups_and_fragments_with_rdkit():
    pytest.importorskip("rdkit", reason="pip install 'regard[chem]'")
    found = functional_groups(GROUPS)
    assert "fr_COO2" in found.names["C(=O)O"]  # a carboxylic acid
    assert 0 < len(found.names) <= found.complete <= found.merged and 0 < found.share <= 1
    # the example of RDKit's own documentation of BreakBRICSBonds
    assert sorted(fragments("CCCOCC")) == ["[3*]O[3*]", "[4*]CC", "[4*]CCC"]
    with pytest.raises(UserError, match="not a molecule"):
        fragments("C(")


def test_without_rdkit_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdkit", None)
    for asked in (lambda: functional_groups(GROUPS), lambda: fragments("CC")):
        with pytest.raises(UserError, match=r"pip install 'regard\[chem\]'"):
            asked()


@pytest.mark.parametrize(
    "text",
    ["CCO", "c1ccccc1O", "CN1CCC[C@H]1c1cccnc1", "[Na+].[Cl-]", "C/C=C\\C", "C%10CCCC%10", "BrCCl"],
)
def test_molecules_are_known_by_how_they_are_written(text):
    assert written_as_smiles(text)
    chem = pytest.importorskip("rdkit.Chem", reason="RDKit is not installed")
    assert chem.MolFromSmiles(text) is not None


@pytest.mark.parametrize("text", ["ACGT", "MKVLA", "a film", "C(C", "C)C(", "C1CC", "don't", "x=1"])
def test_other_texts_are_not_taken_for_molecules(text):
    assert not written_as_smiles(text)
