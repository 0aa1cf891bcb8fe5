"""Maps over the patches of an image: their numbers against those of the models, and figures."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.look.attribution import center
from regard.look.figures import save
from regard.look.item_maps import remove_each, similarity
from regard.look.page import ImageMaps
from regard.look.page_inputs import PredictionContext
from regard.look.prediction_page import prediction_page
from regard.models.vision import VisionTransformer, modern, vit
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Patches

IMAGE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)


def make_predictor(config):
    tokenizer = Patches.train([IMAGE], patch=4)
    torch.manual_seed(0)
    config = dataclasses.replace(config, n_outputs=3, **tokenizer.model_config)
    model = VisionTransformer(tokenizer.vocab_size, config).eval()
    return Predictor(model, tokenizer, Targets("label", ("kind",), (("a", "b", "c"),)))


def test_covering_a_patch_is_painting_it_over_and_predicting_again():
    predictor = make_predictor(modern(2, 32))
    tokenizer, model = predictor.tokenizer, predictor.model
    drops = remove_each(PredictionContext(predictor, IMAGE), 1)
    painted = IMAGE.astype(np.float64)
    painted[4:8, 8:12] = 255 * np.array(tokenizer.mean)  # row 2, column 3
    scores = [
        center(model, torch.from_numpy(predictor.predictions(predictor.shard([p])).scores))[0, 1]
        for p in (IMAGE, np.round(painted).astype(np.uint8))
    ]
    assert abs(float(drops[5]) - float(scores[0] - scores[1])) < 0.02  # of half a byte's rounding
    assert drops.std() > 0.01


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_a_position_resembles_itself_most(positions):
    config = dataclasses.replace(modern(1, 32), positions=positions)
    similarities = similarity(make_predictor(config).model)
    assert torch.allclose(similarities.diagonal(), torch.ones(6), atol=1e-5)
    assert torch.allclose(similarities, similarities.T, atol=1e-5)
    assert bool((similarities <= 1 + 1e-5).all())
    assert similarity(make_predictor(dataclasses.replace(config, positions="none")).model) is None


def test_the_page_has_a_map_for_every_head_and_a_figure(tmp_path):
    predictor = make_predictor(vit(2, 64))
    page = prediction_page(predictor, IMAGE, title="t")
    maps = [part for part in page.components if isinstance(part, ImageMaps)]
    heads = next(part for part in maps if len(part.names) > 1)
    config = predictor.model.config
    assert heads.names[-1] == f"layer 2, head {config.n_heads}" and heads.across == config.n_heads
    sums = heads.array().sum(-1) + np.asarray(heads.aside)
    assert np.allclose(sums, 1, atol=1e-5)
    pytest.importorskip("matplotlib")
    assert save([heads], tmp_path / "p.png").stat().st_size > 5000


def test_maps_that_do_not_fit_are_refused():
    maps = np.zeros((1, 1, 6))
    good = {"pixels": IMAGE, "grid": (2, 3), "maps": maps, "names": ["m"]}
    assert ImageMaps(**good).data()["size"] == [8, 12, 3]
    for change, message in (
        ({"grid": (2, 2)}, "one entry per patch"),
        ({"maps": np.zeros((1, 4, 6))}, "1, 6 or 7 rows"),
        ({"maps": maps + 2}, r"\[0, 1\]"),
        ({"names": ["m", "n"]}, "one entry per map"),
        ({"pixels": IMAGE / 255}, "bytes"),
    ):
        with pytest.raises(ValueError, match=message):
            ImageMaps(**good | change)
