"""Point clouds as tokens: some points are chosen as centres, and each, with the points nearest to
it, is a token (Qi et al. 2017, "PointNet++", arXiv:1706.02413).

A token is V numbers: the d coordinates of its centre, and of each of its k neighbours, of which the
centre itself is the first, whether it is there (1 or 0), its d coordinates less those of the
centre, and its features: which element it is, one number for each, then what else was given, less
its mean in training and in units of its deviation. A record is `<S>`, which is zeros, and the
tokens. Centres are chosen farthest from all chosen before, the first farthest from the centroid;
points are sorted before anything is computed, so that the order in which a file has them never
matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.tokenizers.tokenizer import SPECIALS, Ids, Tokenizer, read_json

Floats = NDArray[np.float32]
SCALES = ("unit", "kept")  # the farthest point is at distance 1; distances are left as they are
TOGETHER = 1 << 22  # distances computed at once
SAMPLE = 256  # clouds whose groups are measured
NO_ATOMS: NDArray[np.uint8] = np.zeros(0, np.uint8)


@dataclass(frozen=True, eq=False, slots=True)
class PointCloud:
    """Points (N, d), features (N, C) of each and, of molecules, the atomic numbers (N,)."""

    points: Floats
    features: Floats
    atoms: NDArray[np.uint8] = field(default_factory=lambda: NO_ATOMS)

    def __len__(self) -> int:
        """N."""
        return len(self.points)


class Points(Tokenizer):
    """Groups of points. `samples` centres are chosen, 0 being every point, in the order given;
    `neighbours` is k. `reach` is the largest distance between two points in training, `spread` the
    usual one of a neighbour. Features have this mean and deviation there.
    """

    kind: ClassVar[str] = "points"
    file: ClassVar[str] = "preprocessor_config.json"
    item: ClassVar[str] = "a Cloud, or the path of one"

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
        super().__init__([b""] * len(SPECIALS))
        self.raw = [json.dumps(self.document(), sort_keys=True).encode()]  # told apart by this
        self.vocab_size = dimensions + neighbours * (1 + dimensions + self.n_features)
        self.dtype = np.dtype(np.float32)

    def reads(self, value: object) -> bool:
        """See Tokenizer; a record of a shard (1 + N, V) is read as well."""
        tokens = isinstance(value, np.ndarray) and value.ndim == 2
        return tokens or isinstance(value, PointCloud | str | Path)

    @property
    def n_features(self) -> int:
        """C: elements, then what else is told of a point."""
        return len(self.elements) + len(self.mean)

    @property
    def decides(self) -> dict[str, Any]:
        """What a model's configuration has from here."""
        names = ("dimensions", "neighbours", "n_features", "elements", "reach", "spread")
        return {name: getattr(self, name) for name in names}

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
        """Measure clouds; `neighbours` of 0 is 1, and an open `scale` is kept of molecules."""
        seen = PointStatistics()
        for cloud in texts:
            seen.add(cloud)
        if not seen.count:
            raise UserError("there is no point cloud to measure")
        mean, deviation = seen.features()
        scale = scale if scale != "auto" else ("kept" if seen.elements else "unit")
        told: dict[str, Any] = {
            "samples": samples,
            "neighbours": neighbours or 1,
            "scale": scale,
            "elements": sorted(seen.elements),
            "mean": np.round(mean, 6).tolist(),
            "deviation": np.round(deviation, 6).tolist(),
            "reach": round(2 * seen.radius, 4) if scale == "kept" else 2.0,
        }
        found = cls(seen.dimensions, **told)
        if found.neighbours == 1:
            return found
        ids, _ = found.encode_batch(seen.some)
        near = found.groups(ids)
        gaps = near[..., 1 : 1 + found.dimensions][near[..., 0] > 0]
        usual = float(np.sqrt(np.square(gaps).sum(-1).mean())) if len(gaps) else 1.0
        return cls(seen.dimensions, **told, spread=round(usual, 6) or 1.0)

    def groups(self, ids: NDArray[Any]) -> NDArray[Any]:
        """(..., k, 1 + d + C) the neighbours of tokens (..., V)."""
        near = np.asarray(ids)[..., self.dimensions :]
        return near.reshape(*near.shape[:-1], self.neighbours, -1)

    def encode_batch(self, texts: Sequence[Any]) -> tuple[Ids, Ids]:
        """The tokens (N, V) of all clouds, `<S>` before each, and how many each has; what is tokens
        already, of a record (1 + N, V), stays what it is.
        """
        parts: list[Floats] = []
        if texts and isinstance(texts[0], np.ndarray):
            parts = list(texts)
        else:
            parts = [tokens for some in self._chunks(texts) for tokens in self._encode(some)]
        lengths = [len(tokens) for tokens in parts]
        flat = np.concatenate(parts) if parts else np.empty((0, self.vocab_size), np.float32)
        return flat, np.array(lengths, np.int64)

    def _chunks(self, clouds: Sequence[PointCloud]) -> Iterator[list[PointCloud]]:
        """As many clouds at a time as fit into memory with all their distances."""
        some: list[PointCloud] = []
        longest = 0
        for cloud in clouds:
            self._check(cloud)
            longest = max(longest, len(cloud))
            centres = min(self.samples or longest, longest)
            if some and (len(some) + 1) * longest * centres > TOGETHER:
                yield some
                some, longest = [], len(cloud)
            some.append(cloud)
        if some:
            yield some

    def _check(self, cloud: PointCloud) -> None:
        if not len(cloud):
            raise UserError("a point cloud has no points")
        if cloud.points.shape[1] != self.dimensions:
            raise UserError(
                f"a point cloud has {cloud.points.shape[1]} dimensions, "
                f"the model reads {self.dimensions}"
            )
        if cloud.features.shape[1] != len(self.mean) or bool(self.elements) != bool(
            len(cloud.atoms)
        ):
            raise UserError(
                f"a point cloud has {cloud.features.shape[1]} features of a point"
                f"{' and elements' if len(cloud.atoms) else ''}, the model reads {len(self.mean)}"
                f"{' and elements' if self.elements else ''}"
            )

    def _encode(self, clouds: Sequence[PointCloud]) -> Iterator[Floats]:
        """The tokens (1 + N, V) of each cloud."""
        most = max(map(len, clouds))
        points = np.zeros((len(clouds), most, self.dimensions), np.float64)
        features = np.zeros((len(clouds), most, self.n_features), np.float32)
        there = np.zeros((len(clouds), most), bool)
        orders = []
        for row, cloud in enumerate(clouds):
            told = self.told(cloud)
            keys = np.concatenate((told.T[::-1], cloud.points.T[::-1]))
            order = np.lexsort(keys)  # by the coordinates, then the features
            orders.append(order)
            points[row, : len(order)], features[row, : len(order)] = (
                cloud.points[order],
                told[order],
            )
            there[row, : len(order)] = True
        points = normalised(points, there, self.scale).astype(np.float32)
        if self.samples:
            centres = farthest(points, there, min(self.samples, most))
        else:
            centres = np.broadcast_to(np.arange(most), there.shape)
        near, inside = nearest(points, there, centres, self.neighbours)
        rows = np.arange(len(clouds))[:, None]
        at = points[rows, centres]  # (R, M, d)
        gaps = points[rows[..., None], near] - at[:, :, None]  # (R, M, k, d)
        told = features[rows[..., None], near]
        group = np.concatenate((np.ones((*inside.shape, 1)), gaps, told), -1) * inside[..., None]
        tokens = np.concatenate((at, group.reshape(*at.shape[:2], -1)), -1).astype(np.float32)
        for row, order in enumerate(orders):
            own = tokens[row, : min(centres.shape[1], len(order))]
            if not self.samples:
                own = own[np.argsort(order)]  # as they were given: they may be asked about
            yield np.concatenate((np.zeros((1, self.vocab_size), np.float32), own))

    def told(self, cloud: PointCloud) -> Floats:
        """(N, C) features as tokens have them; an element that training did not have is none."""
        kinds = (cloud.atoms[:, None] == np.array(self.elements, int)).astype(np.float32)
        if not self.elements:
            kinds = np.zeros((len(cloud), 0), np.float32)
        scaled = (cloud.features - np.array(self.mean)) / np.array(self.deviation)
        return np.concatenate((kinds, scaled.astype(np.float32)), 1)

    def cloud(self, ids: NDArray[Any]) -> PointCloud:
        """The cloud of a record's tokens (1 + N, V), as it was normalised: centres and neighbours,
        each once, so many of its points as the tokens hold; where every point is one, in order.
        """
        tokens = np.asarray(ids)[1:]
        at, near = tokens[:, : self.dimensions], self.groups(tokens)
        if not self.samples:
            points, told = at, near[:, 0, 1 + self.dimensions :]
        else:
            every = near.reshape(-1, near.shape[-1])
            around = np.repeat(at, self.neighbours, 0) + every[:, 1 : 1 + self.dimensions]
            sound = every[:, 0] > 0
            rounded = np.round(around[sound], 5)
            first = np.unique(rounded, axis=0, return_index=True)[1]
            points = around[sound][first]
            told = every[sound][first, 1 + self.dimensions :]
        n = len(self.elements)
        numbers = np.array([*self.elements, 0], np.uint8)
        which = np.where(told[:, :n].any(1), told[:, :n].argmax(1), n) if n else NO_ATOMS
        features = told[:, n:] * np.array(self.deviation) + np.array(self.mean)
        return PointCloud(points, features.astype(np.float32), numbers[which] if n else NO_ATOMS)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """What the tokens of a cloud are, in words."""
        found = np.asarray(ids)
        if found.ndim != 2 or len(found) < 2:
            return "a point cloud"
        return f"a point cloud of {len(found) - 1} tokens"

    def text(self, id: int) -> str:
        """See Tokenizer: tokens that are numbers have no names."""
        return f"{id}"

    def document(self) -> dict[str, Any]:
        """The contents of preprocessor_config.json."""
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

    def save(self, path: str | Path) -> None:
        """See Tokenizer."""
        Path(path).write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def recognises(document: dict[str, Any]) -> bool:
        """Is a preprocessor_config.json one of ours?"""
        return document.get("point_processor_type") == "Points"

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The tokenizer of a preprocessor_config.json."""
        told = read_json(path)[1]
        try:
            counts = [int(told[n]) for n in ("dimensions", "samples", "neighbours")]
            mean, deviation = (list(map(float, told[f"feature_{n}"])) for n in ("mean", "std"))
            elements, scale = list(map(int, told["elements"])), str(told["scale"])
            reach, spread = float(told["reach"]), float(told["spread"])
            sound = 1 <= counts[0] <= 16 and 0 <= counts[1] <= 1 << 16 and 1 <= counts[2] <= 1 << 12
            sound &= len(mean) == len(deviation) <= 1 << 12 and len(elements) <= 118
            sound &= scale in SCALES and reach > 0 and spread > 0
            sound &= all(1 <= z <= 118 for z in elements) and min(deviation, default=1.0) > 0
            if not sound:
                raise ValueError("its sizes do not fit each other")
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return cls(
            counts[0],
            samples=counts[1],
            neighbours=counts[2],
            scale=scale,
            elements=elements,
            mean=mean,
            deviation=deviation,
            reach=reach,
            spread=spread,
        )


class PointStatistics:
    """What clouds of training are like, one after the other."""

    def __init__(self) -> None:
        self.count, self.dimensions, self.radius = 0, 0, 0.0
        self.elements: set[int] = set()
        self.sums = self.squares = np.zeros(0)
        self.points = 0
        self.some: list[PointCloud] = []

    def add(self, cloud: PointCloud) -> None:
        """Take one into account."""
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
        centred = cloud.points.astype(np.float64) - cloud.points.mean(0, dtype=np.float64)
        self.radius = max(self.radius, float(np.sqrt(np.square(centred).sum(1).max())))
        if len(self.some) < SAMPLE:
            self.some.append(cloud)

    def features(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and deviation of every feature; of one that never changes, the deviation is 1."""
        mean = self.sums / max(1, self.points)
        spread = np.sqrt(np.maximum(self.squares / max(1, self.points) - mean**2, 0))
        return mean, np.where(spread > 1e-6, spread, 1.0)


