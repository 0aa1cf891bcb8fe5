"""The demonstration of translation: dates, numbers and money from English into German.

A table of which symbol stands for which, and a Transformer, on the same pairs; `regard compare`
also has recurrences, with attention and without.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from regard.api import compare, load_interpreter
from regard.bundled import PHRASES
from regard.cli.output import print_table
from regard.data.corpus import reopen
from regard.decode import Greedy
from regard.demo import free_folder, tell
from regard.train.progress import Reporter

MODELS = ("ibm1", "transformer")
SHOWN = 12  # phrases whose translations are printed
TRANSFORMER = {"n_layers": 2, "d_model": 96, "dropout": 0.0}  # what learns most in a minute
STEPS = ("train.batch_tokens=2048", "train.label_smoothing=0")


def demo_translate(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = MODELS,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Train translators on the bundled phrases, print their table and translations of phrases that
    none has seen; the folder of all of it.
    """
    folder, began = free_folder(Path(out)), time.monotonic()
    found = compare(
        [PHRASES],
        models=models,
        minutes=minutes,
        out=folder,
        data={"input": "1", "target": "2"},
        transformer=TRANSFORMER,
        assignments=[*STEPS, *assignments],
        reporter=reporter or Reporter(),
    )
    tell(found)
    print_translations({row.model: row.runs[0] for row in found.comparison.rows}, folder)
    print(f"\npage: {folder / 'compare.html'}   ({time.monotonic() - began:.0f} s in all)")
    best = shlex.quote(str(found.comparison.rows[0].runs[0]))
    print(f"go on with: echo 'March 3, 2031' | regard translate {best}")
    return folder


def print_translations(runs: dict[str, Path], folder: Path) -> None:
    """Held-out phrases, what they should be, and what each model makes of them."""
    corpus = reopen(folder)
    shard = corpus.test or corpus.train
    assert shard.source is not None
    decode = corpus.tokenizer.decode
    numbers = range(min(SHOWN, shard.records))
    phrases = [decode(shard.source.record(i)[1:-1]) for i in numbers]
    columns = {"phrase": phrases, "German": [decode(shard.record(i)[1:-1]) for i in numbers]}
    for model, run in runs.items():
        made = load_interpreter(run).translate(phrases, Greedy())
        columns[model] = [
            "✓" if one.text == right else one.text
            for (one, *_), right in zip(made, columns["German"], strict=True)
        ]
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    print_table(list(columns), rows, title="phrases that no model has seen (✓: translated right)")
