"""Image patches: their coordinates, and images from and to tokens."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from regard.layers import embeddings
from regard.layers.embeddings import Inputs, grid_coordinates, to_image, to_tokens
from regard.tokenizers import patches


def tokens(rows, columns, numbers=3, padding=0):
    """The tokens of one image with noise in its patches, and padding."""
    position = [(0, 0)] + [(r + 1, c + 1) for r in range(rows) for c in range(columns)]
    position = torch.tensor(position + [(9, 9)] * padding)
    noise = torch.randint(256, (len(position), numbers), generator=torch.Generator().manual_seed(0))
    segments = torch.ones(1, len(position), dtype=torch.long)
    segments[0, len(position) - padding :] = 0
    return Inputs(torch.cat((position, noise), 1)[None], segments)


def test_layers_and_tokenizers_agree_on_where_pixels_begin():
    assert embeddings.N_COORDINATES == patches.N_COORDINATES


def test_at_the_size_of_training_coordinates_are_rows_and_columns():
    coordinates = grid_coordinates(tokens(2, 3, padding=2), torch.tensor([2, 3]))[0]
    assert coordinates[0].isnan().all() and coordinates[-2:].isnan().all()
    assert coordinates[1:7].tolist() == [[r, c] for r in range(2) for c in range(3)]


def test_a_finer_image_is_scaled_as_interpolation_does():
    """torch's own resizing of a ramp of coordinates is the oracle."""
    coordinates = grid_coordinates(tokens(8, 6), torch.tensor([4, 3]))[0, 1:].view(8, 6, 2)
    for axis, (size, finer) in enumerate(((4, 8), (3, 6))):
        ramp = torch.arange(size).float()[None, None]
        wanted = F.interpolate(ramp, finer, mode="linear", align_corners=False)[0, 0]
        got = coordinates[:, 0, 0] if axis == 0 else coordinates[0, :, 1]
        assert torch.allclose(got, wanted)


def test_an_image_is_assembled_and_cut_again():
    """`fold` is the oracle of the first, the identity of both."""
    source = tokens(3, 2, numbers=2 * 4, padding=1)
    image, mask = to_image(source, 4, 3, 2)
    pixels = source.ids[0, 1:7, 2:].float()
    wanted = F.fold(pixels.T[None], (6, 4), 2, stride=2)
    assert torch.equal(image[:, :, :6, :4], wanted)
    assert image[:, :, 6:].abs().sum() == image[..., 4:].abs().sum() == 0
    assert torch.equal(mask[0, 0].bool(), F.pad(torch.ones(6, 4), (0, 2, 0, 2)).bool())
    again = to_tokens(image, source, 2)
    assert torch.equal(again[0, :7, 2:].long()[1:], source.ids[0, 1:7, 2:])
    assert again[0, 0].abs().sum() == again[0, 7].abs().sum() == 0
