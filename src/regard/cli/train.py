"""regard train"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import absolute, extra_options

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
Task = Annotated[
    str, typer.Option(help="next, target, label, labels, value, position-label; else guessed.")
]
Model = Annotated[
    str,
    typer.Option(
        help="transformer, lstm, cnn, kneser-ney, nb-svm …; without it several are tried, and the "
        "best on validation is kept."
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
    task: Task = "",
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
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on your own files.

    Example: regard train names.txt --minutes 2

    A translator, from two files line by line: regard train train.en train.de

    A classifier, from a file or folder for every class: regard train pos.fa neg.fa

    Labels, after pre-training: regard train a.tsv --input text --target kind --pretrain more.txt

    Word vectors: regard train text.txt --model skipgram

    Needs no recipe: it looks at the data, chooses tokens, size and budget, and says what and why.
    Ctrl-C saves; regard train RUN --resume goes on, bit for bit where it stopped.
    In many processes, each on a GPU: torchrun --nproc-per-node 8 -m regard train recipe.toml
    """
    began = time.monotonic()
    from regard.training.distributed import PeerRefused, joined
    from regard.training.progress import Reporter

    overrides, options = set_ or [], extra_options(context.args)
    data = {"input": input or None, "target": target or None, "strict": strict or None}
    files_of = {"valid": absolute(valid), "test": absolute(test)}
    tables: dict[str, Any] = {"task": {"name": task or None}, "data": data | files_of}
    tables |= {"model": {"name": model or None}, "train": {"minutes": minutes}}
    try:
        with joined() as world:
            reporter = world.reporter(Reporter(quiet=quiet, stderr=not dry_run))
            first, values, folder = world.broadcast_from_rank0(
                lambda: plan_run(files, out, resume, overrides, options, tables, reporter, pretrain)
            )
            if dry_run:
                return rehearse_run(first or values, reporter)
            again = resume_hint(files, folder, many=world.size > 1)
            result = train_run(first, values, folder, resume, reporter, began, world, again)
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


def plan_run(
    files: list[Path],
    out: Path | None,
    resume: bool,
    overrides: list[str],
    options: dict[str, str],
    tables: dict[str, dict[str, Any]],
    reporter: Reporter,
    pretrain: Path | None,
) -> tuple[dict[str, Any] | None, dict[str, Any], str]:
    """Return the tables of the recipe of pre-training, if there is one, the tables of the recipe
    and the run folder. A run that is resumed has stored them.
    """
    from regard.api import plan, plan_both, stored, unlabelled_file
    from regard.errors import UserError
    from regard.recipe import build, read
    from regard.recipe import tables as tables_of
    from regard.run import RECIPE

    if len(files) == 1 and (files[0] / RECIPE).exists():  # a run
        if not resume:
            raise UserError(
                f"{files[0]} is a run: --resume goes on with it; or give your own files"
            )
        out = out or files[0]
    if resume and out is not None and (out / RECIPE).exists():
        if overrides or options or any(v for keys in tables.values() for v in keys.values()):
            reporter.warn(f"{out / RECIPE} decides: other options do not change a run that goes on")
        first = stored(out)
        recipe = build(read(out / RECIPE))
        return (tables_of(first) if first else None), tables_of(recipe), str(out)
    first, name = None, tables["model"]["name"] or ""
    if pretrain is None:
        recipe, lines = plan(files, assignments=overrides, options=options, **tables)
        name = "" if recipe.model.choose else recipe.model.name
        pretrain = unlabelled_file(recipe, reporter.say)
    folder = out or default_folder(files[0], name, resume)
    if pretrain is not None:
        first, recipe, lines = plan_both(
            files, pretrain, folder, assignments=overrides, options=options, **tables
        )
    for line in lines:
        reporter.say(line)
    return (tables_of(first) if first else None), tables_of(recipe), str(folder)


def train_run(
    first: dict[str, Any] | None,
    values: dict[str, Any],
    folder: str,
    resume: bool,
    reporter: Reporter,
    began: float,
    world: ProcessGroup,
    again: str,
) -> TrainResult:
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


def report(result: TrainResult, again: str, json: bool, seconds: float) -> None:
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
    print_metrics(result.figures)
    for split, share in result.measured.items():
        if share < 1:
            print(
                f"{split}: measured on a fixed random {share:.1%} of it; "
                f"regard evaluate {shlex.quote(str(result.run))} measures all of it"
            )
    if not result.figures:
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


def default_folder(file: Path, model: str, resume: bool) -> Path:
    """Return runs/NAME-MODEL, or runs/NAME if the model is chosen on validation, with a number if
    it exists; to resume, the last that exists.
    """
    name = file.resolve().name.split(".")[0]
    base = Path("runs") / (f"{name}-{model}" if model else name)
    folder, number = base, 1
    while folder.exists():
        number += 1
        latest, folder = folder, base.with_name(f"{base.name}-{number}")
        if resume and not folder.exists():
            return latest
    return folder
