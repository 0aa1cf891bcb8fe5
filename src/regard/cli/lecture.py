"""regard lecture"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.lectures import Deck, LectureEntry

DeckName = Annotated[str, typer.Argument(help="000 to 004; without it all lectures are listed.")]
Heading = Annotated[str, typer.Argument(help="A heading, or words of it; none lists all.")]
Run = Annotated[bool, typer.Option("--run", help="Run the commands in the current folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    deck: DeckName = "", heading: Heading = "", run: Run = False, json: Json = False
) -> None:
    """What a slide of the lectures means here: its idea, a command, a page and a class.

    Example: regard lecture 002 "positional encoding"

    All headings of a lecture: regard lecture 002 · Headings of all lectures with a word: regard
    lecture attention

    --run types the commands for you. A data set or a run that is there is not made again.
    """
    from regard.errors import UsageError
    from regard.lectures import load_deck

    if run and (json or not heading):
        raise UsageError(
            "--run needs a lecture and a heading, and prints what their commands print"
        )
    if not deck:
        _list_decks(json)
    elif not heading:
        _list_headings(deck, json)
    else:
        lecture = load_deck(deck)
        entry = lecture.find(heading)
        if run:
            _run(entry)
        else:
            _show(lecture, entry, json)


def _list_decks(json: bool) -> None:
    from regard.console import print_json, print_table
    from regard.lectures import DECKS, load_deck

    decks = [load_deck(number) for number in DECKS]
    if json:
        print_json({"lectures": [{"number": deck.number, "title": deck.title} for deck in decks]})
        return
    rows = [[deck.number, deck.title, str(len(deck.headings))] for deck in decks]
    print_table(["lecture", "title", "headings"], rows)
    print("next: regard lecture 002")


def _list_headings(word: str, json: bool) -> None:
    """List the headings of a lecture or, of any other word, those of all lectures that have it."""
    from regard.console import print_json, print_table
    from regard.errors import UsageError
    from regard.lectures import DECKS, load_deck, search

    decks = map(load_deck, [word] if word.isdigit() else DECKS)
    rows = [
        {"lecture": deck.number, "heading": entry.title}
        for deck in decks
        for entry in (deck.headings if word.isdigit() else search(word, deck.headings))
    ]
    if not rows:
        raise UsageError(f"no heading of the lectures has {word!r}")
    if json:
        print_json({"headings": rows})
        return
    print_table(["lecture", "heading"], [list(row.values()) for row in rows])
    print(f'next: regard lecture {rows[0]["lecture"]} "{rows[0]["heading"]}"')


def _show(deck: Deck, entry: LectureEntry, json: bool) -> None:
    from regard.console import print_json
    from regard.lectures import plain

    document = entry.to_json(deck)
    if json:
        print_json({key: value for key, value in document.items() if value})
        return
    print(f"{deck.number} · {deck.title}\n{entry.title}\n")
    if entry.reason:
        print(f"no command: {entry.reason}")
    correction = document["correction"]
    for text in (entry.idea, f"Correction: {correction}" if correction else ""):
        if text:
            print(f"{text}\n")
    for line in entry.commands:
        print(f"  {line}")
    for name in ("shows", "class", "file"):
        if document[name]:
            print(f"{name}: {document[name]}")
    if entry.left:
        print(f"left out: {plain(entry.left)}")


def _run(entry: LectureEntry) -> None:
    """Run the commands of an entry here, but none that makes what is there."""
    import shlex
    from pathlib import Path

    from regard import cli
    from regard.cli.options import log
    from regard.errors import UsageError

    if not entry.command:
        raise UsageError(f"{entry.title!r} has no command: {entry.reason}")
    for step in entry.steps:
        if step.makes and Path(step.makes).exists():
            log(f"there already: {step.makes}, of: {step.command}")
            continue
        log(f"$ {step.command}")
        if code := cli.run(shlex.split(step.command)[1:]):
            raise typer.Exit(code)
    log(f"look at {entry.shows}")
