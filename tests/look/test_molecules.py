"""Molecules on pages: what RDKit draws becomes plain data, and only molecules are predicted."""

from __future__ import annotations

import builtins
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from page_parts import of

from regard.look.molecules import PATH, _read_paths, draw_structure
from regard.look.page import Contributions, Heatmap, MoleculeMaps, Text
from regard.look.prediction_page import prediction_page

pytest.importorskip("rdkit")
SMILES = ["CC(=O)O", "CCO", "c1ccccc1O", "CCN", "ClCC", "C[C@H](N)C(=O)O", "CC#N", "OCCO"]


@pytest.fixture
def predictor(make_predictor):
    return make_predictor("value", texts=SMILES, kind="smiles", max_len=24)


def test_a_structure_has_the_atoms_of_the_smiles_in_its_order():
    from rdkit import Chem

    structure = draw_structure("C[C@H](N)C(=O)O")
    atoms = [atom.GetSymbol() for atom in Chem.MolFromSmiles("C[C@H](N)C(=O)O").GetAtoms()]
    assert [symbol for symbol, _, _ in structure.atoms] == atoms
    width, height = structure.size
    assert all(-1 <= x <= width + 1 and -1 <= y <= height + 1 for _, x, y in structure.atoms)
    assert structure.paths and all(PATH.fullmatch(d) for d, _, _ in structure.paths)
    assert draw_structure("C1CC") is None and draw_structure("") is None


def test_nothing_but_commands_and_numbers_comes_out_of_a_drawing():
    svg = "<svg><script>alert(1)</script><path d='M 0,0 L 1,1' style='fill:none;stroke-width:2px'/>"
    svg += "<path d='M 0,0 url(x)' style=''/><path d='M 1,1 Z' onload='x()'/></svg>"
    assert ElementTree.fromstring(svg) is not None
    assert _read_paths(svg) == [("M 0,0 L 1,1", False, 2.0), ("M 1,1 Z", True, 0.0)]


def test_only_changes_that_are_molecules_are_predicted(predictor):
    from rdkit import Chem, RDLogger

    text = "CC(=O)O"
    page = prediction_page(predictor, text, title="t")
    (maps,), changes = of(page, MoleculeMaps), of(page, Heatmap)[0]
    places, rows = [0, 1, 4, 6], list(changes.rows)
    value = predictor.predictions([text])[0].scores["share"]
    RDLogger.DisableLog("rdApp.*")
    for a, at in enumerate(places):
        for e, element in enumerate(rows):
            changed = text[:at] + element + text[at + 1 :]
            got = changes.array()[e, a]
            if changed == text or Chem.MolFromSmiles(changed) is None:
                assert np.isnan(got)
            else:
                score = predictor.predictions([changed])[0].scores["share"]
                assert got == pytest.approx(score - value, abs=1e-5)
    RDLogger.EnableLog("rdApp.*")
    means = -np.nanmean(changes.array(), 0)
    assert maps.array()[0, 0] == pytest.approx(means, abs=1e-9)
    assert [symbol for symbol, _, _ in maps.atoms] == ["C", "C", "O", "O"]


def test_without_rdkit_the_page_says_what_to_install(predictor, monkeypatch):
    original = builtins.__import__

    def refuse(name, *rest, **options):
        if name.split(".")[0] == "rdkit":
            raise ImportError(name)
        return original(name, *rest, **options)

    for name in [name for name in sys.modules if name.split(".")[0] == "rdkit"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    page = prediction_page(predictor, "CC(=O)O", title="t")
    assert any("pip install 'regard[chem]'" in text.text for text in of(page, Text))
    assert not of(page, MoleculeMaps)
    assert of(page, Contributions)[0].rows[0][0] == "left out"
