"""The encoder of points: what must not change an answer does not, and what it begins from."""

import dataclasses

import numpy as np
import pytest
import torch

from regard.bundled.shapes import turn
from regard.evaluation.eval_data import shard_of
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.layers.positions import Radial, SpacePositions
from regard.models.coulomb import Coulomb, CoulombConfig
from regard.models.linear_features import PointCloudLogistic, StatisticsConfig
from regard.models.point_transformer import PointTransformer, modern, molecule
from regard.tokenizers import Points
from regard.tokenizers.points import PointCloud


def cloud(seed, count, *, atoms=False):
    random = np.random.default_rng(seed)
    points = random.normal(size=(count, 3)).astype(np.float32)
    kinds = random.choice([1, 6, 8], count).astype(np.uint8)
    none = np.zeros((count, 0), np.float32)
    return PointCloud(points, none, kinds) if atoms else PointCloud(points, none)


def make(preset, tokenizer, **changed):
    torch.manual_seed(0)
    told = tokenizer.decides | {"max_len": 32, "n_outputs": 2} | changed
    config = dataclasses.replace(preset(2, 32), **told)
    model = PointTransformer(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # away from what is small or zero at first
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def alone(tokenizer, one):
    ids = torch.from_numpy(tokenizer.encode_batch([one])[0])[None]
    return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.long))


@pytest.mark.parametrize("samples", [0, 9])
@pytest.mark.parametrize("preset", [modern, molecule])
def test_permuting_points_changes_no_answer(preset, samples):
    one = cloud(1, 20, atoms=True)
    tokenizer = Points.train([one], samples=samples, neighbours=5)
    model = make(preset, tokenizer)
    order = np.random.default_rng(2).permutation(20)
    other = PointCloud(one.points[order], one.features[order], one.atoms[order])
    with torch.inference_mode():
        found = [model.answers(alone(tokenizer, each)) for each in (one, other)]
    assert (found[0] - found[1]).abs().max() <= 1e-5
    assert found[0].abs().max() > 1e-3


def test_turning_and_moving_changes_no_answer_of_an_invariant_model_and_some_of_another():
    one = cloud(3, 12, atoms=True)
    tokenizer = Points.train([one], neighbours=4)
    turned = one.points @ turn(np.random.default_rng(5)).astype(np.float32).T + 3
    other = PointCloud(turned, one.features, one.atoms)
    gaps = []
    for preset in (molecule, modern):
        model = make(preset, tokenizer)
        with torch.inference_mode():
            a, b = (model.answers(alone(tokenizer, each)) for each in (one, other))
        gaps.append(float((a - b).abs().max()))
    assert gaps[0] <= 1e-4 and gaps[1] > 1e-3


@pytest.mark.parametrize("preset", [modern, molecule])
def test_padding_with_anything_in_it_changes_no_answer(preset):
    clouds = [cloud(n, 3 + 4 * n, atoms=True) for n in range(4)]
    tokenizer = Points.train(clouds, samples=8, neighbours=3)
    model = make(preset, tokenizer)
    records = [torch.from_numpy(tokenizer.encode_batch([one])[0]) for one in clouds]
    ids = torch.randn(4, 12, tokenizer.vocab_size) * 50
    segments = torch.zeros(4, 12, dtype=torch.long)
    for row, record in enumerate(records):
        ids[row, : len(record)], segments[row, : len(record)] = record, 1
    with torch.inference_mode():
        together = model.answers(Inputs(ids, segments))
        each = torch.cat([model.answers(alone(tokenizer, one)) for one in clouds])
    torch.testing.assert_close(together, each, rtol=1e-4, atol=1e-5)


def test_fused_attention_with_the_bias_of_distances_is_the_explicit_one():
    clouds = [cloud(1, 9)]
    tokenizer = Points.train(clouds, neighbours=3)
    model, tap = make(modern, tokenizer), Tap(["*.attention.weights"])
    source = alone(tokenizer, clouds[0])
    torch.testing.assert_close(model.answers(source), model.answers(source, tap=tap))
    assert len(tap.found) == 2


def test_bells_and_biases_are_those_of_the_distances():
    bells = Radial(5, 4.0)
    expected = torch.exp(-((torch.tensor([1.5]) - torch.arange(5.0)) ** 2) / 2)
    torch.testing.assert_close(bells(torch.tensor([1.5]))[0], expected)
    assert not bells(torch.tensor([torch.nan])).any()
    torch.manual_seed(0)
    scheme = SpacePositions(
        "none", d_model=8, n_heads=2, dimensions=3, distances=5, reach=4.0, around=False
    )
    where = torch.randn(1, 3, 3)
    where[0, 0] = torch.nan  # `<S>`
    bias = scheme.bias(where, where)
    assert bias.shape == (1, 2, 3, 3) and not bias[0, :, 0].any() and not bias[0, :, :, 0].any()
    gap = (where[0, 1] - where[0, 2]).norm()
    torch.testing.assert_close(bias[0, :, 1, 2], scheme.weigh.weight @ bells(gap))


