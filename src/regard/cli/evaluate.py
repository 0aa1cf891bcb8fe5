"""regard evaluate"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.evaluate.report import Measured


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Data to measure on; default the held-out test part."),
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Another run, compared in pairs.")] = None,
    stride: Annotated[
        int, typer.Option(min=0, help="Advance of windows in running text; 0 is max_len / 2.")
    ] = 0,
    input: Annotated[str, typer.Option(help="The column of a table to read.")] = "",
    format: Annotated[str, typer.Option(help="auto, lines, text, csv, tsv or jsonl.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Bits per symbol, with 95% intervals.

    On the part held out when the run was trained, or on your own files.

    Example: regard evaluate runs/names-transformer --against runs/names-bigram
    """
    from regard.api import held_out, load
    from regard.cli.output import print_figures, print_json
    from regard.evaluate.material import shard_from
    from regard.evaluate.report import difference, figures, verdict

    def measured(folder: Path) -> tuple[str, Measured]:
        predictor = load(folder)
        side, shard = (
            ("given", shard_from(files, predictor.tokenizer, format=format, column=input))
            if files
            else held_out(run, predictor)
        )
        return side, predictor.measure(shard, stride)

    side, ours = measured(run)
    found = figures(ours)
    document: dict[str, Any] = {
        "side": side,
        "records": ours.records,
        "symbols": int(ours.symbols.sum()),
        "unknown": ours.unknown,
        "metrics": {name: figure.to_json() for name, figure in found.items()},
    }
    line = f"{ours.records:,} records, {document['symbols']:,} symbols"
    line += f", {ours.unknown:,} unknown to the tokenizer" if ours.unknown else ""
    if against is not None:
        gap = difference(ours, measured(against)[1])
        words = verdict(gap)
        document["against"] = {
            "run": str(against),
            "nats_per_symbol": gap.to_json(),
            "verdict": words,
        }
        bits = f" ({gap.value / math.log(2):+.4f} bits)" if math.isfinite(gap.value) else ""
        line += f"\nagainst {against}: {gap} nats per symbol{bits}: {words}"
    if json:
        print_json(document)
        return
    print_figures({side: found})
    print(line)
