"""Columns of CSV, TSV, JSON Lines and lines cut at a blank."""

import csv
import json
import zipfile

import pytest

from regard.data import formats, tables
from regard.data.tables import Csv, Parquet
from regard.data.text_files import TextFiles
from regard.errors import UsageError, UserError


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8", newline="")
        return path

    return write


def texts(source):
    return [text for chunk in source.records() for text in chunk.texts]


def places(source):
    return [chunk.place(i) for chunk in source.records() for i in range(len(chunk))]


def test_csv_cells_may_hold_delimiters_quotes_and_newlines(write, tmp_path):
    rows = [["plain", "1"], ['a "b", c', "2"], ["two\nlines", "3"], ["", "4"], ["ünï", "5"]]
    path = tmp_path / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:  # the csv module's own writer
        csv.writer(file).writerows([["Text", "n"], *rows])
    source = TextFiles([path])
    assert texts(source) == [row[0] for row in rows if row[0]]
    assert [place.rsplit(":")[-1] for place in places(source)] == ["2", "3", "4", "7"]
    assert source.blank == 1
    assert texts(TextFiles([path], column="n")) == list("12345")
    assert texts(TextFiles([path], column="2")) == list("12345")


@pytest.mark.parametrize(
    ("content", "column", "expected"),
    [
        ("mol,label\nCCO,0\nCCN,1\n", "", ["CCO", "CCN"]),  # one column of text
        ("id,smiles,note\na,CCO,x\nb,CCN,y\n", "", ["CCO", "CCN"]),  # a usual name
        ("anna\nbob\n", "", ["anna", "bob"]),  # no header
        ("anna,3\nbob,4\n", "1", ["anna", "bob"]),
        ("who,3\nbob,4\n", "who", ["bob"]),  # a name makes the first row a header
        ("w;n\nanna, b;3\nbob;4\n", "", ["anna, b", "bob"]),
        ("kind,word\n" + "x,p\ny,q\nx,r\ny,s\n", "2", ["p", "q", "r", "s"]),
        ("text\nwell, so\nyes\n", "", ["yes"]),  # a named column is no title
        ("1,name\n5,anna\n", "1", ["5"]),  # a header named 1 is a name first
    ],
)
def test_the_column_is_chosen_or_given(write, content, column, expected):
    assert texts(TextFiles([write("t.csv", content)], column=column)) == expected


def test_a_tsv_with_quotes_as_characters_keeps_them(write):
    loose = write("loose.tsv", 'text\tn\n"Stop\t1\n5" pipe\t2\n"so" she said\t3\n')
    assert texts(TextFiles([loose])) == ['"Stop', '5" pipe', '"so" she said']
    quoted = write("quoted.tsv", 'text\tn\n"a\tb"\t1\n"c\nd"\t2\n')
    assert texts(TextFiles([quoted])) == ["a\tb", "c\nd"]


def test_title_lines_before_a_table_are_no_rows(write):
    path = write("t.tsv", "# A collection\nword\tscore\nlove\t1\nhate\t2\n")
    source = TextFiles([path])
    assert texts(source) == ["love", "hate"]
    assert source.problems == [f"{path}:1: a title or comment, not a row of the table"]


def test_an_unclear_column_lists_the_choices(write):
    path = write("t.csv", "first,last,age\nanna,b,3\n")
    with pytest.raises(UsageError, match=r"--input COLUMN.*first, last, age"):
        TextFiles([path])
    with pytest.raises(UsageError, match="did you mean 'first'"):
        TextFiles([path], column="frist")
    with pytest.raises(UsageError, match="it has 3 columns"):
        TextFiles([path], column="4")
    with pytest.raises(UsageError, match="names a column, but"):
        TextFiles([write("a.txt", "anna\n")], column="first")


def test_every_file_of_a_table_must_have_the_column(write):
    one, two = write("1.csv", "n,text\n1,a\n"), write("2.csv", "text,n\nb,2\n")
    assert texts(TextFiles([one, two])) == ["a", "b"]
    three = write("3.csv", "words,n\nc,2\n")
    with pytest.raises(UserError, match=r"3\.csv: has no column 'text'; it has words, n"):
        texts(TextFiles([one, three]))


