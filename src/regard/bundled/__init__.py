"""Data that comes with regard: public-domain names, one a line (see scripts/build_names.py)."""

from __future__ import annotations

from pathlib import Path

NAMES = Path(__file__).with_name("names.txt")
