"""A user's files as a stream of text records, or of running text, in bounded memory.

`TextFiles` takes files and folders, decides what they hold, and streams them: `records` for one
record per line, table cell or JSON object; `text` and `documents` for running text, where every
file is a document. Files are UTF-8 unless another encoding is given, plain, compressed with gzip,
or members of zip archives.

Class folders (`WholeFiles`): a folder, or a zip archive, that holds a folder of text files for
every class.

scikit-learn's `load_files` and many published sets are laid out so: `pos/*.txt`, `neg/*.txt`. The
folders may lie deeper, as long as only one path leads down to them.

`Pairs` of a source and a target: two files read line by line, or two columns of tables.

Blank lines count as lines. A pair whose texts are both empty is blank; one with an empty text, or
with one that is not UTF-8, is damaged.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from regard.data import Progress, no_progress
from regard.data.formats import (
    LINE_LIMIT,
    UTF8,
    Archives,
    SkippedRecords,
    decoded_lines,
    decoded_text,
    detect,
    expand,
    extension,
    is_archive,
    known_encoding,
    list_files,
    read_blocks,
    split_member,
    too_long,
)
from regard.data.markup import Markup
from regard.data.tables import Batch, BlankSeparated, Layout, entries, fasta
from regard.errors import UsageError, UserError, did_you_mean
from regard.registry import TABLES
from regard.tokenizers.tokenizer import PLAIN, Canonical

if TYPE_CHECKING:
    from regard.data.targets import OutputKind

NOT_TEXT = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
    *(".npy", ".npz", ".zip", ".tar", ".pdf", ".py", ".xyz", ".ply", ".off", ".bin"),
)
# Folders with these names hold splits of a data set, not classes.
SPLIT_FOLDERS = {"train", "training", "valid", "validation", "val", "dev", "test", "eval"}


def class_folders(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return the text files in class folders, each with its class; none where `paths` are laid out
    in another way.
    """
    if len(paths) > 1:
        if not all(path.is_dir() for path in paths):
            return []
        labelled = [(file, path.resolve().name) for path in paths for file in texts_in(path)]
        return labelled if len({name for _, name in labelled}) == len(paths) else []
    (root,) = paths
    if not root.is_dir() and not is_archive(root):
        return []
    files = [
        (file, Path(split_member(file)[1] or file.relative_to(root)).parts)
        for file in texts_in(root)
    ]
    depth = 0
    while files and all(len(parts) > depth + 2 for _, parts in files):
        if len({parts[depth] for _, parts in files}) > 1:
            break
        depth += 1
    if not files or any(len(parts) < depth + 2 for _, parts in files):
        return []  # there are texts outside the folders
    names = sorted({parts[depth] for _, parts in files})
    if splits := [name for name in names if name.lower() in SPLIT_FOLDERS]:
        raise _splits_error(root, splits)
    return [(file, parts[depth]) for file, parts in files] if len(names) > 1 else []


def texts_in(path: Path) -> list[Path]:
    """Return the text files in a folder or a zip archive, sorted; for a file, the file itself."""
    return list_files(path, _is_text) if path.is_dir() or is_archive(path) else [path]


def _is_text(name: str) -> bool:
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    return not name.startswith(("README", "LICENSE")) and suffix not in NOT_TEXT


def _splits_error(root: Path, names: Sequence[str]) -> UsageError:
    if is_archive(root):
        return UsageError(f"{root}: holds the parts {', '.join(names)}: unpack it first")
    first, *others = sorted(names, key=lambda name: not name.lower().startswith("train"))
    flags = "".join(
        f" --{'test' if name.lower() in ('test', 'eval') else 'valid'} {root / name}"
        for name in others
    )
    return UsageError(f"{root}: holds the parts {', '.join(names)}; give {root / first}{flags}")


