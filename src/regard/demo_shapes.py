"""The demonstration of point clouds: simple bodies, made up, stretched, turned in any way, noisy
and with a part missing.

Counting, a line through statistics of the whole cloud, and attention over groups of points, on the
same split; and a page on which a cloud can be turned, and one sees where attention looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.api import Examiner
from regard.bundled.shapes import save_shapes
from regard.data.shards import Shard
from regard.demo import demo_answers
from regard.train.progress import Reporter

MODELS = ("majority", "logistic", "transformer")
TRANSFORMER = {"n_layers": 2, "d_model": 64, "dropout": 0.0, "preset": "invariant"}
STEPS = ("data.test_fraction=0.15", "train.average=3", "data.split=stratified")
RECORDS = 4000
SHOWN = 8  # pairs of classes that are taken for each other


def demo_shapes(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = MODELS,
    assignments: Sequence[str] = (),
    records: int = RECORDS,
    reporter: Reporter | None = None,
) -> Path:
    """Make shapes, train on them, print the table and what the Transformer takes for what, and
    write a page about one cloud; the folder of all of it.
    """
    return demo_answers(
        out,
        lambda folder: save_shapes(folder / "shapes.npz", records),
        name_mistaken,
        models=models,
        minutes=minutes,
        transformer=TRANSFORMER,
        assignments=[*STEPS, *assignments],
        reporter=reporter or Reporter(),
    )


def name_mistaken(
    examiner: Examiner, shard: Shard, said: NDArray[Any], wrong: NDArray[Any]
) -> None:
    """Shapes that were taken for others, the most frequent first."""
    classes, truths = examiner.targets.classes[0], np.asarray(shard.targets)
    print(f"wrong in {len(wrong):,} of {shard.records:,} that it has not seen")
    pairs, counts = np.unique(np.stack((truths[wrong], said[wrong])), axis=1, return_counts=True)
    for i in np.argsort(-counts, kind="stable")[:SHOWN]:
        one, two = (classes[int(k)] for k in pairs[:, i])
        print(f"  {counts[i]:>3} × a {one} taken for a {two}")
