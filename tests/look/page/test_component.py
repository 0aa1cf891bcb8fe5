"""How values become JSON and text: nothing closes a data block, hidden characters are visible."""

from __future__ import annotations

import base64
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.look.page.component import PACK_ABOVE, pack, pack_weights, to_json, visible


@given(st.text())
def test_no_string_can_close_a_data_block(text):
    written = to_json({"token": text})
    assert json.loads(written) == {"token": text}
    assert not set("<>&\u2028\u2029") & set(written)


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("", "∅"),
        (" the", "·the"),
        ("a\n\tb", "a↵⇥b"),
        ("\x00\x1b\x7f", "␀␛␡"),
        ("\u202eabc", "⟨202E⟩abc"),
        ("\u0301", "◌\u0301"),
        ("\u00a0\u2028", "⟨00A0⟩⟨2028⟩"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_hidden_characters_are_made_visible(token, shown):
    assert visible(token) == shown


def test_titles_keep_their_spaces_but_cannot_reorder_the_page():
    assert visible("a b\n\u202e", spaces=False) == "a b\n⟨202E⟩"


def read_codes(packed, dtype):
    key = "u8root" if dtype == "u1" else "u16"
    return np.frombuffer(base64.b64decode(packed[key]), dtype=dtype).reshape(packed["shape"])


def test_small_arrays_travel_as_lists():
    values = np.array([[1 / 3, math.nan], [math.inf, -2e-7]])
    assert pack(values) == {"shape": [2, 2], "list": [0.333333, None, None, -2e-07]}
    assert pack_weights(np.array([[[[0.25, 0.75]]]])) == {
        "shape": [1, 1, 1, 2],
        "list": [0.25, 0.75],
    }


def test_large_attention_keeps_small_weights():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(120, 0.05), size=(2, 3, 100))  # (L, H, T, S)
    assert weights.size > PACK_ABOVE
    packed = pack_weights(weights)
    codes = read_codes(packed, "u1").astype(float)
    assert (np.abs(np.sqrt(weights) - codes / 255) <= 0.5 / 255 + 1e-12).all()
    typical = np.rint(np.sqrt(1 / 512) * 255) / 255
    assert abs(typical**2 * 512 - 1) < 0.06


def test_large_heatmaps_keep_sixteen_bits_and_their_gaps():
    values = np.random.default_rng(0).normal(size=(150, 160)) * 1e3
    values[3, 5] = math.nan
    packed = pack(values)
    codes = read_codes(packed, "<u2")
    step = (packed["high"] - packed["low"]) / 65534
    back = np.where(codes == 65535, math.nan, packed["low"] + codes * step)
    assert np.isnan(back[3, 5]) and np.isnan(back).sum() == 1
    assert np.nanmax(np.abs(back - values)) <= step * 0.51


def test_a_constant_or_empty_of_finite_heatmap_can_be_packed():
    for value in (7.0, math.nan):
        packed = pack(np.full((150, 160), value))
        json.dumps(packed, allow_nan=False)
        assert packed["low"] == packed["high"] == (7.0 if value == 7.0 else 0.0)
