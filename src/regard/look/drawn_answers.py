"""Points and logos as pictures."""

from __future__ import annotations

from typing import Any

import numpy as np

from .drawn_maps import colours, ramp
from .page.component import visible
from .page.points import Projector, Scatter
from .page.symbols import Logo


def draw_scatter(panel: Any, scatter: Scatter) -> None:
    """Points by group, the last colour for all rarer ones, or by value; marked ones named."""
    axes, palette, names = panel.subplots(), colours("series"), scatter.names()
    points, last = scatter.array(), len(palette) - 1
    if names:
        places = np.minimum([names.index(name) for name in scatter.groups], last)
        for group in range(min(len(names), last + 1)):
            word = "others" if group == last and len(names) > last + 1 else names[group]
            style = {"color": palette[group], "label": visible(word, spaces=False)}
            axes.scatter(*points[places == group].T, s=10, alpha=0.8, linewidths=0, **style)
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    elif len(scatter.values):
        shown = axes.scatter(*points.T, s=10, c=scatter.values, cmap=ramp("ramp"), linewidths=0)
        panel.colorbar(shown, ax=axes, label=visible(scatter.unit, spaces=False), shrink=0.8)
    else:
        axes.scatter(*points.T, s=10, color=colours("accent")[0], alpha=0.8, linewidths=0)
    for i, name in scatter.marks.items():
        axes.scatter(*points[i], s=42, facecolor="none", edgecolor=colours("ink")[0])
        axes.annotate(visible(name, spaces=False), points[i], (6, 3), textcoords="offset points")
    if scatter.diagonal:
        ends = [points.min(), points.max()]
        axes.plot(ends, ends, color=colours("muted")[0], linestyle="--", linewidth=1)
    axes.set_xlabel(visible(scatter.x_label, spaces=False))
    axes.set_ylabel(visible(scatter.y_label, spaces=False))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(visible(scatter.title, spaces=False), loc="left")


def draw_projector(panel: Any, projector: Projector) -> None:
    """The first of its planes, with the chosen word and its neighbours."""
    draw_scatter(panel, next(iter(projector.scatters().values())))


def draw_logo(panel: Any, logo: Logo) -> None:
    """Stacks of letters, each stretched to its bits."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import PathPatch
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    axes, palette, bold = panel.subplots(), colours("series"), FontProperties(weight="bold")
    for j, stack in enumerate(logo.stacks(0.005 * logo.most)):
        base = 0.0
        for letter, bits, colour in stack:
            path = TextPath((0, 0), visible(letter), size=1, prop=bold)
            box = path.get_extents()
            if box.width and box.height:
                size = Affine2D().translate(-box.x0, -box.y0)
                size = size.scale(0.92 / box.width, bits / box.height).translate(j + 0.04, base)
                axes.add_patch(PathPatch(size.transform_path(path), color=palette[colour], lw=0))
            base += bits
    width = len(logo.array())
    axes.set(xlim=(0, width), ylim=(0, logo.most), ylabel="bits")
    axes.set_xticks(np.arange(width) + 0.5, [str(logo.first + j) for j in range(width)])
    axes.spines[["top", "right"]].set_visible(False)
    told = f" ({logo.note})" if logo.note else ""
    axes.set_title(visible(logo.title + told, spaces=False), loc="left")
