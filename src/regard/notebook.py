"""How results look in a notebook: the HTML of `_repr_html_`, which Jupyter shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str = "",
    notes: Sequence[str] = (),
) -> str:
    """Return a table with a title above it and a paragraph for each note below it."""
    head = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:left">{escape(str(cell))}</td>' for cell in row)
        + "</tr>"
        for row in rows
    )
    above = f"<p><b>{escape(title)}</b></p>" if title else ""
    below = "".join(f"<p>{escape(note)}</p>" for note in notes if note)
    thead = f"<thead><tr>{head}</tr></thead>" if any(columns) else ""
    return f"<div>{above}<table>{thead}<tbody>{body}</tbody></table>{below}</div>"
