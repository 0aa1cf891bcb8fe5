"""regard score"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[Path, typer.Argument(help="Records to score, or - for standard input, a line each.")],
    input: Annotated[str, typer.Option(help="The column of a CSV, TSV or JSONL file to read.")] = "",
    format: Annotated[str, typer.Option(help="auto, lines, csv, tsv or jsonl.")] = "lines",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document, symbol by symbol.")] = False,
) -> None:
    """The log-probability of each record: line in, line out, order kept, streaming.

    Example: regard score runs/names-transformer names.txt | sort -n | head

    Prints the total in nats, a tab and the record.
    """
    from regard.api import load, scored_records
    from regard.cli.output import plain, print_json

    predictor = load(run)
    rows = scored_records(predictor, file, format=format, column=input)
    if json:
        print_json({"records": [row.to_json() for row in rows]})
        return
    for row in rows:
        print(f"{row.total:.6f}\t{plain(row.text)}")
