"""The demonstration: one list of names, the whole ladder from counting to attention, one report;
and what the other demonstrations share with it.

Nothing here is special: each step is a call that a user of the library can make as well.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.api import (
    Compared,
    Examiner,
    Predictor,
    compare,
    continuations,
    load_examiner,
    load_predictor,
)
from regard.bundled import NAMES
from regard.cli.compare import title
from regard.cli.output import print_strip, print_table
from regard.data.corpus import Corpus, reopen
from regard.data.shards import Shard
from regard.decode import Sample
from regard.look.answers import answer_page
from regard.look.comparison import comparison_page
from regard.look.reading import Reading
from regard.look.report import (
    add_counts,
    add_lengths,
    add_posterior,
    add_reading,
    add_samples_beside,
)
from regard.look.subject import run_facts
from regard.tokens import Patches
from regard.train.progress import Reporter

# The rungs climbed. The others of the registry are cousins of these: they would share the time, and
# `regard compare` has them all.
LADDER = ("uniform", "unigram", "bigram", "map", "kneser-ney", "hmm", "mlp", "lstm", "transformer")
SHOWN = ("uniform", "bigram", "map", "lstm", "transformer")  # rungs whose samples are shown
SAMPLES = 15
MEASURED, LONGEST = 300, 40  # samples whose lengths are counted, and where they are cut off
# What learns most in half a minute on two cores, as the validation part has it: small networks,
# undisturbed, in many small batches and at twice the usual rates.
TRANSFORMER = {"n_layers": 2, "d_model": 64, "dropout": 0.0}
HASTE = ("train.batch_tokens=2048", "train.lr=0.04", "train.adam_lr=0.006")


def demo(
    out: str | Path,
    minutes: float,
    *,
    names: Path = NAMES,
    models: Sequence[str] = LADDER,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Climb the ladder in `minutes`, print table, verdict and samples, write a report; its folder.

    `out` is numbered when it is taken, so that nothing is ever overwritten. `assignments` are
    recipe keys ("train.steps=20") that hold for every model.
    """
    folder, began = free_folder(Path(out)), time.monotonic()
    found = compare(
        [names],
        models=models,
        minutes=minutes,
        out=folder,
        transformer=TRANSFORMER,
        assignments=[*HASTE, *assignments],
        reporter=reporter or Reporter(),
    )
    tell(found)
    if found.strip is not None:
        print("bits of each symbol of a held-out name (0 to 9, + is more; $ is the end):")
        print_strip(*found.strip)
    predictors = {row.model: load_predictor(row.runs[0]) for row in found.comparison.rows}
    samples = made_up(predictors, set(names.read_text(encoding="utf-8").split()))
    print("\nnew names (* is in the list already):")
    for name, texts in samples.items():
        print(f"  {name:<12} {' '.join(texts)}")
    page = report(found, predictors, samples, reopen(folder))
    print(f"\nreport: {page}   ({time.monotonic() - began:.0f} s in all)")
    best = shlex.quote(str(found.comparison.rows[0].runs[0]))
    print(f"go on with: regard generate {best} --prompt ma")
    return folder


def tell(found: Compared) -> None:
    """Print the table and the verdict of a comparison."""
    columns, rows = found.comparison.cells()
    print_table(columns, rows, title=title(found))
    print(f"\n{found.comparison.verdict}\n")


def free_folder(out: Path) -> Path:
    """`out`, or `out-2`, `out-3`, … if it is taken."""
    folder, number = out, 1
    while folder.exists():
        number += 1
        folder = out.with_name(f"{out.name}-{number}")
    return folder


def made_up(predictors: Mapping[str, Predictor], known: set[str]) -> dict[str, list[str]]:
    """New names from several rungs, those that are in the list marked."""
    samples = {}
    for name in [name for name in SHOWN if name in predictors]:
        found = continuations(predictors[name], [""], Sample(seed=1), copies=SAMPLES, max_new=24)
        samples[name] = [f"{one.text}*" if one.text in known else one.text for one in found]
    return samples


def report(
    found: Compared,
    predictors: Mapping[str, Predictor],
    samples: Mapping[str, Sequence[str]],
    corpus: Corpus,
) -> Path:
    """The climb as one page: the table first, then each idea on the way."""
    page = comparison_page(found.comparison, title="From counting to attention", strip=found.strip)
    add_samples_beside(page, samples)
    add_counts(page, corpus.train, corpus.tokenizer)
    add_posterior(page, corpus.train, corpus.tokenizer)
    held = corpus.test or corpus.train
    lengths = {name: lengths_of(predictors[name]) for name in SHOWN if name in predictors}
    add_lengths(page, (np.diff(held.offsets) - 2).tolist(), lengths)
    attending = predictors.get("transformer")
    if attending is not None:
        ids = [int(i) for i in held.record(0)[:-1]]
        banned = attending.tokenizer.never_produced(attending.model.vocab_size)
        add_reading(page, Reading(attending.model, attending.tokenizer, ids, False, None, banned))
    return page.write(found.folder / "report.html")


def lengths_of(predictor: Predictor) -> list[int]:
    """How long the records are that a model makes."""
    prompts = [""] * MEASURED
    several = predictor.generate(prompts, Sample(seed=2), max_new=LONGEST, batch_size=MEASURED)
    return [len(one.ids) - one.finished for (one,) in several]


# shows what a model said of records, as numbers of classes, and which of them it got wrong
Show = Callable[[Examiner, Shard, NDArray[Any], NDArray[Any]], None]


def demo_answers(out: str | Path, make: Callable[[Path], Path], show: Show, **options: Any) -> Path:
    """Compare models (`options` are those of `compare`) on the file that `make` puts into a folder,
    show what the Transformer got wrong, and write a page about one record; the folder.
    """
    began, folder = time.monotonic(), free_folder(Path(out))
    folder.mkdir(parents=True, exist_ok=True)
    path = make(folder)
    found = compare([path], out=folder, **options)
    tell(found)
    run = next(row.runs[0] for row in found.comparison.rows if row.model == "transformer")
    page = look_at_one(run, folder, show)
    print(f"\npages: {folder / 'compare.html'}, {page}   ({time.monotonic() - began:.0f} s in all)")
    print(f"go on with: regard look {shlex.quote(str(run))} {shlex.quote(str(path))}[12]")
    return folder


def look_at_one(run: Path, folder: Path, show: Show) -> Path:
    """Show what a run got wrong of the test part, and write the page about the first such record,
    or about the first where there is none.
    """
    examiner, corpus = load_examiner(run), reopen(folder)
    tokenizer, shard = examiner.tokenizer, corpus.test or corpus.train
    assert shard.targets is not None
    said, truths = examiner.measure(shard).scores.argmax(1), np.asarray(shard.targets)
    wrong = np.flatnonzero(said != truths)
    show(examiner, shard, said, wrong)
    chosen = int(wrong[0]) if len(wrong) else 0
    record = shard.record(chosen)
    page = answer_page(
        examiner,
        tokenizer.picture(record) if isinstance(tokenizer, Patches) else record,
        title=f"A {examiner.targets.classes[0][truths[chosen]]}, as the Transformer sees it",
        facts=run_facts(run, examiner.model, tokenizer),
        held=("test" if corpus.test else "train", shard),
    )
    return page.write(folder / "look.html")
