"""Markup of parallel text: the lines of tags in Europarl files and the segments of SGML test sets.

Europarl (Koehn 2005) marks chapters, speakers and paragraphs by lines of their own, `<SPEAKER ID=1
…>`, at the same places in both languages; test sets of WMT wrap each sentence in `<seg id="1">`.
Only lines that are marked alike in both files are changed, so that `<` within a sentence stays.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

TAGS_ALONE = re.compile(r"\s*(?:<[/!?]?[A-Za-z][^<>]*>\s*)+")
WRAPPED = re.compile(r"\s*<(seg|s|p|hl)\b[^<>]*>(.*)</\1>\s*", re.IGNORECASE)


@dataclass
class Markup:
    """Removes markup from aligned lines, and counts what was removed."""

    lines: int = 0  # of tags alone
    wrapped: int = 0  # pairs between tags
    first: str = ""  # tag of a line

    def strip(self, source: str, target: str) -> tuple[str, str]:
        """Return a pair without markup; both texts are empty for two lines of tags."""
        if "<" not in source or "<" not in target:
            return source, target
        if TAGS_ALONE.fullmatch(source) and TAGS_ALONE.fullmatch(target):
            self.lines += 1
            self.first = self.first or source.strip()
            return "", ""
        one, other = WRAPPED.fullmatch(source), WRAPPED.fullmatch(target)
        if one is None or other is None:
            return source, target
        self.wrapped += 1
        return html.unescape(one[2]).strip(), html.unescape(other[2]).strip()

    @property
    def note(self) -> str:
        """What was removed, in words; empty for files without markup."""
        parts = []
        if self.lines:
            first = self.first if len(self.first) <= 40 else f"{self.first[:39]}…"
            parts.append(
                f"{self.lines:,} lines of tags in both files, such as {first}, are left out"
            )
        if self.wrapped:
            parts.append(f"the tags around {self.wrapped:,} pairs are removed")
        return "; ".join(parts)
