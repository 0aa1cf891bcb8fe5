"""Rebuild src/regard/bundled/phrases.en-LL.tsv.gz from CLDR by way of Babel, byte for byte.

Usage: python scripts/build_phrases.py [--language de] [--pairs 12000] [--out FILE] [--check]

Dates, times, spans, numbers, percentages, amounts of money and measures, written in English and in
another language by the Unicode Common Locale Data Repository of Babel (2.18.0). A seed determines
the phrases; both languages have the same ones. Each English phrase occurs once.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "regard" / "bundled"
MONEY = ("EUR", "USD", "GBP", "CHF", "JPY", "SEK", "PLN")
UNITS = ("kilometer", "meter", "kilogram", "gram", "liter", "hour", "minute", "day", "week")
UNITS += ("celsius", "percent", "byte", "mile", "year")
MOST = 44  # characters of a phrase

Phrase = Callable[[random.Random, str], str]  # (generator, locale) -> a phrase


def date(draw: random.Random, locale: str) -> str:
    """A day, at one of CLDR's four lengths."""
    from babel.dates import format_date

    day = datetime(1950, 1, 1) + timedelta(days=draw.randrange(36_500))
    return format_date(day, draw.choice(("full", "long", "medium", "short")), locale=locale)


def day_name(draw: random.Random, locale: str) -> str:
    """A day without its year, or a month."""
    from babel.dates import format_skeleton

    day = datetime(2023, 1, 1) + timedelta(days=draw.randrange(365))
    skeleton = draw.choice(("MMMMd", "MMMEd", "yMMMM", "yMMM", "MMMd"))
    return format_skeleton(skeleton, day, locale=locale)


def clock(draw: random.Random, locale: str) -> str:
    """A time of day, with a date or without."""
    from babel.dates import format_datetime, format_time

    moment = datetime(1980, 1, 1) + timedelta(seconds=draw.randrange(1_500_000_000))
    if draw.random() < 0.5:
        return format_time(moment, "short", locale=locale)
    return format_datetime(moment, draw.choice(("medium", "short")), locale=locale)


def span(draw: random.Random, locale: str) -> str:
    """How long, how long ago, or in how long."""
    from babel.dates import format_timedelta

    unit = draw.choice((60, 3600, 86_400, 604_800, 2_629_800, 31_557_600))
    length = timedelta(seconds=unit * draw.randrange(1, 30))
    if draw.random() < 0.5:
        length = -length
    return format_timedelta(length, add_direction=draw.random() < 0.6, threshold=1.5, locale=locale)


def number(draw: random.Random, locale: str) -> str:
    """A number, a share, or a rounded one with its power in words."""
    from babel.numbers import format_compact_decimal, format_decimal, format_percent

    value = Decimal(draw.randrange(1, 10 ** draw.randrange(2, 10))) / 10 ** draw.randrange(4)
    rounded = Decimal(draw.randrange(11, 100)) * 10 ** draw.randrange(2, 10)  # nothing gets lost
    kind = draw.randrange(3)
    if kind == 0:
        return format_decimal(value, locale=locale)
    if kind == 1:
        share = value % 1000 / 1000
        return format_percent(share, decimal_quantization=False, locale=locale)
    long = draw.choice(("long", "short"))
    return format_compact_decimal(rounded, format_type=long, fraction_digits=1, locale=locale)


def money(draw: random.Random, locale: str) -> str:
    """An amount of money, with its sign or in words."""
    from babel.numbers import format_currency

    value = Decimal(draw.randrange(1, 10 ** draw.randrange(3, 9))) / 100
    kind = draw.choice(("standard", "name"))
    return format_currency(value, draw.choice(MONEY), format_type=kind, locale=locale)


def measure(draw: random.Random, locale: str) -> str:
    """A number of units."""
    from babel.units import format_unit

    value = Decimal(draw.randrange(1, 2000)) / draw.choice((1, 1, 10))
    return format_unit(value, draw.choice(UNITS), draw.choice(("long", "short")), locale=locale)


KINDS: tuple[Phrase, ...] = (date, date, day_name, clock, clock, span, number, money, measure)


def phrases_text(language: str, pairs: int, seed: int = 0) -> str:
    """Return lines of an English phrase, a tab and its translation, made from the same draws."""
    found: dict[str, str] = {}
    number = 0
    while len(found) < pairs:
        number += 1
        kind = KINDS[number % len(KINDS)]
        one, other = (
            kind(random.Random(f"{seed} {number}"), locale) for locale in ("en", language)
        )
        one, other = (" ".join(text.split()) for text in (one, other))  # plain spaces
        if max(len(one), len(other)) <= MOST:
            found.setdefault(one, other)
    return "".join(f"{one}\t{other}\n" for one, other in found.items())


def main() -> None:
    """Write the pairs, or with --check only compare them with what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--language", default="de", help="a locale of CLDR: de, fr, sv, ja …")
    parser.add_argument("--pairs", type=int, default=12_000)
    parser.add_argument("--out", type=Path, help="file to write or to check")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if different")
    arguments = parser.parse_args()
    out = arguments.out or FOLDER / f"phrases.en-{arguments.language}.tsv.gz"
    try:
        text = phrases_text(arguments.language, arguments.pairs)
    except ImportError:
        sys.exit("error: Babel is missing; install it with: pip install babel==2.18.0")
    if arguments.check:
        if gzip.decompress(out.read_bytes()).decode() != text:
            sys.exit(f"error: {out} differs from what Babel gives")
        return
    out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{out}: {text.count(chr(10)):,} pairs, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
