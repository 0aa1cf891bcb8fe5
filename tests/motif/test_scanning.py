"""Known motifs located in files."""

from __future__ import annotations

import pytest

from regard.errors import UsageError
from regard.interop.motif_formats import NamedMotif, write_motifs
from regard.models.motifs import DNA, PositionWeightMatrix
from regard.motif import scan_file


@pytest.fixture
def motif_file(tmp_path):
    motif = PositionWeightMatrix.fit(["TTGCAGGACA"] * 9, pseudocount=0.0)
    short = PositionWeightMatrix.fit(["TTG"] * 9, pseudocount=0.0)
    path = tmp_path / "m.jaspar"
    write_motifs(
        path, [NamedMotif(motif=motif, name="long"), NamedMotif(motif=short, name="short")]
    )
    return path


def test_occurrences_have_places_strands_and_letters(planted, motif_file):
    lines = []
    result = scan_file(planted.file, motif_file, lines.append, p_value=1e-3)
    hits = {(row["sequence"], row["start"], row["strand"]): row for row in result.rows()}
    places = {
        (f"s{i}", at + 1, "+" if strand > 0 else "-") for i, (at, strand) in planted.starts.items()
    }
    assert len(places & set(hits)) >= 0.9 * len(places)
    texts = dict(zip(result.sequences.names, result.sequences.texts, strict=True))
    for (name, start, strand), row in hits.items():
        window = DNA.encode(texts[name][start - 1 : row["end"]])
        window = window if strand == "+" else DNA.reverse_complement(window)
        assert row["letters"] == "".join(DNA.letters[i] for i in window)
        assert 0 < row["p_value"] <= 1e-3 and row["p_value"] <= row["q_value"] <= 1
    assert any("too short or vague for a p-value of 0.001, such as short" in x for x in lines)
    document = result.to_json()
    assert [one["hits"] for one in document["motifs"]] == [len(hits), 0]
    assert document["motifs"][1]["least_p_value"] > 1e-3
    long, short = (one["expected"] for one in document["motifs"])
    assert 0 < long <= 1e-3 * document["motifs"][0]["windows"] and short == 0
    assert len(document["hits"]) == len(hits)


def test_one_strand_and_another_background(planted, motif_file):
    given = {"p_value": 1e-3, "background": planted.background}
    both = scan_file(planted.file, motif_file, print, **given)
    one = scan_file(planted.file, motif_file, print, both_strands=False, **given)
    assert planted.background.name in one.background
    assert {row["strand"] for row in both.rows()} == {"+", "-"}
    forward = [row for row in both.rows() if row["strand"] == "+"]
    assert {row["strand"] for row in one.rows()} == {"+"}
    assert len(list(one.rows())) == pytest.approx(len(forward), rel=0.2)  # another background


def test_what_does_not_fit_is_refused(planted, motif_file, tmp_path):
    with pytest.raises(UsageError, match="--p-value must be above 0"):
        scan_file(planted.file, motif_file, print, p_value=0)
    (tmp_path / "p.fa").write_text(">p\nMKVLAWHHKCPRRLLAEETTWYHKDES\n" * 20)
    with pytest.raises(UsageError, match=r"motifs of ACGT, but .* of ACDEFGHIKLMNPQRSTVWY"):
        scan_file(tmp_path / "p.fa", motif_file, print)
