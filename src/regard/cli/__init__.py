"""The command line: one small file per verb, no logic here.

Results go to stdout, everything else to stderr. Exit 0 done, 1 failed, 2 wrong usage, 130 and 143
interrupted; a user's mistake is one line.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from types import FrameType
from typing import Any

import typer

from regard.errors import UserError, one_line

# What the parser raises. Newer typers bring their own click: it is found through what they export.
ParserError: type[Exception] = typer.BadParameter.__mro__[2]

# verb -> module; the order is that of --help
VERBS = {
    "demo": "demo",
    "data": "data",
    "train": "train",
    "evaluate": "evaluate",
    "compare": "compare",
    "generate": "generate",
    "translate": "translate",
    "classify": "classify",
    "embed": "embed",
    "score": "score",
    "look": "look",
    "verify": "verify",
    "lab": "lab",
    "export": "export",
    "import": "import_",
}

app = typer.Typer(
    name="regard",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _fill() -> None:
    for verb, module in VERBS.items():
        command = import_module(f"regard.cli.{module}").command
        app.command(verb, help=command.__doc__)(_leaving(command))


class ReaderGone(Exception):
    """Whoever reads our output has all that it wants, as in `| head`."""


def _leaving(command: Callable[..., None]) -> Callable[..., None]:
    """The same command; a closed pipe is not the error that the parser makes of it."""

    @wraps(command)
    def leaving(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except BrokenPipeError:
            raise ReaderGone from None

    return leaving


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    """Train, measure, explain and export sequence models on your own data.

    Example: regard train names.txt --minutes 2
    """
    if show:
        import regard

        print(regard.__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; a user's mistake becomes one line and an exit code."""
    # Before torch is imported: threads that sleep while they wait cost nothing on an idle machine
    # and save four fifths of the time on a busy one, where spinning ones keep the others out.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code."""
    if not app.registered_commands:
        _fill()
    try:
        before = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not the main thread
        before = None
    try:
        found = app(list(arguments), prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return found if isinstance(found, int) else 0
    except UserError as error:
        return fail(str(error), error.exit_code)
    except ParserError as error:
        return fail(usage(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return fail("interrupted", 130)
    except (BrokenPipeError, ReaderGone):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return fail(f"{where}{error.strerror or error}", 1)
    except MemoryError:
        return fail("out of memory; try a smaller model or --set train.micro_tokens=4096", 1)
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def fail(message: str, code: int) -> int:
    """Print what went wrong, on one line of stderr."""
    print(f"error: {one_line(message)}", file=sys.stderr)
    return code


def usage(error: BaseException) -> str:
    """What the command line's own parser has to say, with where to read more."""
    context, say = getattr(error, "ctx", None), getattr(error, "format_message", error.__str__)
    more = f" (see {context.command_path} --help)" if context is not None else ""
    return str(say()).rstrip(".") + more


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM outside of training: unwind, so that temporary files go."""
    raise SystemExit(128 + number)
