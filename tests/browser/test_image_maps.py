"""The page about an image in headless Chromium: a patch that is clicked shows what it looks at."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.look.prediction_page import prediction_page
from regard.models.vision import VisionTransformer, vit
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Patches

pytestmark = pytest.mark.browser


@pytest.fixture
def page(tmp_path):
    """A random ViT looking at noise of 12 × 16 pixels in colours: 3 × 4 patches."""
    image = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    tokenizer = Patches.train([image], patch=4)
    torch.manual_seed(0)
    config = dataclasses.replace(vit(2, 64), n_outputs=3, **tokenizer.model_config)
    model = VisionTransformer(tokenizer.vocab_size, config).eval()
    predictor = Predictor(model, tokenizer, Targets("label", ("kind",), (("a", "b", "c"),)))
    page = prediction_page(predictor, image, title="Noise", facts=[("model", "random")])
    return page.write(tmp_path / "look.html")


def test_images_are_drawn_and_a_patch_can_be_chosen(page, browser_page):
    tab = browser_page.open(page)
    assert (
        tab.locator(".image-maps").count() == 4
    )  # covered with two gradients, rollout, heads, positions
    heads = tab.locator(".image-maps").nth(2)
    view, readout = heads.locator("canvas[role=img]").last, heads.locator(".readout")
    plain = heads.locator("canvas.plain")
    assert plain.bounding_box()["width"] == view.bounding_box()["width"]  # the image by itself
    assert heads.locator(".heads .down").all_text_contents() == ["layer 1", "layer 2"]
    assert heads.locator(".heads .head").all_text_contents() == ["head 1", "head 2"]
    assert heads.locator(".thumb").count() == 4 and "what <S> looks at" in readout.inner_text()
    box = view.bounding_box()
    assert abs(box["width"] / box["height"] - 16 / 12) < 0.02
    before = view.evaluate("canvas => canvas.toDataURL()")
    view.click(position={"x": box["width"] * 0.9, "y": box["height"] * 0.5})
    assert "what row 2, column 4 looks at" in readout.inner_text()
    assert view.evaluate("canvas => canvas.toDataURL()") != before
    view.press("ArrowLeft")
    assert "row 2, column 3" in readout.inner_text()
    heads.locator(".thumb").nth(2).click()
    assert readout.inner_text().startswith("layer 2, head 1")
    heads.locator(".toggle button").click()
    assert "what <S> looks at" in readout.inner_text()
    assert not browser_page.errors and not [r for r in browser_page.requests if "http" in r]
