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
from scipy.special import betaincinv
from sklearn.datasets import load_digits

from regard.api import (
    ComparisonResult,
    Generator,
    Predictor,
    compare,
    load,
)
from regard.bundled import NAMES, PHRASES, save_shapes
from regard.bundled.series import save_series
from regard.console import print_rows, print_strip, print_table
from regard.data.batching import Order
from regard.data.corpus import Corpus, reopen
from regard.data.shards import Shard
from regard.decoding import Sample
from regard.evaluation.translation import load_translations
from regard.look.comparison_page import comparison_page
from regard.look.internals import ForwardTrace, add_inside, run_facts
from regard.look.language_page import add_beam_search, add_next
from regard.look.page import Heatmap, Lines, Page, Table
from regard.look.prediction_page import prediction_page
from regard.look.run_warnings import run_warnings
from regard.recipe import override
from regard.run import Run
from regard.tokenizers import Tokenizer
from regard.training.progress import Reporter

Tables = dict[str, dict[str, Any]]  # of a recipe
POINTS = 30  # prefixes of the data at which a posterior is drawn
SEED = 0  # of the order in which records arrive
INTERVAL = (0.025, 0.975)
HELD_OUT = "held out"  # a background of the lengths


def count_transitions(shard: Shard, vocab_size: int) -> NDArray[np.int64]:
    """Return (V, V): how often each symbol follows each within records; for small alphabets."""
    ids = np.asarray(shard.ids, dtype=np.int64)
    inside = np.ones(len(ids) - 1, dtype=bool)
    inside[np.asarray(shard.offsets[1:-1]) - 1] = False  # from <E> to the next <S>
    pairs = ids[:-1][inside] * vocab_size + ids[1:][inside]
    return np.bincount(pairs, minlength=vocab_size**2).reshape(vocab_size, vocab_size)


