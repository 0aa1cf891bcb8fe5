"""The command line: one small module per verb.

Results go to stdout, everything else to stderr. Exit codes: 0 success, 1 failure, 2 wrong usage,
130 and 143 interrupted. An error of the user is printed as one line, without a traceback.
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
from typer.core import TyperGroup

from regard.cli.options import SettingsCommand
from regard.errors import SYNONYMS, UsageError, UserError, did_you_mean, one_line

# The errors of the parser. Newer versions of typer bring their own click, so we do not import it.
ParserError: type[Exception] = typer.BadParameter.__mro__[2]

# verb -> module; the order is that of --help
VERBS = {
    "demo": "demo",
    "example": "example",
    "data": "data",
    "train": "train",
    "evaluate": "evaluate",
    "compare": "compare",
    "generate": "generate",
    "translate": "translate",
    "predict": "predict",
    "embed": "embed",
    "retrieve": "retrieve",
    "score": "score",
    "fill": "fill",
    "look": "look",
    "verify": "verify",
    "lab": "lab",
    "lecture": "lecture",
    "motif": "motif",
    "export": "export",
    "import": "import_",
    "runs": "runs",
    "show": "show",
    "rm": "rm",
    "studio": "studio",
}

WITH_SETTINGS = ("train", "compare", "data")  # verbs that take settings of tasks and modalities


class VerbGroup(TyperGroup):
    """The verbs; a word that is none is answered with the verb that it may stand for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            hint = did_you_mean(args[0], list(self.commands))
            raise UsageError(f"no such command: {args[0]}; {hint} (see regard --help)")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="regard",
    cls=VerbGroup,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _fill() -> None:
    for verb, module in VERBS.items():
        command = import_module(f"regard.cli.{module}").command
        cls = SettingsCommand if verb in WITH_SETTINGS else None
        app.command(verb, cls=cls, help=command.__doc__)(_allow_closed_pipe(command))


class PipeClosed(Exception):
    """The process that reads our output has closed the pipe, as `| head` does."""


def _allow_closed_pipe(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that typer does not turn a closed pipe into an error."""

    @wraps(command)
    def wrapped(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except BrokenPipeError:
            raise PipeClosed from None

    return wrapped


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: bool = typer.Option(False, "--version", "-V", help="Print the version and exit."),
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
    """Run the command line and exit."""
    # Must be set before torch is imported. After every operation threads wait for each other, awake
    # for some 50 microseconds and then asleep. If they slept at once, the steps of a small model
    # would take twice as long; awake for milliseconds, as by default, they keep others waiting.
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    if not app.registered_commands:
        _fill()
    try:
        before = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not the main thread
        before = None
    try:
        code = app(list(arguments), prog_name="regard", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except UserError as error:
        return fail(str(error), error.exit_code, error.details)
    except ParserError as error:
        return fail(usage(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return fail("interrupted", 130)
    except (BrokenPipeError, PipeClosed):
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


def fail(message: str, code: int, details: Sequence[str] = ()) -> int:
    """Print an error as one line on stderr, and its details below; return the exit code."""
    print(f"error: {one_line(message)}", file=sys.stderr)
    for line in details:
        print(one_line(line), file=sys.stderr)
    return code


def usage(error: BaseException) -> str:
    """Return the message of the parser, with the help command to read."""
    context = getattr(error, "ctx", None)
    message = getattr(error, "format_message", error.__str__)()
    option = getattr(error, "option_name", "")
    if meant := SYNONYMS.get(option):
        message = f"no such option: {option}; did you mean {meant!r}?"
    more = f" (see {context.command_path} --help)" if context is not None else ""
    return str(message).rstrip(".") + more


def _terminate(number: int, frame: FrameType | None) -> None:
    # outside of training: unwind, so that temporary files are removed
    raise SystemExit(128 + number)
