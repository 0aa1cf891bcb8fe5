"""Models of pictures: ViT is the encoder of texts with another stem; padding changes nothing."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.evaluation.eval_data import shard_of
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.encoder import EncoderModel
from regard.models.linear_features import PixelConfig, PixelLogistic
from regard.models.vision import ConvNet, VisionConfig, VisionTransformer, modern, residual, vit
from regard.tokenizers import Patches

SIZES = ((9, 13), (9, 13), (5, 6), (12, 4))


@pytest.fixture(scope="module")
def pictures():
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]


@pytest.fixture(scope="module")
def tokenizer(pictures):
    return Patches.train(pictures, patch=4)


def made(cls, config, tokenizer, **more):
    torch.manual_seed(0)
    config = dataclasses.replace(config, n_outputs=3, **tokenizer.decides, **more)
    model = cls(tokenizer.vocab_size, config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 4 and not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)  # what begins at zero would test nothing
    return model


def beside(pictures, tokenizer, more=0):
    """Pictures in rows of one length, anything in what is no picture."""
    tokens = [torch.from_numpy(tokenizer.encode_batch([p])[0]) for p in pictures]
    width = max(map(len, tokens)) + more
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (len(tokens), width, tokenizer.vocab_size), generator=generator)
    segments = torch.zeros(len(tokens), width, dtype=torch.long)
    for i, own in enumerate(tokens):
        ids[i, : len(own)], segments[i, : len(own)] = own.long(), 1
    return Inputs(ids.to(torch.uint8), segments)


MODELS = {
    "modern": (VisionTransformer, modern(2, 32), {}),
    "vit": (VisionTransformer, vit(2, 32), {"n_heads": 2, "n_kv_heads": 2, "d_head": 16}),
    "waves": (VisionTransformer, modern(1, 32), {"positions": "sinusoidal"}),
    "cnn": (ConvNet, residual(3, 24), {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_a_batch_of_pictures_changes_nothing(name, pictures, tokenizer):
    cls, config, more = MODELS[name]
    model = made(cls, config, tokenizer, **more)
    together = model.answers(beside(pictures, tokenizer, 3))
    alone = torch.cat([model.answers(beside([p], tokenizer)) for p in pictures])
    assert (together - alone).abs().max() <= 1e-5 * max(1, alone.abs().max())
    assert alone.std(0).min() > 1e-3  # and pictures are told apart


def test_vit_is_the_encoder_of_texts():
    """No block, attention or head of its own: it adds a configuration and presets."""
    own = {k for k, v in vars(VisionTransformer).items() if callable(v) and not k.startswith("_")}
    assert issubclass(VisionTransformer, EncoderModel) and not own - {"Config"}


def test_without_padding_training_needs_no_mask(pictures, tokenizer):
    """The path without a mask, which training takes, against the one with it."""
    one_size = pictures[:2]
    cut = Patches.train(one_size, patch=4)
    model = made(VisionTransformer, modern(2, 32), cut)
    assert model.config.never_padded
    source = beside(one_size, cut)
    with torch.no_grad():
        masked, free = model.answers(source), model.train().answers(source)
    assert torch.allclose(masked, free, atol=1e-5)


def test_attention_of_a_picture_is_over_its_own_patches(pictures, tokenizer):
    model = made(VisionTransformer, vit(1, 32), tokenizer)
    tap, source = Tap(["*.attention.weights"]), beside(pictures, tokenizer, 2)
    model.answers(source, tap=tap)
    (weights,) = tap.found.values()
    there = source.segments > 0
    outside = there[:, None, :, None] & ~there[:, None, None]  # of queries that are in a picture
    assert weights.masked_select(outside.expand_as(weights)).max() == 0
    assert torch.allclose(weights.sum(-1)[source.segments[:, None] > 0], torch.tensor(1.0))


def test_every_row_of_a_patch_reaches_the_answer_and_markers_have_no_pixels(pictures, tokenizer):
    model = made(VisionTransformer, modern(1, 32), tokenizer)
    source = beside(pictures[:1], tokenizer)
    numbers = source.ids.float().requires_grad_()
    model.answers(Inputs(numbers, source.segments)).sum().backward()
    pixels = numbers.grad[0, :, 2:]
    assert pixels[0].abs().max() == 0 and pixels[1:].abs().amin() > 0


def test_positions_that_are_none_of_a_plane_are_refused():
    with pytest.raises(ValueError, match="positions of pictures"):
        VisionConfig(positions="alibi")
    with pytest.raises(ValueError, match="patch"):
        VisionConfig(patch=0)


def test_logistic_regression_on_pixels_is_where_the_slope_is_zero():
    """The slope of the cost, in NumPy: X'(p - y) + strength W."""
    random = np.random.default_rng(1)
    labels = random.integers(0, 3, 60)
    pictures = [
        random.integers(0, 120, (4, 4, 1), dtype=np.uint8) + np.uint8(40 * y) for y in labels
    ]
    cut = Patches.train(pictures, patch=2)
    shard = dataclasses.replace(shard_of(pictures, cut), targets=labels.astype(np.int32))
    config = PixelConfig(n_outputs=3, strength=5.0, **cut.decides)
    model = PixelLogistic(cut.vocab_size, config)
    model.fit(shard, None, lambda said: None)
    x = (np.stack(pictures).reshape(60, -1) / 255 - cut.mean[0]) / cut.deviation[0]
    weights, bias = model.coefficients.double().numpy(), model.bias.double().numpy()
    scores = np.exp(x @ weights + bias)
    likely = scores / scores.sum(1, keepdims=True)
    slope = x.T @ (likely - np.eye(3)[labels]) + 5.0 * weights
    assert np.abs(slope).max() < 0.02 * np.abs(5.0 * weights).max()
    said = model.answers(beside(pictures, cut)).softmax(-1).numpy()
    assert np.abs(said - likely).max() < 1e-5 and (likely.argmax(1) == labels).mean() > 0.8
