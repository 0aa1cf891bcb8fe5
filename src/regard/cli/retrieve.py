"""regard retrieve"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Format, Input, RunFolder

if TYPE_CHECKING:
    from regard.pipelines import Pipeline
    from regard.pipelines.matcher import Candidates, Match, Matcher

Queries = Annotated[
    list[str], typer.Argument(help="Texts, to find their images; or image files, to find texts.")
]
Among = Annotated[
    Path | None,
    typer.Option(help="What to search: a file or folder of images, or of texts; else held out."),
]
Find = Annotated[
    str,
    typer.Option(help="sources or texts; by default texts for files of images, sources for texts."),
]
Num = Annotated[int, typer.Option(min=1, help="How many to find for each query.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    run: RunFolder,
    queries: Queries,
    among: Among = None,
    find: Find = "",
    num: Num = 5,
    input: Input = "",
    format: Format = "auto",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """The images that match a text best, or the texts that match an image best.

    Example: regard retrieve runs/pictures "a red square above a blue circle" --among drawings

    Texts for an image: regard retrieve runs/pictures drawings/07.ppm --num 3

    Of runs that match two texts, the queries are sources unless --find sources is given.

    Prints a line for each match: its rank, a tab, the cosine of the angle between both vectors, a
    tab, its name, a tab and the query.
    """
    from regard.api import load
    from regard.console import plain, print_json

    matcher: Matcher = load(run, verb="retrieve", device=device)
    find = direction(matcher, queries, find)
    candidates = open_candidates(matcher, find, among, input, format)
    search = matcher.find_sources if find == "sources" else matcher.find_texts
    answers: list[list[Match]] = search(list(queries), candidates, num=num)
    if json:
        entries: list[dict[str, Any]] = [
            {"query": query, "matches": [match.to_json() for match in matches]}
            for query, matches in zip(queries, answers, strict=True)
        ]
        print_json({"queries": entries})
        return
    for query, matches in zip(queries, answers, strict=True):
        for rank, match in enumerate(matches, start=1):
            print(f"{rank}\t{match.score:.4f}\t{plain(match.name)}\t{plain(query)}")


def direction(matcher: Matcher, queries: Sequence[str], find: str) -> str:
    """Return what to find: as asked, or what the queries are not."""
    from regard.errors import UsageError, did_you_mean

    known = ["sources", "texts"]
    if find:
        if find not in known:
            raise UsageError(f"unknown --find {find!r}; {did_you_mean(find, known)}")
        return find
    if matcher.source_tokenizer.reads_text:
        return "texts"
    are_files = [Path(query.rpartition("[")[0] or query).exists() for query in queries]
    if any(are_files) and not all(are_files):
        missing = queries[are_files.index(False)]
        raise UsageError(f"{missing!r} is no file, others are: ask for images or for texts")
    return "texts" if all(are_files) else "sources"


def open_candidates(
    matcher: Matcher, find: str, among: Path | None, input: str, format: str
) -> Candidates:
    """Return what to choose from: the records of a file, or those held out."""
    from regard.cli.options import log, read_records
    from regard.errors import UserError

    if among is None:
        name = matcher.held_out()[0]
        log(f"no --among: searching the {name} split of the run")
        return matcher.sources_among() if find == "sources" else matcher.texts_among()
    embedder: Pipeline = matcher if find == "sources" else matcher.texts
    reader = embedder.reader.asked(input=input, format=format).first_text
    items = [item for batch in read_records(embedder, among, reader) for item in batch]
    readable = [item for item in items if not item.note]
    for item in items:
        if item.note:
            log(f"warning: {item.id}: {item.note}")
    if not readable:
        raise UserError(f"{among}: there is nothing to choose from")
    chosen = matcher.sources_among if find == "sources" else matcher.texts_among
    return chosen([x.text for x in readable], [x.shown or x.text for x in readable])
