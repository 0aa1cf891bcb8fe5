"""Data sets that come with regard: names, films, phrases in two languages (see README.md)."""

from __future__ import annotations

from pathlib import Path

FILMS = Path(__file__).with_name("films.tsv")  # a description, a tab, a title
NAMES = Path(__file__).with_name("names.txt")
PHRASES = Path(__file__).with_name("phrases.en-de.tsv.gz")  # English, a tab, German
