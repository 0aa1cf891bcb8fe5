"""What `regard data` says of images."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from regard.data.report import ITEMS_SHOWN, MediaReport, media_report
from regard.data.sources import DataSource
from regard.tokenizers.patches import Patches


@dataclass(frozen=True, kw_only=True)
class ImageReport(MediaReport):
    """What `inspect_images` found. `sizes` count pictures by height and width."""

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
            ("images", f"{self.records:,}"),
            ("size", f"{sizes}{more} pixels, {self.channels} channels"),
            ("mean", ", ".join(f"{x:.3f}" for x in self.mean) + " (1 is white)"),
            ("deviation", ", ".join(f"{x:.3f}" for x in self.deviation)),
            ("patches", f"of {self.patch} × {self.patch} pixels"),
        ]
        return rows + self.rest()


def inspect_images(sources: DataSource, why: str) -> ImageReport:
    """Return the report on images whose task is known."""
    sizes: Counter[str] = Counter()
    for chunk in sources.chunks():
        images: Any = chunk.sources or chunk.texts
        sizes.update(f"{image.shape[0]} × {image.shape[1]}" for image in images)
    training = (chunk for chunk in sources.chunks() if chunk.split == 0)
    measured = Patches.train(image for chunk in training for image in chunk.sources or chunk.texts)
    return ImageReport(
        **media_report(sources, why),
        sizes=dict(sizes.most_common()),
        channels=measured.channels,
        mean=measured.mean,
        deviation=measured.deviation,
        patch=measured.patch,
    )
