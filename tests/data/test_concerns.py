"""What looks wrong with targets is said once, with its first example."""

import numpy as np

from regard.data.targets import of_classes, of_values


def lines(counts, places=None, spaced=None):
    return [line for _, line in of_classes("y", counts, places or {}, spaced or {})]


def test_spellings_of_one_class_are_named_with_their_places():
    counts = {"toxic": 9, "Toxic": 3, "safe": 5, "very  bad": 1, "very bad": 2}
    (line,) = lines(counts, {"toxic": "t.csv:2", "Toxic": "t.csv:7"})
    assert line == (
        "4 classes of 'y' differ only by case or space: 'toxic' (t.csv:2) and 'Toxic' (t.csv:7), "
        "and 1 more such groups"
    )
    assert lines({"a": 1, "b": 9}) == []


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
