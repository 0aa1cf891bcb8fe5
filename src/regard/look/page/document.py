"""A page and its components made of words and tables: sections of components, written as one HTML
file that makes no network requests.

The Content-Security-Policy allows exactly one script, by the hash of its text, and no request of
any kind except images that the page made itself, so a mistake in escaping cannot run code either.

A component's values become JSON for the page's script. Numbers are rounded to a few significant
digits. Large arrays are stored as base64 of quantised integers, together with what the script needs
to print how exact each value is.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

DIGITS = 6  # significant digits of a number in JSON: more than any chart can show
PACK_ABOVE = 20_000  # values; a longer JSON list would cost more than three bytes per value
MISSING = 65_535  # the 16-bit code of a value that is not finite

_NAMED = {" ": "·", "\n": "↵", "\t": "⇥"}
# Joiners shape whole words of Persian, Hindi and emoji; showing them would break the word apart.
_JOINERS = "\u200c\u200d"


Asset = tuple[str, str]  # a package, and a .js or .css file in its folder `assets`


class Component:
    """A dataclass of plain data; `kind` names the script's renderer, `data()` is what it gets."""

    kind: ClassVar[str]

    def data(self) -> dict[str, Any]:
        """Return the component as JSON-able values, without NaN or Infinity."""
        return self.fields()

    def fields(self, *without: str) -> dict[str, Any]:
        """Return the fields as JSON-able values, without some."""
        names = self.__dataclass_fields__  # type: ignore[attr-defined]
        return {name: as_json(getattr(self, name)) for name in names if name not in without}

    def parts(self) -> tuple[Component, ...]:
        """Return what figures draw: the component itself."""
        return (self,)

    def assets(self) -> Sequence[Asset]:
        """Return the scripts and style sheets that it needs beside those of every page, each after
        those that it uses.
        """
        return [(__package__, name) for name in RARE.get(self.kind, ())]

    def fallback(self) -> str:
        """Return the HTML shown until the script draws, and where scripts are off."""
        title = getattr(self, "title", "") or self.kind
        return f'<p class="undrawn">{escape(title)}: this figure is drawn by the script.</p>'


def visible(text: str, *, spaces: bool = True) -> str:
    """Make control, format and space characters readable; the script's `visible` does the same.

    With `spaces` false, ordinary white space stays as it is (titles and prose rather than tokens).
    """
    if not text:
        return "∅" if spaces else ""
    shown = "".join(_visible_character(c, spaces) for c in text)
    return "◌" + shown if spaces and unicodedata.category(text[0]).startswith("M") else shown


def _visible_character(character: str, spaces: bool) -> str:
    if character in _NAMED:
        return _NAMED[character] if spaces else character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # the block of control pictures
    if code == 0x7F:
        return "␡"
    hidden = unicodedata.category(character) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
    return f"⟨{code:04X}⟩" if hidden and character not in _JOINERS else character


def escape(text: str) -> str:
    """Escape text for an HTML element or attribute, without characters that reorder the rest."""
    return html.escape(visible(text, spaces=False), quote=True)


def to_json(value: object) -> str:
    """Return JSON for a script element that no string inside it can close."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is \u2028
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def number(value: float) -> float | str | None:
    """Return a rounded float; None for NaN, and "inf" or "-inf", which JSON does not have."""
    value = float(value)
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.{DIGITS}g}")


def numbers(values: Iterable[float]) -> list[float | str | None]:
    return [number(v) for v in values]


def as_json(value: Any) -> Any:
    """Return a field of a component as JSON-able values: arrays are packed, numbers rounded."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.ndarray):
        return pack(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return number(float(value))
    return [as_json(item) for item in (value.items() if isinstance(value, Mapping) else value)]


def cell(value: object) -> str:
    """Format a table cell: four digits for floats, thousands separated, a real minus sign, a dash
    for None.
    """
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}".replace("-", "−")
    if isinstance(value, float | np.floating):
        size = float(value)
        if not math.isfinite(size):
            return {math.inf: "∞", -math.inf: "−∞"}.get(size, "not a number")
        text = f"{size:,.4g}" if abs(size) < 1e4 else f"{size:,.0f}"
        return text.replace("-", "−")
    return str(value)


