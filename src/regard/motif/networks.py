"""Neural rows of the table of motifs: classifiers that tell sequences from the background."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard import api
from regard.models.motifs import Floats
from regard.motif.sequences import MotifSequences

NETWORKS = {"cnn": "CNN", "transformer": "attention"}  # models, and their names in the table
MOTIF, BACKGROUND = "motif", "background"
LEAST = 1e-12  # of a probability, in its logarithm


def train_network(
    model: str,
    positives: MotifSequences,
    negatives: MotifSequences,
    minutes: float,
    *,
    strands: bool,
    seed: int,
) -> api.Predictor:
    """Return a classifier trained on sequences with and without a motif; with `strands`, on both
    strands of each.
    """
    texts = (*positives.texts, *negatives.texts)
    labels = [MOTIF] * len(positives.texts) + [BACKGROUND] * len(negatives.texts)
    order = np.random.default_rng(seed).permutation(len(texts)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        result = api.train(
            [(texts[i], labels[i]) for i in order],
            Path(folder) / model,
            task="label",
            model=model,
            minutes=minutes,
            seed=seed,
            augment={"name": "strands"} if strands else {},
            progress=False,
        )
        predictor: api.Predictor = result.model
    return predictor


def score_texts(predictor: api.Predictor, texts: Sequence[str]) -> Floats:
    """Return the log-odds of a motif in each text, (N,)."""
    probabilities = np.asarray(predictor.predict_proba(list(texts)), dtype=np.float64)
    column = list(predictor.classes).index(MOTIF)
    p = np.clip(probabilities[:, column], LEAST, 1 - LEAST)
    return np.asarray(np.log(p) - np.log1p(-p))