@dataclass(frozen=True)
class WholeFiles:
    """The layout of files of which each is one record."""

    has_columns: ClassVar[bool] = False

    encoding: str = UTF8
    names: tuple[str, ...] = ("1",)
    why: str = "one file is one record; --set data.per_line=true makes each line one"
    archives: Archives = field(default_factory=Archives)

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        parts: list[str] = []
        try:
            for part in decoded_text(path, self.encoding, self.archives.open):
                parts.append(part)
                if sum(map(len, parts)) > LINE_LIMIT:
                    raise too_long(path, 1)
        except UserError as error:
            skipped.damaged(str(error))
        else:
            yield [["".join(parts)]], [1]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one file."""

    path: Path
    texts: list[str]
    lines: Sequence[int]  # the line each text begins on
    sources: Sequence[str] = ()  # of pairs, whose targets are the texts
    targets: Sequence[tuple[str, ...]] = ()  # of labelled records; "" is missing
    asides: Sequence[tuple[str, ...]] = ()  # cells of other columns, such as the split

    def __len__(self) -> int:
        return len(self.texts)

    def keys(self, form: Canonical = PLAIN) -> Sequence[str]:
        """Return what identifies the records for duplicates, splits and leaks: the canonical form
        of the texts or, of pairs, of the sources.
        """
        return form.all(self.sources or self.texts)

    def place(self, i: int) -> str:
        """Return where record i stands, as file:line."""
        return f"{self.path}:{self.lines[i]}"


Records = TypeVar("Records", bound=Chunk)


@dataclass(frozen=True, slots=True)
class Document:
    """The running text of one file or, of FASTA, of one sequence."""

    path: Path
    encoding: str = UTF8
    sequence: str = ""
    watch: Callable[[Iterator[str]], Iterator[str]] = field(default=iter, compare=False)

    def text(self) -> Iterator[str]:
        """Yield the text in pieces of a few million characters."""
        if self.sequence:
            return self.watch(iter([self.sequence]))
        return self.watch(decoded_text(self.path, self.encoding))


def text_bytes(texts: Sequence[str]) -> int:
    """Return about how many bytes of a file texts are, with a line break each."""
    sample = "".join(texts[:16])[:4096]
    ratio = len(sample.encode(errors="replace")) / max(1, len(sample))
    return round(ratio * sum(map(len, texts))) + len(texts)


def known_formats() -> list[str]:
    """Return the values of data.format."""
    return ["auto", "lines", "text", "files", *TABLES, "fasta", "smi", "labelled"]


def one_of(names: Iterable[str]) -> str:
    """Return names as a list in words."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


