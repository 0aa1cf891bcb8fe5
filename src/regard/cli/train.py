"""regard train"""

from __future__ import annotations

import math
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def command(
    files: Annotated[list[Path], typer.Argument(help="Data files or folders, or one recipe.toml.", metavar="FILE_OR_RECIPE")],
    task: Annotated[str, typer.Option(help="What to learn; `next` is the language model.")] = "",
    model: Annotated[str, typer.Option(help="transformer, lstm or bigram.")] = "",
    tokens: Annotated[str, typer.Option(help="characters, bytes, words or bpe.")] = "",
    input: Annotated[str, typer.Option(help="The column of a CSV, TSV or JSONL file to read.")] = "",
    valid: Annotated[list[Path] | None, typer.Option(help="Validation file; otherwise held out.")] = None,
    test: Annotated[list[Path] | None, typer.Option(help="Test file; otherwise held out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME-MODEL.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Time to spend, all in all.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any recipe key: --set train.lr=3e-4.")] = None,
    forbid: Annotated[str, typer.Option(help="File of forbidden transitions, or `unseen`.")] = "",
    strict: Annotated[bool, typer.Option("--strict", help="Stop at damaged or overlong records.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Train a model on your own files.

    Example: regard train names.txt --minutes 2

    Needs no recipe: it looks at the data, chooses tokens, size and budget, and says what and why. Ctrl-C saves;
    --resume goes on, bit for bit where it stopped.
    """
    began = time.monotonic()
    from regard.api import plan, train
    from regard.cli.output import print_figures, print_json
    from regard.train.progress import Reporter

    reporter = Reporter(quiet=quiet)
    overrides = list(set_ or [])
    if task:
        overrides.append(f"task={task}")
    tables: dict[str, dict[str, object]] = {
        "data": {
            "input": input or None,
            "valid": [str(p.resolve()) for p in valid or []],
            "test": [str(p.resolve()) for p in test or []],
            "strict": strict or None,
        },
        "tokens": {"kind": tokens or None},
        "model": {"name": model or None},
        "train": {"minutes": minutes, "forbid": forbid or None},
    }
    recipe, lines = plan(files, assignments=overrides, **tables)
    for line in lines:
        reporter.say(line)
    folder = out or default_folder(files[0], recipe.model.name, resume)
    result = train(recipe, folder, resume=resume, reporter=reporter, began=began)
    if result.outcome == "interrupted":
        again = ["regard", "train", *map(str, files), "--out", str(folder), "--resume"]
        print(f"stopped at step {result.steps:,}, saved. Go on with:\n  {shlex.join(again)}", file=sys.stderr)
        raise typer.Exit(130)
    if json:
        print_json(result.to_json())
        return
    print_figures(result.figures)
    for side, figures in result.figures.items():
        if math.isinf(figures["nats_per_symbol"].value):
            print(f"{side}: this model holds some of the data impossible, so its cost there is infinite")
    print(f"{result.parameters:,} parameters, {result.steps:,} steps, {time.monotonic() - began:.0f} s in all → {folder}")
    print(f"next: regard generate {shlex.quote(str(folder))}  ·  regard look {shlex.quote(str(folder))} TEXT")


def default_folder(file: Path, model: str, resume: bool) -> Path:
    """runs/NAME-MODEL, numbered when taken; the last one when resuming."""
    base = Path("runs") / f"{file.name.split('.')[0]}-{model}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        latest, folder = folder, base.with_name(f"{base.name}-{number}")
        if resume and not folder.exists():
            return latest
    return folder