def as_array(name: str, values: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """Return a float array; raise unless it has this many dimensions, none of them empty."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions or 0 in array.shape:
        raise ValueError(
            f"{name} must have {dimensions} dimensions, none of them 0, got shape {array.shape}"
        )
    return array


def as_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Clip rounding errors off values in [0, 1]; raise where they lie outside of it."""
    if not (weights.min() >= -1e-6 and weights.max() <= 1 + 1e-3):
        raise ValueError(f"weights must lie in [0, 1], got {weights.min()} to {weights.max()}")
    return np.clip(weights, 0.0, 1.0)


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise unless the value is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_length(name: str, got: int, other: str, expected: int) -> None:
    """Raise unless `name` has one entry per `other`."""
    if got != expected:
        raise ValueError(f"{name} must have one entry per {other}: got {got} for {expected}")


def check_indices(name: str, what: str, indices: Iterable[int], count: int) -> None:
    """Raise unless all indices are from 0 to count - 1."""
    for i in indices:
        if not 0 <= i < count:
            raise ValueError(f"{name} must name {what} 0 to {count - 1}, got {i}")


def pack(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return a rounded list when small, else 16-bit steps from the least to the greatest value."""
    shape = list(values.shape)
    finite = np.isfinite(values)
    if values.size <= PACK_ABOVE:
        flat = [v if math.isfinite(v) else None for v in values.ravel().tolist()]
        return {"shape": shape, "list": [None if v is None else number(v) for v in flat]}
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    span = (high - low) or 1.0
    scaled = np.where(finite, (values - low) / span, 0.0) * (MISSING - 1)
    codes = np.where(finite, np.rint(scaled), MISSING).astype("<u2")
    return {"shape": shape, "u16": encode_bytes(codes), "low": float(low), "high": float(high)}


def pack_weights(weights: NDArray[np.float64]) -> dict[str, Any]:
    """Return values in [0, 1] as a rounded list when small, else as 8 bits of their square root.

    Steps of the root stay fine near zero, where most weights of a long row are: 1/512 is stored to
    within five per cent, while equal steps of 1/255 would lose it.
    """
    if weights.size <= PACK_ABOVE:
        return {"shape": list(weights.shape), "list": np.round(weights, DIGITS).ravel().tolist()}
    codes = np.rint(np.sqrt(weights) * 255).astype(np.uint8)
    return {"shape": list(weights.shape), "u8root": encode_bytes(codes)}


def encode_bytes(array: NDArray[Any]) -> str:
    """Return the bytes of an array in base64."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


# Joined in this order into one script with one scope: later files use functions of earlier ones.
SCRIPTS = (
    "elements.js",
    "colours.js",
    "arrays.js",
    "tip.js",
    "prose.js",
    "heatmap.js",
    "arcs.js",
    "text_map.js",
    "attention.js",
    "surprise.js",
    "reading.js",
    "tagged.js",
    "distribution.js",
    "beam_tree.js",
    "ribbons.js",
    "axes.js",
    "labels.js",
    "charts.js",
    "intervals.js",
    "forecasts.js",
    "scatter.js",
    "image_maps.js",
    "point_maps.js",
    "series_maps.js",
    "pictures.js",
    "records.js",
    "molecule.js",
    "logo.js",
    "choices.js",
    "page.js",
)
RARE = {  # files of components that few pages have
    "projector": ("canvas_plane.js", "projector.js"),
    "steps": ("step_terms.js", "steps.js", "steps.css"),
}


@dataclass(frozen=True, eq=False)
class Text(Component):
    """Paragraphs of plain text; a blank line starts a new one."""

    kind: ClassVar[str] = "text"
    text: str

    def paragraphs(self) -> list[str]:
        """Split the text at blank lines."""
        return [p.strip() for p in self.text.split("\n\n") if p.strip()]

    def data(self) -> dict[str, Any]:
        return {"paragraphs": self.paragraphs()}

    def fallback(self) -> str:
        return "".join(f"<p>{escape(p)}</p>" for p in self.paragraphs())


@dataclass(frozen=True, eq=False)
class Links(Component):
    """Pages in the same folder, as (label, file name) pairs."""

    kind: ClassVar[str] = "links"
    links: Sequence[tuple[str, str]]

    def __post_init__(self) -> None:
        for _, name in self.links:
            if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
                raise ValueError(f"links must be plain file names, got {name!r}")

    def fallback(self) -> str:
        items = (f'<a href="{escape(name)}">{escape(label)}</a>' for label, name in self.links)
        return f"<p>{' · '.join(items)}</p>"


@dataclass(frozen=True, eq=False)
class Facts(Component):
    """A list of (label, value) pairs, such as the settings and metrics of a run."""

    kind: ClassVar[str] = "facts"
    facts: Sequence[tuple[str, object]]
    title: str = ""

    def data(self) -> dict[str, Any]:
        return {"title": self.title, "facts": [[label, cell(v)] for label, v in self.facts]}

    def fallback(self) -> str:
        pairs = "".join(
            f"<div><dt>{escape(label)}</dt><dd>{escape(cell(value))}</dd></div>"
            for label, value in self.facts
        )
        return f'{_caption(self.title)}<dl class="pairs">{pairs}</dl>'


@dataclass(frozen=True, eq=False)
class Table(Component):
    """Rows of text and numbers.

    `align` holds "left" or "right" per column; when empty, columns of numbers go right. `highlight`
    holds the indices of rows to set apart, such as the winners of a comparison, and `warn` those of
    rows to be wary of, such as claims that fail.
    """

    kind: ClassVar[str] = "table"
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    align: Sequence[str] = ()
    highlight: Collection[int] = ()
    title: str = ""
    warn: Collection[int] = ()

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            check_length(f"row {i}", len(row), "column", len(self.columns))
        if self.align:
            check_length("align", len(self.align), "column", len(self.columns))
        for side in self.align:
            check_choice("align", side, ("left", "right"))
        check_indices("highlight", "rows", self.highlight, len(self.rows))
        check_indices("warn", "rows", self.warn, len(self.rows))

    def alignments(self) -> list[str]:
        """Return the alignment of each column."""
        if self.align:
            return list(self.align)
        numeric = (int, float, np.number, type(None))
        return [
            "right"
            if self.rows and all(isinstance(row[j], numeric) for row in self.rows)
            else "left"
            for j in range(len(self.columns))
        ]

    def data(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [[cell(value) for value in row] for row in self.rows],
            "align": self.alignments(),
            "highlight": sorted(self.highlight),
            "warn": sorted(self.warn),
        }

    def fallback(self) -> str:
        alignments = self.alignments()
        head = "".join(
            f'<th scope="col" class="{side}">{escape(name)}</th>'
            for name, side in zip(self.columns, alignments, strict=True)
        )
        body = ""
        for i, row in enumerate(self.rows):
            cells = "".join(
                f'<td class="{side}">{escape(cell(value))}</td>'
                for value, side in zip(row, alignments, strict=True)
            )
            marked = "highlight" if i in self.highlight else "warn" if i in self.warn else ""
            mark = f' class="{marked}"' if marked else ""
            body += f"<tr{mark}>{cells}</tr>"
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'{_caption(self.title)}<div class="scroll">{table}</div>'


@dataclass(frozen=True, eq=False)
class Sequences(Component):
    """Samples in a monospaced list, each a (text, score) pair; a score may be None."""

    kind: ClassVar[str] = "sequences"
    samples: Sequence[tuple[str, float | None]]
    title: str = ""
    score_name: str = "log-probability"

    def data(self) -> dict[str, Any]:
        rows = [[text, None if score is None else cell(score)] for text, score in self.samples]
        return {"title": self.title, "score_name": self.score_name, "samples": rows}

    def fallback(self) -> str:
        items = ""
        for text, score in self.samples:
            side = "" if score is None else f'<span class="score">{escape(cell(score))}</span>'
            items += f"<li><bdi>{escape(text)}</bdi>{side}</li>"
        return f'{_caption(self.title)}<ol class="samples">{items}</ol>'


@dataclass(frozen=True, eq=False)
class Choices(Component):
    """Several views of one thing, (name, component) pairs, of which the reader chooses one."""

    kind: ClassVar[str] = "choices"
    options: Sequence[tuple[str, Component]]

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError("options must hold at least one (name, component), got none")

    def parts(self) -> tuple[Component, ...]:
        return tuple(part for _, component in self.options for part in component.parts())

    def data(self) -> dict[str, Any]:
        options = [{"name": n, "kind": c.kind, "data": c.data()} for n, c in self.options]
        return {"options": options}

    def fallback(self) -> str:
        return "".join(f"<h3>{escape(name)}</h3>{c.fallback()}" for name, c in self.options)


def _caption(title: str) -> str:
    return f"<h3>{escape(title)}</h3>" if title else ""


@cache
def asset(name: str, package: str = __package__) -> str:
    """Return the text of a style sheet or script of a package, by default this one."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


def rare_assets(suffix: str) -> list[str]:
    """Return the files with this suffix that only some components need, for pages that may have any
    of them.
    """
    return [name for names in RARE.values() for name in names if name.endswith(suffix)]


@cache
def script(own: tuple[Asset, ...] = ()) -> str:
    """Join all scripts in one function scope; `own` are those that few pages need."""
    *parts, last = (asset(name) for name in SCRIPTS)  # the last draws what the others define
    parts += [asset(name, package) for package, name in own]
    return "(() => {\n'use strict';\n" + "\n".join([*parts, last]) + "})();\n"


def policy(code: str) -> str:
    """Return the Content-Security-Policy under which only this script may run."""
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    return (
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def summary(facts: Sequence[tuple[str, object]]) -> str:
    """Return the first three facts as a line."""
    return " · ".join(f"{label} {cell(value)}" for label, value in facts[:3])


@dataclass
class Section:
    """A title, a note, and rows of components."""

    title: str
    note: str
    rows: list[tuple[Component, ...]] = field(default_factory=list)
    folded: bool = False


class Page:
    """Sections of components, in the order in which they are added."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self.warnings: list[str] = []
        self.sections: list[Section] = []

    @classmethod
    def about(
        cls, title: str, facts: Sequence[tuple[str, object]], heading: str = "The model"
    ) -> Page:
        """Start a page with the facts of a run: the first three as subtitle, all as a section."""
        page = cls(title, summary(facts))
        page.add_facts(facts, heading)
        return page

    def add_facts(self, facts: Sequence[tuple[str, object]], heading: str = "The model") -> None:
        """Add the facts of a run as a section, if there are any."""
        if facts:
            self.section(heading)
            self.add(Facts(facts))

    def warn(self, *warnings: str) -> None:
        """Say at the top of the page, before everything else, why it should not be trusted."""
        self.warnings += warnings

    def section(self, title: str, note: str = "") -> None:
        """Start a section; the note explains it in a sentence or two."""
        self.sections.append(Section(title, note))

    def details(self, title: str, note: str = "") -> None:
        """Start a section that is folded until the reader opens it."""
        self.sections.append(Section(title, note, folded=True))

    def add(self, *components: Component) -> None:
        """Add components to the current section; those of one call share a row if they fit."""
        for component in components:
            if not isinstance(component, Component):
                raise TypeError(
                    f"components must be page components, got {type(component).__name__}"
                )
        if not self.sections:
            self.section("")
        if components:
            self.sections[-1].rows.append(components)

    @property
    def components(self) -> tuple[Component, ...]:
        """All components of the page, in order; of a choice, each of its views."""
        rows = (row for section in self.sections for row in section.rows)
        return tuple(part for row in rows for component in row for part in component.parts())

    def own_assets(self, suffix: str) -> tuple[Asset, ...]:
        """Return the files with this suffix that components need beside those of every page."""
        assets = (asset for component in self.components for asset in component.assets())
        return tuple(dict.fromkeys(one for one in assets if one[1].endswith(suffix)))

    def render(self) -> str:
        """Return the page as one HTML document."""
        code = script(self.own_assets(".js"))
        styles = [asset(name, package) for package, name in self.own_assets(".css")]
        return "\n".join(
            (
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy(code)}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                f'<title>{escape(self.title)}</title><link rel="icon" href="data:,">',
                f"<style>{''.join([asset('page.css'), *styles])}</style></head><body>",
                f"<header><h1>{escape(self.title)}</h1>{self._subtitle()}</header>",
                *(f'<p class="notice" role="note">{escape(text)}</p>' for text in self.warnings),
                '<noscript><p class="notice">Scripts are off: tables and texts are complete, '
                "figures are not drawn.</p></noscript>",
                self._contents(),
                "<main>",
                *(self._section(i, section) for i, section in enumerate(self.sections)),
                "</main>",
                "<footer>Made with regard. This file is complete in itself and makes no network "
                "requests.</footer>",
                f"<script>{code}</script></body></html>\n",
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return the page as JSON-able values: its sections with the components of each row."""
        sections = [
            {
                "title": section.title,
                "note": section.note,
                "folded": section.folded,
                "rows": [
                    [{"kind": one.kind, "data": one.data()} for one in row] for row in section.rows
                ],
            }
            for section in self.sections
        ]
        facts = {"title": self.title, "subtitle": self.subtitle, "warnings": list(self.warnings)}
        return facts | {"sections": sections}

    def write(self, path: str | Path) -> Path:
        """Write the page atomically: a reader sees the old file or the new one, never a part."""
        path = Path(path)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_text(self.render(), encoding="utf-8", newline="\n")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        return path

    def _subtitle(self) -> str:
        return f'<p class="subtitle">{escape(self.subtitle)}</p>' if self.subtitle else ""

    def _contents(self) -> str:
        links = [
            f'<li><a href="#section-{i + 1}">{escape(section.title)}</a></li>'
            for i, section in enumerate(self.sections)
            if section.title
        ]
        return (
            f"<nav aria-label='Sections'><ul>{''.join(links)}</ul></nav>" if len(links) > 2 else ""
        )

    def _section(self, index: int, section: Section) -> str:
        title = f"<h2>{escape(section.title)}</h2>" if section.title else ""
        note = f'<p class="note">{escape(section.note)}</p>' if section.note else ""
        rows = "\n".join(
            f'<div class="row">{"".join(map(_mount_point, row))}</div>' for row in section.rows
        )
        if section.folded:
            rows = f"<details><summary>{title}</summary>{note}\n{rows}</details>"
            title = note = ""
        return f'<section id="section-{index + 1}">{title}{note}\n{rows}</section>'


def _mount_point(component: Component) -> str:
    kind = component.kind
    return (
        f'<div class="component {kind}" data-kind="{kind}">{component.fallback()}'
        f'<script type="application/json">{to_json(component.data())}</script></div>'
    )
