"""regard motif"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    file: Annotated[Path, typer.Argument(help="Sequences: FASTA, or one a line.")],
    scan: Annotated[
        Path | None,
        typer.Option(help="Locate the motifs of this MEME, TRANSFAC or JASPAR file instead."),
    ] = None,
    width: Annotated[
        str, typer.Option(help="Of the motif, as 8 or 6-20; default 6-20, or the start's.")
    ] = "",
    orders: Annotated[
        str, typer.Option(help="Letters before that a position depends on, 0 to 4.")
    ] = "0,2",
    motifs: Annotated[int, typer.Option(help="How many to find, one after another.")] = 1,
    seed_motif: Annotated[
        list[str] | None,
        typer.Option(help="Start from a word such as TATAAT, or a file with one motif."),
    ] = None,
    background: Annotated[
        Path | None,
        typer.Option(help="Sequences without a motif; default: FILE's, shuffled."),
    ] = None,
    one_strand: Annotated[
        bool, typer.Option("--one-strand", help="Of DNA and RNA, search only the strand given.")
    ] = False,
    p_value: Annotated[float, typer.Option(help="Of an occurrence, with --scan.")] = 1e-4,
    minutes: Annotated[
        float, typer.Option(help="For a CNN and attention to compare with; 0: without them.")
    ] = 2.0,
    out: Annotated[
        Path | None, typer.Option(help="Folder; default runs/NAME-motif or runs/NAME-scan.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the part held out, and of shuffles.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
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
    --scan runs/promoters-motif/motif.meme
    """
    from regard.cli.options import log
    from regard.console import print_json, print_table
    from regard.motif import SearchOptions, scan_file, search
    from regard.motif.files import scan_table, show, write_scan, write_search
    from regard.motif.search import parse_orders, parse_width

    ending = "scan" if scan else "motif"
    folder = out or Path("runs") / f"{file.name.split('.')[0]}-{ending}"
    if scan is not None:
        both = not one_strand
        located = scan_file(
            file, scan, log, p_value=p_value, both_strands=both, background=background
        )
        paths = write_scan(located, folder)
        log(", ".join(map(str, paths)))
        if json:
            print_json(located.to_json())
            return
        columns, rows = scan_table(located)
        print("\t".join(columns))
        for row in rows:
            print("\t".join(map(show, row)))
        return
    options = SearchOptions(
        width=parse_width(width),
        orders=parse_orders(orders),
        n_motifs=motifs,
        both_strands=not one_strand,
        background=background,
        starts=tuple(seed_motif or ()),
        minutes=minutes,
        seed=seed,
    )
    result = search(file, options, log)
    paths = write_search(result, folder)
    if json:
        print_json(result.to_json())
        return
    title = f"{result.held_out:,} held-out sequences against {result.negatives}, 95% intervals"
    print_table(*result.text_table(), title=title)
    for found in result.motifs:
        motif = found[0].motif
        assert motif is not None
        print(f"motif {found[0].number}: {motif.motif.consensus}, in {motif.share:.0%} of them")
    print(", ".join(map(str, paths)))
