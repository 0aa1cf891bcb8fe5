"""Reports on a user's data before training: texts, labels, images and point clouds.

`inspect` counts symbols, lengths, duplicates and leaks of texts in one streaming pass; memory grows
with the number of distinct records (16 bytes each). Symbols are characters, plus one end marker per
record; running text has none. Duplicates and leaks in running text are counted in long lines,
because short ones ("Exit.", "* * *") repeat legitimately. For pairs, the symbols of sources and
targets are counted, and duplicates and leaks are those of sources.

`inspect_labelled` reports classes, values, missing targets, conflicts and leaks by split.
`media_report` reports on files of images or point clouds with labels or captions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.entropy import (
    AlphabetRow,
    ContextEntropy,
    CorpusSample,
    alphabet_rows,
    entropy_words,
)
from regard.data.sources import DataSource, SourceChunk
from regard.data.splits import (
    BUDGET,
    Leak,
    NearDuplicates,
    TextCounts,
    assign_hashes,
    cut_points,
    distinct,
    find,
    hashes,
    near_duplicates,
    overlap,
)
from regard.data.targets import (
    OUTPUT_KINDS,
    Targets,
    limits,
    number,
    of_classes,
    of_values,
    survey,
)
from regard.data.text_files import FileSet
from regard.recipe import SPLITS
from regard.tokenizers.tokenizer import without_regard

LONG_LINE = 40  # characters of a line of running text that counts as a duplicate
PIECE = 1 << 20  # characters at which a long line is cut before it is hashed
SHOWN = 10  # symbols and duplicates listed
NEAR_EMPTY = 1  # characters of a record that is almost empty
BARS = 12  # of the histogram
WORDLIKE = 0.05  # share of spaces; English has one every five or six characters


@dataclass(frozen=True)
class Lengths:
    """Lengths of records in characters; `histogram` has (from, to, records), with both ends."""

    min: int
    median: float
    mean: float
    p95: int
    max: int
    histogram: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Suggestion:
    """What to try first, and why; `tokens` and `model` are arguments of `train`."""

    task: str
    tokens: str
    model: str
    why: str


@dataclass(frozen=True)
class TextReport:
    """Statistics of texts; `leaks` are records of valid and test that are also in training."""

    files: int
    bytes: int
    format: str
    why: str
    records: int
    blank: int
    skipped: int
    problems: tuple[str, ...]
    remarks: tuple[str, ...]
    symbols: int
    alphabet_size: int  # distinct characters, without the end marker
    entropy_bits: float  # of the distribution of single symbols
    entropies: tuple[ContextEntropy, ...]  # by the number of symbols before
    sampled: bool  # whether these are of the beginning only
    words: int  # different ones at the beginning; 0 where blanks are too few to separate words
    common: tuple[tuple[str, int], ...]
    lengths: Lengths
    source_lengths: Lengths | None  # of pairs
    near_empty: int
    duplicates: int  # copies beyond the first
    ignored: tuple[str, ...]  # differences that do not count
    repeated: tuple[tuple[str, int], ...]
    leaks: dict[str, Leak]
    suggestion: Suggestion
    labels: LabelReport | None = None

    @property
    def alphabets(self) -> list[AlphabetRow]:
        """The alphabets of the lecture, with those of these texts in their places."""
        return alphabet_rows(self.alphabet_size, self.words)

    def to_json(self) -> dict[str, Any]:
        """Return a document of numbers, texts and lists; every number is finite."""
        document = asdict(self)
        document["common"] = [{"symbol": s, "count": n} for s, n in self.common]
        document["repeated"] = [{"text": s, "count": n} for s, n in self.repeated]
        for name, lengths in (("lengths", self.lengths), ("source_lengths", self.source_lengths)):
            if lengths is not None:
                document[name]["histogram"] = [
                    {"from": low, "to": high, "records": n} for low, high, n in lengths.histogram
                ]
        document["leaks"] = {split: leak.records for split, leak in self.leaks.items()}
        document["leaked"] = {
            split: [_short(text) for text in leak.examples] for split, leak in self.leaks.items()
        }
        for name in ("problems", "remarks", "ignored", "entropies"):
            document[name] = list(document[name])
        document["labels"] = self.labels.to_json() if self.labels else None
        return document

    @property
    def paired(self) -> bool:
        """Whether the texts are translations of sources."""
        return self.source_lengths is not None and self.labels is None

    @property
    def unit(self) -> str:
        """What is counted as one."""
        return "documents" if self.format == "text" else "pairs" if self.paired else "records"

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and values to print; the suggestion comes last."""
        excluded = f", {self.blank:,} blank and {self.skipped:,} damaged left out"
        symbols = "  ".join(
            f"{_visible(s) if s != ' ' else 'space'} {n / self.symbols:.1%}" for s, n in self.common
        )
        lengths = [("lengths", self.lengths)]
        if self.source_lengths is not None:
            lengths.append(("of sources" if self.paired else "of 2nd", self.source_lengths))
        copies = "repeated lines" if self.format == "text" else "copies"
        entropies = entropy_words(self.entropies, self.sampled)
        return [
            ("read as", f"{self.format} ({self.why})"),
            ("files", f"{self.files:,}, {self.bytes:,} bytes"),
            (self.unit, f"{self.records:,}" + (excluded if self.blank or self.skipped else "")),
            ("symbols", f"{self.symbols:,}"),
            ("alphabet", f"{self.alphabet_size:,} characters: {symbols}"),
            *zip(("entropy", *[""] * len(entropies)), entropies, strict=False),
            *((name, _length_words(x)) for name, x in lengths),
            (
                "same sources" if self.paired else copies,
                f"{self.duplicates:,}{without_regard(self.ignored)}",
            ),
            *(("", f"{n:,} × {_visible(text)}") for text, n in self.repeated[:3]),
            *((f"leaks to {split}", _leak_words(leak)) for split, leak in self.leaks.items()),
            *(
                (name, _visible(value))
                for name, value in (self.labels.rows() if self.labels else ())
            ),
            *(("note", _visible(line)) for line in self.remarks),
            *(("damaged", _visible(problem)) for problem in self.problems),
            ("suggestion", self.options),
            ("", self.suggestion.why),
        ]

    @property
    def options(self) -> str:
        """The suggestion as options of `regard train`."""
        task = "--task target " if self.paired else ""
        model = f" --model {self.suggestion.model}" if self.suggestion.model else ""
        return f"{task}--tokenizer {self.suggestion.tokens}{model}"

    def render(self, print_table: Callable[..., None]) -> None:
        """Print the report."""
        render(self, print_table)


