"""Recall: every caption scored with every image, against one at a time and a count by hand."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.evaluation.caption_retrieval import measure_recall, recall_from_scores, score_captions
from regard.models.encoder_decoder import Captioner, modern_captioner
from regard.pipelines.translator import Translator
from regard.registry import TOKENIZERS
from regard.tokenizers import Patches

CAPTIONS = ["ab", "c", "abcabc", "c", "bb", "caa"]


@pytest.fixture(scope="module")
def translator():
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), dtype=np.uint8)
    letters, patches = TOKENIZERS["characters"].train(CAPTIONS), Patches.train(images, patch=4)
    torch.manual_seed(0)
    own = {"source_vocab": patches.vocab_size, "max_len": 8, "dropout": 0.0, **patches.model_config}
    model = Captioner(
        letters.vocab_size, dataclasses.replace(modern_captioner(1, 16), **own)
    ).eval()
    found = Translator(model, letters, patches)
    return found, found.pairs(list(images), CAPTIONS), images


def test_pairs_are_scored_together_as_alone(translator):
    model, pairs, images = translator
    logs, captions = score_captions(model.model, model.tokenizer, pairs)
    assert logs.shape == (6, 5) and len(captions) == 5  # two are equal
    for i, image in enumerate(images):
        for j, caption in enumerate(captions):
            text = model.tokenizer.decode(caption)
            (one,) = model.score([(image, text)])
            assert abs(one.total - logs[i, j]) <= 1e-4


def test_recall_is_that_counted_by_hand():
    random = np.random.default_rng(3)
    logs = random.normal(size=(12, 9)) - 5 * random.random(9)  # some captions are rarer
    right = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 1])
    logs[np.arange(12), right] += 1.5
    found = {name: one.value for name, one in recall_from_scores(logs, right).items()}
    by_hand = dict.fromkeys(found, 0)
    prior = np.log(np.exp(logs).mean(0))
    for i in range(12):
        order = sorted(range(9), key=lambda c: prior[c] - logs[i, c])
        images = sorted(range(12), key=lambda p: -logs[p, right[i]])
        others = [p for p in images if right[p] != right[i] or p == i]
        for k in (1, 5):
            by_hand[f"caption_{k}"] += (right[i] in order[:k]) / 12 * 100
            by_hand[f"image_{k}"] += (i in others[:k]) / 12 * 100
    assert found == pytest.approx(by_hand) and 0 < found["caption_1"] < 100


def test_a_model_that_ignores_the_image_has_no_recall(translator):
    """Ties count against it."""
    found = recall_from_scores(np.tile(np.linspace(-3, -1, 40), (40, 1)), np.arange(40))
    assert all(one.value == 0 for one in found.values())
    model, pairs, _ = translator
    assert set(measure_recall(model.model, model.tokenizer, pairs)) == set(found)
