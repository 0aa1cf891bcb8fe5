"""Copies are what a model reads alike: spelled in upper or lower case, composed or not, on another
strand, or as another SMILES of the same molecule. Such copies used to land in two splits.
"""

import random
import sys
import unicodedata
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import leakage
from regard.data.leakage import canonical_form
from regard.data.report import inspect, inspect_labelled
from regard.data.sources import DataSource
from regard.recipe import DataRecipe, TokensRecipe
from regard.tokenizers import Kmers, Nucleotides, Residues

SPLIT = {"valid_fraction": 0.2, "test_fraction": 0.2}
MOLECULES = ["CCO", "c1ccccc1O", "CC(=O)Nc1ccc(O)cc1", "CN1CCC[C@H]1c1cccnc1", "OC(=O)c1ccccc1"]
MOLECULES += [f"{'C' * n}{tail}" for n in range(2, 9) for tail in ("N", "OC", "(F)Cl", "S(=O)C")]


def form(kind="auto", **data):
    return canonical_form(DataRecipe(**data), TokensRecipe(kind=kind), "csv", 100)


def splits_of(path, groups, kind, **keys):
    """The splits that the texts of each group are in."""
    recipe = DataRecipe(train=(str(path),), input="x", target="y", **SPLIT | keys)
    sources, found = DataSource(recipe, "label", TokensRecipe(kind=kind)), defaultdict(set)
    for piece in sources.pieces():
        for text in piece.texts:
            found[groups[text]].add(piece.side)
    return sources, found


def write(path, groups):
    """A table of texts in random order, with labels at random, one for each group."""
    draw, rows = random.Random(1), list(groups.items())
    labels = {group: draw.choice("ab") for group in sorted(set(groups.values()))}
    draw.shuffle(rows)
    path.write_text("x,y\n" + "".join(f"{text},{labels[group]}\n" for text, group in rows))
    return path


@settings(max_examples=60, deadline=None)
@given(st.text("ACGTUacgtuNn", max_size=8), st.text("ACGTUacgtuNn", max_size=8))
def test_bases_are_compared_as_every_tokenizer_of_them_reads_them(one, two):
    same = form("nucleotides").of(one) == form("nucleotides").of(two)
    for texts in (["ACGT"], ["ACGU"]):  # DNA, and RNA
        for tokenizer in (Nucleotides.train(texts), Kmers.train(texts, k=3)):
            assert same == (tokenizer.encode(one).tolist() == tokenizer.encode(two).tolist())


def test_case_counts_where_the_tokenizer_keeps_it():
    keep = canonical_form(DataRecipe(), TokensRecipe(kind="residues", case="keep"), "csv", 100)
    assert keep.of("mkV") == "mkV" and form("residues").of("mkV") == "MKV"
    upper, lower = map(Residues.train(["MKV"], case="keep").encode, ("MK", "mk"))
    assert upper.tolist() != lower.tolist()
    assert form("motifs").of("mkV") == "MKV"
    assert form("characters").of("mkV") == form("words").of("mkV") == "mkV"


def test_lower_case_copies_are_in_one_split_and_counted(tmp_path):
    draw, groups = random.Random(0), {}
    for number in range(150):
        text = "".join(draw.choices("ACGT", k=30))
        groups |= {text: number, text.lower(): number}
    sources, found = splits_of(write(tmp_path / "t.csv", groups), groups, "nucleotides")
    assert {len(splits) for splits in found.values()} == {1}
    assert {min(splits) for splits in found.values()} == {0, 1, 2}
    seen = inspect_labelled(sources)
    assert seen.copies == 150 and all(not leak.records for leak in seen.leaks.values())
    assert ("copies", "150 of 300 records repeat another one (compared without regard to letter "
            "case, U or T); copies are in one split") in seen.warnings()  # fmt: skip
    assert inspect(sources.train).duplicates == 150
    _, apart = splits_of(tmp_path / "t.csv", groups, "characters")  # other records to that model
    assert 2 in {len(splits) for splits in apart.values()}


