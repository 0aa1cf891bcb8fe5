import gzip
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import formats, tables
from regard.data.formats import guess
from regard.data.readers import Chunk, Record, TextFiles
from regard.errors import UsageError, UserError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


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


def test_a_chunk_is_a_sequence_of_records():
    chunk = Chunk(Path("names.txt"), ["anna", "bob"], range(48213, 48215))
    assert list(chunk) == [Record("anna", "names.txt:48213"), Record("bob", "names.txt:48214")]
    assert len(chunk) == 2


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


def test_gzip_goes_by_its_magic_bytes_and_a_name_that_promises_it_must_keep_it(write):
    plain = write("plain.txt.gz", "anna\nbob\n")
    zipped = write(
        "zipped.txt", gzip.compress(b"anna\nbob\n", mtime=0) + gzip.compress(b"carl\n", mtime=0)
    )
    with pytest.raises(UserError, match=r"plain\.txt\.gz: is no gzip data, for all its name"):
        texts(TextFiles([plain], format="lines"))
    assert texts(TextFiles([zipped])) == ["anna", "bob", "carl"]


def test_a_folder_gives_its_text_files_sorted_without_hidden_ones(write, tmp_path):
    for name in ("b.txt", "a/z.txt", ".hidden.txt", ".git/x.txt", "picture.png"):
        write(name, f"{name}\n")
    source = TextFiles([tmp_path])
    assert texts(source) == ["a/z.txt", "b.txt"]
    assert source.size == sum(path.stat().st_size for path in source.files)


def test_documents_keep_the_boundary_between_files(write):
    one, two = write("1.txt", "no end"), write("2.txt", "next\n")
    source = TextFiles([one, two], format="text")
    assert ["".join(document.text()) for document in source.documents()] == ["no end", "next\n"]
    assert next(source.documents()).place(3) == f"{one}@3"
    assert "".join(source.text()) == "no endnext\n"


def test_records_and_running_text_do_not_stand_in_for_each_other(write):
    path = write("a.txt", "anna\n")
    with pytest.raises(ValueError, match="no records"):
        next(TextFiles([path], format="text").records())
    with pytest.raises(ValueError, match="no documents"):
        next(TextFiles([path], format="lines").text())


def test_the_fingerprint_follows_names_and_bytes_but_not_the_place(write, tmp_path):
    prints = [
        TextFiles([write(name, content)]).fingerprint()
        for name, content in (("x/a.txt", "ab"), ("y/a.txt", "ab"), ("y/b.txt", "ab"))
    ]
    prints.append(TextFiles([write("y/a.txt", "ac")]).fingerprint())
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    write("z/deep/a.txt", "ab")
    assert TextFiles([tmp_path / "z"]).fingerprint() not in prints


# What a plain file holds


def prose(width, seed=0):
    rng = random.Random(seed)
    words = ["the", "harbour", "was", "quiet", "again", "and", "nobody", "Captain", "spoke", "of"]
    lines, line = [], "It"
    for word in rng.choices(words, k=600):
        if len(line) + 1 + len(word) > width:
            lines, line = [*lines, line], word
        else:
            line += " " + word
    return "\n".join([*lines, line])


def sentences(seed=0):
    rng = random.Random(seed)
    words = ["a", "dog", "runs", "over", "the", "green", "grass", "while", "two", "men", "look"]
    return "\n".join(" ".join(rng.choices(words, k=rng.randint(3, 25))) + " ." for _ in range(300))


@pytest.mark.parametrize(
    ("text", "format", "reason"),
    [
        ("anna\nbob\ncarl\n", "lines", "3 short lines, no blank ones"),
        ("anna\nbob\n\ncarl\ndora\n", "lines", "1 blank"),
        ("\n".join(["ACGT" * 20] * 9), "lines", "9 short lines"),
        (sentences(), "lines", "300 short lines"),
        (sentences().upper(), "lines", "300 short lines"),
        ("All:\nSpeak, speak.\n\nFirst:\nYou are all resolved?\n\nAll:\nYes.\n", "text", "2 of 8"),
        (" = Title = \n \n Words . \n \n More words . \n", "text", "2 of 5"),
        (prose(60), "text", "broken at about"),
        (prose(72).replace("quiet", "quiet\n\n", 3), "text", "blank"),
        ("word " * 40_000, "text", "200,000 characters"),
        ("ACGT" * 40_000, "text", "160,000 characters"),
        ("\n".join([" ".join(["paragraph"] * 150)] * 5), "text", "1,499 characters"),
        ("a single short line", "lines", "one line"),
        ("漢字漢字\n\n漢字漢字漢字\n\n漢字", "text", "2 of 5"),
    ],
)
def test_records_are_told_from_running_text(text, format, reason):
    found, why = guess(text)
    assert found == format
    assert reason in why


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data folder is not here")
@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("names/names.txt", "lines"),
        ("tinyshakespeare/input.txt", "text"),
        ("multi30k/train.en.gz", "lines"),
        ("wikitext2/train.txt.gz", "text"),
        ("compression_corpus/bible.txt.gz", "lines"),  # one verse a line
        ("compression_corpus/world192.txt.gz", "text"),
        ("moleculenet/bace.csv", "csv"),
        ("moleculenet/hiv.csv.gz", "csv"),
        ("textclass/sst2/stsa.binary.train", "lines"),
    ],
)
def test_real_files_are_read_as_what_they_are(name, format):
    assert TextFiles([SHARED / name]).format == format


