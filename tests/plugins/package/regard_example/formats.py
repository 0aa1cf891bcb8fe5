"""Tables with a bar between the cells."""

from __future__ import annotations

from regard.data.tables import Delimited


class Psv(Delimited):
    """Bar-separated values."""

    name, suffixes, delimiters = "psv", (".psv",), ("|",)
