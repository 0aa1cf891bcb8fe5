"""BERT and ViT folders: which models have a class, and which configurations are refused."""

import dataclasses

import numpy as np
import pytest
import torch
from spoiling import edit, refused

from regard.errors import UserError
from regard.interop.hugging_face import export_hf, import_hf
from regard.models import encoder, vision
from regard.models.encoder import EncoderModel, MaskedLM
from regard.models.vision import VisionTransformer
from regard.registry import TOKENIZERS
from regard.run import Run, weights, write_config
from regard.storage import write_json, write_tensors
from regard.tokenizers import Characters, Patches

NAMES = ("cat", "dog", "eel")


def save(folder, model, tokenizer):
    """A run folder of a classifier with random weights."""
    folder.mkdir()
    write_config(folder, "transformer", model)
    write_tensors(folder / "model.safetensors", weights(model))
    tokenizer.save(folder / tokenizer.file)
    targets = {"task": "label", "names": ["kind"], "classes": [list(NAMES)]}
    write_json(folder / "regard.json", {"data": {"targets": targets}})
    return folder


def text_run(folder, tokenizer=None):
    tokenizer = tokenizer or Characters.train(["ab"])
    sizes = {"n_heads": 3, "n_kv_heads": 3, "d_head": 10, "d_ff": 44, "max_len": 40}
    config = dataclasses.replace(encoder.bert(2, 30), n_outputs=len(NAMES), **sizes)
    return save(folder, EncoderModel(tokenizer.vocab_size, config), tokenizer)


def image_run(folder, shape, patch, config):
    featurizer = Patches.train([np.zeros(shape, np.uint8)], patch=patch)
    config = dataclasses.replace(config, n_outputs=len(NAMES), **featurizer.model_config)
    torch.manual_seed(0)
    return save(folder, VisionTransformer(featurizer.vocab_size, config), featurizer)


def test_encoders_without_a_class_are_refused(tmp_path):
    tokenizer = Characters.train(["ab"])
    models = (
        MaskedLM(6, encoder.modern_masked(1, 32)),
        EncoderModel(6, encoder.modern(1, 32)),
        EncoderModel(6, dataclasses.replace(encoder.bert(1, 32), pooling="mean")),
    )
    for number, model in enumerate(models):
        run = save(tmp_path / str(number), model, tokenizer)
        with pytest.raises(UserError, match="only the preset bert has a class"):
            export_hf(run, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_image_models_without_a_class_are_refused(tmp_path):
    run = image_run(tmp_path / "modern", (8, 8, 1), 4, vision.modern(1, 32))
    with pytest.raises(UserError, match="only the preset vit"):
        export_hf(run, tmp_path / "out")
    run = image_run(tmp_path / "padded", (8, 8, 1), 3, vision.vit(1, 64))
    with pytest.raises(UserError, match="fills nothing up"):
        export_hf(run, tmp_path / "out")


def test_overlapping_words_are_a_warning(tmp_path):
    run = text_run(tmp_path / "run", TOKENIZERS["kmers"].train([], 0, k=3, stride=1))
    (line,) = export_hf(run, tmp_path / "hf")["warnings"]
    assert "overlap" in line


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_act": "relu"}, "hidden_act"),
        ({"is_decoder": True}, "is_decoder"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label"),
        ({"id2label": {"0": "a", "1": "a"}}, "id2label"),
        ({"problem_type": "ranking"}, "problem_type"),
        ({"problem_type": {"a": 1}}, "problem_type"),
        ({"id2label": None, "num_labels": 10**9}, "num_labels"),
        ({"hidden_size": 10**200}, "hidden_size"),
        ({"num_attention_heads": 4}, "num_attention_heads"),
        ({"type_vocab_size": 0}, "type_vocab_size"),
    ],
)
def test_configurations_that_compute_something_else_are_refused(change, key, tmp_path):
    export_hf(text_run(tmp_path / "run"), tmp_path / "hf")
    edit(tmp_path / "hf" / "config.json", change)
    assert refused(tmp_path / "hf", key)


def test_export_then_import_of_an_image_model_is_the_identity(tmp_path):
    run = image_run(tmp_path / "run", (8, 12, 3), 4, vision.vit(1, 64))
    export_hf(run, tmp_path / "hf")
    import_hf(tmp_path / "hf", tmp_path / "back")
    before, after = Run(run).model(), Run(tmp_path / "back").model()
    assert before.config == dataclasses.replace(
        after.config, max_len=before.config.max_len, tied=True
    )
    tensors, again = weights(before), weights(after)
    assert tensors.keys() == again.keys()
    assert all(torch.equal(tensors[name], again[name]) for name in tensors)
