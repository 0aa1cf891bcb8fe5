"""Estimators of scikit-learn: `SequenceClassifier` and `SequenceRegressor`.

They train as `regard.train` does, on all data they are given, and work in pipelines,
cross-validation and searches. X is a list, an array or a series of texts, a frame or an array with
one column of texts, or two of pairs; or an array of numbers whose rows are series. By default the
model is linear and fitted in a fraction of a second.

The run of a fitted estimator is in the temporary folder `run_`, which lives as long as the
estimator; copy it to keep it. An estimator that is pickled, by joblib or by scikit-learn's
processes, takes the files of its run with it.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    assert_all_finite,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from regard.api import train
from regard.data.in_memory import frame_columns
from regard.pipelines import load, one_or_many
from regard.pipelines.predictor import Predictor
from regard.recipe import MISSING
from regard.training.progress import Reporter

NOT_PICKLED = ("data", "source", "checkpoints", "candidates")  # folders of a run
NOTHING_HELD_OUT = {"valid_fraction": 0.0, "test_fraction": 0.0}


class Silent(Reporter):
    """Prints nothing; the warnings are in the result."""

    def __init__(self) -> None:
        super().__init__(quiet=True)

    def warn(self, text: str) -> None:
        self.warned.add(text)


class SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: parameters, training, and the run that they keep."""

    task: str
    linear: str  # the model by default
    model_: Predictor
    run_: Path

    def __init__(
        self,
        model: str | None = None,
        *,
        minutes: float = 1.0,
        tokenizer: str = "auto",
        options: Mapping[str, Any] | None = None,
        random_state: int | None = None,
        device: str = "auto",
    ) -> None:
        """`model` is a family of `regard.train`, such as svm, nb-svm, cnn or transformer; None is a
        linear model. `minutes` is how long a network trains. `options` are further keywords of
        `regard.train`: {"train": {"lr": 3e-4}}.
        """
        self.model = model
        self.minutes = minutes
        self.tokenizer = tokenizer
        self.options = options
        self.random_state = random_state
        self.device = device

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags

    def _train(self, items: Any, seconds: list[str] | None, y: Sequence[Any]) -> Self:
        if len(items) < 2:
            raise ValueError(f"training needs two samples or more, got n_samples = {len(items)}")
        if seconds is not None:
            items = list(zip(items, seconds, strict=True))
        self._make_folder()
        keywords: dict[str, Any] = dict(self.options or {})
        keywords["data"] = {**NOTHING_HELD_OUT, **keywords.get("data", {})}
        if self.tokenizer != "auto":
            keywords["tokenizer"] = self.tokenizer
        result = train(
            items,
            self.run_,
            y=y,
            task=self.task,
            model=self.model or self.linear,
            minutes=self.minutes,
            seed=self.random_state or 0,
            device=self.device,
            progress=Silent(),
            **keywords,
        )
        self.warnings_ = result.warnings
        return self._load()

    def _make_folder(self) -> None:
        """Take a new temporary folder for the run; it is removed with the estimator."""
        folder = tempfile.mkdtemp(prefix="regard-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.run_ = Path(folder) / "run"

    def _load(self) -> Self:
        self.model_ = load(self.run_, kind=Predictor)
        return self

    def _items(self, X: Any, *, reset: bool) -> tuple[Any, list[str] | None]:
        """Return texts and the second texts of pairs, or an array whose rows are series."""
        texts = text_columns(X)
        if texts is None:
            return validate_data(self, X, reset=reset, dtype=np.float64), None
        if reset:
            self.n_features_in_ = len(texts)
        if len(texts) != self.n_features_in_:
            raise ValueError(
                f"X has {len(texts)} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return texts[0], texts[1] if len(texts) > 1 else None

    def _read(self, X: Any) -> tuple[Any, list[str] | None]:
        """Return the inputs of a prediction, as `fit` read them."""
        check_is_fitted(self, "model_")
        return self._items(X, reset=False)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if state.pop("model_", None) is not None:
            del state["run_"]
            state["_files"] = {
                path.relative_to(self.run_).as_posix(): path.read_bytes()
                for path in sorted(self.run_.rglob("*"))
                if path.is_file() and path.relative_to(self.run_).parts[0] not in NOT_PICKLED
            }
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        super().__setstate__(state)
        if files is not None:
            self._make_folder()
            for name, content in files.items():
                path = self.run_ / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self._load()


class SequenceClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """A classifier of texts or series."""

    task, linear = "label", "logistic"
    classes_: NDArray[Any]

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train on items and their classes."""
        labels = target_array(self, y)
        inputs = self._items(X, reset=True)
        check_consistent_length(inputs[0], labels)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        self.priors_ = np.bincount(numbers) / len(numbers)
        names = class_names(self.classes_)
        return self._train(*inputs, [names[number] for number in numbers])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each of `classes_`; of an empty text, their shares in training,
        `priors_`.
        """
        inputs = self._read(X)
        probabilities = self.model_.predict_proba(*inputs)
        known = self.model_.targets.classes[0]
        columns = [known.index(name) for name in class_names(self.classes_)]
        missing = np.isnan(probabilities[:, :1])
        return np.where(missing, self.priors_, probabilities[:, columns])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each item."""
        best = self.predict_proba(X).argmax(1)
        predicted: NDArray[Any] = self.classes_[best]
        return predicted


class SequenceRegressor(RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """A regressor of texts or series."""

    task, linear = "value", "ridge"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # of rows of numbers that are no series
        return tags

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train on items and their values."""
        values = np.asarray(target_array(self, y), np.float64)
        inputs = self._items(X, reset=True)
        check_consistent_length(inputs[0], values)
        self.mean_ = float(values.mean())
        return self._train(*inputs, values.tolist())

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the value of each item; of an empty text, the mean in training, `mean_`."""
        inputs = self._read(X)
        values = np.asarray(self.model_.predict(*inputs), np.float64)
        return np.where(np.isnan(values), self.mean_, values)


def text_columns(X: Any) -> list[list[str]] | None:
    """Return one column of texts, or two of pairs; None if X is no text."""
    columns = frame_columns(X)
    if columns is not None:
        parts = list(columns.values())
    else:
        rows = X.tolist() if isinstance(X, np.ndarray) and X.dtype.kind in "OUST" else X
        if not isinstance(rows, list | tuple):
            return None
        pairs = bool(rows) and isinstance(rows[0], list | tuple)
        parts = list(zip(*rows, strict=True)) if pairs else [rows]
    if len(parts) > 2 or not all(any(isinstance(cell, str) for cell in part) for part in parts):
        return None
    return [one_or_many("X", list(part))[0] for part in parts]


def target_array(estimator: Any, y: Any) -> NDArray[Any]:
    """Return targets as one array (R,), as scikit-learn checks them."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None"
        )
    targets: NDArray[Any] = column_or_1d(y, warn=True)
    if targets.dtype.kind in "fO":
        assert_all_finite(targets, input_name="y")
    return targets


def class_names(classes: NDArray[Any]) -> list[str]:
    """Return the names of classes in the run: as they are written, or numbers where a name would be
    read as something else.
    """
    names = [str(one) for one in classes.tolist()]
    plain = all(name and name == name.strip() and name not in MISSING for name in names)
    return names if plain and len(set(names)) == len(names) else list(map(str, range(len(names))))
