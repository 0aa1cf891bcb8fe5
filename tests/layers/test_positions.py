"""Position schemes: formulas, relative behaviour and limits, in sequences and in the plane."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.positions import (
    ALiBi,
    Binary,
    Learned,
    LearnedGrid,
    Rotary,
    RotaryGrid,
    Sinusoidal,
    SinusoidalGrid,
    T5Bias,
    alibi_slopes,
    make_positions,
    positions_in,
    rotate,
)


def test_sinusoids_follow_the_papers_formula_from_exponent_zero():
    d, p = 6, 11
    code = Sinusoidal(d, 8).add(torch.zeros(1, 1, d), torch.tensor([p]))[0, 0]
    for i in range(d // 2):
        angle = p / 10_000 ** (2 * i / d)
        assert math.isclose(code[2 * i], math.sin(angle), abs_tol=1e-6)
        assert math.isclose(code[2 * i + 1], math.cos(angle), abs_tol=1e-6)


def test_sinusoids_are_the_same_from_the_table_and_beyond_it():
    positions, x = Sinusoidal(6, 8), torch.zeros(2, 3, 6)
    size = len(positions.waves)
    where = torch.tensor([[0, 1, 2], [size - 1, 5, 7]])
    computed = positions.add(x, where)
    assert torch.equal(positions.add(x, where, size), computed)
    assert torch.equal(positions.add(x[:1], range(3)), computed[:1])
    far = torch.tensor([size, size + 1, size + 2])
    assert torch.equal(positions.add(x[:1], range(size, size + 3)), positions.add(x[:1], far, 9999))


def test_binary_positions_spell_the_number_in_bits():
    code = Binary(7, 20).add(torch.zeros(1, 20, 7), range(20))[0]
    for p in range(20):
        assert sum(2**j for j in range(5) if code[p, j] == 1) == p
        assert (code[p, 5:] == 0).all()
    with pytest.raises(UsageError, match="d_model of at least 5"):
        Binary(4, 20)


def test_rotated_scores_depend_on_the_distance_alone():
    torch.manual_seed(0)
    rotary = Rotary(6, 50, 10_000.0)
    q, k = torch.randn(1, 1, 1, 6), torch.randn(1, 1, 1, 6)

    def score(i, j):
        rotated = (
            rotate(q, rotary.rotation(range(i, i + 1))),
            rotate(k, rotary.rotation(range(j, j + 1))),
        )
        return float((rotated[0] * rotated[1]).sum())

    assert math.isclose(score(7, 3), score(41, 37), abs_tol=1e-5)
    assert not math.isclose(score(7, 3), score(7, 4), abs_tol=1e-3)


def test_rotation_turns_pairs_half_a_head_apart():
    rotary = Rotary(4, 10, 100.0)
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
    y = rotate(x, rotary.rotation(torch.tensor([3])))[0, 0, 0]
    for i, angle in enumerate((3.0, 3.0 / 100**0.5)):
        a, b = x[0, 0, 0, i], x[0, 0, 0, i + 2]
        assert math.isclose(y[i], a * math.cos(angle) - b * math.sin(angle), abs_tol=1e-5)
        assert math.isclose(y[i + 2], b * math.cos(angle) + a * math.sin(angle), abs_tol=1e-5)


def test_rotary_tables_and_computed_angles_agree_also_beyond_the_table():
    short, long = Rotary(6, 4, 10_000.0), Rotary(6, 40, 10_000.0)
    for a, b in zip(short.rotation(range(2, 9)), long.rotation(range(2, 9)), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(short.rotation(torch.arange(4)), short.rotation(range(4)), strict=True):
        torch.testing.assert_close(a, b)


def test_t5_buckets_are_exact_near_logarithmic_far_and_capped():
    scheme = T5Bias(3)
    buckets = scheme.bucket(torch.tensor([-5, 0, 1, 15, 16, 127, 128, 10_000]))
    assert buckets.tolist()[:4] == [0, 0, 1, 15]
    assert buckets[4] == 16 and buckets[5] <= 31 and buckets[6] == buckets[7] == 31
    every = scheme.bucket(torch.arange(500))
    assert (every.diff() >= 0).all() and set(every.tolist()) == set(range(32))
    assert scheme.bias(torch.arange(5), torch.arange(7)).shape == (3, 5, 7)
    assert scheme.bias(torch.zeros(2, 5).long(), torch.arange(7)).shape == (2, 3, 5, 7)


def test_t5_buckets_equal_those_of_hugging_face():
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(0, 300)
    theirs = T5Attention._relative_position_bucket(
        -distances, bidirectional=False, num_buckets=32, max_distance=128
    )
    assert (T5Bias(1).bucket(distances) == theirs).all()


def test_alibi_slopes_are_the_papers():
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]
    bias = ALiBi(8).bias(torch.arange(3), torch.arange(3))
    assert bias.shape == (8, 3, 3) and bias[0, 2, 0] == -1.0 and bias[0, 1, 1] == 0


def test_positions_restart_with_every_segment_and_padding_has_none():
    """Padding longer than max_len once ran off the end of a learned table."""
    segments = torch.tensor([[1, 1, 2, 0, 0, 0], [4, 4, 4, 4, 5, 5]])
    assert positions_in(segments).tolist() == [[0, 1, 0, 0, 0, 0], [0, 1, 2, 3, 0, 1]]


def test_learned_positions_are_read_by_range_and_by_index_alike():
    scheme = Learned(5, 9)
    x = torch.randn(2, 3, 5)
    torch.testing.assert_close(scheme.add(x, range(4, 7)), scheme.add(x, torch.tensor([4, 5, 6])))


def test_an_unknown_scheme_is_named_with_a_hint():
    with pytest.raises(UsageError, match="did you mean 'rotary'"):
        make_positions("rotery", d_model=8, d_head=4, n_heads=2, max_len=9, theta=1e4)


def test_learned_positions_of_patches_between_cells_are_bilinear():
    torch.manual_seed(0)
    scheme = LearnedGrid(5, (4, 3))
    rows, columns = (torch.arange(8) + 0.5) / 2 - 0.5, (torch.arange(9) + 0.5) / 3 - 0.5
    cells = torch.cartesian_prod(rows.clamp(0, 3), columns.clamp(0, 2))
    where = torch.cat((torch.full((1, 2), torch.nan), cells))[None]
    code = scheme.add(torch.zeros(1, 73, 5), where)[0]
    table = scheme.embedding.weight[1:].view(4, 3, 5).permute(2, 0, 1)[None]
    wanted = F.interpolate(table, (8, 9), mode="bilinear", align_corners=False)[0]
    assert torch.allclose(code[1:], wanted.flatten(1).T, atol=1e-6)
    assert torch.equal(code[0], scheme.embedding.weight[0])


def test_sinusoids_of_patches_are_those_of_the_row_then_those_of_the_column():
    d_model, where = 8, torch.tensor([[[torch.nan, torch.nan], [3.0, 1.5]]])
    code = SinusoidalGrid(d_model).add(torch.zeros(1, 2, d_model), where)[0]
    wanted = []
    for at in (3.0, 1.5):
        for pair in range(2):
            angle = at / 10_000 ** (2 * pair / 4)
            wanted += [math.sin(angle), math.cos(angle)]
    assert torch.equal(code[0], torch.zeros(d_model))
    assert torch.allclose(code[1], torch.tensor(wanted), atol=1e-6)


def test_rotary_scores_of_patches_depend_on_the_offset_alone():
    torch.manual_seed(0)
    scheme = RotaryGrid(8, 100.0)
    q, k = torch.randn(2, 1, 1, 1, 8)

    def score(one, two):
        rotated = [
            rotate(x, scheme.rotation(torch.tensor([[at]]))) for x, at in ((q, one), (k, two))
        ]
        return float((rotated[0] * rotated[1]).sum())

    assert math.isclose(score([5.0, 2.0], [3.0, 6.0]), score([2.0, 1.0], [0.0, 5.0]), abs_tol=1e-5)
    assert abs(score([5.0, 2.0], [3.0, 6.0]) - score([5.0, 2.0], [6.0, 3.0])) > 1e-3
    assert torch.equal(rotate(q, scheme.rotation(torch.tensor([[[torch.nan] * 2]]))), q)


def test_widths_that_cannot_be_shared_between_two_axes_are_refused():
    with pytest.raises(UsageError, match="multiple of 4"):
        RotaryGrid(6, 100.0)
    with pytest.raises(UsageError, match="multiple of 4"):
        SinusoidalGrid(6)
