"""regard predict"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Device, Format, Input, RunFolder, Strict

if TYPE_CHECKING:
    from regard.data.inputs import Item
    from regard.pipelines.predictor import Prediction, Predictor, Span

File = Annotated[
    Path,
    typer.Argument(
        help="Records: FASTA, CSV, TSV, JSONL, lines, or - for standard input; or images."
    ),
]
Scores = Annotated[bool, typer.Option("--scores", help="All probabilities, not the best alone.")]
Classes = Annotated[
    str,
    typer.Option(help="Contrastive runs: the classes in words, 'a red square,a blue circle'."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: RunFolder,
    file: File = Path("-"),
    input: Input = "",
    format: Format = "auto",
    scores: Scores = False,
    classes: Classes = "",
    strict: Strict = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """What a model predicts for each record: its class, labels, values, or a class per position.

    Files are read as in training, from the columns that the run was trained on. A row for each
    record, order kept, streaming. A model that labels words prints a line for each word, or for
    those together that are one name (B-PER I-PER), and an empty line after each text.

    Example: regard predict runs/questions new.txt

    Images, as files, folders or arrays: regard predict runs/digits images

    Classes without training examples, by a run of --task contrastive: regard predict runs/pictures
    drawings --classes "a red square,a blue circle"

    Prints the prediction, a tab, its probability, a tab, the id of the record (its text where it
    has no id), a tab and a note: whether it has unknown symbols, is truncated, empty or damaged.
    Values are printed as NAME=NUMBER [LOW, HIGH], with the interval that holds 90% of true values.
    --scores prints NAME=NUMBER for every class or value in place of the first two, or the
    probability of the label of each position in place of the second. Of words: label, probability,
    the places of the first character and of the one after the last, counted from 0, the word, and
    the id of its record where that has one.
    """
    from regard.api import load
    from regard.cli.options import count_records, log, name_of, noted, read_records, rows_reporter
    from regard.console import plain, print_json, print_rows
    from regard.data.inputs import RecordNotes

    pipeline = load(run, verb="predict", device=device)
    predictor: Predictor = pipeline.with_classes(classes.split(",")) if classes else pipeline
    if (forecast := pipeline.forecast_file(file)) is not None:
        print_json({"predictions": forecast}) if json else print_rows(forecast)
        return
    reader = pipeline.reader.asked(input=input, format=format)
    batches = read_records(pipeline, file, reader)
    notes = RecordNotes(predictor.source_tokenizer, predictor.context)
    two_texts, total = len(reader.inputs) == 2, count_records(pipeline, file, reader)

    def predictions() -> Iterator[tuple[Item, str, Prediction]]:
        reporter = rows_reporter(json)
        for items, lines in noted(batches, notes, strict, reporter, "predicting", total):
            seconds = [item.second for item in items] if two_texts else None
            results = predictor.predictions([item.text for item in items], seconds)
            for item, note, prediction in zip(items, lines, results, strict=True):
                yield item, note, replace(prediction, text=item.shown or item.text)

    if (intervals := getattr(predictor, "intervals", None)) is not None:
        log(
            f"intervals hold {intervals['level']:.0%} of true values, by the errors on "
            f"{intervals['records']:,} validation records (conformal prediction)"
        )
    if json:
        rows = [{"id": i.id} | p.to_json() | {"note": note} for i, note, p in predictions()]
        level = {"level": intervals["level"]} if intervals else {}
        print_json({"predictions": rows} | level)
        return
    for item, note, prediction in predictions():
        if prediction.words is not None:
            print_words(item, note, prediction, scores)
            print(flush=str(file) == "-")
            continue
        row = *columns_of(prediction, scores, predictor.labels), name_of(item), plain(note)
        print("\t".join(row), flush=str(file) == "-")


def print_words(item: Item, note: str, prediction: Prediction, scores: bool) -> None:
    """Print the words of a text, a line each; a note on the text goes to standard error."""
    from regard.cli.options import log
    from regard.console import plain

    if note:
        log(f"warning: {'' if item.named else 'record '}{item.id}: {note}")
    for span in prediction.words or () if scores else prediction.spans:
        id = f"\t{plain(item.id)}" if item.named else ""
        print(f"{format_span(span, scores)}\t{plain(span.text)}{id}")


def format_span(span: Span, scores: bool) -> str:
    """Return the label, the probability, the start and the end of a word as columns."""
    first = f"{span.label}\t{span.score:.4f}"
    if scores:
        first = "  ".join(f"{name}={value:.6g}" for name, value in span.scores.items())
    return f"{first}\t{span.start}\t{span.end}"


def interval_of(prediction: Prediction, name: str) -> str:
    """Return the interval of a value, after a blank, or ""."""
    if name not in prediction.low:
        return ""
    return f" [{prediction.low[name]:.6g}, {prediction.high[name]:.6g}]"


def columns_of(prediction: Prediction, scores: bool, labels: bool) -> tuple[str, ...]:
    """Return a prediction as columns: a label and its probability, or numbers alone."""
    numbers = "  ".join(
        f"{name}={value:.6g}{interval_of(prediction, name)}"
        for name, value in prediction.scores.items()
    )
    if scores and prediction.positions is not None:
        return prediction.label, " ".join(f"{value:.4g}" for value in prediction.positions)
    if scores or not labels:
        return (numbers,)
    probability = prediction.scores.get(prediction.label, prediction.scores.get("mean"))
    return prediction.label, numbers if probability is None else f"{probability:.4f}"
