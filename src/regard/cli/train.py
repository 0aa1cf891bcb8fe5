"""regard train"""

from __future__ import annotations

import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import (
    Device,
    TaskName,
    absolute,
    complete_loggers,
    complete_models,
    extra_options,
    names_of,
)

if TYPE_CHECKING:
    from regard.api import TrainResult
    from regard.training.distributed import ProcessGroup
    from regard.training.progress import Reporter

Files = Annotated[
    list[Path],
    typer.Argument(
        help="Data files or folders, or one recipe.toml, or a run to --resume.",
        metavar="FILE_OR_RECIPE",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        help="One of the models below; without it several are tried, and the best on validation is "
        "kept.",
        autocompletion=complete_models,
    ),
]
Column = Annotated[str, typer.Option(help="The column of a table to read; of pairs, the source.")]
Target = Annotated[str, typer.Option(help="The column of targets, or several: y1,y2 or 'y*'.")]
Valid = Annotated[list[Path] | None, typer.Option(help="Validation file; otherwise held out.")]
Test = Annotated[list[Path] | None, typer.Option(help="Test file; otherwise held out.")]
Out = Annotated[Path | None, typer.Option(help="Run folder; default runs/NAME[-MODEL].")]
Minutes = Annotated[float | None, typer.Option(help="Time to spend, all in all.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="Any recipe key: --set train.lr=3e-4.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at damaged or overlong records.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")]
Log = Annotated[
    str,
    typer.Option(
        help="Also log metrics to csv, tensorboard, wandb or mlflow; several: A,B.",
        autocompletion=complete_loggers,
    ),
]
Film = Annotated[
    bool,
    typer.Option("--film", help="Record what the model makes of 64 records at each validation."),
]
Pretrain = Annotated[
    Path | None,
    typer.Option(help="Fill in masked tokens of this file first, or begin from this run."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan, its memory and time; train nothing.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]


def command(
    context: typer.Context,
    files: Files,
    task: TaskName = "",
    model: Model = "",
    input: Column = "",
    target: Target = "",
    valid: Valid = None,
    test: Test = None,
    out: Out = None,
    minutes: Minutes = None,
    set_: Set = None,
    strict: Strict = False,
    pretrain: Pretrain = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    log: Log = "",
    film: Film = False,
    device: Device = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on your own files.

    Example: regard train names.txt --minutes 2

    A translator, from two files line by line: regard train train.en train.de

    A classifier, from a file or folder for every class: regard train promoters.fa background.fa

    Labels, from a table: regard train questions.tsv --target kind

    Labels, after pre-training: regard train questions.tsv --target kind --pretrain more.tsv

    Word vectors: regard train text.txt --model skipgram

    Needs no recipe: it looks at the data, chooses tokens, size and budget, and says what and why.
    Ctrl-C saves; regard train RUN --resume goes on, bit for bit where it stopped.
    In many processes, each on a GPU: torchrun --nproc-per-node 8 -m regard train recipe.toml
    """
    began = time.monotonic()
    from regard.planning import plan_run
    from regard.run_folders import mark_latest
    from regard.training.distributed import PeerRefused, joined
    from regard.training.progress import Reporter

    data = {"input": input or None, "target": target or None, "strict": strict or None}
    files_of = {"valid": absolute(valid), "test": absolute(test)}
    tables: dict[str, Any] = {"task": {"name": task or None}, "data": data | files_of}
    tables |= {"model": {"name": model or None}, "train": {"minutes": minutes}}
    tables["train"] |= {"device": device or None, "log": names_of(log), "film": film or None}
    given: Any = {"assignments": set_ or [], "options": extra_options(context.args)}
    planned = partial(plan_run, files, out, tables, pretrain=pretrain, resume=resume, **given)
    try:
        with joined() as world:
            reporter = world.reporter(Reporter(quiet=quiet, stderr=not dry_run))
            first, values, folder = world.broadcast_from_rank0(partial(planned, reporter=reporter))
            if dry_run:
                return rehearse_run(first or values, reporter)
            again = resume_hint(files, folder, many=world.size > 1)
            try:
                result = train_run(first, values, folder, resume, reporter, began, world, again)
            finally:
                world.on_rank0(lambda: mark_latest(Path(folder)))
    except PeerRefused as error:  # the first process has printed the message
        raise typer.Exit(error.exit_code) from None
    if world.first:
        report(result, again, json, time.monotonic() - began)
    elif result.outcome == "interrupted":
        raise typer.Exit(128 + result.signal)


def rehearse_run(values: dict[str, Any], reporter: Reporter) -> None:
    """Print what training would do."""
    from regard.api import rehearse
    from regard.recipe import build

    rehearse(build(values), reporter)


def train_run(
    first: dict[str, Any] | None,
    values: dict[str, Any],
    folder: str,
    resume: bool,
    reporter: Reporter,
    began: float,
    world: ProcessGroup,
    again: str,
) -> TrainResult[Any]:
    """Train; an interruption while there is nothing to save still prints how to resume."""
    from regard.api import train_both
    from regard.recipe import build

    shared: dict[str, Any] = {"resume": resume, "reporter": reporter, "world": world}
    try:
        before = build(first) if first else None
        return train_both(before, build(values), Path(folder), began=began, **shared)
    except KeyboardInterrupt:  # while data is read, or the trained model is evaluated
        if world.first:
            print(f"stopped. {again}", file=sys.stderr)
        raise typer.Exit(130) from None


def resume_hint(files: list[Path], folder: str, *, many: bool) -> str:
    """Return the command that resumes a run, in words."""
    command = shlex.join(["regard", "train", *map(str, files), "--out", folder, "--resume"])
    same = " the same command and --resume, or in one process with" if many else ""
    return f"Go on with{same}:\n  {command}"


def report(result: TrainResult[Any], again: str, json: bool, seconds: float) -> None:
    """Print the metrics of a run and what to do next; if it was interrupted, how to resume it."""
    from regard.console import print_json, print_metrics
    from regard.registry import TASKS

    if json:
        print_json(result.to_json())
    if result.outcome == "interrupted":
        print(f"stopped at step {result.steps:,}, saved. {again}", file=sys.stderr)
        raise typer.Exit(128 + result.signal)
    if json:
        return
    print_metrics(result.splits)
    for split, share in result.measured.items():
        if share < 1:
            print(
                f"{split}: measured on a fixed random {share:.1%} of it; "
                f"regard evaluate {shlex.quote(str(result.run))} measures all of it"
            )
    if not result.splits:
        print("nothing was held out, so nothing was measured")
    ended = ", stopped early: validation no longer improved" if result.outcome == "early" else ""
    steps = f"{result.parameters:,} parameters, {result.steps:,} steps, {seconds:.0f} s in all"
    print(f"{steps}{ended} → {result.run}")
    for line in result.selection.get("lines", ()):
        print(line)
    run = shlex.quote(str(result.run))
    verbs = TASKS[result.task].card.verbs[:3]
    print(f"next: {'  ·  '.join(f'regard {verb.format(run=run)}' for verb in verbs)}")
    if result.epochs is not None and result.epochs < 1:
        print(
            f"note: training read only {result.epochs:.1%} of its data; "
            "give it more --minutes (or train.steps), or choose a smaller model"
        )
