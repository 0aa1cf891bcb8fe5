"""Maps over series, and the page of what a model fills in."""

import numpy as np
import torch

from regard.layers.embeddings import Inputs
from regard.look.page import SeriesMaps
from regard.look.series_page import maps_over
from regard.tokenizers.step_patches import StepPatches


def test_each_step_belongs_to_its_patch_and_hiding_one_leaves_the_others():
    values = np.random.default_rng(0).normal(size=(10, 2))
    values[3, 1] = np.nan
    tokenizer = StepPatches.train([values], patch=4, columns=("a", "b"))
    record = tokenizer.encode(values)
    item = maps_over(tokenizer, record)
    drawn = item.draw(np.ones((1, 1, 3)) / 3, ["one"], title="t")
    assert isinstance(drawn, SeriesMaps)
    assert list(drawn.owners) == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
    document = drawn.data()
    assert document["values"][1][3] is None and len(document["values"][0]) == 10
    source = Inputs(torch.from_numpy(record)[None], torch.ones(1, 4, dtype=torch.long))
    (batch,) = item.without_each(source)
    assert torch.isnan(batch.ids[1, 2, 1:]).all() and torch.equal(
        batch.ids[1, 1].nan_to_num(7), source.ids[0, 1].nan_to_num(7)
    )
    assert torch.equal(batch.ids[3].nan_to_num(7), source.ids[0].nan_to_num(7))
