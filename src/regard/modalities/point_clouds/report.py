"""What `regard data` says of point clouds."""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.report import MediaReport, media_report
from regard.data.sources import DataSource
from regard.tokenizers.points import SYMBOLS, Points


@dataclass(frozen=True, kw_only=True)
class PointCloudReport(MediaReport):
    """What `inspect_point_clouds` found: points of the smallest, a usual and the largest."""

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
            ("point clouds", f"{self.records:,}"),
            ("points", f"{least:,} to {most:,}, half have {middle:,} or fewer"),
            ("dimensions", f"{self.dimensions}, and {self.features} features of a point"),
            ("diameter", f"{self.diameter:.4g} of the largest"),
        ]
        if self.elements:
            rows.append(("elements", " ".join(self.elements)))
        return rows + self.rest()


def inspect_point_clouds(sources: DataSource, why: str) -> PointCloudReport:
    """Return the report on point clouds whose task is known."""
    counts = sorted(len(cloud) for chunk in sources.chunks() for cloud in chunk.texts)
    training = (cloud for chunk in sources.chunks() if chunk.split == 0 for cloud in chunk.texts)
    measured = Points.train(training, scale="kept")
    return PointCloudReport(
        **media_report(sources, why),
        points=(counts[0], counts[len(counts) // 2], counts[-1]),
        dimensions=measured.dimensions,
        features=len(measured.mean),
        elements=[SYMBOLS[z - 1] for z in measured.elements],
        diameter=measured.reach,
    )
