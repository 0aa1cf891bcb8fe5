"""regard score"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[
        Path, typer.Argument(help="Records to score, or - for standard input, a line each.")
    ],
    input: Annotated[str, typer.Option(help="The column of a table to read.")] = "",
    format: Annotated[str, typer.Option(help="auto, lines, csv, tsv or jsonl.")] = "auto",
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, symbol by symbol.")
    ] = False,
) -> None:
    """The log-probability of each record.

    Line in, line out, order kept, streaming.

    Example: regard score runs/names-transformer names.txt | sort -n | head

    Prints the total in nats, a tab and the record; an impossible record scores -inf.
    """
    from regard.api import load
    from regard.cli.output import plain, print_json
    from regard.evaluate.scoring import score, texts_of

    predictor = load(run)
    rows = (
        row
        for texts in texts_of(file, format=format, column=input)
        for row in score(predictor.model, predictor.tokenizer, texts, constrain=predictor.forbidden)
    )
    if json:
        print_json({"records": [row.to_json() for row in rows]})
        return
    for row in rows:
        print(f"{row.total:.6f}\t{plain(row.text)}", flush=str(file) == "-")
