"""Opening saved tokenizers, and their names and options as the registry has them."""

import dataclasses
import inspect
import json

import numpy as np
import pytest

from regard.errors import UsageError, UserError
from regard.modalities.text import Text, TextConfig
from regard.recipe import build
from regard.registry import MODALITIES, TOKENIZERS
from regard.tokenizers import SOURCE_TOKENIZER, Characters, Patches, Words, load, load_sources


def test_every_class_is_listed_under_its_own_name():
    assert all(TOKENIZERS[name].name == name for name in TOKENIZERS)
    assert list(TOKENIZERS)[:4] == ["characters", "bytes", "words", "bpe"]


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_options_are_the_keyword_arguments_of_train_and_those_of_the_recipe(name):
    cls = TOKENIZERS[name]
    parameters = inspect.signature(cls.train).parameters.values()
    keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert keywords == cls.options
    if cls.reads_text:  # featurizers have the settings of their modality, by other names
        Config = MODALITIES[cls.modality].Config
        settings = {f.name: f.default for f in dataclasses.fields(Config)}
        assert keywords == {key: settings[key] for key in keywords}


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(UsageError, match="'pretrained' is the tokenizer of another run"):
        build({"output": {"tokenizer": "pretrained"}})
    with pytest.raises(UsageError, match="unknown tokenizer 'pretrained'"):
        Text(TextConfig(tokenizer="pretrained")).fit_encoder(["text"])


def test_sources_have_their_own_tokenizer_or_a_featurizer_or_that_of_the_targets(tmp_path):
    targets = Characters.train(["abc"])
    assert load_sources(tmp_path, targets) is targets
    Patches(2, 4, 4, [0.5], [0.5]).save(tmp_path / Patches.file)
    assert isinstance(load_sources(tmp_path, targets), Patches)
    Words.train(["a b"]).save(tmp_path / SOURCE_TOKENIZER)
    assert isinstance(load_sources(tmp_path, targets), Words)


def test_a_preprocessor_that_no_featurizer_recognises_is_refused(tmp_path):
    (tmp_path / Patches.file).write_text(json.dumps({"point_processor_type": "Voxels"}))
    with pytest.raises(UserError, match=r"tokenizer\.json: no such file"):
        load(tmp_path / "tokenizer.json")


def test_a_loaded_tokenizer_equals_the_saved_one_and_no_other(tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer = Words.train(["to be or not to be"])
    tokenizer.save(path)
    assert load(path).equals(tokenizer)
    assert not tokenizer.equals(Words.train(["to be"]))
    assert not tokenizer.equals(Characters.train(["to be or not to be"]))
    np.testing.assert_array_equal(load(path).encode("to be"), tokenizer.encode("to be"))
