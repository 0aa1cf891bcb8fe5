"""From paths to lines of text: which files are read, how they are decoded, and what a file without
a telling name holds.

No file is read as a whole: bytes come in blocks, decompressed as they come, and a line has a
maximum length, so that a file may be larger than memory and a compressed bomb cannot fill it.

Members of zip archives are files, too: `splits.zip:splits/train.csv` is a path like any other. The
sizes that an archive states are checked before anything is unpacked, so that a small file cannot
fill the memory.
"""

from __future__ import annotations

import codecs
import gzip
import os
import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from regard.errors import UsageError, UserError, quoted
from regard.registry import TABLES

FREE_BYTES = 1 << 30  # that compressed data may unpack to, whatever its own size
MAX_RATIO = 200  # beyond that, times its own size: more than real data has, far less than a bomb
MAX_DEFLATE_RATIO = 1100  # what deflate can reach at all
MAX_MEMBERS = 1_000_000  # of an archive
N_LISTED = 8  # members named in a message
SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
HEAD_OF_ZIP = 1 << 14  # bytes in which a spreadsheet names its workbook
HIDDEN = (".", "__")  # beginnings of names


def max_unpacked(size: int) -> int:
    """Return how many bytes compressed data of this size may unpack to."""
    return max(FREE_BYTES, MAX_RATIO * size)


@contextmanager
def gzip_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading a file, gzip data or not, into a UserError."""
    try:
        yield
    except EOFError:
        raise UserError(f"{path}: the gzip data ends too early; the file is truncated") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: the gzip data is corrupt: {str(error).lower()}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {describe_error(error)}") from None


@contextmanager
def zip_errors(path: Path) -> Iterator[None]:
    """Turn what zipfile raises of an archive, which may be anything, into a UserError."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise UserError(f"{path}: cannot be read: {describe_error(error)}") from None
    except Exception as error:
        reason = str(error).lower() or type(error).__name__
        raise UserError(f"{path}: cannot be unpacked: {reason}") from None


def read_unpacked(path: Path, max_bytes: int) -> bytes:
    """Return the first bytes of a file, decompressed if it is gzip data."""
    with gzip_errors(path), open(path, "rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not is_gzip:
            return raw.read(max_bytes)
        limit = max_unpacked(path.stat().st_size)
        with gzip.GzipFile(fileobj=raw) as stream:
            data = stream.read(min(max_bytes, limit + 1))
    if len(data) > limit:
        raise UserError(
            f"{path}: unpacks to more than {limit >> 20:,} MB, {MAX_RATIO} times its size or more; "
            "unpack it first"
        )
    return data


def describe_error(error: Exception) -> str:
    """Return the reason of an error of the file system, in lower case."""
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error)).lower()


def split_member(path: Path) -> tuple[Path, str]:
    """Return the file on disk that a path leads to and the member of that archive, or ""."""
    archive, separator, member = str(path).partition(".zip:")
    if not separator or not member or os.path.exists(path):
        return path, ""
    return Path(archive + ".zip"), member


