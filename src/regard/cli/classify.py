"""regard classify"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.records import Format, Input, Strict
from regard.cli.strategy import Device

if TYPE_CHECKING:
    from regard.data.inputs import Item
    from regard.pipelines.predictor import Prediction, Span

Run = Annotated[Path, typer.Argument(help="A run folder of labels or values.")]
File = Annotated[
    Path,
    typer.Argument(
        help="Records: FASTA, CSV, TSV, JSONL, lines, or - for standard input; or images."
    ),
]
Scores = Annotated[bool, typer.Option("--scores", help="All probabilities, not the best alone.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: Run,
    file: File = Path("-"),
    input: Input = "",
    format: Format = "auto",
    scores: Scores = False,
    strict: Strict = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """What a model predicts for each record: its class, labels, values, or a class per position.

    Files are read as in training, from the columns that the run was trained on. A row for each
    record, order kept, streaming. A model that labels words prints a line for each word, or for
    those together that are one name (B-PER I-PER), and an empty line after each text.

    Example: regard classify runs/trec-transformer questions.txt

    Images, as files, folders or arrays: regard classify runs/digits-transformer new.png

    Prints the answer, a tab, its probability, a tab, the id of the record (its text where it has no
    id), a tab and a note: whether it has unknown symbols, is truncated, empty or damaged. --scores
    prints NAME=NUMBER for every class or value in place of the first two. Of words: label,
    probability, the places of the first character and of the one after the last, counted from 0,
    the word, and the id of its record where that has one.
    """
    from regard.api import load_predictor
    from regard.cli.output import plain, print_json
    from regard.cli.records import name_of, noted, read, reading_for
    from regard.data.inputs import RecordNotes

    predictor = load_predictor(run, device=device)
    predictor.refuse_pipe(file)
    reading = reading_for(run, input, format=format)
    batches = read(run, file, predictor.tokenizer, reading)
    notes = RecordNotes(predictor.tokenizer, predictor.context)
    two = len(reading.inputs) == 2

    def answers() -> Iterator[tuple[Item, str, Prediction]]:
        for items, words in noted(batches, notes, strict):
            seconds = [item.second for item in items] if two else None
            found = predictor.classify([item.text for item in items], seconds)
            for item, note, answer in zip(items, words, found, strict=True):
                yield item, note, replace(answer, text=item.shown or item.text)

    if json:
        records = [
            {"id": item.id} | answer.to_json() | {"note": note} for item, note, answer in answers()
        ]
        print_json({"records": records})
        return
    for item, note, answer in answers():
        if answer.words is not None:
            print_words(item, note, answer, scores)
            print(flush=str(file) == "-")
            continue
        row = *said(answer, scores, predictor.labels), name_of(item), plain(note)
        print("\t".join(row), flush=str(file) == "-")


def print_words(item: Item, note: str, answer: Prediction, scores: bool) -> None:
    """The words of a text, a line each; a note on the text goes beside, as words have none."""
    from regard.cli.output import plain
    from regard.cli.records import say

    if note:
        say(f"warning: {'' if item.named else 'record '}{item.id}: {note}")
    for span in answer.words or () if scores else answer.spans:
        id = f"\t{plain(item.id)}" if item.named else ""
        print(f"{of_span(span, scores)}\t{plain(span.text)}{id}")


def of_span(span: Span, scores: bool) -> str:
    """Label, probability and place of a word as text."""
    first = f"{span.label}\t{span.score:.4f}"
    if scores:
        first = "  ".join(f"{name}={value:.6g}" for name, value in span.scores.items())
    return f"{first}\t{span.start}\t{span.end}"


def said(answer: Prediction, scores: bool, labels: bool) -> tuple[str, ...]:
    """An answer as the columns of a row: a label and its probability, or numbers alone."""
    told = "  ".join(f"{name}={value:.6g}" for name, value in answer.scores.items())
    if scores or not labels:
        return (told,)
    sure = answer.scores.get(answer.label, answer.scores.get("mean"))
    return answer.label, told if sure is None else f"{sure:.4f}"
