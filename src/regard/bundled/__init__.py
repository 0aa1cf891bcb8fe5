"""Data that comes with regard: names, one a line, and phrases in two languages (see scripts/)."""

from __future__ import annotations

from pathlib import Path

NAMES = Path(__file__).with_name("names.txt")
PHRASES = Path(__file__).with_name("phrases.en-de.tsv.gz")  # English, a tab, German
