"""regard example"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(help="Which; without a name all are listed.")]
Out = Annotated[Path, typer.Option(help="The folder to write into; the current one by default.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(name: Name = "", out: Out = Path(), force: Force = False, json: Json = False) -> None:
    """Write a small data set, to try the other commands on.

    Example: regard example names
    """
    from regard.bundled.examples import EXAMPLES
    from regard.console import print_json, print_table
    from regard.errors import UsageError, did_you_mean

    if not name:
        if json:
            print_json({"examples": [{"name": n, "about": e.about} for n, e in EXAMPLES.items()]})
            return
        print_table(("example", "files"), [(n, e.about) for n, e in EXAMPLES.items()])
        return
    if name not in EXAMPLES:
        raise UsageError(f"unknown example {name!r}; {did_you_mean(name, list(EXAMPLES))}")
    paths = write(name, out, force)
    if json:
        print_json({"files": [str(path) for path in paths], "command": EXAMPLES[name].command})
        return
    print(f"{EXAMPLES[name].about} ({EXAMPLES[name].origin})")
    print("wrote", ", ".join(str(path) for path in paths))
    print(f"next: {EXAMPLES[name].command}")


def write(name: str, out: Path, force: bool) -> list[Path]:
    """Write the files of an example; a file that is there and differs is an error."""
    from regard.bundled.examples import write_example
    from regard.errors import UserError

    with tempfile.TemporaryDirectory() as folder:
        made = write_example(name, Path(folder))
        targets = [out / path.name for path in made]
        for path, target in zip(made, targets, strict=True):
            if target.exists() and not force and not same(path, target):
                raise UserError(f"{target} exists and differs: --force replaces it, or give --out")
        out.mkdir(parents=True, exist_ok=True)
        for path, target in zip(made, targets, strict=True):
            if path.is_dir():
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(path, target)
    return targets


def same(one: Path, other: Path) -> bool:
    """Return whether two files are the same, or every file of a folder is in the other."""
    if one.is_dir():
        return all((other / path.relative_to(one)).exists() for path in one.rglob("*"))
    return other.is_file() and one.read_bytes() == other.read_bytes()
