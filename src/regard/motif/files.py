"""What `regard motif` writes into its folder: the page, the sites, the motifs in each format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.errors import UserError
from regard.interop.motif_formats import FORMATS, NamedMotif, write_motifs
from regard.look.page import Page
from regard.motif.discovery import MotifResult
from regard.motif.page import motif_page, scan_page, site_rows
from regard.motif.scanning import COLUMNS, ScanResult
from regard.storage import write_json, write_text

SITE_COLUMNS = ("motif", "sequence", "start", "end", "strand", "probability", "letters")


def write_search(result: MotifResult, folder: Path) -> list[Path]:
    """Write motif.html, sites.tsv, motif.json and the weight matrices as motif.meme,
    motif.transfac and motif.jaspar; return the paths.
    """
    paths = write_common(folder, "motif", motif_page(result), result.to_json())
    first = [rows[0] for rows in result.motifs]
    sites = [[f"motif-{row.number}", *cells] for row in first for cells in site_rows(result, row)]
    paths.append(write_rows(folder / "sites.tsv", SITE_COLUMNS, sites))
    named = [
        NamedMotif(motif=row.motif.motif, name=f"motif-{row.number}") for row in first if row.motif
    ]
    for name in FORMATS:
        path = folder / f"motif.{name}"
        write_motifs(path, named, format=name, both_strands=result.both_strands)
        paths.append(path)
    return paths


def write_scan(result: ScanResult, folder: Path) -> list[Path]:
    """Write scan.html, scan.tsv and scan.json; return the paths."""
    paths = write_common(folder, "scan", scan_page(result), result.to_json())
    return [*paths, write_rows(folder / "scan.tsv", *scan_table(result))]


def scan_table(result: ScanResult) -> tuple[Sequence[str], list[list[object]]]:
    """Return the columns and rows of the occurrences."""
    return COLUMNS, [list(row.values()) for row in result.rows()]


def write_common(folder: Path, name: str, page: Page, document: Any) -> list[Path]:
    """Write the page and the JSON document, creating the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = page.write(folder / f"{name}.html")
        write_json(folder / f"{name}.json", document)
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    return [path, folder / f"{name}.json"]


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write rows with tabs between their values, after a row of the names."""
    lines = ["\t".join(columns), *("\t".join(map(show, row)) for row in rows)]
    write_text(path, "\n".join(lines) + "\n")
    return path


def show(value: object) -> str:
    """Return a cell of a file: six digits of numbers, and no tabs or line ends."""
    return f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
