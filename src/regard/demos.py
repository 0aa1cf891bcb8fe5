"""The demonstrations of `regard demo`: names, translation, handwritten digits and shapes.

Each compares models on one data set and writes a page, with public functions of the library.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from regard.api import (
    ComparisonResult,
    Generator,
    Predictor,
    compare,
    continuations,
    load,
)
from regard.bundled import NAMES, PHRASES
from regard.bundled.shapes import save_shapes
from regard.console import print_strip, print_table
from regard.data.corpus import Corpus, reopen
from regard.data.shards import Shard
from regard.decoding import Greedy, Sample
from regard.look.comparison_page import comparison_page
from regard.look.decoding_views import add_beam_search, add_next
from regard.look.demo_report import add_counts, add_lengths, add_posterior, add_sample_table
from regard.look.internals import ForwardTrace, add_inside
from regard.look.page_inputs import run_facts
from regard.look.prediction_page import prediction_page
from regard.run import Run
from regard.training.progress import Reporter

# Other registered models are variants of these and would share the time; `regard compare` has all.
LADDER = ("uniform", "unigram", "bigram", "map", "kneser-ney", "hmm", "mlp", "lstm", "transformer")
SAMPLED = ("uniform", "bigram", "map", "lstm", "transformer")  # models whose samples are shown
SAMPLES = 15
MEASURED, LONGEST = 300, 40  # samples whose lengths are counted, and their greatest length
TOP_K, TOP_P = 12, 0.8  # of the next symbols: so that both cuts are visible
# What learns most in half a minute on two cores, by the validation split: small networks without
# dropout, in many small batches and at twice the usual learning rates.
NAMES_TRANSFORMER = {"n_layers": 2, "d_model": 64, "dropout": 0.0}
NAMES_SETTINGS = ("train.batch_tokens=2048", "train.lr=0.04", "train.adam_lr=0.006")


def demo(
    out: str | Path,
    minutes: float,
    *,
    names: Path = NAMES,
    models: Sequence[str] = LADDER,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Compare language models on names in `minutes`, print the table, the verdict and samples, and
    write a report; return its folder.

    `out` gets a number if it exists, so that nothing is overwritten. `assignments` are recipe keys
    ("train.steps=20") for every model.
    """
    folder, began = free_folder(Path(out)), time.monotonic()
    result = compare(
        [names],
        models=models,
        minutes=minutes,
        out=folder,
        transformer=NAMES_TRANSFORMER,
        assignments=[*NAMES_SETTINGS, *assignments],
        reporter=reporter or Reporter(),
    )
    print_result(result)
    if result.strip is not None:
        print("bits of each symbol of a held-out name (0 to 9, + is more; $ is the end):")
        print_strip(*result.strip)
    generators = {row.model: load(row.runs[0]) for row in result.comparison.rows}
    samples = sample_names(generators, set(names.read_text(encoding="utf-8").split()))
    print("\nnew names (* is in the training list):")
    for name, texts in samples.items():
        print(f"  {name:<12} {' '.join(texts)}")
    page = write_report(result, generators, samples, reopen(folder))
    print(f"\nreport: {page}   ({time.monotonic() - began:.0f} s in all)")
    best = shlex.quote(str(result.comparison.rows[0].runs[0]))
    print(f"continue with: regard generate {best} --prompt ma")
    return folder


def print_result(result: ComparisonResult) -> None:
    """Print the table and the verdict of a comparison."""
    columns, rows = result.comparison.table()
    print_table(columns, rows, title=f"{result.comparison.data_description}, 95% intervals")
    print(f"\n{result.comparison.verdict}\n")


def free_folder(out: Path) -> Path:
    """Return `out`, or `out-2`, `out-3`, … if it exists."""
    folder, number = out, 1
    while folder.exists():
        number += 1
        folder = out.with_name(f"{out.name}-{number}")
    return folder


def sample_names(generators: Mapping[str, Generator], known: set[str]) -> dict[str, list[str]]:
    """Return samples by model; those in the training list end in a star."""
    samples = {}
    for name in [name for name in SAMPLED if name in generators]:
        texts = continuations(generators[name], [""], Sample(seed=1), copies=SAMPLES, max_new=24)
        samples[name] = [f"{x.text}*" if x.text in known else x.text for x in texts]
    return samples


