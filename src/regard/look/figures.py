"""Matrices as pictures: the maps of `figures`, and the colours that all pictures share.

Points and logos as pictures.

Pictures with a map of their patches, for figures.

Clouds of points with a map of their tokens, for figures.

The page's components as pictures: one PNG, SVG or PDF with a panel per component, for papers.

The colours are those of the page's style sheet in its light form. Components made of words (texts,
facts, tables, samples) have no picture and are left out.
"""

from __future__ import annotations

import os
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import UsageError, UserError, missing_extra
from regard.look.page.charts import (
    AttentionMaps,
    Bars,
    Heatmap,
    Histogram,
    Lines,
    MaskMap,
    Projector,
    Scatter,
)
from regard.look.page.component import Component, visible
from regard.look.page.document import asset
from regard.look.page.media import Picture, Space
from regard.look.page.symbols import BeamTree, Contributions, Distribution, Logo, Surprise, Tagged

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


def draw_mask(panel: Any, mask: MaskMap) -> None:
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


def draw_attention(panel: Any, attention: AttentionMaps) -> None:
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


FORMATS = (".png", ".svg", ".pdf")
MOST_TOKENS = 1500  # written out in a surprise panel; the strip below shows all of them
MOST_BARS = 20  # of a distribution
LINE = 84  # characters per line of a surprise panel
ROOM = 3  # and what a token has at least whose tag stands below it


def save(
    components: Iterable[Component], path: str | Path, *, width: float = 9.0, dpi: int = 150
) -> Path:
    """Draw the components below each other, `width` inches wide; the file appears whole or not."""
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"a figure must end in {', '.join(FORMATS)}, got {path.name!r}")
    drawn = [component for component in components if type(component) in DRAWERS]
    if not drawn:
        raise UserError("nothing to draw: no component here has a picture")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "plots") from None
    # Tokens are text: a $ starts no formula, and the same input gives the same bytes.
    settings: dict[Any, Any] = {"text.parse_math": False, "svg.hashsalt": "regard", "font.size": 9}
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A symbol no installed font has is drawn as a box, which needs no second word.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        heights = [_height(component, width) for component in drawn]
        figure = Figure(figsize=(width, sum(heights)), layout="constrained")
        panels = figure.subfigures(len(drawn), 1, height_ratios=heights, squeeze=False)
        for panel, component in zip(panels.flat, drawn, strict=True):
            DRAWERS[type(component)](panel, component)
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        try:
            kept = metadata.get(path.suffix.lower())
            figure.savefig(part, dpi=dpi, metadata=kept, bbox_inches="tight")  # titles stay whole
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    return path


def _height(component: Component, width: float) -> float:
    """Inches a component needs at this width."""
    if isinstance(component, Heatmap | MaskMap):
        heatmap = component if isinstance(component, Heatmap) else component.heatmap()
        rows, columns = heatmap.array().shape
        return float(np.clip(0.24 * rows, 1.6, width * min(1.0, rows / columns)) + 1.2)
    if isinstance(component, AttentionMaps):
        n_layers, n_heads, _, _ = component.array().shape
        return float(min(width / n_heads, 3.5) * n_layers + 0.6)
    if isinstance(component, Picture | Space):
        down, across = shown(component)
        return float(min(width / across, 3.0) * down + 0.6)
    if isinstance(component, Surprise | Contributions):
        lines = len(_wrapped(component.tokens[:MOST_TOKENS]))
        return float(len(component.rows) * (0.24 * lines + 1.0) + 0.3)
    if isinstance(component, Tagged):
        return 0.34 * len(_wrapped(component.tokens[:MOST_TOKENS], room=ROOM)) + 0.6
    if isinstance(component, BeamTree):
        return float(np.clip(0.2 * len(_leaves(component)) + 0.8, 1.6, 12.0))
    if isinstance(component, Bars):
        return 0.3 * len(component.labels) + 1.0
    if isinstance(component, Distribution):
        return 0.22 * min(MOST_BARS, len(component.tokens)) + 0.9
    return {Scatter: 5.0, Logo: 1.8}.get(type(component), 3.2)


