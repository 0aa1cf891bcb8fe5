"""FASTA: what is read, and what is reported of damage."""

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from regard.data import Roles, formats, tables
from regard.data.formats import SkippedRecords
from regard.data.sources import DataSource
from regard.data.tables import entries
from regard.data.text_files import TextFiles
from regard.errors import UserError
from regard.recipe import DataRecipe

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def texts(source):
    return [text for chunk in source.records() for text in chunk.texts]


def lines(source):
    return [n for chunk in source.records() for n in chunk.lines]


@pytest.mark.parametrize("block", [1, 3, 8, 1 << 20])
@pytest.mark.parametrize("zipped", [False, True])
def test_sequences_are_joined_and_nothing_else_is_changed(write, monkeypatch, block, zipped):
    raw = (
        b"; old comment\n\n>one first of all\r\nACgt\r\nNN-*\n\n>two\nAC GT\tac\n>three\n;no\nM\n\n"
    )
    path = write("s.fasta", gzip.compress(raw, mtime=0) if zipped else raw)
    monkeypatch.setattr(formats, "BLOCK", block)
    source = TextFiles([path])
    assert source.format == "fasta"
    assert texts(source) == ["ACgtNN-*", "ACGTac", "M"]
    assert lines(source) == [3, 7, 9]
    assert (source.skipped, source.problems) == (0, [])


def test_batches_end_where_they_are_full_and_lose_nothing(write, monkeypatch):
    rng = random.Random(1)
    sequences = ["".join(rng.choices("ACDEFGHIKL", k=rng.randint(1, 90))) for _ in range(60)]
    path = write("s.fa", "".join(f">{i}\n{s}\n" for i, s in enumerate(sequences)))
    monkeypatch.setattr(tables, "BATCH", 300)
    chunks = list(TextFiles([path]).records())
    assert len(chunks) > 5
    assert [text for chunk in chunks for text in chunk.texts] == sequences


def test_what_is_wrong_is_named_by_file_and_line_and_counted(write):
    path = write(
        "s.fa", b"MKV\nLL\n>a\n>b\nAA\n>a\nCC\n>b again\nDD\n>c\nE\xffE\n>d\nFF\n>\nG\n>\nH\n"
    )
    source = TextFiles([path])
    assert texts(source) == ["AA", "CC", "DD", "FF", "G", "H"]  # copies of an id are kept
    assert source.skipped == 3
    expected = [
        f"{path}:1: a sequence before the first header",
        f"{path}:3: the header 'a' has no sequence",
        f"{path}:11: invalid UTF-8, byte 0xff",
    ]
    assert len(source.problems) == len(expected)
    for problem, start in zip(source.problems, expected, strict=True):
        assert problem.startswith(start)
    assert source.remarks == ["id 'b' occurs 2 times; all records kept"]
    for raw, message in (
        (b"MK\n>a\nA\n", "before the first header"),
        (b">a\n>b\nA\n", "'a' has no sequence"),
        (b">a\nA\n>b\n", r":3: the header 'b' has no sequence"),
        (b">a x\nA\n>a y\nC\n", r":3: the id 'a' was on line 1 already"),
    ):
        with pytest.raises(UserError, match=message):
            texts(TextFiles([write("t.fa", raw)], strict=True))


def test_ids_may_repeat_in_another_file(write):
    source = TextFiles([write("1.fa", ">a\nA\n"), write("2.fa", ">a\nC\n")], strict=True)
    assert texts(source) == ["A", "C"]


def test_fasta_without_a_header_says_what_to_do(write):
    with pytest.raises(
        UserError, match=r"s\.fa: is read as fasta, but no line begins with >.*lines"
    ):
        TextFiles([write("s.fa", "ACGT\nACGT\n")])
    assert texts(TextFiles([write("s.fa", "ACGT\nAC\n")], format="lines")) == ["ACGT", "AC"]


