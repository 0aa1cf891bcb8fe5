"""Records that a run is applied to: formats, columns, ids, damage, standard input, and notes."""

import gzip
import io
import os
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.inputs import (
    InputReader,
    Item,
    RecordNotes,
    TokenLimit,
    id_column,
    lines_of_file,
    lines_of_stream,
    opening_of,
)
from regard.errors import UsageError, UserError
from regard.evaluation.eval_data import shard_of
from regard.registry import MODALITIES, TOKENIZERS

TEXT = MODALITIES["text"]()
CHARACTERS = TOKENIZERS["characters"].train(["abcdefghijklmnopqrstuvwxyz ,ACGT"])


class Slow(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data, size):
        self.data, self.size, self.at = data, size, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        part = self.data[self.at : self.at + min(self.size, len(buffer))]
        buffer[: len(part)] = part
        self.at += len(part)
        return len(part)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8"))), st.data())
def test_lines_come_whole_however_they_arrive(lines, data):
    ended = data.draw(st.booleans())
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    for end in (b"\n", b"\r\n"):
        stream = Slow(text.encode().replace(b"\n", end), data.draw(st.integers(1, 9)))
        read = io.BufferedReader(stream)
        found = list(lines_of_stream(read, opening_of(read)))
        assert [line for texts, _ in found for line in texts] == [
            line.removeprefix("\ufeff") if i == 0 else line for i, line in enumerate(expected)
        ]
        assert all(texts for texts, _ in found)


def test_a_pipe_is_not_waited_for_while_a_line_of_it_is_there():
    ends = os.pipe()
    with os.fdopen(ends[0], "rb") as read, os.fdopen(ends[1], "wb", buffering=0) as write:
        write.write(b"abc\n\nhg")
        found = lines_of_stream(read, opening_of(read))
        assert next(found)[0] == ["abc", ""]
        write.write(b" fe\n")
        assert next(found)[0] == ["hg fe"]


def test_the_lines_of_a_file_are_all_there_a_few_at_first(tmp_path):
    path, lines = tmp_path / "lines.txt", [f"{i}" * (i % 5) for i in range(10_000)]
    path.write_text("\n".join(lines) + "\n")
    chunks = list(lines_of_file(path))
    assert [line for texts, _ in chunks for line in texts] == lines
    sizes = [len(texts) for texts, _ in chunks]
    assert sizes[0] == 64 and max(sizes) <= 4096
    path.write_bytes(b"good\n\xff\xfe bad\nfine\n")
    ((texts, bad),) = lines_of_file(path)
    assert (texts[0], texts[2], list(bad)) == ("good", "fine", [1])
    assert "lines.txt:2: invalid UTF-8, byte 0xff" in bad[1]


def items(reading, path):
    """All items of a file, and what was said of it."""
    said = []
    found = [item for some in reading.records(path, TEXT, CHARACTERS, said.append) for item in some]
    return found, said


TABLE = InputReader(format="csv", inputs=("seq",), strip=True)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.fa", ">s1 first\nAC\nGT\n\n>s2\n;c\nTT\n", [("s1", "ACGT"), ("s2", "TT")]),
        ("a.csv", "id,note,seq\n7,x,AC\n8,y,\n", [("7", "AC"), ("8", "")]),
        ("a.csv", "seq;Compound ID\n AC ;x y\n", [("x y", "AC")]),
        ("a.tsv", "n\tseq\n1\tAC\n2\tGT\n", [("2", "AC"), ("3", "GT")]),
        ("a.jsonl", '{"seq": "AC", "id": 3}\n\n{"seq": "GT"}\n', [("3", "AC"), ("3", "GT")]),
        ("a.smi", "CCO ethanol\nCC\n", [("ethanol", "CCO"), ("2", "CC")]),
        ("a.txt", "AC\n\n GT \n", [("1", "AC"), ("2", ""), ("3", "GT")]),
        ("a.txt", ">s1\nAC\n>s2\nGT\n", [("s1", "AC"), ("s2", "GT")]),
        ("a.txt", "id,seq\nq,AC\n", [("q", "AC")]),
        ("a.txt", '{"seq": "AC", "id": "j"}\n', [("j", "AC")]),
        ("a.txt", "other,words\nq,AC\n", [("1", "other,words"), ("2", "q,AC")]),
    ],
)
@pytest.mark.parametrize("way", ["file", "gzip", "pipe", "gzip in a pipe"])
def test_a_file_is_read_in_its_format_with_its_ids(
    tmp_path, monkeypatch, name, text, expected, way
):
    data = text.encode()
    if "pipe" in way and name.endswith(("smi", "tsv")):
        pytest.skip("a pipe has no name, and these files tell nothing")
    if way.startswith("gzip"):
        data, name = gzip.compress(data), name + ".gz"
    path = tmp_path / name
    path.write_bytes(data)
    if "pipe" in way:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        path = None
    found, _ = items(TABLE, path)
    assert [(item.id, item.text) for item in found] == expected
    assert not any(item.note for item in found)


