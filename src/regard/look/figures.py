"""Page components as figures for papers: one PNG, SVG or PDF with a panel per component.

Each class of component brings its drawing through `register_drawing`. The colours are those of the
page's style sheet in its light form. Components made of words (texts, facts, tables, samples) have
no drawing and are left out.

A sequence logo has a stack of letters per position, as tall as its information content. Schneider &
Stephens 1990 (Nucleic Acids Research 18:6097): a stack is log₂ A − entropy bits tall, each letter
its share of it, the most probable on top.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError, UserError, missing_extra
from regard.look.page.charts import (
    AttentionMaps,
    Bars,
    BeamTree,
    Contributions,
    Distribution,
    Heatmap,
    Histogram,
    ImageMaps,
    Lines,
    Logo,
    MaskMap,
    PointMaps,
    Projector,
    Scatter,
    Surprise,
    Tagged,
    TokenMaps,
)
from regard.look.page.document import Component, asset, visible
from regard.models.motifs import DNA, RNA, Motif, MotifAlphabet

FORMATS = (".png", ".svg", ".pdf")
MOST_LABELS = 40  # on one axis of a map
MOST_MAPS = 24  # of one item
OVERLAY = 0.45  # opacity of a map over an image, as on the page
TILT, TURN = 0.5, 0.6  # viewing angles of point clouds, radians
MOST_TOKENS = 1500  # written out in a surprise panel; the strip below shows all of them
MOST_BARS = 20  # of a distribution
LINE = 84  # characters per line of a surprise panel
TAG_WIDTH = 3  # least characters of a token with a tag below it

Drawing = Callable[[Any, Any], None]  # draws a component into a panel, a matplotlib SubFigure
Height = Callable[[Any, float], float]  # inches that a component needs at a width
DRAWINGS: dict[type[Component], Drawing] = {}
HEIGHTS: dict[type[Component], Height] = {}


def register_drawing(
    *component_classes: type[Component], height: Height = lambda component, width: 3.2
) -> Callable[[Drawing], Drawing]:
    """Register how components of these classes are drawn, and how high."""

    def register(drawing: Drawing) -> Drawing:
        DRAWINGS.update(dict.fromkeys(component_classes, drawing))
        HEIGHTS.update(dict.fromkeys(component_classes, height))
        return drawing

    return register


def save(
    components: Iterable[Component], path: str | Path, *, width: float = 9.0, dpi: int = 150
) -> Path:
    """Draw the components below each other, `width` inches wide, into a file written atomically."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"a figure must end in {', '.join(FORMATS)}, got {path.name!r}")
    components = [component for component in components if type(component) in DRAWINGS]
    if not components:
        raise UserError("nothing to draw: none of the components has a drawing")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "plots") from None
    # Tokens are text: a $ starts no formula, and the same input gives the same bytes.
    settings: dict[Any, Any] = {"text.parse_math": False, "svg.hashsalt": "regard", "font.size": 9}
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A symbol that no installed font has is drawn as a box; no warning is needed.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        heights = [HEIGHTS[type(component)](component, width) for component in components]
        figure = Figure(figsize=(width, sum(heights)), layout="constrained")
        panels = figure.subfigures(len(components), 1, height_ratios=heights, squeeze=False)
        for panel, component in zip(panels.flat, components, strict=True):
            DRAWINGS[type(component)](panel, component)
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        try:
            date = metadata.get(path.suffix.lower())
            figure.savefig(part, bbox_inches="tight", metadata=date, dpi=dpi)  # with long titles
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path


def colours(name: str) -> list[str]:
    """Return the light colours of a variable of the page's style sheet, such as `series`."""
    match = re.search(rf"--{re.escape(name)}: ([^;]+);", asset("page.css"))
    if match is None:
        raise ValueError(f"page.css has no variable --{name}")
    return [colour.strip() for colour in match.group(1).split(",")]


