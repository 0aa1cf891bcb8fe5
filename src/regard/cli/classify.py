"""regard classify"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.strategy import Device

if TYPE_CHECKING:
    from regard.examiner import Answer
    from regard.spans import Span

Run = Annotated[Path, typer.Argument(help="A run folder of labels or values.")]
File = Annotated[
    Path, typer.Argument(help="Texts, a line each, or - for standard input; or images.")
]
Scores = Annotated[bool, typer.Option("--scores", help="All probabilities, not the best alone.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: Run,
    file: File = Path("-"),
    scores: Scores = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """What a model says of each line: its class, labels, values, or a class at every position.

    Line in, line out, order kept, streaming. A model that labels words prints a line for each word,
    or for those together that are one name (B-PER I-PER), and an empty line after each text.

    Example: regard classify runs/trec-transformer questions.txt

    Images, as files, folders or arrays: regard classify runs/digits-transformer new.png

    Prints the answer, a tab, its probability, a tab and the text; --scores prints NAME=NUMBER for
    every class or value in place of the first two. Of words: label, probability, the places of the
    first character and of the one after the last, counted from 0, and the word.
    """
    from regard.api import load_examiner
    from regard.cli.output import plain, print_json

    examiner = load_examiner(run, device=device)
    stream = examiner.stream(examiner.records(None if str(file) == "-" else file))
    if json:
        print_json({"records": [answer.to_json() for answer in stream]})
        return
    for answer in stream:
        if answer.words is not None:
            for span in answer.words if scores else answer.spans:
                print(f"{of_span(span, scores)}\t{plain(span.text)}")
            print(flush=str(file) == "-")
            continue
        print(f"{said(answer, scores)}\t{plain(answer.text)}", flush=str(file) == "-")


def of_span(span: Span, scores: bool) -> str:
    """Label, probability and place of a word as text."""
    first = f"{span.label}\t{span.score:.4f}"
    if scores:
        first = "  ".join(f"{name}={value:.6g}" for name, value in span.scores.items())
    return f"{first}\t{span.start}\t{span.end}"


def said(answer: Answer, scores: bool) -> str:
    """An answer as text."""
    if scores or not (answer.label in answer.scores or "mean" in answer.scores):
        told = "  ".join(f"{name}={value:.6g}" for name, value in answer.scores.items())
        return told if scores or not answer.label else f"{answer.label}\t{told}"
    sure = answer.scores.get(answer.label, answer.scores.get("mean", 0.0))
    return f"{answer.label}\t{sure:.4f}"
