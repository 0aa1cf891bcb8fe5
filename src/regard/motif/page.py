"""The pages of `regard motif`: motifs found, and known motifs located."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.metrics import precision_recall_curve, roc_curve

from regard.look.figures import motif_logo
from regard.look.page import Bars, Component, Histogram, Lines, Page, Table, Text
from regard.motif.discovery import MotifResult, MotifRow
from regard.motif.scanning import COLUMNS, ScanResult, read_strand

MOST_ROWS = 100  # of a table
MOST_MOTIFS = 50  # that are drawn on the page of a scan
BINS = 30


def motif_page(result: MotifResult) -> Page:
    """Return the page of a search."""
    sequences, best = result.sequences, result.rows[0]
    assert best.motif is not None
    facts = [
        ("sequences", len(sequences.texts)),
        ("letters", sequences.letters),
        ("best motif", best.motif.motif.consensus),
        ("held out", result.held_out),
        ("compared with", result.negatives),
        ("searched in", f"{result.seconds:.1f} s"),
    ]
    page = Page.about(f"Motifs in {Path(sequences.file).name}", facts, heading="The sequences")
    page.section(
        "The table",
        f"How well each model tells {result.held_out:,} held-out sequences from "
        f"{result.negatives}. Order 0 is a position weight matrix; order k conditions each "
        "position on the k letters before it. Intervals are 95%, by the bootstrap over sequences; "
        "differences are paired. Sites and bits are of the motif fitted to all sequences.",
    )
    page.add(Text(". ".join(f"{line[0].upper()}{line[1:]}" for line in result.verdict) + "."))
    columns, rows = result.table()
    page.add(Table(columns=columns, rows=rows))
    page.add(*curves(result))
    for rows_of_motif in result.motifs:
        add_motif(page, result, rows_of_motif)
    return page


def curves(result: MotifResult) -> list[Component]:
    """Return the ROC and the precision–recall curve of every row."""
    rocs, precisions = [], []
    for row in result.rows:
        false, true, _ = roc_curve(result.truths, row.scores)
        precision, recall, _ = precision_recall_curve(result.truths, row.scores)
        rocs.append((row.name, false.tolist(), true.tolist()))
        precisions.append((row.name, recall[::-1].tolist(), precision[::-1].tolist()))
    return [
        Lines(rocs, "false positive rate", "true positive rate", title="ROC"),
        Lines(precisions, "recall", "precision", title="Precision and recall"),
    ]


def add_motif(page: Page, result: MotifResult, rows: Sequence[MotifRow]) -> None:
    """Add the logos of all orders of a motif, what the higher orders add, and its sites."""
    first = rows[0].motif
    assert first is not None
    width = first.motif.width
    page.section(
        f"Motif {rows[0].number}: {first.motif.consensus}",
        f"In {first.share:.0%} of the sequences. A stack is as tall as the information of its "
        "position, the letters in it as their frequency. Logos show letters one by one, so those "
        "of higher orders look alike; what an order adds is drawn below: the bits that the letters "
        "before a position tell about it.",
    )
    logos = [
        motif_logo(
            row.motif.motif,
            f"Order {row.order}, {row.motif.motif.consensus}",
            note=f"{row.information:.1f} bits, {len(row.motif.sites):,} sites",
        )
        for row in rows
        if row.motif is not None
    ]
    add_in_pairs(page, logos)
    positions = [str(j) for j in range(1, width + 1)]
    for row in rows:
        if row.order and row.motif is not None:
            model = row.motif.motif
            gain = np.maximum(model.conditional_information() - model.information(), 0).round(3)
            title = f"Bits that order {row.order} adds, by position: {gain.sum():.2f} in all"
            page.add(Bars(positions, gain.tolist(), title=title, unit="bits"))
    if first.sites:
        page.add(*site_positions(result, rows[0]))
        page.add(site_table(result, rows[0]))


def add_in_pairs(page: Page, components: Sequence[Component]) -> None:
    """Add components, two in a row."""
    for i in range(0, len(components), 2):
        page.add(*components[i : i + 2])


def site_positions(result: MotifResult, row: MotifRow) -> list[Component]:
    """Return where sites begin, in letters, or in shares where the lengths differ."""
    assert row.motif is not None
    sites, width = row.motif.sites, row.motif.motif.width
    lengths = np.array([len(text) for text in result.sequences.texts])
    starts = np.array([site.position for site in sites])
    if lengths.min() == lengths.max():
        title, x_label, high = "Where sites begin", "position", max(int(lengths[0]) - width + 1, 1)
        edges = np.arange(0, high + high // BINS + 1, high // BINS + 1, dtype=np.float64)
    else:
        free = np.maximum(lengths[[site.sequence for site in sites]] - width, 1)
        title, x_label, starts = "Where sites begin", "share of the sequence", starts / free
        edges = np.linspace(0, 1, BINS + 1)
    counts = np.histogram(starts, edges)[0]
    forward = sum(site.strand > 0 for site in sites)
    strands = f"{title}: {forward:,} on the forward strand, {len(sites) - forward:,} on the other"
    return [Histogram(edges.tolist(), counts.tolist(), title=strands, x_label=x_label)]


def site_table(result: MotifResult, row: MotifRow) -> Table:
    """Return the most probable sites."""
    rows = site_rows(result, row)
    rows.sort(key=lambda cells: -float(str(cells[4])))
    shown = rows[:MOST_ROWS]
    title = f"Sites: the {len(shown):,} most probable of {len(rows):,}"
    columns = ["sequence", "start", "end", "strand", "probability", "letters"]
    return Table(columns=columns, rows=shown, title=title)


def site_rows(result: MotifResult, row: MotifRow) -> list[list[object]]:
    """Return name, start, end, strand, probability and letters of each site, positions from 1."""
    assert row.motif is not None
    names, texts, motif = result.sequences.names, result.sequences.texts, row.motif.motif
    rows: list[list[object]] = []
    for site in row.motif.sites:
        window = texts[site.sequence][site.position : site.position + motif.width]
        letters = read_strand(window, motif, site.strand)
        strand = "+" if site.strand > 0 else "-"
        row_start = [names[site.sequence], site.position + 1, site.position + motif.width, strand]
        rows.append([*row_start, round(site.posterior, 4), letters])
    return rows


def scan_page(result: ScanResult) -> Page:
    """Return the page of a scan."""
    sequences = result.sequences
    total = sum(len(one.hits) for one in result.motifs)
    facts = [
        ("sequences", len(sequences.texts)),
        ("occurrences", total),
        ("motifs", len(result.motifs)),
        ("letters", sequences.letters),
        ("p-value at most", f"{result.p_value:g}"),
        ("background", result.background),
        ("scanned in", f"{result.seconds:.1f} s"),
    ]
    page = Page.about(f"Motifs located in {Path(sequences.file).name}", facts, heading="The scan")
    page.section(
        "The motifs",
        "How often a motif occurs, and how often it would by chance in a sequence of the "
        "background. A motif whose least p-value is above the limit cannot occur. P-values are "
        "exact for scores rounded to a ten-thousandth of their range.",
    )
    rows = [
        [
            one.source.name,
            one.source.alternate,
            one.motif.consensus,
            len(one.hits),
            round(one.hits.expected, 1),
            f"{one.least_p_value:.2g}",
        ]
        for one in result.motifs
    ]
    columns = ["motif", "name", "consensus", "occurrences", "expected by chance", "least p-value"]
    page.add(Table(columns=columns, rows=rows))
    by_hits = sorted(result.motifs, key=lambda one: -len(one.hits))[:MOST_MOTIFS]
    logos = [
        motif_logo(
            one.motif,
            " ".join(filter(None, (one.source.name, one.source.alternate))),
            note=f"{len(one.hits):,} occurrences",
        )
        for one in by_hits
    ]
    add_in_pairs(page, logos)
    if len(by_hits) < len(result.motifs):
        page.add(Text(f"Drawn are the {len(by_hits)} with most occurrences."))
    page.section("The occurrences", "The least p-values first.")
    hits = sorted(result.rows(), key=lambda hit: float(hit["p_value"]))
    shown = [list(hit.values()) for hit in hits[:MOST_ROWS]]
    title = f"{len(shown):,} of {len(hits):,}"
    columns = [name.replace("_", " ") for name in COLUMNS]
    page.add(Table(columns=columns, rows=shown, title=title))
    return page
