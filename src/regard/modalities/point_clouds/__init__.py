"""Point clouds and molecules in space: groups of neighboring points are tokens.

Grouping as in Point-BERT (Yu et al. 2022, arXiv:2111.14819): some points are centers, each with its
nearest neighbors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from regard.data.column_kinds import CellSample, ColumnKind
from regard.modalities import Augmentation, Modality, Tables, recognize_paths
from regard.recipe import check_fraction, check_range
from regard.registry import MODELS

if TYPE_CHECKING:
    from torch import nn

    from regard.data.sources import DataSource, ReadRequest
    from regard.data.targets import OutputKind
    from regard.data.text_files import FileSet
    from regard.look.page.records import Picture
    from regard.tokenizers.points import Points

INSPECTED = 5_000  # point clouds
SMALL_CLOUD = 64  # points up to which each is a token
N_GROUPS, GROUP_SIZE = 32, 16  # of larger clouds
BATCH_CLOUDS = 32  # in a step, about
MIN_BATCH_TOKENS = 2048


@dataclass(frozen=True, kw_only=True)
class PointCloudsConfig:
    """How point clouds become tokens."""

    name: str = "point-clouds"
    n_groups: int = 0  # centers of groups; 0 = every point is one
    group_size: int = 0  # points of a group, its center included; 0 = one
    scale: Literal["auto", "unit", "kept"] = "auto"  # unit = the farthest point is at 1
    mesh_points: int = 1024  # drawn from the surface of a mesh (OFF, PLY); 0 = its vertices

    def __post_init__(self) -> None:
        check_range("n_groups", self.n_groups, 1 << 16)
        check_range("group_size", self.group_size, 1 << 12)
        check_range("mesh_points", self.mesh_points, 1 << 20)


@dataclass
class PointCloudFacts:
    """Counts over the first point clouds."""

    counts: list[int] = field(default_factory=list)  # points of each
    dimensions: int = 3
    atoms: bool = False
    complete: bool = True

    @property
    def description(self) -> str:
        """How many, how large, in words."""
        least, most = min(self.counts), max(self.counts)
        points = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        more = "" if self.complete else "more than "
        what = "atoms" if self.atoms else "points"
        return f"{more}{len(self.counts):,} of {points} {what} in {self.dimensions} dimensions"


class PointClouds(Modality):
    """Point clouds: arrays, meshes, molecules with coordinates, or tables of paths."""

    name = "point-clouds"
    kind = "points"
    has_pictures = True
    words = ("point cloud", "point clouds")
    Config: ClassVar[type] = PointCloudsConfig

    def picture(self, item: Any) -> Picture:
        from regard.look.records import thin_cloud

        return thin_cloud(item.points)

    @classmethod
    def recognize(cls, files: Sequence[Path]) -> bool:
        from regard.modalities.point_clouds.files import holds_point_clouds

        return holds_point_clouds(files)

    @classmethod
    def recognize_cells(cls, sample: CellSample) -> ColumnKind | None:
        from regard.modalities.point_clouds.files import POINT_SUFFIXES

        return recognize_paths(sample, POINT_SUFFIXES, cls)

    def read(self, request: ReadRequest) -> FileSet:
        from regard.errors import UsageError
        from regard.modalities.point_clouds.files import PointCloudFiles

        if request.paired:
            raise UsageError(
                f"{request.files[0]}: point clouds have labels or values, not captions"
            )
        options = {"strict": request.strict, "mesh_points": self.config.mesh_points}
        return PointCloudFiles(request.files, request.columns, **options)

    def items(self, path: Path, encoder: Any, *, strict: bool = True) -> Iterator[tuple[str, Any]]:
        from regard.modalities.point_clouds.files import unlabelled_point_clouds

        return unlabelled_point_clouds([path], self.config.mesh_points, strict=strict)

    def from_memory(self, values: list[Any], encoder: Any) -> list[Any]:
        from regard.modalities.point_clouds.files import points_in_memory

        return [points_in_memory(value, encoder.dimensions) for value in values]

    def fit_encoder(self, items: Iterable[Any]) -> Points:
        from regard.tokenizers.points import Points

        config = self.config
        return Points.train(
            items, samples=config.n_groups, neighbours=config.group_size, scale=config.scale
        )

    def defaults(self, tables: Tables, source: FileSet, kind: OutputKind) -> list[str]:
        from regard.training.defaults import fill_split

        facts = inspect_point_clouds(source)
        table, most = tables["input"], max(facts.counts)
        why = "as asked" if table.get("n_groups") or table.get("group_size") else "by their size"
        each = facts.atoms or most <= SMALL_CLOUD or kind.aligned
        table.setdefault("n_groups", 0 if each else N_GROUPS)
        table.setdefault("group_size", 1 if facts.atoms else min(GROUP_SIZE, most))
        length = 1 + min(table["n_groups"] or most, most)
        tokens = f"{length - 1} points are" if table["n_groups"] else "each point is"
        first = (
            f"data: point clouds ({source.why}), {facts.description} → task "
            f"{tables['task']['name']}, {tokens} the center of a token of {table['group_size']} "
            f"points ({why})"
        )
        fill_split(tables["data"], len(facts.counts))
        return [first, size_point_model(tables, facts, kind, length)]

    def report(self, sources: DataSource, why: str) -> Any:
        from regard.modalities.point_clouds.files import inspect_point_clouds

        return inspect_point_clouds(sources, why)


def inspect_point_clouds(source: FileSet) -> PointCloudFacts:
    """Count over the first point clouds."""
    facts = PointCloudFacts()
    for chunk in source.records():
        clouds: Any = chunk.texts
        facts.counts += [len(cloud) for cloud in clouds]
        facts.dimensions, facts.atoms = clouds[0].points.shape[1], len(clouds[0].atoms) > 0
        if len(facts.counts) >= INSPECTED:
            facts.complete = False
            break
    return facts


def size_point_model(tables: Tables, facts: PointCloudFacts, kind: OutputKind, length: int) -> str:
    """Fill in depth, width, augmentation and training settings; return the line that says so."""
    from regard.training.defaults import (
        POINT_CLOUD_MODELS,
        default_network,
        default_shape,
        fill_batch,
        fill_shape,
        hardware,
    )

    model, records = tables["model"], len(facts.counts)
    name = default_network(POINT_CLOUD_MODELS, tables)
    fields = MODELS.get(name, tables["task"]["name"], PointClouds.kind).Config.__dataclass_fields__
    model.setdefault("max_len", length)
    if "d_model" not in fields:
        return f"model: {name}: fitted in one go"
    shape = default_shape(POINT_CLOUD_MODELS, records, records * length, tables)
    if facts.dimensions == 3 and not tables["augment"].get("rotate"):
        model.setdefault("preset", "molecule" if facts.atoms else "invariant")
    if facts.atoms:
        shape = replace(shape, dropout=0.0)
        if not kind.categorical:  # energies have five digits, more than bf16 can represent
            tables["train"].setdefault("precision", "fp32")
        elif model.get("preset") == "molecule":
            model.setdefault("pooling", "mean")
    given = fill_shape(model, {**fields, "dropout": None}, shape)
    augment = _fill_augment(tables, facts, kind)
    tokens = max(MIN_BATCH_TOKENS, BATCH_CLOUDS * length)
    fill_batch(tables["train"], tokens, large=records > 5_000)
    size = f"{shape.n_layers} × {shape.d_model}, for {records:,} point clouds and {hardware()}"
    invariant = "" if model.get("preset", "modern") == "modern" else ", invariant to rotations"
    return (
        f"model: {name} {'as asked' if given else size}{invariant}, at most {length} tokens each; "
        f"point clouds augmented by {augment}"
    )


def _fill_augment(tables: Tables, facts: PointCloudFacts, kind: OutputKind) -> str:
    """Fill in the augmentation unless one is given; return it in words."""
    from regard.training.defaults import AUGMENT_2D, AUGMENT_3D

    augment = tables["augment"]
    default = {} if facts.atoms else AUGMENT_3D if facts.dimensions == 3 else AUGMENT_2D
    if not any(key in augment for key in AUGMENT_3D):
        augment |= {k: x for k, x in default.items() if k != "drop" or not kind.aligned}
    if augment:
        augment.setdefault("name", "point-clouds")
    values = (f"{key} {augment[key]:g}" for key in AUGMENT_3D if augment.get(key))
    return ", ".join(values) or "nothing"


@dataclass(frozen=True, kw_only=True)
class PointAugmentConfig:
    """How point clouds are changed at random; each number is the largest change."""

    name: str = "point-clouds"
    shift: float = 0.0  # share of the size
    rotate: float = 0.0  # degrees; 180 = any rotation
    scale: float = 0.0  # share
    flip: bool = False  # mirror half of the clouds
    jitter: float = 0.0  # standard deviation of each point's move
    drop: float = 0.0  # the largest share of points that is left out

    def __post_init__(self) -> None:
        for key in ("shift", "scale", "drop"):
            check_fraction(key, getattr(self, key))
        for key in ("rotate", "jitter"):
            if getattr(self, key) < 0:
                raise ValueError(f"{key} must be at least 0, got {getattr(self, key)}")


class PointCloudAugment(Augmentation):
    """Random changes of point clouds, on the device."""

    Config: ClassVar[type] = PointAugmentConfig
    kind = PointClouds.kind

    def module(self, config: Any, *, aligned: bool) -> nn.Module | None:
        from regard.modalities.point_clouds.augmentation import RandomPointTransform

        return RandomPointTransform(self.config, config, aligned=aligned)