class FileSet(ABC):
    """Files or folders that are read as one data set, in one format.

    `why` is the reason for the format. Damaged records are skipped and counted or, if `strict`, an
    error. `blank`, `skipped`, `problems` and `remarks` describe the latest pass over the records.
    """

    format: str
    why: str
    form: Canonical = PLAIN  # in which records are compared
    continuous: ClassVar[bool] = False  # records are cut in time, and their ends held out
    plannable: ClassVar[bool] = False  # records may be split by their labels, columns or groups
    names: tuple[str, ...] = ()  # of the targets
    items: ClassVar[str] = "bytes"  # that progress counts
    progress: Progress = staticmethod(no_progress)  # shows how far a pass over the records is
    activity: str = "reading"

    @property
    def tells(self) -> bool:
        """Whether targets may be texts, rather than labels."""
        return False

    @property
    def two_texts(self) -> bool:
        """Whether every record has two texts."""
        return False

    @property
    def class_files(self) -> tuple[str, ...]:
        """The class of each file, where each holds one class."""
        return ()

    def __init__(
        self, paths: Sequence[Path], format: str, strict: bool, encoding: str = UTF8
    ) -> None:
        if format not in (known := known_formats()):
            raise UsageError(f"unknown data.format {format!r}; {did_you_mean(format, known)}")
        self.paths = [Path(path) for path in paths]
        self._archives = Archives()
        self.files = self._expanded()
        self.size = sum(map(self._archives.size, self.files))
        self.strict, self.encoding = strict, known_encoding(encoding)
        self._skipped_records = SkippedRecords(strict)
        self._layout: Layout | None = None
        self._fasta_documents = False  # is running text that of FASTA?

    def _expanded(self) -> list[Path]:
        return expand(self.paths)

    def _read_as(self, format: str, why: str, columns: Sequence[str]) -> None:
        """Fix the format, and the columns of a table or keys of JSON objects that are read."""
        self.format, self.why = format, why
        first, encoding = self.files[0], self.encoding
        if format in TABLES:
            self._layout = TABLES[format].layout(first, columns, encoding=encoding)
        elif any(columns):
            key = "input" if columns[0] else "target"
            raise UsageError(
                f"data.{key} = {columns[0] or columns[1]!r} names a column, but {self.files[0]} is "
                f"read as {format} ({why}); --set data.format={one_of(TABLES)} has columns"
            )
        elif format == "text" and extension(first) == "fasta":
            self._fasta_documents = True
            self.why = f"{why}, each sequence of FASTA a document"
        elif format == "fasta":
            self._layout = fasta(first, (), encoding)
        elif format == "files":
            self._layout = WholeFiles(encoding)
        elif format in ("smi", "labelled"):
            self._layout = BlankSeparated(("1" if format == "smi" else "2",), encoding)
        if self._layout:
            self.why = f"{why}, {self._layout.why}"

    def stretches(self, fractions: Sequence[float], train_fraction: float) -> Iterator[Any]:
        """Yield the parts of continuous records, as chunks that know their split."""
        raise NotImplementedError

    def like(self, files: Sequence[Path]) -> tuple[str, ...]:
        """Return the classes of other files, if each of these holds one class."""
        return ()

    @property
    def labels_apart(self) -> bool:
        """Whether the labels stand in a file of their own, given as data.target."""
        return False

    def require(self, kind: OutputKind, train: FileSet) -> None:  # noqa: B027
        """Treat labels of another kind as damage; numbers are written as in the training files."""

    @property
    def plain_bytes(self) -> int:
        """The size of all files where records are nearly all they hold; otherwise 0."""
        return 0 if self._layout or self._fasta_documents else self.size

    @property
    def blank(self) -> int:
        return self._skipped_records.blank

    @property
    def skipped(self) -> int:
        """The number of damaged records."""
        return self._skipped_records.skipped

    @property
    def without_target(self) -> int:
        """The number of records that are left out because they have no target."""
        return sum(count for count, _ in self._skipped_records.incomplete.values())

    @property
    def problems(self) -> list[str]:
        """What is wrong with the first few damaged records, each with its file and line."""
        return list(self._skipped_records.problems)

    @property
    def spaced(self) -> dict[str, tuple[int, str]]:
        """Targets with blanks around them: how many, and the first."""
        return self._skipped_records.spaced

    @property
    def remarks(self) -> list[str]:
        """Lines about incomplete records, repeated ids, and how numbers are written."""
        return self._skipped_records.remarks()

    def keys(self, chunk: Chunk) -> Sequence[str]:
        """Return what identifies the records of a chunk for duplicates, splits and leaks."""
        return chunk.keys(self.form)

    @abstractmethod
    def records(self) -> Iterator[Chunk]:
        """Yield every record in order, a few megabytes at a time; an error if there is none."""

    def _new_pass(self, read: Callable[[SkippedRecords], Iterator[Records]]) -> Iterator[Records]:
        """Yield the chunks that are not empty; an error if there is none."""
        skipped = self._skipped_records = SkippedRecords(self.strict)
        done, empty = 0, True
        for chunk in read(skipped):
            if chunk.texts:
                empty = False
                yield chunk
                done += self.amount(chunk)
                self.progress(self.activity, done, self.plain_bytes, self.items)
        if empty:
            raise self._nothing(skipped)

    def amount(self, chunk: Chunk) -> int:
        """Return how much a chunk adds to the progress."""
        return text_bytes([*chunk.texts, *chunk.sources])

    def documents(self) -> Iterator[Document]:
        """Yield the documents of running text: files or, of FASTA, sequences."""
        if self.format != "text":
            raise ValueError(f"{self.format} files have no documents; read records()")
        done = 0

        def watch(pieces: Iterator[str]) -> Iterator[str]:
            nonlocal done
            for piece in pieces:
                yield piece
                done += text_bytes([piece])
                self.progress(self.activity, done, self.plain_bytes, self.items)

        if not self._fasta_documents:
            yield from (Document(path, self.encoding, watch=watch) for path in self.files)
            return
        skipped = self._skipped_records = SkippedRecords(self.strict)
        for path in self.files:
            for entry in entries(path, skipped, self.encoding, longest=math.inf):
                yield Document(path, self.encoding, entry.text, watch)

    def text(self) -> Iterator[str]:
        """Yield the text of all documents in pieces; an error if there is none."""
        empty = True
        for document in self.documents():
            for piece in document.text():
                empty = False
                yield piece
        if empty:
            raise self._nothing(SkippedRecords())

    def characters(self) -> int:
        """Return how many characters the running text has."""
        activity, self.activity = self.activity, "counting characters"
        try:
            return sum(map(len, self.text()))
        finally:
            self.activity = activity

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of tables or keys of JSON objects that are read; () for other files."""
        return self._layout.names if self._layout and self._layout.has_columns else ()

    @property
    def all_files(self) -> list[Path]:
        """Every file that is read, with files of targets."""
        return self.files

    def hashes(self) -> tuple[str, dict[str, str]]:
        """Return a hash of the names and bytes of all files, wherever they are stored, and the name
        of each file by the hash of its bytes.
        """
        total = hashlib.blake2b(digest_size=16)
        files: dict[str, str] = {}
        for path in self.all_files:
            digest = hashlib.blake2b(digest_size=16)
            try:
                with self._archives.open(path) as stream:
                    label = f"{self._name(path)}\0{self._archives.size(path)}\0"
                    total.update(label.encode(errors="surrogateescape"))
                    while block := stream.read(1 << 20):
                        total.update(block)
                        digest.update(block)
            except OSError as error:
                raise UserError(f"{path}: cannot be read: {error.strerror}") from None
            files[digest.hexdigest()] = self._name(path)
        return total.hexdigest(), files

    def _name(self, path: Path) -> str:
        """Return the name of a file relative to the folder that was given."""
        roots = [root for root in self.paths if root in path.parents]
        return os.fspath(path.relative_to(roots[0])) if roots else path.name

    def _nothing(self, skipped: SkippedRecords) -> UserError:
        files = f"{self.files[0]}" + (f" and {len(self.files) - 1} more" if self.files[1:] else "")
        if skipped.incomplete:
            damaged = f"; {skipped.skipped:,} more are damaged" if skipped.skipped else ""
            reasons = "; ".join(skipped.describe_incomplete())
            return UserError(f"{files}: no record can be used: {reasons}{damaged}")
        if skipped.skipped:
            return UserError(
                f"{files}: all {skipped.skipped:,} records are damaged; first: "
                f"{skipped.problems[0]}"
            )
        return UserError(f"{files}: nothing to read ({skipped.blank:,} blank records)")


class TextFiles(FileSet):
    """Files as records of one text each, or as running text.

    The format "auto" is detected. `column` names a column (or numbers it from 1) or a JSON key; it
    may be left out where only one fits.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        format: str = "auto",
        column: str = "",
        strict: bool = False,
        encoding: str = UTF8,
    ) -> None:
        super().__init__(paths, format, strict, encoding)
        why = "as asked"
        if format == "auto":
            format, why = detect(self.files, self.encoding)
        self._read_as(format, why, [column])

    def records(self) -> Iterator[Chunk]:
        if self.format == "text":
            raise ValueError("running text has no records; read text() or documents()")
        yield from self._new_pass(self._chunks)

    def _chunks(self, skipped: SkippedRecords) -> Iterator[Chunk]:
        for path in self.files:
            if self._layout is None:
                for texts, lines in lines_of(path, skipped, self.encoding):
                    yield Chunk(path, texts, lines)
                continue
            for (texts,), numbers in self._layout.batches(path, skipped):
                full = [i for i, text in enumerate(texts) if text]
                skipped.blank += len(texts) - len(full)
                yield Chunk(path, [texts[i] for i in full], [numbers[i] for i in full])


