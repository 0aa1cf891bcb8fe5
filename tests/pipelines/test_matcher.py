"""Finding, embedding and naming classes with a contrastive model."""

from __future__ import annotations

import numpy as np
import pytest

from regard.api import load
from regard.errors import UsageError, UserError
from regard.pipelines.matcher import Matcher


@pytest.fixture(scope="module")
def matcher(contrastive_run):
    return load(contrastive_run, kind=Matcher)


def square(colour, side=5):
    image = np.full((12, 12, 3), 245, np.uint8)
    image[:side, :side] = colour
    return image


RED, BLUE = square((220, 30, 30)), square((40, 40, 230))


def test_classes_are_named_in_words(matcher):
    predictor = matcher.with_classes(["a red square of 5 top left", "a blue square of 5 top left"])
    assert predictor.predict([RED, BLUE]) == [
        "a red square of 5 top left",
        "a blue square of 5 top left",
    ]
    proba = predictor.predict_proba([RED, BLUE])
    np.testing.assert_allclose(proba.sum(1), 1)
    (prediction,) = predictor.predictions([RED])
    assert prediction.scores[prediction.label] == pytest.approx(proba[0, 0])


def test_the_best_of_some_images_is_found_for_a_text(matcher):
    images = matcher.sources_among([RED, BLUE])
    first, second = matcher.find_sources("a blue square of 5 top left", images)
    assert (first.number, second.number) == (1, 0)
    expected = matcher.embed(BLUE) @ matcher.embed_texts("a blue square of 5 top left")
    assert first.score == pytest.approx(float(expected), abs=1e-6)


def test_the_best_of_some_texts_is_found_for_an_image(matcher):
    texts = matcher.texts_among(["a blue square of 5 top left", "a red square of 5 top left"])
    found = matcher.find_texts([RED], texts, num=1)
    assert [[match.name for match in matches] for matches in found] == [
        ["a red square of 5 top left"]
    ]


def test_held_out_records_are_searched_by_default(matcher):
    candidates = matcher.texts_among()
    assert len(set(candidates.names)) == len(candidates.names) > 5
    assert all(name.startswith("a ") for name in candidates.names)
    assert matcher.find_sources("a red square of 5 top left", num=3)[0].name.startswith(
        "test image "
    )


def test_vectors_have_length_one(matcher):
    assert np.linalg.norm(matcher.embed(RED)) == pytest.approx(1, abs=1e-5)
    assert np.linalg.norm(matcher.texts.embed("a red square of 5 top left")) == pytest.approx(
        1, abs=1e-5
    )


@pytest.mark.parametrize("classes", [["one"], ["a", "a"], ["a", " "]])
def test_classes_must_be_different_texts(matcher, classes):
    with pytest.raises(UsageError, match="classes must be two or more different texts"):
        matcher.with_classes(classes)


def test_classes_must_be_named(matcher):
    with pytest.raises(UsageError, match="--classes"):
        matcher.predictions([RED])


def test_other_runs_say_what_names_classes(letters):
    with pytest.raises(UserError, match="--task contrastive"):
        letters.with_classes(["a", "b"])
