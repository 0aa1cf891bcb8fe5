"""regard evaluate"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Data to measure on; default the held-out test part.")] = None,
    against: Annotated[Path | None, typer.Option(help="Another run, compared in pairs.")] = None,
    stride: Annotated[int, typer.Option(help="How far windows advance in running text; default max_len / 2.")] = 0,
    input: Annotated[str, typer.Option(help="The column of a CSV, TSV or JSONL file to read.")] = "",
    format: Annotated[str, typer.Option(help="auto, lines, text, csv, tsv or jsonl.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Bits per symbol with 95% intervals, on the held-out part or on your own files.

    Example: regard evaluate runs/names-transformer --against runs/names-bigram
    """
    from regard.api import held_out, load, shard_from
    from regard.cli.output import print_figures, print_json
    from regard.evaluate.report import difference, figures

    def measured(folder: Path):  # type: ignore[no-untyped-def]
        predictor = load(folder)
        if files:
            return "given", predictor.measure(shard_from(files, predictor, format=format, column=input), stride)
        side, shard = held_out(run, predictor)
        return side, predictor.measure(shard, stride)

    side, ours = measured(run)
    found = figures(ours)
    document = {
        "side": side,
        "records": ours.records,
        "symbols": int(ours.symbols.sum()),
        "unknown": ours.unknown,
        "metrics": {name: figure.to_json() for name, figure in found.items()},
    }
    lines = []
    if against is not None:
        _, theirs = measured(against)
        gap = difference(ours, theirs)
        document["against"] = {"run": str(against), "nats_per_symbol": gap.to_json()}
        verdict = "better" if gap.high < 0 else "worse" if gap.low > 0 else "no difference that 95% confidence supports"
        lines.append(f"against {against}: {gap} nats per symbol, {verdict} ({gap.value / math.log(2):+.4f} bits)")
    if json:
        print_json(document)
        return
    print_figures({side: found})
    print(f"{document['records']:,} records, {document['symbols']:,} symbols" + (
        f", {ours.unknown:,} unknown to the tokenizer" if ours.unknown else ""))  # fmt: skip
    for line in lines:
        print(line)
