"""Molecules: SMILES are recognized, and all spellings of a molecule are one record."""

from __future__ import annotations

import sys

import pytest

from regard.errors import UsageError, UserError
from regard.modalities.chemistry import Chemistry, ChemistryConfig, Spellings, SpellingsConfig
from regard.modalities.text import TextFacts
from regard.recipe import build
from regard.tokenizers.tokenizer import PLAIN

MOLECULES = ["CC(=O)Oc1ccccc1", "C[C@@H](N)C(=O)O", "c1ccncc1", "CCO"] * 4


@pytest.mark.parametrize(
    ("facts", "score"),
    [
        (TextFacts(format="smi", first=["C"]), 5),
        (TextFacts(column="canonical_SMILES", first=["anything"]), 5),
        (TextFacts(first=MOLECULES), 4),
        (TextFacts(first=MOLECULES[:9]), -1),  # too few
        (TextFacts(first=["CCO", "CCN"] * 9), -1),  # chains of a few letters
        (TextFacts(first=[*MOLECULES, "no", "molecule"]), -1),
    ],
)
def test_smiles_are_recognized(facts, score):
    found = Chemistry.suggest(facts)
    assert (found.score, found.tokenizer) == (score, "smiles")


def test_a_tokenizer_of_molecules_names_the_modality():
    for name in ("smiles", "smiles-bpe"):
        recipe = build({"task": {"name": "value"}, "input": {"tokenizer": name}})
        assert recipe.input == ChemistryConfig(tokenizer=name)
        encoder = recipe.modality("input").fit_encoder(MOLECULES)
        assert encoder.decode(encoder.encode("CC(=O)O")) == "CC(=O)O"


def test_the_number_of_views_is_checked():
    recipe = {"task": {"name": "value"}, "augment": {"name": "spellings", "views": 3}}
    assert build(recipe).augment == SpellingsConfig(views=3)
    with pytest.raises(UsageError, match=r"views must be from 0 to 1000, got 1001"):
        build({**recipe, "augment": {"name": "spellings", "views": 1001}})


def test_spellings_are_views_of_one_record():
    pytest.importorskip("rdkit", reason="RDKit is not installed")
    views = Spellings(SpellingsConfig(views=5)).views()
    found = views.texts(["CC(=O)Oc1ccccc1"])
    assert views.count == len(found) == 5 and found[0] == "CC(=O)Oc1ccccc1"
    form = Spellings().canonical(PLAIN)
    assert len({form.of(text) for text in found}) == 1 and form.of("CCO") != form.of("CCN")


def test_without_rdkit_there_are_no_spellings(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(UserError, match="needs rdkit, which is not installed"):
        Spellings().views()
