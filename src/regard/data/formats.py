"""From paths to text: which files, packed or not, decoded by lines, and what a plain file holds.

Nothing here reads a file whole: bytes come in blocks, decompressed as they come, and a line has a
greatest length, so a file larger than memory streams and a compressed bomb cannot fill it.
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
from contextlib import nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from regard.data.archives import describe_members, located, opened, size
from regard.errors import UsageError, UserError, quoted

BLOCK = 4 << 20  # bytes read at a time
OPENING = 1 << 16  # bytes looked at to tell text from other files
LINE_LIMIT = 64 << 20  # bytes of the longest line, or table row, that is still a record
HEAD = 1 << 20  # characters looked at to tell records from running text
SPACED = 1000  # different targets with blanks around them that are counted
PROBLEMS = 5  # damaged records named; all of them are counted
EXTENSIONS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
EXTENSIONS |= dict.fromkeys((".fa", ".fasta", ".faa", ".fna"), "fasta") | {".smi": "smi"}
PLAIN_SUFFIXES = (".txt", ".text")
# A header, and a line of letters alone below it; comments and blank lines may come before.
FASTA = re.compile(r"(?:;[^\n]*\n|[ \t]*\n)*>[^\n]*\n[ \t]*[A-Za-z*.-]+[ \t]*(?:\n|\Z)")
UTF8 = "utf-8"
PACKED = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}


@dataclass
class SkippedRecords:
    """What one pass left out: empty records, those that lack what is asked of them, and damaged
    ones, which `strict` refuses instead. Ids that come again are counted, and their records kept.
    """

    strict: bool = False
    blank: int = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)
    left: dict[str, tuple[int, str]] = field(default_factory=dict)  # by what rows have
    repeated: Counter[str] = field(
        default_factory=Counter
    )  # ids that come again: how often each is there
    spaced: dict[str, tuple[int, str]] = field(default_factory=dict)  # targets with blanks around
    notes: dict[str, str] = field(default_factory=dict)  # what else to say, by what it is about

    def damaged(self, problem: str) -> None:
        """Count one damaged record; `problem` names its file and line."""
        if self.strict:
            raise UserError(problem)
        self.skipped += 1
        if len(self.problems) < PROBLEMS:
            self.problems.append(problem)

    def leave(self, what: str, example: str) -> None:
        """Count one record that is left out though it is whole, for what it has: "no 'y' value"."""
        count, first = self.left.get(what, (0, example))
        self.left[what] = count + 1, first

    def trimmed(self, target: str, example: str) -> None:
        """Count one target that had blanks around it."""
        if target in self.spaced or len(self.spaced) < SPACED:
            count, first = self.spaced.get(target, (0, example))
            self.spaced[target] = count + 1, first

    def again(self, id: str, problem: str, times: int = 1) -> None:
        """Count records that are kept although one of this id came before; `strict` refuses it."""
        if self.strict:
            raise UserError(problem)
        self.repeated[id] += times

    def left_out(self) -> list[str]:
        """What a user should know of the records left out that are not damaged, a line each."""
        found = []
        for what, (count, first) in self.left.items():
            have, were = ("row has", "was") if count == 1 else ("rows have", "were")
            found.append(f"{count:,} {have} {what} and {were} skipped; first: {first}")
        return found

    def lines(self) -> list[str]:
        """The same, and what there is to say of ids and of how targets are written."""
        found = [*self.left_out(), *self.notes.values()]
        if self.repeated:
            id, times = self.repeated.most_common(1)[0]
            more = (
                f" and {len(self.repeated) - 1:,} other ids repeat"
                if len(self.repeated) > 1
                else ""
            )
            found.append(f"id {id[:40]!r} occurs {times:,} times{more}; all records kept")
        return found


def expand(paths: Sequence[Path]) -> list[Path]:
    """The files meant by `paths`: folders give their text files, sorted, without hidden ones."""
    if not paths:
        raise UsageError("data: no file given; name at least one file or folder")
    files: list[Path] = []
    for path in paths:
        check_name(path)
        place, member = located(path)
        try:
            status = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{place}: no such file or folder{_sibling(place)}") from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read: {_reason(error)}") from None
        if stat.S_ISDIR(status.st_mode):
            files += _inside(path)
        elif not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: is not a regular file; it is read more than once, so save it")
        elif not (size(path) if member else status.st_size):
            raise UserError(f"{path}: is empty")
        else:
            files.append(path)
    return files


def check_name(path: Path) -> None:
    """Refuse a name that is no text: a run could not write it down."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UserError(f"{path}: the name of the file is not UTF-8; rename the file") from None


