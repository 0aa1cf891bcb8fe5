"""How columns write numbers: every notation is read as the number that was meant."""

import random

import pytest

from regard.data.targets import NOTATIONS, Notation, censored, notation_of, number, numeric


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
