"""regard score of masked language models: records and variants."""

from __future__ import annotations

import json

import pytest

from regard.api import load
from regard.cli import run

SEQUENCE = "MKDEMKFGLIDEFGMKLILIDEMK"


def test_scores_say_what_is_likely(masked_proteins, tmp_path, capsys):
    (tmp_path / "two.fasta").write_text(f">good\n{SEQUENCE}\n>bad\nML{SEQUENCE[2:]}\n")
    assert run(["score", str(masked_proteins), str(tmp_path / "two.fasta"), "--masked"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == ["good", "bad"]
    assert float(rows[0][0]) > float(rows[1][0]) + 2
    records = load(masked_proteins).pseudo_log_likelihoods([SEQUENCE])
    assert float(rows[0][0]) == pytest.approx(records[0].total, abs=1e-4)


def test_variants_of_a_sequence_are_scored(masked_proteins, capsys):
    variants = ["score", str(masked_proteins), SEQUENCE, "--masked", "--variants", "M1A,D3C:E4A"]
    assert run(variants) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[1] for row in rows] == ["M1A", "D3C:E4A"]
    assert float(rows[0][0]) < -1  # M is expected there
    effects = load(masked_proteins).variant_effects(SEQUENCE, ["M1A", "D3C:E4A"])
    assert [float(row[0]) for row in rows] == pytest.approx([e.score for e in effects], abs=1e-5)


def test_a_column_of_variants_belongs_to_its_rows(masked_proteins, tmp_path, capsys):
    (tmp_path / "v.tsv").write_text(f"protein\tchange\n{SEQUENCE}\tM1A\n{SEQUENCE[2:]}\tD1C\n")
    command = [
        "score",
        str(masked_proteins),
        str(tmp_path / "v.tsv"),
        "--input",
        "protein",
        "--masked",
    ]
    assert run([*command, "--variants", "change", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)["records"]
    assert [r["variants"][0]["variant"] for r in records] == ["M1A", "D1C"]
    assert [r["note"] for r in records] == ["", ""]


def test_all_variants_are_a_scan(masked_proteins, capsys):
    assert run(["score", str(masked_proteins), "MKA", "--masked", "--variants", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 * 19


def test_masked_scores_are_asked_for(masked_proteins, contrastive_run, tmp_path, capsys):
    (tmp_path / "one.txt").write_text(SEQUENCE + "\n")
    assert run(["score", str(masked_proteins), str(tmp_path / "one.txt")]) == 2
    assert "say --masked" in capsys.readouterr().err
