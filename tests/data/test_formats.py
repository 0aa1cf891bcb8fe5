"""From paths to lines: which files are read, how they are decoded, what a plain file holds."""

import gzip
import os
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import formats
from regard.data.formats import Archives, guess, list_members, read_blocks, read_unpacked
from regard.data.text_files import TextFiles
from regard.errors import UsageError, UserError

TEXT = b"anna\nbob\n" * 400


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/names.txt", TEXT)
        file.writestr("a/.hidden", "x")
    return path


def texts(source):
    return [text for chunk in source.records() for text in chunk.texts]


def inside(archive):
    return Path(f"{archive}:a/names.txt")


def test_a_member_is_a_file_like_any_other(archive):
    path = inside(archive)
    with Archives().open(path) as file:
        assert file.read(4) == b"anna" and file.seek(0) == 0 and file.read() == TEXT
    assert Archives().size(path) == len(TEXT) and list_members(archive) == ["a/names.txt"]
    assert sum(len(chunk.texts) for chunk in TextFiles([path]).records()) == 800


def test_every_damaged_byte_is_an_error_or_no_matter(archive):
    path, whole = inside(archive), archive.read_bytes()
    for place in range(len(whole)):
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            with Archives().open(path) as file:
                file.read()
        except UserError as error:
            assert str(error).startswith(f"{archive}: ")
    for length in range(0, len(whole), 7):
        archive.write_bytes(whole[:length])
        with pytest.raises(UserError, match="cannot be unpacked"):
            Archives().open(path)


def test_what_unpacks_to_far_more_than_it_takes_is_refused_before_it_is_read(archive, monkeypatch):
    monkeypatch.setattr(formats, "FREE_BYTES", 1000)
    monkeypatch.setattr(formats, "MAX_RATIO", 5)
    with pytest.raises(UserError, match=r"would unpack to 0 MB, more than .* times its size"):
        Archives().open(inside(archive))
    gz = archive.with_name("x.gz")
    gz.write_bytes(gzip.compress(TEXT))
    with pytest.raises(UserError, match="unpacks to more than"):
        read_unpacked(gz, 1 << 30)
    assert read_unpacked(gz, 9) == TEXT[:9]


def test_a_member_that_says_to_be_huge_is_refused(archive):
    raw = bytearray(archive.read_bytes())
    at = raw.rindex(b"PK\x01\x02", 0, raw.index(b"PK\x01\x02") + 4) + 24  # its unpacked size
    raw[at : at + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    archive.write_bytes(raw)
    with pytest.raises(UserError, match=r"would unpack to 4,095 MB, more than 1,024 MB"):
        Archives().open(inside(archive))


@pytest.fixture
def mixed_archive(tmp_path):
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("deep/a.fasta", ">x\nACGT\n>y\nGG\n")
        packed.writestr("deep/b.csv.gz", gzip.compress(b"text,n\nanna,1\n", mtime=0))
        packed.writestr("empty.txt", "")
        packed.writestr(".hidden", "no")
    return path


def test_members_of_any_format_are_read(mixed_archive):
    source = TextFiles([Path(f"{mixed_archive}:deep/a.fasta")])
    assert texts(source) == ["ACGT", "GG"]
    assert source.size == len(">x\nACGT\n>y\nGG\n")
    assert [chunk.place(1) for chunk in source.records()] == [f"{mixed_archive}:deep/a.fasta:3"]
    other = TextFiles([Path(f"{mixed_archive}:deep/b.csv.gz")])
    assert texts(other) == ["anna"]
    assert source.hashes() != other.hashes()


def test_what_an_archive_does_not_hold_is_explained(mixed_archive, tmp_path):
    for path, message in (
        (f"{mixed_archive}:deep/a.fast", r"holds no 'deep/a\.fast'; did you mean 'deep/a\.fasta'"),
        (f"{mixed_archive}:q", r"it holds deep/a\.fasta, deep/b\.csv\.gz, empty\.txt$"),
        (
            f"{mixed_archive}",
            r"is a zip archive; name a file in it, as all\.zip:MEMBER; it holds deep/a",
        ),
        (f"{mixed_archive}:empty.txt", "is empty"),
        (f"{tmp_path}/alls.zip:x", r"alls\.zip: no such file or folder; did you mean 'all\.zip'"),
    ):
        with pytest.raises(UserError, match=message):
            texts(TextFiles([Path(path)]))
    raw = bytearray(mixed_archive.read_bytes())
    raw[45] ^= 255
    (tmp_path / "bad.zip").write_bytes(raw)
    with pytest.raises(UserError, match=r"bad\.zip"):
        texts(TextFiles([Path(f"{tmp_path}/bad.zip:deep/a.fasta")]))
    (tmp_path / "no.zip").write_text("plain")
    with pytest.raises(UserError, match=r"no\.zip: cannot be unpacked"):
        TextFiles([Path(f"{tmp_path}/no.zip:x")])


SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_gzip_goes_by_its_magic_bytes_and_a_name_that_promises_it_must_keep_it(write):
    plain = write("plain.txt.gz", "anna\nbob\n")
    zipped = write(
        "zipped.txt", gzip.compress(b"anna\nbob\n", mtime=0) + gzip.compress(b"carl\n", mtime=0)
    )
    with pytest.raises(UserError, match=r"plain\.txt\.gz: is no gzip data, for all its name"):
        texts(TextFiles([plain], format="lines"))
    assert texts(TextFiles([zipped])) == ["anna", "bob", "carl"]


def test_a_folder_gives_its_text_files_sorted_without_hidden_ones(write, tmp_path):
    for name in ("b.txt", "a/z.txt", ".hidden.txt", ".git/x.txt", "image.png"):
        write(name, f"{name}\n")
    source = TextFiles([tmp_path])
    assert texts(source) == ["a/z.txt", "b.txt"]
    assert source.size == sum(path.stat().st_size for path in source.files)


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


def test_a_name_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / os.fsdecode(b"a\xff.txt")
    path.write_text("ok\n")
    with pytest.raises(UserError, match="the name of the file is not UTF-8; rename the file"):
        TextFiles([path])


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


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 200), flip=st.integers(0, 255), offset=st.integers(0, 200))
def test_damaged_gzip_gives_user_errors_or_the_truth(write, cut, flip, offset):
    original = b"anna\nbob\ncarl\n" * 40
    raw = bytearray(gzip.compress(original, mtime=0))
    raw[2 + offset % (len(raw) - 2)] ^= flip  # the two magic bytes stay: without, it is no gzip
    path = write("fuzz.gz", bytes(raw[: len(raw) - cut % (len(raw) - 1)]))
    try:
        source = TextFiles([path], format="text")
        assert "".join(source.text()).encode() == original
    except UserError as error:
        assert "fuzz.gz" in str(error)


