"""regard studio"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.studio.gate import Sessions

Folder = Annotated[Path, typer.Argument(help="A folder of runs, or one run.", metavar="RUNS")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="By default any that is free.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Print the link; open no browser.")]


def command(runs: Folder = Path("runs"), port: Port = 0, no_open: NoOpen = False) -> None:
    """Your runs in the browser: curves, data, texts, training.

    Serves a page on this machine alone, at 127.0.0.1. The link that it prints works once; Enter
    prints another. Ctrl-C ends it, and training that was started there is saved and stopped.

    Example: regard studio

    One run, without opening a browser: regard studio runs/names --no-open
    """
    from regard.errors import UserError

    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise UserError("regard studio needs Starlette: pip install 'regard[studio]'") from None
    from regard.run_folders import RUNS
    from regard.studio.gate import Sessions
    from regard.studio.opened import Opened
    from regard.studio.server import bind, serve

    if not runs.is_dir() and runs != Path(RUNS):
        raise UserError(f"{runs}: no such folder; `regard train FILE` makes runs/NAME")
    opened = Opened(runs)
    if not opened.folders():
        print(f"no runs in {runs} yet: begin with the screen Train", file=sys.stderr)
    listener = bind(port)
    sessions = Sessions(listener.getsockname()[1])
    announce(sessions, open_browser=not no_open)
    Thread(target=print_links, args=(sessions,), daemon=True).start()
    serve(opened, listener, sessions)
    print("closed", file=sys.stderr)


def announce(sessions: Sessions, *, open_browser: bool) -> None:
    """Print a link, and open another in the browser."""
    print(f"{sessions.link()}\nopens once; Enter prints another link, Ctrl-C ends", flush=True)
    if open_browser:
        import webbrowser

        webbrowser.open(sessions.link())


def print_links(sessions: Sessions) -> None:
    """Print a link for every line that is typed."""
    if sys.stdin is None or not sys.stdin.isatty() or in_background():
        return
    for _ in sys.stdin:
        print(sessions.link(), flush=True)


def in_background() -> bool:
    """Return whether another process owns the terminal: reading from it would stop us."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    except (AttributeError, OSError):  # no such thing on this system, or no terminal of ours
        return False
