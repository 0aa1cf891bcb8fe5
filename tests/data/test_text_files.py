"""Files as text records and as running text: nothing is lost, damage is named."""

import gzip
import zipfile
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import formats, tables
from regard.data.labelled import ColumnSelection, LabelledFiles
from regard.data.text_files import TextFiles, class_folders
from regard.errors import UsageError, UserError

FILES = {
    "pos/a.txt": "Good.\n\nVery good.\n",
    "pos/49960": "fine\r\nfilm\n",
    "neg/b.txt": "Bad.\n",
    "neg/deep/c.txt": "Dull.\nPoor.\n",
    "neg/.hidden": "no\n",
    "README.txt": "what this is\n",
}
EXPECTED = {
    ("Good.\n\nVery good.", "pos"),
    ("fine\nfilm", "pos"),
    ("Bad.", "neg"),
    ("Dull.\nPoor.", "neg"),
}


@pytest.fixture(params=["folder", "deeper", "zip", "folders"])
def paths(request, tmp_path):
    """The same texts as a folder of folders, one that lies deeper, an archive, and two folders."""
    root = tmp_path / ("set/txt" if request.param == "deeper" else "set")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    if request.param == "zip":
        with zipfile.ZipFile(tmp_path / "set.zip", "w") as packed:
            for name, text in FILES.items():
                packed.writestr(f"reviews/{name}", text)
            packed.writestr("__MACOSX/pos/._a.txt", "x")
        return [tmp_path / "set.zip"]
    return [root / "pos", root / "neg"] if request.param == "folders" else [tmp_path / "set"]


def read(source):
    return [
        (text, cells[0])
        for chunk in source.examples()
        for text, cells in zip(chunk.texts, chunk.targets, strict=True)
    ]


def test_a_file_is_a_record_of_the_class_of_its_folder(paths):
    source = LabelledFiles(paths, ColumnSelection())
    assert source.format == "files"
    records = read(source)
    assert len(records) == 4 and set(records) == EXPECTED
    assert "neg (2 files), pos (2 files)" in source.why and "data.per_line=true" in source.why
    chunk = next(source.examples())
    assert {chunk.place(i).rpartition("/")[2] for i in range(4)} == {
        *("a.txt", "49960", "b.txt", "c.txt")
    }
    again = LabelledFiles(paths, ColumnSelection(), format=source.format)  # as in a stored recipe
    assert set(read(again)) == EXPECTED and again.hashes() == source.hashes()


def test_lines_are_records_with_per_line(paths):
    records = read(LabelledFiles(paths, ColumnSelection(per_line=True)))
    expected = [(line, c) for text, c in EXPECTED for line in text.split("\n") if line]
    assert Counter(records) == Counter(expected)