def test_spellings_of_a_molecule_are_in_one_split(tmp_path):
    chem = pytest.importorskip("rdkit.Chem", reason="RDKit is not installed")
    groups = {}
    for molecule in MOLECULES:
        read = chem.MolFromSmiles(molecule)
        spellings = [chem.MolToSmiles(read, doRandom=True) for _ in range(12)]
        groups |= dict.fromkeys(spellings, molecule)
    assert len(groups) > 2 * len(MOLECULES)
    sources, found = splits_of(write(tmp_path / "t.csv", groups), groups, "smiles")
    assert {len(splits) for splits in found.values()} == {1}
    assert len(set.union(*found.values())) == 3
    assert inspect_labelled(sources).copies == len(groups) - len(MOLECULES)
    assert form("smiles").of("not a molecule") == "not a molecule"
    assert form("characters", augment="smiles").of("OCC") == form("groups").of("C(O)C")
    lines = tmp_path / "t.smi"
    lines.write_text("OCC\nCCO\nCCN\n")
    assert inspect(DataSource(DataRecipe(train=(str(lines),))).train).duplicates == 1


def test_without_rdkit_it_is_said_that_spellings_were_not_compared(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    found = form("smiles")
    assert "spellings of one molecule were not compared: RDKit is not installed" in found.note
    assert found.of("OCC") == "OCC"
    path = tmp_path / "t.smi"
    path.write_text("OCC\nCCO\n")
    sources = DataSource(DataRecipe(train=(str(path),)))
    assert sources.remarks == [found.note] and inspect(sources.train).remarks == (found.note,)


def test_large_files_of_molecules_are_compared_as_written_and_that_is_said():
    pytest.importorskip("rdkit", reason="RDKit is not installed")
    kind = TokensRecipe(kind="smiles")
    found = canonical_form(DataRecipe(), kind, "csv", leakage.LARGE + 1)
    assert found.note.endswith("the data is larger than 32 MB") and found.of("OCC") == "OCC"
    assert not canonical_form(DataRecipe(), kind, "csv", leakage.LARGE).note


def test_both_strands_are_one_record_where_both_are_shown(tmp_path):
    draw, groups = random.Random(5), {}
    for number in range(120):
        text = "".join(draw.choices("ACGT", k=24))
        other = "".join({"A": "T", "C": "G", "G": "C", "T": "A"}[base] for base in reversed(text))
        groups |= {text: number, other.lower(): number}
    path = write(tmp_path / "t.csv", groups)
    _, found = splits_of(path, groups, "nucleotides", augment="strands")
    assert {len(splits) for splits in found.values()} == {1}
    _, apart = splits_of(path, groups, "nucleotides")
    assert 2 in {len(splits) for splits in apart.values()}


def test_composed_and_decomposed_letters_are_one_record(tmp_path):
    names = [f"José-{number} Müller" for number in range(200)]
    path = tmp_path / "names.txt"
    both = [*names, *(unicodedata.normalize("NFD", name) for name in names)]
    path.write_text("\n".join(both) + "\n")
    sources = DataSource(DataRecipe(train=(str(path),), **SPLIT))
    found = defaultdict(set)
    for piece in sources.pieces():
        for text in piece.texts:
            found[unicodedata.normalize("NFC", text)].add(piece.side)
    assert len(found) == 200 and {len(splits) for splits in found.values()} == {1}
    assert inspect(sources.train).duplicates == 200


def test_leaks_of_given_files_are_found_in_any_case(tmp_path):
    (tmp_path / "train.csv").write_text("x,y\nACGTAC,a\nGGGTTT,b\nCCCAAA,a\n")
    (tmp_path / "test.csv").write_text("x,y\nacguac,a\nTTTTTT,b\n")
    recipe = DataRecipe(
        train=(str(tmp_path / "train.csv"),), test=(str(tmp_path / "test.csv"),), input="x",
        target="y", valid_fraction=0,
    )  # fmt: skip
    sources = DataSource(recipe, "label", TokensRecipe(kind="nucleotides"))
    assert sources.leaks()["test"]["records"] == 1
