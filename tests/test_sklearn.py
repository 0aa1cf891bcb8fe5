"""Estimators of scikit-learn, checked by scikit-learn."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from regard.pipelines.predictor import Predictor
from regard.sklearn import SequenceClassifier, SequenceRegressor, class_names, text_columns

TEXTS = [f"{word} thing number {i}" for i in range(20) for word in ("good", "bad")]
KINDS = ["plus", "minus"] * 20
# Values are computed in float32: their last digit depends on the batch.
ROUNDED = {"check_methods_subset_invariance": "float32 values are rounded batch by batch"}


@pytest.mark.parametrize(
    "estimator, expected", [(SequenceClassifier(), {}), (SequenceRegressor(), ROUNDED)], ids=str
)
def test_scikit_learn_finds_nothing_wrong_with_an_estimator(estimator, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkipTestWarning)  # of other array libraries
        results = check_estimator(estimator, expected_failed_checks=expected, on_skip=None)
    outcomes = [result["status"] for result in results]
    assert outcomes.count("passed") >= 45 and outcomes.count("xfail") == len(expected)


@pytest.fixture(scope="module")
def classifier():
    return SequenceClassifier(tokenizer="words").fit(TEXTS, KINDS)


def test_texts_are_classified_alike_in_every_form(classifier):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS})
    expected = classifier.predict(TEXTS)
    assert expected.tolist() == KINDS and classifier.classes_.tolist() == ["minus", "plus"]
    for X in (
        np.array(TEXTS),
        np.array(TEXTS, object)[:, None],
        frame,
        frame["text"],
        tuple(TEXTS),
    ):
        assert (classifier.predict(X) == expected).all()
    assert classifier.score(TEXTS, KINDS) == 1
    assert isinstance(classifier.model_, Predictor) and (classifier.run_ / "config.json").exists()


def test_an_empty_text_has_the_shares_of_training(classifier):
    probabilities = classifier.predict_proba(["", "good"])
    np.testing.assert_allclose(probabilities[0], [0.5, 0.5])
    assert probabilities[1, 1] > 0.5
    regressor = SequenceRegressor().fit(TEXTS, np.arange(40.0))
    assert regressor.predict([" "]) == pytest.approx(19.5)


def test_what_is_missing_is_named_by_its_position(classifier):
    for X in (["good", None], ["good", float("nan")]):
        with pytest.raises(TypeError, match=r"X\[1\] must be a str, got"):
            classifier.predict(X)
    with pytest.raises(NotFittedError):
        SequenceClassifier().predict(TEXTS)
    with pytest.raises(ValueError, match=r"X has 2 features, .* expecting 1"):
        classifier.predict([("good", "bad")])


def test_pairs_of_texts_are_two_columns():
    X = [("yes", word) if i % 2 else (word, "no") for i, word in enumerate(TEXTS)]
    y = [i % 2 for i in range(len(X))]
    estimator = SequenceClassifier(tokenizer="words").fit(X, y)
    assert estimator.n_features_in_ == 2 and estimator.score(X, y) == 1
    assert text_columns(X)[0][0] == TEXTS[0] and text_columns([[1.0, 2.0]]) is None


def test_estimators_work_in_pipelines_cross_validation_and_searches():
    lower = FunctionTransformer(lambda X: [text.lower() for text in X])
    pipeline = make_pipeline(lower, SequenceClassifier(tokenizer="words"))
    assert pipeline.fit([text.upper() for text in TEXTS], KINDS).predict(["BAD"]) == ["minus"]
    assert cross_val_score(SequenceClassifier(tokenizer="words"), TEXTS, KINDS, cv=2).min() == 1
    grid = {"model": ["majority", "nb-svm"], "tokenizer": ["words"]}
    search = GridSearchCV(SequenceClassifier(), grid, cv=2).fit(TEXTS, KINDS)
    assert search.best_params_["model"] == "nb-svm"
    assert clone(search.best_estimator_).model == "nb-svm"


def test_a_pickled_estimator_takes_its_run_with_it(classifier):
    again = pickle.loads(pickle.dumps(classifier))
    assert again.run_ != classifier.run_ and not (again.run_ / "data").exists()
    np.testing.assert_array_equal(again.predict_proba(TEXTS), classifier.predict_proba(TEXTS))


def test_a_network_trains_for_its_minutes_with_further_keywords():
    options = {"train": {"steps": 2, "batch_tokens": 64}, "model": None}
    del options["model"]
    estimator = SequenceClassifier("cnn", options=options, random_state=3).fit(TEXTS, KINDS)
    assert estimator.model_.run.recipe.train.steps == 2
    assert estimator.model_.run.recipe.train.seed == 3
    assert estimator.predict_proba(TEXTS[:2]).sum(1) == pytest.approx(1, abs=1e-5)


def test_classes_that_would_be_read_as_missing_are_numbered():
    assert class_names(np.array(["a", "b"])) == ["a", "b"]
    assert class_names(np.array([1.5, 2.5])) == ["1.5", "2.5"]
    assert class_names(np.array(["NA", "b"])) == class_names(np.array([" a", "b"])) == ["0", "1"]
    y = ["NA", "yes"] * 20
    assert SequenceClassifier(tokenizer="words").fit(TEXTS, y).predict(TEXTS[:2]).tolist() == y[:2]