def folder_name(path: Path) -> str:
    """Return the name of the folder of a file, or of a member of an archive."""
    return Path(split_member(path)[1] or path).parent.name


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip archive."""
    return path.suffix == ".zip" and path.is_file() and zipfile.is_zipfile(path)


def open_archive(path: Path, *, max_bytes: int = 0) -> zipfile.ZipFile:
    """Open a zip archive; one that is damaged or unpacks to too much is a UserError."""
    with zip_errors(path):
        archive, limit = zipfile.ZipFile(path), max_unpacked(path.stat().st_size)
    infos = archive.infolist()
    total = sum(info.file_size for info in infos)
    problem = ""
    if len(infos) > MAX_MEMBERS:
        problem = f"has {len(infos):,} members; at most {MAX_MEMBERS:,} are read"
    elif total > limit:
        problem = (
            f"would unpack to {total >> 20:,} MB, more than {limit >> 20:,} MB and {MAX_RATIO} "
            "times its size; unpack it first"
        )
    elif max_bytes and total > max_bytes:
        problem = f"would take {total >> 30} GB, more than {max_bytes >> 30} GB"
    if problem:
        archive.close()
        raise UserError(f"{path}: {problem}")
    return archive


class Member:
    """The bytes of a member of an archive; damaged data is a UserError."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, name: str) -> None:
        self.path = path
        with zip_errors(path):
            self.stream = cast(BinaryIO, archive.open(name))  # stays open when `archive` is closed

    def read(self, size: int = -1) -> bytes:
        with zip_errors(self.path):
            return self.stream.read(size)

    def seek(self, offset: int) -> int:
        with zip_errors(self.path):
            return self.stream.seek(offset)

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Archives:
    """Opens files and members of archives.

    The last archive stays open, since reading its list of members takes long.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._archive: zipfile.ZipFile | None = None

    def open(self, path: Path) -> BinaryIO:
        """Open a file or a member of an archive."""
        file, member = split_member(path)
        if not member:
            return path.open("rb")
        archive, info = self._find(file, member)
        return cast(BinaryIO, Member(file, archive, info.filename))

    def size(self, path: Path) -> int:
        """Return the bytes of a file, or those that a member unpacks to."""
        file, member = split_member(path)
        return self._find(file, member)[1].file_size if member else path.stat().st_size

    def _find(self, path: Path, member: str) -> tuple[zipfile.ZipFile, zipfile.ZipInfo]:
        if self._archive is None or self._path != path:
            self._path, self._archive = path, open_archive(path)
        try:
            return self._archive, self._archive.getinfo(member)
        except KeyError:
            close = get_close_matches(member, list_members(path), n=1)
            hint = f"did you mean {close[0]!r}?" if close else describe_members(path)
            raise UserError(f"{path}: holds no {member!r}; {hint}") from None


def list_files(
    path: Path, accepts: Callable[[str], bool], *, hidden: tuple[str, ...] = HIDDEN
) -> list[Path]:
    """Return the files in a folder or archive whose names are accepted, sorted, without hidden
    files and folders.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be read: {describe_error(error)}")

    if is_archive(path):
        members = [name.split("/") for name in list_members(path)]
        return [
            Path(f"{path}:{'/'.join(parts)}")
            for parts in members
            if accepts(parts[-1]) and not any(part.startswith(hidden) for part in parts)
        ]
    files = []
    for parent, folders, names in os.walk(path, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(hidden)]
        files += [Path(parent, n) for n in names if accepts(n) and not n.startswith(hidden)]
    return sorted(files)