def _inside(folder: Path) -> list[Path]:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be read: {_reason(error)}")

    files = []
    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(where, name) for name in names if _is_text_name(name)]
    files = sorted(file for file in files if file.is_file())
    if not files:
        kinds = " ".join([*EXTENSIONS, *PLAIN_SUFFIXES, ".gz"])
        raise UserError(f"{folder}: holds no text files ({kinds})")
    return files


def _is_text_name(name: str) -> bool:
    suffix = Path(name).suffix.lower()
    return not name.startswith(".") and (suffix in EXTENSIONS or suffix in (*PLAIN_SUFFIXES, ".gz"))


def _sibling(path: Path) -> str:
    try:
        names = [entry.name for entry in os.scandir(path.parent)]
    except (OSError, ValueError):
        return ""
    close = get_close_matches(path.name, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error)).lower()


def blocks(
    path: Path, encoding: str = UTF8, open: Callable[[Path], BinaryIO] = opened
) -> Iterator[bytes]:
    """The file's text in blocks of UTF-8, decompressed, without a byte-order mark; or an error.

    A file is taken as gzip by its first two bytes, whatever its name; but one that is named so and
    is not has most likely gone wrong on its way, and is refused. UTF-8 is handed on unchecked, so
    that a reader can tell which record is damaged; another encoding must be right throughout.
    """
    try:
        with open(path) as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            if path.suffix == ".gz" and not zipped:
                raise UserError(
                    f"{path}: is no gzip data, for all its name; fetch it again, or if it is plain "
                    "text give it a name without .gz"
                )
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if zipped else nullcontext(raw) as unpacked:
                stream = cast(BinaryIO, unpacked)
                if encoding != UTF8:
                    yield from _recoded(path, stream, encoding)
                    return
                opening = stream.read(OPENING)
                refuse_binary(path, opening)
                opening = opening.removeprefix(b"\xef\xbb\xbf")
                for start in range(0, len(opening), BLOCK):
                    yield opening[start : start + BLOCK]
                while block := stream.read(BLOCK):
                    yield block
    except EOFError:
        raise UserError(f"{path}: the gzip data ends too early; the file is truncated") from None
    except (gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path}: the packed data is corrupt: {str(error).lower()}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {_reason(error)}") from None


