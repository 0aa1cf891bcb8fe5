"""The tiles of a map against pooling it by hand."""

from __future__ import annotations

import numpy as np
import pytest

from regard.look.tiles import TILE, Pyramid


@pytest.mark.parametrize("shape", [(5, 3), (64, 64), (65, 200), (301, 301)])
def test_every_cell_is_the_maximum_and_the_mean_of_its_block(shape):
    weights = np.random.default_rng(0).random(shape, np.float32) ** 4
    pyramid = Pyramid.of(weights)
    for level in range(pyramid.levels):
        size = 2**level
        rows, columns = (-(-n // size) for n in shape)
        for row in range(-(-rows // TILE)):
            for column in range(-(-columns // TILE)):
                greatest, mean = pyramid.tile(level, row, column)
                assert max(greatest.shape) <= TILE
                for (i, j), value in np.ndenumerate(greatest):
                    r, c = (row * TILE + i) * size, (column * TILE + j) * size
                    block = weights[r : r + size, c : c + size]
                    assert value == block.max()
                    assert mean[i, j] == pytest.approx(block.mean(), rel=1e-5)
    assert max(pyramid.greatest[-1].shape) <= TILE


def test_a_tile_that_is_not_there_is_refused():
    pyramid = Pyramid.of(np.zeros((70, 70), np.float32))
    with pytest.raises(ValueError, match="level must be from 0 to 1, got 2"):
        pyramid.tile(2, 0, 0)
    with pytest.raises(ValueError, match="no tile at row 0, column 2"):
        pyramid.tile(0, 0, 2)
