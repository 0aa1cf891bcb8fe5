"""Models of images: ViT is the encoder of texts with another embedding; padding has no effect."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.encoder import EncoderModel
from regard.models.vision import ConvNet, VisionConfig, VisionTransformer, modern, residual, vit
from regard.tokenizers import Patches

SIZES = ((9, 13), (9, 13), (5, 6), (12, 4))


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in SIZES]


@pytest.fixture(scope="module")
def tokenizer(images):
    return Patches.train(images, patch=4)


def make(cls, config, tokenizer, **more):
    torch.manual_seed(0)
    config = dataclasses.replace(config, n_outputs=3, **tokenizer.model_config, **more)
    model = cls(tokenizer.vocab_size, config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 4 and not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)  # initial zeros would hide errors
    return model


def batch_of(images, tokenizer, more=0):
    """Images in rows of one length; the padding is random."""
    tokens = [torch.from_numpy(tokenizer.encode_batch([p])[0]) for p in images]
    width = max(map(len, tokens)) + more
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(256, (len(tokens), width, tokenizer.vocab_size), generator=generator)
    segments = torch.zeros(len(tokens), width, dtype=torch.long)
    for i, row in enumerate(tokens):
        ids[i, : len(row)], segments[i, : len(row)] = row.long(), 1
    return Inputs(ids.to(torch.uint8), segments)


MODELS = {
    "modern": (VisionTransformer, modern(2, 32), {}),
    "vit": (VisionTransformer, vit(2, 32), {"n_heads": 2, "n_kv_heads": 2, "d_head": 16}),
    "waves": (VisionTransformer, modern(1, 32), {"positions": "sinusoidal"}),
    "cnn": (ConvNet, residual(3, 24), {}),
}


@pytest.mark.parametrize("name", MODELS)
def test_padding_a_batch_of_images_changes_nothing(name, images, tokenizer):
    cls, config, more = MODELS[name]
    model = make(cls, config, tokenizer, **more)
    together = model.predict(batch_of(images, tokenizer, 3))
    alone = torch.cat([model.predict(batch_of([p], tokenizer)) for p in images])
    assert (together - alone).abs().max() <= 1e-5 * max(1, alone.abs().max())
    assert alone.std(0).min() > 1e-3  # and images differ


def test_vit_is_the_encoder_of_texts():
    """No block, attention or head of its own: it adds a configuration and presets."""
    methods = {
        k for k, v in vars(VisionTransformer).items() if callable(v) and not k.startswith("_")
    }
    assert issubclass(VisionTransformer, EncoderModel) and not methods - {"Config"}


def test_without_padding_training_needs_no_mask(images, tokenizer):
    """The path without a mask, which training takes, against the one with it."""
    one_size = images[:2]
    cut = Patches.train(one_size, patch=4)
    model = make(VisionTransformer, modern(2, 32), cut)
    assert model.config.never_padded
    source = batch_of(one_size, cut)
    with torch.no_grad():
        masked, free = model.predict(source), model.train().predict(source)
    assert torch.allclose(masked, free, atol=1e-5)


def test_an_image_attends_to_its_patches_alone(images, tokenizer):
    model = make(VisionTransformer, vit(1, 32), tokenizer)
    tap, source = Tap(["*.attention.weights"]), batch_of(images, tokenizer, 2)
    model.predict(source, tap=tap)
    (weights,) = tap.activations.values()
    valid = source.segments > 0
    outside = (
        valid[:, None, :, None] & ~valid[:, None, None]
    )  # keys of padding, for queries of an image
    assert weights.masked_select(outside.expand_as(weights)).max() == 0
    assert torch.allclose(weights.sum(-1)[source.segments[:, None] > 0], torch.tensor(1.0))


def test_every_pixel_reaches_the_prediction_and_markers_have_none(images, tokenizer):
    model = make(VisionTransformer, modern(1, 32), tokenizer)
    source = batch_of(images[:1], tokenizer)
    numbers = source.ids.float().requires_grad_()
    model.predict(Inputs(numbers, source.segments)).sum().backward()
    pixels = numbers.grad[0, :, 2:]
    assert pixels[0].abs().max() == 0 and pixels[1:].abs().amin() > 0


def test_positions_that_are_none_of_a_plane_are_refused():
    with pytest.raises(ValueError, match="positions of images"):
        VisionConfig(positions="alibi")
    with pytest.raises(ValueError, match="patch"):
        VisionConfig(patch=0)
