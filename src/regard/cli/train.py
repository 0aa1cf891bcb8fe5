"""regard train"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer


def command(
    files: Annotated[
        list[Path],
        typer.Argument(help="Data files or folders, or one recipe.toml.", metavar="FILE_OR_RECIPE"),
    ],
    task: Annotated[str, typer.Option(help="What to learn; `next` is the language model.")] = "",
    model: Annotated[str, typer.Option(help="transformer, lstm or bigram.")] = "",
    tokens: Annotated[str, typer.Option(help="characters, bytes, words or bpe.")] = "",
    input: Annotated[str, typer.Option(help="The column of a table to read.")] = "",
    valid: Annotated[
        list[Path] | None, typer.Option(help="Validation file; otherwise held out.")
    ] = None,
    test: Annotated[list[Path] | None, typer.Option(help="Test file; otherwise held out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME-MODEL.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Time to spend, all in all.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any recipe key: --set train.lr=3e-4.")
    ] = None,
    forbid: Annotated[str, typer.Option(help="File of forbidden transitions, or `unseen`.")] = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at damaged or overlong records.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Train a model on your own files.

    Example: regard train names.txt --minutes 2

    Needs no recipe: it looks at the data, chooses tokens, size and budget, and says what and why.
    Ctrl-C saves; --resume goes on, bit for bit where it stopped, with the run's own recipe.toml.
    """
    began = time.monotonic()
    from regard.api import plan, train
    from regard.cli.output import print_json
    from regard.recipe import build, read
    from regard.run import RECIPE
    from regard.train.progress import Reporter

    reporter = Reporter(quiet=quiet)
    tables: dict[str, dict[str, object]] = {
        "data": {
            "input": input or None,
            "valid": [str(p.resolve()) for p in valid or []],
            "test": [str(p.resolve()) for p in test or []],
            "strict": strict or None,
        },
        "tokens": {"kind": tokens or None},
        "model": {"name": model or None},
        "train": {"minutes": minutes, "forbid": resolved(forbid)},
    }
    overrides = [*(set_ or []), *([f'task="{task}"'] if task else [])]
    if resume and out is not None and (out / RECIPE).exists():
        recipe, folder = build(read(out / RECIPE)), out
        if overrides or any(v for keys in tables.values() for v in keys.values()):
            reporter.warn(
                f"{out / RECIPE} decides: the other options do not change a run that goes on"
            )
    else:
        recipe, lines = plan(files, assignments=overrides, **tables)
        for line in lines:
            reporter.say(line)
        folder = out or default_folder(files[0], recipe.model.name, resume)
    again = shlex.join(["regard", "train", *map(str, files), "--out", str(folder), "--resume"])
    try:
        result = train(recipe, folder, resume=resume, reporter=reporter, began=began)
    except KeyboardInterrupt:  # while data is read, or the finished model measured
        print(f"stopped. Go on with:\n  {again}", file=sys.stderr)
        raise typer.Exit(130) from None
    if json:
        print_json(result.to_json())
    if result.outcome == "interrupted":
        print(f"stopped at step {result.steps:,}, saved. Go on with:\n  {again}", file=sys.stderr)
        raise typer.Exit(128 + result.signal)
    if not json:
        summarise(result, folder, time.monotonic() - began)


def summarise(result, folder: Path, seconds: float) -> None:  # type: ignore[no-untyped-def]
    """What came out, and what to do next."""
    from regard.cli.output import print_figures

    print_figures(result.figures)
    for side, share in result.measured.items():
        if share < 1:
            print(f"{side}: measured on its first {share:.1%}; regard evaluate measures all of it")
    if not result.figures:
        print("nothing was held out, so nothing was measured")
    ended = ", stopped early: validation no longer improved" if result.outcome == "early" else ""
    print(
        f"{result.parameters:,} parameters, {result.steps:,} steps, {seconds:.0f} s in all{ended}"
        f" → {folder}"
    )
    run = shlex.quote(str(folder))
    print(f"next: regard generate {run}  ·  regard evaluate {run}  ·  regard look {run} TEXT")


def resolved(forbid: str) -> str | None:
    """The file of forbidden transitions by its full path, as the recipe is read from elsewhere."""
    return str(Path(forbid).resolve()) if forbid not in ("", "unseen") else forbid or None


def default_folder(file: Path, model: str, resume: bool) -> Path:
    """runs/NAME-MODEL, numbered when taken; the last one when resuming."""
    base = Path("runs") / f"{file.resolve().name.split('.')[0]}-{model}"
    folder, number = base, 1
    while folder.exists():
        number += 1
        latest, folder = folder, base.with_name(f"{base.name}-{number}")
        if resume and not folder.exists():
            return latest
    return folder
