"""Coefficients of linear models by scikit-learn, the extra `science`: the minimum of

    Σ cost(x W + b, y) + strength / 2 · |W|²

over sparse rows x. The costs are cross-entropy, half of squares (ridge regression: Hoerl & Kennard
1970) and squared hinges, one class against the rest: a support vector machine (Cortes & Vapnik
1995) as LIBLINEAR solves it (Fan et al. 2008), whose biases are penalised too. Only numbers come
back, in fp64, so that models are asked and stored without scikit-learn. While something is only
being chosen, the minimum need not be exact (`rough`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import missing_extra
from regard.models.bags import Bags
from regard.models.fitted import shares

Solved = tuple[Tensor, Tensor]  # coefficients (F, O) and biases (O,)
ROUNDS = 2000  # at most


def matrix(bags: Bags) -> Any:
    """Rows as SciPy has them; where scikit-learn is missing, what to install."""
    try:
        import sklearn  # noqa: F401 - brings SciPy
        from scipy.sparse import csr_matrix
    except ImportError:
        raise missing_extra("scikit-learn", "science") from None
    parts = (bags.values.numpy(), bags.columns.numpy(), bags.starts.numpy())
    return csr_matrix(parts, shape=(len(bags), bags.width))


def fitted(estimator: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """(O, F) coefficients and (O,) biases of an estimator; of two classes one row, of the second.
    One that stops short of its minimum is near enough.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)
    return np.atleast_2d(estimator.coef_), np.atleast_1d(estimator.intercept_)


def logistic(strength: float, rough: bool) -> Any:
    """The estimator of class probabilities."""
    from sklearn.linear_model import LogisticRegression

    tolerance = 1e-3 if rough else 1e-5
    return LogisticRegression(
        C=1 / strength, solver="newton-cg", tol=tolerance, max_iter=ROUNDS, random_state=0
    )


def machine(strength: float, rough: bool) -> Any:
    """The estimator of margins."""
    from sklearn.svm import LinearSVC

    tolerance = 1e-2 if rough else 1e-4
    return LinearSVC(C=1 / strength, dual="auto", tol=tolerance, max_iter=ROUNDS, random_state=0)


def of_classes(
    bags: Bags, targets: Tensor, outputs: int, strength: float, *, rough: bool = False
) -> Solved:
    """Multinomial logistic regression on classes (R,). A class that never occurs is as probable as
    half a row makes it.
    """
    x, weights, bias = matrix(bags), np.zeros((bags.width, outputs)), np.zeros(outputs)
    there = targets.unique().tolist()
    if len(there) < 2:
        return torch.from_numpy(weights), shares(targets, outputs).log()
    found, biases = fitted(logistic(strength, rough), x, targets.numpy())
    if len(there) == 2:
        found, biases = np.concatenate([-found, found]) / 2, np.concatenate([-biases, biases]) / 2
    bias[:] = biases.min() + np.log(0.5 / len(targets))
    weights[:, there], bias[there] = found.T, biases
    return torch.from_numpy(weights), torch.from_numpy(bias)


def of_labels(
    bags: Bags, targets: Tensor, outputs: int, strength: float, *, rough: bool = False
) -> Solved:
    """Logistic regression on each of several labels (R, O), gaps left out."""
    made = []
    x = matrix(bags)
    for rows, holds in each(targets, outputs):
        if len(np.unique(holds)) < 2:
            logs = shares(torch.from_numpy(holds.astype(np.int64)), 2).log()
            made.append((np.zeros(bags.width), float(logs[1] - logs[0])))
        else:
            found, bias = fitted(logistic(strength, rough), x[rows], holds)
            made.append((found[0], float(bias[0])))
    return beside(made)


def of_margins(
    bags: Bags,
    targets: Tensor,
    outputs: int,
    strength: float,
    *,
    scales: Tensor | None = None,
    rough: bool = False,
) -> Solved:
    """Support vector machines for each class against the rest, targets (R,), or for each label
    (R, O), gaps left out. With `scales` (F, O), features are multiplied by those first, and the
    coefficients are for the product.
    """
    made: list[tuple[Any, float]] = []
    x = matrix(bags)
    for number, (rows, holds) in enumerate(each(targets, outputs)):
        if len(np.unique(holds)) < 2:
            made.append((np.zeros(bags.width), 1.0 if holds.any() else -1.0))
        elif outputs == 2 and number == 1 and targets.dim() == 1 and scales is None:
            made.append((-made[0][0], -made[0][1]))  # the rest of one is the other
        else:
            own = x[rows]
            if scales is not None:
                own = own.multiply(scales[:, number].numpy()[None]).tocsr()
            found, bias = fitted(machine(strength, rough), own, holds)
            made.append((found[0], float(bias[0])))
    return beside(made)


def of_values(
    bags: Bags, targets: Tensor, outputs: int, strength: float, *, rough: bool = False
) -> Solved:
    """Ridge regression on values (R, O), gaps left out."""
    x = matrix(bags)
    from sklearn.linear_model import Ridge

    made = []
    for column in range(outputs):
        y = targets[:, column].double().numpy()
        rows = np.flatnonzero(~np.isnan(y))
        if not len(rows):
            made.append((np.zeros(bags.width), 0.0))
            continue
        solver = Ridge(alpha=strength, solver="sparse_cg", tol=1e-4 if rough else 1e-8)
        found, bias = fitted(solver, x[rows], y[rows])
        made.append((found[0], float(bias[0])))
    return beside(made)


def each(targets: Tensor, outputs: int) -> Iterator[tuple[Any, Any]]:
    """For every class or label, the rows where it is known and whether it holds there."""
    for number in range(outputs):
        if targets.dim() == 1:
            yield slice(None), (targets == number).numpy()
        else:
            known = targets[:, number] >= 0
            yield known.nonzero()[:, 0].numpy(), targets[known, number].numpy() == 1


def beside(made: list[tuple[Any, float]]) -> Solved:
    """Coefficients (F,) and biases, one answer beside the other."""
    weights = torch.from_numpy(np.stack([one for one, _ in made], axis=1))
    return weights, torch.tensor([bias for _, bias in made], dtype=torch.float64)
