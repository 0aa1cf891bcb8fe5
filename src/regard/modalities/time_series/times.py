"""Times of a series: how a column writes them, and the step between them.

`parse_times` reads a whole column at once, because a single cell such as 03/04/2020 is ambiguous.
`find_step` infers the step of sorted times: a fixed duration, or months, quarters, years and
business days of the calendar. `find_daylight_saving` finds the hour that local clocks skip in
spring and repeat in autumn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UsageError, UserError, did_you_mean

Array = NDArray[Any]  # datetime64[ns] or int64
Integers = NDArray[np.int64]

BLOCK = 10_000  # cells matched at a time
SAMPLE = 200  # cells that decide the notation of a column
MOST = 0.95  # share of integers in a plausible range that makes all of them dates
REGULAR = 0.6  # share of equal differences that makes a step, if the others are multiples
SECOND = 10**9  # nanoseconds
MINUTE, HOUR, DAY, WEEK = 60 * SECOND, 3600 * SECOND, 86400 * SECOND, 7 * 86400 * SECOND
YEAR_DAYS = 365.25
FIRST_MONDAY = 4 * DAY  # after the first of January 1970
UNIX_RANGE = 631_152_000, 4_102_444_800  # seconds: 1990 to 2100
FIRST_YEAR, LAST_YEAR = 1700, 2199  # nanoseconds in 64 bits reach from 1678 to 2262
PIVOT = 69  # two digits from here on are years of the last century, as in POSIX
MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
MONTH_NUMBERS = {name: i for i, month in enumerate(MONTHS, 1) for name in (month, month[:3])}
MONTH_NUMBERS["sept"] = 9

TIME = (
    r"(?:[Tt ,]\s*(?P<hour>\d{1,2})"
    r"(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9})\d*)?)?)?"
    r"(?:\s?(?P<half>[AaPp])\.?[Mm]\.?)?"
    r"(?:\s?(?P<zone>[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?))?)?"
)
WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
NAME, DAY_OF = r"(?P<name>[A-Za-z]{3,9})\.?", r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
# What NumPy reads itself, but for the Z; it would also take "today", or an offset with a warning.
PLAIN = re.compile(
    r"(?:1[789]|2[01])\d\d-\d\d(?:-\d\d(?:[T ](?:[01]\d|2[0-3])"
    r"(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?)?Z?)?)?"
)
INTEGER = re.compile(r"[+-]?(?:1\d{18}|\d{1,18})(?:\.0+)?")
ISO, NUMBERED = "ISO 8601", "day and month as numbers"
NOTATIONS = {
    "integers": INTEGER,
    # A point after the year needs a day, so that 1850.12 stays a number.
    ISO: re.compile(
        r"(?P<year>\d{4})(?:[-/]|\.(?=\d{1,2}\.))(?P<month>\d{1,2})"
        rf"(?:[-/.](?P<day>\d{{1,2}}){TIME})?"
    ),
    NUMBERED: re.compile(
        rf"(?P<one>\d{{1,2}})(?P<mark>[./-])(?P<two>\d{{1,2}})[./-](?P<year>\d{{4}}|\d\d){TIME}"
    ),
    "months": re.compile(r"(?P<month>\d{1,2})[/-](?P<year>\d{4})"),
    "day, name of the month, year": re.compile(
        rf"{WEEKDAY}(?:{DAY_OF}[ .-]*)?{NAME}[ ,-]*(?P<year>\d{{4}}|\d\d){TIME}"
    ),
    "name of the month, day, year": re.compile(
        rf"{WEEKDAY}{NAME} {DAY_OF}(?:, ?| )(?P<year>\d{{4}}){TIME}"
    ),
    "year, name of the month, day": re.compile(
        rf"(?P<year>\d{{4}})[ -]{NAME}(?:[ -](?P<day>\d{{1,2}}){TIME})?"
    ),
    "year and quarter": re.compile(r"(?P<year>\d{4})[- ]?[Qq](?P<quarter>[1-4])"),
    "quarter and year": re.compile(r"[Qq](?P<quarter>[1-4])[- /]?(?P<year>\d{4})"),
}
YEARS = "years"  # the notation of integers that are years


@dataclass(frozen=True, eq=False)
class Times:
    """The times of a column: datetime64[ns], or int64 for years and numbers of steps."""

    values: Array  # (R,), meaningless at `bad`
    bad: Integers  # indices of cells that are no times
    notation: str  # in words, "" if no cell is a time
    remarks: tuple[str, ...] = ()

    @property
    def dated(self) -> bool:
        """Whether these are dates, not numbers."""
        return self.values.dtype.kind == "M"


def parse_times(cells: Sequence[str]) -> Times:
    """Parse a column of times; its notation is the one that fits most cells."""
    index: dict[str, int] = {}
    where = np.fromiter(
        (index.setdefault(cell.strip(), len(index)) for cell in cells), np.int64, len(cells)
    )
    distinct = list(index)
    sample = [cell for cell in distinct[:: max(1, len(distinct) // SAMPLE)] if cell]
    counts = {
        name: sum(map(bool, map(regex.fullmatch, sample))) for name, regex in NOTATIONS.items()
    }
    notation = max(counts, key=lambda name: counts[name])
    if not counts[notation]:
        return Times(np.full(len(cells), "NaT", "M8[ns]"), np.arange(len(cells)), "")
    if notation == "integers":
        values, valid, notation = _parse_integers(distinct)
        return Times(values[where], np.flatnonzero(~valid[where]), notation)
    if notation == ISO and (plain := _parse_plain(distinct)) is not None:
        return Times(plain[where], np.flatnonzero(np.isnat(plain)[where]), ISO)
    parsed, remarks = _parse_dates(distinct, NOTATIONS[notation], where)
    return Times(parsed[where], np.flatnonzero(np.isnat(parsed)[where]), notation, tuple(remarks))


def _parse_plain(cells: list[str]) -> Array | None:
    """Parse ISO 8601 with NumPy; None if a cell needs more care, such as an offset."""
    plain = np.array([PLAIN.fullmatch(cell) is not None for cell in cells], bool)
    if any(NOTATIONS[ISO].fullmatch(cells[i]) for i in np.flatnonzero(~plain)):
        return None
    values = np.full(len(cells), "NaT", "M8[ns]")
    try:
        values[plain] = np.array([cells[i].rstrip("Z") for i in np.flatnonzero(plain)], "M8[ns]")
    except ValueError:  # such as February 30
        return None
    return values


def _parse_integers(cells: list[str]) -> tuple[Array, NDArray[np.bool_], str]:
    """Return the values of integers, which of them are valid, and what they are."""
    valid = np.array([bool(INTEGER.fullmatch(cell)) for cell in cells])
    digits = [cell.partition(".")[0] if ok else "0" for cell, ok in zip(cells, valid, strict=True)]
    numbers = np.array(list(map(int, digits)), np.int64)
    low, high = UNIX_RANGE
    for power, words in enumerate(("seconds", "milliseconds", "microseconds", "nanoseconds")):
        scale = 1000**power
        inside = valid & (numbers >= low * scale) & (numbers <= high * scale)
        if inside.sum() >= MOST * valid.sum():
            values = np.where(inside, numbers, 0) * (SECOND // scale)
            return values.view("M8[ns]"), inside, f"Unix {words}"
    lengths = np.array(list(map(len, digits)))
    for length, scale, words in ((8, 1, "YYYYMMDD"), (6, 100, "YYYYMM")):
        full = np.where(valid & (lengths == length), numbers * scale + (scale > 1), 0)
        dates = _assemble(full // 10_000, full // 100 % 100, full % 100)
        dated = ~np.isnat(dates)
        plausible = length == 8 or len(np.unique(full[dated] // 10_000)) > 1
        if plausible and dated.sum() >= MOST * valid.sum():
            return dates, dated, words
    years = (numbers >= FIRST_YEAR) & (numbers <= LAST_YEAR) & (lengths == 4)
    return numbers, valid, YEARS if years[valid].all() else "integers"


def _assemble(year: Integers, month: Integers, day: Integers, clock: Integers | int = 0) -> Array:
    """Return dates with a number of nanoseconds since midnight; NaT where there is no such day."""
    valid = (year >= FIRST_YEAR) & (year <= LAST_YEAR) & (month >= 1) & (month <= 12) & (day >= 1)
    months = np.where(valid, (year - 1970) * 12 + month - 1, 0).astype("M8[M]")
    valid &= (day <= _month_lengths(months)) & (np.asarray(clock) >= 0)
    days = months.astype("M8[D]") + np.where(valid, day - 1, 0).astype("m8[D]")
    values: Array = days.astype("M8[ns]") + np.asarray(clock).astype("m8[ns]")
    values[~valid] = np.datetime64("NaT", "ns")
    return values


def _month_lengths(months: Array) -> Integers:
    """Return the number of days of each month."""
    days: Array = (months + np.timedelta64(1, "M")).astype("M8[D]") - months.astype("M8[D]")
    return days.astype(np.int64)


class _Fields:
    """The groups of a regular expression in the cells that it matches, column by column."""

    def __init__(self, cells: list[str], regex: re.Pattern[str]) -> None:
        self.matched = np.zeros(len(cells), bool)
        columns: list[list[str | None]] = [[] for _ in regex.groupindex]
        for first in range(0, len(cells), BLOCK):  # many objects at a time are slow to collect
            matches = list(map(regex.fullmatch, cells[first : first + BLOCK]))
            self.matched[first : first + BLOCK] = [match is not None for match in matches]
            rows = [match.groups() for match in matches if match is not None]
            for column, group in zip(columns, zip(*rows, strict=True), strict=bool(rows)):
                column.extend(group)
        self.columns = dict(zip(regex.groupindex, columns, strict=True))

    def texts(self, name: str) -> Sequence[str | None]:
        """Return a group, None where it is left out."""
        return self.columns.get(name, (None,) * int(self.matched.sum()))

    def numbers(self, name: str, default: int) -> Integers:
        """Return a group as numbers."""
        texts = self.texts(name)
        return np.array([default if text is None else int(text) for text in texts], np.int64)

    def years(self) -> Integers:
        """Return the years; those of two digits lie between 1969 and 2068."""
        years = self.numbers("year", 0)
        return np.where(years < 100, years + np.where(years >= PIVOT, 1900, 2000), years)

    def clock(self) -> Integers:
        """Return nanoseconds since midnight; -1 where there is no such time."""
        hour, minute, second = (self.numbers(name, 0) for name in ("hour", "minute", "second"))
        digits = [(text or "").ljust(9, "0") for text in self.texts("fraction")]
        letters = [(text or "").lower() for text in self.texts("half")]
        half = np.array([" ap".index(letter or " ") for letter in letters], np.int64)
        twelve = (half == 0) | ((hour >= 1) & (hour <= 12))
        hour = np.where(half > 0, hour % 12 + 12 * (half == 2), hour)
        end_of_day = (hour == 24) & (minute == 0) & (second == 0)
        valid = ((hour < 24) | end_of_day) & (minute < 60) & (second < 60) & twelve
        total = hour * HOUR + minute * MINUTE + second * SECOND
        return np.where(valid, total + np.array(list(map(int, digits)), np.int64), -1)


def _parse_dates(
    cells: list[str], regex: re.Pattern[str], where: Integers
) -> tuple[Array, list[str]]:
    """Return the times of cells, NaT where there is none, and remarks."""
    fields = _Fields(cells, regex)
    values = np.full(len(cells), "NaT", "M8[ns]")
    remarks: list[str] = []
    if "one" in regex.groupindex:
        local, remarks = _order_numbers(fields, cells, where)
    else:
        month = fields.numbers("month", 1)
        if "quarter" in regex.groupindex:
            month = 3 * fields.numbers("quarter", 1) - 2
        if "name" in regex.groupindex:
            names = [(text or "").lower() for text in fields.texts("name")]
            month = np.array([MONTH_NUMBERS.get(name, 0) for name in names], np.int64)
        local = _assemble(fields.years(), month, fields.numbers("day", 1), fields.clock())
    values[fields.matched], zone_remarks = _subtract_offsets(local, fields)
    return values, remarks + zone_remarks


def _subtract_offsets(local: Array, fields: _Fields) -> tuple[Array, list[str]]:
    """Return times in UTC and remarks; days of differing offsets stay local."""
    zones = fields.texts("zone")
    offsets = [zone for zone in dict.fromkeys(zones) if zone]
    minutes = {zone: _minutes(zone) for zone in offsets}
    if not any(minutes.values()):
        return local, []
    shift = np.array([minutes[zone] if zone else 0 for zone in zones], np.int64)
    shown = " and ".join(sorted(offsets)[:3]) + (" …" if len(offsets) > 3 else "")
    differ = len(set(minutes.values())) > 1
    clocks = local[~np.isnat(local)].astype(np.int64) % DAY
    if differ and None not in zones and len(np.unique(clocks)) == 1:
        why = f"the offsets {shown} differ (daylight saving) and every time is the same of its day"
        return local, [f"{why}: times are kept as local"]
    without = sum(zone is None for zone in zones)
    more = f"; {without:,} times without an offset were read as UTC" if without else ""
    saving = " (daylight saving or several time zones)" if differ else ""
    remark = f"times with the offset {shown}{saving} were converted to UTC{more}"
    values: Array = local - (shift * MINUTE).astype("m8[ns]")
    return values, [remark]


def _minutes(zone: str) -> int:
    """Return the minutes of an offset such as +02:00."""
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (1 if zone[0] == "+" else -1) * (60 * int(digits[:2]) + int(digits[2:]))


def _order_numbers(fields: _Fields, cells: list[str], where: Integers) -> tuple[Array, list[str]]:
    """Decide over the column whether the day or the month comes first; return times and remarks."""
    one, two = fields.numbers("one", 0), fields.numbers("two", 0)
    years, clock = fields.years(), fields.clock()
    day_first = _assemble(years, two, one, clock)
    month_first = _assemble(years, one, two, clock)
    votes = int((one > 12).sum()), int((two > 12).sum())
    if votes[0] != votes[1]:
        return (day_first if votes[0] > votes[1] else month_first), []
    if all(mark == "." for mark in fields.texts("mark")):
        return day_first, []
    scores = []
    for values in (day_first, month_first):
        column = np.full(len(cells), "NaT", "M8[ns]")
        column[fields.matched] = values
        column = column[where]
        scores.append(_order_score(column[~np.isnat(column)]))
    if scores[0] != scores[1]:
        return (day_first if scores[0] > scores[1] else month_first), []
    example = next(cell for cell, ok in zip(cells, fields.matched, strict=True) if ok)
    remark = f"{example!r} and the other dates do not tell whether the day or the month comes first"
    return month_first, [f"{remark}: read with the month first; 2020-12-31 is unambiguous"]


def _order_score(values: Array) -> tuple[float, float]:
    """Return how much times increase, and how regular they are."""
    if len(values) < 2:
        return 0.0, 0.0
    deltas = np.diff(values).astype(np.int64)
    months = values.astype("M8[M]")
    days = (values - months).astype(np.int64)
    same_day = np.where(np.diff(days) == 0, np.diff(months.astype(np.int64)), 0)
    monthly = _most_common(same_day[same_day != 0])[1] * float((same_day != 0).mean())
    regular = max(_most_common(deltas)[1], monthly)
    return round(float((deltas > 0).mean()), 6), round(regular, 6)


def _most_common(values: Integers) -> tuple[int, float]:
    """Return the most common value and its share."""
    if not len(values):
        return 0, 0.0
    distinct, counts = np.unique(values, return_counts=True)
    i = int(np.argmax(counts))
    return int(distinct[i]), float(counts[i] / len(values))


UNIT_SIZES = {
    **{"week": WEEK, "day": DAY, "hour": HOUR, "minute": MINUTE, "second": SECOND},
    **{"millisecond": 10**6, "microsecond": 10**3, "nanosecond": 1},
}
FIXED, MONTH, BUSINESS, NUMBER = "nanosecond", "month", "business day", "step"
# Spellings of units in input.step: how many of which unit.
SPELLINGS: dict[str, tuple[int, str]] = {
    **{name: (size, FIXED) for name, size in UNIT_SIZES.items()},
    **{"s": (SECOND, FIXED), "sec": (SECOND, FIXED), "min": (MINUTE, FIXED), "ms": (10**6, FIXED)},
    **{"h": (HOUR, FIXED), "d": (DAY, FIXED), "w": (WEEK, FIXED), "bd": (1, BUSINESS)},
    **{"mo": (1, MONTH), "month": (1, MONTH), "q": (3, MONTH), "quarter": (3, MONTH)},
    **{"y": (12, MONTH), "year": (12, MONTH), BUSINESS: (1, BUSINESS), NUMBER: (1, NUMBER)},
}


@dataclass(frozen=True)
class Step:
    """The step between the times of a series: `count` of a unit.

    The unit is a nanosecond for fixed durations, a month of the calendar, a business day, or, of
    times that are integers, a step or a year.
    """

    count: int
    unit: str = FIXED
    day: int = 1  # of the month, where months are counted; 31 is the last of every month

    @property
    def name(self) -> str:
        """The step in words, which `parse_step` reads."""
        if self.unit == FIXED:
            unit = next(unit for unit, size in UNIT_SIZES.items() if not self.count % size)
            return format_count(self.count // UNIT_SIZES[unit], unit)
        if self.unit == MONTH and self.count % 12 == 0:
            return format_count(self.count // 12, "year")
        if self.unit == MONTH and self.count == 3:
            return "1 quarter"
        return format_count(self.count, self.unit)

    @property
    def dated(self) -> bool:
        """Whether the times are dates, not integers."""
        return self.unit in (FIXED, MONTH, BUSINESS)

    @property
    def periods(self) -> tuple[int, ...]:
        """The seasonal periods to expect, in steps, the shortest first."""
        if self.unit == BUSINESS:
            return (5,) if self.count == 1 else ()
        if self.unit == MONTH:
            return (12 // self.count,) if 12 % self.count == 0 and self.count < 12 else ()
        if self.unit != FIXED:
            return ()
        if self.count >= DAY:
            year = round(YEAR_DAYS * DAY / self.count)
            week = WEEK // self.count if WEEK % self.count == 0 else 0
            return tuple(period for period in (week, year) if period >= 2)
        cycles = (MINUTE, HOUR, DAY) if self.count < MINUTE else (DAY, WEEK)
        return tuple(cycle // self.count for cycle in cycles if cycle % self.count == 0)

    def index(self, values: Array, start: Any = None) -> Integers:
        """Return the position of each time on the grid from `start`, by default the first time."""
        first = values.min() if start is None else start
        if self.unit == MONTH:
            since = values.astype("M8[M]") - np.asarray(first).astype("M8[M]")
        elif self.unit == BUSINESS:
            since = np.busday_count(np.asarray(first).astype("M8[D]"), values.astype("M8[D]"))
        else:
            since = values - first
        positions: Integers = since.astype(np.int64) // self.count
        return positions

    def fits(self, values: Array) -> bool:
        """Return whether sorted and different times lie on one grid of this step."""
        if (values.dtype.kind == "M") != self.dated or not len(values):
            return False
        if self.unit == BUSINESS and not np.is_busday(values.astype("M8[D]")).all():
            return False
        if self.unit in (MONTH, BUSINESS):
            months = np.diff(values.astype("M8[M]")).astype(np.int64)
            on_grid = self.unit == BUSINESS or not (months % self.count).any()
            return on_grid and bool((np.diff(self.index(values)) > 0).all())
        return not ((values - values[0]).astype(np.int64) % self.count).any()

    def anchored(self, values: Array) -> Step:
        """Return the step with the day of the month that these times have."""
        day = _common_day(values) if self.unit == MONTH else 0
        return replace(self, day=day) if day else self

    def times(self, start: Any, n: int, *, skip: int = 0) -> Array:
        """Return `n` times: `start` itself and those that follow, without the first `skip`."""
        steps = (skip + np.arange(n, dtype=np.int64)) * self.count
        if not self.dated:
            return np.asarray(int(start) + steps)
        first = np.datetime64(start, "ns")
        if self.unit == FIXED:
            return np.asarray(first + steps.astype("m8[ns]"))
        clock = first - first.astype("M8[D]")
        if self.unit == BUSINESS:
            days = np.busday_offset(first.astype("M8[D]"), steps)
            return np.asarray(days.astype("M8[ns]") + clock)
        months = first.astype("M8[M]") + steps.astype("m8[M]")
        day = np.minimum(self.day, _month_lengths(months))
        days = months.astype("M8[D]") + (day - 1).astype("m8[D]")
        values = np.asarray(days.astype("M8[ns]") + clock)
        if n and not skip:
            values[0] = first  # the first business day of a month, for example
        return values

    def floor(self, values: Array) -> Array:
        """Return the start of the step that each time lies in."""
        if not self.dated:
            return np.asarray(values // self.count * self.count)
        if self.unit == MONTH:
            months = values.astype("M8[M]").astype(np.int64) // self.count * self.count
            return np.asarray(months.astype("M8[M]").astype("M8[ns]"))
        if self.unit == BUSINESS:
            days = np.busday_offset(values.astype("M8[D]"), 0, roll="backward")
            return np.asarray(days.astype("M8[ns]"))
        origin = FIRST_MONDAY if self.count % WEEK == 0 else 0
        since = values.astype(np.int64) - origin
        return np.asarray((since // self.count * self.count + origin).view("M8[ns]"))


def format_count(count: int, unit: str) -> str:
    """Return a count and its unit, as in "2 hours"."""
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def parse_step(text: str) -> Step:
    """Return the step that a text such as 15min, 1h, 1d, 1w, 1mo, 1q, 1y or "2 hours" names."""
    match = re.fullmatch(r"([\d,]*)\s*([A-Za-z ]*)", text.strip())
    number, unit = (match[1].replace(",", ""), match[2].strip()) if match else ("", "?")
    unit = "min" if unit == "T" else unit.lower() or (NUMBER if number else "?")
    size = SPELLINGS.get(unit) or SPELLINGS.get(unit.removesuffix("s"))
    if size is None or int(number or 1) < 1:
        ask = "15min, 1mo" if unit == "m" else "30s, 15min, 1h, 1d, 1bd, 1w, 1mo, 1q, 1y"
        close = did_you_mean(unit, list(SPELLINGS)) if len(unit) > 2 else ""
        hint = f"; {close}" if close.startswith("did") else ""
        raise UsageError(f"input.step = {text[:40]!r} is no step of time, such as {ask}{hint}")
    return Step(int(number or 1) * size[0], size[1])


def format_time(value: Any) -> str:
    """Return a time as people write it: 2020-01-31, 2020-01-31 05:00, or an integer."""
    if not isinstance(value, np.datetime64):
        return str(int(value))
    text = str(value.astype("M8[ns]")).replace("T", " ")
    text = text.removesuffix(".000000000").removesuffix(":00")
    return text.removesuffix(" 00:00")


def find_step(
    values: Array, *, unit: str = NUMBER, locate: Callable[[int], str] | None = None
) -> Step:
    """Infer the step of sorted and different times; irregular ones are a UserError.

    `unit` names the step of integers. `locate` returns the file and line of time i.
    """
    if len(values) < 2:
        where = f"{locate(0)}: " if locate and len(values) else ""
        raise UserError(f"{where}a step cannot be told from {len(values)} time; give two at least")
    deltas = np.diff(values).astype(np.int64)
    common, share = _most_common(deltas)
    dated = values.dtype.kind == "M"
    if dated and np.median(deltas) >= 27 * DAY and (step := _find_months(values)):
        return step
    if dated and common == DAY and _are_business_days(values):
        return Step(1, BUSINESS)
    if share >= REGULAR and not (deltas % common).any():
        return Step(common, FIXED if dated else unit)
    raise _irregular(values, deltas, unit, locate)


def _find_months(values: Array) -> Step | None:
    """Return a step of months if times lie on the same day, or the first or last days, of each."""
    deltas = np.diff(values.astype("M8[M]")).astype(np.int64)
    common, share = _most_common(deltas)
    if not common or share < REGULAR or (deltas % common).any() or (deltas == 0).any():
        return None
    if len(np.unique((values - values.astype("M8[D]")).astype(np.int64))) > 1:
        return None
    if day := _common_day(values):
        return Step(common, MONTH, day)
    days = _days_of_month(values)
    if days.max() <= 7 and len(values) > 3:
        return Step(common, MONTH, 1)  # the first business day, for example
    return Step(common, MONTH, 31) if days.min() >= 25 and len(values) > 3 else None


def _days_of_month(values: Array) -> Integers:
    """Return the day of the month of each time, from 1."""
    days: Array = values.astype("M8[D]") - values.astype("M8[M]").astype("M8[D]")
    return days.astype(np.int64) + 1


def _common_day(values: Array) -> int:
    """Return the day of the month that all times have, 31 if it is the last, 0 if there is none."""
    days, lengths = _days_of_month(values), _month_lengths(values.astype("M8[M]"))
    day = 31 if (days == lengths).all() else int(days.max())
    return day if (days == np.minimum(day, lengths)).all() else 0


def _are_business_days(values: Array) -> bool:
    """Return whether all times are on weekdays, across a weekend at least, mostly in sequence."""
    days = values.astype("M8[D]")
    if not np.is_busday(days).all() or len(np.unique((values - days).astype(np.int64))) > 1:
        return False
    steps = np.busday_count(days[:-1], days[1:])
    across = bool((steps < np.diff(days).astype(np.int64)).any())
    return across and float((steps == 1).mean()) >= REGULAR


def _irregular(
    values: Array, deltas: Integers, unit: str, locate: Callable[[int], str] | None
) -> UserError:
    """Return the error for irregular times, with the first of them and the usual differences."""
    different, counts = np.unique(deltas, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:3]
    common = int(different[order[0]])
    off = np.flatnonzero(deltas % common != 0)
    if not len(off):
        off = np.flatnonzero(deltas != common)
    i = int(off[0]) + 1
    dated = values.dtype.kind == "M"

    def words(delta: int) -> str:
        return Step(delta).name if dated else format_count(delta, unit)

    usual = ", ".join(
        f"{words(int(different[j]))} ({100 * counts[j] / len(deltas):.0f}%)" for j in order
    )
    where = f"{locate(i)}: " if locate else ""
    example = _short_step(int(np.median(deltas))) if dated else str(common)
    return UserError(
        f"{where}the times are not at equal steps: {format_time(values[i])} comes "
        f"{words(int(deltas[i - 1]))} after the time before it, where the most common differences "
        f"are {usual}; resample the table to a regular step, or --set input.step={example} "
        "averages the rows of each such step"
    )


def _short_step(nanoseconds: int) -> str:
    """Return the usual step that is nearest to a duration, as input.step writes it."""
    usual = {
        **{"1s": SECOND, "10s": 10 * SECOND, "1min": MINUTE, "5min": 5 * MINUTE},
        **{"15min": 15 * MINUTE, "1h": HOUR, "1d": DAY, "1w": WEEK},
        **{"1mo": 30 * DAY, "1q": 91 * DAY, "1y": 365 * DAY},
    }
    return min(usual, key=lambda name: abs(np.log(usual[name] / max(1, nanoseconds))))


CHANGE_MONTHS = (2, 3, 4, 5, 8, 9, 10, 11)  # in which clocks are changed, on both hemispheres
LATEST_CHANGE = 4 * HOUR  # after midnight: a skipped hour ends by then, a repeated one, too


@dataclass(frozen=True, eq=False)
class DaylightSaving:
    """Where local clocks change: indices of sorted and different times."""

    skipped: Integers  # the first time after an hour that is skipped in spring
    repeated: Integers  # times of an hour that is repeated in autumn


def find_daylight_saving(values: Array, counts: Integers, step: Step) -> DaylightSaving:
    """Find the changes of clocks among sorted, different local times that occur `counts` times.

    A change is an hour that is missing or occurs twice, early on a Sunday of spring or autumn,
    once a year at most.
    """
    none = DaylightSaving(np.zeros(0, np.int64), np.zeros(0, np.int64))
    if step.unit != FIXED or HOUR % step.count or values.dtype.kind != "M":
        return none
    days = values.astype("M8[D]")
    months = values.astype("M8[M]").astype(np.int64) % 12 + 1
    sunday = days.astype(np.int64) % 7 == 3  # the first of January 1970 was a Thursday
    hour = (values - days).astype(np.int64)
    candidates = sunday & (hour <= LATEST_CHANGE) & np.isin(months, CHANGE_MONTHS)
    longer = np.zeros(len(values), bool)
    longer[1:] = np.diff(values).astype(np.int64) == step.count + HOUR
    skipped = np.flatnonzero(candidates & longer)
    repeated = np.flatnonzero(candidates & (hour < LATEST_CHANGE) & (counts == 2))
    dates, sizes = np.unique(days[repeated], return_counts=True)
    change_days = dates[sizes == HOUR // step.count]
    repeated = repeated[np.isin(days[repeated], change_days)]
    years = days[skipped].astype("M8[Y]"), change_days.astype("M8[Y]")
    once_a_year = all(len(np.unique(part)) == len(part) for part in years)
    return DaylightSaving(skipped, repeated) if once_a_year else none