def ramp(name: str) -> Any:
    """Return such a variable as a colour map."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, colours(name))


def _plain(text: str) -> str:
    """Return a title or name, which keeps its spaces."""
    return visible(text, spaces=False)


def _finish(axes: Any, component: Any, x_label: str = "", y_label: str = "") -> None:
    axes.set(xlabel=_plain(x_label), ylabel=_plain(y_label))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_plain(component.title), loc="left")


def _map_height(heatmap: Heatmap, width: float) -> float:
    rows, columns = heatmap.array().shape
    return float(np.clip(0.24 * rows, 1.6, width * min(1.0, rows / columns)) + 1.2)


@register_drawing(Heatmap, height=_map_height)
def draw_heatmap(panel: Any, heatmap: Heatmap) -> None:
    from matplotlib.colors import FuncNorm, Normalize
    from matplotlib.patches import Rectangle

    axes = panel.subplots()
    values = np.ma.masked_invalid(heatmap.array())
    limit = float(np.abs(values).max()) if values.count() else 1.0
    norm: Any = Normalize()
    if heatmap.scale == "weights":
        norm = _root_norm()
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
    axes.set_title(_plain(heatmap.title))
    if heatmap.scale != "mask":
        panel.colorbar(image, ax=axes, label=_plain(heatmap.unit), shrink=0.8)


@register_drawing(MaskMap, height=lambda mask, width: _map_height(mask.heatmap(), width))
def _draw_mask(panel: Any, mask: MaskMap) -> None:
    draw_heatmap(panel, mask.heatmap())


def _label_map(axes: Any, rows: list[str], columns: list[str]) -> None:
    for axis, names, turn in ((axes.yaxis, rows, 0), (axes.xaxis, columns, 90)):
        at = range(0, len(names), -(-len(names) // MOST_LABELS))
        axis.set_ticks(list(at), [_label(names[i])[:24] for i in at], rotation=turn, fontsize=7)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)


def _label(text: str) -> str:
    """Return a label as on the page: a name keeps its inner spaces, tokens show white space."""
    token = text != text.strip() or not text or "\n" in text or "\t" in text
    return visible(text, spaces=token)


def _root_norm() -> Any:
    """As on the page, colour follows the square root of the weight."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=1)


def _attention_height(attention: AttentionMaps, width: float) -> float:
    n_layers, n_heads, _, _ = attention.array().shape
    return float(min(width / n_heads, 3.5) * n_layers + 0.6)


@register_drawing(AttentionMaps, height=_attention_height)
def _draw_attention(panel: Any, attention: AttentionMaps) -> None:
    weights = attention.array()
    n_layers, n_heads, n_queries, n_keys = weights.shape
    grid = panel.subplots(n_layers, n_heads, squeeze=False)
    for i, name in enumerate(attention.layer_names()):
        for j in range(n_heads):
            axes = grid[i, j]
            axes.imshow(weights[i, j], cmap=ramp("ramp"), norm=_root_norm(), aspect="auto")
            if n_layers * n_heads <= 4 and max(n_queries, n_keys) <= MOST_LABELS:
                _label_map(axes, list(attention.tokens), attention.keys())
            else:
                axes.set(xticks=[], yticks=[])
            if i == 0:
                axes.set_title(f"head {j + 1}", fontsize=8)
            if j == 0:
                axes.set_ylabel(_plain(name), fontsize=8)
    panel.suptitle(_plain(attention.title) or None)


@register_drawing(Scatter, height=lambda scatter, width: 5.0)
def draw_scatter(panel: Any, scatter: Scatter) -> None:
    """Draw points by group, with other shapes where colours come round again, or by value."""
    axes, palette, names = panel.subplots(), colours("series")[:-1], scatter.names()
    points = scatter.array()
    if names:
        group_ids = np.array([names.index(name) for name in scatter.groups])
        for group, name in enumerate(names):
            turn, shade = divmod(group, len(palette))
            style = {"color": palette[shade], "marker": "os^D"[turn % 4], "label": _plain(name)}
            axes.scatter(*points[group_ids == group].T, s=10, alpha=0.8, linewidths=0, **style)
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    elif len(scatter.values):
        collection = axes.scatter(
            *points.T, s=10, c=scatter.values, cmap=ramp("ramp"), linewidths=0
        )
        panel.colorbar(collection, ax=axes, label=_plain(scatter.unit), shrink=0.8)
    else:
        axes.scatter(*points.T, s=10, color=colours("accent")[0], alpha=0.8, linewidths=0)
    for i, name in scatter.marks.items():
        axes.scatter(*points[i], s=42, facecolor="none", edgecolor=colours("ink")[0])
        axes.annotate(_plain(name), points[i], (6, 3), textcoords="offset points")
    if scatter.diagonal:
        ends = [points.min(), points.max()]
        axes.plot(ends, ends, color=colours("muted")[0], linestyle="--", linewidth=1)
    _finish(axes, scatter, scatter.x_label, scatter.y_label)