def test_fasta_in_folders_of_classes_keeps_its_sequences(tmp_path):
    for name, text in (("a/1.fa", ">x\nAC\n>y\nGT\n"), ("b/2.fa", ">z\nTT\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert read(LabelledFiles([tmp_path], ColumnSelection())) == [
        ("AC", "a"),
        ("GT", "a"),
        ("TT", "b"),
    ]


def test_damaged_and_empty_files_are_counted(tmp_path):
    contents = {"a/1.txt": b"good", "a/2.txt": b"", "b/3.txt": b"x\ny\xff\n", "b/4.txt": b"\0" * 9}
    for name, data in (contents | {"b/5.txt": b"fine"}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    source = LabelledFiles([tmp_path], ColumnSelection())
    assert read(source) == [("good", "a"), ("fine", "b")]
    assert (source.blank, source.skipped) == (1, 2)
    assert "3.txt:2: invalid UTF-8, byte 0xff at offset 1" in source.problems[0]
    assert "4.txt: is a binary file" in source.problems[1]
    with pytest.raises(UserError, match=r"3\.txt:2: invalid UTF-8"):
        read(LabelledFiles([tmp_path], ColumnSelection(), strict=True))


def test_other_layouts_are_no_class_folders(tmp_path):
    (tmp_path / "flat").mkdir()
    for name in ("x.txt", "y.txt"):
        (tmp_path / "flat" / name).write_text("x\n")
    assert class_folders([tmp_path / "flat"]) == []
    assert class_folders([tmp_path]) == []  # one folder alone
    assert class_folders([tmp_path / "flat" / "x.txt"]) == []
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "z.txt").write_text("z\n")
    assert len(class_folders([tmp_path])) == 3
    (tmp_path / "outside.txt").write_text("b\n")
    assert class_folders([tmp_path]) == []
    for split in ("train", "test"):
        (tmp_path / "imdb" / split / "pos").mkdir(parents=True)
        (tmp_path / "imdb" / split / "pos" / "1.txt").write_text("x\n")
    with pytest.raises(UsageError, match=r"parts test, train; give \S+/train --test \S+/test$"):
        class_folders([tmp_path / "imdb"])


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def texts(source):
    return [text for chunk in source.records() for text in chunk.texts]


def places(source):
    return [chunk.place(i) for chunk in source.records() for i in range(len(chunk))]


def small_blocks(monkeypatch, block, limit=None):
    monkeypatch.setattr(formats, "BLOCK", block)
    if limit is not None:
        monkeypatch.setattr(formats, "LINE_LIMIT", limit)
        monkeypatch.setattr(tables, "LINE_LIMIT", limit)


def test_lines_lose_their_ends_and_nothing_else(write):
    path = write("a.txt", "\ufeff anna \r\nb\tob\n\n\x0bcarl\u2028x\ry\n\r\nlast")
    source = TextFiles([path], format="lines")
    assert texts(source) == [" anna ", "b\tob", "\x0bcarl\u2028x\ry", "last"]
    assert (source.blank, source.skipped) == (2, 0)
    assert places(source) == [f"{path}:{n}" for n in (1, 2, 4, 6)]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_block_size_changes_nothing(write, monkeypatch, block, zipped):
    raw = "\ufeffäb\r\n\r\nzürich\n\n漢字😀\nend\r".encode()
    path = write("a.txt", gzip.compress(raw, mtime=0) if zipped else raw)
    small_blocks(monkeypatch, block)
    lines = TextFiles([path], format="lines")
    assert texts(lines) == ["äb", "zürich", "漢字😀", "end\r"]
    assert [place.rsplit(":")[-1] for place in places(lines)] == ["1", "3", "5", "6"]
    running = TextFiles([path], format="text")
    pieces = list(running.text())
    assert "".join(pieces) == raw.decode()[1:].replace("\r\n", "\n")
    assert all(pieces)


def test_documents_keep_the_boundary_between_files(write):
    one, two = write("1.txt", "no end"), write("2.txt", "next\n")
    source = TextFiles([one, two], format="text")
    assert ["".join(document.text()) for document in source.documents()] == ["no end", "next\n"]
    assert "".join(source.text()) == "no endnext\n"


def test_records_and_running_text_are_not_interchangeable(write):
    path = write("a.txt", "anna\n")
    with pytest.raises(ValueError, match="no records"):
        next(TextFiles([path], format="text").records())
    with pytest.raises(ValueError, match="no documents"):
        next(TextFiles([path], format="lines").text())


def test_hashes_follow_names_and_bytes_but_not_the_folder(write, tmp_path):
    hashes = [
        TextFiles([write(name, content)]).hashes()[0]
        for name, content in (("x/a.txt", "ab"), ("y/a.txt", "ab"), ("y/b.txt", "ab"))
    ]
    hashes.append(TextFiles([write("y/a.txt", "ac")]).hashes()[0])
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    write("z/deep/a.txt", "ab")
    total, names = TextFiles([tmp_path / "z"]).hashes()
    assert total not in hashes and list(names.values()) == ["deep/a.txt"]


DAMAGED = {
    "lines": ("a.txt", b"anna\n\xffbob\n\ncarl\xc3\n\xc3\xa4\n", [2, 4], ["anna", "ä"]),
    "csv": (
        "a.csv",
        b'text,n\nanna,1\nb\xffob,2\ncarl\n"dora"x,4\n"two\n\xffrows",5\nemil,6\n',
        [3, 4, 5, 7],  # the last row begins on 6; the byte is on 7
        ["anna", "emil"],
    ),
    "jsonl": (
        "a.jsonl",
        b'{"text": "anna"}\n{"text": }\n{"txt": 1}\n{"text": 5}\n\xff\n"\\ud800"\n' + b"[" * 9999,
        [2, 3, 4, 5, 6, 7],
        ["anna"],
    ),
}


@pytest.mark.parametrize("format", DAMAGED)
@pytest.mark.parametrize("block", [5, 1 << 20])
def test_damaged_records_are_skipped_counted_and_named(write, monkeypatch, format, block):
    name, content, lines, expected = DAMAGED[format]
    path = write(name, content)
    source = TextFiles([path], format=format)
    small_blocks(monkeypatch, block)
    assert texts(source) == expected
    assert source.skipped == len(lines)
    assert [p.split(": ")[0] for p in source.problems] == [f"{path}:{n}" for n in lines[:5]]
    assert texts(source) == expected  # a second pass counts afresh
    assert source.skipped == len(lines)
    with pytest.raises(UserError, match=f":{lines[0]}: "):
        texts(TextFiles([path], format=format, strict=True))


def test_invalid_utf8_names_line_offset_and_byte(write, monkeypatch):
    path = write("a.txt", "fine\nzü".encode() + b"\xfe!\n")
    source = TextFiles([path], format="lines")
    assert texts(source) == ["fine"]
    assert source.problems[0].startswith(f"{path}:2: invalid UTF-8, byte 0xfe at offset 3")
    for block in (1, 2, 3, 100):
        small_blocks(monkeypatch, block)
        with pytest.raises(UserError, match=r":2: invalid UTF-8, byte 0xfe at offset 3 of"):
            list(TextFiles([path], format="text").text())


def test_a_character_cut_off_at_the_end_of_running_text_is_an_error(write):
    path = write("a.txt", b"one\ntwo three four \xe6\xbc")
    with pytest.raises(UserError, match=r":2: invalid UTF-8, byte 0xe6 at offset 15"):
        list(TextFiles([path], format="text").text())


def test_nothing_left_is_an_error(write, tmp_path):
    with pytest.raises(UserError, match=r"all 2 records are damaged; first: .*a\.jsonl:1"):
        texts(TextFiles([write("a.jsonl", "{\n}\n")]))
    with pytest.raises(UserError, match="nothing to read"):
        texts(TextFiles([write("b.txt", "\n\r\n")]))
    with pytest.raises(UserError, match="nothing to read"):
        list(TextFiles([write("c.gz", gzip.compress(b"", mtime=0))], format="text").text())
    with pytest.raises(UserError, match="no csv rows"):
        TextFiles([write("d.csv", "\n\n")])


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl"])
def test_an_endless_record_is_refused_before_it_fills_the_memory(write, monkeypatch, name):
    small_blocks(monkeypatch, 16, 100)
    start = {"a.txt": "ok\n", "a.csv": "text\nok\n", "a.jsonl": '"ok"\n'}[name]
    line = start.count("\n") + 1
    path = write(name, gzip.compress(start.encode() + b"x" * 101, mtime=0))
    source = TextFiles([path], format=name[2:].replace("txt", "lines"), column="")
    with pytest.raises(UserError, match=rf":{line}: a record is longer.*data\.format=text"):
        texts(source)
    assert "".join(TextFiles([path], format="text").text()).endswith("x" * 101)


def test_a_line_as_long_as_the_limit_is_still_read(write, monkeypatch):
    small_blocks(monkeypatch, 7, 50)
    assert (
        texts(TextFiles([write("a.txt", "a\n" + "x" * 50 + "\nb\n")], format="lines"))[1]
        == "x" * 50
    )


MARKS = (b'"', b"\n", b"\r", b"\r\n", b"\t", b" ", b"\\", b"\0", b"\xff", b"\xc3", b"\xc3\xa4")

WORDS = (b"a", b"1", b",", b"-", b"{", b"}", b"[", b":", b"\\ud8", b"00", b"text", b'"text":"')

ALPHABET = st.sampled_from((*MARKS, *WORDS, b"\xef\xbb\xbf"))

HOSTILE = st.one_of(st.binary(max_size=200), st.lists(ALPHABET, max_size=40).map(b"".join))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=HOSTILE, zipped=st.booleans(), strict=st.booleans(), block=st.integers(1, 50))
@pytest.mark.parametrize("format", ["auto", "lines", "text", "csv", "tsv", "jsonl"])
def test_only_user_errors_escape(write, monkeypatch, format, content, zipped, strict, block):
    path = write("fuzz", gzip.compress(content, mtime=0) if zipped else content)
    small_blocks(monkeypatch, block)
    try:
        source = TextFiles([path], format=format, strict=strict)
        if source.format == "text":
            read = list(source.text())
        else:
            read = texts(source)
            assert len(places(source)) == len(read)
            assert len(source.problems) == min(source.skipped, 5)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert read and all(read)
        assert "".join(read).encode()  # every text can be written again


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.text(
            st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\n\r"), max_size=9
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 40),
)
def test_lines_written_are_lines_read(write, monkeypatch, lines, block):
    path = write("a.txt", "ok\n" + "\n".join(lines))
    small_blocks(monkeypatch, block)
    try:
        assert texts(TextFiles([path], format="lines")) == ["ok", *filter(None, lines)]
    except UserError as error:
        assert "binary" in str(error)  # almost nothing but control characters