def test_json_lines_hold_objects_or_strings(write):
    values = [{"text": "ünï\n", "n": 1}, "bare", {"n": 2, "text": "😀"}, {"text": ""}]
    path = write("t.jsonl", "".join(json.dumps(value) + "\n" for value in values) + "\n")
    source = TextFiles([path])
    assert texts(source) == ["ünï\n", "bare", "😀"]
    assert source.blank == 2
    assert texts(TextFiles([write("o.ndjson", '{"w": "x", "n": 1}\n')])) == ["x"]
    other = write("u.jsonl", '{"a": "x", "b": "y"}\n')
    assert texts(TextFiles([other], column="b")) == ["y"]
    with pytest.raises(UsageError, match=r"--input KEY.*a, b"):
        TextFiles([other])


def test_fields_longer_than_the_csv_module_allows_are_read_and_its_limit_stays(write):
    before = csv.field_size_limit()
    long = "ACGT" * 50_000
    source = TextFiles([write("t.csv", f"sequence,n\n{long},1\n")])
    assert texts(source) == [long]
    assert csv.field_size_limit() == before


def test_a_row_of_endlessly_many_quoted_lines_is_refused_too(write, monkeypatch):
    path = write("a.csv", 'text,n\nok,1\n"' + "short\n" * 30)
    for module in (formats, tables):
        monkeypatch.setattr(module, "LINE_LIMIT", 100)
    with pytest.raises(UserError, match=r"a\.csv:3: a record is longer"):
        texts(TextFiles([path]))


def test_json_that_python_cannot_convert_is_a_damaged_record(write):
    lines = ['{"text": "ok"}', '{"text": ' + "9" * 10_000 + "}", "[" * 3000, '{"text": "\\ud800"}']
    source = TextFiles([write("a.jsonl", "\n".join(lines) + "\n")])
    assert texts(source) == ["ok"] and source.skipped == 3
    assert ":2: not JSON that can be read: a number has thousands of digits" in source.problems[0]


def test_molecules_end_at_the_first_blank(write):
    source = TextFiles([write("m.smi", "CCO ethanol\n\nc1ccccc1\tbenzene ring\nC\n")])
    assert source.format == "smi"
    assert texts(source) == ["CCO", "c1ccccc1", "C"]
    assert source.blank == 1
    labelled = TextFiles([write("m.txt", "pos good film\nneg bad\n")], format="labelled")
    assert texts(labelled) == ["good film", "bad"]


def test_the_first_row_is_a_header_if_the_cells_below_differ_in_form(write):
    path = write("t.csv", "en,de\n" + "a cat,eine Katze\nthe dog,der Hund\n" * 3)
    assert list(Csv.sample(path, rows=9)) == ["en", "de"]
    path = write("u.csv", "mol,ic50\n" + "CCO,3 nM\nCCN,5 uM\nCCC,7 nM\n" * 2)
    assert Csv.sample(path, rows=2) == {"mol": ["CCO", "CCO"], "ic50": ["3 nM"] * 2}
    path = write("v.csv", "1,a cat\n0,the dog\n1,the cat\n0,a dog\n")
    assert list(Csv.sample(path, rows=9)) == ["1", "2"]
    assert Csv.layout(path, ["2", "1"]).header is False  # the class 1 is no name


def test_conversations_are_refused_with_what_to_give(write):
    path = write("c.jsonl", '{"topic": "x", "messages": [{"role": "user", "content": "hi"}]}\n')
    with pytest.raises(UsageError, match=r"conversations under 'messages' \(beside topic\).*role"):
        TextFiles([path])


def test_parquet_is_a_table_like_others(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    columns = {"text": ["a b", "c d", None], "y": [1, 2, 3], "deep": [[1], [], []]}
    parquet.write_table(pyarrow.table(columns), path)
    assert Parquet.columns(path) == ["text", "y"]
    assert Parquet.sample(path, rows=2) == {"text": ["a b", ""], "y": ["1", "3"]}
    assert texts(TextFiles([path])) == ["a b", "c d"]
    with pytest.raises(UsageError, match=r"no column 'z' \(--target\); it has text, y"):
        Parquet.layout(path, ["text", "z"])


def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path):
    path = tmp_path / "t.xlsx"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(UserError, match="is a spreadsheet; save it as CSV"):
        TextFiles([path])
