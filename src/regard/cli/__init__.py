"""The command line: one small file per verb, no logic here.

Results go to stdout, everything else to stderr. Exit 0 done, 1 failed, 2 wrong usage; a user's mistake is one line.
"""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from regard.errors import UserError

# verb -> module; the order is that of --help
VERBS = {
    "demo": "demo",
    "data": "data",
    "train": "train",
    "evaluate": "evaluate",
    "generate": "generate",
    "score": "score",
    "look": "look",
    "verify": "verify",
    "export": "export",
    "import": "import_",
}

app = typer.Typer(
    name="regard",
    help="Train, measure, explain and export sequence models on your own data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _fill() -> None:
    for verb, module in VERBS.items():
        command = import_module(f"regard.cli.{module}").command
        app.command(verb, help=command.__doc__)(command)


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Train, measure, explain and export sequence models on your own data."""
    if show:
        import regard

        print(regard.__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def main() -> None:
    """Run the command line; turn a user's mistake into one line and an exit code."""
    _fill()
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone: nobody to tell
        sys.exit(1)
    except MemoryError:
        print("error: out of memory; try a smaller model or --set train.micro_tokens=4096", file=sys.stderr)
        sys.exit(1)
