"""regard motif"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.motif import MotifResult, ScanResult

File = Annotated[
    Path, typer.Argument(help="Sequences: FASTA, one a line, or - for standard input.")
]
Scan = Annotated[
    Path | None,
    typer.Option(help="Locate the motifs of this MEME, TRANSFAC or JASPAR file instead."),
]
Width = Annotated[
    str, typer.Option(help="Of the motif, as 8 or 6-20; default 6-20, or the start's.")
]
Orders = Annotated[str, typer.Option(help="Letters before that a position depends on, 0 to 4.")]
Number = Annotated[int, typer.Option(help="How many to find, one after another.")]
Start = Annotated[
    list[str] | None,
    typer.Option(help="Start from a word such as TATAAT, or a file with one motif."),
]
Without = Annotated[
    Path | None, typer.Option(help="Sequences without a motif; default: FILE's, shuffled.")
]
OneStrand = Annotated[
    bool, typer.Option("--one-strand", help="Of DNA and RNA, search only the strand given.")
]
PValue = Annotated[float, typer.Option(help="Of an occurrence, at most; with --scan.")]
Minutes = Annotated[
    float, typer.Option(help="For a CNN and attention to compare with; 0: without them.")
]
Out = Annotated[
    Path | None, typer.Option(help="Folder; default runs/NAME-motif or runs/NAME-scan.")
]
Seed = Annotated[int, typer.Option(help="Of the part held out, and of shuffles.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def command(
    file: File,
    scan: Scan = None,
    width: Width = "",
    orders: Orders = "0,2",
    motifs: Number = 1,
    seed_motif: Start = None,
    background: Without = None,
    one_strand: OneStrand = False,
    p_value: PValue = 1e-4,
    minutes: Minutes = 2.0,
    out: Out = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Find motifs in sequences, or locate known ones.

    A motif is a short pattern that many sequences contain, anywhere, with variations. A weight
    matrix and Bayesian Markov motifs are fitted to two thirds of the sequences; the table says how
    well each tells the others from shuffled ones, beside a CNN and attention. The folder has a page
    with logos, positions and curves, the sites, and the motifs as MEME, TRANSFAC and JASPAR files.

    Example: regard motif promoters.fa --minutes 0

    From a word, against sequences of your own: regard motif promoters.fa --seed-motif TATAAT
    --background background.fa

    Known motifs, with exact p-values, as a table on standard output: regard motif promoters.fa
    --scan runs/promoters-motif/motif.meme --p-value 0.0005
    """
    from regard.cli.options import log
    from regard.console import print_json
    from regard.errors import UsageError
    from regard.motif import SearchOptions, scan_file, search
    from regard.motif.discovery import parse_orders, parse_width
    from regard.motif.files import write_scan, write_search

    name = "standard-input" if str(file) == "-" else file.name.split(".")[0]
    folder = out or Path("runs") / f"{name}-{'scan' if scan else 'motif'}"
    if scan is not None:
        if width or seed_motif or motifs != 1:
            raise UsageError("--scan locates known motifs: no --width, --motifs or --seed-motif")
        both = not one_strand
        located = scan_file(
            file, scan, log, p_value=p_value, both_strands=both, background=background
        )
        log(", ".join(map(str, write_scan(located, folder))))
        print_json(located.to_json()) if json else print_scan(located)
        return
    settings = SearchOptions(
        width=parse_width(width),
        orders=parse_orders(orders),
        n_motifs=motifs,
        both_strands=not one_strand,
        background=background,
        starts=tuple(seed_motif or ()),
        minutes=minutes,
        seed=seed,
    )
    result = search(file, settings, log)
    paths = write_search(result, folder)
    print_json(result.to_json()) if json else print_search(result, paths)


def print_scan(result: ScanResult) -> None:
    """Print the occurrences with tabs between the columns."""
    from regard.motif.files import scan_table, show

    columns, rows = scan_table(result)
    print("\t".join(columns))
    for row in rows:
        print("\t".join(map(show, row)))


def print_search(result: MotifResult, paths: list[Path]) -> None:
    """Print the table, the motifs, and where the files are."""
    from regard.console import print_table

    title = f"{result.held_out:,} held-out sequences against {result.negatives}, 95% intervals"
    print_table(*result.text_table(), title=title)
    print("\n".join(result.verdict))
    print(", ".join(map(str, paths)))
