"""What is in files of pictures: how many, how large, how bright, copies and leaks, and labels, or
captions.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from regard.data.examination import Examination, examine
from regard.data.sides import SIDES, Sources
from regard.data.splits import Leak, hashes
from regard.tokens.patches import Patches

SHOWN = 5  # sizes listed


@dataclass(frozen=True)
class Gallery:
    """What `look_through` found. `sizes` count pictures by height and width; `copies` are pictures
    that training has already.
    """

    format: str
    why: str
    records: int
    skipped: int
    problems: list[str]
    sizes: dict[str, int]
    channels: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    patch: int
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
        if self.copies:
            rows.append(("copies", f"{self.copies:,} in training"))
        if self.skipped:
            rows.append(("damaged", f"{self.skipped:,}; first: {self.problems[0]}"))
        for side, leak in self.leaks.items():
            if leak.records:
                rows.append((f"leaks in {side}", f"{leak.records:,} are in training too"))
        return rows + (self.labels or self.captions).rows()  # type: ignore[union-attr]


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
    seen: set[int] = set()
    copies = records = 0
    for piece in sources.pieces():
        images: Any = piece.sources or piece.texts
        records += len(images)
        sizes.update(f"{image.shape[0]} × {image.shape[1]}" for image in images)
        if piece.side == 0:
            for key in hashes(piece.keys).tolist():
                copies += key in seen
                seen.add(key)
    training = (p for p in sources.pieces() if p.side == 0)
    measured = Patches.train(image for p in training for image in p.sources or p.texts)
    labels = None if sources.paired else examine(sources, why)
    read = [files for files in (sources.train, *sources.given) if files is not None]
    return Gallery(
        format=sources.train.format,
        why=sources.train.why,
        records=records,
        skipped=sum(files.skipped for files in read),
        problems=[problem for files in read for problem in files.problems],
        sizes=dict(sizes.most_common()),
        channels=measured.channels,
        mean=measured.mean,
        deviation=measured.deviation,
        patch=measured.patch,
        copies=copies,
        leaks=sources.overlaps() if labels is None else labels.leaks,
        labels=labels,
        captions=listen(sources) if labels is None else None,
    )
