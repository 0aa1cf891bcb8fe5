"""Labels and values of point clouds by recipes, against logistic regression on statistics of point
clouds and, for molecules, kernel ridge regression on sorted Coulomb matrices.

QM7's energies by five folds, each molecule tested once; MNIST's digits as points in the plane, with
their own test set; synthetic shapes, rotated at random, by seeds. `labels.py` trains and reports.

    python benchmarks/points.py qm7 mnist shapes [--data DIR] [--rows transformer,coulomb,logistic]
        [--seeds 3] [--jobs 1] [--set train.steps=300] [--keep FOLDER] [--json FILE]
"""

from __future__ import annotations

from pathlib import Path

import labels
import numpy as np
from label_sets import qm7
from labels import Set

DARK = 64  # of 255: pixels up to this are no points
SHAPES = 8000  # made up


def as_points(images: Path, digits: Path, path: Path) -> Path:
    """The pixels of IDX files that are not dark, as points with y upwards and their brightness."""
    from regard.modalities.images.files import read_idx

    pixels, truths = read_idx(images), read_idx(digits)
    which, rows, columns = np.nonzero(pixels > DARK)
    np.savez_compressed(
        path,
        points=np.stack((columns, -rows), 1).astype(np.float32),
        features=(pixels[which, rows, columns, None] / 255).astype(np.float32),
        lengths=np.bincount(which, minlength=len(pixels)),
        digit=truths,
    )
    return path


def mnist(data: Path, into: Path) -> list[str]:
    """Digits as points, made once."""
    at, paths = data / "images" / "mnist", []
    for name, side in (("train", ""), ("t10k", "_test")):
        path = into / f"mnist_points{side}.npz"
        both = [at / f"{name}-{kind}-ubyte.gz" for kind in ("images-idx3", "labels-idx1")]
        paths.append(path if path.exists() else as_points(both[0], both[1], path))
    return [str(paths[0]), "--target", "digit", "--test", str(paths[1])]


def shapes(data: Path, into: Path) -> list[str]:
    """Shapes, made up with a fixed seed."""
    from regard.bundled import save_shapes

    return [str(save_shapes(into / "shapes.npz", SHAPES))]


SETS = {
    "qm7": Set(
        qm7,
        "mae",
        "9.9, kernel ridge on Coulomb matrices (Rupp et al. 2012)",
        folds=5,
        seeds=1,
        bar="4.0 kcal/mol, below coulomb",
    ),
    "mnist": Set(
        mnist,
        "error",
        "0.78 PointNet, 0.51 PointNet++ (Qi et al. 2017)",
        seeds=1,
        bar="1.2",
        recipe="mnist_points",
    ),
    "shapes": Set(shapes, "accuracy", "none", seeds=3, bar="97"),
}


if __name__ == "__main__":
    labels.main(SETS, __doc__)