def lines_of(
    path: Path, skipped: SkippedRecords, encoding: str = UTF8
) -> Iterator[tuple[list[str], Sequence[int]]]:
    """Yield the lines that are not blank, and their numbers."""
    for first, texts, bad in decoded_lines(path, encoding):
        if not bad and "" not in texts:
            yield texts, range(first, first + len(texts))
            continue
        for problem in bad.values():
            skipped.damaged(problem)
        full = [i for i, text in enumerate(texts) if text and i not in bad]
        skipped.blank += len(texts) - len(bad) - len(full)
        yield [texts[i] for i in full], [first + i for i in full]


# Words in file names that tell parts of one data set apart, not source and target.
PART_NAMES = {"train", "training", "valid", "validation", "val", "dev", "test", "eval", "all"}
PART_NAMES |= {"aa", "ab", "ac", "xaa", "xab", "xac"}  # as the command `split` names them
# Languages in file names: ISO 639-1, some codes of three letters, some names.
CODES = """
aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de
dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia
id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo
lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl
ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta te tg th ti tk
tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
ara ben bul cat ces cze dan deu ger ell gre eng est eus fas per fin fra fre gle heb hin hrv hun
ind isl ita jpn kor lat lav lit mkd nld dut nor pol por ron rum rus slk slo slv spa sqi srp swa
swe tam tel tha tur ukr urd vie zho chi
english german deutsch french francais spanish espanol italian italiano portuguese dutch
russian chinese japanese korean arabic polish czech turkish swedish danish finnish greek latin
"""
LANGUAGES = frozenset(CODES.split())
ROLES = frozenset({"src", "tgt", "trg", "source", "target", "ref"})
# The test whether lines of two files belong to each other.
MAX_LINES = 500
MIN_LINES = 20
N_FEATURES = 1 << 12  # buckets that trigrams of characters are hashed to
MAX_SHIFT = 16  # lines by which one file is shifted to see what chance gives
RELATED = 0.3, 6.0  # correlation of lengths and z of the vocabulary from which lines do belong
UNRELATED = 0.2, 4.0  # and below which they do not


