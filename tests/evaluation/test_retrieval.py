"""Recall: every caption scored with every picture, against one at a time and a count by hand."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.evaluation.translation import recall, recall_of, scores
from regard.models.encoder_decoder import Captioner, modern_captioner
from regard.pipelines.translator import Translator
from regard.tokenizers import KINDS, Patches

CAPTIONS = ["ab", "c", "abcabc", "c", "bb", "caa"]


@pytest.fixture(scope="module")
def translator():
    pictures = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), dtype=np.uint8)
    letters, patches = KINDS["characters"].train(CAPTIONS), Patches.train(pictures, patch=4)
    torch.manual_seed(0)
    own = {"source_vocab": patches.vocab_size, "max_len": 8, "dropout": 0.0, **patches.decides}
    model = Captioner(
        letters.vocab_size, dataclasses.replace(modern_captioner(1, 16), **own)
    ).eval()
    found = Translator(model, letters, patches)
    return found, found.pairs(list(pictures), CAPTIONS), pictures


def test_all_together_are_scored_as_each_pair_is(translator):
    model, pairs, pictures = translator
    logs, captions = scores(model, pairs)
    assert logs.shape == (6, 5) and len(captions) == 5  # two are told alike
    for i, picture in enumerate(pictures):
        for j, caption in enumerate(captions):
            text = model.tokenizer.decode(caption)
            (one,) = model.score([(picture, text)])
            assert abs(one.total - logs[i, j]) <= 1e-4


def test_recall_is_counted_as_by_hand():
    random = np.random.default_rng(3)
    logs = random.normal(size=(12, 9)) - 5 * random.random(9)  # some captions are rarer
    right = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 1])
    logs[np.arange(12), right] += 1.5
    found = {name: one.value for name, one in recall_of(logs, right).items()}
    by_hand = dict.fromkeys(found, 0)
    prior = np.log(np.exp(logs).mean(0))
    for i in range(12):
        order = sorted(range(9), key=lambda c: prior[c] - logs[i, c])
        pictures = sorted(range(12), key=lambda p: -logs[p, right[i]])
        others = [p for p in pictures if right[p] != right[i] or p == i]
        for k in (1, 5):
            by_hand[f"caption_{k}"] += (right[i] in order[:k]) / 12 * 100
            by_hand[f"picture_{k}"] += (i in others[:k]) / 12 * 100
    assert found == pytest.approx(by_hand) and 0 < found["caption_1"] < 100


def test_who_cannot_tell_pictures_apart_is_right_by_nothing(translator):
    """Ties count against: a model that ignores the picture has no recall."""
    found = recall_of(np.tile(np.linspace(-3, -1, 40), (40, 1)), np.arange(40))
    assert all(one.value == 0 for one in found.values())
    model, pairs, _ = translator
    assert set(recall(model, pairs)) == set(found)
