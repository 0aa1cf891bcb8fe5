"""Motif formats: files by hand, there and back, and every broken line named."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.errors import UserError
from regard.interop.motif_formats import (
    FORMATS,
    NamedMotif,
    parse_motifs,
    read_motifs,
    write_motifs,
)
from regard.models.motifs import (
    DNA,
    PROTEIN,
    RNA,
    Background,
    MarkovMotif,
    MotifAlphabet,
    PositionWeightMatrix,
)

BY_HAND = """MEME version 4.4

ALPHABET= ACGT

strands: + -

Background letter frequencies (from uniform background):
A 0.30000 C 0.20000
G 0.20000 T 0.30000

MOTIF MA0001.1 AGL3
letter-probability matrix: alength= 4 w= 2 nsites= 97 E= 4.1e-009
  0.00  0.97\t0.00  0.03
  0.50  0.00  0.50  0.00
URL http://example.org/MA0001.1

MOTIF second

letter-probability matrix:
0.25 0.25 0.25 0.25
"""


def test_a_file_written_by_hand(tmp_path):
    path = tmp_path / "by-hand.meme"
    path.write_text(BY_HAND)
    first, second = read_motifs(path)
    assert (first.name, first.alternate, first.url) == (
        "MA0001.1",
        "AGL3",
        "http://example.org/MA0001.1",
    )
    assert first.e_value == 4.1e-9
    assert first.motif.sites == 97
    np.testing.assert_allclose(
        first.motif.probabilities, [[0, 0.97, 0, 0.03], [0.5, 0, 0.5, 0]], atol=1e-12
    )
    np.testing.assert_allclose(first.motif.background.frequencies, [0.3, 0.2, 0.2, 0.3])
    assert (second.name, second.alternate, second.url, second.motif.sites) == ("second", "", "", 20)
    assert second.motif.width == 1


@pytest.mark.parametrize("alphabet", [DNA, RNA, PROTEIN])
def test_there_and_back(tmp_path, alphabet):
    random = np.random.default_rng(1)
    background = Background.of(random.dirichlet(np.ones(alphabet.size)), alphabet)
    motifs = [
        NamedMotif(
            motif=PositionWeightMatrix.of_counts(
                random.integers(0, 9, (width, alphabet.size)), alphabet, background=background
            ),
            name=f"m{width}",
            alternate="other" * (width % 2),
            e_value=width / 7,
            url="http://x.org" * (width % 2),
        )
        for width in (1, 6, 13)
    ]
    write_motifs(tmp_path / "a.meme", motifs)
    back = read_motifs(tmp_path / "a.meme")
    for ours, theirs in zip(motifs, back, strict=True):
        assert (ours.name, ours.alternate, ours.url) == (theirs.name, theirs.alternate, theirs.url)
        assert theirs.e_value == pytest.approx(ours.e_value, rel=1e-5)
        assert theirs.motif.sites == ours.motif.sites
        np.testing.assert_allclose(ours.motif.probabilities, theirs.motif.probabilities, atol=2e-6)
        np.testing.assert_allclose(
            ours.motif.background.frequencies, theirs.motif.background.frequencies, atol=2e-6
        )
    write_motifs(tmp_path / "b.meme", back)
    assert (tmp_path / "b.meme").read_text() == (tmp_path / "a.meme").read_text()


def test_a_markov_motif_is_written_as_its_letters(tmp_path):
    motif = MarkovMotif.fit(["ACG", "ACC", "TTG"], order=1)
    write_motifs(tmp_path / "m.meme", [NamedMotif(motif=motif, name="m")], both_strands=False)
    (back,) = read_motifs(tmp_path / "m.meme")
    np.testing.assert_allclose(back.motif.probabilities, motif.probabilities, atol=2e-6)
    assert "strands: +\n" in (tmp_path / "m.meme").read_text()


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("MEME version 4.4", "MEME", 1, "begins with `MEME version 4`"),
        ("ALPHABET= ACGT", "ALPHABET= ACGX", 3, "alphabet must be one of"),
        ("strands: + -", "strands: -", 5, "strands must be"),
        ("strands: + -", "ALPHABET= ACGT", 5, "a second 'ALPHABET' line"),
        ("A 0.30000", "A 0.9", 9, "sum to 1"),
        ("A 0.30000", "A", 8, "pairs of a letter"),
        ("A 0.30000 C", "C 0.30000 A", 9, "in order"),
        ("MOTIF MA0001.1 AGL3", "MOTIF", 11, "MOTIF name"),
        ("MOTIF second\n", "", 18, "expected `MOTIF name"),
        ("alength= 4", "alength= 5", 12, "alength must be 4"),
        ("w= 2", "w= 3", 14, "has 2 rows, w= 3"),
        ("w= 2", "w= 2.5", 12, "whole number"),
        ("w= 2", "w= 2 w= 2", 12, "each once"),
        ("w= 2", "width= 2", 12, "expected alength="),
        ("nsites= 97", "nsites= many", 12, "nsites must be a number"),
        ("0.00  0.97", "0.00", 13, "4 probabilities, got 3"),
        ("0.00  0.97", "0.00 0.90", 13, "sum to 1"),
        ("0.00  0.97", "nan 0.97", 13, "a probability must be a number of 0 or more to 1"),
        ("0.00  0.97", "-0.01 0.97", 13, "got '-0.01'"),
        ("0.00  0.97", "0_0 0.97", 13, "got '0_0'"),
        ("URL http://example.org/MA0001.1", "URL", 15, "URL address"),
        ("0.25 0.25 0.25 0.25\n", "", 19, "has 0 rows"),
        ("letter-probability matrix:\n", "log-odds matrix:\n", 19, "letter-probability matrix"),
    ],
)
def test_a_broken_line_is_named(tmp_path, old, new, line, said):
    path = tmp_path / "broken.meme"
    assert BY_HAND.count(old) == 1
    path.write_text(BY_HAND.replace(old, new))
    with pytest.raises(UserError) as caught:
        read_motifs(path)
    assert f"broken.meme:{line}: " in str(caught.value)
    assert said in str(caught.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        read_motifs(tmp_path / "absent.meme")
    with pytest.raises(UserError, match="not a regular file"):
        read_motifs(tmp_path)
    (tmp_path / "binary").write_bytes(b"MEME version 4\n\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8"):
        read_motifs(tmp_path / "binary")
    for text, said in (("", "no motif file begins with"), ("MEME version 4\n", "holds no MOTIF")):
        (tmp_path / "short").write_text(text)
        with pytest.raises(UserError, match=f":1: .*{said}"):
            read_motifs(tmp_path / "short")


@pytest.mark.parametrize("length", range(0, len(BY_HAND), 7))
def test_a_file_cut_short_is_read_or_refused(length):
    text = BY_HAND[:length]
    try:
        found = parse_motifs("cut", text)
    except UserError as error:
        assert str(error).startswith("cut:")
    else:
        assert [one.name for one in found] == ["MA0001.1", "second"][: len(found)]


WORDS = [*BY_HAND.split(), "\n", "\n", "\n", "1e999", "-1", "inf", "0.5", "\x00", "é", "=", "w="]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_text_is_read_or_refused_with_its_line(data):
    lines = BY_HAND.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        lines[at] = " ".join(data.draw(st.lists(st.sampled_from(WORDS), max_size=6)))
    text = data.draw(st.one_of(st.just("\n".join(lines)), st.text(max_size=60)))
    try:
        found = parse_motifs("any", text)
    except UserError as error:
        assert str(error).startswith("any:")
    else:
        for one in found:
            assert np.isfinite(one.motif.probabilities).all()
            np.testing.assert_allclose(one.motif.probabilities.sum(axis=1), 1)


def one(**changes):
    motif = PositionWeightMatrix.fit(["ACG"])
    return NamedMotif(**{"motif": motif, "name": "m", **changes})


@pytest.mark.parametrize(
    ("motifs", "said"),
    [
        ([], "no motifs"),
        ([one(name="two words")], "no spaces"),
        ([one(name="")], "needs a name"),
        ([one(url="a\nMOTIF b")], "no spaces"),
        ([one(e_value=float("nan"))], "E-value"),
        (
            [one(motif=PositionWeightMatrix.fit(["ab"], MotifAlphabet("ab")))],
            "not the alphabet 'ab'",
        ),
        ([one(), one(motif=PositionWeightMatrix.fit(["ACDE"], PROTEIN))], "share alphabet"),
        (
            [
                one(),
                one(motif=PositionWeightMatrix.fit(["A"], background=Background.of([4, 3, 2, 1]))),
            ],
            "share alphabet and background",
        ),
    ],
)
def test_what_a_file_cannot_hold_is_refused(tmp_path, motifs, said):
    with pytest.raises(UserError, match=said):
        write_motifs(tmp_path / "x.meme", motifs)
    assert not list(tmp_path.iterdir())


TRANSFAC = """VV  TRANSFAC MATRIX TABLE
XX
//
AC M00001
XX
ID first one
XX
P0      A      C      G      T
01      8      0      0      2      A
02      0   5.5    4.5      0      S
XX
CC a note
//
"""
JASPAR = """>MA0001.1 AGL3
A  [ 8 0 ]
C  [ 0 5.5 ]
G  [ 0 4.5 ]
T  [ 2 0 ]
>raw
8 0
0 5.5
0 4.5
2 0
"""
ROWS = [[0.8, 0, 0, 0.2], [0, 0.55, 0.45, 0]]


def test_transfac_and_jaspar_by_hand(tmp_path):
    (tmp_path / "a.transfac").write_text(TRANSFAC)
    (tmp_path / "a.jaspar.gz").write_bytes(gzip.compress(JASPAR.encode()))
    (first,) = read_motifs(tmp_path / "a.transfac")
    second, raw = read_motifs(tmp_path / "a.jaspar.gz")
    names = [(one.name, one.alternate) for one in (first, second, raw)]
    assert names == [("M00001", "first one"), ("MA0001.1", "AGL3"), ("raw", "")]
    for one in (first, second, raw):
        assert one.motif.sites == 10
        np.testing.assert_allclose(one.motif.probabilities, ROWS, atol=1e-12)


@pytest.mark.parametrize("alphabet", [DNA, RNA, PROTEIN])
@pytest.mark.parametrize("format", ["transfac", "jaspar"])
def test_counts_there_and_back(tmp_path, alphabet, format):
    random = np.random.default_rng(2)
    counts = [random.multinomial(17, np.ones(alphabet.size) / alphabet.size, w) for w in (1, 9)]
    motifs = [
        NamedMotif(
            motif=PositionWeightMatrix.of_counts(table, alphabet, pseudocount=0), name=f"m{i}"
        )
        for i, table in enumerate(counts)
    ]
    write_motifs(tmp_path / "a", motifs, format=format)
    back = read_motifs(tmp_path / "a")
    for ours, theirs, table in zip(motifs, back, counts, strict=True):
        assert (ours.name, ours.alternate) == (theirs.name, theirs.alternate)
        np.testing.assert_allclose(theirs.motif.probabilities * theirs.motif.sites, table)
    write_motifs(tmp_path / "b", back, format=format)
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()


@pytest.mark.parametrize("ending", [ending for one in FORMATS.values() for ending in one.endings])
def test_the_ending_names_the_format(tmp_path, ending):
    path = tmp_path / f"m{ending}"
    write_motifs(path, [one()])
    (back,) = read_motifs(path)
    assert back.motif.consensus == "ACG"
    with pytest.raises(UserError, match="must end in"):
        write_motifs(tmp_path / "m.csv", [one()])


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "said"),
    [
        (TRANSFAC, "01 ", "02 ", 9, "position 1 should follow"),
        (TRANSFAC, "5.5    4.5      0      S", "5.5 4.5", 10, "a row has 4 counts, got 3"),
        (TRANSFAC, "5.5", "x", 10, "a count must be a number"),
        (TRANSFAC, "8      0      0      2", "0 0 0 0", 9, "sum above 0"),
        (TRANSFAC, "A      C", "C      A", 8, "alphabet must be one of"),
        (TRANSFAC, "CC a note", "ZZ a note", 12, "unknown line 'ZZ'"),
        (TRANSFAC, "ID first one", "AC first", 6, "a second line of 'AC'"),
        (TRANSFAC, "AC M00001", "AC M 1", 13, "without spaces"),
        (TRANSFAC, "P0 ", "CC ", 9, "unknown line '01'"),
        (TRANSFAC, "CC a note\n//", "CC a note", 12, "the file ends where // should follow"),
        (JASPAR, "[ 0 5.5 ]", "[ 0 ]", 3, "a row has 2 counts, got 1"),
        (JASPAR, "[ 0 5.5 ]", "[ 0 -1 ]", 3, "a count must be a number of 0 or more"),
        (JASPAR, "A  [ 8 0 ]", "X  [ 8 0 ]", 5, "alphabet must be one of"),
        (JASPAR, "A  [ 8 0 ]\n", "", 4, "alphabet must be one of"),
        (JASPAR, "A  [ 8 0 ]", "8 0", 5, "alphabet must be one of"),
        (JASPAR, ">raw", ">", 6, "expected `>name other-name`"),
        (JASPAR, "8 0\n0 5.5\n0 4.5\n2 0\n", "8 0\n", 7, "a row for each of A, C, G, T"),
        (JASPAR, "8 0\n0 5.5\n0 4.5\n2 0\n", "0 0\n" * 4, 10, "position 1 must have a sum"),
    ],
)
def test_a_broken_line_of_counts_is_named(tmp_path, text, old, new, line, said):
    path = tmp_path / "broken"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_motifs(path)
    assert f"broken:{line}: " in str(caught.value)
    assert said in str(caught.value)