def _recoded(path: Path, stream: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Text of another encoding as UTF-8."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except (LookupError, ValueError):
        raise UsageError(
            f"unknown encoding {quoted(encoding)}; choose one such as utf-8, latin-1 or utf-16"
        ) from None
    start = 0  # of the block, in bytes
    while True:
        block = stream.read(BLOCK)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            place = f"about byte {start + error.start:,}"
            raise UserError(f"{path}: is not {encoding} text: {error.reason}, {place}") from None
        if "\0" in text:
            raise UserError(f"{path}: is not {encoding} text: it holds zero characters")
        if text:
            yield text.removeprefix("\ufeff" if not start else "").encode(errors="surrogatepass")
        start += len(block)
        if not block:
            return


def known_encoding(name: str) -> str:
    """The usual name of an encoding of text, given one of its names."""
    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # bytes to bytes, such as "hex", is no encoding of text
    except (LookupError, ValueError, TypeError):
        raise UsageError(
            f"unknown data.encoding {name!r}; choose utf-8, latin-1, cp1252, utf-16 or another "
            "that Python knows"
        ) from None
    return found.name


def refuse_binary(path: Path, sample: bytes) -> None:
    """Refuse a file whose first bytes are no UTF-8 text, with what they are instead."""
    if sample.startswith(b"PK\x03\x04"):
        raise UserError(
            f"{path}: is a zip archive; name a file in it, as {path.name}:MEMBER; "
            f"{describe_members(path)}"
        )
    for magic, kind in PACKED.items():
        if sample.startswith(magic):
            raise UserError(f"{path}: is a {kind} archive; unpack it first, or use gzip")
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path}: is UTF-16 text, not UTF-8: --set data.encoding=utf-16")
    if (place := sample.find(0)) >= 0:
        raise UserError(
            f"{path}: is a binary file (a zero byte at offset {place:,}); expected text"
        )
    text = sample.decode(errors="replace")
    odd = text.count("\ufffd") - sample.count("\ufffd".encode())
    odd += len(sample) - len(sample.translate(None, bytes({*range(32)} - {*b"\t\n\v\f\r\x1b"})))
    if odd > 0.4 * len(sample):  # random bytes: half; one Latin-1 letter in three: less
        raise UserError(f"{path}: is not UTF-8 text: a binary file, or one in another encoding")


def line_blocks(path: Path, encoding: str = UTF8) -> Iterator[tuple[int, bytes]]:
    """The file in pieces of whole lines, each with the number of its first line."""
    held: list[bytes] = []
    length, line = 0, 1
    for block in blocks(path, encoding):
        end = block.find(b"\n")
        if length + (len(block) if end < 0 else end) > LINE_LIMIT:
            raise too_long(path, line)
        cut = block.rfind(b"\n") + 1
        if cut:
            yield line, b"".join([*held, block[:cut]])
            line += block.count(b"\n")
            held, length = [], 0
        held.append(block[cut:])
        length += len(block) - cut
    if length:
        yield line, b"".join(held)


def too_long(path: Path, line: int) -> UserError:
    """The answer to a line that no memory bound could hold."""
    return UserError(
        f"{path}:{line}: a record is longer than {LINE_LIMIT >> 20} MB; "
        "if this is running text: --set data.format=text"
    )


class LineReader(NamedTuple):
    """Consecutive lines without their ends; `bad` maps places in `texts` to what is wrong."""

    first: int
    texts: list[str]
    bad: dict[int, str]


def decoded_lines(path: Path, encoding: str = UTF8) -> Iterator[LineReader]:
    """The file's lines, a few megabytes at a time; only "\\n" and "\\r\\n" end a line."""
    for first, block in line_blocks(path, encoding):
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
        yield LineReader(first, texts, bad)


def _decode_each(path: Path, first: int, raw: list[bytes], bad: dict[int, str]) -> Iterator[str]:
    for i, line in enumerate(raw):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            bad[i] = invalid_utf8(path, first + i, error.start, line[error.start])
            yield line.decode(errors="replace")


def invalid_utf8(path: Path, line: int, offset: int, byte: int) -> str:
    """One sentence that leads the user to the byte; `offset` counts bytes from the line's start."""
    return (
        f"{path}:{line}: invalid UTF-8, byte 0x{byte:02x} at offset {offset:,} of the line; "
        "if the file is Latin-1: --set data.encoding=latin-1"
    )


def head(path: Path, encoding: str = UTF8) -> tuple[str, bool]:
    """The file's first characters, bad bytes replaced, and whether that is all there is."""
    data, complete = b"", True
    for block in blocks(path, encoding):
        if len(data) > 4 * HEAD:  # bytes enough for as many characters of any kind
            complete = False
            break
        data += block
    text = data.decode(errors="replace").replace("\r\n", "\n")
    return text[:HEAD], complete and len(text) <= HEAD


