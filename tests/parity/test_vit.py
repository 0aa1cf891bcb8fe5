"""Our ViT against Hugging Face's, both ways: equal pixels, equal logits from equal weights."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch

from regard.api import load
from regard.interop.hugging_face import export_hf, import_hf
from regard.models.vision import VisionTransformer, vit
from regard.run import weights, write_config
from regard.storage import write_json, write_tensors
from regard.tokenizers import Patches

NAMES = ("cat", "dog", "eel")


def a_run(folder, pictures, patch, config):
    """A run folder with a model of random weights."""
    tokenizer = Patches.train(pictures, patch=patch)
    torch.manual_seed(0)
    config = dataclasses.replace(config, n_outputs=len(NAMES), **tokenizer.model_config)
    model = VisionTransformer(tokenizer.vocab_size, config).eval()
    for parameter in model.parameters():
        if parameter.dim() < 2:
            torch.nn.init.normal_(parameter, 0.5, 0.2)  # gains, biases, the marker
    folder.mkdir()
    tokenizer.save(folder / tokenizer.file)
    write_config(folder, "transformer", model)
    write_tensors(folder / "model.safetensors", weights(model))
    targets = {"task": "label", "names": ["kind"], "classes": [list(NAMES)]}
    write_json(folder / "regard.json", {"data": {"targets": targets}})
    return folder


@pytest.mark.parametrize(("size", "channels"), [((8, 8), 3), ((8, 12), 1)])
def test_their_class_gives_our_logits_and_their_processor_our_pixels(
    tmp_path, transformers, size, channels
):
    random = np.random.default_rng(0)
    pictures = [random.integers(0, 256, (*size, channels), dtype=np.uint8) for _ in range(5)]
    config = dataclasses.replace(vit(2, 24), n_heads=3, n_kv_heads=3, d_head=8, d_ff=44)
    run = a_run(tmp_path / "run", pictures, 4, config)
    assert export_hf(run, tmp_path / "hf")["class"] == "ViTForImageClassification"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "hf").eval()
        process = transformers.ViTImageProcessor.from_pretrained(tmp_path / "hf")
        given = process([p.transpose(2, 0, 1) for p in pictures], return_tensors="pt",
                        input_data_format="channels_first")  # fmt: skip
    predictor = load(run)
    stem = predictor.model.encoder.embedding
    ids = torch.from_numpy(predictor.tokenizer.encode_batch(pictures)[0]).view(
        5, -1, stem.mean.numel() + 2
    )
    ours = stem.features(ids[:, 1:])  # (B, N, C · 16)
    unfolded = torch.nn.functional.unfold(given["pixel_values"], 4, stride=4).mT
    assert torch.allclose(ours, unfolded, atol=1e-5)
    with torch.no_grad():
        wanted = theirs(**given).logits.numpy()
    found = predictor.predict_shard(predictor.shard(pictures)).scores
    assert np.abs(found - wanted).max() <= 1e-5 * max(1.0, np.abs(wanted).max())
    assert theirs.config.id2label == dict(enumerate(NAMES))


def test_an_imported_folder_labels_images(tmp_path):
    images = [np.random.default_rng(1).integers(0, 256, (8, 12, 3), dtype=np.uint8)]
    run = a_run(tmp_path / "run", images, 4, vit(1, 64))
    export_hf(run, tmp_path / "hf")
    import_hf(tmp_path / "hf", tmp_path / "back")
    assert load(tmp_path / "back").predictions(images)[0] == load(run).predictions(images)[0]
