"""The encoder of points: its invariances, and the sum over elements that values start from."""

import dataclasses

import numpy as np
import pytest
import torch
from point_clouds import alone, cloud, molecules

from regard.bundled import random_rotation
from regard.layers.embeddings import Inputs
from regard.layers.positions import Radial, SpacePositions
from regard.layers.tap import Tap
from regard.models.point_transformer import PointTransformer, modern, molecule
from regard.tokenizers import Points
from regard.tokenizers.points import PointCloud


def make(preset, tokenizer, **changed):
    torch.manual_seed(0)
    options = tokenizer.model_config | {"max_len": 32, "n_outputs": 2} | changed
    config = dataclasses.replace(preset(2, 32), **options)
    model = PointTransformer(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # initial zeros would hide errors
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("samples", [0, 9])
@pytest.mark.parametrize("preset", [modern, molecule])
def test_permuting_points_changes_no_prediction(preset, samples):
    one = cloud(1, 20, atoms=True)
    tokenizer = Points.train([one], samples=samples, neighbours=5)
    model = make(preset, tokenizer)
    order = np.random.default_rng(2).permutation(20)
    other = PointCloud(one.points[order], one.features[order], one.atoms[order])
    with torch.inference_mode():
        found = [model.predict(alone(tokenizer, each)) for each in (one, other)]
    assert (found[0] - found[1]).abs().max() <= 1e-5
    assert found[0].abs().max() > 1e-3


def test_rotations_and_translations_change_predictions_of_modern_but_not_of_molecule():
    one = cloud(3, 12, atoms=True)
    tokenizer = Points.train([one], neighbours=4)
    turned = one.points @ random_rotation(np.random.default_rng(5)).astype(np.float32).T + 3
    other = PointCloud(turned, one.features, one.atoms)
    gaps = []
    for preset in (molecule, modern):
        model = make(preset, tokenizer)
        with torch.inference_mode():
            a, b = (model.predict(alone(tokenizer, each)) for each in (one, other))
        gaps.append(float((a - b).abs().max()))
    assert gaps[0] <= 1e-4 and gaps[1] > 1e-3


@pytest.mark.parametrize("preset", [modern, molecule])
def test_padding_changes_no_prediction(preset):
    clouds = [cloud(n, 3 + 4 * n, atoms=True) for n in range(4)]
    tokenizer = Points.train(clouds, samples=8, neighbours=3)
    model = make(preset, tokenizer)
    records = [torch.from_numpy(tokenizer.encode_batch([one])[0]) for one in clouds]
    ids = torch.randn(4, 12, tokenizer.vocab_size) * 50
    segments = torch.zeros(4, 12, dtype=torch.long)
    for row, record in enumerate(records):
        ids[row, : len(record)], segments[row, : len(record)] = record, 1
    with torch.inference_mode():
        together = model.predict(Inputs(ids, segments))
        each = torch.cat([model.predict(alone(tokenizer, one)) for one in clouds])
    torch.testing.assert_close(together, each, rtol=1e-4, atol=1e-5)


def test_fused_attention_with_the_bias_of_distances_is_the_explicit_one():
    clouds = [cloud(1, 9)]
    tokenizer = Points.train(clouds, neighbours=3)
    model, tap = make(modern, tokenizer), Tap(["*.attention.weights"])
    source = alone(tokenizer, clouds[0])
    torch.testing.assert_close(model.predict(source), model.predict(source, tap=tap))
    assert len(tap.activations) == 2


def test_bells_and_biases_are_those_of_the_distances():
    bells = Radial(5, 4.0)
    expected = torch.exp(-((torch.tensor([1.5]) - torch.arange(5.0)) ** 2) / 2)
    torch.testing.assert_close(bells(torch.tensor([1.5]))[0], expected)
    assert not bells(torch.tensor([torch.nan])).any()
    torch.manual_seed(0)
    scheme = SpacePositions(
        "none", d_model=8, n_heads=2, dimensions=3, n_rbf=5, max_distance=4.0, neighborhood=False
    )
    where = torch.randn(1, 3, 3)
    where[0, 0] = torch.nan  # `<S>`
    bias = scheme.bias(where, where)
    assert bias.shape == (1, 2, 3, 3) and not bias[0, :, 0].any() and not bias[0, :, :, 0].any()
    gap = (where[0, 1] - where[0, 2]).norm()
    torch.testing.assert_close(bias[0, :, 1, 2], scheme.head_bias.weight @ bells(gap))


def test_values_of_molecules_begin_from_a_sum_over_the_elements():
    """The residual of a linear function of the composition is noise."""
    _, tokenizer, shard, kinds = molecules(40)
    exact = kinds @ np.array([[2.0], [-5.0], [11.0]]) + 3
    noise = np.random.default_rng(0).normal(size=exact.shape) * 0.1
    shard = dataclasses.replace(shard, targets=(exact + noise).astype(np.float32))
    model = make(molecule, tokenizer, task="value", n_outputs=1)
    model.prepare(shard)
    design = np.concatenate((kinds, np.ones((40, 1))), 1)
    expected = np.linalg.lstsq(design, exact + noise, rcond=None)[0]
    found = (model.contributions * model.scale).numpy()
    np.testing.assert_allclose(found, expected[:3], atol=1e-3)
    np.testing.assert_allclose(model.shift.numpy(), expected[3], atol=1e-3)
    assert float(model.scale) == pytest.approx((exact + noise - design @ expected).std(), rel=1e-3)


def test_empty_rows_that_fill_a_batch_have_no_prediction():
    """On a GPU batches of few shapes are filled up with empty rows."""
    clouds = [cloud(seed, 9, atoms=True) for seed in range(3)]
    tokenizer = Points.train(clouds, samples=0, neighbours=1)
    model = make(molecule, tokenizer, task="value")
    assert model.config.additive
    model.contributions.normal_()
    sources = [alone(tokenizer, each) for each in clouds]
    ids, segments = (torch.cat([getattr(s, k) for s in sources]) for k in ("ids", "segments"))
    filled = Inputs(torch.cat((ids, ids[:2])), torch.cat((segments, torch.zeros(2, 10).long())))
    with torch.inference_mode():
        found = model(filled, count=3)
        torch.testing.assert_close(found, model(Inputs(ids, segments)), atol=1e-5, rtol=1e-5)
