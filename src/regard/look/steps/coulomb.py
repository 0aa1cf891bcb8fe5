"""Steps through kernel ridge regression on sorted Coulomb matrices."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from regard.look.steps.operations import (
    AbsoluteDistance,
    Apply,
    CoulombMatrix,
    Dot,
    Entries,
    PairDistances,
    RowNorms,
    Scale,
)
from regard.look.steps.outputs import fitted_answer, target_names
from regard.look.steps.stages import Names, Stage, Tracer
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.coulomb import Coulomb
from regard.tokenizers.points import SYMBOLS


@register_steps(Coulomb)
def coulomb_steps(subject: StepSubject) -> None:
    """Make the sorted Coulomb matrix, compare it with those of training, and add up."""
    model = cast(Coulomb, subject.model)
    c, ids = model.config, subject.tensors["ids"][0, 1:]
    d, n = c.dimensions, len(c.elements)
    t = subject.start(["the molecule"])
    charges = ids[:, 2 * d + 1 : 2 * d + 1 + n].double() @ torch.tensor(c.elements).double()
    atoms = [f"{SYMBOLS[int(z) - 1]} {i + 1}" for i, z in enumerate(charges.tolist())]
    with t.level("Molecule") as inner:
        formula = "the places of the atoms"
        points = inner.given(
            "Coordinates", ids[:, :d].double(), shown=True, formula=formula, rows=atoms
        )
        formula = "the numbers of protons, z"
        z = inner.given("Charges", charges, shown=True, formula=formula, columns=atoms)
    x = matrix_steps(t, model, points, z, atoms, subject)
    count = len(model.matrices)
    molecules = [f"molecule {i + 1}" for i in range(count)]
    columns: dict[str, Any] = {"columns": molecules}
    with t.level("Training molecules") as inner:
        matrices = inner.given("matrices of training", model.matrices, rows=molecules)
        formula = f"dⱼ = Σₖ |xₖ − Xⱼₖ|, to the matrix of each of {count:,} training molecules"
        x = inner.step("Distances", AbsoluteDistance(), x, matrices, formula=formula, **columns)
        width = c.width * float(model.median_distance)
        how = Scale(-1 / width, f"−1 / {width:.6g}")
        x = inner.step("Scaled", how, x, formula="−dⱼ / width", **columns)
        x = inner.step("Similarity", Apply("exp"), x, formula="exp(−dⱼ / width)", **columns)
    weights = t.given("coefficients", model.coefficients.T, rows=target_names(subject), **columns)
    mean = t.given("mean of training", model.mean)
    formula = "ŷ = Σⱼ similarityⱼ αⱼ + the mean of training"
    fitted_answer(t, subject, Dot(), x, weights, mean, formula=formula)


def matrix_steps(
    t: Tracer, model: Coulomb, points: Stage, z: Stage, atoms: Names, subject: StepSubject
) -> Stage:
    """Add the Coulomb matrix, its rows sorted by their norms, and its lower triangle."""
    table: dict[str, Any] = {"rows": atoms, "columns": atoms}
    with t.level("Coulomb matrix") as inner:
        gaps = inner.step("Distances", PairDistances(), points, formula="|Rᵣ − Rₛ|", **table)
        formula = "zᵣ zₛ / dᵣₛ, and zᵣ^2.4 / 2 on the diagonal"
        x = inner.step("Matrix", CoulombMatrix(), z, gaps, formula=formula, **table)
        norms = inner.step("Norms", RowNorms(), x, formula="the length of each row", columns=atoms)
        order = np.argsort(-norms.values, kind="stable")[: model.n_atoms]
        count, places, names = len(atoms), [], []
        for row in range(model.n_atoms):
            for column in range(row + 1):
                inside = row < len(order)
                places.append(int(order[row] * count + order[column]) if inside else -1)
                names.append(f"{atoms[order[row]]}, {atoms[order[column]]}" if inside else "none")
        formula = "the lower triangle, atoms sorted by the norms of their rows; 0 beyond the last"
        measured = model.featurize(subject.inputs(), model.n_atoms)[0]
        words: dict[str, Any] = {"formula": formula, "measured": measured, "columns": names}
        return inner.step("Sorted", Entries(tuple(places)), x, **words)