def extension(path: Path) -> str:
    """The format that the file's name promises, or "" when it promises none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return EXTENSIONS.get(suffixes[-1], "") if suffixes else ""


def detect(files: Sequence[Path], encoding: str = UTF8) -> tuple[str, str]:
    """The format of files read as one thing, and the reason in a few words."""
    promised: dict[str, Path] = {}
    for path in files:
        promised.setdefault(extension(path), path)
    if len(promised) > 1:
        (one, path), (other, path2) = list(promised.items())[:2]
        raise UsageError(
            f"the files mix formats: {path} is {one or 'plain text'}, {path2} is "
            f"{other or 'plain text'}; give files of one format, or --set data.format=lines"
        )
    format = next(iter(promised))
    if format:
        return format, "by the name"
    verdicts = [guess(*head(path, encoding)) for path in files[:50]]
    kinds = [verdict for verdict, _ in verdicts]
    if "fasta" in kinds and len(set(kinds)) > 1:
        apart = next(i for i, kind in enumerate(kinds) if kind != "fasta")
        path = files[kinds.index("fasta")]
        raise UsageError(
            f"the files mix formats: {path} is fasta, {files[apart]} is {kinds[apart]}; give files "
            "of one format, or --set data.format=lines"
        )
    rest = "fasta" if "fasta" in kinds else "lines"
    format = "text" if 2 * kinds.count("text") > len(kinds) else rest
    why = next(why for verdict, why in verdicts if verdict == format)
    return format, why if len(files) == 1 else f"{len(files):,} files, the first such: {why}"


def guess(text: str, complete: bool = True) -> tuple[str, str]:
    """Whether the beginning of a plain file is records, one a line, or running text; and why.

    Running text shows itself by blank lines between paragraphs, by lines broken at a common width,
    or by very long lines. What shows none of these is taken as one record a line. A header and a
    sequence below it are FASTA.
    """
    if FASTA.match(text):
        return "fasta", "a header with > and a sequence below it"
    lines = text.split("\n")
    if not complete and len(lines) > 1:
        lines.pop()  # most likely cut
    while lines and not lines[-1].strip():
        lines.pop()
    full = [line for line in lines if line.strip()]
    if not full:
        return "lines", "nothing but blank lines"
    blank = len(lines) - len(full)
    lengths = sorted(map(len, full))
    median, longest = lengths[len(lengths) // 2], lengths[-1]
    spaced = sum(" " in line.strip() for line in full) / len(full)
    seen = "" if complete else " in the first million characters"
    if longest > 100_000 or (spaced > 0.5 and median > 1000):
        return "text", f"lines of up to {longest:,} characters{seen}"
    if blank > 1 and blank > (0.01 if spaced > 0.2 else 0.1) * len(lines):
        return "text", f"paragraphs: {blank:,} of {len(lines):,} lines are blank{seen}"
    if width := _wrap_width(full):
        return "text", f"prose broken at about {width} characters a line{seen}"
    count = "one line" if len(full) == 1 else f"{len(full):,} short lines"
    blanks = f"{blank:,} blank" if blank else "no blank ones"
    return "lines", f"{count}, {blanks}{seen}"


def _wrap_width(lines: list[str]) -> int:
    """The width at which prose was broken, or 0: there, the next line's first word did not fit."""
    lengths = sorted(map(len, lines))
    width = lengths[int(0.99 * (len(lengths) - 1))]
    pairs = [(a, b) for a, b in pairwise(lines) if " " in a.strip()]
    if len(pairs) < 4 or len(pairs) < 0.7 * (len(lines) - 1):
        return 0
    broken = sum(len(a) + 1 + len(b.split(maxsplit=1)[0]) > width for a, b in pairs)
    lower = sum(b.lstrip()[0].islower() for _, b in pairs)
    return width if broken > 0.6 * len(pairs) and lower > 0.2 * len(pairs) else 0
