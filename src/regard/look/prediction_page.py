"""The page of `regard look` about a model of labels or values: its prediction for a text or item,
what that rests on, and its errors on held-out records.

Without an item the page is about the records alone, and without them about the item alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.data.batching import known
from regard.data.shards import Shard
from regard.errors import UsageError, did_you_mean
from regard.look.error_plots import add_errors
from regard.look.internals import add_evidence, add_inside
from regard.look.page import Page
from regard.look.page_inputs import PredictionContext
from regard.look.prediction_views import add_prediction
from regard.pipelines.predictor import Predictor


def prediction_page(
    predictor: Predictor,
    item: Any = None,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    held_out: tuple[str, Shard] | None = None,
    sample: tuple[str, Shard] | None = None,
    target: str = "",
) -> Page:
    """Return the page about a text or item, if there is one, and the records of `held_out`, the
    name of a split and its shard.

    `sample` are other records to look at but not to measure on. `target` is a class, label or value
    to explain besides the predicted one.
    """
    context = PredictionContext(predictor, item, sample or held_out, target)
    if target and target not in context.outputs:
        hint = did_you_mean(target, context.outputs)
        raise UsageError(f"--target: the model does not predict {target!r}; {hint}")
    page = Page.about(title, facts)
    if item is not None and len(item):
        add_prediction(page, context)
        add_evidence(page, context)
    add_inside(page, context)
    if held_out:
        split, shard = held_out
        predictions = predictor.predictions(shard)
        words = f"{len(predictions.lengths):,} records"
        if predictor.targets.kind.aligned:
            words = f"{int(known(predictions.truths).sum()):,} positions"
        words = f"the {words} of the {split} split, which the model was not trained on"
        add_errors(page, predictions, words, "Right and wrong")
    return page
