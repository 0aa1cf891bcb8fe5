"""Point clouds as tokens: each chosen center, with the points nearest to it, is a token (Qi et al.
2017, "PointNet++", arXiv:1706.02413).

A token is the d coordinates of its center, then for each of its k neighbors, the center itself
being the first: whether it exists (1 or 0), its d coordinates relative to the center, and its
features: one number per element, then the other features, standardized with the mean and deviation
of training. A record is `<S>`, which is zeros, and the tokens. Centers are chosen farthest from all
chosen before, the first farthest from the centroid; points are sorted before anything is computed,
so that their order in a file never matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.tokenizers.tokenizer import Document, Featurizer, Ids

Floats = NDArray[np.float32]
SCALES = ("unit", "kept")  # the farthest point is at distance 1; distances are not changed
MAX_DISTANCES = 1 << 22  # computed at once
SAMPLE = 256  # clouds whose groups are measured
NO_ATOMS: NDArray[np.uint8] = np.zeros(0, np.uint8)
SYMBOLS = """
H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br
Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er
Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md
No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og
""".split()  # noqa: SIM905 - a list would be a page long


@dataclass(frozen=True, eq=False, slots=True)
class PointCloud:
    """Points (N, d), features (N, C) of each and, for molecules, the atomic numbers (N,)."""

    points: Floats
    features: Floats
    atoms: NDArray[np.uint8] = field(default_factory=lambda: NO_ATOMS)

    def __len__(self) -> int:
        return len(self.points)

    def select(self, order: NDArray[Any]) -> PointCloud:
        atoms = self.atoms[order] if len(self.atoms) else self.atoms
        return PointCloud(self.points[order], self.features[order], atoms)


class Points(Featurizer):
    """Groups of points: `samples` centers are chosen, 0 being every point in the given order.

    `neighbours` is k. In training, `reach` is the largest distance between two points, `spread` the
    root mean square distance of a neighbor, `mean` and `deviation` those of the features.
    """

    name: ClassVar[str] = "points"
    modality = "point-clouds"
    options: ClassVar[Mapping[str, Any]] = {"samples": 0, "neighbours": 0, "scale": "auto"}
    words: ClassVar[tuple[str, str]] = ("point cloud", "point clouds")
    item: ClassVar[str] = "a PointCloud, or the path of one"

    def __init__(
        self,
        dimensions: int,
        *,
        samples: int = 0,
        neighbours: int = 1,
        scale: str = "unit",
        elements: Sequence[int] = (),
        mean: Sequence[float] = (),
        deviation: Sequence[float] = (),
        reach: float = 2.0,
        spread: float = 1.0,
    ) -> None:
        self.dimensions, self.samples, self.neighbours = dimensions, samples, neighbours
        self.scale, self.elements = scale, tuple(map(int, elements))
        self.mean, self.deviation = tuple(map(float, mean)), tuple(map(float, deviation))
        self.reach, self.spread = float(reach), float(spread)
        super().__init__(dimensions + neighbours * (1 + dimensions + self.n_features), np.float32)

    def reads(self, value: object) -> bool:
        record = isinstance(value, np.ndarray) and value.ndim == 2  # (1 + N, V)
        return record or isinstance(value, PointCloud | str | Path)

    @property
    def n_features(self) -> int:
        """C: elements, then the other features of a point."""
        return len(self.elements) + len(self.mean)

    @property
    def model_config(self) -> dict[str, Any]:
        return {
            "dimensions": self.dimensions,
            "group_size": self.neighbours,
            "n_features": self.n_features,
            "elements": self.elements,
            "max_distance": self.reach,
            "neighbor_scale": self.spread,
        }

    @classmethod
    def train(
        cls,
        texts: Iterable[Any],
        size: int = 0,
        *,
        samples: int = 0,
        neighbours: int = 0,
        scale: str = "auto",
    ) -> Self:
        """Measure clouds. `neighbours` of 0 is 1; the scale "auto" is "kept" for molecules."""
        statistics = PointStatistics()
        for cloud in texts:
            statistics.add(cloud)
        if not statistics.count:
            raise UserError("there is no point cloud to measure")
        mean, deviation = statistics.moments()
        scale = scale if scale != "auto" else ("kept" if statistics.elements else "unit")
        settings: dict[str, Any] = {
            "samples": samples,
            "neighbours": neighbours or 1,
            "scale": scale,
            "elements": sorted(statistics.elements),
            "mean": np.round(mean, 6).tolist(),
            "deviation": np.round(deviation, 6).tolist(),
            "reach": round(2 * statistics.radius, 4) if scale == "kept" else 2.0,
        }
        featurizer = cls(statistics.dimensions, **settings)
        if featurizer.neighbours == 1:
            return featurizer
        groups = featurizer.groups(featurizer.encode_batch(statistics.sample)[0])
        gaps = groups[..., 1 : 1 + featurizer.dimensions][groups[..., 0] > 0]
        spread = float(np.sqrt(np.square(gaps).sum(-1).mean())) if len(gaps) else 1.0
        return cls(statistics.dimensions, **settings, spread=round(spread, 6) or 1.0)

    def groups(self, ids: NDArray[Any]) -> NDArray[Any]:
        """Return the (..., k, 1 + d + C) neighbors of tokens (..., V)."""
        neighbors = np.asarray(ids)[..., self.dimensions :]
        return neighbors.reshape(*neighbors.shape[:-1], self.neighbours, -1)

    def encode_batch(self, texts: Sequence[Any]) -> tuple[Ids, Ids]:
        """Return the tokens (N, V) of all clouds, `<S>` before each, and the number of each.

        Records (1 + N, V), which are tokens already, stay as they are.
        """
        if texts and isinstance(texts[0], np.ndarray):
            parts = list(texts)
        else:
            parts = [tokens for chunk in self._chunks(texts) for tokens in self._encode(chunk)]
        lengths = [len(tokens) for tokens in parts]
        flat = np.concatenate(parts) if parts else np.empty((0, self.vocab_size), np.float32)
        return flat, np.array(lengths, np.int64)

    def _chunks(self, clouds: Sequence[PointCloud]) -> Iterator[list[PointCloud]]:
        """Yield as many clouds at a time as fit into memory with all their distances."""
        chunk: list[PointCloud] = []
        longest = 0
        for cloud in clouds:
            self._check(cloud)
            longest = max(longest, len(cloud))
            centers = min(self.samples or longest, longest)
            if chunk and (len(chunk) + 1) * longest * centers > MAX_DISTANCES:
                yield chunk
                chunk, longest = [], len(cloud)
            chunk.append(cloud)
        if chunk:
            yield chunk

    def _check(self, cloud: PointCloud) -> None:
        (count, dimensions), n_features = cloud.points.shape, cloud.features.shape[1]
        if not count:
            raise UserError("a point cloud has no points")
        if dimensions != self.dimensions:
            raise UserError(
                f"a point cloud has {dimensions} dimensions, the model reads {self.dimensions}"
            )
        if n_features != len(self.mean) or bool(self.elements) != bool(len(cloud.atoms)):
            raise UserError(
                f"a point cloud has {n_features} features of a point"
                f"{' and elements' if len(cloud.atoms) else ''}, the model reads {len(self.mean)}"
                f"{' and elements' if self.elements else ''}"
            )

    def _encode(self, clouds: Sequence[PointCloud]) -> Iterator[Floats]:
        """Yield the tokens (1 + N, V) of each cloud."""
        longest = max(map(len, clouds))
        points = np.zeros((len(clouds), longest, self.dimensions), np.float64)
        features = np.zeros((len(clouds), longest, self.n_features), np.float32)
        mask = np.zeros((len(clouds), longest), bool)
        orders = []
        for row, cloud in enumerate(clouds):
            scaled = self.scale_features(cloud)
            keys = np.concatenate((scaled.T[::-1], cloud.points.T[::-1]))
            order = np.lexsort(keys)  # by the coordinates, then the features
            orders.append(order)
            points[row, : len(order)], mask[row, : len(order)] = cloud.points[order], True
            features[row, : len(order)] = scaled[order]
        points = normalize_points(points, mask, self.scale).astype(np.float32)
        if self.samples:
            centers = farthest_points(points, mask, min(self.samples, longest))
        else:
            centers = np.broadcast_to(np.arange(longest), mask.shape)
        neighbors, exists = nearest_points(points, mask, centers, self.neighbours)
        rows = np.arange(len(clouds))[:, None]
        origin = points[rows, centers]  # (R, M, d)
        gaps = points[rows[..., None], neighbors] - origin[:, :, None]  # (R, M, k, d)
        parts = np.ones((*exists.shape, 1)), gaps, features[rows[..., None], neighbors]
        groups = np.concatenate(parts, -1) * exists[..., None]
        flat = groups.reshape(*origin.shape[:2], -1)
        tokens = np.concatenate((origin, flat), -1).astype(np.float32)
        for row, order in enumerate(orders):
            content = tokens[row, : min(centers.shape[1], len(order))]
            if not self.samples:
                content = content[np.argsort(order)]  # in the given order: points may have labels
            yield np.concatenate((np.zeros((1, self.vocab_size), np.float32), content))

    def scale_features(self, cloud: PointCloud) -> Floats:
        """Return the (N, C) features in tokens; an element not in training has none."""
        kinds = (cloud.atoms[:, None] == np.array(self.elements, int)).astype(np.float32)
        if not self.elements:
            kinds = np.zeros((len(cloud), 0), np.float32)
        scaled = (cloud.features - np.array(self.mean)) / np.array(self.deviation)
        return np.concatenate((kinds, scaled.astype(np.float32)), 1)

    def decode_cloud(self, record: NDArray[Any]) -> PointCloud:
        """Return the normalized cloud of a record's tokens (1 + N, V).

        It has the points that the tokens hold: centers and neighbors, each once; or, if every point
        is a token, all of them in order.
        """
        tokens = np.asarray(record)[1:]
        centers, groups = tokens[:, : self.dimensions], self.groups(tokens)
        if not self.samples:
            points, scaled = centers, groups[:, 0, 1 + self.dimensions :]
        else:
            flat = groups.reshape(-1, groups.shape[-1])
            around = np.repeat(centers, self.neighbours, 0) + flat[:, 1 : 1 + self.dimensions]
            exists = flat[:, 0] > 0
            first = np.unique(np.round(around[exists], 5), axis=0, return_index=True)[1]
            points = around[exists][first]
            scaled = flat[exists][first, 1 + self.dimensions :]
        n = len(self.elements)
        numbers = np.array([*self.elements, 0], np.uint8)
        which = np.where(scaled[:, :n].any(1), scaled[:, :n].argmax(1), n) if n else NO_ATOMS
        features = scaled[:, n:] * np.array(self.deviation) + np.array(self.mean)
        return PointCloud(points, features.astype(np.float32), numbers[which] if n else NO_ATOMS)

    def decode_record(self, record: Ids) -> Ids:
        """Return the record itself, which encodes to itself: a decoded cloud lacks points."""
        return record

    def record_round_trip(self, record: Ids) -> bool:
        """Return whether each center is its own first neighbor and, if every point is a token, the
        decoded cloud encodes to the record.
        """
        record = np.asarray(record)
        center = self.groups(record[1:])[:, 0]
        valid = bool((center[:, 0] == 1).all()) and not center[:, 1 : 1 + self.dimensions].any()
        if valid and not self.samples:
            again = self.encode(self.decode_cloud(record))
            valid = bool(np.allclose(again, record, atol=1e-4 * self.reach))
        return valid and not record[0].any()

    def round_trip(self, item: PointCloud) -> bool:
        return self.record_round_trip(self.encode(item))

    def sample_items(self, count: int) -> list[PointCloud]:
        return [self._sample_cloud(2 + 5 * number, seed=number) for number in range(count)]

    def permuted_items(
        self, count: int, random: np.random.Generator
    ) -> list[tuple[PointCloud, PointCloud, Ids]]:
        clouds = [self._sample_cloud(4 + 9 * number, seed=20 + number) for number in range(count)]
        orders = [random.permutation(len(cloud)) for cloud in clouds]
        return [(cloud, cloud.select(o), o) for cloud, o in zip(clouds, orders, strict=True)]

    def _sample_cloud(self, count: int, seed: int) -> PointCloud:
        random = np.random.default_rng(seed)
        points = random.normal(size=(count, self.dimensions)) * (self.reach / 4)
        features = random.normal(size=(count, len(self.mean)))
        atoms = random.choice(self.elements, count) if self.elements else NO_ATOMS
        return PointCloud(
            points.astype(np.float32), features.astype(np.float32), atoms.astype(np.uint8)
        )

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Describe the cloud of tokens in words."""
        tokens = np.asarray(ids)
        if tokens.ndim != 2 or len(tokens) < 2:
            return "a point cloud"
        return f"a point cloud of {len(tokens) - 1} tokens"

    def document(self) -> Document:
        return {
            "point_processor_type": "Points",
            "dimensions": self.dimensions,
            "samples": self.samples,
            "neighbours": self.neighbours,
            "scale": self.scale,
            "elements": list(self.elements),
            "feature_mean": list(self.mean),
            "feature_std": list(self.deviation),
            "reach": self.reach,
            "spread": self.spread,
        }

    @classmethod
    def recognises(cls, document: Document) -> bool:
        return document.get("point_processor_type") == "Points"

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        try:
            dimensions, samples, neighbours = (
                int(document[key]) for key in ("dimensions", "samples", "neighbours")
            )
            mean, deviation = (list(map(float, document[f"feature_{n}"])) for n in ("mean", "std"))
            elements, scale = list(map(int, document["elements"])), str(document["scale"])
            reach, spread = float(document["reach"]), float(document["spread"])
            valid = 1 <= dimensions <= 16 and 0 <= samples <= 1 << 16 and 1 <= neighbours <= 1 << 12
            valid &= len(mean) == len(deviation) <= 1 << 12 and len(elements) <= 118
            valid &= scale in SCALES and reach > 0 and spread > 0
            valid &= all(1 <= z <= 118 for z in elements) and min(deviation, default=1.0) > 0
            if not valid:
                raise ValueError("its sizes do not fit each other")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{name} is damaged: {error}") from None
        return cls(
            dimensions,
            samples=samples,
            neighbours=neighbours,
            scale=scale,
            elements=elements,
            mean=mean,
            deviation=deviation,
            reach=reach,
            spread=spread,
        )


