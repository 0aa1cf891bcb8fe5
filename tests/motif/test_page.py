"""What the pages show."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.page import Bars, Histogram, Lines, Logo, Table
from regard.motif import scan_file
from regard.motif.files import write_search
from regard.motif.page import motif_page, scan_page, site_rows


def of(page, kind):
    return [component for component in page.components if isinstance(component, kind)]


def test_the_page_of_a_search_draws_every_order_the_sites_and_the_curves(result):
    page = motif_page(result)
    first, second = of(page, Logo)
    assert first.title.startswith("Order 0") and second.title.startswith("Order 1")
    (gain,) = of(page, Bars)
    assert len(gain.values) == result.rows[0].motif.motif.width and min(gain.values) >= 0
    (histogram,) = of(page, Histogram)
    assert sum(histogram.counts) == len(result.rows[0].motif.sites)
    assert (np.diff(histogram.edges) == np.diff(histogram.edges)[0]).all()
    roc, precision = of(page, Lines)
    for name, false, true in roc.series:
        row = next(row for row in result.rows if row.name == name)
        area = np.trapezoid(true, false) if hasattr(np, "trapezoid") else np.trapz(true, false)
        assert area == pytest.approx(row.estimates["auroc"].value)
    assert len(precision.series) == 2
    table, sites = of(page, Table)
    assert len(table.rows) == 2 and len(sites.rows) == min(100, len(result.rows[0].motif.sites))


def test_sites_are_written_as_the_motif_reads_them(result):
    motif = result.rows[0].motif.motif
    for name, start, end, strand, p, letters in site_rows(result, result.rows[0]):
        text = result.sequences.texts[int(str(name)[1:])]
        assert len(letters) == end - start + 1 == motif.width
        assert (letters == text[start - 1 : end]) or strand == "-"
        assert 0.5 < p <= 1


def test_the_page_of_a_scan_draws_its_motifs(planted, result, tmp_path):
    write_search(result, tmp_path)
    scanned = scan_file(planted.file, tmp_path / "motif.meme", lambda line: None)
    page = scan_page(scanned)
    (logo,) = of(page, Logo)
    assert f"{len(scanned.motifs[0].hits):,} occurrences" in logo.note
    motifs, hits = of(page, Table)
    assert motifs.rows[0][3] == len(scanned.motifs[0].hits)
    p_values = [row[7] for row in hits.rows]
    assert p_values == sorted(p_values)
