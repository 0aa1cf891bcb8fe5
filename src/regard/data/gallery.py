"""What is in files of pictures: how many, how large, how bright, copies and leaks, and labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from regard.data.examination import Examination, examine
from regard.data.sides import Sources
from regard.data.splits import hashes
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
    labels: Examination

    def to_json(self) -> dict[str, Any]:
        """A document of plain numbers, texts and lists."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "labels"}
        return told | {"labels": self.labels.to_json(), "task": self.labels.task}

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
        for side, leak in self.labels.leaks.items():
            if leak.records:
                rows.append((f"leaks in {side}", f"{leak.records:,} are in training too"))
        return rows + self.labels.rows()


def look_through(sources: Sources, why: str) -> Gallery:
    """Look through pictures of a settled task, side by side."""
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    copies = records = 0
    for piece in sources.pieces():
        images: Any = piece.texts
        records += len(images)
        sizes.update(f"{image.shape[0]} × {image.shape[1]}" for image in images)
        if piece.side == 0:
            for key in hashes(piece.keys).tolist():
                copies += key in seen
                seen.add(key)
    training = (image for p in sources.pieces() if p.side == 0 for image in p.texts)
    measured = Patches.train(training)
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
        labels=examine(sources, why),
    )
