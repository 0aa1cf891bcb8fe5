"""What is asked of labelled records, side by side: classes, values, gaps, conflicts, leaks."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regard.data.concerns import limits, of_classes, of_values, tallied
from regard.data.labelled import Labelled
from regard.data.near import BUDGET, Near, near
from regard.data.sides import SIDES, Piece, Sources
from regard.data.splits import Leak, hashes
from regard.data.targets import LABELLED, Targets, guess, number, survey, unchecked
from regard.tokens.canonical import without_regard

SHOWN = 12  # classes listed
FEW = 5  # records of a class in a split below which its metrics say little
SMALL = 20  # records of a test split below which all metrics do
FOLDS = "`regard compare` with --folds 5 tests every record once"
EXAMPLES = 3
LONG = 200  # characters of an example


@dataclass(frozen=True)
class Values:
    """The numbers of one column."""

    min: float
    mean: float
    max: float


@dataclass(frozen=True)
class Examination:
    """What `examine` found. Classes count records; those of positions, positions.

    `unseen` has, by side, the classes that training lacks; `single` those that one record has, over
    all sides; `conflicts` are inputs that come with different targets.
    """

    task: str
    why: str
    names: tuple[str, ...]
    records: dict[str, int]  # by side
    classes: dict[str, dict[str, dict[str, int]]]  # by target, class, side
    values: dict[str, Values]  # by target
    gaps: dict[str, int]  # by target
    single: tuple[str, ...]
    unseen: dict[str, dict[str, int]]
    places: dict[str, str]  # the file and line of the first of each class in `single` or `unseen`
    conflicts: int
    conflicting: tuple[str, ...]
    leaks: dict[str, Leak]
    near: dict[str, Near]
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
        for label, _ in tallied(found).most_common(SHOWN):
            each = (f"{found[label].get(side, 0):,}" for side in self.records)
            shown.append(f"{label} {'/'.join(each)}")
        return f"{'/'.join(self.records)}: {', '.join(shown)}" + ", …" * (len(found) > SHOWN)

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
        few = self._few() if self.task in ("label", "labels") else []
        if few:
            more = f" and {len(few) - SHOWN:,} more" if len(few) > SHOWN else ""
            where = "in all" if self.folds else "in a split"
            line = f"fewer than {FEW} records {where} ({'/'.join(self.records)}): "
            line += f"{', '.join(few[:SHOWN])}{more}; metrics of these classes are not reliable"
            rows.append(("small classes", line))
        tested = self.records.get(SIDES[2], 0)
        if self.chosen and not self.folds and (few or tested < SMALL):
            counted = f"{tested:,} record{'s' * (tested != 1)}"
            why = f"it has {counted}" if tested < SMALL else "it has few records of some classes"
            rows.append(("test split", f"{why}; {FOLDS}"))
        return rows

    def _troubles(self) -> list[tuple[str, str]]:
        rows = [("scaffolds", note) for note in self.notes] + self._too_few()
        if self.task == "label" and len(self.classes.get(self.names[0], {})) == 1:
            rows.append(("one class", f"all are {next(iter(self.classes[self.names[0]]))!r}"))
        if self.single:
            rows.append(("one example", ", ".join(map(self._placed, self.single[:SHOWN]))))
        for side, lost in self.unseen.items():
            few = list(lost.items())[:SHOWN]
            said = ", ".join(f"{self._placed(label)} × {n:,}" for label, n in few)
            rows.append((f"unseen in {side}", f"{said}: training has no such class"))
        if self.conflicts:
            said = ", ".join(repr(text[:40]) for text in self.conflicting)
            rows.append(
                ("conflicts", f"{self.conflicts:,} inputs come with different targets: {said}")
            )
        return rows + list(self.concerns)


def _near_words(leak: Near) -> str:
    share = leak.records / leak.compared if leak.compared else 0.0
    return (
        f"{leak.records:,} of {leak.compared:,} distinct records ({share:.1%}) are near-duplicates "
        f"of one of {leak.training:,} in training"
    )


def task_of(source: Labelled) -> tuple[str, str]:
    """The task that labelled records suggest, and why; `target` where they are pairs of texts."""
    source.check = unchecked
    task, why = guess(survey(source.examples(), len(source.names)), source.names)
    if task == "target" and not source.tells:  # one text a record
        return "label", why
    return task, why


def examine(sources: Sources, why: str = "as asked") -> Examination:
    """Look through labelled records of a settled task, side by side."""
    assert isinstance(sources.train, Labelled) and sources.task in LABELLED
    names = sources.train.names
    columns = survey((p for p in sources.pieces() if p.side == 0), len(names))
    targets = Targets.learn(sources.task, names, columns, sources.recipe.positive)
    tally = _Tally(targets)
    for piece in sources.pieces():
        if piece.side < len(SIDES):
            tally.add(piece)
    concerns = tuple(_concerns(sources, tally))
    return Examination(
        task=sources.task,
        why=why,
        names=names,
        records={side: n for side in SIDES if (n := tally.records[side])},
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


def _concerns(sources: Sources, tally: _Tally) -> Iterator[tuple[str, str]]:
    """What looks wrong with the targets of all sides."""
    assert isinstance(sources.train, Labelled)
    if tally.targets.task in ("label", "labels"):
        for name, found in tally.by_class().items():
            spaced = sources.train.spaced
            yield from of_classes(name, tallied(found), tally.first, spaced)
    for i, (name, values) in enumerate(zip(tally.targets.names, tally.values, strict=True)):
        if values and (line := of_values(name, np.array(values))):
            bounds = limits(np.array(values))
            assert bounds is not None
            yield "outliers", f"{line} ({_first_beyond(sources, i, bounds)})"


def _first_beyond(sources: Sources, i: int, bounds: tuple[float, float]) -> str:
    """Where the first value of target i stands that is not within some bounds."""
    for piece in sources.pieces():
        for row, cells in enumerate(piece.targets if piece.side < len(SIDES) else ()):
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

    def add(self, piece: Piece) -> None:
        side = SIDES[piece.side]
        self.records[side] += len(piece.texts)
        for key, text, cells in zip(
            hashes(piece.keys).tolist(), piece.texts, piece.targets, strict=True
        ):
            if self.met.setdefault(key, cells) != cells:
                self.conflicts.setdefault(key, text if isinstance(text, str) else "a picture")
            for i, cell in enumerate(cells):
                self._count(i, cell, side)
        if piece.place is not None and self.targets.task in ("label", "labels"):
            for row, cells in enumerate(piece.targets):
                for cell in cells:
                    if cell and cell not in self.first:
                        self.first[cell] = piece.place(row)

    def _count(self, i: int, cell: str, side: str) -> None:
        if not cell:
            self.gaps[i] += 1
        elif self.targets.task == "value":
            value = number(cell)
            assert value is not None  # the reader has checked it
            self.values[i].append(value)
        elif self.targets.task == "position-label":
            for label, n in Counter(cell).items():
                self.classes[i][label, side] += n
        else:
            self.classes[i][cell, side] += 1

    def by_class(self) -> dict[str, dict[str, dict[str, int]]]:
        found: dict[str, dict[str, dict[str, int]]] = {}
        for name, counts in zip(self.targets.names, self.classes, strict=True):
            for (label, side), n in sorted(counts.items()):
                found.setdefault(name, {}).setdefault(label, {})[side] = n
        return found

    def ranges(self) -> dict[str, Values]:
        rows = zip(self.targets.names, self.values, strict=True)
        return {
            name: Values(min(found), sum(found) / len(found), max(found))
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
                if not counts[label, SIDES[0]]:
                    found.setdefault(side, {})[label] = n
        return found


def _near(sources: Sources) -> dict[str, Near]:
    """For every side but training, its inputs that are almost ones of training; of what is no text,
    that is not looked for.
    """
    if sources.numbered:
        return {}
    held: list[list[str]] = [[], [], []]
    taken = [0, 0, 0]
    for piece in sources.pieces():
        if piece.side < len(SIDES) and taken[piece.side] < 4 * BUDGET:
            held[piece.side] += piece.keys
            taken[piece.side] += sum(map(len, piece.keys))
    return {
        name: near(held[0], held[side])
        for side, name in enumerate(SIDES[1:], start=1)
        if held[side]
    }
