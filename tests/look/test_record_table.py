"""Queries of records against plain Python, and the other columns of their files."""

from __future__ import annotations

import math

import numpy as np
import pytest

from regard.errors import UsageError
from regard.evaluation.record_errors import RecordErrors
from regard.look.record_table import (
    RecordQuery,
    colour_columns,
    other_columns,
    read_cells,
    select_records,
)
from regard.look.records import FileRecord

ERRORS = RecordErrors(
    "test",
    np.arange(5) * 10,
    ["a cat", "b", "a dog", "Cat", "d"],
    np.array([0.5, math.nan, 3.0, math.inf, 0.5]),
    "bits",
    np.array([5, 1, 5, 3, 1]),
    truths=["x", "", "y", "y", "x"],
    predictions=["x", "x", "x", "y", "cats"],
    confidences=np.array([0.9, 0.6, 0.7, 0.8, 0.9]),
    correct=np.array([1, math.nan, 0, 1, 0]),
    columns={"id": list("12345"), "place": ["n", "n", "s", "s", "s"], "size": list("12x45")},
)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [3, 2, 0, 4, 1]),  # ∞ first, equal losses in their order, unknown last
        ({"descending": False}, [0, 4, 2, 3, 1]),
        ({"sort": "confidence"}, [0, 4, 3, 2, 1]),
        ({"sort": "number", "descending": False, "text": "cat"}, [0, 3, 4]),
        ({"sort": "number", "descending": False, "text": "/^cat$/"}, [3]),
        ({"sort": "number", "descending": False, "truth": "y"}, [2, 3]),
        ({"sort": "number", "descending": False, "truth": "y", "prediction": "x"}, [2]),
        ({"sort": "number", "descending": False, "correct": "wrong"}, [2, 4]),
        ({"sort": "tokens", "shortest": 3, "longest": 5}, [0, 2, 3]),
        ({"sort": "number", "descending": False, "column": "place", "value": "n"}, [0, 1]),
    ],
)
def test_records_are_selected_and_sorted(query, expected):
    assert select_records(ERRORS, RecordQuery(**query)).tolist() == expected


def test_wrong_queries_are_refused():
    with pytest.raises(UsageError, match="no regular expression"):
        select_records(ERRORS, RecordQuery(text="/[/"))
    with pytest.raises(UsageError, match="no column 'nothing'"):
        select_records(ERRORS, RecordQuery(column="nothing"))


def test_columns_to_colour_by_are_names_or_numbers():
    columns = colour_columns(ERRORS)
    assert columns["correct"] == ["right", "unknown", "wrong", "right", "wrong"]
    assert columns["place"] == ERRORS.columns["place"] and columns["tokens"] == [5, 1, 5, 3, 1]
    assert columns["loss in bits"][0] == ERRORS.losses[0]


def test_cells_are_found_by_line_in_a_messy_table(tmp_path):
    path = tmp_path / "messy.csv"
    path.write_bytes('\ufefftext,label,who\n"two\nlines",x, ann \nshort\n"a ""b""",y,\n'.encode())
    found = {0: FileRecord("two\nlines", f"{path}:2"), 1: FileRecord('a "b"', f"{path}:5")}
    assert other_columns(found, 3, {"text", "label"}) == {"who": ["ann", "", ""]}
    assert read_cells(tmp_path / "gone.csv", {2: [0]}) == {}
    other = tmp_path / "western.csv"
    other.write_bytes("text;größe\nü;groß\n".encode("latin-1"))
    row = {0: FileRecord("ü", f"{other}:2")}
    assert other_columns(row, 1, {"text"}, "latin-1") == {"größe": ["groß"]}
    plain = {0: FileRecord("a", f"{tmp_path / 'a.txt'}:1"), 1: FileRecord("b", "")}
    assert other_columns(plain, 2, set()) == {}
