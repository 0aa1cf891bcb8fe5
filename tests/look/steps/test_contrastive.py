"""Models of pairs as stages, and the pairs that their pipeline reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from step_models import STEP_MODELS

from regard import load
from regard.errors import UserError
from regard.look.steps import check_stages, trace_steps

PAIRS = ("chance", "cca", "cca of colors", "contrastive", "contrastive images")


@pytest.mark.parametrize("name", PAIRS)
def test_the_match_is_the_product_of_both_vectors(name):
    pipeline = STEP_MODELS[name]()
    trace = trace_steps(pipeline, position=2)
    with torch.no_grad():
        expected = pipeline.prepared.run(None)[0].double().numpy()
    np.testing.assert_allclose(trace.find("Match › Similarity").values, expected, atol=1e-6)
    scale = pipeline.model.scale.item()
    np.testing.assert_allclose(trace.find("Match › Logit").values, scale * expected, rtol=1e-5)


def test_a_bag_of_tokens_has_length_one():
    trace = trace_steps(STEP_MODELS["cca"]())
    features = trace.find("Text › Features")
    assert list(features.columns) == ["<S>", "<E>", "a", "b"]  # of "abb"
    np.testing.assert_allclose(features.values, [0.5] * 4)


def test_pairs_of_a_run_are_read(contrastive_run, tmp_path):
    """A held-out pair, a text of one's own, and the text that matches best."""
    matcher = load(contrastive_run)
    trace = trace_steps(matcher, record=3, position=2)
    assert max(error.relative for error in check_stages(trace)) < 1e-5
    texts = matcher.texts_among()
    image = matcher.source_tokenizer.decode_record(matcher.held_out()[1].source.record(3))
    similarity = matcher.embed(image) @ matcher.embed_texts("a red square")
    path = str(tmp_path / "image.png")
    Image.fromarray(image).save(path)
    with torch.no_grad():
        found = matcher.prepare(path, "a red square").run(None).item()
        nearest = matcher.prepare(path).run(None).item()
    assert found == pytest.approx(float(similarity), abs=1e-5)
    assert nearest == pytest.approx(float(max(texts.vectors @ matcher.embed(image))), abs=1e-5)
    with pytest.raises(UserError, match="record must be"):
        matcher.prepare(record=10**6)