@register_drawing(Projector)
def _draw_projector(panel: Any, projector: Projector) -> None:
    draw_scatter(panel, next(iter(projector.scatters().values())))


@register_drawing(Logo, height=lambda logo, width: 1.8)
def _draw_logo(panel: Any, logo: Logo) -> None:
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
    note = f" ({logo.note})" if logo.note else ""
    axes.set_title(_plain(logo.title + note), loc="left")


def _grid_of_maps(maps: TokenMaps) -> tuple[int, int]:
    """Return rows and columns of the maps that are drawn."""
    count = min(MOST_MAPS, len(maps.names))
    across = min(maps.across or count, 6)
    return -(-count // across), across


def _maps_height(maps: TokenMaps, width: float) -> float:
    down, across = _grid_of_maps(maps)
    return float(min(width / across, 3.0) * down + 0.6)


def _draw_maps(panel: Any, maps: TokenMaps, draw: Callable[[Any, Any, Any], None]) -> None:
    """Draw the first row of every map, with `draw(axes, values, colours)`."""
    grid = panel.subplots(*_grid_of_maps(maps), squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, name, values in zip(grid.flat, maps.names, maps.array()[:, 0], strict=False):
        scaled = values / (float(np.abs(values).max()) or 1.0)
        colouring: tuple[float, str] = (-1, "diverging")
        if maps.scale == "weights":
            scaled, colouring = np.sqrt(scaled), (0, "ramp")
        if maps.scale == "sequential":
            colouring = float(scaled.min()), "ramp"
        draw(axes, scaled, {"vmin": colouring[0], "vmax": 1, "cmap": ramp(colouring[1])})
        axes.set_title(_plain(name), fontsize=7)
    panel.suptitle(_plain(maps.title))


@register_drawing(ImageMaps, height=_maps_height)
def _draw_image(panel: Any, maps: ImageMaps) -> None:
    image = maps.image()

    def draw(axes: Any, values: Any, colouring: Any) -> None:
        style: dict[str, Any] = {"interpolation": "nearest"}
        if image is not None:
            gray = image if image.shape[2] == 3 else image[..., 0]
            axes.imshow(gray, cmap="gray", vmin=0, vmax=255)
            style |= {"alpha": OVERLAY, "extent": (0, image.shape[1], image.shape[0], 0)}
        axes.imshow(values.reshape(maps.grid), **style, **colouring)

    _draw_maps(panel, maps, draw)


@register_drawing(PointMaps, height=_maps_height)
def _draw_points(panel: Any, maps: PointMaps) -> None:
    points, owners = np.asarray(maps.points, np.float64), np.asarray(maps.owners)
    across, up, depth = _project(points)
    order = np.argsort(depth)

    def draw(axes: Any, values: Any, colouring: Any) -> None:
        axes.scatter(across[order], up[order], c=values[owners[order]], s=6, **colouring)
        axes.set_aspect("equal")

    _draw_maps(panel, maps, draw)


def _project(points: Any) -> tuple[Any, Any, Any]:
    """Return x, y and depth of points (P, 3) on the page; flat ones are viewed from above."""
    x, y, z = points.T
    if not np.ptp(z):
        return x, y, z
    right, away = np.cos(TURN) * x + np.sin(TURN) * z, np.cos(TURN) * z - np.sin(TURN) * x
    return right, np.cos(TILT) * y - np.sin(TILT) * away, np.sin(TILT) * y + np.cos(TILT) * away


def _cells(token: str) -> int:
    """Return the columns of a token in a monospaced font: wide East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in visible(token))


def wrap_tokens(tokens: Iterable[str], least: int = 0) -> list[list[tuple[int, int, int]]]:
    """Return lines of (index, column, cells), with a new line after a newline.

    Every token has at least `least` cells.
    """
    lines: list[list[tuple[int, int, int]]] = [[]]
    column = 0
    for i, token in enumerate(tokens):
        cells = max(least, _cells(token))
        if column and column + cells > LINE:
            lines.append([])
            column = 0
        lines[-1].append((i, column, cells))
        column += cells
        if token.endswith("\n"):
            lines.append([])
            column = 0
    return lines if lines[-1] else lines[:-1]


def _text_height(text: Surprise | Contributions, width: float) -> float:
    lines = len(wrap_tokens(text.tokens[:MOST_TOKENS]))
    return float(len(text.rows) * (0.24 * lines + 1.0) + 0.3)


@register_drawing(Surprise, Contributions, height=_text_height)
def _draw_surprise(panel: Any, surprise: Surprise | Contributions) -> None:
    lines = wrap_tokens(surprise.tokens[:MOST_TOKENS])
    bits = np.asarray([row for _, row in surprise.rows], dtype=np.float64)
    finite = bits[np.isfinite(bits)]
    most = float(np.abs(finite).max(initial=0.0)) or 1.0
    most = max(surprise.least_limit, most)
    signed = bool((finite < -1e-4).any())  # bits are not, but for rounding
    low, shade = -most if signed else 0.0, ramp("diverging" if signed else "warm")
    ratios = [ratio for _ in surprise.rows for ratio in (max(1, len(lines)), 2.5)]
    grid = panel.subplots(2 * len(surprise.rows), 1, height_ratios=ratios)
    for (name, _), row, text, strip in zip(surprise.rows, bits, grid[::2], grid[1::2], strict=True):
        text.set(xlim=(0, LINE), ylim=(len(lines) + 0.1, -0.1))
        text.axis("off")
        text.set_title(_plain(name), loc="left", fontsize=9)
        for y, line in enumerate(lines):
            for i, x, cells in line:
                colour = (
                    None if np.isnan(row[i]) else shade((min(row[i], most) - low) / (most - low))
                )
                edge = colours("warn")[0] if np.isposinf(row[i]) else "none"
                _draw_token(text, surprise.tokens[i], (x, y, cells), colour, edge)
        shown = np.nan_to_num(np.clip(row, low, most), nan=0.0)
        strong = shade((0.25 * np.sign(shown) * most + 0.75 * shown - low) / (most - low))
        strip.bar(range(len(row)), shown, width=1.0, color=strong)
        ends = (float(finite.min(initial=0.0)), most)
        strip.set(xlim=(-0.5, len(row) - 0.5), ylim=ends, xticks=[], ylabel=surprise.unit)
        strip.spines[["top", "right"]].set_visible(False)
    panel.suptitle(_plain(surprise.title) or None)


def _draw_token(axes: Any, token: str, box: tuple[int, int, int], colour: Any, edge: str) -> None:
    from matplotlib.patches import Rectangle

    x, y, cells = box
    colour = (1, 1, 1, 0) if colour is None else colour
    axes.add_patch(Rectangle((x, y + 0.06), cells, 0.88, facecolor=colour, edgecolor=edge))
    light = np.dot(np.power(colour[:3], 2.2), (0.2126, 0.7152, 0.0722)) > 0.18
    style = {"family": "monospace", "fontsize": 8, "ha": "center", "va": "center"}
    ink = "#14161a" if light else "#ffffff"
    axes.text(x + cells / 2, y + 0.5, visible(token), color=ink, **style)


def _tagged_height(tagged: Tagged, width: float) -> float:
    return 0.34 * len(wrap_tokens(tagged.tokens[:MOST_TOKENS], TAG_WIDTH)) + 0.6


@register_drawing(Tagged, height=_tagged_height)
def _draw_tagged(panel: Any, tagged: Tagged) -> None:
    from matplotlib.patches import Rectangle

    axes, palette = panel.subplots(), colours("series")
    lines, names = wrap_tokens(tagged.tokens[:MOST_TOKENS], TAG_WIDTH), tagged.names()
    axes.set(xlim=(0, LINE), ylim=(len(lines) + 0.1, -0.1))
    axes.axis("off")
    axes.set_title(_plain(tagged.title), loc="left")
    style = {"ha": "center", "va": "center"}
    for y, line in enumerate(lines):
        for i, x, cells in line:
            tag, middle = tagged.tags[i], x + cells / 2
            if tag is not None:
                shade = names.index(tag) % (len(palette) - 1)  # the last is for no group
                colour = palette[shade] + "48"  # a quarter opaque
                axes.add_patch(Rectangle((x, y + 0.04), cells - 0.2, 0.92, facecolor=colour))
                last = _plain(tag).split(" ")[-1]
                axes.text(middle, y + 0.74, last, fontsize=6, color=colours("muted")[0], **style)
            text = visible(tagged.tokens[i])
            axes.text(middle, y + 0.36, text, family="monospace", fontsize=8, **style)


@register_drawing(
    Distribution,
    height=lambda distribution, width: 0.22 * min(MOST_BARS, len(distribution.tokens)) + 0.9,
)
def _draw_distribution(panel: Any, distribution: Distribution) -> None:
    axes = panel.subplots()
    tempered, final = distribution.cut()
    order = np.argsort(-tempered, kind="stable")[:MOST_BARS]
    accent, line = colours("accent")[0], colours("line")[0]
    fill = [accent if final[i] else line for i in order]
    axes.barh(range(len(order)), tempered[order], color=fill)
    names = [visible(distribution.tokens[i])[:24] for i in order]
    axes.set_yticks(range(len(order)), names, family="monospace")
    axes.invert_yaxis()
    mass, count = tempered[final > 0].sum(), int((final > 0).sum())
    label = (
        f"probability at temperature {distribution.temperature:g}; "
        f"{count} of {len(tempered)} kept, {100 * mass:.1f}% of the mass"
    )
    _finish(axes, distribution, label)


def _leaves(tree: BeamTree) -> list[Any]:
    parents = {node["parent"] for node in tree.nodes}
    return [node["id"] for node in tree.nodes if node["id"] not in parents]


def layout_tree(tree: BeamTree) -> dict[Any, float]:
    """Return heights: leaves at whole numbers, best first; parents between their children."""
    children: dict[Any, list[Any]] = {None: [], **{node["id"]: [] for node in tree.nodes}}
    for node in sorted(tree.nodes, key=lambda n: -float(n["score"])):
        children[node["parent"]].append(node["id"])
    heights: dict[Any, float] = {}
    leaves = 0
    stack = [(root, False) for root in reversed(children[None])]
    while stack:  # children before parents, without recursion: a search may be very deep
        at, visited = stack.pop()
        below = children[at]
        if below and not visited:
            stack += [(at, True), *((child, False) for child in reversed(below))]
        elif below:
            heights[at] = (heights[below[0]] + heights[below[-1]]) / 2
        else:
            heights[at], leaves = float(leaves), leaves + 1
    return heights


def _tree_height(tree: BeamTree, width: float) -> float:
    return float(np.clip(0.2 * len(_leaves(tree)) + 0.8, 1.6, 12.0))


@register_drawing(BeamTree, height=_tree_height)
def _draw_beam_tree(panel: Any, tree: BeamTree) -> None:
    axes = panel.subplots()
    heights, best = layout_tree(tree), set(tree.best_path())
    steps = {node["id"]: node["step"] for node in tree.nodes}
    accent, muted, line = colours("accent")[0], colours("muted")[0], colours("line")[0]
    for node in tree.nodes:
        at, parent = node["id"], node["parent"]
        colour = accent if at in best else muted if node["kept"] else line
        x, y = steps[at], heights[at]
        if parent is not None:
            ends = [steps[parent], x], [heights[parent], y]
            axes.plot(*ends, color=colour, linewidth=2.5 if at in best else 1, zorder=1)
        face = colour if at in best or node["finished"] else "white"
        axes.scatter([x], [y], s=22, facecolor=face, edgecolor=colour, zorder=2)
        style = {"fontsize": 7, "family": "monospace", "va": "center"}
        box = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
        axes.text(x + 0.07, y, visible(node["token"])[:12], bbox=box, zorder=3, **style)
    axes.set(yticks=[], xlim=(min(steps.values()) - 0.2, max(steps.values()) + 0.8))
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    _finish(axes, tree, "step")


@register_drawing(Lines)
def _draw_lines(panel: Any, lines: Lines) -> None:
    axes, palette = panel.subplots(), colours("series")
    for i, (name, xs, ys) in enumerate(lines.series):
        x, y = (np.asarray(values, dtype=np.float64) for values in (xs, ys))
        x = np.where(x > 0, x, np.nan) if lines.log_x else x
        y = np.where(np.isfinite(y) & ((y > 0) | (not lines.log_y)), y, np.nan)
        style = {"color": palette[i % len(palette)], "linestyle": "-" if i < len(palette) else "--"}
        style |= {"marker": "." if len(x) <= 24 else "", "label": _plain(name)}
        if name in lines.dots:
            style |= {"marker": ".", "linestyle": "none"}
        axes.plot(x, y, linewidth=1.4, **style)
        if name in lines.bands:
            low, high = (np.asarray(edge, dtype=np.float64) for edge in lines.bands[name])
            axes.fill_between(x, low, high, color=style["color"], alpha=0.16, linewidth=0)
    if lines.log_x:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
    if lines.log_y:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)
    if lines.x_ticks:
        axes.set_xticks(lines.x_ticks)
    for name, level in lines.levels.items():
        axes.axhline(level, label=_plain(name), color=colours("muted")[0], ls="--")
    axes.grid(axis="y", color=colours("line")[0], linewidth=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    _finish(axes, lines, lines.x_label, lines.y_label)


def _plain_ticks(axis: Any) -> None:
    """Put plain numbers on a logarithmic axis, evenly spaced where it spans less than a decade."""
    from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


@register_drawing(Bars, height=lambda bars, width: 0.3 * len(bars.labels) + 1.0)
def _draw_bars(panel: Any, bars: Bars) -> None:
    axes = panel.subplots()
    rows = range(len(bars.labels))
    quiet, accent = colours("muted")[0], colours("accent")[0]
    highlighted = set(bars.highlight) or set(rows)
    values = np.asarray(bars.values, dtype=np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    fill = [accent if i in highlighted else quiet + "90" for i in rows]  # 90: just over half opaque
    axes.barh(rows, values, color=fill, height=0.7)
    if len(bars.low):
        axes.hlines(rows, bars.low, bars.high, color=colours("ink")[0], linewidth=1.3)
    axes.set_yticks(rows, [_plain(name)[:40] for name in bars.labels])
    axes.invert_yaxis()
    _finish(axes, bars, bars.unit)


@register_drawing(Histogram)
def _draw_histogram(panel: Any, histogram: Histogram) -> None:
    axes = panel.subplots()
    axes.stairs(histogram.counts, histogram.edges, fill=True, color=colours("accent")[0])
    _finish(axes, histogram, histogram.x_label, histogram.y_label)


# Indices of the series colours: bases in the usual colours (A green, C blue, G yellow, T red),
# amino acids by kind (acidic, basic, polar, small or hydrophobic).
BASES = {"A": 2, "C": 0, "G": 4, "T": 1, "U": 1}
AMINO_ACIDS = {"DE": 1, "KRH": 0, "STNQYCG": 2, "AVLIPMFW": 6}


def motif_logo(
    motif: Motif,
    title: str = "",
    *,
    first: int = 1,
    note: str = "",
    most: float | None = None,
    against_background: bool = False,
) -> Logo:
    """Return the motif as a component of a page or figure, with positions counted from `first`.

    The axis ends at `most` bits, by default the information that a position can have. With
    `against_background`, a stack is the relative entropy to the background.
    """
    alphabet, bits = motif.alphabet, letter_bits(motif, against_background=against_background)
    if most is None:
        tallest = max(float(bits.sum(axis=1).max()), 1e-9)
        most = tallest if against_background else math.log2(alphabet.size)
    return Logo(
        alphabet.letters,
        bits,
        [_colour_index(alphabet, i) for i in range(alphabet.size)],
        most=most,
        first=first,
        title=title or f"motif {motif.consensus}",
        note=note,
    )


def letter_bits(motif: Motif, *, against_background: bool = False) -> NDArray[np.float64]:
    """Return (W, A): the probability of each letter times the information of its position."""
    information = motif.information(against_background=against_background)
    return np.asarray(motif.probabilities * np.maximum(information, 0.0)[:, None])


def _colour_index(alphabet: MotifAlphabet, i: int) -> int:
    """Return the index of a letter's series colour; letters of other alphabets take turns."""
    count, letter = len(colours("series")), alphabet.letters[i]
    if alphabet.letters in (DNA.letters, RNA.letters):
        return BASES[letter]
    if alphabet.size == 20:
        return next((k for letters, k in AMINO_ACIDS.items() if letter in letters), i % count)
    return i % count
