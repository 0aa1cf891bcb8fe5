"""The demonstration of point clouds: simple bodies, made up, stretched, turned in any way, noisy
and with a part missing.

Counting, a line through statistics of the whole cloud, and attention over groups of points, on the
same split; and a page on which a cloud can be turned, and one sees where attention looks.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard.api import compare, load_examiner
from regard.bundled.shapes import save_shapes
from regard.cli.compare import title
from regard.cli.output import print_table
from regard.data.corpus import reopen
from regard.demo import free_folder
from regard.look.answers import answer_page
from regard.look.subject import run_facts
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
    began = time.monotonic()
    folder = free_folder(Path(out))
    folder.mkdir(parents=True, exist_ok=True)
    path = save_shapes(folder / "shapes.npz", records)
    found = compare(
        [path],
        models=models,
        minutes=minutes,
        out=folder,
        transformer=TRANSFORMER,
        assignments=[*STEPS, *assignments],
        reporter=reporter or Reporter(),
    )
    columns, rows = found.comparison.cells()
    print_table(columns, rows, title=title(found))
    print(f"\n{found.comparison.verdict}\n")
    run = next(row.runs[0] for row in found.comparison.rows if row.model == "transformer")
    page = look_at_one(run, folder)
    print(f"\npages: {folder / 'compare.html'}, {page}   ({time.monotonic() - began:.0f} s in all)")
    print(f"go on with: regard look {shlex.quote(str(run))} {shlex.quote(str(path))}[12]")
    return folder


def look_at_one(run: Path, folder: Path) -> Path:
    """Say what a run takes for what in the test part, and write the page about the first cloud that
    it gets wrong, or about the first where there is none.
    """
    examiner, corpus = load_examiner(run), reopen(folder)
    shard = corpus.test or corpus.train
    assert shard.targets is not None
    said, truths = examiner.measure(shard).scores.argmax(1), np.asarray(shard.targets)
    wrong = np.flatnonzero(said != truths)
    classes = examiner.targets.classes[0]
    print(f"wrong in {len(wrong):,} of {shard.records:,} that it has not seen")
    pairs, counts = np.unique(np.stack((truths[wrong], said[wrong])), axis=1, return_counts=True)
    for i in np.argsort(-counts, kind="stable")[:SHOWN]:
        one, two = (classes[int(k)] for k in pairs[:, i])
        print(f"  {counts[i]:>3} × a {one} taken for a {two}")
    chosen = int(wrong[0]) if len(wrong) else 0
    page = answer_page(
        examiner,
        shard.record(chosen),
        title=f"A {classes[truths[chosen]]}, as the Transformer sees it",
        facts=run_facts(run, examiner.model, examiner.tokenizer),
        held=("test" if corpus.test else "train", shard),
    )
    return page.write(folder / "look.html")
