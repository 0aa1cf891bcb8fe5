"""The demonstration: one list of names, the whole ladder from counting to attention, one report;
and what the other demonstrations share with it.

Nothing here is special: each step is a call that a user of the library can make as well.

The demonstration of images: handwritten digits of 8 × 8 pixels, which scikit-learn brings along.

Counting, a line through the pixels, filters and attention over patches, on the same split; and a
page on which one can see where attention looks.

The demonstration of point clouds: simple bodies, made up, stretched, turned in any way, noisy
and with a part missing.

Counting, a line through statistics of the whole cloud, and attention over groups of points, on the
same split; and a page on which a cloud can be turned, and one sees where attention looks.

The demonstration of translation: dates, numbers and money from English into German.

A table of which symbol stands for which, and a Transformer, on the same pairs; `regard compare`
also has recurrences, with attention and without.
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
    ComparisonResult,
    Generator,
    Predictor,
    compare,
    continuations,
    load_generator,
    load_predictor,
    load_translator,
)
from regard.bundled import NAMES, PHRASES
from regard.bundled.shapes import save_shapes
from regard.cli.compare import title
from regard.cli.output import print_strip, print_table
from regard.data.corpus import Corpus, reopen
from regard.data.shards import Shard
from regard.decoding import Greedy, Sample
from regard.errors import missing_extra
from regard.look.comparison_page import comparison_page
from regard.look.demo_report import (
    add_counts,
    add_lengths,
    add_posterior,
    add_reading,
    add_samples_beside,
)
from regard.look.forward_trace import ForwardTrace
from regard.look.page_inputs import run_facts
from regard.look.prediction_page import prediction_page
from regard.tokenizers import Patches
from regard.training.progress import Reporter

# The rungs climbed. The others of the registry are cousins of these: they would share the time, and
# `regard compare` has them all.
LADDER = ("uniform", "unigram", "bigram", "map", "kneser-ney", "hmm", "mlp", "lstm", "transformer")
NAMES_SHOWN = ("uniform", "bigram", "map", "lstm", "transformer")  # rungs whose samples are shown
SAMPLES = 15
MEASURED, LONGEST = 300, 40  # samples whose lengths are counted, and where they are cut off
# What learns most in half a minute on two cores, as the validation part has it: small networks,
# undisturbed, in many small batches and at twice the usual rates.
NAMES_TRANSFORMER = {"n_layers": 2, "d_model": 64, "dropout": 0.0}
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
        transformer=NAMES_TRANSFORMER,
        assignments=[*HASTE, *assignments],
        reporter=reporter or Reporter(),
    )
    tell(found)
    if found.strip is not None:
        print("bits of each symbol of a held-out name (0 to 9, + is more; $ is the end):")
        print_strip(*found.strip)
    predictors = {row.model: load_generator(row.runs[0]) for row in found.comparison.rows}
    samples = made_up(predictors, set(names.read_text(encoding="utf-8").split()))
    print("\nnew names (* is in the list already):")
    for name, texts in samples.items():
        print(f"  {name:<12} {' '.join(texts)}")
    page = report(found, predictors, samples, reopen(folder))
    print(f"\nreport: {page}   ({time.monotonic() - began:.0f} s in all)")
    best = shlex.quote(str(found.comparison.rows[0].runs[0]))
    print(f"go on with: regard generate {best} --prompt ma")
    return folder


def tell(found: ComparisonResult) -> None:
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


def made_up(predictors: Mapping[str, Generator], known: set[str]) -> dict[str, list[str]]:
    """New names from several rungs, those that are in the list marked."""
    samples = {}
    for name in [name for name in NAMES_SHOWN if name in predictors]:
        found = continuations(predictors[name], [""], Sample(seed=1), copies=SAMPLES, max_new=24)
        samples[name] = [f"{one.text}*" if one.text in known else one.text for one in found]
    return samples


def report(
    found: ComparisonResult,
    predictors: Mapping[str, Generator],
    samples: Mapping[str, Sequence[str]],
    corpus: Corpus,
) -> Path:
    """The climb as one page: the table first, then each idea on the way."""
    page = comparison_page(found.comparison, title="From counting to attention", strip=found.strip)
    add_samples_beside(page, samples)
    add_counts(page, corpus.train, corpus.tokenizer)
    add_posterior(page, corpus.train, corpus.tokenizer)
    held = corpus.test or corpus.train
    lengths = {name: lengths_of(predictors[name]) for name in NAMES_SHOWN if name in predictors}
    add_lengths(page, (np.diff(held.offsets) - 2).tolist(), lengths)
    attending = predictors.get("transformer")
    if attending is not None:
        ids = [int(i) for i in held.record(0)[:-1]]
        banned = attending.tokenizer.never_produced(attending.model.vocab_size)
        add_reading(
            page, ForwardTrace(attending.model, attending.tokenizer, ids, False, None, banned)
        )
    return page.write(found.folder / "report.html")


def lengths_of(generator: Generator) -> list[int]:
    """How long the records are that a model makes."""
    prompts = [""] * MEASURED
    several = generator.generate(prompts, Sample(seed=2), max_new=LONGEST, batch_size=MEASURED)
    return [len(one.ids) - one.finished for (one,) in several]


# shows what a model said of records, as numbers of classes, and which of them it got wrong
Show = Callable[[Predictor, Shard, NDArray[Any], NDArray[Any]], None]


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
    predictor, corpus = load_predictor(run), reopen(folder)
    tokenizer, shard = predictor.tokenizer, corpus.test or corpus.train
    assert shard.targets is not None
    said, truths = predictor.measure(shard).scores.argmax(1), np.asarray(shard.targets)
    wrong = np.flatnonzero(said != truths)
    show(predictor, shard, said, wrong)
    chosen = int(wrong[0]) if len(wrong) else 0
    record = shard.record(chosen)
    page = prediction_page(
        predictor,
        tokenizer.picture(record) if isinstance(tokenizer, Patches) else record,
        title=f"A {predictor.targets.classes[0][truths[chosen]]}, as the Transformer sees it",
        facts=run_facts(run, predictor.model, tokenizer),
        held=("test" if corpus.test else "train", shard),
    )
    return page.write(folder / "look.html")


DIGITS_MODELS = ("majority", "logistic", "cnn", "transformer")
DIGITS_TRANSFORMER = {"n_layers": 4, "d_model": 64, "dropout": 0.1}  # what learns most in a minute
DIGITS_STEPS = ("data.test_fraction=0.2", "train.average=3", "train.batch_tokens=1088")
SHADES = " .:-=+*#%@"
DIGITS_SHOWN = 4  # wrong answers that are drawn
WHITE = 16  # of scikit-learn's digits


def digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(1797, 8, 8) bytes and the digit of each (Alpaydin & Kaynak 1998)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise missing_extra("scikit-learn", "science") from None
    found = load_digits()
    return np.round(found.images * (255 / WHITE)).astype(np.uint8), found.target.astype(np.int64)


def save_digits(path: Path) -> Path:
    """The digits as a file that `regard train` reads."""
    images, labels = digits()
    np.savez_compressed(path, images=images, digit=labels)
    return path


def demo_digits(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = DIGITS_MODELS,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Train on the digits, print the table, draw what the Transformer got wrong, and write a page
    about one picture; the folder of all of it.
    """
    digits()  # what is missing is said before anything is made
    return demo_answers(
        out,
        lambda folder: save_digits(folder / "digits.npz"),
        draw_wrong,
        models=models,
        minutes=minutes,
        transformer=DIGITS_TRANSFORMER,
        assignments=[*DIGITS_STEPS, *assignments],
        reporter=reporter or Reporter(),
    )