def test_a_genome_can_be_running_text(write, monkeypatch):
    monkeypatch.setattr(formats, "LINE_LIMIT", 50)  # for records alone
    path = write("s.fna", ">a\n" + "ACGT\n" * 20 + ">b\n>c x\nGG\n")
    source = TextFiles([path], format="text")
    texts = ["".join(document.text()) for document in source.documents()]
    assert texts == ["ACGT" * 20, "GG"]
    assert "each sequence of FASTA a document" in source.why
    assert source.problems == [f"{path}:22: the header 'b' has no sequence"]
    data = DataRecipe(train=(str(path),), format="text", valid_fraction=0.1, test_fraction=0.1)
    splits = ["", "", ""]
    for chunk in DataSource(data, Roles(output=True)).chunks():
        splits[chunk.split] += "".join(chunk.texts)
    assert list(map(len, splits)) == [66, 8, 8]
    assert "".join(splits) == "ACGT" * 20 + "GG"


def test_an_endless_sequence_is_refused(write, monkeypatch):
    monkeypatch.setattr(formats, "LINE_LIMIT", 50)
    monkeypatch.setattr(tables, "LINE_LIMIT", 50)
    path = write("s.fa", ">a\n" + "ACGTACGTAC\n" * 6)
    with pytest.raises(UserError, match=r"s\.fa:1: a record is longer"):
        texts(TextFiles([path]))


HOSTILE = st.lists(
    st.sampled_from(
        [b">", b"\n", b"\r\n", b";", b"ACGT", b" ", b"a=1", b"\xff", b"\xc3\xa4", b"x"]
    ),
    max_size=40,
).map(b"".join)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=HOSTILE, strict=st.booleans(), block=st.integers(1, 50))
@example(content=b">\n >", strict=False, block=1)
@example(content=b">a\nAC\n  >b\nGT\n>c\nTT\n", strict=False, block=7)
def test_only_user_errors_escape_fasta(write, monkeypatch, content, strict, block):
    path = write("fuzz.fa", content)
    monkeypatch.setattr(formats, "BLOCK", block)
    try:
        source = TextFiles([path], strict=strict)
        read = texts(source)
        assert len(lines(source)) == len(read)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert read and all(read) and not any(" " in text or ">" in text[:1] for text in read)


def test_a_header_after_blanks_damages_the_sequence_it_stands_in(write):
    source = TextFiles([write("some.fa", b">a\nAC\n  >b\nGT\n>c\nTT\n")])
    assert texts(source) == ["TT"]
    assert source.skipped == 1 and "some.fa:3: blanks before >" in source.problems[0]


SEQUENCES = st.lists(st.text("ACGTacgtN-", min_size=1, max_size=30), min_size=1, max_size=12)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(SEQUENCES, st.integers(1, 11))
def test_sequences_written_are_sequences_read(write, sequences, width):
    written = ""
    for i, text in enumerate(sequences):
        parts = [text[at : at + width] for at in range(0, len(text), width)]
        written += f">id{i} note\n" + "\n".join(parts) + "\n"
    read = list(entries(write("a.fa", written), SkippedRecords()))
    assert [entry.text for entry in read] == sequences
    assert [entry.id for entry in read] == [f"id{i}" for i in range(len(sequences))]


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data folder is not here")
def test_real_fasta_files_have_the_known_counts():
    for name, count, length in (
        ("protein/amplify/AMPlify_AMP_test_common.fa", 835, None),
        ("dna/cnnprom/Bacillus_prom.fa.gz", 373, 81),
        ("protein/flip_gb1/splits.zip:splits/one_vs_rest.fasta", 8733, 265),
    ):
        sequences = texts(TextFiles([SHARED / name]))
        assert len(sequences) == count
        assert length is None or {len(text) for text in sequences} == {length}
    genome = texts(TextFiles([SHARED / "dna/ecoli_k12/GCF_000005845.2_ASM584v2_genomic.fna.gz"]))
    assert [len(text) for text in genome] == [4_641_652]
    assert set(genome[0]) == set("ACGT")
