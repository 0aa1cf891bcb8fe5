"""Pictures with a map of their patches, for figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawn_maps import ramp
from .page.clouds import Space
from .page.component import visible
from .page.pictures import Picture

MOST = 24  # maps of one figure
COVER = 0.62  # as on the page


def shown(picture: Picture | Space) -> tuple[int, int]:
    """Rows and columns of maps that are drawn."""
    count = min(MOST, len(picture.names))
    across = min(picture.across or count, 6)
    return -(-count // across), across


def draw_picture(panel: Any, picture: Picture) -> None:
    """Every map over the picture, as `<S>`, or its only row, has it."""
    rows, columns = picture.grid
    image, maps = picture.image(), picture.array()[:, 0]
    down, across = shown(picture)
    axes = panel.subplots(down, across, squeeze=False)
    for place in axes.flat:
        place.axis("off")
    for place, name, values in zip(axes.flat, picture.names, maps, strict=False):
        reach = float(np.abs(values).max()) or 1.0
        edge = 0, image.shape[1], image.shape[0], 0
        place.imshow(image if image.shape[2] == 3 else image[..., 0], cmap="gray", vmin=0, vmax=255)
        spread = np.sqrt(values / reach) if picture.scale == "weights" else values / reach
        low, colours = (0, "ramp") if picture.scale == "weights" else (-1, "diverging")
        place.imshow(
            spread.reshape(rows, columns),
            cmap=ramp(colours),
            vmin=low,
            vmax=1,
            alpha=COVER,
            extent=edge,
            interpolation="nearest",
        )
        place.set_title(visible(name, spaces=False), fontsize=7)
    panel.suptitle(visible(picture.title, spaces=False))
