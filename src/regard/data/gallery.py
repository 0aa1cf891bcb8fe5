"""What is in files of pictures or point clouds: how many, how large, copies, leaks, and labels or
captions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.data.cloud_files import SYMBOLS
from regard.data.examination import Examination, examine
from regard.data.sides import SIDES, Sources
from regard.data.splits import Leak, hashes
from regard.tokens.patches import Patches
from regard.tokens.points import Points

SHOWN = 5  # sizes listed


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """What was found, of any such thing; `copies` are those that training has already."""

    format: str
    why: str
    records: int
    skipped: int
    problems: list[str]
    remarks: list[str]
    copies: int
    leaks: dict[str, Leak]
    labels: Examination | None = None
    captions: Captioned | None = None

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
class Gallery(Shelf):
    """What `look_through` found. `sizes` count pictures by height and width."""

    sizes: dict[str, int]
    channels: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    patch: int

    def rows(self) -> list[tuple[str, str]]:
        """What to print: names and values."""
        sizes = ", ".join(f"{size} ({n:,})" for size, n in list(self.sizes.items())[:SHOWN])
        more = f" and {len(self.sizes) - SHOWN:,} more" if len(self.sizes) > SHOWN else ""
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
class Swarm(Shelf):
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
class Captioned:
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


def listen(sources: Sources) -> Captioned:
    """Look through the captions of pictures."""
    found, different, words = Captioned(), set(), set()
    for piece in sources.pieces():
        if piece.side >= len(SIDES):
            continue
        name = SIDES[piece.side]
        found.records[name] = found.records.get(name, 0) + len(piece.texts)
        for text in piece.texts:
            different.add(text)
            words.update(text.split())
            found.characters += len(text)
            found.longest = max(found.longest, text, key=len)
    found.records = {side: found.records[side] for side in SIDES if side in found.records}
    found.different, found.words = len(different), len(words)
    found.examples = sorted(different)[:: max(1, len(different) // 3)][:3]
    return found


def look_through(sources: Sources, why: str) -> Gallery:
    """Look through pictures of a settled task, side by side."""
    sizes: Counter[str] = Counter()
    for piece in sources.pieces():
        images: Any = piece.sources or piece.texts
        sizes.update(f"{image.shape[0]} × {image.shape[1]}" for image in images)
    training = (p for p in sources.pieces() if p.side == 0)
    measured = Patches.train(image for p in training for image in p.sources or p.texts)
    return Gallery(
        **shelf(sources, why),
        sizes=dict(sizes.most_common()),
        channels=measured.channels,
        mean=measured.mean,
        deviation=measured.deviation,
        patch=measured.patch,
    )


def look_through_clouds(sources: Sources, why: str) -> Swarm:
    """The same of point clouds."""
    counts = sorted(len(cloud) for piece in sources.pieces() for cloud in piece.texts)
    training = (cloud for p in sources.pieces() if p.side == 0 for cloud in p.texts)
    measured = Points.train(training, scale="kept")
    return Swarm(
        **shelf(sources, why),
        points=(counts[0], counts[len(counts) // 2], counts[-1]),
        dimensions=measured.dimensions,
        features=len(measured.mean),
        elements=[SYMBOLS[z - 1] for z in measured.elements],
        diameter=measured.reach,
    )


def shelf(sources: Sources, why: str) -> dict[str, Any]:
    """What is looked for in any such thing."""
    seen: set[int] = set()
    copies = records = 0
    for piece in sources.pieces():
        records += len(piece.texts)
        if piece.side == 0:
            for key in hashes(piece.keys).tolist():
                copies += key in seen
                seen.add(key)
    labels = None if sources.paired else examine(sources, why)
    read = [files for files in (sources.train, *sources.given) if files is not None]
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