def _cells(token: str) -> int:
    """Columns a token takes in a monospaced face: East Asian wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in visible(token))


def _wrapped(tokens: Iterable[str], room: int = 0) -> list[list[tuple[int, int, int]]]:
    """Lines of (index, column, cells): as many tokens as fit, and a new line after a newline.

    Every token has `room` cells at least.
    """
    lines: list[list[tuple[int, int, int]]] = [[]]
    column = 0
    for i, token in enumerate(tokens):
        cells = max(room, _cells(token))
        if column and column + cells > LINE:
            lines.append([])
            column = 0
        lines[-1].append((i, column, cells))
        column += cells
        if token.endswith("\n"):
            lines.append([])
            column = 0
    return lines if lines[-1] else lines[:-1]


def _draw_surprise(panel: Any, surprise: Surprise | Contributions) -> None:
    lines = _wrapped(surprise.tokens[:MOST_TOKENS])
    bits = np.asarray([row for _, row in surprise.rows], dtype=np.float64)
    finite = bits[np.isfinite(bits)]
    most = float(np.abs(finite).max(initial=0.0)) or 1.0
    if isinstance(surprise, Surprise):
        most = max(1.0, most)
    signed = bool((finite < -1e-4).any())  # bits are not, but for rounding
    low, shade = -most if signed else 0.0, ramp("diverging" if signed else "warm")
    ratios = [ratio for _ in surprise.rows for ratio in (max(1, len(lines)), 2.5)]
    grid = panel.subplots(2 * len(surprise.rows), 1, height_ratios=ratios)
    for (name, _), row, text, strip in zip(surprise.rows, bits, grid[::2], grid[1::2], strict=True):
        text.set(xlim=(0, LINE), ylim=(len(lines) + 0.1, -0.1))
        text.axis("off")
        text.set_title(visible(name, spaces=False), loc="left", fontsize=9)
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
        unit = surprise.unit if isinstance(surprise, Contributions) else "bits"
        strip.set(xlim=(-0.5, len(row) - 0.5), ylim=ends, xticks=[], ylabel=unit)
        strip.spines[["top", "right"]].set_visible(False)
    panel.suptitle(visible(surprise.title, spaces=False) or None)


def _draw_token(axes: Any, token: str, place: tuple[int, int, int], colour: Any, edge: str) -> None:
    from matplotlib.patches import Rectangle

    x, y, cells = place
    colour = (1, 1, 1, 0) if colour is None else colour
    axes.add_patch(Rectangle((x, y + 0.06), cells, 0.88, facecolor=colour, edgecolor=edge))
    light = np.dot(np.power(colour[:3], 2.2), (0.2126, 0.7152, 0.0722)) > 0.18
    style = {"family": "monospace", "fontsize": 8, "ha": "center", "va": "center"}
    ink = "#14161a" if light else "#ffffff"
    axes.text(x + cells / 2, y + 0.5, visible(token), color=ink, **style)


def _draw_tagged(panel: Any, tagged: Tagged) -> None:
    from matplotlib.patches import Rectangle

    axes, palette = panel.subplots(), colours("series")
    lines, names = _wrapped(tagged.tokens[:MOST_TOKENS], room=ROOM), tagged.names()
    axes.set(xlim=(0, LINE), ylim=(len(lines) + 0.1, -0.1))
    axes.axis("off")
    axes.set_title(visible(tagged.title, spaces=False), loc="left")
    style = {"ha": "center", "va": "center"}
    for y, line in enumerate(lines):
        for i, x, cells in line:
            tag, middle = tagged.tags[i], x + cells / 2
            if tag is not None:
                colour = palette[min(names.index(tag), len(palette) - 1)] + "48"  # a quarter opaque
                axes.add_patch(Rectangle((x, y + 0.04), cells - 0.2, 0.92, facecolor=colour))
                last = visible(tag, spaces=False).split(" ")[-1]
                axes.text(middle, y + 0.74, last, fontsize=6, color=colours("muted")[0], **style)
            text = visible(tagged.tokens[i])
            axes.text(middle, y + 0.36, text, family="monospace", fontsize=8, **style)


def _draw_distribution(panel: Any, distribution: Distribution) -> None:
    axes = panel.subplots()
    tempered, final = distribution.cut()
    order = np.argsort(-tempered, kind="stable")[:MOST_BARS]
    kept, cut = colours("accent")[0], colours("line")[0]
    axes.barh(range(len(order)), tempered[order], color=[kept if final[i] else cut for i in order])
    names = [visible(distribution.tokens[i])[:24] for i in order]
    axes.set_yticks(range(len(order)), names, family="monospace")
    axes.invert_yaxis()
    mass, count = tempered[final > 0].sum(), int((final > 0).sum())
    axes.set_xlabel(
        f"probability at temperature {distribution.temperature:g}; "
        f"{count} of {len(tempered)} kept, {100 * mass:.1f}% of the mass"
    )
    _finish(axes, distribution.title)


def _leaves(tree: BeamTree) -> list[Any]:
    parents = {node["parent"] for node in tree.nodes}
    return [node["id"] for node in tree.nodes if node["id"] not in parents]


def _heights(tree: BeamTree) -> dict[Any, float]:
    """Leaves at whole numbers, best first; a parent between its first and last child."""
    children: dict[Any, list[Any]] = {None: [], **{node["id"]: [] for node in tree.nodes}}
    for node in sorted(tree.nodes, key=lambda n: -float(n["score"])):
        children[node["parent"]].append(node["id"])
    heights: dict[Any, float] = {}
    leaves = 0
    stack = [(root, False) for root in reversed(children[None])]
    while stack:  # children before parents, without recursion: a search may be very deep
        at, seen = stack.pop()
        below = children[at]
        if below and not seen:
            stack += [(at, True), *((child, False) for child in reversed(below))]
        elif below:
            heights[at] = (heights[below[0]] + heights[below[-1]]) / 2
        else:
            heights[at], leaves = float(leaves), leaves + 1
    return heights


def _draw_beam_tree(panel: Any, tree: BeamTree) -> None:
    axes = panel.subplots()
    heights, best = _heights(tree), set(tree.best_path())
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
    axes.set(yticks=[], xlabel="step", xlim=(min(steps.values()) - 0.2, max(steps.values()) + 0.8))
    axes.invert_yaxis()
    axes.spines["left"].set_visible(False)
    _finish(axes, tree.title)


def _draw_lines(panel: Any, lines: Lines) -> None:
    axes, palette = panel.subplots(), colours("series")
    for i, (name, xs, ys) in enumerate(lines.series):
        x, y = (np.asarray(values, dtype=np.float64) for values in (xs, ys))
        x = np.where(x > 0, x, np.nan) if lines.log_x else x
        y = np.where(np.isfinite(y) & ((y > 0) | (not lines.log_y)), y, np.nan)
        style = {"color": palette[i % len(palette)], "linestyle": "-" if i < len(palette) else "--"}
        style |= {"marker": "." if len(x) <= 24 else "", "label": visible(name, spaces=False)}
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
        axes.axhline(level, label=visible(name, spaces=False), color=colours("muted")[0], ls="--")
    axes.set_xlabel(visible(lines.x_label, spaces=False))
    axes.set_ylabel(visible(lines.y_label, spaces=False))
    axes.grid(axis="y", color=colours("line")[0], linewidth=0.8)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    _finish(axes, lines.title)


def _plain_ticks(axis: Any) -> None:
    """Plain numbers on a logarithmic axis, evenly spaced ones where it spans less than a decade."""
    from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _draw_bars(panel: Any, bars: Bars) -> None:
    axes = panel.subplots()
    places = range(len(bars.labels))
    quiet, accent = colours("muted")[0], colours("accent")[0]
    chosen = set(bars.highlight) or set(places)
    values = np.asarray(bars.values, dtype=np.float64)
    values = np.where(np.isfinite(values), values, np.nan)
    fill = [accent if i in chosen else quiet + "90" for i in places]  # 90: just over half opaque
    axes.barh(places, values, color=fill, height=0.7)
    if len(bars.low):
        axes.hlines(places, bars.low, bars.high, color=colours("ink")[0], linewidth=1.3)
    axes.set_yticks(places, [visible(name, spaces=False)[:40] for name in bars.labels])
    axes.invert_yaxis()
    axes.set_xlabel(visible(bars.unit, spaces=False))
    _finish(axes, bars.title)


def _draw_histogram(panel: Any, histogram: Histogram) -> None:
    axes = panel.subplots()
    axes.stairs(histogram.counts, histogram.edges, fill=True, color=colours("accent")[0])
    axes.set_xlabel(visible(histogram.x_label, spaces=False))
    axes.set_ylabel(visible(histogram.y_label, spaces=False))
    _finish(axes, histogram.title)


def _finish(axes: Any, title: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(visible(title, spaces=False), loc="left")


DRAWERS: dict[type[Component], Callable[[Any, Any], None]] = {
    Heatmap: draw_heatmap,
    MaskMap: draw_mask,
    AttentionMaps: draw_attention,
    Surprise: _draw_surprise,
    Contributions: _draw_surprise,
    Tagged: _draw_tagged,
    Distribution: _draw_distribution,
    BeamTree: _draw_beam_tree,
    Lines: _draw_lines,
    Bars: _draw_bars,
    Histogram: _draw_histogram,
    Picture: draw_picture,
    Space: draw_space,
    Scatter: draw_scatter,
    Projector: draw_projector,
    Logo: draw_logo,
}