class _Survey:
    """Statistics of a stream of texts."""

    def __init__(self, running: bool) -> None:
        self.characters: NDArray[np.int64] = np.zeros(0x110000, np.int64)  # by code point
        self.lengths: Counter[int] = Counter()
        self.source_lengths: Counter[int] = Counter()
        self.copies = TextCounts()
        self.sample = CorpusSample(running)

    def symbols(self, text: str) -> None:
        for start in range(0, len(text), PIECE):
            chunk = text[start : start + PIECE]
            if chunk.isascii():
                points: NDArray[Any] = np.frombuffer(chunk.encode(), np.uint8)
            else:
                points = np.frombuffer(chunk.encode("utf-32-le", errors="surrogatepass"), "<u4")
            counts = np.bincount(points)
            self.characters[: len(counts)] += counts

    def common(self) -> list[tuple[str, int]]:
        points = np.flatnonzero(self.characters)
        order = np.argsort(-self.characters[points], kind="stable")
        return [(chr(p), int(self.characters[p])) for p in points[order].tolist()]

    def entropy(self, ends: int) -> float:
        counts = np.append(self.characters[self.characters > 0], [ends] if ends else [])
        p = counts / counts.sum()
        return abs(float((p * np.log2(p)).sum()))


def inspect(
    source: FileSet,
    *,
    valid: FileSet | None = None,
    test: FileSet | None = None,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> TextReport:
    """Return a report on `source`, and on what it shares with `valid` and `test`.

    If one of these is not given, it is the part that the split of `source` would hold out.
    """
    survey = _Survey(running=source.format == "text")
    if source.format == "text":
        _survey_text(source, survey)
    else:
        for chunk in source.records():
            for texts in (chunk.texts, chunk.sources):
                survey.symbols("".join(texts))
                survey.sample.add(texts)
            survey.lengths.update(map(len, chunk.texts))
            survey.source_lengths.update(map(len, chunk.sources))
            survey.copies.add(source.keys(chunk))
    blank, skipped = source.blank, source.skipped
    problems, remarks = tuple(source.problems), tuple(source.remarks)  # before the next pass
    remarks = (source.form.note, *remarks) if source.form.note else remarks
    common = survey.common()
    records, characters = survey.lengths.total(), sum(n for _, n in common)
    pairs = survey.source_lengths.total()
    ends = 0 if source.format == "text" else records + pairs
    symbols = characters + ends
    spaces = dict(common).get(" ", 0) / symbols
    return TextReport(
        files=len(source.files),
        bytes=source.size,
        format=source.format,
        why=source.why,
        records=records,
        blank=blank,
        skipped=skipped,
        problems=problems,
        remarks=remarks,
        symbols=symbols,
        alphabet_size=len(common),
        entropy_bits=survey.entropy(ends),
        entropies=survey.sample.entropies(),
        sampled=survey.sample.full,
        words=survey.sample.words() if spaces > WORDLIKE else 0,
        common=tuple(common[:SHOWN]),
        lengths=_lengths(survey.lengths),
        source_lengths=_lengths(survey.source_lengths) if pairs else None,
        near_empty=sum(survey.lengths[n] for n in range(NEAR_EMPTY + 1)),
        duplicates=survey.copies.total - len(survey.copies.result()[0]),
        ignored=source.form.ignores if source.format != "text" else (),
        repeated=_repeated(source, survey.copies),
        leaks=_leaks(source, survey, (valid, test), (valid_fraction, test_fraction)),
        suggestion=suggest(symbols, len(common), spaces),
    )


def _survey_text(source: FileSet, survey: _Survey) -> None:
    for document in source.documents():
        length = 0
        for chunk in document.text():
            survey.symbols(chunk)
            survey.sample.add([chunk])
            length += len(chunk)
        survey.lengths[length] += 1
    if not survey.characters.any():
        next(source.text())  # raises the error for empty files
    for lines in _units(source):
        survey.copies.add(lines)


def _units(source: FileSet) -> Iterator[Sequence[str]]:
    """Yield the units of duplicates and leaks: records, or long lines of running text."""
    if source.format == "text":
        yield from (lines for _, lines in _long_lines(source))
    else:
        yield from map(source.keys, source.records())


def _long_lines(source: FileSet) -> Iterator[tuple[list[int], list[str]]]:
    """Yield the long lines of running text, and where each begins, in characters."""
    start = 0
    for document in source.documents():
        rest = ""
        for chunk in document.text():
            text = rest + chunk
            *lines, rest = text.split("\n")
            yield _keep_long(start, lines)
            start += len(text) - len(rest)
            if len(rest) > PIECE:
                yield _keep_long(start, [rest])
                start, rest = start + len(rest), ""
        yield _keep_long(start, [rest])
        start += len(rest)


def _keep_long(start: int, lines: list[str]) -> tuple[list[int], list[str]]:
    starts = start + np.cumsum([0, *(len(line) + 1 for line in lines)])
    keep = [i for i, line in enumerate(lines) if len(line) >= LONG_LINE]
    return starts[keep].tolist(), [lines[i] for i in keep]


def _repeated(source: FileSet, copies: TextCounts) -> tuple[tuple[str, int], ...]:
    values, counts = copies.result()
    top = np.argsort(-counts, kind="stable")[:SHOWN]
    times = {int(values[i]): int(counts[i]) for i in top.tolist() if counts[i] > 1}
    texts = find(_units(source), list(times)) if times else {}
    return tuple((_short(texts[value]), n) for value, n in times.items())


def _leaks(
    source: FileSet,
    survey: _Survey,
    given: tuple[FileSet | None, FileSet | None],
    fractions: tuple[float, float],
) -> dict[str, Leak]:
    """Return the leaks of valid and test, either given or held out by fractions."""
    held_out = [0.0 if files else share for files, share in zip(given, fractions, strict=True)]
    values, counts = survey.copies.result()
    running = source.format == "text"
    assigned = assign_hashes(values, held_out[0], held_out[1])
    total = int(survey.characters.sum())
    cuts = (*cut_points(total, held_out[0], held_out[1]), total)
    if not running:
        known = values[assigned == 0]
    else:
        known = distinct(_between(source, 0, cuts[0])) if any(held_out) else values
    leaks: dict[str, Leak] = {}
    for split, (name, other) in enumerate(zip(("valid", "test"), given, strict=True), start=1):
        if other is not None:
            leaks[name] = overlap(known, _units(other))
        elif held_out[split - 1] and running:
            leaks[name] = overlap(known, _between(source, cuts[split - 1], cuts[split]))
        elif held_out[split - 1]:  # splits are assigned by hash, so duplicates are in one split
            leaks[name] = Leak(0, 0, int(counts[assigned == split].sum()), ())
    return leaks


def _between(source: FileSet, low: int, high: int) -> Iterator[Sequence[str]]:
    """Yield the long lines of running text that are entirely in [low, high)."""
    for starts, lines in _long_lines(source):
        pairs = zip(starts, lines, strict=True)
        yield [line for start, line in pairs if low <= start and start + len(line) <= high]


def _lengths(counts: Counter[int]) -> Lengths:
    values = np.array(sorted(counts), np.int64)
    times = np.array([counts[int(v)] for v in values], np.int64)
    up_to = np.cumsum(times)
    n = int(up_to[-1])

    def ranked(rank: int) -> int:  # the length of the record at `rank`, from 1, in rising order
        return int(values[np.searchsorted(up_to, rank)])

    return Lengths(
        min=int(values[0]),
        median=(ranked((n + 1) // 2) + ranked(n // 2 + 1)) / 2,
        mean=float((values * times).sum() / n),
        p95=ranked(-(-95 * n // 100)),
        max=int(values[-1]),
        histogram=_histogram(values, times),
    )


def _histogram(
    values: NDArray[np.int64], times: NDArray[np.int64]
) -> tuple[tuple[int, int, int], ...]:
    """Return at most BARS bars of equal width, or of doubling width for a wide range."""
    low, high = int(values[0]), int(values[-1])
    if high > 50 * max(low, 1):
        edges = [low] + [2**k for k in range(low.bit_length(), high.bit_length())] + [high + 1]
    else:
        step = -(-(high - low + 1) // BARS)
        edges = [*range(low, high + 1, step), high + 1]
    cuts = np.searchsorted(values, edges)
    return tuple(
        (a, b - 1, int(times[i:j].sum()))
        for (a, i), (b, j) in pairwise(zip(edges, cuts.tolist(), strict=True))
    )


def suggest(symbols: int, alphabet: int, spaces: float) -> Suggestion:
    """Suggest what to try first, given the numbers of symbols and of different ones, and the share
    of spaces.
    """
    model, reason = "transformer", f"{symbols:,} symbols are enough to learn attention from"
    if symbols < 2_000:
        model, reason = "bigram", f"only {symbols:,} symbols: count them, a network would memorise"
    elif symbols < 20_000:
        model, reason = "lstm", f"{symbols:,} symbols are few, and recurrence needs fewer"
    language = spaces > WORDLIKE
    if alphabet <= 200 and (symbols < 20_000_000 or not language):
        tokens, why = "characters", f"an alphabet of {alphabet} characters is small"
    elif symbols >= 1_000_000:
        tokens, why = "bpe", "there is enough text to learn word pieces from"
    else:
        tokens, why = "bytes", f"{alphabet:,} different characters are many for so little text"
    return Suggestion("next", tokens, model, f"{why}; {reason}")


def _short(text: str, width: int = 80) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _visible(text: str) -> str:
    """Return text without control characters, which a terminal would execute."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def render(x: TextReport, print_table: Callable[..., None]) -> None:
    """Print a report: statistics, a histogram of lengths, alphabets and the suggestion."""
    print_table(["", ""], x.rows())
    if len(x.lengths.histogram) > 1:
        of_target = " of the target" if x.paired else ""
        title = f"\n{x.unit} by length{of_target} in characters"
        print_table(["", "", ""], _bars(x.lengths), title=title)
    print_table(
        ["alphabet", "size", "bits at most", "1,000 one-hot vectors"],
        [[row.name, row.size, row.bits, row.one_hot] for row in x.alphabets],
        title="\nalphabets by size",
    )


def _bars(lengths: Lengths) -> list[list[str]]:
    """Return a row for each bar of a histogram."""
    most = max(n for _, _, n in lengths.histogram)
    labels = [f"{a:,}" if a == b else f"{a:,}–{b:,}" for a, b, _ in lengths.histogram]
    width = max(map(len, labels))
    return [
        [label.rjust(width), "█" * -(-n * 40 // most), f"{n:,}"]
        for label, (_, _, n) in zip(labels, lengths.histogram, strict=True)
    ]


def _length_words(lengths: Lengths) -> str:
    return f"median {lengths.median:,.10g}, 95% up to {lengths.p95:,}"


def _leak_words(leak: Leak) -> str:
    share = leak.records / leak.total if leak.total else 0.0
    return f"{leak.records:,} of {leak.total:,} ({share:.1%}) are in the training part"


CLASSES_SHOWN = 12
FEW = 5  # metrics of a class with fewer records in a split are not reliable
SMALL = 20  # metrics of a smaller test split are not reliable
FOLDS = "`regard compare` with --folds 5 tests every record once"
EXAMPLES = 3
MAX_EXAMPLE = 200  # characters


@dataclass(frozen=True)
class ValueSummary:
    """Statistics of one column of numbers."""

    min: float
    mean: float
    max: float


@dataclass(frozen=True)
class LabelReport:
    """Statistics of labels by split. Classes count records or, for labels of positions, positions.

    `unseen` has the classes of each split that are not in training, `single` those with one record,
    and `conflicts` are inputs with different targets.
    """

    task: str
    why: str
    names: tuple[str, ...]
    records: dict[str, int]  # by split
    classes: dict[str, dict[str, dict[str, int]]]  # by target, class, split
    values: dict[str, ValueSummary]  # by target
    gaps: dict[str, int]  # by target
    single: tuple[str, ...]
    unseen: dict[str, dict[str, int]]
    places: dict[str, str]  # the file and line of the first of each class in `single` or `unseen`
    conflicts: int
    conflicting: tuple[str, ...]
    leaks: dict[str, Leak]
    near: dict[str, NearDuplicates]
    notes: tuple[str, ...]  # on how the splits were chosen
    concerns: tuple[tuple[str, str], ...] = ()  # topics and warnings
    copies: int = 0  # duplicates in all splits
    ignored: tuple[str, ...] = ()  # differences that do not count
    folds: bool = False  # whether every record is tested, in one of several folds
    chosen: bool = True  # whether the splits were not given by the user

    def to_json(self) -> dict[str, Any]:
        """Return a document of numbers, texts and lists; long texts are cut."""
        document = asdict(self)
        document["conflicting"] = [text[:MAX_EXAMPLE] for text in self.conflicting]
        for part in (*document["leaks"].values(), *document["near"].values()):
            part["examples"] = [
                [text[:MAX_EXAMPLE] for text in example]
                if isinstance(example, tuple)
                else example[:MAX_EXAMPLE]
                for example in part["examples"]
            ]
        return document

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and values to print."""
        splits = ", ".join(f"{n:,} {split}" for split, n in self.records.items())
        rows = [("task", f"{self.task} ({self.why})"), ("splits", splits)]
        for name, classes in self.classes.items():
            rows.append((name, f"{len(classes):,} classes, {self._listed(classes)}"))
        for name, value in self.values.items():
            rows.append((name, f"from {value.min:g} to {value.max:g}, mean {value.mean:g}"))
        if any(self.gaps.values()):
            missing = ", ".join(f"{n:,} of {name}" for name, n in self.gaps.items() if n)
            rows.append(("gaps", missing))
        rows += self._problems()
        for split, leak in self.near.items():
            rows.append((f"near in {split}", _near_words(leak)))
            rows += [("", f"{left[:30]} ~ {right[:30]}") for left, right in leak.examples[:1]]
        return rows

    def _listed(self, classes: dict[str, dict[str, int]]) -> str:
        """Return the most frequent classes with their counts in each split."""
        shown = []
        for label, _ in _totals(classes).most_common(CLASSES_SHOWN):
            counts = (f"{classes[label].get(split, 0):,}" for split in self.records)
            shown.append(f"{label} {'/'.join(counts)}")
        more = ", …" if len(classes) > CLASSES_SHOWN else ""
        return f"{'/'.join(self.records)}: {', '.join(shown)}{more}"

    def _located(self, label: str) -> str:
        return f"{label} ({self.places[label]})" if label in self.places else label

    def warnings(self) -> list[tuple[str, str]]:
        """Return topics and warnings for users who train on the data."""
        if not self.copies:
            return self._problems()
        total = sum(self.records.values())
        line = f"{self.copies:,} of {total:,} records repeat another one"
        line += without_regard(self.ignored)
        line += "; copies are in one split" if self.chosen else ""
        return [("copies", line), *self._problems()]

    def _few(self) -> list[str]:
        """Return classes with few records in a split (with folds: in total), rarest first."""
        rare = []
        for name, classes in self.classes.items():
            for label, counts in classes.items():
                by_split = [counts.get(split, 0) for split in self.records]
                total = sum(by_split)
                if total > 1 and (total if self.folds else min(by_split)) < FEW:
                    label_words = f"{label} of {name}" if len(self.classes) > 1 else label
                    rare.append((total, f"{label_words} {'/'.join(f'{n:,}' for n in by_split)}"))
        return [words for _, words in sorted(rare)]

    def _too_few(self) -> list[tuple[str, str]]:
        """Warn about splits with few records of a class, or few records at all."""
        rows = []
        few = self._few() if OUTPUT_KINDS[self.task].by_record else []
        if few:
            more = f" and {len(few) - CLASSES_SHOWN:,} more" if len(few) > CLASSES_SHOWN else ""
            where = "in all" if self.folds else "in a split"
            line = (
                f"fewer than {FEW} records {where} ({'/'.join(self.records)}): "
                f"{', '.join(few[:CLASSES_SHOWN])}{more}; metrics of these classes are not reliable"
            )
            rows.append(("small classes", line))
        tested = self.records.get(SPLITS[2], 0)
        if self.chosen and not self.folds and (few or tested < SMALL):
            counted = f"{tested:,} record{'s' * (tested != 1)}"
            why = f"it has {counted}" if tested < SMALL else "it has few records of some classes"
            rows.append(("test split", f"{why}; {FOLDS}"))
        return rows

    def _problems(self) -> list[tuple[str, str]]:
        rows = [("scaffolds", note) for note in self.notes] + self._too_few()
        if OUTPUT_KINDS[self.task].single and len(self.classes.get(self.names[0], {})) == 1:
            rows.append(("one class", f"all are {next(iter(self.classes[self.names[0]]))!r}"))
        if self.single:
            rows.append(("one example", ", ".join(map(self._located, self.single[:CLASSES_SHOWN]))))
        for split, classes in self.unseen.items():
            few = list(classes.items())[:CLASSES_SHOWN]
            shown = ", ".join(f"{self._located(label)} × {n:,}" for label, n in few)
            rows.append((f"unseen in {split}", f"{shown}: training has no such class"))
        if self.conflicts:
            shown = ", ".join(repr(text[:40]) for text in self.conflicting)
            line = f"{self.conflicts:,} inputs come with different targets: {shown}"
            rows.append(("conflicts", line))
        return rows + list(self.concerns)


def _totals(classes: dict[str, dict[str, int]]) -> Counter[str]:
    return Counter({label: sum(by_split.values()) for label, by_split in classes.items()})


def _near_words(leak: NearDuplicates) -> str:
    share = leak.records / leak.compared if leak.compared else 0.0
    return (
        f"{leak.records:,} of {leak.compared:,} distinct records ({share:.1%}) are near-duplicates "
        f"of one of {leak.training:,} in training"
    )


def inspect_labelled(sources: DataSource, why: str = "as asked") -> LabelReport:
    """Return a report on labelled records of a known task."""
    names = sources.train.names
    columns = survey((c for c in sources.chunks() if c.split == 0), len(names))
    targets = Targets.learn(sources.kind.name, names, columns, sources.recipe.positive)
    counts = _LabelCounts(targets)
    for chunk in sources.chunks():
        if chunk.split < len(SPLITS):
            counts.add(chunk)
    concerns = tuple(_concerns(sources, counts))
    return LabelReport(
        task=sources.kind.name,
        why=why,
        names=names,
        records={split: n for split in SPLITS if (n := counts.records[split])},
        classes=counts.by_class(),
        values=counts.ranges(),
        gaps=dict(zip(names, counts.gaps, strict=True)),
        single=counts.single(),
        unseen=counts.unseen(),
        places=counts.places(),
        conflicts=len(counts.conflicts),
        conflicting=tuple(counts.conflicts.values())[:EXAMPLES],
        leaks=sources.overlaps(),
        near=_near(sources),
        notes=sources.plan.notes if sources.plan else (),
        concerns=concerns,
        copies=sum(counts.records.values()) - len(counts.by_hash),
        ignored=sources.form.ignores,
        folds=bool(sources.recipe.folds),
        chosen=all(sources.fractions) and not (sources.plan and sources.plan.columns),
    )


def _concerns(sources: DataSource, counts: _LabelCounts) -> Iterator[tuple[str, str]]:
    """Yield topics and warnings about the targets of all splits."""
    if counts.targets.kind.by_record:
        for name, classes in counts.by_class().items():
            spaced = sources.train.spaced
            yield from of_classes(name, _totals(classes), counts.first, spaced)
    for i, (name, values) in enumerate(zip(counts.targets.names, counts.values, strict=True)):
        if values and (line := of_values(name, np.array(values))):
            bounds = limits(np.array(values))
            assert bounds is not None
            yield "outliers", f"{line} ({_first_beyond(sources, i, bounds)})"


def _first_beyond(sources: DataSource, i: int, bounds: tuple[float, float]) -> str:
    """Return the location of the first value of target i outside the bounds."""
    for chunk in sources.chunks():
        for row, cells in enumerate(chunk.targets if chunk.split < len(SPLITS) else ()):
            value = number(cells[i])
            if value is not None and not bounds[0] <= value <= bounds[1]:
                return chunk.place(row) if chunk.place else ""
    return ""


class _LabelCounts:
    """Statistics of a stream of labelled chunks."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self.records: Counter[str] = Counter()
        self.classes: list[Counter[tuple[str, str]]] = [Counter() for _ in targets.names]
        self.gaps = [0 for _ in targets.names]
        self.values = [array("d") for _ in targets.names]
        self.first: dict[str, str] = {}  # location of the first record of each class
        self.by_hash: dict[int, tuple[str, ...]] = {}  # targets of each input
        self.conflicts: dict[int, str] = {}

    def add(self, chunk: SourceChunk) -> None:
        split = SPLITS[chunk.split]
        self.records[split] += len(chunk.texts)
        for key, text, cells in zip(
            hashes(chunk.keys).tolist(), chunk.texts, chunk.targets, strict=True
        ):
            if self.by_hash.setdefault(key, cells) != cells:
                self.conflicts.setdefault(key, text if isinstance(text, str) else "a picture")
            for i, cell in enumerate(cells):
                self._count(i, cell, split)
        if chunk.place is not None and self.targets.kind.by_record:
            for row, cells in enumerate(chunk.targets):
                for cell in cells:
                    if cell and cell not in self.first:
                        self.first[cell] = chunk.place(row)

    def _count(self, i: int, cell: str, split: str) -> None:
        if not cell:
            self.gaps[i] += 1
            return
        kind = self.targets.kind
        self.values[i].extend(kind.values(cell))
        for label, n in kind.counts(cell).items():
            self.classes[i][label, split] += n

    def by_class(self) -> dict[str, dict[str, dict[str, int]]]:
        by_class: dict[str, dict[str, dict[str, int]]] = {}
        for name, counts in zip(self.targets.names, self.classes, strict=True):
            for (label, split), n in sorted(counts.items()):
                by_class.setdefault(name, {}).setdefault(label, {})[split] = n
        return by_class

    def ranges(self) -> dict[str, ValueSummary]:
        columns = zip(self.targets.names, self.values, strict=True)
        return {
            name: ValueSummary(min(values), sum(values) / len(values), max(values))
            for name, values in columns
            if values
        }

    def single(self) -> tuple[str, ...]:
        """Return the classes with one record."""
        columns = map(_totals, self.by_class().values())
        return tuple(label for totals in columns for label, n in totals.items() if n == 1)

    def places(self) -> dict[str, str]:
        """Return the locations of classes with one record or without training records."""
        rare = {*self.single(), *(label for classes in self.unseen().values() for label in classes)}
        return {label: location for label, location in self.first.items() if label in rare}

    def unseen(self) -> dict[str, dict[str, int]]:
        """Return the classes of each split that are not in training."""
        unseen: dict[str, dict[str, int]] = {}
        for counts in self.classes:
            for (label, split), n in sorted(counts.items()):
                if not counts[label, SPLITS[0]]:
                    unseen.setdefault(split, {})[label] = n
        return unseen


def _near(sources: DataSource) -> dict[str, NearDuplicates]:
    """Return the near-duplicates of training texts in each other split."""
    if not sources.modality.reads_text:
        return {}
    texts: list[list[str]] = [[], [], []]
    sizes = [0, 0, 0]
    for chunk in sources.chunks():
        if chunk.split < len(SPLITS) and sizes[chunk.split] < 4 * BUDGET:
            texts[chunk.split] += chunk.keys
            sizes[chunk.split] += sum(map(len, chunk.keys))
    return {
        name: near_duplicates(texts[0], texts[split])
        for split, name in enumerate(SPLITS[1:], start=1)
        if texts[split]
    }


ITEMS_SHOWN = 5  # sizes of items listed


@dataclass(frozen=True, kw_only=True)
class MediaReport(ABC):
    """Report on images or point clouds; `copies` are duplicates in training."""

    format: str
    why: str
    records: int
    skipped: int
    problems: list[str]
    remarks: list[str]
    copies: int
    leaks: dict[str, Leak]
    labels: LabelReport | None = None
    captions: CaptionReport | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a document of numbers, texts and lists."""
        nested = ("labels", "captions", "leaks")
        names = (name for name in self.__dataclass_fields__ if name not in nested)
        document = {name: getattr(self, name) for name in names}
        document["leaks"] = {split: leak.records for split, leak in self.leaks.items()}
        if self.labels is not None:
            return document | {"labels": self.labels.to_json(), "task": self.labels.task}
        assert self.captions is not None
        return document | {"captions": asdict(self.captions), "task": "target"}

    @abstractmethod
    def rows(self) -> list[tuple[str, str]]:
        """Return what to print: names and values."""

    def render(self, print_table: Callable[..., None]) -> None:
        """Print the report as a table."""
        print_table([self.format, ""], [list(row) for row in self.rows()])

    def rest(self) -> list[tuple[str, str]]:
        """Return the rows to print last: duplicates, damage, leaks, labels or captions."""
        rows = []
        if self.copies:
            rows.append(("copies", f"{self.copies:,} in training"))
        if self.skipped:
            rows.append(("damaged", f"{self.skipped:,}; first: {self.problems[0]}"))
        rows += [("note", line) for line in self.remarks]
        for split, leak in self.leaks.items():
            if leak.records:
                rows.append((f"leaks in {split}", f"{leak.records:,} are in training too"))
        targets = self.labels or self.captions
        return rows + (targets.rows() if targets else [])


@dataclass
class CaptionReport:
    """Statistics of captions by split."""

    records: dict[str, int] = field(default_factory=dict)
    different: int = 0
    characters: int = 0
    words: int = 0  # different ones, separated by spaces
    longest: str = ""
    examples: list[str] = field(default_factory=list)

    def rows(self) -> list[tuple[str, str]]:
        """Return the names and values to print."""
        total = sum(self.records.values())
        splits = ", ".join(f"{split} {n:,}" for split, n in self.records.items())
        mean = self.characters / max(1, total)
        return [
            ("task", "target: a caption for each picture"),
            ("splits", splits),
            ("captions", f"{self.different:,} different ones of {self.words:,} words"),
            ("length", f"{mean:.0f} characters; the longest {self.longest[:60]!r}"),
            ("examples", "; ".join(self.examples)),
        ]


def _caption_report(sources: DataSource) -> CaptionReport:
    report, different, words = CaptionReport(), set(), set()
    for chunk in sources.chunks():
        if chunk.split >= len(SPLITS):
            continue
        name = SPLITS[chunk.split]
        report.records[name] = report.records.get(name, 0) + len(chunk.texts)
        for text in chunk.texts:
            different.add(text)
            words.update(text.split())
            report.characters += len(text)
            report.longest = max(report.longest, text, key=len)
    report.records = {split: report.records[split] for split in SPLITS if split in report.records}
    report.different, report.words = len(different), len(words)
    report.examples = sorted(different)[:: max(1, len(different) // 3)][:3]
    return report


def media_report(sources: DataSource, why: str) -> dict[str, Any]:
    """Return the fields that reports on all kinds of media share."""
    known: set[int] = set()
    copies = records = 0
    for chunk in sources.chunks():
        records += len(chunk.texts)
        if chunk.split == 0:
            for key in hashes(chunk.keys).tolist():
                copies += key in known
                known.add(key)
    labels = None if sources.paired else inspect_labelled(sources, why)
    file_sets = [files for files in (sources.train, *sources.held_out_files) if files is not None]
    return {
        "format": sources.train.format,
        "why": sources.train.why,
        "records": records,
        "skipped": sum(files.skipped for files in file_sets),
        "problems": [problem for files in file_sets for problem in files.problems],
        "remarks": sources.remarks,
        "copies": copies,
        "leaks": sources.overlaps() if labels is None else labels.leaks,
        "labels": labels,
        "captions": _caption_report(sources) if labels is None else None,
    }


def report_text(sources: DataSource, why: str) -> TextReport:
    """Return the report on texts, with their labels if there are any."""
    recipe = sources.recipe
    report = inspect(
        sources.train,
        valid=sources.held_out_files[0],
        test=sources.held_out_files[1],
        valid_fraction=recipe.valid_fraction,
        test_fraction=recipe.test_fraction,
    )
    if not sources.roles.labels:
        return report
    labels = inspect_labelled(sources, why)
    return replace(report, labels=labels, leaks=labels.leaks)