def draw_wrong(predictor: Predictor, shard: Shard, said: NDArray[Any], wrong: NDArray[Any]) -> None:
    """Digits that were read wrong."""
    tokenizer, classes = predictor.tokenizer, predictor.targets.classes[0]
    assert isinstance(tokenizer, Patches) and shard.targets is not None
    if len(wrong):
        print(f"wrong in {len(wrong):,} of {shard.records:,} that it has not seen:")
    drawn = [tokenizer.picture(shard.record(int(i)))[..., 0] for i in wrong[:DIGITS_SHOWN]]
    told = [f"{classes[shard.targets[i]]} read as {classes[said[i]]}" for i in wrong[:DIGITS_SHOWN]]
    for line in side_by_side(drawn, told):
        print(line)


def side_by_side(pictures: Sequence[NDArray[np.uint8]], names: Sequence[str]) -> list[str]:
    """Pictures in characters, beside each other, with their names above."""
    if not pictures:
        return []
    wide = 2 * pictures[0].shape[1] + 4
    lines = ["".join(f"  {name:<{wide - 2}}" for name in names)]
    for y in range(pictures[0].shape[0]):
        parts = []
        for picture in pictures:
            row = "".join(2 * SHADES[int(v) * (len(SHADES) - 1) // 255] for v in picture[y])
            parts.append(f"  {row:<{wide - 2}}")
        lines.append("".join(parts))
    return lines


SHAPES_MODELS = ("majority", "logistic", "transformer")
SHAPES_TRANSFORMER = {"n_layers": 2, "d_model": 64, "dropout": 0.0, "preset": "invariant"}
SHAPES_STEPS = ("data.test_fraction=0.15", "train.average=3", "data.split=stratified")
RECORDS = 4000
SHAPES_SHOWN = 8  # pairs of classes that are taken for each other


def demo_shapes(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = SHAPES_MODELS,
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
        transformer=SHAPES_TRANSFORMER,
        assignments=[*SHAPES_STEPS, *assignments],
        reporter=reporter or Reporter(),
    )


def name_mistaken(
    predictor: Predictor, shard: Shard, said: NDArray[Any], wrong: NDArray[Any]
) -> None:
    """Shapes that were taken for others, the most frequent first."""
    classes, truths = predictor.targets.classes[0], np.asarray(shard.targets)
    print(f"wrong in {len(wrong):,} of {shard.records:,} that it has not seen")
    pairs, counts = np.unique(np.stack((truths[wrong], said[wrong])), axis=1, return_counts=True)
    for i in np.argsort(-counts, kind="stable")[:SHAPES_SHOWN]:
        one, two = (classes[int(k)] for k in pairs[:, i])
        print(f"  {counts[i]:>3} × a {one} taken for a {two}")


DATES_MODELS = ("ibm1", "transformer")
DATES_SHOWN = 12  # phrases whose translations are printed
DATES_TRANSFORMER = {"n_layers": 2, "d_model": 96, "dropout": 0.0}  # what learns most in a minute
DATES_STEPS = ("train.batch_tokens=2048", "train.label_smoothing=0")


def demo_translate(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = DATES_MODELS,
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
        transformer=DATES_TRANSFORMER,
        assignments=[*DATES_STEPS, *assignments],
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
    numbers = range(min(DATES_SHOWN, shard.records))
    phrases = [decode(shard.source.record(i)[1:-1]) for i in numbers]
    columns = {"phrase": phrases, "German": [decode(shard.record(i)[1:-1]) for i in numbers]}
    for model, run in runs.items():
        made = load_translator(run).translate(phrases, Greedy())
        columns[model] = [
            "✓" if one.text == right else one.text
            for (one, *_), right in zip(made, columns["German"], strict=True)
        ]
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    print_table(list(columns), rows, title="phrases that no model has seen (✓: translated right)")
