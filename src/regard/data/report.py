"""What is in a user's data, before anything is trained on it, and what to train.

One streaming pass counts symbols, lengths and copies; memory grows with the number of distinct
records (16 bytes each), not with their length. Copies and leaks in running text are counted in
lines, where short ones ("Exit.", "* * *") repeat by right and are left alone.

The unit is the symbol: a character, and one end marker for every record; running text has no ends.
Of pairs, both sides are counted, and copies and leaks are those of sources.

What is asked of labelled records, side by side: classes, values, gaps, conflicts, leaks.

What is in files of pictures or point clouds: how many, how large, copies, leaks, and labels or
captions.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.data.labelled import LabelledFiles
from regard.data.leakage import BUDGET, NearDuplicates, near_duplicates
from regard.data.point_clouds import SYMBOLS
from regard.data.readers import FileSet
from regard.data.sources import SPLITS, DataSource, SourceChunk
from regard.data.splits import (
    Leak,
    SplitCounts,
    cut_points,
    distinct,
    find,
    hashes,
    overlap,
    sides_of,
)
from regard.data.targets import (
    LABELLED,
    OUTPUT_KINDS,
    UNDECIDED,
    Targets,
    guess,
    limits,
    number,
    of_classes,
    of_values,
    survey,
    tallied,
)
from regard.errors import printable
from regard.tokenizers.patches import Patches
from regard.tokenizers.points import Points
from regard.tokenizers.tokenizer import without_regard

LONG_LINE = 40  # characters from which a repeated line of running text is a copy, not a habit
PIECE = 1 << 20  # characters at which an endless line is cut before it is hashed
SHOWN = 10  # symbols, and copies, listed
NEAR_EMPTY = 1  # characters of a record with next to nothing in it
BARS = 12  # of the histogram


@dataclass(frozen=True)
class Lengths:
    """How long records are, in characters; `histogram` has (from, to, records), both ends in."""

    min: int
    median: float
    mean: float
    p95: int
    max: int
    histogram: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Suggestion:
    """What to try first, and why; `tokens` and `model` are names that `train` takes."""

    task: str
    tokens: str
    model: str
    why: str


@dataclass(frozen=True)
class TextReport:
    """What `inspect` found. `leaks` counts, for valid and test, what training has seen already."""

    files: int
    bytes: int
    format: str
    why: str
    records: int
    blank: int
    skipped: int
    problems: tuple[str, ...]
    remarks: tuple[str, ...]  # what else to know of the records, those left out among it
    symbols: int
    alphabet_size: int  # distinct characters; the end marker is not one
    entropy_bits: float  # per symbol, of symbols drawn without context
    common: tuple[tuple[str, int], ...]
    lengths: Lengths
    source_lengths: Lengths | None  # where records are the targets of pairs
    near_empty: int
    duplicates: int  # copies beyond the first
    ignored: tuple[str, ...]  # without regard to what they are compared
    repeated: tuple[tuple[str, int], ...]
    leaks: dict[str, Leak]
    suggestion: Suggestion
    labels: LabelReport | None = None  # of labelled records

    def to_json(self) -> dict[str, Any]:
        """A document of plain numbers, texts and lists, every number finite."""
        document = asdict(self)
        document["common"] = [{"symbol": s, "count": n} for s, n in self.common]
        document["repeated"] = [{"text": s, "count": n} for s, n in self.repeated]
        for name, lengths in (("lengths", self.lengths), ("source_lengths", self.source_lengths)):
            if lengths is not None:
                document[name]["histogram"] = [
                    {"from": low, "to": high, "records": n} for low, high, n in lengths.histogram
                ]
        document["leaks"] = {side: leak.records for side, leak in self.leaks.items()}
        document["leaked"] = {
            side: [_short(text) for text in leak.examples] for side, leak in self.leaks.items()
        }
        for name in ("problems", "remarks", "ignored"):
            document[name] = list(document[name])
        document["labels"] = self.labels.to_json() if self.labels else None
        return document


class _Survey:
    """Counts that grow as texts stream by."""

    def __init__(self) -> None:
        self.characters: NDArray[np.int64] = np.zeros(0x110000, np.int64)  # by code point
        self.lengths: Counter[int] = Counter()
        self.source_lengths: Counter[int] = Counter()
        self.copies = SplitCounts()

    def symbols(self, text: str) -> None:
        for start in range(0, len(text), PIECE):
            piece = text[start : start + PIECE]
            if piece.isascii():
                points: NDArray[Any] = np.frombuffer(piece.encode(), np.uint8)
            else:
                points = np.frombuffer(piece.encode("utf-32-le", errors="surrogatepass"), "<u4")
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
    """Look through `source`, and for what it shares with `valid` and `test`.

    Where one of these is not given, it is the part that the split of `source` would hold out.
    """
    survey = _Survey()
    if source.format == "text":
        _survey_text(source, survey)
    else:
        for chunk in source.records():
            for texts in (chunk.texts, chunk.sources):
                survey.symbols("".join(texts))
            survey.lengths.update(map(len, chunk.texts))
            survey.source_lengths.update(map(len, chunk.sources))
            survey.copies.add(source.keys(chunk))
    blank, skipped = source.blank, source.skipped
    problems, remarks = tuple(source.problems), tuple(source.remarks)  # the next pass starts anew
    remarks = (source.form.note, *remarks) if source.form.note else remarks
    common = survey.common()
    records, characters = survey.lengths.total(), sum(n for _, n in common)
    pairs = survey.source_lengths.total()
    ends = 0 if source.format == "text" else records + pairs
    symbols = characters + ends
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
        common=tuple(common[:SHOWN]),
        lengths=_lengths(survey.lengths),
        source_lengths=_lengths(survey.source_lengths) if pairs else None,
        near_empty=sum(survey.lengths[n] for n in range(NEAR_EMPTY + 1)),
        duplicates=survey.copies.total - len(survey.copies.result()[0]),
        ignored=source.form.ignores if source.format != "text" else (),
        repeated=_repeated(source, survey.copies),
        leaks=_leaks(source, survey, (valid, test), (valid_fraction, test_fraction)),
        suggestion=suggest(symbols, len(common), dict(common).get(" ", 0) / symbols),
    )


def _survey_text(source: FileSet, survey: _Survey) -> None:
    for document in source.documents():
        length = 0
        for piece in document.text():
            survey.symbols(piece)
            length += len(piece)
        survey.lengths[length] += 1
    if not survey.characters.any():
        next(source.text())  # says that there is nothing
    for lines in _units(source):
        survey.copies.add(lines)


def _units(source: FileSet) -> Iterator[Sequence[str]]:
    """What copies and leaks are counted in: records, or the long lines of running text."""
    if source.format == "text":
        yield from (lines for _, lines in _long_lines(source))
    else:
        yield from map(source.keys, source.records())


def _long_lines(source: FileSet) -> Iterator[tuple[list[int], list[str]]]:
    """The long lines of running text, and where each begins in the whole, in characters."""
    start = 0
    for document in source.documents():
        held = ""
        for piece in document.text():
            text = held + piece
            *lines, held = text.split("\n")
            yield _keep_long(start, lines)
            start += len(text) - len(held)
            if len(held) > PIECE:
                yield _keep_long(start, [held])
                start, held = start + len(held), ""
        yield _keep_long(start, [held])
        start += len(held)


def _keep_long(start: int, lines: list[str]) -> tuple[list[int], list[str]]:
    starts = start + np.cumsum([0, *(len(line) + 1 for line in lines)])
    keep = [i for i, line in enumerate(lines) if len(line) >= LONG_LINE]
    return starts[keep].tolist(), [lines[i] for i in keep]


def _repeated(source: FileSet, copies: SplitCounts) -> tuple[tuple[str, int], ...]:
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
    """For valid and test, given or held out: what of it training has seen."""
    held = [0.0 if other else fraction for other, fraction in zip(given, fractions, strict=True)]
    values, counts = survey.copies.result()
    running = source.format == "text"
    sides = sides_of(values, held[0], held[1])
    total = int(survey.characters.sum())
    cuts = (*cut_points(total, held[0], held[1]), total)
    if not running:
        known = values[sides == 0]
    else:
        known = distinct(_between(source, 0, cuts[0])) if any(held) else values
    found: dict[str, Leak] = {}
    for side, (name, other) in enumerate(zip(("valid", "test"), given, strict=True), start=1):
        if other is not None:
            found[name] = overlap(known, _units(other))
        elif held[side - 1] and running:
            found[name] = overlap(known, _between(source, cuts[side - 1], cuts[side]))
        elif held[side - 1]:  # sides go by hash, so no copy stands on two
            found[name] = Leak(0, 0, int(counts[sides == side].sum()), ())
    return found


def _between(source: FileSet, low: int, high: int) -> Iterator[Sequence[str]]:
    """The long lines of running text that lie wholly in [low, high)."""
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
    """At most BARS bars of equal width, or of doubling width where lengths span several orders."""
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
    """What to try first on data of this many symbols and distinct ones, a share of them spaces."""
    model, reason = "transformer", f"{symbols:,} symbols are enough to learn attention from"
    if symbols < 2_000:
        model, reason = "bigram", f"only {symbols:,} symbols: count them, a network would memorise"
    elif symbols < 20_000:
        model, reason = "lstm", f"{symbols:,} symbols are few, and recurrence needs fewer"
    language = spaces > 0.05  # English has a space every five or six characters
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
    """Text that a terminal shows and does not obey."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def render(inspection: TextReport, console: Console) -> None:
    """Print what was found: the figures, the lengths as bars, the copies, the suggestion."""
    x = inspection
    grid = Table.grid(padding=(0, 2))
    paired = x.source_lengths is not None and x.labels is None
    unit = "documents" if x.format == "text" else "pairs" if paired else "records"
    left_out = f", {x.blank:,} blank and {x.skipped:,} damaged left out"
    copies = "repeated lines" if x.format == "text" else "same sources" if paired else "copies"
    symbols = "  ".join(
        f"{_visible(s) if s != ' ' else 'space'} {n / x.symbols:.1%}" for s, n in x.common
    )
    task = "--task target " if paired else ""
    model = f" --model {x.suggestion.model}" if x.suggestion.model else ""
    lengths = (("lengths", x.lengths), ("of sources" if paired else "of 2nd", x.source_lengths))
    rows = [
        ("read as", f"{x.format} ({x.why})"),
        ("files", f"{x.files:,}, {x.bytes:,} bytes"),
        (unit, f"{x.records:,}" + (left_out if x.blank or x.skipped else "")),
        ("symbols", f"{x.symbols:,}, {x.entropy_bits:.3f} bits each without context"),
        ("alphabet", f"{x.alphabet_size:,} characters: {symbols}"),
        *((name, _length_words(y)) for name, y in lengths if y is not None),
        (copies, f"{x.duplicates:,}" + without_regard(x.ignored)),
        *(("", f"{n:,} × {_visible(text)}") for text, n in x.repeated[:3]),
        *((f"leaks to {side}", _leak_words(leak)) for side, leak in x.leaks.items()),
        *((name, _visible(value)) for name, value in (x.labels.rows() if x.labels else ())),
        *(("note", _visible(line)) for line in x.remarks),
        *(("damaged", _visible(problem)) for problem in x.problems),
        ("suggestion", f"{task}--tokens {x.suggestion.tokens}{model}"),
        ("", x.suggestion.why),
    ]
    for name, value in rows:
        grid.add_row(Text(name, style="bold"), Text(printable(value)))
    console.print(grid)
    if len(x.lengths.histogram) > 1:
        side = " of the target" if paired else ""
        console.print(Text(f"\n{unit} by length{side} in characters", style="bold"))
        console.print(_bars(x.lengths))


