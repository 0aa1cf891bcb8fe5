"""Networks are trained by the library, and score texts by log-odds."""

from __future__ import annotations

import numpy as np

from regard.motif.networks import score_texts, train_network
from regard.motif.sequences import read_sequences


def test_a_network_is_trained_by_the_library(planted):
    sequences = read_sequences(planted.file, lambda line: None)
    part = sequences.subset(range(24))
    without = part.shuffled(np.random.default_rng(0))
    predictor = train_network("cnn", part, without, 0.005, strands=True, seed=0)
    scores = score_texts(predictor, sequences.texts[:3])
    p = predictor.predict_proba(list(sequences.texts[:3]))[:, 1]
    np.testing.assert_allclose(1 / (1 + np.exp(-scores)), p, atol=1e-6)
