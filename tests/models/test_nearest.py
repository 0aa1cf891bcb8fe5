"""The nearest picture's caption, against a search by hand; as a language model it is one."""

import numpy as np
import pytest
import torch

from regard.decoding import Beam, Greedy
from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.models.nearest_caption import NearestCaptioner, NearestConfig
from regard.pipelines.translator import Translator
from regard.tokenizers import KINDS, Patches

CAPTIONS = ["a cat", "a very long dog on a log", "two birds", "a cat asleep", "sun"]


@pytest.fixture(scope="module")
def pictures():
    return np.random.default_rng(0).integers(0, 256, (5, 8, 12, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def translator(pictures):
    words, patches = KINDS["words"].train(CAPTIONS), Patches.train(pictures, patch=4)
    config = NearestConfig(**patches.decides, source_vocab=patches.vocab_size, max_len=16)
    model = NearestCaptioner(words.vocab_size, config).eval()
    pairs = shard_of(CAPTIONS, words).paired(shard_of(list(pictures), patches))
    model.fit(pairs, None, lambda line: None)
    return Translator(model, words, patches)


def test_it_says_what_was_said_of_the_nearest_picture(translator, pictures):
    random = np.random.default_rng(1)
    asked = random.integers(0, 256, (20, 8, 12, 3), dtype=np.uint8)
    gaps = np.square(asked[:, None].astype(int) - pictures[None].astype(int)).sum((2, 3, 4))
    expected = [CAPTIONS[i] for i in gaps.argmin(1)]
    assert len(set(expected)) > 2
    for strategy in (Greedy(), Beam(5, 1.0), Beam(4, 0.0)):
        found = [one.text for (one,) in translator.translate(list(asked), strategy)]
        assert found == expected
    assert [one.text for (one,) in translator.translate(list(pictures))] == CAPTIONS


def test_a_picture_of_another_size_is_brought_to_that_of_the_others(translator, pictures):
    larger = [np.kron(p, np.ones((2, 2, 1), np.uint8)) for p in pictures]  # every pixel twice
    together = translator.translate([*larger, pictures[3]], Greedy())
    assert [one.text for (one,) in together] == [*CAPTIONS, CAPTIONS[3]]


@torch.no_grad()
def test_it_is_a_language_model(translator, pictures):
    model, patches = translator.model, translator.source_tokenizer
    ids = torch.from_numpy(np.stack([patches.encode_batch([p])[0] for p in pictures[:2]]))
    given = model.condition(Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.int64)))
    said = torch.randint(model.vocab_size, (4, 9), generator=torch.Generator().manual_seed(0))
    logits = given.logits(said)  # rows 0, 1 are of the first picture, 2, 3 of the second
    assert (logits.exp().sum(-1) - 1).abs().max() <= 1e-5
    targets = said.roll(-1, 1)
    scores = given.score(said, targets)
    assert torch.equal(scores, logits.gather(2, targets[..., None])[..., 0])
    state = given.start(4, 9)
    steps = [given.extend(said[:, t : t + 1], None, state) for t in range(9)]
    assert torch.equal(torch.stack(steps, 1), logits)
    lengths = torch.tensor([3, 7, 5, 5])  # also where targets of one picture have come unlike far
    found = given.extend(said[:, :7], lengths, given.start(4, 9))
    assert torch.equal(found, logits[range(4), lengths - 1])


def test_it_is_loaded_as_it_was_saved_and_refuses_what_does_not_fit(translator):
    model = translator.model
    tensors = {name: x.clone() for name, x in model.state_dict().items()}
    other = NearestCaptioner(model.vocab_size, model.config)
    other.load_state_dict(tensors)
    assert torch.equal(other.pictures, model.pictures)
    tensors["captions"] = tensors["captions"][:-1]
    with pytest.raises(RuntimeError, match="a caption for each picture"):
        NearestCaptioner(model.vocab_size, model.config).load_state_dict(tensors)