def test_damaged_records_stay_in_their_places(tmp_path):
    """What is wrong with each stands in its note, and the others are not moved by it."""
    good = {".csv": "m{},AC\n", ".jsonl": '{{"id": "m{}", "seq": "AC"}}\n', ".fa": ">m{}\nAC\n"}
    bad = {".csv": "x\n", ".jsonl": "{bad\n", ".fa": ">empty\n"}
    words = {".csv": "1 fields, expected 2", ".jsonl": "not JSON", ".fa": "has no sequence"}
    for ending in good:
        rows = ["id,seq\n"] if ending == ".csv" else []
        rows += [bad[ending] if i % 3 == 1 else good[ending].format(i) for i in range(300)]
        path = tmp_path / f"a{ending}"
        path.write_text("".join(rows))
        found, _ = items(TABLE, path)
        assert [item.id for item in found if not item.note] == [
            f"m{i}" for i in range(300) if i % 3 != 1
        ]
        assert [i for i, item in enumerate(found) if item.note] == list(range(1, 300, 3))
        assert all(words[ending] in item.note and item.text == "" for item in found[1::3])


def test_a_table_without_the_columns_of_the_run_lists_its_own(tmp_path):
    (tmp_path / "a.csv").write_text("id,SEQ,note\n1,AC,x\n")
    (tmp_path / "a.jsonl").write_text('{"id": 1, "SEQ": "AC"}\n')
    for name, listed in (("a.csv", "id, SEQ, note"), ("a.jsonl", "id, SEQ")):
        with pytest.raises(UsageError) as error:
            items(TABLE, tmp_path / name)
        assert "'seq' (the run was trained on it; --input names another)" in str(error.value)
        assert f"it has {listed}" in str(error.value)
        found, said = items(TABLE.asked(input="SEQ"), tmp_path / name)
        assert [(item.id, item.text) for item in found] == [("1", "AC")]
        assert "'SEQ'" in said[0]


def test_two_texts_are_read_where_the_run_read_two(tmp_path):
    two = InputReader(format="csv", inputs=("one", "two"), strip=True)
    (tmp_path / "a.csv").write_text("two,one,id\nB,A,x\n,A,y\n")
    found, _ = items(two, tmp_path / "a.csv")
    assert (found[0].text, found[0].second, found[0].id) == ("A", "B", "x")
    assert found[1].id == "y" and found[1].note == "one of the two texts is empty"
    (tmp_path / "a.txt").write_text("A\n")
    with pytest.raises(UsageError, match="two are needed, the columns 'one' and 'two'"):
        items(two, tmp_path / "a.txt")


def test_lines_that_begin_with_labels_of_the_run_lose_them(tmp_path):
    told = {
        "format": "labelled",
        "targets": {"classes": [["good", "bad"]]},
        "fingerprints": {"train": ""},
        "reading": {key: () for key in ("inputs", "targets", "classes")}
        | {"labels": "", "pattern": "", "encoding": "utf-8", "strip": True, "files": {}},
    }
    path = tmp_path / "a.txt"
    for text, expected in (
        ("good a film\nbad b film\n", ["a film", "b film"]),
        ("good a film\nso bad a film\n", ["good a film", "so bad a film"]),
    ):
        path.write_text(text)
        found, _ = items(InputReader.stored(told), path)
        assert [item.text for item in found] == expected


def test_blanks_around_texts_are_kept_where_training_kept_them(tmp_path):
    (tmp_path / "a.txt").write_text(" a \n")
    (tmp_path / "a.csv").write_text("seq,n\n a ,1\n")
    for name in ("a.txt", "a.csv"):
        for strip, expected in ((True, "a"), (False, " a ")):
            reading = InputReader(inputs=("seq",), strip=strip)
            assert [item.text for item in items(reading, tmp_path / name)[0]] == [expected]


def test_a_file_of_which_nothing_can_be_read_is_an_error(tmp_path):
    (tmp_path / "a.csv").write_text("id,seq\nx\ny\n")
    with pytest.raises(UserError, match=r"none of the 2 records can be read.*1 fields, expected 2"):
        items(TABLE, tmp_path / "a.csv")