class Pairs(FileSet):
    """Sources and their targets: two aligned files, or tables with a column for each.

    `columns` name those of the source and the target (or JSON keys), for tables only.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        format: str = "auto",
        columns: tuple[str, str] = ("", ""),
        strict: bool = False,
        encoding: str = UTF8,
    ) -> None:
        super().__init__(paths, format, strict, encoding)
        why = "as asked"
        if format == "auto":
            format, why = "lines", "two files, line by line"
            if any(map(extension, self.files)):
                format, why = detect(self.files, self.encoding)
        if format not in ("lines", *TABLES):
            raise UsageError(
                f"data.format = {format!r} has no pairs; choose one of {one_of(['lines', *TABLES])}"
            )
        if format == "lines" and len(self.files) != 2:
            raise UsageError(
                "pairs need two files, the sources and the targets line by line, or a table with "
                f"--input and --target; got {len(self.files)}, the first {self.files[0]}"
            )
        self._read_as(format, why, columns)

    def records(self) -> Iterator[Chunk]:
        """Yield every complete pair in order, a few megabytes at a time; the targets are the texts
        of a chunk. An error if there is none.
        """
        yield from self._new_pass(self._chunks)

    def _chunks(self, skipped: SkippedRecords) -> Iterator[Chunk]:
        for path, (sources, targets), lines in self._batches(skipped):
            complete = []
            for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
                has_source, has_target = bool(source.strip()), bool(target.strip())
                if has_source and has_target:
                    complete.append(i)
                elif has_source or has_target:
                    skipped.damaged(self._half_empty(path, lines[i], has_source))
                else:
                    skipped.blank += 1
            texts, numbers = [targets[i] for i in complete], [lines[i] for i in complete]
            yield Chunk(path, texts, numbers, [sources[i] for i in complete])

    def _batches(
        self, skipped: SkippedRecords
    ) -> Iterator[tuple[Path, list[list[str]], list[int]]]:
        if self._layout is None:
            markup = Markup()
            for (sources, targets), lines in aligned(self.files, skipped, self.encoding):
                pairs = [markup.strip(*pair) for pair in zip(sources, targets, strict=True)]
                columns = [[pair[i] for pair in pairs] for i in range(2)]
                yield self.files[1], columns, lines
                if markup.note:
                    skipped.notes["markup"] = markup.note
            skipped.blank -= markup.lines  # which the note counts
            return
        for path in self.files:
            yield from ((path, *batch) for batch in self._layout.batches(path, skipped))

    def _half_empty(self, path: Path, line: int, has_source: bool) -> str:
        if self._layout is None:
            full, empty = self.files if has_source else self.files[::-1]
            return f"{empty}:{line}: is empty, but line {line:,} of {full} is not"
        present, missing = self._layout.names if has_source else self._layout.names[::-1]
        return f"{path}:{line}: {missing!r} is empty, but {present!r} is not"


def aligned(
    paths: Sequence[Path], skipped: SkippedRecords, encoding: str = UTF8
) -> Iterator[Batch]:
    """Yield the lines of two files in parallel; lines that are not UTF-8 go to `skipped`.

    Files of unequal length are an error at the end of the shorter.
    """
    streams = [decoded_lines(path, encoding) for path in paths]
    pending: list[list[str]] = [[], []]  # lines that were read but not yielded, by file
    bad: dict[int, str] = {}  # what is wrong, by line
    line = 1
    while True:
        for i, stream in enumerate(streams):
            if not pending[i] and (block := next(stream, None)):
                pending[i] = block.texts
                bad = {block.first + j: problem for j, problem in block.bad.items()} | bad
        count = min(map(len, pending))
        if not count:
            break
        lines = list(range(line, line + count))
        if bad:
            damaged = bad.keys() & set(lines)
            lines = [number for number in lines if number not in damaged]
            for number in sorted(damaged):
                skipped.damaged(bad.pop(number))
        yield [[texts[number - line] for number in lines] for texts in pending], lines
        pending = [texts[count:] for texts in pending]
        line += count
    if any(pending):
        counts = [
            line - 1 + len(texts) + sum(len(block.texts) for block in stream)
            for texts, stream in zip(pending, streams, strict=True)
        ]
        raise UserError(_unequal(paths, counts))


def _unequal(paths: Sequence[Path], counts: Sequence[int]) -> str:
    longer = paths[counts[0] < counts[1]]
    return (
        f"{paths[0]} has {counts[0]:,} lines, {paths[1]} {counts[1]:,}: "
        f"line {min(counts) + 1:,} of {longer} has no partner; "
        "line n of one file must belong to line n of the other"
    )


def looks_paired(paths: Sequence[Path]) -> str | None:
    """Return why two files are sources and targets, in words; None if their names do not say so.

    They are if both are plain text with as many lines, two at least, and their names differ only in
    the language. Unequal numbers of lines are an error: a user who has lost a line should not end
    up with another task.
    """
    if len(paths) != 2 or not all(path.is_file() and not extension(path) for path in paths):
        return None
    words = _differing_words(*(str(path).removesuffix(".gz") for path in paths))
    if words is None or not all(map(_is_language_or_role, words)):
        return None
    counts = [count_lines(path) for path in paths]
    if counts[0] != counts[1]:
        raise UserError(f"{_unequal(paths, counts)}; otherwise: --task label, --task next")
    if counts[0] < 2:
        return None
    return f"two files of {counts[0]:,} lines, {words[0]} and {words[1]}, line by line"


def _is_language_or_role(word: str) -> bool:
    code = re.split(r"[_-]", word.lower())
    named = code[0] in LANGUAGES and all(2 <= len(part) <= 4 for part in code[1:])
    return named or word.lower() in ROLES


def _differing_words(one: str, two: str) -> tuple[str, str] | None:
    """Return the one part in which two names differ, if it can name a language or role."""
    parts = [re.split(r"([/._-])", name) for name in (one, two)]
    while all(parts) and parts[0][0] == parts[1][0]:
        parts = [part[1:] for part in parts]
    while all(parts) and parts[0][-1] == parts[1][-1]:
        parts = [part[:-1] for part in parts]
    words = "".join(parts[0]), "".join(parts[1])
    for word in words:
        letters = re.fullmatch(r"[^\W\d_]{2,}([_-][^\W\d_]{2,})?", word)  # en, source, pt-BR
        if not letters or word.lower() in PART_NAMES:
            return None
    return words


def count_lines(path: Path) -> int:
    """Count the lines of a file, the last one even without a line break."""
    count, last = 0, b"\n"
    for block in read_blocks(path):
        count += block.count(b"\n")
        last = block[-1:]
    return count + (last != b"\n")


@dataclass(frozen=True)
class Correlation:
    """How the first lines of two files are related, beyond what their order alone gives.

    `lengths` is the correlation of the logarithms of their lengths; `vocabulary` is by how many
    standard deviations lines that share trigrams in one file do so in the other.
    """

    lines: int
    lengths: float
    vocabulary: float

    @property
    def related(self) -> bool | None:
        """Whether line n of one file belongs to line n of the other; None if that is unclear."""
        if self.lines < MIN_LINES:
            return None
        if self.lengths >= RELATED[0] and self.vocabulary >= RELATED[1]:
            return True
        chance = max(UNRELATED[0], 3 * self.lines**-0.5)
        return False if self.lengths < chance and self.vocabulary < UNRELATED[1] else None

    @property
    def words(self) -> str:
        """The two numbers, for a message."""
        if self.lines < MIN_LINES:
            return f"{self.lines} lines are too few to tell"
        return (
            f"line lengths correlate with r = {self.lengths:.2f}, vocabulary with z = "
            f"{self.vocabulary:.1f}, over {self.lines} lines"
        )


def correlation(paths: Sequence[Path], encoding: str = UTF8) -> Correlation:
    """Test whether line n of one file belongs to line n of the other.

    The baseline is what lines give that are shifted against each other by a few: two sorted lists
    are similar without belonging to each other. Vocabulary is compared with the Hilbert-Schmidt
    independence criterion (Gretton et al. 2005), which needs no shared alphabet.
    """
    pairs = (
        pair
        for columns, _ in aligned(paths, SkippedRecords(), encoding)
        for pair in zip(*columns, strict=True)
        if all(map(str.strip, pair))
    )
    sample = list(islice(pairs, MAX_LINES))
    if len(sample) < MIN_LINES:
        return Correlation(len(sample), 0.0, 0.0)
    one, two = zip(*sample, strict=True)
    shifts = [0] + [shift for k in range(1, MAX_SHIFT + 1) for shift in (k, -k)]
    sizes = [np.log1p([len(text) for text in texts]) for texts in (one, two)]
    lengths = 0.0
    if min(float(np.ptp(size)) for size in sizes) > 0:
        by_shift = [np.corrcoef(sizes[0], np.roll(sizes[1], shift))[0, 1] for shift in shifts]
        lengths = float(by_shift[0] - max(0.0, np.mean(by_shift[1:])))
    a, b = _trigram_similarity(one), _trigram_similarity(two)
    products = [float((a * np.roll(b, (shift, shift), (0, 1))).sum()) for shift in shifts]
    deviation = float(np.std(products[1:]))
    vocabulary = (products[0] - float(np.mean(products[1:]))) / deviation if deviation else 0.0
    return Correlation(len(sample), lengths, vocabulary)


def _trigram_similarity(texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the centered cosine similarities (N, N) of the trigrams of lines, diagonal 0."""
    x = np.zeros((len(texts), N_FEATURES), np.float32)
    for i, text in enumerate(texts):
        padded = f" {text.lower()[:2000]} ".encode("utf-16-le", "replace")
        for j in range(0, max(2, len(padded) - 4), 2):
            x[i, zlib.crc32(padded[j : j + 6]) % N_FEATURES] = 1
    x -= x.mean(0)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    similarity: NDArray[np.float32] = x @ x.T
    np.fill_diagonal(similarity, 0)
    return similarity
