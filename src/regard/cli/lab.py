"""regard lab"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    name: Annotated[str, typer.Argument(help="An experiment, or all; none lists them.")] = "",
    file: Annotated[Path | None, typer.Argument(help="Your data, where it takes some.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small form, in seconds.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the page and images.")] = Path("runs/lab"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """The lectures' claims as experiments.

    Each answers its question in its first line and has figures, a table and claims with their
    tolerances. A claim holds, fails, or the experiment is too small to tell, as --quick often is.
    `all` runs every one of them and writes index.html with all answers and claims. Without --quick
    the same command goes on where it was stopped.

    Example: regard lab distance --quick

    With your own data: regard lab dimensions text.txt --quick

    All of them: regard lab all --quick
    """
    from regard.console import print_json, print_table
    from regard.lab import PARTS, forget, run_all, run_experiment
    from regard.lab.experiment import Options, summary
    from regard.training.progress import Reporter

    if not name:
        _list_experiments(json)
        return
    parts = None if quick else out / PARTS
    with Reporter(quiet=quiet) as reporter:
        options = Options(quick=quick, seed=seed, file=file, reporter=reporter, parts=parts)
        if name == "all":
            gallery = run_all(options, out)
            answer = ""
            tables = [gallery.answers_table(), gallery.claims_table(), gallery.table()]
            claims = gallery.claims
            files, document = gallery.files, gallery.to_json()
        else:
            result = run_experiment(name, options)
            files = result.write(out, name, reporter)
            forget(options)
            answer = f"{result.answer}\n{result.lecture}\n"
            tables, claims = [*result.tables, result.claims_table()], list(result.claims)
            document = result.to_json(files)
    if json:
        print_json(document)
        return
    if answer:
        print(answer)
    for table in tables:
        cells = table.data()
        print_table(cells["columns"], cells["rows"], title=cells["title"])
        print()
    print(summary(claims))
    print(", ".join(str(path) for path in files))


def _list_experiments(json: bool) -> None:
    from regard.console import print_json, print_table
    from regard.lab import EXPERIMENTS

    if json:
        print_json({"experiments": {key: one.question for key, one in EXPERIMENTS.items()}})
        return
    rows = [[key, one.question, one.file, one.lecture] for key, one in EXPERIMENTS.items()]
    print_table(["experiment", "question", "FILE, if you have one", "deck and heading"], rows)