def test_errors_in_what_is_piped_name_standard_input(monkeypatch):
    piped = io.TextIOWrapper(io.BytesIO(b"seq,seq2\nA,B\n"))
    monkeypatch.setattr(sys, "stdin", piped)
    with pytest.raises(UsageError, match=r"^standard input: has no column 'other'"):
        items(TABLE.asked(input="other", format="csv"), None)


@pytest.mark.parametrize(
    ("names", "taken", "expected"),
    [
        (["id", "seq"], ["seq"], ["id"]),
        (["seq", "Compound ID", "ID"], ["seq"], ["ID"]),
        (["seq", "gene_id"], ["seq"], ["gene_id"]),
        (["valid", "solid", "seq"], ["seq"], []),
        (["id", "seq"], ["id"], []),
        (["id", "id", "seq"], ["seq"], []),
    ],
)
def test_the_column_of_ids(names, taken, expected):
    assert id_column(names, taken) == expected


def test_folders_of_texts_are_read_a_file_a_record_where_training_did(tmp_path, monkeypatch):
    for name, data in (("pos/a.txt", b"good\nfilm\n"), ("neg/b", b"bad"), ("neg/c", b"\xff\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    files = InputReader(format="files", strip=True)
    found, said = items(files, tmp_path)
    assert [(item.id.removeprefix(f"{tmp_path}/"), item.text) for item in found] == [
        ("neg/b", "bad"), ("neg/c", ""), ("pos/a.txt", "good\nfilm"),
    ]  # fmt: skip
    assert "not UTF-8" in found[1].note and len(said) == 1
    (one,), _ = items(files, tmp_path / "pos/a.txt")
    assert one.text == "good\nfilm"
    lines, _ = items(files.asked(format="lines"), tmp_path / "pos/a.txt")
    assert [item.text for item in lines] == ["good", "film"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\nfilm\n")))
    (piped,), _ = items(files, None)
    assert piped.text == "good\nfilm" and piped.id == "standard input"


BASES = TOKENIZERS["nucleotides"].train(["ACGT"])


def test_each_record_has_its_own_note():
    notes = RecordNotes(BASES, TokenLimit(4, 4))
    records = [
        Item("ACGT", "a"),
        Item("MKVE*", "b"),
        Item("  ", "c"),
        Item("ACGTA", "d"),
        Item("", "e", note="2 fields, expected 3"),
    ]
    assert notes.of(records) == [
        "",
        "2 of 5 symbols unknown: 'E', '*'; truncated: 5 tokens, the model reads the first 4",
        "empty",
        "truncated: 5 tokens, the model reads the first 4",
        "2 fields, expected 3",
    ]
    assert notes.of([Item("TTTTTTTT", "f")])[0].startswith("truncated: 8 tokens")
    lines = notes.lines()
    assert (notes.records, notes.noted) == (6, 5) and len(lines) == 4
    assert "1 of 6 records has unknown symbols; first: b (2 of 5 symbols unknown" in lines[0]
    assert lines[1].startswith("3 of 6 records are longer than the model's context; first: b (")
    with pytest.raises(UserError, match=r"5 of 6 records have notes \(--strict\)"):
        notes.refuse()


def test_nothing_to_say_is_nothing_refused():
    notes = RecordNotes(BASES)
    assert notes.of([Item("ACGT" * 1000, "a")]) == [""] and notes.lines() == []
    notes.refuse()


def test_two_texts_are_as_long_as_both():
    """Read as `<S> a b <E> c d <E>`, of which max_len = 7 holds two and two."""
    notes = RecordNotes(BASES, TokenLimit(5, 5))
    assert notes.of([Item("AC", "a", "GT")]) == [""]
    assert notes.of([Item("AC", "a", "GTT")]) == [
        "truncated: 6 tokens, the model reads the first 5"
    ]


def test_a_shard_is_counted_as_its_records_are():
    texts = ["ACGT", "AXXT", "ACGTACGT", "XXXXXX"]
    ours, shard = RecordNotes(BASES, TokenLimit(4, 4)), RecordNotes(BASES, TokenLimit(4, 4))
    ours.of([Item(text, str(i)) for i, text in enumerate(texts)])
    shard.of_shard(shard_of(texts, BASES))
    assert (ours.counts, ours.noted) == (shard.counts, shard.noted)
    assert ours.counts == {"unknown": 2, "long": 2}


def test_molecules_that_are_none_are_noted_where_rdkit_is():
    pytest.importorskip("rdkit")
    notes = RecordNotes(TOKENIZERS["smiles"].train(["CCO", "c1ccccc1"]))
    found = notes.of([Item("CCO", "a"), Item("C1CC", "b"), Item("CC>>CO", "c")])
    assert found == ["", "RDKit cannot parse this SMILES", ""]