def test_only_the_beginning_of_a_large_file_is_looked_at(write, monkeypatch):
    monkeypatch.setattr(formats, "HEAD", 40)
    source = TextFiles([write("a.txt", "anna\nbob\n" * 9 + "x\n\ny z\n\n" * 90)])
    assert source.format == "lines"
    assert "in the first" in source.why


def test_mixed_formats_are_refused_by_name(write, tmp_path):
    write("a.csv", "name,x\nanna,1\n")
    write("b.jsonl.gz", '{"name": "bob"}\n')
    with pytest.raises(UsageError, match=r"a\.csv is csv.*b\.jsonl\.gz is jsonl"):
        TextFiles([tmp_path])


# Damage

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
def test_damaged_records_are_left_out_counted_and_named(write, monkeypatch, format, block):
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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.txt", b"", r"e\.txt: is empty"),
        ("n.txt", b"text\0more", "binary file .*offset 4"),
        ("r.txt", bytes(range(128, 256)) * 9, "not UTF-8 text"),
        ("u.txt", "anna".encode("utf-16"), "UTF-16"),
        ("z.txt", b"PK\x03\x04rest", "zip archive"),
        ("t.gz", gzip.compress(b"anna\nbob\n" * 999, mtime=0)[:-12], "truncated"),
        ("c.gz", gzip.compress(b"anna\nbob\n", mtime=0)[:-8] + b"\1" * 8, "corrupt"),
        ("g.gz", gzip.compress(b"anna\n", mtime=0) + b"rubbish", "corrupt"),
        ("q.csv", b'text,n\na,1\n"b,2\nc,3\n', r"q\.csv:3: a quote opens and never closes"),
    ],
)
def test_unreadable_files_are_refused_in_one_line(write, name, content, message):
    path = write(name, content)
    for format in ("auto", "lines", "text") if name != "q.csv" else ("csv",):
        with pytest.raises(UserError, match=message) as caught:
            source = TextFiles([path], format=format)
            list(source.text() if source.format == "text" else source.records())
        assert "\n" not in str(caught.value)


def test_paths_that_lead_nowhere_are_explained(write, tmp_path, monkeypatch):
    path = write("names.txt", "anna\n")
    with pytest.raises(UserError, match=r"nmes\.txt: no such file.*did you mean 'names\.txt'"):
        TextFiles([tmp_path / "nmes.txt"])
    with pytest.raises(UserError, match=r"no such file or folder$"):
        TextFiles([tmp_path / "qqq" / "x.txt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no text files"):
        TextFiles([tmp_path / "empty"])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="not a regular file"):
        TextFiles([tmp_path / "pipe"])
    with pytest.raises(UserError, match="cannot be read"):
        TextFiles([tmp_path / ("x" * 300)])
    with pytest.raises(UsageError, match="no file given"):
        TextFiles([])
    with pytest.raises(UsageError, match="did you mean 'lines'"):
        TextFiles([path], format="line")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    source = TextFiles([path], format="lines")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UserError, match=r"names\.txt: cannot be read: permission denied"):
        texts(source)


def test_json_that_python_cannot_convert_is_a_damaged_record(write):
    lines = ['{"text": "ok"}', '{"text": ' + "9" * 10_000 + "}", "[" * 3000, '{"text": "\\ud800"}']
    source = TextFiles([write("a.jsonl", "\n".join(lines) + "\n")])
    assert texts(source) == ["ok"] and source.skipped == 3
    assert ":2: not JSON that can be read: a number has thousands of digits" in source.problems[0]


def test_a_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / os.fsdecode(b"a\xff.txt")
    path.write_text("ok\n")
    with pytest.raises(UserError, match="the name of the file is not UTF-8; rename the file"):
        TextFiles([path])


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


# Any bytes at all

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
            found = list(source.text())
        else:
            found = texts(source)
            assert len(places(source)) == len(found)
            assert len(source.problems) == min(source.skipped, 5)
    except UserError as error:
        assert "\n" not in str(error)
    else:
        assert found and all(found)
        assert "".join(found).encode()  # every text can be written again


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 200), flip=st.integers(0, 255), place=st.integers(0, 200))
def test_damaged_gzip_gives_user_errors_or_the_truth(write, cut, flip, place):
    whole = b"anna\nbob\ncarl\n" * 40
    raw = bytearray(gzip.compress(whole, mtime=0))
    raw[2 + place % (len(raw) - 2)] ^= flip  # the two magic bytes stay: without, it is no gzip
    path = write("fuzz.gz", bytes(raw[: len(raw) - cut % (len(raw) - 1)]))
    try:
        source = TextFiles([path], format="text")
        assert "".join(source.text()).encode() == whole
    except UserError as error:
        assert "fuzz.gz" in str(error)


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


@pytest.mark.parametrize("encoding", ["utf99999999999", "utf\0", "no such thing"])
def test_an_encoding_that_nobody_knows_is_named(tmp_path, encoding):
    from regard.data.formats import blocks
    from regard.errors import UsageError

    (tmp_path / "t.txt").write_text("abc\n")
    with pytest.raises(UsageError, match=r"unknown encoding '.*'; choose one such as utf-8"):
        list(blocks(tmp_path / "t.txt", encoding))