class PointStatistics:
    """Statistics of the clouds of training, updated cloud by cloud."""

    def __init__(self) -> None:
        self.count, self.dimensions, self.radius = 0, 0, 0.0
        self.elements: set[int] = set()
        self.sums = self.squares = np.zeros(0)
        self.points = 0
        self.sample: list[PointCloud] = []

    def add(self, cloud: PointCloud) -> None:
        width, features = cloud.points.shape[1], cloud.features.astype(np.float64)
        if self.count and (width, features.shape[1]) != (self.dimensions, len(self.sums)):
            raise UserError(
                f"point clouds of {self.dimensions} dimensions and {len(self.sums)} features "
                f"cannot be mixed with one of {width} and {features.shape[1]}"
            )
        if not self.count:
            self.dimensions = width
            self.sums, self.squares = np.zeros(features.shape[1]), np.zeros(features.shape[1])
        self.count, self.points = self.count + 1, self.points + len(cloud)
        self.elements |= set(cloud.atoms.tolist()) - {0}
        self.sums = self.sums + features.sum(0)
        self.squares = self.squares + np.square(features).sum(0)
        centered = cloud.points.astype(np.float64) - cloud.points.mean(0, dtype=np.float64)
        self.radius = max(self.radius, float(np.sqrt(np.square(centered).sum(1).max())))
        if len(self.sample) < SAMPLE:
            self.sample.append(cloud)

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and deviation of every feature; the deviation of a constant one is 1."""
        mean = self.sums / max(1, self.points)
        deviation = np.sqrt(np.maximum(self.squares / max(1, self.points) - mean**2, 0))
        return mean, np.where(deviation > 1e-6, deviation, 1.0)


def normalize_points(points: NDArray[Any], mask: NDArray[np.bool_], scale: str) -> NDArray[Any]:
    """Center clouds (R, N, d) at their centroids; with scale "unit", the farthest point is at 1."""
    count = mask.sum(1)[:, None, None]
    centered = (points - points.sum(1, keepdims=True) / count) * mask[..., None]
    radius = np.ones(len(points))
    if scale == "unit":
        radius = np.sqrt(np.square(centered).sum(-1).max(1))
    normalized: NDArray[Any] = centered / np.where(radius > 0, radius, 1.0)[:, None, None]
    return normalized


def farthest_points(points: NDArray[Any], mask: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Return (R, M) points of each cloud, each the farthest from those before, the first from the
    centroid (Gonzalez 1985; Eldar et al. 1997); of equals, the first.

    Clouds with fewer points repeat some.
    """
    rows = np.arange(len(points))
    centers = np.zeros((len(points), count), np.int64)
    gaps = np.where(mask, np.square(points).sum(-1), -1.0)
    center = gaps.argmax(1)
    gaps = np.where(mask, np.inf, -1.0)
    for number in range(count):
        centers[:, number] = center
        gaps = np.minimum(
            gaps, squared_distances(points, points[rows, center][:, None])
        )  # -1 stays
        center = gaps.argmax(1)
    return centers


