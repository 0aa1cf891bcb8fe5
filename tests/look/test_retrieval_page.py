"""The page of a contrastive run."""

from __future__ import annotations

import numpy as np
import pytest

from regard.errors import UsageError
from regard.evaluation.retrieval import load_retrieval
from regard.look.page import Heatmap, ImageMaps, Lines, Page, Table
from regard.look.prediction_page import add_errors
from regard.run import Run
from regard.tasks import LookRequest
from regard.tasks.contrastive import Contrastive


@pytest.fixture(scope="module")
def page(contrastive_run):
    return Contrastive().page(Run(contrastive_run), LookRequest("a red square of 5 top left"))


def parts(page, kind):
    return [component for component in page.components if isinstance(component, kind)]


def test_the_matrix_outlines_what_belongs_together(page):
    (matrix,) = parts(page, Heatmap)
    assert {row for row, _ in matrix.marks} == set(range(len(matrix.rows)))
    marked = np.mean([matrix.array()[mark] for mark in matrix.marks])
    assert marked > matrix.array().mean()


def test_what_is_found_stands_in_order(page):
    tables = parts(page, Table)
    assert len(tables) > 4
    for table in tables:
        scores = [row[2] for row in table.rows]
        assert scores == sorted(scores, reverse=True)
    assert "red" in tables[0].rows[0][1]


def test_images_are_drawn_side_by_side(page):
    strip = parts(page, ImageMaps)[0]
    assert strip.image().shape == (12, 12 * len(strip.array()[0, 0]), 3)


def test_a_target_is_refused(contrastive_run):
    with pytest.raises(UsageError, match="--target is for translators"):
        Contrastive().page(Run(contrastive_run), LookRequest("a", "b"))


def test_recall_is_drawn_beside_that_of_chance(contrastive_run):
    page, result = Page("a comparison"), load_retrieval(contrastive_run)
    add_errors(page, result, "all pairs", "The best row")
    (lines,) = parts(page, Lines)
    curves = {name: ys for name, _, ys in lines.series}
    assert curves["chance"] == pytest.approx(result.chance.tolist())
    assert all(ys[-1] >= ys[0] for ys in curves.values())
    assert curves["texts of a source"][0] > curves["chance"][0]
