"""Page components as figures for papers: a PNG, SVG or PDF each, one or two columns wide.

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
import textwrap
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
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
    Intervals,
    Lines,
    Logo,
    MaskMap,
    PointMaps,
    Projector,
    Reading,
    Ribbons,
    Scatter,
    Surprise,
    Tagged,
    TokenMaps,
)
from regard.look.page.document import Component, asset, visible
from regard.models.motifs import DNA, RNA, Motif, MotifAlphabet

FORMATS = ("png", "svg", "pdf")
SINGLE, DOUBLE = 3.35, 6.9  # inches: one and two columns of a paper
DPI = 300
FONT_SIZE = 7
MOST_LABELS = 40  # on one axis of a map
MOST_MAPS = 24  # of one item
MANY_GROUPS = 7  # more have their names among the points
OVERLAY = 0.45  # opacity of a map over an image, as on the page
TILT, TURN = 0.5, 0.6  # viewing angles of point clouds, radians
MOST_TOKENS = 1500  # written out in a surprise panel; the strip below shows all of them
MOST_BARS = 20  # of a distribution
LINE = 84  # characters per line of a surprise panel
TAG_WIDTH = 3  # least characters of a token with a tag below it

Drawing = Callable[[Any, Any], None]  # draws a component into a panel, a matplotlib SubFigure
Height = Callable[[Any, float], float]  # inches that a component needs at a width
Width = Callable[[Any], float]
DRAWINGS: dict[type[Component], Drawing] = {}
HEIGHTS: dict[type[Component], Height] = {}
WIDTHS: dict[type[Component], Width] = {}


def register_drawing(
    *component_classes: type[Component],
    height: Height = lambda component, width: 0.68 * width,
    width: Width = lambda component: SINGLE,
) -> Callable[[Drawing], Drawing]:
    """Register how components of these classes are drawn, how high and in how many columns."""

    def register(drawing: Drawing) -> Drawing:
        DRAWINGS.update(dict.fromkeys(component_classes, drawing))
        HEIGHTS.update(dict.fromkeys(component_classes, height))
        WIDTHS.update(dict.fromkeys(component_classes, width))
        return drawing

    return register


def check_folder(folder: Path) -> Path:
    """Return the folder; raise if it is named like a figure, or is a file."""
    if folder.suffix[1:].lower() in FORMATS or folder.is_file():
        raise UsageError(f"figures go into a folder, a file each, got the file {str(folder)!r}")
    return folder


def save_all(
    components: Iterable[Component], folder: str | Path, suffix: str, *, prefix: str = ""
) -> list[Path]:
    """Save each component that has a drawing as a file of its own in a folder, numbered and named
    by its title; return the paths.
    """
    figures = [component for component in components if type(component) in DRAWINGS]
    if not figures:
        raise UserError("nothing to draw: none of the components has a drawing")
    folder = check_folder(Path(folder))
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, component in enumerate(figures, 1):
        words = re.findall(r"[a-z0-9]+", getattr(component, "title", "").lower()) or [
            component.kind
        ]
        name = "-".join([*([prefix] if prefix else []), f"{number:02}", *words])[:60].strip("-")
        paths.append(save(component, folder / f"{name}.{suffix}"))
    return paths


def save(
    component: Component, path: str | Path, *, width: float | None = None, dpi: int = DPI
) -> Path:
    """Draw a component into a file written atomically, `width` inches wide: by default one or two
    columns of a paper, whichever the component needs.
    """
    path = Path(path)
    if path.suffix.lower()[1:] not in FORMATS:
        raise UsageError(f"a figure must end in .{', .'.join(FORMATS)}, got {path.name!r}")
    if type(component) not in DRAWINGS:
        raise UserError(f"nothing to draw: a {component.kind} has no drawing")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("matplotlib", "plots") from None
    # Tokens are text: a $ starts no formula, and the same input gives the same bytes.
    settings: dict[Any, Any] = {"text.parse_math": False, "svg.hashsalt": "regard"}
    settings["pdf.fonttype"] = 42  # outlines that journals accept
    settings |= {"font.size": FONT_SIZE, "axes.titlesize": FONT_SIZE + 1, "axes.linewidth": 0.6}
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    width = width or WIDTHS[type(component)](component)
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A symbol that no installed font has is drawn as a box; no warning is needed.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        size = width, HEIGHTS[type(component)](component, width)
        figure = Figure(figsize=size, layout="constrained")
        DRAWINGS[type(component)](figure.subfigures(), component)
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        try:
            figure.savefig(part, metadata=metadata.get(path.suffix.lower()), dpi=dpi)
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
    axes.set_title(_wrapped(component.title, axes), loc="left")


def _wrapped(title: str, axes: Any) -> str:
    """Return a title in lines that fit the figure."""
    inches = axes.get_figure(root=True).get_figwidth()
    return "\n".join(textwrap.wrap(_plain(title), max(20, int(inches * 16))))


CELL = 0.2  # inches of a cell at most; with 0.15 its label can still be read


def _map_width(heatmap: Heatmap) -> float:
    return SINGLE if 0.15 * heatmap.array().shape[1] <= SINGLE - 1.2 else DOUBLE


def _map_height(heatmap: Heatmap, width: float) -> float:
    rows, columns = heatmap.array().shape
    cell = min(CELL, (width - 1.2) / columns)
    tall = rows * (cell if 0.2 < rows / columns < 5 else CELL)
    longest = max(len(_label(name)[:24]) for name in heatmap.columns)
    return float(np.clip(tall, 0.5, 8.0) + 0.5 + 0.06 * longest)


@register_drawing(Heatmap, height=_map_height, width=_map_width)
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
    panel.suptitle(_wrapped(heatmap.title, axes) or None)
    if heatmap.scale != "mask":
        panel.colorbar(image, ax=axes, label=_plain(heatmap.unit), shrink=0.8)


@register_drawing(
    MaskMap,
    height=lambda mask, width: _map_height(mask.heatmap(), width),
    width=lambda mask: _map_width(mask.heatmap()),
)
def _draw_mask(panel: Any, mask: MaskMap) -> None:
    draw_heatmap(panel, mask.heatmap())


@register_drawing(
    Ribbons,
    height=lambda ribbons, width: _map_height(ribbons.heatmap(), width),
    width=lambda ribbons: _map_width(ribbons.heatmap()),
)
def _draw_ribbons(panel: Any, ribbons: Ribbons) -> None:
    draw_heatmap(panel, ribbons.heatmap())


def _label_map(axes: Any, rows: list[str], columns: list[str], size: float = FONT_SIZE - 1) -> None:
    """Label rows and columns of a map, in points of this `size`; no names, no labels."""
    for axis, names, turn in ((axes.yaxis, rows, 0), (axes.xaxis, columns, 90)):
        at = range(0, len(names), -(-len(names) // MOST_LABELS) or 1)
        axis.set_ticks(list(at), [_label(names[i])[:24] for i in at], rotation=turn, fontsize=size)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=1)


def _label(text: str) -> str:
    """Return a label as on the page: a name keeps its inner spaces, tokens show white space."""
    token = text != text.strip() or not text or "\n" in text or "\t" in text
    return visible(text, spaces=token)


def _root_norm() -> Any:
    """As on the page, colour follows the square root of the weight."""
    from matplotlib.colors import PowerNorm

    return PowerNorm(0.5, vmin=0, vmax=1)


def _attention_height(attention: AttentionMaps, width: float) -> float:
    n_layers, n_heads, n_queries, n_keys = attention.array().shape
    aspect = np.clip(n_queries / n_keys, 0.3, 2.0)
    tile = min(width / n_heads * aspect, max(0.6, 1.3 * CELL * n_queries))
    return float(tile * n_layers + 0.8)


def _attention_width(attention: AttentionMaps) -> float:
    _, n_heads, _, n_keys = attention.array().shape
    return SINGLE if 0.15 * n_heads * n_keys <= SINGLE - 0.6 else DOUBLE


@register_drawing(AttentionMaps, height=_attention_height, width=_attention_width)
def _draw_attention(panel: Any, attention: AttentionMaps) -> None:
    """Draw all heads; the tokens stand at the left of each row and on top of each column."""
    weights = attention.array()
    n_layers, n_heads, n_queries, n_keys = weights.shape
    grid = panel.subplots(n_layers, n_heads, squeeze=False)
    points = (
        72 * 0.8 * panel.get_figure(root=True).get_figwidth() / n_heads / max(n_queries, n_keys)
    )
    size = float(np.clip(points, 3.5, FONT_SIZE - 1))
    for i, name in enumerate(attention.layer_names()):
        for j in range(n_heads):
            axes = grid[i, j]
            axes.imshow(weights[i, j], cmap=ramp("ramp"), norm=_root_norm(), aspect="auto")
            rows = [] if j else list(attention.tokens)
            _label_map(axes, rows, [] if i else attention.keys(), size)
            if i == 0:
                axes.set_title(f"head {j + 1}")
            if j == 0:
                axes.set_ylabel(_plain(name))
    panel.suptitle(_plain(attention.title) or None)


@register_drawing(Scatter, height=lambda scatter, width: 0.9 * width)
def draw_scatter(panel: Any, scatter: Scatter) -> None:
    """Draw points by group, with other shapes where colours come round again, or by value."""
    axes, palette, names = panel.subplots(), colours("series")[:-1], scatter.names()
    points = scatter.array()
    if names:
        group_ids = np.array([names.index(name) for name in scatter.groups])
        for group, name in enumerate(names):
            turn, shade = divmod(group, len(palette))
            style = {"color": palette[shade], "marker": "os^D"[turn % 4], "label": _plain(name)}
            members = points[group_ids == group]
            axes.scatter(*members.T, s=10, alpha=0.8, linewidths=0, **style)
            if len(names) > MANY_GROUPS:
                axes.annotate(
                    _plain(name), np.median(members, 0), ha="center", va="center", weight="bold"
                )
        _legend(axes, 2)
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
    if scatter.outline:
        corners = [(x, y) for x, y, _ in scatter.outline]
        axes.plot(*zip(*corners, corners[0], strict=True), color=colours("muted")[0], linewidth=1)
        for x, y, name in scatter.outline:
            axes.annotate(_plain(name), (x, y), (0, 4), textcoords="offset points", ha="center")
    if scatter.diagonal:
        ends = [points.min(), points.max()]
        axes.plot(ends, ends, color=colours("muted")[0], linestyle="--", linewidth=1)
    _finish(axes, scatter, scatter.x_label, scatter.y_label)


@register_drawing(Projector)
def _draw_projector(panel: Any, projector: Projector) -> None:
    draw_scatter(panel, next(iter(projector.scatters().values())))


@register_drawing(
    Logo,
    height=lambda logo, width: 1.4,
    width=lambda logo: SINGLE if len(logo.array()) <= 16 else DOUBLE,
)
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
    return float(min(width / across, 2.2) * down + 0.6)


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
        axes.set_title(_wrapped(name, axes), fontsize=FONT_SIZE - 1)
    panel.suptitle(_plain(maps.title))


@register_drawing(ImageMaps, height=_maps_height, width=lambda maps: DOUBLE)
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


@register_drawing(PointMaps, height=_maps_height, width=lambda maps: DOUBLE)
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
    return float(len(text.rows) * (0.19 * lines + 0.85) + 0.3)


def _text_cells(tokens: Sequence[str]) -> int:
    """Return the characters that a line of a text takes: LINE, or fewer if one line is enough."""
    lines = wrap_tokens(tokens[:MOST_TOKENS])
    return LINE if len(lines) > 1 else max(24, sum(cells for *_, cells in lines[0]))


def _text_width(text: Surprise | Contributions) -> float:
    return SINGLE if _text_cells(text.tokens) <= LINE // 2 else DOUBLE


@register_drawing(Surprise, Contributions, height=_text_height, width=_text_width)
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
        text.set(xlim=(0, _text_cells(surprise.tokens)), ylim=(len(lines) + 0.1, -0.1))
        text.axis("off")
        text.set_title(_plain(name), loc="left")
        for y, line in enumerate(lines):
            for i, x, cells in line:
                colour = (
                    None if np.isnan(row[i]) else shade((min(row[i], most) - low) / (most - low))
                )
                edge = colours("warn")[0] if np.isposinf(row[i]) else "none"
                _draw_token(text, surprise.tokens[i], (x, y, cells), colour, edge)
        shown = np.nan_to_num(np.clip(row, low, most), nan=0.0)
        strong = shade((0.25 * np.sign(shown) * most + 0.75 * shown - low) / (most - low))
        (_strip_under if len(lines) == 1 and lines[0] else _strip_of_all)(
            strip, lines[0], shown, strong
        )
        ends = (float(finite.min(initial=0.0)), most)
        strip.set(ylim=ends, xticks=[], ylabel=surprise.unit)
        strip.spines[["top", "right"]].set_visible(False)
    panel.suptitle(_plain(surprise.title) or None)


def _strip_under(strip: Any, line: Any, shown: Any, colour: Any) -> None:
    """Draw each bar under its token, in the units of a line of text."""
    middles, widths = [x + cells / 2 for _, x, cells in line], [0.9 * cells for *_, cells in line]
    strip.bar(middles, shown, width=widths, color=colour)
    strip.set_xlim(0, max(24, line[-1][1] + line[-1][2]))


def _strip_of_all(strip: Any, line: Any, shown: Any, colour: Any) -> None:
    """Draw the bars of a text of several lines side by side, as an overview."""
    strip.bar(range(len(shown)), shown, width=1.0, color=colour)
    strip.set_xlim(-0.5, len(shown) - 0.5)


@register_drawing(
    Reading,
    height=lambda reading, width: _text_height(reading.surprise(), width),
    width=lambda reading: DOUBLE,
)
def _draw_reading(panel: Any, reading: Reading) -> None:
    _draw_surprise(panel, reading.surprise())


def _draw_token(axes: Any, token: str, box: tuple[int, int, int], colour: Any, edge: str) -> None:
    from matplotlib.patches import Rectangle

    x, y, cells = box
    colour = (1, 1, 1, 0) if colour is None else colour
    axes.add_patch(Rectangle((x, y + 0.06), cells, 0.88, facecolor=colour, edgecolor=edge))
    light = np.dot(np.power(colour[:3], 2.2), (0.2126, 0.7152, 0.0722)) > 0.18
    style = {"family": "monospace", "fontsize": FONT_SIZE, "ha": "center", "va": "center"}
    ink = "#14161a" if light else "#ffffff"
    axes.text(x + cells / 2, y + 0.5, visible(token), color=ink, **style)


def _tagged_height(tagged: Tagged, width: float) -> float:
    return 0.3 * len(wrap_tokens(tagged.tokens[:MOST_TOKENS], TAG_WIDTH)) + 0.5


@register_drawing(Tagged, height=_tagged_height, width=lambda tagged: DOUBLE)
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
            axes.text(middle, y + 0.36, text, family="monospace", fontsize=FONT_SIZE, **style)


@register_drawing(
    Distribution,
    height=lambda distribution, width: 0.16 * min(MOST_BARS, len(distribution.tokens)) + 0.8,
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
        f"probability at temperature {distribution.temperature:g};\n"
        f"{count} of {len(tempered)} kept, {100 * mass:.1f}% of the mass"
    )
    _finish(axes, distribution, label)


def layout_tree(tree: BeamTree) -> dict[Any, float]:
    """Return heights: the best path is a straight line at the top, its side branches below it, each
    first child as high as its parent.
    """
    best, score = set(tree.best_path()), {node["id"]: float(node["score"]) for node in tree.nodes}
    children: dict[Any, list[Any]] = {None: [], **{node["id"]: [] for node in tree.nodes}}
    for node in tree.nodes:
        children[node["parent"]].append(node["id"])
    heights: dict[Any, float] = {}
    rows = 0
    stack = [(None, 0.0)]
    while stack:  # without recursion: a search may be very deep
        at, height = stack.pop()
        if at is not None:
            if height < 0:  # not its parent's first child: it starts a row
                rows += 1
                height = float(rows)
            heights[at] = height
        below = sorted(children[at], key=lambda child: (child not in best, -score[child]))
        stack += [(child, -1.0) for child in below[:0:-1]]
        stack += [(child, max(height, 0.0)) for child in below[:1]]
    return heights


def _tree_height(tree: BeamTree, width: float) -> float:
    return float(np.clip(0.19 * (max(layout_tree(tree).values()) + 1) + 0.6, 1.0, 9.0))


@register_drawing(BeamTree, height=_tree_height, width=lambda tree: DOUBLE)
def _draw_beam_tree(panel: Any, tree: BeamTree) -> None:
    """Draw the tree with right-angled edges; names stand above the edges, so that none is cut."""
    from matplotlib.ticker import MaxNLocator

    axes = panel.subplots()
    heights, best = layout_tree(tree), set(tree.best_path())
    steps = {node["id"]: node["step"] for node in tree.nodes}
    accent, muted, line = colours("accent")[0], colours("muted")[0], colours("line")[0]
    for node in tree.nodes:
        at, parent = node["id"], node["parent"]
        colour = accent if at in best else muted if node["kept"] else line
        x, y = steps[at], heights[at]
        if parent is not None:
            corner = x - 0.14
            ends = [steps[parent], corner, corner, x], [heights[parent], heights[parent], y, y]
            order = 1.5 if at in best else 1.2 if node["kept"] else 1  # the best path over all
            width = 1.8 if at in best else 0.7
            axes.plot(*ends, color=colour, linewidth=width, zorder=order)
        face = colour if node["finished"] else "white"
        axes.scatter([x], [y], s=12, facecolor=face, edgecolor=colour, zorder=2, linewidths=0.9)
        ink = muted if colour == line else colours("ink")[0]
        style = {"fontsize": FONT_SIZE - 1, "family": "monospace", "va": "bottom", "color": ink}
        axes.text(x + 0.05, y - 0.1, visible(node["token"])[:10], zorder=3, **style)
    axes.set(yticks=[], xlim=(min(steps.values()) - 0.2, max(steps.values()) + 0.8))
    axes.set_ylim(max(heights.values()) + 0.4, -0.9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines["left"].set_visible(False)
    _finish(axes, tree, "step")


def _legend(axes: Any, columns: int) -> None:
    """Put the legend below the axes, where it takes no width from them."""
    axes.get_figure().legend(frameon=False, loc="outside lower center", ncols=columns)


@register_drawing(Lines, height=lambda lines, width: 0.62 * width + 0.1 * len(lines.series))
def _draw_lines(panel: Any, lines: Lines) -> None:
    axes, lone = panel.subplots(), [s for s in lines.series if s[0] not in lines.areas]
    for name, xs, ys in lines.series:
        if name in lines.areas:
            style = {"color": colours("muted")[0], "alpha": 0.3, "linewidth": 0}
            axes.fill_between(xs, 0, ys, label=_plain(name), **style)
    for i, (name, xs, ys) in enumerate(lone):
        _draw_line(axes, lines, (name, xs, ys), _line_style(i, len(lone), lines.ordered))
    for log, axis, words in (
        (lines.log_x, axes.xaxis, lines.x_label),
        (lines.log_y, axes.yaxis, lines.y_label),
    ):
        if log:
            (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
            _plain_ticks(axis)
        axis.set_label_text(_plain(words) + " (logarithmic)" * log)
    if lines.x_ticks:
        axes.set_xticks(lines.x_ticks)
    for name, level in lines.levels.items():
        axes.axhline(level, label=_plain(name), color=colours("muted")[0], ls="--", linewidth=1)
    axes.grid(axis="y", color=colours("line")[0], linewidth=0.6)
    if len(lines.series) + len(lines.levels) > 1:
        _legend(axes, 2)
    _finish(axes, lines, axes.get_xlabel(), axes.get_ylabel())


def _line_style(i: int, count: int, ordered: bool) -> dict[str, Any]:
    if ordered:
        return {"color": ramp("ordered")(i / max(1, count - 1))}
    palette = colours("series")
    return {"color": palette[i % len(palette)], "linestyle": "-" if i < len(palette) else "--"}


def _draw_line(axes: Any, lines: Lines, series: Any, style: dict[str, Any]) -> None:
    name, x, y = series[0], *(np.asarray(v, dtype=np.float64) for v in series[1:])
    x = np.where(x > 0, x, np.nan) if lines.log_x else x
    y = np.where(np.isfinite(y) & ((y > 0) | (not lines.log_y)), y, np.nan)
    marker = {"marker": "." if len(x) <= 24 else "", "markersize": 4}
    if name in lines.dots:
        marker |= {"marker": ".", "linestyle": "none"}
    axes.plot(x, y, linewidth=1.1, label=_plain(name), **style | marker)
    if name in lines.bands:
        low, high = (np.asarray(edge, dtype=np.float64) for edge in lines.bands[name])
        axes.fill_between(x, low, high, color=style["color"], alpha=0.16, linewidth=0)


def _plain_ticks(axis: Any) -> None:
    """Put plain numbers on a logarithmic axis, evenly spaced where it spans less than a decade."""
    from matplotlib.ticker import MaxNLocator, NullLocator, StrMethodFormatter

    low, high = axis.get_view_interval()
    if high < 10 * low:
        axis.set_major_locator(MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


@register_drawing(Intervals, height=lambda rows, width: 0.2 * len(rows.labels) + 0.7)
def _draw_intervals(panel: Any, rows: Intervals) -> None:
    axes = panel.subplots()
    values, low, high = (np.asarray(v, np.float64) for v in (rows.values, rows.low, rows.high))
    at, finite = np.arange(len(values)), np.isfinite(values)
    accent, quiet = colours("accent")[0], colours("muted")[0]
    colour = [accent if not rows.highlight or i in rows.highlight else quiet for i in at]
    axes.hlines(at, low, high, color=colours("ink")[0], linewidth=0.9)
    axes.scatter(values[finite], at[finite], c=np.array(colour)[finite], s=16, zorder=2)
    for i in np.flatnonzero(np.isinf(values)):
        side, align = (0.98, "right") if values[i] > 0 else (0.02, "left")
        words = "∞" if values[i] > 0 else "−∞"
        axes.text(side, i, words, transform=axes.get_yaxis_transform(), ha=align, va="center")
    axes.set_yticks(at, [_plain(name)[:40] for name in rows.labels])
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.grid(axis="x", color=colours("line")[0], linewidth=0.6)
    _finish(axes, rows, rows.axis())


@register_drawing(Bars, height=lambda bars, width: 0.2 * len(bars.labels) + 0.7)
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