def squared_distances(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
    """Return (...) squared distances of points (..., d), an axis at a time to save memory."""
    total: NDArray[Any] = np.square(one[..., 0] - two[..., 0])
    for axis in range(1, one.shape[-1]):
        total += np.square(one[..., axis] - two[..., axis])
    return total


def nearest_points(
    points: NDArray[Any], mask: NDArray[np.bool_], centers: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the (R, M, k) points nearest to each center, itself the first, and which exist."""
    rows = np.arange(len(points))[:, None]
    if count == 1:
        return centers[..., None], mask[rows, centers][..., None]
    origin = points[rows, centers]  # (R, M, d)
    distances = squared_distances(origin[:, :, None], points[:, None])  # (R, M, N)
    distances[np.broadcast_to(~mask[:, None], distances.shape)] = np.inf
    np.put_along_axis(distances, centers[..., None], -1.0, 2)
    available = min(count, points.shape[1])
    candidates = np.argpartition(distances, available - 1, axis=2)[..., :available]
    order = np.argsort(np.take_along_axis(distances, candidates, 2), axis=2, kind="stable")
    nearest = np.take_along_axis(candidates, order, 2)
    exists = np.isfinite(np.take_along_axis(distances, nearest, 2))
    padding = (0, 0), (0, 0), (0, count - available)
    return np.pad(nearest, padding), np.pad(exists, padding)
