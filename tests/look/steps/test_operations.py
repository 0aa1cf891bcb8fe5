"""Operations against PyTorch's own functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from regard.decoding.sampling import Sample
from regard.layers.attention import softmax
from regard.layers.feedforward import ACTIVATIONS
from regard.layers.norms import RMSNorm
from regard.layers.positions import Rotary, rotate
from regard.look.steps import operations as ops

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=8)
MATRIX = RANDOM.normal(size=(5, 8))
T = torch.from_numpy(X)
GAPS = np.where(np.arange(8) == 3, np.nan, X)
KNOWN = T[torch.arange(8) != 3]

CASES = {
    "dot": (ops.Dot(), (X, MATRIX, X[:5]), F.linear(T, torch.from_numpy(MATRIX), T[:5])),
    "dot of rows": (ops.Dot(), (MATRIX, MATRIX), torch.from_numpy(MATRIX @ MATRIX.T)),
    "row dots": (ops.RowDots(), (MATRIX, X), torch.from_numpy(MATRIX) @ T),
    "mix": (ops.Mix(), (X[:5], MATRIX), T[:5] @ torch.from_numpy(MATRIX)),
    "columns": (ops.Columns(), (MATRIX, MATRIX), torch.from_numpy(MATRIX).square().sum(0)),
    "softmax": (ops.Softmax(), (X,), T.softmax(-1)),
    "layer norm": (
        ops.LayerNormalization(1e-5),
        (X, X + 1, X - 1),
        F.layer_norm(T, (8,), T + 1, T - 1, 1e-5),
    ),
    "squared distance": (
        ops.SquaredDistance(),
        (X, MATRIX),
        torch.cdist(T[None], torch.from_numpy(MATRIX))[0].square(),
    ),
    "unit": (ops.Unit(), (MATRIX,), F.normalize(torch.from_numpy(MATRIX), dim=-1)),
    "sigmoid": (ops.Apply("sigmoid"), (X * 50,), (T * 50).sigmoid()),
    "silu": (ops.Apply("silu"), (X,), F.silu(T)),
    "part of rows": (ops.Part(1, 3), (MATRIX,), torch.from_numpy(MATRIX)[:, 1:3]),
    "largest": (ops.Largest(), (MATRIX,), torch.from_numpy(MATRIX).amax(0)),
    "products": (ops.Products(), (X, X + 1, X + 2, X), T * (T + 1) + (T + 2) * T),
    "log softmax": (ops.LogSoftmax(), (X,), T.log_softmax(-1)),
    "entries": (ops.Entries((9, -1, 0)), (MATRIX,), torch.tensor([MATRIX[1, 1], 0, MATRIX[0, 0]])),
    "stack": (ops.Stack(), (X, X + 1), torch.stack((T, T + 1))),
    "sum of rows": (ops.SumRows(), (MATRIX, X), torch.from_numpy(MATRIX).sum(0) + T),
    "mean of rows": (ops.MeanRows(), (MATRIX,), torch.from_numpy(MATRIX).mean(0)),
    "combine": (ops.Combine((2.0, -1.0), ("2", "−1")), (X, X[:1]), 2 * T - T[0]),
    "mean of what is known": (ops.Mean(), (GAPS,), KNOWN.mean()[None]),
    "deviation": (
        ops.Deviation(0.5),
        (GAPS, KNOWN.mean()[None].numpy()),
        (KNOWN.var(correction=0) + 0.5).sqrt()[None],
    ),
    "rescale": (ops.Rescale(), (X, X[:1], X[1:2]), T * T[0] + T[1]),
    "total": (ops.Total(), (X, X[:1]), (T.sum() + T[0])[None]),
    "moving average": (
        ops.MovingAverage(3),
        (X,),
        F.avg_pool1d(F.pad(T[None, None], (1, 1), mode="replicate"), 3, stride=1)[0, 0],
    ),
    "occurrences": (
        ops.Occurrences((((1, 2), 0, 3), ((1,), 2, 6), ((2, 1, 2), 0, 6))),
        (np.array([1.0, 2, 1, 2, 1, 2]),),
        torch.tensor([2.0, 2, 2]),
    ),
    "row norms": (ops.RowNorms(), (MATRIX,), torch.from_numpy(MATRIX).norm(dim=1)),
    "deviations of columns": (
        ops.ColumnDeviations(),
        (MATRIX,),
        torch.from_numpy(MATRIX).std(0, correction=0),
    ),
    "distances of pairs": (
        ops.PairDistances(),
        (MATRIX,),
        torch.cdist(torch.from_numpy(MATRIX), torch.from_numpy(MATRIX)),
    ),
    "absolute distance": (
        ops.AbsoluteDistance(),
        (X, MATRIX),
        torch.cdist(T[None], torch.from_numpy(MATRIX), p=1.0)[0],
    ),
    "histogram": (
        ops.BinShares(4, 2.0),
        (np.array([0.0, 0.4, 0.6, 1.99, 2.0, 7.0]),),
        torch.tensor([2, 1, 0, 3]) / 6,
    ),
    "differences": (ops.Differences(), (X,), T.diff()),
    "sort": (ops.Sort(), (X,), T.sort().values),
    "autocorrelations": (
        ops.Autocorrelations((1, 3, 9)),
        (X,),
        torch.stack([(T[1:] * T[:-1]).sum(), (T[3:] * T[:-3]).sum(), T[:0].sum()])
        / T.square().sum(),
    ),
    "largest of bands": (
        ops.LargestOfBands((1, 3, 9)),
        (X,),
        torch.stack([T[:2].max(), T[2:].max()]),
    ),
    "z-score": (ops.ZScore(), (X, X[:1], X[1:2]), (T - T[0]) / T[1]),
    "standardize": (
        ops.Standardize(),
        (np.array([np.nan, 3.0]), np.ones(2), np.full(2, 4.0)),
        torch.tensor([0.0, 0.5]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operations_equal_torch(name):
    how, inputs, expected = CASES[name]
    np.testing.assert_allclose(how.compute(*inputs), expected.double().numpy(), atol=1e-12)
    assert how.data()["op"] == how.op


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_equal_those_of_the_layers(name):
    found, expected = ops.Apply(name).compute(X), ACTIVATIONS[name](T).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert ops.Apply(name).data()["words"]


def test_norm_and_rotation_equal_the_layers():
    norm = RMSNorm(8, 1e-6).double()
    found = ops.RootMeanSquareNorm(1e-6).compute(X, np.ones(8))
    np.testing.assert_allclose(found, norm(T).detach().numpy(), atol=1e-7)
    cosine, sine = Rotary(8, 16, 10_000.0).rotation(range(3, 4))
    rotated = rotate(T.float()[None, None, None], (cosine, sine))[0, 0, 0]
    found = ops.Rotate().compute(X, cosine[0, 0].numpy(), sine[0, 0].numpy())
    np.testing.assert_allclose(found, rotated.numpy(), atol=1e-6)


def test_a_row_without_allowed_keys_has_no_weights():
    scores = np.full(4, -np.inf)
    assert ops.Softmax().compute(scores).tolist() == softmax(torch.tensor(scores)).tolist()
    open_first = ops.MaskOut().compute(np.arange(3.0), np.array([1.0, 0.0, 1.0]))
    assert open_first.tolist() == [0, -np.inf, 2]
    masked = ops.Mix().compute(np.array([1.0, 0.0]), np.array([[1.0], [np.inf]]))
    assert masked.tolist() == [1]  # a weight of 0 takes nothing


@pytest.mark.parametrize(("k", "p"), [(8, 1.0), (3, 1.0), (8, 0.6), (4, 0.7)])
def test_cuts_keep_what_sampling_keeps(k, p):
    weights, ids = Sample(temperature=0.7, top_k=k % 8, top_p=p).weights(T[None])
    weights = weights[0] if ids is None else torch.zeros(8).double().scatter(0, ids[0], weights[0])
    x = ops.Softmax().compute(ops.Temper(0.7).compute(X))
    found = ops.KeepTopP(p).compute(ops.KeepTopK(k).compute(x))
    np.testing.assert_allclose(found, weights / weights.sum(), atol=1e-12)


def test_a_draw_is_a_cumulative_sum():
    assert ops.Draw(0.5).compute(np.array([0.25, 0.5, 0.25])).tolist() == [0.25, 0.75, 1.0]


def test_discounts_follow_chen_and_goodman():
    counts, paid = np.array([0.0, 1, 2, 3, 9]), np.array([0.5, 1.0, 1.5])
    found = ops.Discount().compute(counts, paid)
    np.testing.assert_allclose(found, [0, 0.5 / 15, 1 / 15, 1.5 / 15, 7.5 / 15])


def test_what_a_page_keeps_of_a_table():
    weights = np.array([0.1, 0.0, 0.9])
    rows = np.ones((3, 2))
    assert ops.Mix().needed(1, [weights, rows], np.ones(2)).tolist() == weights.tolist()
    assert ops.Mix().needed(0, [weights, rows], np.ones(2)) is None
    scores = np.array([1.0, -np.inf, -3.0])
    assert ops.Dot().needed(1, [X, MATRIX], scores).tolist() == [1, 0, 3]
    assert ops.Gather(1).needed(0, [rows], rows[1]).tolist() == [-1, 1, -1]
    assert ops.Add().needed(0, [rows], rows) is None
    with pytest.raises(NotImplementedError):
        ops.GivenNumbers().compute()
