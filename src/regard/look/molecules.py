"""Molecules on pages: their structure as RDKit draws it, and how a prediction changes with other
atoms in place of each.

RDKit's drawing becomes plain data: paths of a few commands and numbers, nothing else of its SVG
reaches a page. A change of a molecule that RDKit cannot parse is no molecule and says nothing about
the model, so that only changes that are molecules are predicted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decoding.engine import evaluating
from regard.look.attribution import (
    attribute_outputs,
    center,
    find_embedding,
    leave_out,
)
from regard.look.internals import PredictionContext
from regard.look.page import Component, Contributions, Heatmap, MoleculeMaps, Text
from regard.look.page.records import Picture
from regard.look.prediction_page import Rows, register_changes
from regard.look.records import register_picture
from regard.tokenizers.smiles import SmilesTokenizer, find_pieces, is_atom, silence

INSTALL = (
    "The structure is not drawn, and changed molecules are not checked: RDKit is not installed "
    "(pip install 'regard[chem]')."
)
ELEMENTS = ("C", "N", "O", "S", "F", "Cl", "Br")  # the usual atoms of organic molecules
MOST_ATOMS = 80  # of a molecule whose atoms are exchanged
PATH = re.compile(r"[MLHVCQZmlhvcqz0-9eE.,\s-]+")
WIDTH = re.compile(r"stroke-width:([0-9.]+)px")


@dataclass(frozen=True)
class Structure:
    """The drawing of a molecule: paths, whether each is filled, and its width; symbol and place of
    each atom, in the order of the SMILES.
    """

    paths: list[tuple[str, bool, float]]
    size: tuple[float, float]
    atoms: list[tuple[str, float, float]]


def draw_structure(smiles: str) -> Structure | None:
    """Return how RDKit draws a molecule; None if it cannot parse it, or is not installed."""
    try:
        from rdkit import Chem
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None
    with silence():
        molecule = Chem.MolFromSmiles(smiles)
        if molecule is None or not molecule.GetNumAtoms():
            return None
        drawer = rdMolDraw2D.MolDraw2DSVG(-1, -1)
        options = drawer.drawOptions()
        options.useBWAtomPalette()
        options.clearBackground = False
        drawer.DrawMolecule(rdMolDraw2D.PrepareMolForDrawing(molecule))
        places = [drawer.GetDrawCoords(i) for i in range(molecule.GetNumAtoms())]
        drawer.FinishDrawing()
    symbols = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    atoms = [(s, round(at.x, 1), round(at.y, 1)) for s, at in zip(symbols, places, strict=True)]
    paths = _read_paths(drawer.GetDrawingText())
    return Structure(paths, (float(drawer.Width()), float(drawer.Height())), atoms)


def _read_paths(drawing: str) -> list[tuple[str, bool, float]]:
    """Return the paths of an SVG; those with anything but commands and numbers are left out."""
    paths = []
    for element in ElementTree.fromstring(drawing.encode()).iter():
        d, style = element.get("d", ""), element.get("style", "")
        if element.tag.endswith("path") and PATH.fullmatch(d):
            width = WIDTH.search(style)
            paths.append((d, "fill:none" not in style, float(width[1]) if width else 0.0))
    return paths


@register_picture(SmilesTokenizer)
def draw_molecule(tokenizer: SmilesTokenizer, record: NDArray[Any], text: str) -> Picture:
    return draw_smiles(text or tokenizer.decode_record(record))


def draw_smiles(smiles: str) -> Picture:
    """Return a molecule with its structure, or as text where RDKit cannot draw it."""
    structure, picture = draw_structure(smiles), {"text": smiles, "mono": True}
    if structure is None:
        return picture
    return picture | {"paths": [list(path) for path in structure.paths], "size": structure.size}


@register_changes(SmilesTokenizer)
def change_atoms(context: PredictionContext, output: int, name: str) -> Rows:
    """Return how a score changes if an atom is exchanged, over the structure and as a map."""
    structure = draw_structure(context.text)
    pieces = find_pieces(context.text)
    places = [i for i, piece in enumerate(pieces) if is_atom(piece)]
    if structure is None or len(places) != len(structure.atoms) or len(places) > MOST_ATOMS:
        note: list[Component] = [Text(INSTALL)] if not _has_rdkit() else []
        return [*([note] if note else []), *_leave_tokens_out(context, output, name)]
    changes = exchange_atoms(context, output, pieces, places)  # (E, A)
    changed = np.isfinite(changes).any(0)
    counts = np.maximum(np.isfinite(changes).sum(0), 1)
    drops = np.where(changed, -np.nansum(changes, 0) / counts, np.nan)
    maps, names = [drops], [f"exchanged: how much the score of {name} drops, on average"]
    slopes = _atom_slopes(context, output, pieces, places)
    if slopes is not None:
        maps.append(slopes)
        names.append("gradient × input, an approximation")
    labels = [f"{pieces[at]} {i + 1}" for i, at in enumerate(places)]
    rejected = int((~np.isfinite(changes)).sum()) - len(places)
    title = f"How the score of {name} changes with another atom (down) in place of each"
    note_text = (
        f"Each atom is exchanged for {', '.join(ELEMENTS)}, where RDKit can read the result as a "
        f"molecule; {max(0, rejected):,} of {changes.size - len(places):,} changes are none and "
        "are hatched. Atoms without a colour have no such change."
    )
    return [
        [
            MoleculeMaps(
                maps=np.stack(maps)[:, None],
                names=names,
                title="What each atom is worth",
                unit=context.unit,
                scale="diverging",
                paths=structure.paths,
                size=structure.size,
                atoms=structure.atoms,
            )
        ],
        [Text(note_text)],
        [Heatmap(changes, ELEMENTS, labels, title, scale="diverging", unit=context.unit)],
    ]


def _has_rdkit() -> bool:
    try:
        import rdkit  # noqa: F401 - only whether it is there
    except ImportError:
        return False
    return True


def exchange_atoms(
    context: PredictionContext, output: int, pieces: Sequence[str], places: Sequence[int]
) -> NDArray[np.float64]:
    """Return (E, A): how much an output rises with each of the ELEMENTS in place of each atom; NaN
    where nothing changes, or the result is no molecule.
    """
    texts, cells = [], []
    for a, at in enumerate(places):
        for e, element in enumerate(ELEMENTS):
            aromatic = pieces[at].islower() and len(element) == 1
            new = element.lower() if aromatic else element
            if new != pieces[at]:
                texts.append("".join([*pieces[:at], new, *pieces[at + 1 :]]))
                cells.append((e, a))
    valid = [i for i, problem in enumerate(context.tokenizer.problems(texts)) if not problem]
    changes = np.full((len(ELEMENTS), len(places)), np.nan)
    scores = _scores(context, [context.text, *(texts[i] for i in valid)], output)
    for i, score in zip(valid, scores[1:], strict=True):
        changes[cells[i]] = score - scores[0]
    return changes


def _scores(context: PredictionContext, texts: list[str], output: int) -> NDArray[np.float64]:
    """Return an output for each text, the mean over its views."""
    predictor = context.predictor
    scores = torch.from_numpy(predictor.predict_shard(predictor.shard(texts)).scores)
    return np.asarray(center(context.model, scores)[:, output].numpy(), np.float64)


def _atom_slopes(
    context: PredictionContext, output: int, pieces: Sequence[str], places: Sequence[int]
) -> NDArray[np.float64] | None:
    """Return (A,): gradient × input of each atom, if every piece of the SMILES is a token."""
    model: Any = context.model
    before = context.tokenizer.markers[0]
    if find_embedding(model) is None:
        return None
    if context.tokens[before : before + len(pieces)] != list(pieces):
        return None
    added = attribute_outputs(model, context.source, [output])[0].cpu().double().numpy()
    return np.asarray(added[[before + at for at in places]])


def _leave_tokens_out(context: PredictionContext, output: int, name: str) -> Rows:
    if len(context.tokens) ** 2 > 1 << 18:
        return []
    with evaluating(context.model):
        drops = leave_out(context.model, context.source, output).double().tolist()
    title = f"Left out: how much the score of {name} drops without each token"
    return [[Contributions(context.tokens, [("left out", drops)], title=title, unit=context.unit)]]