def write_report(
    result: ComparisonResult,
    generators: Mapping[str, Generator],
    samples: Mapping[str, Sequence[str]],
    corpus: Corpus,
) -> Path:
    """Write the page with the table, samples, counts, lengths, and the Transformer on one name."""
    page = comparison_page(
        result.comparison, title="From counting to attention", strip=result.strip
    )
    add_sample_table(page, samples)
    add_counts(page, corpus.train, corpus.tokenizer)
    add_posterior(page, corpus.train, corpus.tokenizer)
    held_out = corpus.test or corpus.train
    lengths = {name: sample_lengths(generators[name]) for name in SAMPLED if name in generators}
    add_lengths(page, (np.diff(held_out.offsets) - 2).tolist(), lengths)
    if "transformer" in generators:
        transformer = generators["transformer"]
        model, tokenizer = transformer.model, transformer.tokenizer
        ids = [int(i) for i in held_out.record(0)[:-1]]
        banned = tokenizer.never_produced(model.vocab_size)
        trace = ForwardTrace(model, tokenizer, ids, False, None, banned)
        add_inside(page, trace)
        half = dataclasses.replace(trace, ids=trace.prompt, continues=True)
        add_next(page, half, top_k=TOP_K, top_p=TOP_P)
        add_beam_search(page, trace, width=4)
    return page.write(result.folder / "report.html")


def sample_lengths(generator: Generator) -> list[int]:
    """Return the lengths of sampled records."""
    prompts = [""] * MEASURED
    sampled = generator.generate(prompts, Sample(seed=2), max_new=LONGEST, batch_size=MEASURED)
    return [len(record.ids) - record.finished for (record,) in sampled]


# Prints the errors of a predictor on a shard, given predicted classes and the records of errors.
PrintErrors = Callable[[Predictor, Shard, NDArray[Any], NDArray[Any]], None]


def demo_classifier(
    out: str | Path, write_data: Callable[[Path], Path], print_errors: PrintErrors, **options: Any
) -> Path:
    """Compare models (`options` of `compare`) on the file that `write_data` writes into a folder,
    print the errors of the Transformer, and write a page about one record; return the folder.
    """
    began, folder = time.monotonic(), free_folder(Path(out))
    folder.mkdir(parents=True, exist_ok=True)
    path = write_data(folder)
    result = compare([path], out=folder, **options)
    print_result(result)
    run = next(row.runs[0] for row in result.comparison.rows if row.model == "transformer")
    page = write_error_page(run, folder, print_errors)
    print(f"\npages: {folder / 'compare.html'}, {page}   ({time.monotonic() - began:.0f} s in all)")
    print(f"continue with: regard look {shlex.quote(str(run))} {shlex.quote(str(path))}[12]")
    return folder


def write_error_page(run: Path, folder: Path, print_errors: PrintErrors) -> Path:
    """Print the errors of a run on the test split, and write the page about the first of them, or
    about the first record if there is none.
    """
    predictor, corpus = load(run), reopen(folder)
    shard = corpus.test or corpus.train
    assert shard.targets is not None
    predicted, targets = predictor.predictions(shard).scores.argmax(1), np.asarray(shard.targets)
    errors = np.flatnonzero(predicted != targets)
    print_errors(predictor, shard, predicted, errors)
    number = int(errors[0]) if len(errors) else 0
    page = prediction_page(
        predictor,
        predictor.tokenizer.decode_record(shard.record(number)),
        title=f"A {predictor.targets.classes[0][targets[number]]}, read by the Transformer",
        facts=run_facts(Run(run), predictor.model, predictor.tokenizer),
        held_out=("test" if corpus.test else "train", shard),
    )
    return page.write(folder / "look.html")


DIGITS_MODELS = ("majority", "logistic", "cnn", "transformer")
DIGITS_TRANSFORMER = {"n_layers": 4, "d_model": 64, "dropout": 0.1}  # what learns most in a minute
DIGITS_SETTINGS = ("data.test_fraction=0.2", "train.average_last=3", "train.batch_tokens=1088")
SHADES = " .:-=+*#%@"
MOST_DIGITS = 4  # errors that are shown
WHITE = 16  # the largest value in scikit-learn's digits


def save_digits(path: Path) -> Path:
    """Write scikit-learn's 1797 handwritten digits of 8 × 8 pixels (Alpaydin & Kaynak 1998) as a
    file that `regard train` reads.
    """
    digits = load_digits()
    images = np.round(digits.images * (255 / WHITE)).astype(np.uint8)
    np.savez_compressed(path, images=images, digit=digits.target.astype(np.int64))
    return path


