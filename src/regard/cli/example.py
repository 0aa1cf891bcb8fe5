"""regard example"""

from __future__ import annotations

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
    from regard.bundled.examples import EXAMPLES, write_example
    from regard.console import print_json, print_table

    if not name:
        if json:
            print_json({"examples": [{"name": n, "about": e.about} for n, e in EXAMPLES.items()]})
            return
        print_table(("example", "files"), [(n, e.about) for n, e in EXAMPLES.items()])
        return
    paths = write_example(name, out, force=force)
    if json:
        print_json({"files": [str(path) for path in paths], "command": EXAMPLES[name].command})
        return
    print(f"{EXAMPLES[name].about} ({EXAMPLES[name].origin})")
    print("wrote", ", ".join(str(path) for path in paths))
    print(f"next: {EXAMPLES[name].command}")
