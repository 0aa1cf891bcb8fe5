"""Targets: notations of numbers, and warnings about what looks wrong, with the first example."""

import random
import unicodedata

import numpy as np
import pytest

from regard.data.targets import (
    NOTATIONS,
    Notation,
    censored,
    notation_of,
    number,
    numeric,
    of_classes,
    of_values,
)


def lines(counts, places=None, spaced=None):
    return [line for _, line in of_classes("y", counts, places or {}, spaced or {})]


def test_spellings_of_one_class_are_named_with_their_places():
    counts = {"toxic": 9, "Toxic": 3, "safe": 5, "very  bad": 1, "very bad": 2}
    (line,) = lines(counts, {"toxic": "t.csv:2", "Toxic": "t.csv:7"})
    assert line == (
        "4 classes of 'y' differ only by case, space or Unicode form: 'toxic' (t.csv:2) and "
        "'Toxic' (t.csv:7), and 1 more such groups"
    )
    assert lines({"a": 1, "b": 9}) == []
    (line,) = lines({"Gut": 8, "gut": 40, "schlecht": 50})
    assert line.endswith("'gut' and 'Gut'")
    (line,) = lines({unicodedata.normalize(form, "schön"): 5 for form in ("NFC", "NFD")})
    assert line.startswith("2 classes of 'y' differ only by case, space or Unicode form")


def test_blanks_around_a_class_are_named_where_it_is_also_written_without():
    (line,) = lines({"a": 5, "b": 5}, spaced={"a": (2, "'a ' at t.csv:4"), "b": (5, "'b ' at x")})
    assert line.endswith("(1); first: 'a ' at t.csv:4")


def test_more_than_fifty_classes_of_one_record_are_too_many():
    once = {f"c{i}": 1 for i in range(51)}
    (line,) = lines(once, {"c0": "t.csv:2"})
    assert line.startswith("'y' has 51 classes, and most have one record, such as 'c0' (t.csv:2)")
    assert lines(once | {"c0": 9}) and not lines({f"c{i}": 1 for i in range(50)})
    assert not lines({f"c{i}": 1 + i % 3 for i in range(60)})  # the median is two


def test_a_few_texts_among_numbers_are_named():
    (line,) = lines({"0": 50, "1": 48, "unknown": 2}, {"unknown": "t.csv:9"})
    expected = "2 rows have text where 'y' has numbers elsewhere; first: 'unknown' (t.csv:9)"
    assert line == expected
    assert not lines({"0": 50, "1": 50}) and not lines({"a": 50, "1": 2})


def test_outliers_lie_beyond_twenty_interquartile_ranges():
    values = np.arange(101.0)  # quartiles 25 and 75: an outlier is beyond 1075
    assert of_values("y", np.append(values, 1074.0)) == ""
    found = of_values("y", np.append(values, [1e8, -1e8]))
    assert found.startswith("2 values of 'y' lie more than 20 interquartile ranges")
    assert found.endswith("first: 100000000")
    assert of_values("y", np.array([0.0] * 90 + [5.0])) == ""  # most are the same: no range


def written(value, notation):
    """A number as a notation writes it, by Python's own formatting."""
    text = f"{value:,.2f}".replace(",", "G").replace(".", notation.decimal)
    return text.replace("G", notation.group)


@pytest.mark.parametrize("notation", NOTATIONS, ids=lambda n: n.words)
def test_a_column_is_read_back_as_it_was_written(notation):
    random_values = random.Random(1)
    values = [round(random_values.uniform(-1e6, 1e6), 2) for _ in range(50)] + [0.5, -3.25]
    cells = [written(value, notation) for value in values]
    assert notation_of(cells) == notation
    assert [float(notation.spell(cell)) for cell in cells] == values


@pytest.mark.parametrize(
    ("cells", "meant"),
    [
        (["1,234", "12,345", "950"], [1234, 12345, 950]),  # nothing says otherwise: thousands
        (["1,234", "0,5"], [1.234, 0.5]),
        (["1,234", "5.5"], [1234, 5.5]),
        (["-0,770", "1,234"], [-0.77, 1.234]),
        (["1.234", "5.5"], [1.234, 5.5]),
        (["1.234,5", "2.000", "7"], [1234.5, 2000, 7]),
        (["1\u202f234,5", "2,5"], [1234.5, 2.5]),
        (["\u22120.5", "1e3"], [-0.5, 1000]),
        (["3.5", "n.d.", "4"], [3.5, None, 4]),
        (["3.5", "4,5", "1.5"], [3.5, None, 1.5]),  # one of another notation is a text
    ],
)
def test_what_one_cell_means_is_decided_by_the_others(cells, meant):
    notation = notation_of(cells)
    found = [notation.spell(cell) for cell in cells]
    assert [None if cell is None else float(cell) for cell in found] == meant


def test_semicolons_between_columns_make_decimal_commas_likely():
    assert notation_of(["1,234", "2,345"], commas=True) == Notation(",")
    assert notation_of(["1,234", "2,345"]) == Notation(group=",")
    assert notation_of(["1.5", "2"], commas=True) == Notation()


def test_bounds_are_told_from_numbers_and_texts():
    for cell in ("<3.5", "> 10", "<=2,5", "≥1e3", "~7", "<1,000"):
        assert censored(cell) and numeric(cell) and number(cell) is None
    for cell in ("3.5", "<LOQ", "a<3", "<", ""):
        assert not censored(cell)
    assert not any(map(numeric, ("5 nM", "12-3", "1.2.x", "abc", "<LOQ")))