def add_counts(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """Draw how often each symbol follows each, markers included."""
    counts = count_transitions(shard, tokenizer.vocab_size)
    rows, columns = np.flatnonzero(counts.any(1)), np.flatnonzero(counts.any(0))
    page.section(
        "Counting",
        "A bigram is this table: how often each symbol followed each in the training records. The "
        "row <S> holds how records begin, the column <E> how they end; an empty cell never "
        "occurred, and maximum likelihood gives it probability 0.",
    )
    values = counts[np.ix_(rows, columns)].astype(np.float64)
    before, after = ([tokenizer.text(int(i)) for i in ids] for ids in (rows, columns))
    title = "How often the column followed the row"
    page.add(Heatmap(values, before, after, title, scale="logarithmic", unit="times"))


def count_arriving(
    shard: Shard, before: int, after: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how often `before` was followed by `after`, and by anything, in the first 1, 2, …
    records of a shuffled order: (R,) each.
    """
    order = Order(shard.records, SEED)(np.arange(shard.records))
    ids = np.asarray(shard.ids)
    record = np.repeat(np.arange(shard.records), np.diff(shard.offsets))[:-1]
    starts = ids[:-1] == before
    hits, totals = (
        np.bincount(record[which], minlength=shard.records)[order].cumsum()
        for which in (starts & (ids[1:] == after), starts)
    )
    return hits, totals


def add_posterior(page: Page, shard: Shard, tokenizer: Tokenizer) -> None:
    """Draw the posterior of one transition as records arrive: Beta, from a flat Dirichlet prior."""
    possible = tokenizer.vocab_size - 1  # all but <S> can follow
    counts = count_transitions(shard, tokenizer.vocab_size)
    counts[:, tokenizer.end] = 0
    before, after = (int(i) for i in np.unravel_index(int(counts.argmax()), counts.shape))
    records = np.unique(np.geomspace(1, shard.records, POINTS).astype(int))
    hits, totals = (x[records - 1] for x in count_arriving(shard, before, after))
    a, b = 1.0 + hits, (possible - 1 + totals - hits).astype(np.float64)
    low, high = (betaincinv(a, b, p).tolist() for p in INTERVAL)
    name = f"P({tokenizer.text(after)} | {tokenizer.text(before)})"
    page.section(
        "Bayes",
        f"The posterior of one transition, {name}, from a prior under which all distributions are "
        "equally probable: the line is its mean, the band its 95% interval, which shrinks with the "
        "square root of the number of records. Records arrive in shuffled order, since the first "
        "records of a sorted file are no random sample.",
    )
    series = [(name, records.astype(float).tolist(), (a / (a + b)).tolist())]
    labels, bands = ("records, in shuffled order", "probability"), {name: (low, high)}
    page.add(Lines(series, *labels, f"{name} as data arrive", log_x=True, bands=bands))


def add_lengths(
    page: Page, held_out: Sequence[int], generated: Mapping[str, Sequence[int]]
) -> None:
    """Compare the lengths of generated records with those of held-out ones."""
    longest = max(held_out)
    at = [float(n) for n in range(longest + 1)]
    series, rows = [], []
    for name, values in {HELD_OUT: held_out, **generated}.items():
        lengths = np.asarray(values)
        counts = np.bincount(lengths[lengths <= longest], minlength=longest + 1)
        series.append((name, at, (counts / max(1, len(lengths))).tolist()))
        low, median, high = np.quantile(lengths, [0.25, 0.5, 0.75], method="inverted_cdf")
        over = f"{np.mean(lengths > longest):.1%}"
        rows.append([name, int(median), f"{int(low)} to {int(high)}", over])
    page.section(
        "Lengths",
        "A model predicts where a record ends: <E> is a symbol like any other. If it has learned "
        "that, its records are as long as the held-out ones.",
    )
    title = "Lengths of generated and held-out records"
    page.add(Lines(series, x_label="symbols", y_label="share", title=title, areas=[HELD_OUT]))
    columns = ["", "median", "middle half", f"longer than {longest}"]
    page.add(Table(columns, rows, align=["left", "right", "right", "right"]))


def add_sample_table(page: Page, samples: Mapping[str, Sequence[str]]) -> None:
    """List the samples of each model in a column."""
    page.section(
        "Samples",
        "New records generated by several models; the first draws symbols uniformly at random. "
        "Records with a star are in the training list.",
    )
    page.add(Table(list(samples), [list(row) for row in zip(*samples.values(), strict=True)]))


# Other registered models are variants of these and would share the time; `regard compare` has all.
LADDER = ("uniform", "unigram", "bigram", "map", "kneser-ney", "hmm", "mlp", "lstm", "transformer")
SAMPLED = ("uniform", "bigram", "map", "lstm", "transformer")  # models whose samples are shown
SAMPLES = 15
MEASURED, LONGEST = 300, 40  # samples whose lengths are counted, and their greatest length
TOP_K, TOP_P = 12, 0.8  # of the next symbols: so that both cuts are visible
# What learns most in 15 seconds on two cores, by the validation split: small networks without
# dropout, in many small batches and at twice the usual learning rates.
NAMES_TRANSFORMER = {"n_layers": 2, "d_model": 64, "dropout": 0.0}
NAMES_SETTINGS: Tables = {
    "model": NAMES_TRANSFORMER,
    "train": {"batch_tokens": 2048, "lr": 0.04, "adam_lr": 0.006},
}


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
        folder,
        models=models,
        minutes=minutes,
        progress=reporter or True,
        **override(NAMES_SETTINGS, assignments),
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
        texts = generators[name].continuations([""], Sample(seed=1), copies=SAMPLES, max_new=24)
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
        example = generators[result.comparison.rows[0].model].example(LONGEST)
        add_transformer(page, generators["transformer"], example)
    return page.write(result.folder / "report.html")


def add_transformer(page: Page, transformer: Generator, example: str) -> None:
    """Draw what the Transformer does with a held-out name."""
    assert transformer.run is not None
    page.warn(*run_warnings(transformer.run, "The Transformer drawn below"))
    model, tokenizer = transformer.model, transformer.tokenizer
    ids = [tokenizer.start, *(int(i) for i in tokenizer.encode(example))]
    banned = tokenizer.never_produced(model.vocab_size)
    trace = ForwardTrace(model, tokenizer, ids, False, None, banned)
    add_inside(page, trace)
    half = dataclasses.replace(trace, ids=trace.prompt, continues=True)
    add_next(page, half, top_k=TOP_K, top_p=TOP_P)
    add_beam_search(page, trace, width=4)


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
    result = compare([path], folder, **options)
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
    predicted, targets = predictor.predict_shard(shard).scores.argmax(1), np.asarray(shard.targets)
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
    page.warn(*run_warnings(Run(run)))
    return page.write(folder / "look.html")


DIGITS_MODELS = ("majority", "logistic", "cnn", "transformer")
DIGITS_SETTINGS: Tables = {
    "model": {"n_layers": 4, "d_model": 64, "dropout": 0.1},  # what learns most in a minute
    "data": {"test_fraction": 0.2},
    "train": {"average_last": 3, "batch_tokens": 1088},
}
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
        progress=reporter or True,
        **override(DIGITS_SETTINGS, assignments),
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
SHAPES_SETTINGS: Tables = {
    "model": {"n_layers": 2, "d_model": 64, "dropout": 0.0, "preset": "invariant"},
    "data": {"test_fraction": 0.15, "split": "stratified"},
    "train": {"average_last": 3},
}
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
        progress=reporter or True,
        **override(SHAPES_SETTINGS, assignments),
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


SERIES_MODELS = ("seasonal-naive", "ridge", "nlinear", "lstm", "transformer")


def demo_series(
    out: str | Path,
    minutes: float,
    *,
    models: Sequence[str] = SERIES_MODELS,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Compare forecasters of a synthetic load, and print the table and the next hours; return the
    folder.
    """
    folder, began = free_folder(Path(out)), time.monotonic()
    folder.mkdir(parents=True)
    file = save_series(folder / "load.csv")
    result = compare(
        [file],
        folder,
        target="load",
        models=models,
        minutes=minutes,
        task="forecast",
        horizon=24,
        progress=reporter or True,
        **override({}, assignments),
    )
    print_result(result)
    best = result.comparison.rows[0].runs[0]
    print_rows(load(best).forecast_file(file)[:6])
    print(f"\npage: {folder / 'compare.html'}   ({time.monotonic() - began:.0f} s in all)")
    print(f"continue with: regard look {shlex.quote(str(best))}")
    return folder


DATES_MODELS = ("ibm1", "transformer")
MOST_PHRASES = 12  # whose translations are printed
DATES_SETTINGS: Tables = {
    "model": {"n_layers": 2, "d_model": 96, "dropout": 0.0},  # what learns most in a minute
    "train": {"batch_tokens": 2048, "label_smoothing": 0},
}


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
        folder,
        input="1",
        target="2",
        models=models,
        minutes=minutes,
        progress=reporter or True,
        **override(DATES_SETTINGS, assignments),
    )
    print_result(result)
    print_translations({row.model: row.runs[0] for row in result.comparison.rows})
    print(f"\npage: {folder / 'compare.html'}   ({time.monotonic() - began:.0f} s in all)")
    best = shlex.quote(str(result.comparison.rows[0].runs[0]))
    print(f"continue with: echo 'March 3, 2031' | regard translate {best}")
    return folder


def print_translations(runs: Mapping[str, Path]) -> None:
    """Print held-out phrases, their references, and the translations of each model that were
    measured: those of the page.
    """
    columns: dict[str, list[str]] = {}
    for model, run in runs.items():
        sentences = load_translations(run)[0][:MOST_PHRASES]
        columns["phrase"] = [one.source for one in sentences]
        columns["German"] = [one.reference for one in sentences]
        columns[model] = [
            "✓" if one.translation == one.reference else one.translation for one in sentences
        ]
    rows = [list(cells) for cells in zip(*columns.values(), strict=True)]
    print_table(list(columns), rows, title="held-out phrases (✓: equal to the reference)")
