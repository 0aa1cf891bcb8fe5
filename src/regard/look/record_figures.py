"""Components about single records as figures for papers: probabilities, confusion, a value within
the range of training, and molecules.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from regard.look.figures import colours, draw_heatmap, ramp, register_drawing
from regard.look.page.document import visible
from regard.look.page.records import Answer, Confusion, MoleculeMaps, ValueRange


def _draws_probabilities(answer: Answer, width: float) -> float:
    return 0.3 * len(answer.options) + 0.9


@register_drawing(Answer, height=_draws_probabilities)
def draw_answer(panel: Any, answer: Answer) -> None:
    """Draw the probability of each class, the prediction in the accent colour."""
    axes = panel.subplots()
    names, values = [name for name, _ in answer.options], [p for _, p in answer.options]
    quiet, accent = colours("muted")[0] + "90", colours("accent")[0]
    fill = [accent if i in answer.predicted else quiet for i in range(len(names))]
    axes.barh(range(len(names)), values, color=fill, height=0.7)
    axes.set_yticks(range(len(names)), [visible(name, spaces=False)[:40] for name in names])
    axes.invert_yaxis()
    axes.set_title(f"{answer.label}: {answer.headline} {answer.detail}".strip(), loc="left")
    axes.set_xlabel("probability" if names else "")
    axes.spines[["top", "right"]].set_visible(False)


def _matrix_height(confusion: Confusion, width: float) -> float:
    return float(np.clip(0.3 * len(confusion.classes), 2.4, width) + 0.8)


@register_drawing(Confusion, height=_matrix_height)
def draw_confusion(panel: Any, confusion: Confusion) -> None:
    draw_heatmap(panel, confusion.heatmap())


@register_drawing(ValueRange, height=lambda component, width: 2.4)
def draw_value_range(panel: Any, component: ValueRange) -> None:
    axes = panel.subplots()
    accent, ink = colours("accent")[0], colours("ink")[0]
    quiet = colours("muted")[0] + "90"
    axes.stairs(component.counts, component.edges, fill=True, color=quiet)
    if np.isfinite([component.low, component.high]).all():
        axes.axvspan(component.low, component.high, color=accent, alpha=0.18)
    axes.axvline(component.value, color=accent, linewidth=2, label="predicted")
    if np.isfinite(component.truth):
        axes.axvline(component.truth, color=ink, linestyle="--", label="true")
    axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel=component.x_label, ylabel=component.y_label)
    axes.set_title(component.title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def _structure_height(maps: MoleculeMaps, width: float) -> float:
    across, high = maps.size
    return float(min(3.5, width / len(maps.names) * high / across) + 0.9)


@register_drawing(MoleculeMaps, height=_structure_height)
def draw_structures(panel: Any, maps: MoleculeMaps) -> None:
    """Draw the molecule once for each map, its atoms on discs of the map's colours."""
    grid = panel.subplots(1, len(maps.names), squeeze=False)
    for axes, name, values in zip(grid.flat, maps.names, maps.array()[:, 0], strict=True):
        limit = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
        places = np.array([(x, y) for _, x, y in maps.atoms])
        known = np.isfinite(values)
        style = {"cmap": ramp("diverging"), "vmin": -limit, "vmax": limit, "s": 180}
        discs = axes.scatter(*places[known].T, c=values[known], linewidths=0, **style)
        for d, filled, line in maps.paths:
            _draw_path(axes, d, filled, line)
        axes.set_aspect("equal")
        axes.invert_yaxis()
        axes.axis("off")
        axes.set_title(name, fontsize=8)
        panel.colorbar(discs, ax=axes, label=maps.unit, shrink=0.7)
    panel.suptitle(maps.title or None)


def _draw_path(axes: Any, d: str, filled: bool, line: float) -> None:
    """Draw an SVG path of the commands M, L, Q, C and Z."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    codes = {"M": [Path.MOVETO], "L": [Path.LINETO], "Q": [Path.CURVE3] * 2, "C": [Path.CURVE4] * 3}
    points: list[tuple[float, float]] = []
    steps: list[Any] = []
    for command, numbers in re.findall(r"([MLQCZ])([^MLQCZ]*)", d):
        values = [float(x) for x in re.findall(r"-?[0-9.]+(?:e-?[0-9]+)?", numbers)]
        if command == "Z":
            points.append(points[-1])
            steps.append(Path.CLOSEPOLY)
            continue
        points += zip(values[::2], values[1::2], strict=True)
        steps += codes[command] * (len(values) // 2 // len(codes[command]))
    ink = colours("ink")[0]
    face, edge = (ink, "none") if filled else ("none", ink)
    width = line / 2 if not filled else 0
    axes.add_patch(PathPatch(Path(points, steps), facecolor=face, edgecolor=edge, linewidth=width))