def _bars(lengths: Lengths) -> Table:
    bars = Table.grid(padding=(0, 2))
    most = max(n for _, _, n in lengths.histogram)
    for low, high, n in lengths.histogram:
        label = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        bars.add_row(Text(label, justify="right"), Text("█" * -(-n * 40 // most)), Text(f"{n:,}"))
    return bars


def _length_words(lengths: Lengths) -> str:
    return f"median {lengths.median:,.10g}, 95% up to {lengths.p95:,}"


def _leak_words(leak: Leak) -> str:
    share = leak.records / leak.total if leak.total else 0.0
    return f"{leak.records:,} of {leak.total:,} ({share:.1%}) are in the training part"


CLASSES_SHOWN = 12  # classes listed
FEW = 5  # records of a class in a split below which its metrics say little
SMALL = 20  # records of a test split below which all metrics do
FOLDS = "`regard compare` with --folds 5 tests every record once"
EXAMPLES = 3
LONG = 200  # characters of an example


@dataclass(frozen=True)
class ValueSummary:
    """The numbers of one column."""

    min: float
    mean: float
    max: float


@dataclass(frozen=True)
class LabelReport:
    """What `examine` found. Classes count records; those of positions, positions.

    `unseen` has, by side, the classes that training lacks; `single` those that one record has, over
    all sides; `conflicts` are inputs that come with different targets.
    """

    task: str
    why: str
    names: tuple[str, ...]
    records: dict[str, int]  # by side
    classes: dict[str, dict[str, dict[str, int]]]  # by target, class, side
    values: dict[str, ValueSummary]  # by target
    gaps: dict[str, int]  # by target
    single: tuple[str, ...]
    unseen: dict[str, dict[str, int]]
    places: dict[str, str]  # the file and line of the first of each class in `single` or `unseen`
    conflicts: int
    conflicting: tuple[str, ...]
    leaks: dict[str, Leak]
    near: dict[str, NearDuplicates]
    notes: tuple[str, ...]  # on how the sides were decided
    concerns: tuple[tuple[str, str], ...] = ()  # what looks wrong with the targets: see concerns
    copies: int = 0  # records that repeat another one, in any split
    ignored: tuple[str, ...] = ()  # without regard to what they are compared
    folds: bool = False  # is every record tested, one fold after the other?
    chosen: bool = True  # were the splits chosen here, and not given by the user?

    def to_json(self) -> dict[str, Any]:
        """A document of plain numbers, texts and lists, every number finite; long texts are cut."""
        document = asdict(self)
        document["conflicting"] = [text[:LONG] for text in self.conflicting]
        for part in (*document["leaks"].values(), *document["near"].values()):
            part["examples"] = [
                [text[:LONG] for text in found] if isinstance(found, tuple) else found[:LONG]
                for found in part["examples"]
            ]
        return document

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        by_side = ", ".join(f"{n:,} {side}" for side, n in self.records.items())
        rows = [("task", f"{self.task} ({self.why})"), ("sides", by_side)]
        for name, found in self.classes.items():
            rows.append((f"{name}", f"{len(found):,} classes, {self._listed(found)}"))
        for name, value in self.values.items():
            said = f"from {value.min:g} to {value.max:g}, mean {value.mean:g}"
            rows.append((f"{name}", said))
        if any(self.gaps.values()):
            said = ", ".join(f"{n:,} of {name}" for name, n in self.gaps.items() if n)
            rows.append(("gaps", said))
        rows += self._troubles()
        for side, leak in self.near.items():
            rows.append((f"near in {side}", _near_words(leak)))
            rows += [("", f"{one[:30]} ~ {two[:30]}") for one, two in leak.examples[:1]]
        return rows

    def _listed(self, found: dict[str, dict[str, int]]) -> str:
        """The commonest classes with their counts in each split."""
        shown = []
        for label, _ in tallied(found).most_common(CLASSES_SHOWN):
            each = (f"{found[label].get(side, 0):,}" for side in self.records)
            shown.append(f"{label} {'/'.join(each)}")
        return f"{'/'.join(self.records)}: {', '.join(shown)}" + ", …" * (
            len(found) > CLASSES_SHOWN
        )

    def _placed(self, label: str) -> str:
        return f"{label} ({self.places[label]})" if label in self.places else label

    def warnings(self) -> list[tuple[str, str]]:
        """What one who trains on this should know: names and values, a line each."""
        if not self.copies:
            return self._troubles()
        total = sum(self.records.values())
        line = f"{self.copies:,} of {total:,} records repeat another one"
        line += without_regard(self.ignored)
        line += "; copies are in one split" if self.chosen else ""
        return [("copies", line), *self._troubles()]

    def _few(self) -> list[str]:
        """The classes of which a split has few records, the rarest first, with the counts of each
        split; where every record is tested, those that are rare in all.
        """
        found = []
        for name, classes in self.classes.items():
            for label, counts in classes.items():
                each = [counts.get(side, 0) for side in self.records]
                total = sum(each)
                if total > 1 and (total if self.folds else min(each)) < FEW:
                    words = f"{label} of {name}" if len(self.classes) > 1 else label
                    found.append((total, f"{words} {'/'.join(f'{n:,}' for n in each)}"))
        return [words for _, words in sorted(found)]

    def _too_few(self) -> list[tuple[str, str]]:
        """Warn of splits with few records of a class, or few records at all."""
        rows = []
        few = self._few() if OUTPUT_KINDS[self.task].by_record else []
        if few:
            more = f" and {len(few) - CLASSES_SHOWN:,} more" if len(few) > CLASSES_SHOWN else ""
            where = "in all" if self.folds else "in a split"
            line = f"fewer than {FEW} records {where} ({'/'.join(self.records)}): "
            line += (
                f"{', '.join(few[:CLASSES_SHOWN])}{more}; metrics of these classes are not reliable"
            )
            rows.append(("small classes", line))
        tested = self.records.get(SPLITS[2], 0)
        if self.chosen and not self.folds and (few or tested < SMALL):
            counted = f"{tested:,} record{'s' * (tested != 1)}"
            why = f"it has {counted}" if tested < SMALL else "it has few records of some classes"
            rows.append(("test split", f"{why}; {FOLDS}"))
        return rows

    def _troubles(self) -> list[tuple[str, str]]:
        rows = [("scaffolds", note) for note in self.notes] + self._too_few()
        if OUTPUT_KINDS[self.task].single and len(self.classes.get(self.names[0], {})) == 1:
            rows.append(("one class", f"all are {next(iter(self.classes[self.names[0]]))!r}"))
        if self.single:
            rows.append(("one example", ", ".join(map(self._placed, self.single[:CLASSES_SHOWN]))))
        for side, lost in self.unseen.items():
            few = list(lost.items())[:CLASSES_SHOWN]
            said = ", ".join(f"{self._placed(label)} × {n:,}" for label, n in few)
            rows.append((f"unseen in {side}", f"{said}: training has no such class"))
        if self.conflicts:
            said = ", ".join(repr(text[:40]) for text in self.conflicting)
            rows.append(
                ("conflicts", f"{self.conflicts:,} inputs come with different targets: {said}")
            )
        return rows + list(self.concerns)


def _near_words(leak: NearDuplicates) -> str:
    share = leak.records / leak.compared if leak.compared else 0.0
    return (
        f"{leak.records:,} of {leak.compared:,} distinct records ({share:.1%}) are near-duplicates "
        f"of one of {leak.training:,} in training"
    )


def task_of(source: LabelledFiles) -> tuple[str, str]:
    """The task that labelled records suggest, and why; `target` where they are pairs of texts."""
    source.kind = UNDECIDED
    task, why = guess(survey(source.examples(), len(source.names)), source.names)
    if task == "target" and not source.tells:  # one text a record
        return "label", why
    return task, why


def inspect_labelled(sources: DataSource, why: str = "as asked") -> LabelReport:
    """Look through labelled records of a settled task, side by side."""
    assert isinstance(sources.train, LabelledFiles) and sources.task in LABELLED
    names = sources.train.names
    columns = survey((p for p in sources.pieces() if p.side == 0), len(names))
    targets = Targets.learn(sources.task, names, columns, sources.recipe.positive)
    tally = _Tally(targets)
    for piece in sources.pieces():
        if piece.side < len(SPLITS):
            tally.add(piece)
    concerns = tuple(_concerns(sources, tally))
    return LabelReport(
        task=sources.task,
        why=why,
        names=names,
        records={side: n for side in SPLITS if (n := tally.records[side])},
        classes=tally.by_class(),
        values=tally.ranges(),
        gaps=dict(zip(names, tally.gaps, strict=True)),
        single=tally.single(),
        unseen=tally.unseen(),
        places=tally.places(),
        conflicts=len(tally.conflicts),
        conflicting=tuple(tally.conflicts.values())[:EXAMPLES],
        leaks=sources.overlaps(),
        near=_near(sources),
        notes=sources.plan.notes if sources.plan else (),
        concerns=concerns,
        copies=sum(tally.records.values()) - len(tally.met),
        ignored=sources.form.ignores,
        folds=bool(sources.recipe.folds),
        chosen=all(sources.fractions) and not (sources.plan and sources.plan.columns),
    )


def _concerns(sources: DataSource, tally: _Tally) -> Iterator[tuple[str, str]]:
    """What looks wrong with the targets of all sides."""
    assert isinstance(sources.train, LabelledFiles)
    if tally.targets.kind.by_record:
        for name, found in tally.by_class().items():
            spaced = sources.train.spaced
            yield from of_classes(name, tallied(found), tally.first, spaced)
    for i, (name, values) in enumerate(zip(tally.targets.names, tally.values, strict=True)):
        if values and (line := of_values(name, np.array(values))):
            bounds = limits(np.array(values))
            assert bounds is not None
            yield "outliers", f"{line} ({_first_beyond(sources, i, bounds)})"


def _first_beyond(sources: DataSource, i: int, bounds: tuple[float, float]) -> str:
    """Where the first value of target i stands that is not within some bounds."""
    for piece in sources.pieces():
        for row, cells in enumerate(piece.targets if piece.side < len(SPLITS) else ()):
            value = number(cells[i])
            if value is not None and not bounds[0] <= value <= bounds[1]:
                return piece.place(row) if piece.place else ""
    return ""


class _Tally:
    """Counts that grow piece by piece."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets
        self.records: Counter[str] = Counter()
        self.classes: list[Counter[tuple[str, str]]] = [Counter() for _ in targets.names]
        self.gaps = [0 for _ in targets.names]
        self.values = [array("d") for _ in targets.names]
        self.first: dict[str, str] = {}  # where each class first stands
        self.met: dict[int, tuple[str, ...]] = {}
        self.conflicts: dict[int, str] = {}

    def add(self, piece: SourceChunk) -> None:
        side = SPLITS[piece.side]
        self.records[side] += len(piece.texts)
        for key, text, cells in zip(
            hashes(piece.keys).tolist(), piece.texts, piece.targets, strict=True
        ):
            if self.met.setdefault(key, cells) != cells:
                self.conflicts.setdefault(key, text if isinstance(text, str) else "a picture")
            for i, cell in enumerate(cells):
                self._count(i, cell, side)
        if piece.place is not None and self.targets.kind.by_record:
            for row, cells in enumerate(piece.targets):
                for cell in cells:
                    if cell and cell not in self.first:
                        self.first[cell] = piece.place(row)

    def _count(self, i: int, cell: str, side: str) -> None:
        if not cell:
            self.gaps[i] += 1
            return
        kind = self.targets.kind
        self.values[i].extend(kind.values(cell))
        for label, n in kind.counts(cell).items():
            self.classes[i][label, side] += n

    def by_class(self) -> dict[str, dict[str, dict[str, int]]]:
        found: dict[str, dict[str, dict[str, int]]] = {}
        for name, counts in zip(self.targets.names, self.classes, strict=True):
            for (label, side), n in sorted(counts.items()):
                found.setdefault(name, {}).setdefault(label, {})[side] = n
        return found

    def ranges(self) -> dict[str, ValueSummary]:
        rows = zip(self.targets.names, self.values, strict=True)
        return {
            name: ValueSummary(min(found), sum(found) / len(found), max(found))
            for name, found in rows
            if found
        }

    def single(self) -> tuple[str, ...]:
        """Classes of one record: nothing can be both learned and measured of them."""
        found = self.by_class().values()
        return tuple(c for col in found for c, sides in col.items() if sum(sides.values()) == 1)

    def places(self) -> dict[str, str]:
        """Where the classes stand that one record has, or that training has not."""
        rare = {*self.single(), *(label for lost in self.unseen().values() for label in lost)}
        return {label: place for label, place in self.first.items() if label in rare}

    def unseen(self) -> dict[str, dict[str, int]]:
        """By side, the classes that training has not."""
        found: dict[str, dict[str, int]] = {}
        for counts in self.classes:
            for (label, side), n in sorted(counts.items()):
                if not counts[label, SPLITS[0]]:
                    found.setdefault(side, {})[label] = n
        return found


def _near(sources: DataSource) -> dict[str, NearDuplicates]:
    """For every side but training, its inputs that are almost ones of training; of what is no text,
    that is not looked for.
    """
    if sources.numbered:
        return {}
    held: list[list[str]] = [[], [], []]
    taken = [0, 0, 0]
    for piece in sources.pieces():
        if piece.side < len(SPLITS) and taken[piece.side] < 4 * BUDGET:
            held[piece.side] += piece.keys
            taken[piece.side] += sum(map(len, piece.keys))
    return {
        name: near_duplicates(held[0], held[side])
        for side, name in enumerate(SPLITS[1:], start=1)
        if held[side]
    }


ITEMS_SHOWN = 5  # sizes listed


@dataclass(frozen=True, kw_only=True)
class MediaReport:
    """What was found, of any such thing; `copies` are those that training has already."""

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
        """A document of plain numbers, texts and lists."""
        apart = ("labels", "captions", "leaks")
        told = {n: getattr(self, n) for n in self.__dataclass_fields__ if n not in apart}
        told["leaks"] = {side: leak.records for side, leak in self.leaks.items()}
        if self.labels is not None:
            return told | {"labels": self.labels.to_json(), "task": self.labels.task}
        assert self.captions is not None
        return told | {"captions": asdict(self.captions), "task": "target"}

    def rest(self) -> list[tuple[str, str]]:
        """What to print last: copies, damage, leaks, labels or captions."""
        rows = []
        if self.copies:
            rows.append(("copies", f"{self.copies:,} in training"))
        if self.skipped:
            rows.append(("damaged", f"{self.skipped:,}; first: {self.problems[0]}"))
        rows += [("note", line) for line in self.remarks]
        for side, leak in self.leaks.items():
            if leak.records:
                rows.append((f"leaks in {side}", f"{leak.records:,} are in training too"))
        told = self.labels or self.captions
        return rows + (told.rows() if told else [])


@dataclass(frozen=True, kw_only=True)
class ImageReport(MediaReport):
    """What `look_through` found. `sizes` count pictures by height and width."""

    sizes: dict[str, int]
    channels: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    patch: int

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        sizes = ", ".join(f"{size} ({n:,})" for size, n in list(self.sizes.items())[:ITEMS_SHOWN])
        more = (
            f" and {len(self.sizes) - ITEMS_SHOWN:,} more" if len(self.sizes) > ITEMS_SHOWN else ""
        )
        rows = [
            ("read as", f"{self.format} ({self.why})"),
            ("pictures", f"{self.records:,}"),
            ("size", f"{sizes}{more} pixels, {self.channels} channels"),
            ("mean", ", ".join(f"{x:.3f}" for x in self.mean) + " (1 is white)"),
            ("deviation", ", ".join(f"{x:.3f}" for x in self.deviation)),
            ("patches", f"of {self.patch} × {self.patch} pixels"),
        ]
        return rows + self.rest()


@dataclass(frozen=True, kw_only=True)
class PointCloudReport(MediaReport):
    """What `look_through_clouds` found: points of the smallest, a usual and the largest."""

    points: tuple[int, int, int]
    dimensions: int
    features: int
    elements: list[str]
    diameter: float  # twice the radius of the largest

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        least, middle, most = self.points
        rows = [
            ("read as", f"{self.format} ({self.why})"),
            ("clouds", f"{self.records:,}"),
            ("points", f"{least:,} to {most:,}, half have {middle:,} or fewer"),
            ("dimensions", f"{self.dimensions}, and {self.features} features of a point"),
            ("diameter", f"{self.diameter:.4g} of the largest"),
        ]
        if self.elements:
            rows.append(("elements", " ".join(self.elements)))
        return rows + self.rest()


@dataclass
class CaptionReport:
    """What is said of pictures, side by side."""

    records: dict[str, int] = field(default_factory=dict)
    different: int = 0
    characters: int = 0
    words: int = 0  # different ones, between spaces
    longest: str = ""
    examples: list[str] = field(default_factory=list)

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        total = sum(self.records.values())
        sides = ", ".join(f"{side} {n:,}" for side, n in self.records.items())
        mean = self.characters / max(1, total)
        return [
            ("task", "target: a caption for each picture"),
            ("sides", sides),
            ("captions", f"{self.different:,} different ones of {self.words:,} words"),
            ("length", f"{mean:.0f} characters; the longest {self.longest[:60]!r}"),
            ("examples", "; ".join(self.examples)),
        ]


def listen(sources: DataSource) -> CaptionReport:
    """Look through the captions of pictures."""
    found, different, words = CaptionReport(), set(), set()
    for piece in sources.pieces():
        if piece.side >= len(SPLITS):
            continue
        name = SPLITS[piece.side]
        found.records[name] = found.records.get(name, 0) + len(piece.texts)
        for text in piece.texts:
            different.add(text)
            words.update(text.split())
            found.characters += len(text)
            found.longest = max(found.longest, text, key=len)
    found.records = {side: found.records[side] for side in SPLITS if side in found.records}
    found.different, found.words = len(different), len(words)
    found.examples = sorted(different)[:: max(1, len(different) // 3)][:3]
    return found


def inspect_images(sources: DataSource, why: str) -> ImageReport:
    """Look through pictures of a settled task, side by side."""
    sizes: Counter[str] = Counter()
    for piece in sources.pieces():
        images: Any = piece.sources or piece.texts
        sizes.update(f"{image.shape[0]} × {image.shape[1]}" for image in images)
    training = (p for p in sources.pieces() if p.side == 0)
    measured = Patches.train(image for p in training for image in p.sources or p.texts)
    return ImageReport(
        **media_report(sources, why),
        sizes=dict(sizes.most_common()),
        channels=measured.channels,
        mean=measured.mean,
        deviation=measured.deviation,
        patch=measured.patch,
    )


def inspect_point_clouds(sources: DataSource, why: str) -> PointCloudReport:
    """The same of point clouds."""
    counts = sorted(len(cloud) for piece in sources.pieces() for cloud in piece.texts)
    training = (cloud for p in sources.pieces() if p.side == 0 for cloud in p.texts)
    measured = Points.train(training, scale="kept")
    return PointCloudReport(
        **media_report(sources, why),
        points=(counts[0], counts[len(counts) // 2], counts[-1]),
        dimensions=measured.dimensions,
        features=len(measured.mean),
        elements=[SYMBOLS[z - 1] for z in measured.elements],
        diameter=measured.reach,
    )


def media_report(sources: DataSource, why: str) -> dict[str, Any]:
    """What is looked for in any such thing."""
    seen: set[int] = set()
    copies = records = 0
    for piece in sources.pieces():
        records += len(piece.texts)
        if piece.side == 0:
            for key in hashes(piece.keys).tolist():
                copies += key in seen
                seen.add(key)
    labels = None if sources.paired else inspect_labelled(sources, why)
    read = [files for files in (sources.train, *sources.held_out_files) if files is not None]
    return {
        "format": sources.train.format,
        "why": sources.train.why,
        "records": records,
        "skipped": sum(files.skipped for files in read),
        "problems": [problem for files in read for problem in files.problems],
        "remarks": sources.remarks,
        "copies": copies,
        "leaks": sources.overlaps() if labels is None else labels.leaks,
        "labels": labels,
        "captions": listen(sources) if labels is None else None,
    }
