"""`regard motif`: the table, the document, the files, and what is refused."""

from __future__ import annotations

import numpy as np


def write(path, n=36):
    random = np.random.default_rng(0)
    letters = random.choice(list("ACGT"), (n, 50))
    for row in letters:
        at = random.integers(0, 40)
        row[at : at + 9] = list("TGACTCATA")
    path.write_text("".join(f">r{i}\n{''.join(row)}\n" for i, row in enumerate(letters)))


def test_a_search_and_a_scan_with_what_it_found(cli, tmp_path):
    write(tmp_path / "a.fa")
    found = cli("motif", "a.fa", "--minutes", 0, "--orders", "1")
    assert found.code == 0
    assert "motif 1, order 0 (PWM)" in found.out and "motif 1, order 1" in found.out
    assert "runs/a-motif/motif.html" in found.out
    assert "TGACTCATA" in found.out or "TATGAGTCA" in found.out
    meme = "runs/a-motif/motif.meme"
    located = cli("motif", "a.fa", "--scan", meme)
    lines = located.out.splitlines()
    assert lines[0].split("\t")[:3] == ["motif", "name", "sequence"]
    assert len(lines) >= 36
    assert (tmp_path / "runs/a-scan/scan.tsv").read_text() == located.out
    document = cli("motif", "a.fa", "--scan", meme, "--json").document
    assert len(document["hits"]) == len(lines) - 1


def test_json_is_one_document(cli, tmp_path):
    write(tmp_path / "a.fa")
    result = cli("motif", "a.fa", "--minutes", 0, "--orders", "2", "--out", "x", "--json")
    rows = result.document["rows"]
    assert [row["order"] for row in rows] == [0, 2]
    assert {"value", "low", "high"} <= set(rows[0]["metrics"]["auroc"])
    assert rows[0]["minus_order_0"] == {}
    assert (tmp_path / "x" / "motif.html").exists()


def test_mistakes_are_one_line(cli, tmp_path):
    write(tmp_path / "a.fa", 5)
    few = cli("motif", "a.fa")
    assert few.code == 1 and "--scan locates a known motif" in few.err
    assert cli("motif", "a.fa", "--width", "wide").code == 2
    both = cli("motif", "a.fa", "--scan", "m.meme", "--width", "8")
    assert both.code == 2 and "no --width" in both.err
    (tmp_path / "m.meme").write_text(
        "MEME version 4\nMOTIF x\nletter-probability matrix: w= 1\n1 1 0 0\n"
    )
    damaged = cli("motif", "a.fa", "--scan", "m.meme")
    assert damaged.code == 1 and "m.meme:4: probabilities must sum to 1" in damaged.err
