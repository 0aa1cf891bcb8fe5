"""Models of series: padding changes nothing, any length can be read, and small ones learn."""

import dataclasses

import numpy as np
import pytest
import torch
from series_items import alone, padded, waves

from regard.evaluation.eval_data import shard_of
from regard.models.series_classifiers import (
    MaskedSeries,
    SeriesConvolution,
    SeriesRecurrent,
    SeriesTransformer,
)
from regard.models.series_features import Rocket, SeriesLogistic, StepLogistic
from regard.tokenizers.step_patches import StepPatches

NEURAL = [SeriesTransformer, SeriesConvolution, SeriesRecurrent]


def build(cls, tokenizer, task="label", **options):
    torch.manual_seed(1)
    preset = next(iter(cls.PRESETS.values()))
    config = preset(2, 16)
    values = tokenizer.model_config | {"task": task, "n_outputs": 2, "max_len": 8} | options
    fields = {field.name for field in dataclasses.fields(config)}
    config = dataclasses.replace(config, **{k: v for k, v in values.items() if k in fields})
    return cls(tokenizer.vocab_size, config).eval()


def labelled(items, tokenizer, targets, *, aligned=False):
    shard = shard_of(items, tokenizer)
    return dataclasses.replace(shard, targets=np.asarray(targets, np.int32), aligned=aligned)


@pytest.mark.parametrize("task", ["label", "position-label"])
@pytest.mark.parametrize("cls", NEURAL)
def test_a_series_has_the_same_prediction_alone_and_padded_in_a_batch(cls, task):
    items, _ = waves(5, columns=2)
    patch = 1 if task == "position-label" else 4
    tokenizer = StepPatches.train(items, patch=patch)
    model = build(cls, tokenizer, task)
    source, lengths = padded(tokenizer, items)
    with torch.inference_mode():
        together = model.predict(source)
        for row, item in enumerate(items):
            expected = model.predict(alone(tokenizer, item))[0]
            got = together[row, : lengths[row]] if task == "position-label" else together[row]
            assert (got - expected).abs().max() <= 1e-5
    assert together.isfinite().all()


@pytest.mark.parametrize("cls", [SeriesLogistic, Rocket])
def test_fitted_models_tell_waves_apart_and_ignore_padding(cls):
    items, labels = waves(40)
    tokenizer = StepPatches.train(items, patch=4)
    options = {"n_features": 168} if cls is Rocket else {}
    model = build(cls, tokenizer, **options)
    model.fit(labelled(items, tokenizer, labels), None, lambda line: None)
    others, truths = waves(30, seed=9)
    with torch.inference_mode():
        together = model.predict(padded(tokenizer, others)[0])
        single = torch.cat([model.predict(alone(tokenizer, item)) for item in others])
    assert (together - single).abs().max() <= 1e-5 * max(1, single.abs().max())
    assert (together.argmax(1).numpy() == truths).mean() > 0.9


def test_a_label_for_each_step_is_learned_from_the_steps_around_it():
    random = np.random.default_rng(3)
    items = [random.normal(size=(30 + n, 1)) for n in range(12)]
    classes = [(np.convolve(item[:, 0], np.ones(3), "same") > 0).astype(int) for item in items]
    tokenizer = StepPatches.train(items, patch=1)
    model = build(StepLogistic, tokenizer, "position-label")
    targets = np.concatenate([np.concatenate(([-1], each)) for each in classes])
    model.fit(labelled(items, tokenizer, targets, aligned=True), None, lambda line: None)
    with torch.inference_mode():
        scores = model.predict(alone(tokenizer, items[-1]))[0, 1:]
    assert (scores.argmax(1).numpy() == classes[-1]).mean() > 0.9


@pytest.mark.parametrize("cls", NEURAL)
def test_a_small_model_learns_to_tell_waves_apart(cls):
    items, labels = waves(16)
    tokenizer = StepPatches.train(items, patch=4)
    model = build(cls, tokenizer).train()
    source, _ = padded(tokenizer, items)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(40):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(source), torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.3


def test_a_masked_model_predicts_the_values_of_each_patch_and_a_classifier_has_its_encoder():
    items, _ = waves(4, columns=2)
    tokenizer = StepPatches.train(items, patch=4)
    masked, classifier = build(MaskedSeries, tokenizer), build(SeriesTransformer, tokenizer)
    source, lengths = padded(tokenizer, items)
    with torch.inference_mode():
        outputs = masked.predict(source)
        single = masked.predict(alone(tokenizer, items[1]))[0]
    assert outputs.shape == (4, source.ids.size(1), 4 * 2)
    assert (outputs[1, : lengths[1]] - single).abs().max() <= 1e-5
    shared = {name: x.shape for name, x in masked.encoder.state_dict().items()}
    assert shared == {name: x.shape for name, x in classifier.encoder.state_dict().items()}


def test_a_longer_series_than_any_of_training_can_be_read():
    items, _ = waves(6)
    tokenizer = StepPatches.train(items, patch=4)
    long = np.sin(np.arange(500))[:, None]
    for cls in NEURAL:
        with torch.inference_mode():
            assert build(cls, tokenizer).predict(alone(tokenizer, long)).isfinite().all()
