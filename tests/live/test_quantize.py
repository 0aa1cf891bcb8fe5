"""Rounded weights: exact where they must be, small, and read back by the script as Python says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from live_scripts import run_script

from regard.live.parts import LivePart
from regard.live.quantize import join, pack_exact, pack_logs, pack_part, pack_rows

RANDOM = np.random.default_rng(0)


def read_back(arrays):
    """Return the values that the script reads, by name."""
    body = """
    const tensors = openTensors(given);
    const names = Object.keys(given.arrays);
    return Object.fromEntries(names.map((name) => [name, Array.from(tensors(name).data)]));
    """
    return run_script([], body, join(arrays.items()))


@pytest.mark.parametrize("bits", [8, 16])
def test_rows_are_rounded_to_a_step_of_their_largest_weight(bits):
    matrix = RANDOM.normal(size=(7, 33)).astype(np.float32) * 10.0 ** RANDOM.integers(-3, 3, (7, 1))
    packed = pack_rows(matrix.astype(np.float32), bits)
    steps = np.abs(matrix).max(1) / ((1 << (bits - 1)) - 1)
    assert (np.abs(packed.values - matrix).max(1) <= 0.5001 * steps).all()
    assert len(packed.data) == 7 * 4 + 7 * 33 * bits // 8


def test_a_row_of_zeros_stays_zero():
    assert not pack_rows(np.zeros((2, 3), np.float32), 8).values.any()


def test_probabilities_keep_zeros_and_are_close_everywhere():
    p = np.array([0.0, 1.0, 0.5, 1e-9, 0.0, 0.123])
    values = pack_logs(p).values
    assert (values[p == 0] == 0).all()
    assert values[p > 0] == pytest.approx(p[p > 0], rel=2e-4)
    assert not pack_logs(np.zeros(3)).values.any()


def test_the_script_reads_the_very_values():
    arrays = {
        "rows": pack_rows(RANDOM.normal(size=(5, 9)).astype(np.float32), 8),
        "fine": pack_rows(RANDOM.normal(size=(3, 7)).astype(np.float32), 16),
        "vector": pack_exact(RANDOM.normal(size=11)),
        "small": pack_exact(np.array([0, 255])),
        "whole": pack_exact(np.array([0, 70_000])),
        "logs": pack_logs(RANDOM.random(13)),
    }
    got = read_back(arrays)
    assert [arrays[n].header["codec"] for n in ("small", "whole")] == ["uint8", "uint32"]
    for name, packed in arrays.items():
        close = 1e-13 if name == "logs" else 0  # Math.exp may differ in the last digit
        assert got[name] == pytest.approx(packed.values.ravel().tolist(), rel=close, abs=0), name


def test_a_part_is_changed_into_what_the_page_holds():
    weight, bias = torch.randn(4, 6), torch.randn(4)
    before = weight.clone()
    part = LivePart("program", {}, matrices={"weight": weight}, arrays={"bias": bias})
    packed = pack_part(part, 8)
    assert set(packed["arrays"]) == {"weight", "bias"}
    assert torch.equal(weight, torch.from_numpy(pack_rows(before.numpy(), 8).values))
    assert not torch.equal(weight, before)
