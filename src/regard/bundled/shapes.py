"""Shapes in space, made up: points on the surfaces of simple bodies, stretched, turned in any way,
with noise, and with a part cut away. Nothing to download, and the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Random = np.random.Generator


def on_sphere(count: int, random: Random) -> Points:
    """Points of the unit sphere."""
    points = random.normal(size=(count, 3))
    found: Points = points / np.linalg.norm(points, axis=1, keepdims=True)
    return found


def sphere(count: int, random: Random) -> Points:
    """A sphere, before it is stretched."""
    return on_sphere(count, random)


def box(count: int, random: Random) -> Points:
    """A cube, before it is stretched."""
    return _box(count, random, np.ones(3))


def _box(count: int, random: Random, sides: Points) -> Points:
    areas = np.array([sides[1] * sides[2], sides[0] * sides[2], sides[0] * sides[1]])
    points = random.uniform(-1, 1, (count, 3))
    axis = random.choice(3, count, p=areas / areas.sum())
    points[np.arange(count), axis] = random.choice([-1.0, 1.0], count)
    return points * sides


def _round(count: int, random: Random, radius: Callable[[Points], Points], height: float) -> Points:
    """A body of revolution between two lids, points drawn by the radius at each height."""
    tall = np.linspace(-1, 1, 101)
    slope = np.gradient(radius(tall), tall * height)
    side = 2 * height * radius(tall) * np.sqrt(1 + slope**2)
    lids = radius(np.array([-1.0, 1.0])) ** 2 / 2
    total = side.mean() + lids.sum()
    part = random.choice(3, count, p=np.array([side.mean(), *lids]) / total)
    z = random.choice(tall, count, p=side / side.sum()) + random.uniform(-0.01, 0.01, count)
    z = np.where(part == 1, -1.0, np.where(part == 2, 1.0, z.clip(-1, 1)))
    away = radius(z) * np.where(part == 0, 1.0, np.sqrt(random.random(count)))
    angle = random.uniform(0, 2 * np.pi, count)
    return np.stack((away * np.cos(angle), away * np.sin(angle), z * height), 1)


def cylinder(count: int, random: Random) -> Points:
    """A cylinder with its lids."""
    width = random.uniform(0.5, 0.7)
    return _round(count, random, lambda z: np.full_like(z, width), 1.0)


def cone(count: int, random: Random) -> Points:
    """A cone with its base."""
    width = random.uniform(0.6, 0.9)
    return _round(count, random, lambda z: width * (1 - z) / 2, 1.0)


def torus(count: int, random: Random) -> Points:
    """A ring."""
    thin = random.uniform(0.25, 0.4)
    around, within = random.uniform(0, 2 * np.pi, (2, 4 * count))
    kept = random.random(4 * count) < (1 + thin * np.cos(within)) / (1 + thin)  # by the area
    around, within = around[kept][:count], within[kept][:count]
    away = 1 + thin * np.cos(within)
    return np.stack((away * np.cos(around), away * np.sin(around), thin * np.sin(within)), 1)


def cross(count: int, random: Random) -> Points:
    """Two beams through each other."""
    sides = np.array([1.0, *random.uniform(0.15, 0.25, 2)])
    one, two = _box(count // 2, random, sides), _box(count - count // 2, random, sides)
    return np.concatenate((one, two[:, [1, 0, 2]]))


def helix(count: int, random: Random) -> Points:
    """A spring."""
    turns, along = random.uniform(1.5, 2.5), random.uniform(-1, 1, count)
    angle = np.pi * turns * along
    wire = on_sphere(count, random) * 0.1
    return np.stack((0.6 * np.cos(angle), 0.6 * np.sin(angle), along), 1) + wire


def saddle(count: int, random: Random) -> Points:
    """A surface that is bent two ways."""
    x, y = random.uniform(-1, 1, (2, count))
    return np.stack((x, y, random.uniform(0.5, 0.8) * (x**2 - y**2)), 1)


SHAPES: dict[str, Callable[[int, Random], Points]] = {
    "sphere": sphere,
    "box": box,
    "cylinder": cylinder,
    "cone": cone,
    "torus": torus,
    "cross": cross,
    "helix": helix,
    "saddle": saddle,
}


def turn(random: Random) -> Points:
    """A rotation (3, 3), all alike probable (Shoemake 1992)."""
    q, r = np.linalg.qr(random.normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    found: Points = q * np.sign(np.linalg.det(q))
    return found


def shape(
    name: str, random: Random, *, count: int = 256, noise: float = 0.02, missing: float = 0.25
) -> NDArray[np.float32]:
    """Points (N, 3) of a shape, stretched along its axes, turned in any way, moved by noise, with
    up to a share `missing` that lies beyond a plane; N is from half of `count` to all of it.
    """
    wanted = int(random.integers(count // 2, count + 1))
    lost = random.uniform(0, missing)
    points = SHAPES[name](int(np.ceil(wanted / (1 - lost))), random)
    along = points @ on_sphere(1, random)[0]
    points = points[np.sort(np.argsort(along)[:wanted])]
    points = (points * random.uniform(0.6, 1.4, 3)) @ turn(random).T * random.uniform(0.5, 2.0)
    size = np.linalg.norm(points - points.mean(0), axis=1).max()
    found: NDArray[np.float32] = points + random.normal(size=points.shape) * noise * size
    return found.astype(np.float32)


def save_shapes(path: Path, records: int = 4000, *, seed: int = 0, count: int = 256) -> Path:
    """So many shapes, every class the same share, as a file that `regard train` reads."""
    random, names = np.random.default_rng(seed), list(SHAPES)
    chosen = [names[i % len(names)] for i in range(records)]
    clouds = [shape(name, random, count=count) for name in chosen]
    np.savez_compressed(
        path,
        points=np.concatenate(clouds),
        lengths=np.array([len(cloud) for cloud in clouds]),
        shape=np.array(chosen),
    )
    return path
