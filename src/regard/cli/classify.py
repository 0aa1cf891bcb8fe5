"""regard classify"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.strategy import Device

if TYPE_CHECKING:
    from regard.examiner import Answer

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

    Line in, line out, order kept, streaming.

    Example: regard classify runs/trec-transformer questions.txt

    Images, as files, folders or arrays: regard classify runs/digits-transformer new.png

    Prints the answer, a tab, its probability, a tab and the text; --scores prints NAME=NUMBER for
    every class or value in place of the first two.
    """
    from regard.api import load_examiner
    from regard.cli.output import plain, print_json

    examiner = load_examiner(run, device=device)
    stream = examiner.stream(examiner.records(None if str(file) == "-" else file))
    if json:
        print_json({"records": [answer.to_json() for answer in stream]})
        return
    for answer in stream:
        print(f"{said(answer, scores)}\t{plain(answer.text)}", flush=str(file) == "-")


def said(answer: Answer, scores: bool) -> str:
    """An answer as text."""
    if scores or not (answer.label in answer.scores or "mean" in answer.scores):
        told = "  ".join(f"{name}={value:.6g}" for name, value in answer.scores.items())
        return told if scores or not answer.label else f"{answer.label}\t{told}"
    sure = answer.scores.get(answer.label, answer.scores.get("mean", 0.0))
    return f"{answer.label}\t{sure:.4f}"
