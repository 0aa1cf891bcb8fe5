"""A page: sections of components, written as one HTML file that asks the network for nothing.

The Content-Security-Policy allows exactly one script, by the hash of its text, and no request of
any kind but images the page made itself; so even a mistake in escaping could run nothing.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from regard.look.page.component import Component, escape, to_json

# Joined in this order into one script with one scope: later files use functions of earlier ones.
SCRIPTS = (
    "elements.js",
    "colours.js",
    "arrays.js",
    "tip.js",
    "prose.js",
    "heatmap.js",
    "arcs.js",
    "attention.js",
    "surprise.js",
    "tagged.js",
    "distribution.js",
    "beam_tree.js",
    "axes.js",
    "charts.js",
    "scatter.js",
    "picture.js",
    "space.js",
    "projector.js",
    "logo.js",
    "page.js",
)


@cache
def asset(name: str) -> str:
    """The text of one of the package's style sheets or scripts."""
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """All scripts as one, in a scope of its own."""
    return "(() => {\n'use strict';\n" + "\n".join(asset(name) for name in SCRIPTS) + "})();\n"


def policy(code: str) -> str:
    """The Content-Security-Policy under which this script, and nothing else, may run."""
    digest = base64.b64encode(hashlib.sha256(code.encode("utf-8")).digest()).decode("ascii")
    return (
        "default-src 'none'; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@dataclass
class _Section:
    title: str
    note: str
    rows: list[tuple[Component, ...]] = field(default_factory=list)


class Page:
    """Collects sections and components, then renders them; what is added first stands first."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        self.title = title
        self.subtitle = subtitle
        self._sections: list[_Section] = []

    def section(self, title: str, note: str = "") -> None:
        """Start a section; the note explains it in a sentence or two."""
        self._sections.append(_Section(title, note))

    def add(self, *components: Component) -> None:
        """Add a component to the current section; several stand side by side if they fit."""
        for component in components:
            if not isinstance(component, Component):
                raise TypeError(
                    f"components must be page components, got {type(component).__name__}"
                )
        if not self._sections:
            self.section("")
        self._sections[-1].rows.append(components)

    @property
    def components(self) -> tuple[Component, ...]:
        """Everything on the page, in order."""
        return tuple(c for section in self._sections for row in section.rows for c in row)

    def render(self) -> str:
        """The whole page as one HTML document."""
        code = script()
        return "\n".join(
            (
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy(code)}">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                '<meta name="color-scheme" content="light dark">',
                f'<title>{escape(self.title)}</title><link rel="icon" href="data:,">',
                f"<style>{asset('page.css')}</style></head><body>",
                f"<header><h1>{escape(self.title)}</h1>{self._subtitle()}</header>",
                '<noscript><p class="notice">Scripts are off: tables and texts are complete, '
                "figures are not drawn.</p></noscript>",
                self._contents(),
                "<main>",
                *(self._section(i, section) for i, section in enumerate(self._sections)),
                "</main>",
                "<footer>Made with regard. This file is complete in itself and asks the network "
                "for nothing.</footer>",
                f"<script>{code}</script></body></html>\n",
            )
        )

    def write(self, path: str | Path) -> Path:
        """Write the page; a reader sees the old file or the new one, never a part."""
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
            for i, section in enumerate(self._sections)
            if section.title
        ]
        return (
            f"<nav aria-label='Sections'><ul>{''.join(links)}</ul></nav>" if len(links) > 2 else ""
        )

    def _section(self, index: int, section: _Section) -> str:
        title = f"<h2>{escape(section.title)}</h2>" if section.title else ""
        note = f'<p class="note">{escape(section.note)}</p>' if section.note else ""
        rows = "\n".join(
            f'<div class="row">{"".join(map(_mount_point, row))}</div>' for row in section.rows
        )
        return f'<section id="section-{index + 1}">{title}{note}\n{rows}</section>'


def _mount_point(component: Component) -> str:
    kind = component.kind
    return (
        f'<div class="component {kind}" data-kind="{kind}">{component.fallback()}'
        f'<script type="application/json">{to_json(component.data())}</script></div>'
    )