@pytest.mark.parametrize("block", [1, 5, 1 << 20])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252", "UTF-8"])
def test_a_given_encoding_is_read(write, monkeypatch, encoding, block):
    text = "müller\nzoë ½\n\nend"
    path = write("a.txt", text.encode(encoding))
    monkeypatch.setattr(formats, "BLOCK", block)
    assert texts(TextFiles([path], format="lines", encoding=encoding)) == ["müller", "zoë ½", "end"]
    running = TextFiles([path], format="text", encoding=encoding)
    assert "".join(running.text()) == text


def test_encodings_are_never_guessed_and_must_hold_throughout(write):
    latin = write("l.txt", "anna\nzoë\n".encode("latin-1"))
    source = TextFiles([latin], format="lines")
    assert texts(source) == ["anna"]
    assert "--set data.encoding=latin-1" in source.problems[0]
    with pytest.raises(UserError, match=r"u\.txt: is UTF-16 text.*data\.encoding=utf-16"):
        texts(TextFiles([write("u.txt", "anna\n".encode("utf-16"))], format="lines"))
    with pytest.raises(UserError, match=r"l\.txt: is not ascii text: .* about byte 7"):
        texts(TextFiles([latin], format="lines", encoding="ascii"))
    for name in ("latin-15x", "hex", ""):
        with pytest.raises(UsageError, match=r"unknown data\.encoding"):
            TextFiles([latin], encoding=name)


@pytest.mark.parametrize("encoding", ["utf99999999999", "utf\0", "no such thing"])
def test_an_unknown_encoding_is_named(tmp_path, encoding):
    (tmp_path / "t.txt").write_text("abc\n")
    with pytest.raises(UsageError, match=r"unknown data.encoding '.*'; choose utf-8, latin-1"):
        list(read_blocks(tmp_path / "t.txt", encoding))


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
    guessed, why = guess(text)
    assert guessed == format
    assert reason in why


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (">a\nACGT\n", "fasta"),
        ("\n; comment\n>a b c\nMKV*\nLL\n", "fasta"),
        (">a\n", "lines"),  # no sequence
        ("> on Monday you wrote\nnot so fast\n", "lines"),  # a reply to a letter
        ("ACGT\n>a\nACGT\n", "lines"),
    ],
)
def test_a_header_and_a_sequence_are_fasta_whatever_the_name(text, format):
    assert guess(text)[0] == format


def lines_of(make, count=30):
    return "\n".join(make(i) for i in range(count)) + "\n"


@pytest.mark.parametrize(
    ("text", "format", "reason"),
    [
        (lines_of(lambda i: f"{'+-'[i % 2]},S{i},\t\tACGT"), "csv", "3 cells a line"),
        (lines_of(lambda i: f'EI;"a;b";{i},5;x'), "csv", "4 cells a line, commas or semicolons"),
        (lines_of(lambda i: f"go {i}\tgeh {i}"), "tsv", "2 cells a line, tabs between them"),
        ("# a comment\n" + lines_of(lambda i: f"old\tnew\t{i}"), "tsv", "3 cells"),
        (lines_of(lambda i: f'{{"text": "a {i}"}}'), "jsonl", "an object a line"),
        (lines_of(lambda i: f"Smith, Anna {i}"), "lines", "30 short lines"),  # names
        (lines_of(lambda i: "One, two, three" if i % 9 else "And more"), "lines", "short"),
        (lines_of(lambda i: f"a\t{i}", 5), "lines", "5 short lines"),  # may be an accident
        (lines_of(lambda i: f"{{{i}}}"), "lines", "30 short lines"),
    ],
)
def test_lines_with_as_many_cells_are_a_table_whatever_the_name(text, format, reason):
    guessed, why = guess(text)
    assert guessed == format
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


def test_plain_names_must_agree_on_fasta(write):
    with pytest.raises(UsageError, match=r"mix formats: .*a\.txt is fasta, .*b\.txt is lines"):
        TextFiles([write("a.txt", ">a\nACGT\n"), write("b.txt", "anna\nbob\n")])
    assert TextFiles([write("c", ">a\nACGT\n"), write("d", ">a\nACGT\n")]).format == "fasta"