def normalised(points: NDArray[Any], there: NDArray[np.bool_], scale: str) -> NDArray[Any]:
    """Clouds (R, N, d) around their centroids; of the scale "unit", the farthest point at 1."""
    count = there.sum(1)[:, None, None]
    centred = (points - points.sum(1, keepdims=True) / count) * there[..., None]
    radius = np.ones(len(points))
    if scale == "unit":
        radius = np.sqrt(np.square(centred).sum(-1).max(1))
    found: NDArray[Any] = centred / np.where(radius > 0, radius, 1.0)[:, None, None]
    return found


def farthest(points: NDArray[Any], there: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """(R, M) so many points of each cloud, each the farthest from those before, the first from the
    centroid (Gonzalez 1985; Eldar et al. 1997); of equals, the first. Of clouds that have fewer,
    the rest repeats some.
    """
    rows = np.arange(len(points))
    chosen = np.zeros((len(points), count), np.int64)
    gaps = np.where(there, np.square(points).sum(-1), -1.0)
    at = gaps.argmax(1)
    gaps = np.where(there, np.inf, -1.0)
    for number in range(count):
        chosen[:, number] = at
        gaps = np.minimum(gaps, squares(points, points[rows, at][:, None]))  # -1 stays
        at = gaps.argmax(1)
    return chosen


def squares(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
    """(...) squared distances of points (..., d), an axis at a time: memory is what this costs."""
    found: NDArray[Any] = np.square(one[..., 0] - two[..., 0])
    for axis in range(1, one.shape[-1]):
        found += np.square(one[..., axis] - two[..., axis])
    return found


def nearest(
    points: NDArray[Any], there: NDArray[np.bool_], centres: NDArray[np.int64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(R, M, k) the points nearest to each centre, itself the first, and which are there."""
    if count == 1:
        rows = np.arange(len(points))[:, None]
        return centres[..., None], there[rows, centres][..., None]
    at = points[np.arange(len(points))[:, None], centres]  # (R, M, d)
    away = squares(at[:, :, None], points[:, None])  # (R, M, N)
    away[np.broadcast_to(~there[:, None], away.shape)] = np.inf
    np.put_along_axis(away, centres[..., None], -1.0, 2)
    most = min(count, points.shape[1])
    some = np.argpartition(away, most - 1, axis=2)[..., :most]
    order = np.argsort(np.take_along_axis(away, some, 2), axis=2, kind="stable")
    near = np.take_along_axis(some, order, 2)
    inside = np.isfinite(np.take_along_axis(away, near, 2))
    more = (0, 0), (0, 0), (0, count - most)
    return np.pad(near, more), np.pad(inside, more)
