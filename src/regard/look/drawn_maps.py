"""Matrices as pictures: the maps of `figures`, and the colours that all pictures share."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .page.component import visible
from .page.document import asset
from .page.maps import Attention, Heatmap, Mask

MOST_LABELS = 40  # on one side of a map


def colours(name: str) -> list[str]:
    """The light colours of a variable of the page's style sheet, such as `ramp` or `series`."""
    found = re.search(rf"--{re.escape(name)}: ([^;]+);", asset("page.css"))
    if found is None:
        raise ValueError(f"page.css has no variable --{name}")
    return [colour.strip() for colour in found.group(1).split(",")]


def ramp(name: str) -> Any:
    """Such a variable as a colour map."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, colours(name))


def draw_heatmap(panel: Any, heatmap: Heatmap) -> None:
    """A heat map with its labels and colour bar."""
    from matplotlib.colors import FuncNorm, Normalize
    from matplotlib.patches import Rectangle

    axes = panel.subplots()
    values = np.ma.masked_invalid(heatmap.array())
    limit = float(np.abs(values).max()) if values.count() else 1.0
    norm: Any = Normalize()
    if heatmap.scale == "weights":
        norm = weighed()
    elif heatmap.scale in ("diverging", "mask"):
        norm = Normalize(-limit, limit) if heatmap.scale == "diverging" else Normalize(0, 1)
    elif heatmap.scale == "logarithmic":  # as on the page: log(1 + n), and nothing where n is 0
        values = np.ma.masked_equal(values, 0)
        norm = FuncNorm((np.log1p, np.expm1), vmin=0, vmax=limit or 1.0)
    name = heatmap.scale if heatmap.scale in ("diverging", "mask") else "ramp"
    aspect = "equal" if 0.2 < values.shape[0] / values.shape[1] < 5 else "auto"
    image = axes.imshow(values, cmap=ramp(name), norm=norm, aspect=aspect)
    edge: dict[str, Any] = {"fill": False, "edgecolor": colours("mark")[0], "linewidth": 1.4}
    for row, column in heatmap.marks:
        axes.add_patch(Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, **edge))
    _label_map(axes, list(heatmap.rows), list(heatmap.columns))
    axes.set_title(visible(heatmap.title, spaces=False))
    if heatmap.scale != "mask":
        panel.colorbar(image, ax=axes, label=visible(heatmap.unit, spaces=False), shrink=0.8)


def draw_mask(panel: Any, mask: Mask) -> None:
    """A mask, in two colours."""
    draw_heatmap(panel, mask.heatmap())


def _label_map(axes: Any, rows: list[str], columns: list[str]) -> None:
    for axis, names, turn in ((axes.yaxis, rows, 0), (axes.xaxis, columns, 90)):
        at = range(0, len(names), -(-len(names) // MOST_LABELS))
        axis.set_ticks(list(at), [_named(names[i])[:24] for i in at], rotation=turn, fontsize=7)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)


def _named(text: str) -> str:
    """A label, as on the page: a name keeps its inner spaces, a token's white space shows."""
    token = text != text.strip() or not text or "\n" in text or "\t" in text
    return visible(text, spaces=token)


def weighed() -> Any:
    """As on the page, colour follows the square root of the weight."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=1)


def draw_attention(panel: Any, attention: Attention) -> None:
    """Every head of every layer, small."""
    weights = attention.array()
    n_layers, n_heads, n_queries, n_keys = weights.shape
    grid = panel.subplots(n_layers, n_heads, squeeze=False)
    for i, name in enumerate(attention.layer_names()):
        for j in range(n_heads):
            axes = grid[i, j]
            axes.imshow(weights[i, j], cmap=ramp("ramp"), norm=weighed(), aspect="auto")
            if n_layers * n_heads <= 4 and max(n_queries, n_keys) <= MOST_LABELS:
                _label_map(axes, list(attention.tokens), attention.keys())
            else:
                axes.set(xticks=[], yticks=[])
            if i == 0:
                axes.set_title(f"head {j + 1}", fontsize=8)
            if j == 0:
                axes.set_ylabel(visible(name, spaces=False), fontsize=8)
    panel.suptitle(visible(attention.title, spaces=False) or None)
