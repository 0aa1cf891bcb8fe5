"""Molecules: SMILES are recognized, and all spellings of a molecule are one record."""

from __future__ import annotations

import sys

import pytest

from regard.data.column_kinds import CellSample
from regard.errors import UsageError, UserError
from regard.modalities.chemistry import (
    Chemistry,
    ChemistryConfig,
    Spellings,
    SpellingsConfig,
    share_of_molecules,
)
from regard.recipe import build
from regard.tokenizers.tokenizer import PLAIN

MOLECULES = ["CC(=O)Oc1ccccc1", "C[C@@H](N)C(=O)O", "c1ccncc1", "CCO"] * 4


@pytest.mark.parametrize(
    ("options", "recognized"),
    [
        ({"format": "smi", "cells": ["C"]}, True),
        ({"column": "canonical_SMILES", "cells": ["CCO", "CCN", "broken"]}, True),
        ({"column": "canonical_SMILES", "cells": ["anything", "else"]}, False),
        ({"cells": MOLECULES}, True),
        ({"cells": MOLECULES[:9]}, False),  # too few
        ({"cells": ["CCO", "CCN"] * 9}, False),  # chains of a few letters
        ({"cells": [*MOLECULES, "no", "molecule"]}, False),
        ({"cells": ["C6H12O6", "H2O", "NaCl"] * 9}, False),  # formulas
        ({"cells": ["SPIN", "NO", "ON", "COIN"] * 9}, False),
        ({"cells": []}, False),
    ],
)
def test_smiles_are_recognized(options, recognized):
    kind = Chemistry.recognize_cells(CellSample(**options))
    assert (kind is not None and kind.tokenizer == "smiles") == recognized


def test_texts_that_only_look_like_smiles_are_molecules_to_rdkit_alone():
    """Five bonds of carbon are spelled as SMILES are; without RDKit, nobody can tell."""
    pytest.importorskip("rdkit", reason="RDKit is not installed")
    wrong = [f"C(C)(C)(C)(C){'C' * n}" for n in range(1, 12)]
    assert share_of_molecules(wrong) == (1.0, 0.0)
    assert Chemistry.recognize_cells(CellSample(cells=wrong)) is None


def test_without_rdkit_the_alphabet_decides(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    assert share_of_molecules(["C(C)(C)(C)(C)C", "words"]) == (0.5, 0.5)
    kind = Chemistry.recognize_cells(CellSample(cells=MOLECULES))
    assert kind.name == "SMILES"


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
