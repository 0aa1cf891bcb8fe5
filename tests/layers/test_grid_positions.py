"""Positions in the plane against their formulas."""

import math

import pytest
import torch
from torch.nn import functional as F

from regard.errors import UsageError
from regard.layers.embeddings import Inputs, coordinates, to_image, to_tokens
from regard.layers.positions import LearnedGrid, RotaryGrid, SinusoidalGrid, rotate


def test_layers_and_tokens_agree_on_where_pixels_begin():
    from regard.layers import embeddings as pictures
    from regard.tokenizers import patches

    assert pictures.PLACE == patches.PLACE


def tokens(rows, columns, numbers=3, more=0):
    """The tokens of one picture with noise in its patches, and padding."""
    place = [(0, 0)] + [(r + 1, c + 1) for r in range(rows) for c in range(columns)]
    place = torch.tensor(place + [(9, 9)] * more)
    noise = torch.randint(256, (len(place), numbers), generator=torch.Generator().manual_seed(0))
    segments = torch.ones(1, len(place), dtype=torch.long)
    segments[0, len(place) - more :] = 0
    return Inputs(torch.cat((place, noise), 1)[None], segments)


def test_at_the_size_of_training_coordinates_are_rows_and_columns():
    found = coordinates(tokens(2, 3, more=2), torch.tensor([2, 3]))[0]
    assert found[0].isnan().all() and found[-2:].isnan().all()
    assert found[1:7].tolist() == [[r, c] for r in range(2) for c in range(3)]


def test_a_finer_picture_is_stretched_as_interpolation_does():
    """torch's own resizing of a ramp of coordinates is the oracle."""
    found = coordinates(tokens(8, 6), torch.tensor([4, 3]))[0, 1:].view(8, 6, 2)
    for axis, (size, finer) in enumerate(((4, 8), (3, 6))):
        ramp = torch.arange(size).float()[None, None]
        wanted = F.interpolate(ramp, finer, mode="linear", align_corners=False)[0, 0]
        got = found[:, 0, 0] if axis == 0 else found[0, :, 1]
        assert torch.allclose(got, wanted)


def test_learned_positions_between_places_are_bilinear():
    torch.manual_seed(0)
    scheme = LearnedGrid(5, (4, 3))
    where = coordinates(tokens(8, 9), torch.tensor([4, 3]))
    found = scheme.add(torch.zeros(1, 73, 5), where)[0]
    table = scheme.embedding.weight[1:].view(4, 3, 5).permute(2, 0, 1)[None]
    wanted = F.interpolate(table, (8, 9), mode="bilinear", align_corners=False)[0]
    assert torch.allclose(found[1:], wanted.flatten(1).T, atol=1e-6)
    assert torch.equal(found[0], scheme.embedding.weight[0])


def test_sinusoids_are_those_of_the_row_then_those_of_the_column():
    d_model, where = 8, torch.tensor([[[torch.nan, torch.nan], [3.0, 1.5]]])
    found = SinusoidalGrid(d_model).add(torch.zeros(1, 2, d_model), where)[0]
    wanted = []
    for at in (3.0, 1.5):
        for pair in range(2):
            angle = at / 10_000 ** (2 * pair / 4)
            wanted += [math.sin(angle), math.cos(angle)]
    assert torch.equal(found[0], torch.zeros(d_model))
    assert torch.allclose(found[1], torch.tensor(wanted), atol=1e-6)


def test_rotary_scores_depend_on_the_offset_alone():
    torch.manual_seed(0)
    scheme = RotaryGrid(8, 100.0)
    q, k = torch.randn(2, 1, 1, 1, 8)

    def score(one, two):
        turned = [
            rotate(x, scheme.rotation(torch.tensor([[at]]))) for x, at in ((q, one), (k, two))
        ]
        return float((turned[0] * turned[1]).sum())

    assert math.isclose(score([5.0, 2.0], [3.0, 6.0]), score([2.0, 1.0], [0.0, 5.0]), abs_tol=1e-5)
    assert abs(score([5.0, 2.0], [3.0, 6.0]) - score([5.0, 2.0], [6.0, 3.0])) > 1e-3
    plain = [torch.tensor([[[torch.nan] * 2]])] * 2
    turned = rotate(q, scheme.rotation(plain[0]))
    assert torch.equal(turned, q)


def test_widths_that_cannot_be_shared_between_two_axes_are_refused():
    with pytest.raises(UsageError, match="multiple of 4"):
        RotaryGrid(6, 100.0)
    with pytest.raises(UsageError, match="multiple of 4"):
        SinusoidalGrid(6)


def test_a_picture_is_put_together_and_cut_again():
    """`fold` is the oracle of the first, the identity of both."""
    source = tokens(3, 2, numbers=2 * 4, more=1)
    picture, there = to_image(source, 4, 3, 2)
    pixels = source.ids[0, 1:7, 2:].float()
    wanted = F.fold(pixels.T[None], (6, 4), 2, stride=2)
    assert torch.equal(picture[:, :, :6, :4], wanted)
    assert picture[:, :, 6:].abs().sum() == picture[..., 4:].abs().sum() == 0
    assert torch.equal(there[0, 0].bool(), F.pad(torch.ones(6, 4), (0, 2, 0, 2)).bool())
    again = to_tokens(picture, source, 2)
    assert torch.equal(again[0, :7, 2:].long()[1:], source.ids[0, 1:7, 2:])
    assert again[0, 0].abs().sum() == again[0, 7].abs().sum() == 0
