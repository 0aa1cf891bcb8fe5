"""A metric: how often the class is among the two most probable ones."""

from __future__ import annotations

import numpy as np

from regard.evaluation import register_metric


@register_metric("label", "top2", title="top-2 accuracy")
def top2(classes):
    """Return the top-2 accuracy."""
    correct = (np.argsort(classes.scores)[:, -2:] == classes.truths[:, None]).any(1)
    return classes.estimate(classes.sum(correct) / classes.records)
