"""Data sets that come with regard: names, films, phrases in two languages (see README.md), and
synthetic point clouds.

The clouds are points on the surfaces of simple solids, stretched, rotated at random, with noise,
and with a part cut away. Nothing is downloaded; the same seed gives the same clouds.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILMS = Path(__file__).with_name("films.tsv")  # a description, a tab, a title
NAMES = Path(__file__).with_name("names.txt")
PHRASES = Path(__file__).with_name("phrases.en-de.tsv.gz")  # English, a tab, German

Points = NDArray[np.float64]  # (N, 3)
Random = np.random.Generator


def _sphere(count: int, random: Random) -> Points:
    points = random.normal(size=(count, 3))
    unit: Points = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit


def _cube(count: int, random: Random) -> Points:
    return _box(count, random, np.ones(3))


def _box(count: int, random: Random, edges: Points) -> Points:
    areas = np.array([edges[1] * edges[2], edges[0] * edges[2], edges[0] * edges[1]])
    points = random.uniform(-1, 1, (count, 3))
    axis = random.choice(3, count, p=areas / areas.sum())
    points[np.arange(count), axis] = random.choice([-1.0, 1.0], count)
    return points * edges


def _revolve(
    count: int, random: Random, radius: Callable[[Points], Points], height: float
) -> Points:
    """Sample a surface of revolution and its two lids, uniformly by area."""
    heights = np.linspace(-1, 1, 101)
    slope = np.gradient(radius(heights), heights * height)
    mantle = 2 * height * radius(heights) * np.sqrt(1 + slope**2)
    lids = radius(np.array([-1.0, 1.0])) ** 2 / 2
    total = mantle.mean() + lids.sum()
    part = random.choice(3, count, p=np.array([mantle.mean(), *lids]) / total)
    z = random.choice(heights, count, p=mantle / mantle.sum()) + random.uniform(-0.01, 0.01, count)
    z = np.where(part == 1, -1.0, np.where(part == 2, 1.0, z.clip(-1, 1)))
    distance = radius(z) * np.where(part == 0, 1.0, np.sqrt(random.random(count)))
    angle = random.uniform(0, 2 * np.pi, count)
    return np.stack((distance * np.cos(angle), distance * np.sin(angle), z * height), 1)


def _cylinder(count: int, random: Random) -> Points:
    width = random.uniform(0.5, 0.7)
    return _revolve(count, random, lambda z: np.full_like(z, width), 1.0)


def _cone(count: int, random: Random) -> Points:
    width = random.uniform(0.6, 0.9)
    return _revolve(count, random, lambda z: width * (1 - z) / 2, 1.0)


def _torus(count: int, random: Random) -> Points:
    thickness = random.uniform(0.25, 0.4)
    around, within = random.uniform(0, 2 * np.pi, (2, 4 * count))
    accepted = random.random(4 * count) < (1 + thickness * np.cos(within)) / (1 + thickness)
    around, within = around[accepted][:count], within[accepted][:count]  # uniform by area
    distance = 1 + thickness * np.cos(within)
    return np.stack(
        (distance * np.cos(around), distance * np.sin(around), thickness * np.sin(within)), 1
    )


def _cross(count: int, random: Random) -> Points:
    edges = np.array([1.0, *random.uniform(0.15, 0.25, 2)])
    one, two = _box(count // 2, random, edges), _box(count - count // 2, random, edges)
    return np.concatenate((one, two[:, [1, 0, 2]]))


def _helix(count: int, random: Random) -> Points:
    turns, z = random.uniform(1.5, 2.5), random.uniform(-1, 1, count)
    angle = np.pi * turns * z
    wire = _sphere(count, random) * 0.1
    return np.stack((0.6 * np.cos(angle), 0.6 * np.sin(angle), z), 1) + wire


def _saddle(count: int, random: Random) -> Points:
    x, y = random.uniform(-1, 1, (2, count))
    return np.stack((x, y, random.uniform(0.5, 0.8) * (x**2 - y**2)), 1)


SHAPES: dict[str, Callable[[int, Random], Points]] = {
    "sphere": _sphere,
    "box": _cube,
    "cylinder": _cylinder,
    "cone": _cone,
    "torus": _torus,
    "cross": _cross,
    "helix": _helix,
    "saddle": _saddle,
}


def random_rotation(random: Random) -> Points:
    """Return a rotation (3, 3), uniformly distributed (Shoemake 1992)."""
    q, r = np.linalg.qr(random.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    rotation: Points = q * np.sign(np.linalg.det(q))
    return rotation


def sample_shape(
    name: str, random: Random, *, count: int = 256, noise: float = 0.02, missing: float = 0.25
) -> NDArray[np.float32]:
    """Sample points (N, 3) of a shape, with N from half of `count` to `count`.

    The shape is stretched along its axes and rotated, up to the share `missing` is cut away by a
    plane, and noise is added.
    """
    n_points = int(random.integers(count // 2, count + 1))
    cut = random.uniform(0, missing)
    points = SHAPES[name](int(np.ceil(n_points / (1 - cut))), random)
    depth = points @ _sphere(1, random)[0]
    points = points[np.sort(np.argsort(depth)[:n_points])]
    stretch = random.uniform(0.6, 1.4, 3)
    points = (points * stretch) @ random_rotation(random).T * random.uniform(0.5, 2.0)
    radius = np.linalg.norm(points - points.mean(0), axis=1).max()
    noisy: Points = points + random.normal(size=points.shape) * noise * radius
    return noisy.astype(np.float32)


def save_arrays(path: Path, **arrays: NDArray[Any]) -> Path:
    """Write arrays to a .npz file; equal arrays give equal files, which np.savez does not."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # of no date
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return path


def save_shapes(path: Path, records: int = 4000, *, seed: int = 0, count: int = 256) -> Path:
    """Write shapes, as many of each class, to a .npz file that `regard train` reads."""
    random, names = np.random.default_rng(seed), list(SHAPES)
    classes = [names[i % len(names)] for i in range(records)]
    clouds = [sample_shape(name, random, count=count) for name in classes]
    return save_arrays(
        path,
        points=np.concatenate(clouds),
        lengths=np.array([len(cloud) for cloud in clouds]),
        shape=np.array(classes),
    )