def molecules(count):
    clouds = [cloud(n, 3 + n % 7, atoms=True) for n in range(count)]
    tokenizer = Points.train(clouds)
    shard = shard_of(clouds, tokenizer)
    kinds = np.array([[(c.atoms == z).sum() for z in (1, 6, 8)] for c in clouds], float)
    return clouds, tokenizer, shard, kinds


def test_values_of_molecules_begin_from_a_sum_over_the_elements():
    """Where each element adds so much, what is left to learn is nothing."""
    _, tokenizer, shard, kinds = molecules(40)
    exact = kinds @ np.array([[2.0], [-5.0], [11.0]]) + 3
    noise = np.random.default_rng(0).normal(size=exact.shape) * 0.1
    shard = dataclasses.replace(shard, targets=(exact + noise).astype(np.float32))
    model = make(molecule, tokenizer, task="value", n_outputs=1)
    model.measure(shard)
    design = np.concatenate((kinds, np.ones((40, 1))), 1)
    expected = np.linalg.lstsq(design, exact + noise, rcond=None)[0]
    found = (model.each * model.scale).numpy()
    np.testing.assert_allclose(found, expected[:3], atol=1e-3)
    np.testing.assert_allclose(model.shift.numpy(), expected[3], atol=1e-3)
    assert float(model.scale) == pytest.approx((exact + noise - design @ expected).std(), rel=1e-3)


def test_rows_that_fill_a_batch_up_have_no_answer():
    """A GPU likes few shapes: batches are filled up with rows of nothing, which nothing asks of."""
    clouds = [cloud(seed, 9, atoms=True) for seed in range(3)]
    tokenizer = Points.train(clouds, samples=0, neighbours=1)
    model = make(molecule, tokenizer, task="value")
    assert model.config.additive
    model.each.normal_()
    sources = [alone(tokenizer, each) for each in clouds]
    ids, segments = (torch.cat([getattr(s, k) for s in sources]) for k in ("ids", "segments"))
    filled = Inputs(torch.cat((ids, ids[:2])), torch.cat((segments, torch.zeros(2, 10).long())))
    with torch.inference_mode():
        found = model(filled, count=3)
        torch.testing.assert_close(found, model(Inputs(ids, segments)), atol=1e-5, rtol=1e-5)


def test_kernel_ridge_has_the_coulomb_matrices_of_the_paper():
    clouds, tokenizer, shard, kinds = molecules(60)
    config = dataclasses.replace(
        CoulombConfig(task="value", max_len=32), n_outputs=1, **tokenizer.decides
    )
    model = Coulomb(tokenizer.vocab_size, config)
    one = clouds[3]
    found = model.matrices(alone(tokenizer, one), 9)[0].numpy()
    z, n = one.atoms.astype(float), len(one)
    matrix = np.zeros((9, 9))
    for i in range(n):
        for j in range(n):
            gap = np.linalg.norm(one.points[i].astype(float) - one.points[j])
            matrix[i, j] = 0.5 * z[i] ** 2.4 if i == j else z[i] * z[j] / gap
    order = np.argsort(-np.linalg.norm(matrix, axis=1), kind="stable")
    expected = matrix[order][:, order]
    np.testing.assert_allclose(found, expected[np.tril_indices(9)], rtol=1e-4)
    targets = (kinds @ np.array([[1.0], [5.0], [9.0]])).astype(np.float32)
    model.fit(dataclasses.replace(shard, targets=targets), None, lambda line: None)
    said = [float(model.answers(alone(tokenizer, each))) for each in clouds]
    np.testing.assert_allclose(said, targets[:, 0], atol=0.5)  # it has seen them


def test_statistics_are_those_of_numpy_and_do_not_turn():
    one = cloud(8, 15)
    tokenizer = Points.train([one, cloud(9, 4)])
    config = StatisticsConfig(task="label", n_outputs=2, max_len=32, **tokenizer.decides)
    model = PointCloudLogistic(tokenizer.vocab_size, config)
    found = model.features(alone(tokenizer, one))[0].numpy()
    points = one.points - one.points.mean(0)
    points = points / np.linalg.norm(points, axis=1).max()
    np.testing.assert_allclose(
        found[:3] ** 2, np.linalg.eigvalsh(np.cov(points.T, ddof=0)), atol=1e-5
    )
    radii = np.linalg.norm(points, axis=1)
    np.testing.assert_allclose(found[3:5], [radii.mean(), radii.std()], atol=1e-5)
    assert found[-1] == 15
    turned = PointCloud(
        one.points @ turn(np.random.default_rng(1)).astype(np.float32).T, one.features
    )
    again = model.features(alone(tokenizer, turned))[0].numpy()
    np.testing.assert_allclose(again, found, atol=1e-4)
