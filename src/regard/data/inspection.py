"""What is in a user's data, before anything is trained on it, and what to train.

One streaming pass counts symbols, lengths and copies; memory grows with the number of distinct
records (16 bytes each), not with their length. Copies and leaks in running text are counted in
lines, where short ones ("Exit.", "* * *") repeat by right and are left alone.

The unit is the symbol: a character, and one end marker for every record; running text has no ends.
Of pairs, both sides are counted, and copies and leaks are those of sources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regard.data.readers import Files
from regard.data.splits import Counts, Leak, cut_points, distinct, find, overlap, sides_of
from regard.errors import printable
from regard.tokens.canonical import without_regard

if TYPE_CHECKING:
    from regard.data.examination import Examination

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
class Inspection:
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
    labels: Examination | None = None  # of labelled records

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
        self.copies = Counts()

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
    source: Files,
    *,
    valid: Files | None = None,
    test: Files | None = None,
    valid_fraction: float = 0.1,
    test_fraction: float = 0.1,
) -> Inspection:
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
    return Inspection(
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


def _survey_text(source: Files, survey: _Survey) -> None:
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


def _units(source: Files) -> Iterator[Sequence[str]]:
    """What copies and leaks are counted in: records, or the long lines of running text."""
    if source.format == "text":
        yield from (lines for _, lines in _long_lines(source))
    else:
        yield from map(source.keys, source.records())


def _long_lines(source: Files) -> Iterator[tuple[list[int], list[str]]]:
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


def _repeated(source: Files, copies: Counts) -> tuple[tuple[str, int], ...]:
    values, counts = copies.result()
    top = np.argsort(-counts, kind="stable")[:SHOWN]
    times = {int(values[i]): int(counts[i]) for i in top.tolist() if counts[i] > 1}
    texts = find(_units(source), list(times)) if times else {}
    return tuple((_short(texts[value]), n) for value, n in times.items())


def _leaks(
    source: Files,
    survey: _Survey,
    given: tuple[Files | None, Files | None],
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


def _between(source: Files, low: int, high: int) -> Iterator[Sequence[str]]:
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


def render(inspection: Inspection, console: Console) -> None:
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
