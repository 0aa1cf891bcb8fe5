"""Maps over series, and the page of what a model fills in."""

import numpy as np
import torch

from regard.api import load, train_recipe
from regard.layers.embeddings import Inputs
from regard.look.page import Answer, Lines, SeriesMaps
from regard.look.records import signed
from regard.look.series_page import filled_series_page, maps_over
from regard.planning import plan_recipe
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


def test_the_page_of_what_is_filled_in_begins_with_its_error(tmp_path):
    random, rows = np.random.default_rng(0), ["recording,t,volt"]
    for one in range(40):
        values = np.sin(np.arange(24) / 2 + random.uniform(0, 6))
        rows += [f"r{one},{t},{value:.3f}" for t, value in enumerate(values)]
    (tmp_path / "waves.csv").write_text("\n".join(rows) + "\n")
    keys = ["train.steps=2", "train.batch_tokens=256", "model.n_layers=1", "model.d_model=16"]
    recipe, _ = plan_recipe([tmp_path / "waves.csv"], assignments=keys, task={"name": "masked"})
    predictor = load(train_recipe(recipe, tmp_path / "run").run)
    series = np.sin(np.arange(24) / 2)[:, None]
    page = filled_series_page(predictor, series, title="t", facts=[("model", "m")])
    sections = [section.title for section in page.sections]
    assert sections == ["Filled in", "Attention", "The model"]
    (answer,) = [part for part in page.components if isinstance(part, Answer)]
    (lines,) = [part for part in page.components if isinstance(part, Lines)]
    (_, index, truth), (_, steps, filled), _ = lines.series
    gaps = (np.array(filled) - np.array(truth)[np.array(steps) - 1]) / predictor.tokenizer.deviation
    assert answer.headline == signed(np.square(gaps).mean()) and 0 < len(steps) < len(index)
    assert list(lines.dots) == ["filled in", "a line"]
