"""Clouds of points with a map of their tokens, for figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawn_maps import ramp
from .drawn_pictures import shown
from .page.clouds import Space
from .page.component import visible

TILT, TURN = 0.5, 0.6  # radians that flat pictures of space are seen from


def draw_space(panel: Any, space: Space) -> None:
    """Every map over the points, as `<S>`, or its only row, has it, seen from one side."""
    points, owners = np.asarray(space.points, np.float64), np.asarray(space.owners)
    across, up, depth = seen(points)
    order = np.argsort(depth)
    down, wide = shown(space)
    axes = panel.subplots(down, wide, squeeze=False)
    for place in axes.flat:
        place.axis("off")
    for place, name, values in zip(axes.flat, space.names, space.array()[:, 0], strict=False):
        reach = float(np.abs(values).max()) or 1.0
        weighed = space.scale == "weights"
        spread = np.sqrt(values / reach) if weighed else values / reach
        place.scatter(
            across[order],
            up[order],
            c=spread[owners[order]],
            cmap=ramp("ramp" if weighed else "diverging"),
            vmin=0 if weighed else -1,
            vmax=1,
            s=6,
        )
        place.set_aspect("equal")
        place.set_title(visible(name, spaces=False), fontsize=7)
    panel.suptitle(visible(space.title, spaces=False))


def seen(points: Any) -> tuple[Any, Any, Any]:
    """Where points (P, 3) stand on the page, and how near: flat ones from above."""
    x, y, z = points.T
    if not np.ptp(z):
        return x, y, z
    right, back = np.cos(TURN) * x + np.sin(TURN) * z, np.cos(TURN) * z - np.sin(TURN) * x
    return right, np.cos(TILT) * y - np.sin(TILT) * back, np.sin(TILT) * y + np.cos(TILT) * back
