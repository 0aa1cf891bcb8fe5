"""Pictures cut into tokens, against torch's own way of cutting."""

import json

import numpy as np
import pytest
import torch

from regard.errors import UserError
from regard.tokenizers import Patches, load
from regard.tokenizers.patches import N_COORDINATES


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_patches_are_those_that_unfold_cuts():
    images = noise(3, 8, 12, 3)
    tokenizer = Patches.train(list(images), patch=4)
    tokens, lengths = tokenizer.encode_batch(list(images))
    assert lengths.tolist() == [7, 7, 7]
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    theirs = torch.nn.functional.unfold(pixels, 4, stride=4).mT  # (B, N, C · 16)
    ours = torch.from_numpy(tokens.reshape(3, 7, -1)[:, 1:, N_COORDINATES:]).float()
    assert torch.equal(ours, theirs)


def test_a_token_says_where_it_stands_and_the_first_stands_nowhere():
    tokenizer = Patches.train([noise(8, 12, 1)], patch=4)
    tokens, _ = tokenizer.encode_batch([noise(8, 12, 1)])
    assert tokens[0].tolist() == [0] * tokenizer.vocab_size
    assert tokens[1:, :N_COORDINATES].tolist() == [[r, c] for r in (1, 2) for c in (1, 2, 3)]


@pytest.mark.parametrize("size", [(5, 9), (4, 4), (1, 1), (13, 3)])
def test_any_picture_comes_back_its_sides_filled_by_the_last_pixels(size):
    image = noise(*size, 2)
    tokenizer = Patches.train([image], patch=4)
    back = tokenizer.decode_record(tokenizer.encode_batch([image])[0])
    more = [(0, -side % 4) for side in size]
    assert np.array_equal(back, np.pad(image, [*more, (0, 0)], mode="edge"))


def test_statistics_are_those_of_all_pixels_of_training():
    images = [noise(6, 5, 3, seed=1), noise(4, 7, 3, seed=2)]
    tokenizer = Patches.train(images, patch=2)
    pixels = np.concatenate([image.reshape(-1, 3) for image in images]) / 255
    assert np.allclose(tokenizer.mean, pixels.mean(0), atol=1e-5)
    assert np.allclose(tokenizer.deviation, pixels.std(0), atol=1e-5)
    assert (tokenizer.height, tokenizer.width, tokenizer.uniform) == (6, 7, False)


def test_a_patch_is_chosen_by_the_size_of_pictures():
    sides = [Patches.train([noise(side, side, 1)]).patch for side in (8, 28, 96, 224)]
    assert sides == [2, 4, 8, 16]


def test_what_is_saved_is_loaded(tmp_path):
    tokenizer = Patches.train([noise(8, 12, 3)], patch=4)
    tokenizer.save(tmp_path / tokenizer.file)
    again = load(tmp_path / "tokenizer.json")  # which is not there
    assert isinstance(again, Patches) and again.raw == tokenizer.raw
    assert np.array_equal(*(t.encode_batch([noise(9, 9, 3)])[0] for t in (tokenizer, again)))


def test_a_file_of_somebody_else_has_one_size_and_no_patch(tmp_path):
    path = tmp_path / Patches.file
    theirs = {"do_normalize": True, "size": 224, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    path.write_text(json.dumps(theirs))
    found = Patches.load(path, patch=16)
    assert (found.height, found.width, found.model_config["rows"], found.vocab_size) == (
        224,
        224,
        14,
        770,
    )
    with pytest.raises(UserError, match="patch_size"):
        Patches.load(path)


@pytest.mark.parametrize("wrong", [{"image_std": [0.0, 1, 1]}, {"size": []}, {"patch_size": -1}])
def test_a_damaged_file_is_named(tmp_path, wrong):
    path = tmp_path / Patches.file
    document = Patches.train([noise(8, 12, 3)], patch=4).document()
    path.write_text(json.dumps(document | wrong))
    with pytest.raises(UserError, match=Patches.file):
        Patches.load(path)


def test_channels_and_sizes_that_do_not_fit_are_refused():
    tokenizer = Patches.train([noise(8, 8, 1)], patch=1)
    with pytest.raises(UserError, match="3 channels"):
        tokenizer.encode_batch([noise(8, 8, 3)])
    with pytest.raises(UserError, match=r"input\.patch"):
        tokenizer.encode_batch([noise(300, 8, 1)])
    with pytest.raises(UserError, match="cannot be mixed"):
        Patches.train([noise(8, 8, 1), noise(8, 8, 3)])
