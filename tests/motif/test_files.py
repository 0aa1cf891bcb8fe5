"""The files of a search and of a scan."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from regard.errors import UserError
from regard.interop.motif_formats import FORMATS, read_motifs
from regard.motif import scan_file
from regard.motif.files import SITE_COLUMNS, write_scan, write_search


def read_tsv(path):
    return list(csv.DictReader(path.read_text().splitlines(), delimiter="\t"))


def test_a_search_writes_page_sites_document_and_motifs(result, tmp_path):
    paths = write_search(result, tmp_path / "out")
    assert [path.name for path in paths] == [
        *("motif.html", "motif.json", "sites.tsv"),
        *(f"motif.{name}" for name in FORMATS),
    ]
    assert all(path.stat().st_size for path in paths)
    sites = read_tsv(tmp_path / "out" / "sites.tsv")
    assert tuple(sites[0]) == SITE_COLUMNS
    assert len(sites) == len(result.rows[0].motif.sites)
    document = json.loads((tmp_path / "out" / "motif.json").read_text())
    assert document == json.loads(json.dumps(result.to_json()))
    for name in FORMATS:
        (back,) = read_motifs(tmp_path / "out" / f"motif.{name}")
        np.testing.assert_allclose(
            back.motif.probabilities, result.rows[0].motif.motif.probabilities, atol=2e-6
        )


def test_a_scan_writes_page_table_and_document(planted, result, tmp_path):
    write_search(result, tmp_path)
    scanned = scan_file(planted.file, tmp_path / "motif.transfac", lambda line: None)
    paths = write_scan(scanned, tmp_path / "scan")
    assert [path.name for path in paths] == ["scan.html", "scan.json", "scan.tsv"]
    assert len(read_tsv(tmp_path / "scan" / "scan.tsv")) == len(list(scanned.rows()))


def test_a_folder_that_is_a_file_is_named(result, tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        write_search(result, tmp_path / "x")