def archive_files(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the members of an archive that are no folders."""
    return [i for i in archive.infolist() if i.filename and not i.filename.endswith("/")]


def list_members(path: Path) -> list[str]:
    """Return the sorted names of the files in an archive, without hidden ones."""
    try:
        with open_archive(path) as archive:
            names = [info.filename for info in archive_files(archive)]
    except UserError:
        return []
    return sorted(name for name in names if not name.rpartition("/")[2].startswith("."))


def describe_members(path: Path) -> str:
    """Return what an archive holds, for a message."""
    names = list_members(path)
    more = f" and {len(names) - N_LISTED} more" if len(names) > N_LISTED else ""
    return f"it holds {', '.join(names[:N_LISTED]) or 'no files'}{more}"


BLOCK = 4 << 20  # bytes read at a time
OPENING = 1 << 16  # bytes that tell text from binary files
LINE_LIMIT = 64 << 20  # bytes of the longest line, or table row, that is still a record
HEAD = 1 << 20  # characters that tell records from running text
MAX_SPACED = 1000  # distinct targets with blanks around them that are counted
MAX_PROBLEMS = 5  # damaged records that are described; all of them are counted
RECORD_SUFFIXES = dict.fromkeys((".fa", ".fasta", ".faa", ".fna"), "fasta") | {".smi": "smi"}
PLAIN_SUFFIXES = (".txt", ".text")
# A header and a line of letters below it; comments and blank lines may precede them.
FASTA = re.compile(r"(?:;[^\n]*\n|[ \t]*\n)*>[^\n]*\n[ \t]*[A-Za-z*.-]+[ \t]*(?:\n|\Z)")
UTF8 = "utf-8"
ENCODING_LINES, MOST_INVALID = 1000, 0.05  # lines looked at, and the share of invalid ones
COMPRESSED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}


@dataclass
class SkippedRecords:
    """What one pass over the records skipped: blank ones, damaged ones, and those without what is
    needed of them. If `strict`, damage is an error. Repeated ids are counted; their records stay.
    """

    strict: bool = False
    blank: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)
    incomplete: dict[str, tuple[int, str]] = field(default_factory=dict)  # count, first example
    repeated: Counter[str] = field(default_factory=Counter)  # occurrences of ids that repeat
    spaced: dict[str, tuple[int, str]] = field(default_factory=dict)  # targets between blanks
    notes: dict[str, str] = field(default_factory=dict)  # other remarks, by subject

    def damaged(self, problem: str) -> None:
        """Count a damaged record; `problem` names its file and line."""
        if self.strict:
            raise UserError(problem)
        self.skipped += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)

    def leave(self, what: str, example: str) -> None:
        """Count a record that is skipped though undamaged; `what` is as in "no 'y' value"."""
        count, first = self.incomplete.get(what, (0, example))
        self.incomplete[what] = count + 1, first

    def trimmed(self, target: str, example: str) -> None:
        """Count a target that had blanks around it."""
        if target in self.spaced or len(self.spaced) < MAX_SPACED:
            count, first = self.spaced.get(target, (0, example))
            self.spaced[target] = count + 1, first

    def repeat(self, id: str, problem: str, times: int = 1) -> None:
        """Count records whose id was seen before; they are kept unless `strict`."""
        if self.strict:
            raise UserError(problem)
        self.repeated[id] += times

    def describe_incomplete(self) -> list[str]:
        """Return a line for each reason to skip undamaged records."""
        lines = []
        for what, (count, first) in self.incomplete.items():
            have, were = ("row has", "was") if count == 1 else ("rows have", "were")
            lines.append(f"{count:,} {have} {what} and {were} skipped; first: {first}")
        return lines

    def remarks(self) -> list[str]:
        """Return all that a user should know of the pass besides damage, line by line."""
        lines = [*self.describe_incomplete(), *self.notes.values()]
        if self.repeated:
            id, times = self.repeated.most_common(1)[0]
            others = len(self.repeated) - 1
            more = f" and {others:,} other ids repeat" if others else ""
            lines.append(f"id {id[:40]!r} occurs {times:,} times{more}; all records kept")
        return lines


def expand(paths: Sequence[Path]) -> list[Path]:
    """Return the files that `paths` name: a folder stands for its text files, sorted."""
    if not paths:
        raise UsageError("data: no file given; name at least one file or folder")
    files: list[Path] = []
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError:  # a run could not write it down
            raise UserError(f"{path}: the name of the file is not UTF-8; rename the file") from None
        file, member = split_member(path)
        try:
            status = file.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{file}: no such file or folder{_similar_name(file)}") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read: {describe_error(error)}") from None
        if stat.S_ISDIR(status.st_mode):
            files += _text_files_below(path)
        elif not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: is not a regular file; it is read more than once, so save it")
        elif not (Archives().size(path) if member else status.st_size):
            raise UserError(f"{path}: is empty")
        else:
            files.append(path)
    return files


def _text_files_below(folder: Path) -> list[Path]:
    suffixes = (*known_suffixes(), *PLAIN_SUFFIXES, ".gz")
    files = list_files(folder, lambda n: Path(n).suffix.lower() in suffixes, hidden=(".",))
    files = [file for file in files if file.is_file()]  # no pipes, no broken links
    if not files:
        raise UserError(f"{folder}: holds no text files ({' '.join(suffixes)})")
    return files


def _similar_name(path: Path) -> str:
    try:
        names = [entry.name for entry in os.scandir(path.parent)]
    except (OSError, ValueError):
        return ""
    close = get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def read_blocks(
    path: Path, encoding: str = UTF8, open: Callable[[Path], BinaryIO] | None = None
) -> Iterator[bytes]:
    """Yield the text of a file in blocks of UTF-8, decompressed, without a byte-order mark.

    Gzip data is recognised by its first two bytes; a file named .gz without them is refused, since
    most likely its download went wrong. UTF-8 is not checked here, so that the damaged record can
    be named later; any other encoding must be valid throughout.
    """
    with gzip_errors(path), (open or Archives().open)(path) as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        if path.suffix == ".gz" and not is_gzip:
            raise UserError(
                f"{path}: is no gzip data, for all its name; fetch it again, or if it is plain "
                "text give it a name without .gz"
            )
        raw.seek(0)
        with gzip.GzipFile(fileobj=raw) if is_gzip else nullcontext(raw) as unpacked:
            stream = cast(BinaryIO, unpacked)
            if encoding != UTF8:
                yield from _recode(path, stream, encoding)
                return
            opening = stream.read(OPENING)
            refuse_binary(path, opening)
            opening = opening.removeprefix(b"\xef\xbb\xbf")
            for start in range(0, len(opening), BLOCK):
                yield opening[start : start + BLOCK]
            while block := stream.read(BLOCK):
                yield block


def _recode(path: Path, stream: BinaryIO, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(known_encoding(encoding))()
    start = 0  # of the block, in bytes
    while True:
        block = stream.read(BLOCK)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            offset = start + error.start
            raise UserError(
                f"{path}: is not {encoding} text: {error.reason}, about byte {offset:,}"
            ) from None
        if "\0" in text:
            raise UserError(f"{path}: is not {encoding} text: it holds zero characters")
        if text:
            yield text.removeprefix("\ufeff" if not start else "").encode(errors="surrogatepass")
        start += len(block)
        if not block:
            return


def known_encoding(name: str) -> str:
    """Return the usual name of a text encoding, given one of its names."""
    try:
        codec = codecs.lookup(name)
        "".encode(codec.name)  # refuses codecs from bytes to bytes, such as "hex"
    except (LookupError, ValueError, TypeError):
        raise UsageError(
            f"unknown data.encoding {quoted(name)}; choose utf-8, latin-1, cp1252, utf-16 or "
            "another that Python knows"
        ) from None
    return codec.name


def refuse_binary(path: Path, sample: bytes) -> None:
    """Refuse a file whose first bytes are not UTF-8 text, and say what they are."""
    if path.suffix.lower() in SPREADSHEETS or b"xl/workbook.xml" in sample[:HEAD_OF_ZIP]:
        raise UserError(f"{path}: is a spreadsheet; save it as CSV (in Excel: Save As, CSV UTF-8)")
    if sample.startswith(b"PAR1"):
        raise UserError(f"{path}: is a Parquet table; --set data.format=parquet reads it")
    if sample.startswith(b"PK\x03\x04"):
        raise UserError(
            f"{path}: is a zip archive; name a file in it, as {path.name}:MEMBER; "
            f"{describe_members(path)}"
        )
    for magic, method in COMPRESSED.items():
        if sample.startswith(magic):
            raise UserError(f"{path}: is a {method} archive; unpack it first, or use gzip")
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: is UTF-16 text, not UTF-8: --set data.encoding=utf-16")
    if (offset := sample.find(0)) >= 0:
        raise UserError(
            f"{path}: is a binary file (a zero byte at offset {offset:,}); expected text"
        )
    text = sample.decode(errors="replace")
    odd = text.count("\ufffd") - sample.count("\ufffd".encode())
    odd += len(sample) - len(sample.translate(None, bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})))
    if odd > 0.4 * len(sample):  # random bytes: half; one Latin-1 letter in three: less
        raise UserError(f"{path}: is not UTF-8 text: a binary file, or one in another encoding")


def too_long(path: Path, line: int) -> UserError:
    """Return the error for a record longer than LINE_LIMIT."""
    return UserError(
        f"{path}:{line}: a record is longer than {LINE_LIMIT >> 20} MB; "
        "if this is running text: --set data.format=text"
    )


class LineBlock(NamedTuple):
    """Consecutive lines without their ends; `bad` maps indices of `texts` to what is wrong."""

    first: int  # line number
    texts: list[str]
    bad: dict[int, str]


def decoded_lines(path: Path, encoding: str = UTF8) -> Iterator[LineBlock]:
    """Yield the lines of a file, a few megabytes at a time; only "\\n" and "\\r\\n" end a line."""
    for first, block in _line_blocks(path, encoding):
        bad: dict[int, str] = {}
        try:
            text = block.decode()
        except UnicodeDecodeError:
            text = "\n".join(_decode_each(path, first, block.split(b"\n"), bad))
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        texts = text.split("\n")
        if not texts[-1] and block.endswith(b"\n"):
            texts.pop()
        yield LineBlock(first, texts, bad)


def _line_blocks(path: Path, encoding: str) -> Iterator[tuple[int, bytes]]:
    parts: list[bytes] = []  # of a line that is not complete
    length, line = 0, 1
    for block in read_blocks(path, encoding):
        end = block.find(b"\n")
        if length + (len(block) if end < 0 else end) > LINE_LIMIT:
            raise too_long(path, line)
        cut = block.rfind(b"\n") + 1
        if cut:
            yield line, b"".join([*parts, block[:cut]])
            line += block.count(b"\n")
            parts, length = [], 0
        parts.append(block[cut:])
        length += len(block) - cut
    if length:
        yield line, b"".join(parts)


def _decode_each(path: Path, first: int, lines: list[bytes], bad: dict[int, str]) -> Iterator[str]:
    for i, line in enumerate(lines):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            bad[i] = invalid_utf8(path, first + i, error.start, line[error.start])
            yield line.decode(errors="replace")


def require_encoding(path: Path, encoding: str = UTF8) -> None:
    """Refuse UTF-8 with invalid bytes in its first line or in many of the first lines: the names of
    columns and classes would be wrong. A few such lines are damage, and skipped.
    """
    if encoding != UTF8:
        return
    lines = next(read_blocks(path, encoding), b"").split(b"\n")[:-1][:ENCODING_LINES]
    bad = [line for line in lines if not _is_utf8(line)]
    if not bad or (bad[0] is not lines[0] and len(bad) < MOST_INVALID * len(lines)):
        return
    name = "cp1252" if any(0x80 <= byte < 0xA0 for line in bad for byte in line) else "latin-1"
    example = bad[0].decode(name, errors="replace").strip()[:40]
    raise UserError(
        f"{path}: is not UTF-8 text; if the file is in a Western European encoding ({example!r}): "
        f"--set data.encoding={name}"
    )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def invalid_utf8(path: Path, line: int, offset: int, byte: int) -> str:
    """Return the message about a byte, `offset` bytes from the start of its line."""
    return (
        f"{path}:{line}: invalid UTF-8, byte 0x{byte:02x} at offset {offset:,} of the line; "
        "if the file is Latin-1: --set data.encoding=latin-1"
    )


def decoded_text(
    path: Path, encoding: str = UTF8, open: Callable[[Path], BinaryIO] | None = None
) -> Iterator[str]:
    """Yield the text of a file in pieces of a few million characters; "\\r\\n" becomes "\\n".

    Invalid UTF-8 is an error: skipping it would join what is separate.
    """

    def invalid(data: bytes, start: int) -> UserError:
        ends = data.count(b"\n", 0, start)
        offset = start - data.rfind(b"\n", 0, start) - 1 if ends else column + start
        return UserError(invalid_utf8(path, line + ends, offset, data[start]))

    rest = b""  # of a character that the next block completes
    carriage = ""  # a "\r" whose "\n" may follow in the next block
    line, column = 1, 0  # of the first byte of `rest`
    for block in read_blocks(path, encoding, open):
        data = rest + block
        try:
            text, used = codecs.utf_8_decode(data, "strict", False)
        except UnicodeDecodeError as error:
            raise invalid(data, error.start) from None
        if ends := data.count(b"\n", 0, used):
            line, column = line + ends, used - data.rfind(b"\n", 0, used) - 1
        else:
            column += used
        rest = data[used:]
        text = (carriage + text).replace("\r\n", "\n")
        carriage = "\r" if text.endswith("\r") else ""
        if text := text.removesuffix("\r"):
            yield text
    if rest:
        raise invalid(rest, 0)
    if carriage:
        yield carriage


def head(path: Path, encoding: str = UTF8) -> tuple[str, bool]:
    """Return the first characters of a file, bad bytes replaced, and whether these are all."""
    data, complete = b"", True
    for block in read_blocks(path, encoding):
        if len(data) > 4 * HEAD:  # enough bytes for HEAD characters of any kind
            complete = False
            break
        data += block
    text = data.decode(errors="replace").replace("\r\n", "\n")
    return text[:HEAD], complete and len(text) <= HEAD


def extension(path: Path) -> str:
    """Return the format that the name of a file implies, or ""."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return known_suffixes().get(suffixes[-1], "") if suffixes else ""


def known_suffixes() -> dict[str, str]:
    """Return the format that each ending of a file name implies."""
    tables = {suffix: name for name in TABLES for suffix in TABLES[name].suffixes}
    return tables | RECORD_SUFFIXES


def detect(files: Sequence[Path], encoding: str = UTF8) -> tuple[str, str]:
    """Return the format that files have in common, and the reason in a few words."""
    by_name: dict[str, Path] = {}
    for path in files:
        by_name.setdefault(extension(path), path)
    if len(by_name) > 1:
        (one, first), (two, second) = list(by_name.items())[:2]
        raise _mixed_formats((first, one or "plain text"), (second, two or "plain text"))
    if format := next(iter(by_name)):
        return format, "by the name"
    guesses = [guess(*head(path, encoding)) for path in files[:50]]
    formats = [format for format, _ in guesses]
    if "fasta" in formats and len(set(formats)) > 1:
        i, j = formats.index("fasta"), next(j for j, f in enumerate(formats) if f != "fasta")
        raise _mixed_formats((files[i], "fasta"), (files[j], formats[j]))
    same = formats[0] if formats[0] in TABLES and len(set(formats)) == 1 else "lines"
    format = "fasta" if "fasta" in formats else same
    if 2 * formats.count("text") > len(formats):
        format = "text"
    reason = next((reason for guessed, reason in guesses if guessed == format), "of several forms")
    return format, reason if len(files) == 1 else f"{len(files):,} files, the first such: {reason}"


def detect_table(paths: Sequence[Path], encoding: str = UTF8) -> str:
    """Return the format of files that are tables, else ""."""
    try:
        format = detect(expand(paths), encoding)[0]
    except UserError:
        return ""  # said when they are read
    return format if format in TABLES else ""


def _mixed_formats(one: tuple[Path, str], two: tuple[Path, str]) -> UsageError:
    return UsageError(
        f"the files mix formats: {one[0]} is {one[1]}, {two[0]} is {two[1]}; give files of one "
        "format, or --set data.format=lines"
    )


def guess(text: str, complete: bool = True) -> tuple[str, str]:
    """Return whether the beginning of a plain file is "lines" (a record each), running "text",
    "fasta" or a table, and why.

    Running text has blank lines between paragraphs, lines broken at a common width, or very long
    lines. FASTA has a header and a sequence below it. Nearly all lines of a table have the same
    number of fields.
    """
    if FASTA.match(text):
        return "fasta", "a header with > and a sequence below it"
    lines = text.split("\n")
    if not complete and len(lines) > 1:
        lines.pop()  # most likely cut off
    while lines and not lines[-1].strip():
        lines.pop()
    full = [line for line in lines if line.strip()]
    if not full:
        return "lines", "nothing but blank lines"
    blank = len(lines) - len(full)
    lengths = sorted(map(len, full))
    median, longest = lengths[len(lengths) // 2], lengths[-1]
    for name in TABLES if blank <= 0.01 * len(lines) else ():
        if why := TABLES[name].fits(full):
            return name, why
    spaced = sum(" " in line.strip() for line in full) / len(full)
    scope = "" if complete else " in the first million characters"
    if longest > 100_000 or (spaced > 0.5 and median > 1000):
        return "text", f"lines of up to {longest:,} characters{scope}"
    if blank > 1 and blank > (0.01 if spaced > 0.2 else 0.1) * len(lines):
        return "text", f"paragraphs: {blank:,} of {len(lines):,} lines are blank{scope}"
    if width := _wrap_width(full):
        return "text", f"prose broken at about {width} characters a line{scope}"
    count = "one line" if len(full) == 1 else f"{len(full):,} short lines"
    return "lines", f"{count}, {f'{blank:,} blank' if blank else 'no blank ones'}{scope}"


def _wrap_width(lines: list[str]) -> int:
    """Return the width at which prose was wrapped, or 0: beyond it the next word did not fit."""
    lengths = sorted(map(len, lines))
    width = lengths[int(0.99 * (len(lengths) - 1))]
    pairs = [(a, b) for a, b in pairwise(lines) if " " in a.strip()]
    if len(pairs) < 4 or len(pairs) < 0.7 * (len(lines) - 1):
        return 0
    broken = sum(len(a) + 1 + len(b.split(maxsplit=1)[0]) > width for a, b in pairs)
    lower = sum(b.lstrip()[0].islower() for _, b in pairs)
    return width if broken > 0.6 * len(pairs) and lower > 0.2 * len(pairs) else 0
