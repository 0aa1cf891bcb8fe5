"""Answers come out of the bytes as they went in."""

import math

import numpy as np
import pytest

from regard.studio.wire import decode, encode


def test_arrays_of_each_type_come_back():
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not contiguous
        "b": np.array([[-1, 2**31 - 1]], np.int32),
        "c": np.zeros((0, 4), np.uint8),
        "d": [np.array(3.5, np.float32), {"e": np.arange(5, dtype=np.uint8)}],
    }
    found = decode(encode({"text": "é\n", **arrays}))
    assert found["text"] == "é\n"
    for name in "abc":
        assert np.array_equal(found[name], arrays[name])
        assert found[name].dtype == arrays[name].dtype
    assert found["d"][0] == 3.5 and found["d"][1]["e"].tolist() == [0, 1, 2, 3, 4]


def test_arrays_begin_where_typed_arrays_may():
    for length in range(20):
        message = encode({"x" * length: [np.zeros(3, np.uint8), np.ones(2, np.float32)]})
        head = int.from_bytes(message[:4], "little")
        start = -(-(4 + head) // 8) * 8
        assert np.frombuffer(message, np.float32, 2, start + 8).tolist() == [1, 1]


def test_what_json_lacks_is_said_in_words():
    found = decode(
        encode({"a": math.nan, "b": -math.inf, "c": np.float64(2), "d": "\ud800", 1: ()})
    )
    assert found == {"a": None, "b": "-inf", "c": 2.0, "d": "?", "1": []}


def test_other_types_of_arrays_are_refused():
    with pytest.raises(TypeError, match="float64"):
        encode(np.zeros(3))