def demo_digits(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = DIGITS_MODELS,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Compare classifiers of handwritten digits, print the table, draw the errors of the
    Transformer in characters, and write a page about one image; return the folder.
    """
    return demo_classifier(
        out,
        lambda folder: save_digits(folder / "digits.npz"),
        print_wrong_digits,
        models=models,
        minutes=minutes,
        transformer=DIGITS_TRANSFORMER,
        assignments=[*DIGITS_SETTINGS, *assignments],
        reporter=reporter or Reporter(),
    )


def print_wrong_digits(
    predictor: Predictor, shard: Shard, predicted: NDArray[Any], errors: NDArray[Any]
) -> None:
    classes, targets = predictor.targets.classes[0], np.asarray(shard.targets)
    print(f"wrong for {len(errors):,} of {shard.records:,} held-out records:")
    shown = errors[:MOST_DIGITS]
    images = [predictor.tokenizer.decode_record(shard.record(int(i)))[..., 0] for i in shown]
    names = [f"{classes[targets[i]]} read as {classes[predicted[i]]}" for i in shown]
    for line in images_as_text(images, names):
        print(line)


def images_as_text(images: Sequence[NDArray[np.uint8]], names: Sequence[str]) -> list[str]:
    """Draw gray images in characters, next to each other, with their names above."""
    if not images:
        return []
    width = 2 * images[0].shape[1] + 2
    lines = ["".join(f"  {name:<{width}}" for name in names)]
    for y in range(images[0].shape[0]):
        rows = (
            "".join(2 * SHADES[int(v) * (len(SHADES) - 1) // 255] for v in x[y]) for x in images
        )
        lines.append("".join(f"  {row:<{width}}" for row in rows))
    return lines


SHAPES_MODELS = ("majority", "logistic", "transformer")
SHAPES_TRANSFORMER = {"n_layers": 2, "d_model": 64, "dropout": 0.0, "preset": "invariant"}
SHAPES_SETTINGS = ("data.test_fraction=0.15", "train.average_last=3", "data.split=stratified")
RECORDS = 4000
MOST_CONFUSED = 8  # pairs of classes that are printed


def demo_shapes(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = SHAPES_MODELS,
    assignments: Sequence[str] = (),
    records: int = RECORDS,
    reporter: Reporter | None = None,
) -> Path:
    """Compare classifiers of synthetic point clouds (simple bodies, rotated, noisy and with a part
    missing), print the table and what the Transformer confuses, and write a page about one of them;
    return the folder.
    """
    return demo_classifier(
        out,
        lambda folder: save_shapes(folder / "shapes.npz", records),
        print_confused_shapes,
        models=models,
        minutes=minutes,
        transformer=SHAPES_TRANSFORMER,
        assignments=[*SHAPES_SETTINGS, *assignments],
        reporter=reporter or Reporter(),
    )


def print_confused_shapes(
    predictor: Predictor, shard: Shard, predicted: NDArray[Any], errors: NDArray[Any]
) -> None:
    classes, targets = predictor.targets.classes[0], np.asarray(shard.targets)
    print(f"wrong for {len(errors):,} of {shard.records:,} held-out records:")
    pairs = np.stack((targets[errors], predicted[errors]))
    pairs, counts = np.unique(pairs, axis=1, return_counts=True)
    for i in np.argsort(-counts, kind="stable")[:MOST_CONFUSED]:
        target, prediction = (classes[int(k)] for k in pairs[:, i])
        print(f"  {counts[i]:>3} × {target} predicted as {prediction}")


DATES_MODELS = ("ibm1", "transformer")
MOST_PHRASES = 12  # whose translations are printed
DATES_TRANSFORMER = {"n_layers": 2, "d_model": 96, "dropout": 0.0}  # what learns most in a minute
DATES_SETTINGS = ("train.batch_tokens=2048", "train.label_smoothing=0")


def demo_translate(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = DATES_MODELS,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Compare translators of the bundled phrases, print the table and translations of held-out
    phrases; return the folder.
    """
    folder, began = free_folder(Path(out)), time.monotonic()
    result = compare(
        [PHRASES],
        models=models,
        minutes=minutes,
        out=folder,
        data={"input": "1", "target": "2"},
        transformer=DATES_TRANSFORMER,
        assignments=[*DATES_SETTINGS, *assignments],
        reporter=reporter or Reporter(),
    )
    print_result(result)
    print_translations({row.model: row.runs[0] for row in result.comparison.rows}, folder)
    print(f"\npage: {folder / 'compare.html'}   ({time.monotonic() - began:.0f} s in all)")
    best = shlex.quote(str(result.comparison.rows[0].runs[0]))
    print(f"continue with: echo 'March 3, 2031' | regard translate {best}")
    return folder


def print_translations(runs: dict[str, Path], folder: Path) -> None:
    """Print held-out phrases, their references, and the translations of each model."""
    corpus = reopen(folder)
    shard = corpus.test or corpus.train
    assert shard.source is not None
    decode = corpus.tokenizer.decode
    numbers = range(min(MOST_PHRASES, shard.records))
    phrases = [decode(shard.source.record(i)[1:-1]) for i in numbers]
    references = [decode(shard.record(i)[1:-1]) for i in numbers]
    columns = {"phrase": phrases, "German": references}
    for model, run in runs.items():
        translations = load(run).translate(phrases, Greedy())
        columns[model] = [
            "✓" if best.text == reference else best.text
            for (best, *_), reference in zip(translations, references, strict=True)
        ]
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    print_table(list(columns), rows, title="held-out phrases (✓: equal to the reference)")
