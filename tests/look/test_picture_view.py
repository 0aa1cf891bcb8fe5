"""Pictures on pages: maps that say what they promise, and figures of them."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.look.attribution import centred
from regard.look.figures import save
from regard.look.image_view import covered, similarity
from regard.look.page import Picture
from regard.look.prediction_page import PredictionContext, prediction_page
from regard.models.vision import VisionTransformer, modern, vit
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Patches

IMAGE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)


def looking(config):
    tokenizer = Patches.train([IMAGE], patch=4)
    torch.manual_seed(0)
    config = dataclasses.replace(config, n_outputs=3, **tokenizer.decides)
    model = VisionTransformer(tokenizer.vocab_size, config).eval()
    return Predictor(model, tokenizer, Targets("label", ("kind",), (("a", "b", "c"),)))


def test_covering_a_patch_is_painting_it_over_and_asking_again():
    predictor = looking(modern(2, 32))
    tokenizer, model = predictor.tokenizer, predictor.model
    found = covered(model, PredictionContext(predictor, IMAGE).source, 1, tokenizer)
    painted = IMAGE.astype(np.float64)
    painted[4:8, 8:12] = 255 * np.array(tokenizer.mean)  # row 2, column 3
    scores = [
        centred("label", torch.from_numpy(predictor.measure(predictor.shard([p])).scores))[0, 1]
        for p in (IMAGE, np.round(painted).astype(np.uint8))
    ]
    assert abs(float(found[5]) - float(scores[0] - scores[1])) < 0.02  # of half a byte's rounding
    assert found.std() > 0.01


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary"])
def test_a_place_resembles_itself_most(positions):
    config = dataclasses.replace(modern(1, 32), positions=positions)
    found = similarity(looking(config).model)
    assert torch.allclose(found.diagonal(), torch.ones(6), atol=1e-5)
    assert torch.allclose(found, found.T, atol=1e-5) and bool((found <= 1 + 1e-5).all())
    assert similarity(looking(dataclasses.replace(config, positions="none")).model) is None


def test_the_page_has_a_picture_for_every_head_and_a_figure(tmp_path):
    predictor = looking(vit(2, 64))
    page = prediction_page(predictor, IMAGE, title="t")
    pictures = [part for part in page.components if isinstance(part, Picture)]
    heads = next(part for part in pictures if len(part.names) > 1)
    config = predictor.model.config
    assert heads.names[-1] == f"layer 2, head {config.n_heads}" and heads.across == config.n_heads
    sums = heads.array().sum(-1) + np.asarray(heads.aside)
    assert np.allclose(sums, 1, atol=1e-5)
    pytest.importorskip("matplotlib")
    assert save([heads], tmp_path / "p.png").stat().st_size > 5000


def test_pictures_that_do_not_fit_are_refused():
    maps = np.zeros((1, 1, 6))
    assert Picture(IMAGE, (2, 3), maps, ["m"]).data()["size"] == [8, 12, 3]
    for wrong, said in (
        ({"grid": (2, 2)}, "one entry per patch"),
        ({"maps": np.zeros((1, 4, 6))}, "1, 6 or 7 rows"),
        ({"maps": maps + 2}, r"\[0, 1\]"),
        ({"names": ["m", "n"]}, "one entry per map"),
        ({"pixels": IMAGE / 255}, "bytes"),
    ):
        with pytest.raises(ValueError, match=said):
            Picture(**{"pixels": IMAGE, "grid": (2, 3), "maps": maps, "names": ["m"]} | wrong)
