"""The caption of the nearest image, against a search by hand; and the laws of a language model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.decoding import Beam, Greedy
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.models.nearest_caption import NearestCaptioner, NearestConfig
from regard.pipelines.translator import Translator
from regard.registry import TOKENIZERS
from regard.tokenizers import Patches

CAPTIONS = ["a cat", "a very long dog on a log", "two birds", "a cat asleep", "sun"]


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (5, 8, 12, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def translator(images):
    words, patches = TOKENIZERS["words"].train(CAPTIONS), Patches.train(images, patch=4)
    config = NearestConfig(**patches.model_config, source_vocab=patches.vocab_size, max_len=16)
    model = NearestCaptioner(words.vocab_size, config).eval()
    pairs = shard_of(CAPTIONS, words).paired(shard_of(list(images), patches))
    model.fit(pairs, None, lambda line: None)
    return Translator(model, words, patches)


def test_the_caption_of_the_nearest_image_is_repeated(translator, images):
    random = np.random.default_rng(1)
    queries = random.integers(0, 256, (20, 8, 12, 3), dtype=np.uint8)
    distances = np.square(queries[:, None].astype(int) - images[None].astype(int)).sum((2, 3, 4))
    expected = [CAPTIONS[i] for i in distances.argmin(1)]
    assert len(set(expected)) > 2
    for strategy in (Greedy(), Beam(5, 1.0), Beam(4, 0.0)):
        captions = [one.text for (one,) in translator.translate(list(queries), strategy)]
        assert captions == expected
    assert [one.text for (one,) in translator.translate(list(images))] == CAPTIONS


def test_an_image_of_another_size_is_resized(translator, images):
    larger = [np.kron(x, np.ones((2, 2, 1), np.uint8)) for x in images]  # every pixel twice
    batch = translator.translate([*larger, images[3]], Greedy())
    assert [one.text for (one,) in batch] == [*CAPTIONS, CAPTIONS[3]]


@torch.no_grad()
def test_scores_logits_and_steps_agree_and_sum_to_one(translator, images):
    model, patches = translator.model, translator.source_tokenizer
    ids = torch.from_numpy(np.stack([patches.encode_batch([x])[0] for x in images[:2]]))
    conditioned = model.condition(Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64)))
    words = torch.randint(model.vocab_size, (4, 9), generator=torch.Generator().manual_seed(0))
    logits = conditioned.logits(words)  # rows 0 and 1 are of the first image, 2 and 3 of the second
    assert (logits.exp().sum(-1) - 1).abs().max() <= 1e-5
    targets = words.roll(-1, 1)
    scores = conditioned.score(words, targets)
    assert torch.equal(scores, logits.gather(2, targets[..., None])[..., 0])
    state = conditioned.init_state(4, 9)
    steps = [conditioned.step(words[:, t : t + 1], None, state) for t in range(9)]
    assert torch.equal(torch.stack(steps, 1), logits)
    lengths = torch.tensor([3, 7, 5, 5])  # targets of one image may differ in length
    last = conditioned.step(words[:, :7], lengths, conditioned.init_state(4, 9))
    assert torch.equal(last, logits[range(4), lengths - 1])


def test_a_stored_model_is_the_same_and_a_damaged_one_is_refused(translator):
    model = translator.model
    tensors = {name: x.clone() for name, x in model.state_dict().items()}
    other = NearestCaptioner(model.vocab_size, model.config)
    other.load_state_dict(tensors)
    assert torch.equal(other.images, model.images)
    tensors["captions"] = tensors["captions"][:-1]
    with pytest.raises(RuntimeError, match="a caption for each image"):
        NearestCaptioner(model.vocab_size, model.config).load_state_dict(tensors)
