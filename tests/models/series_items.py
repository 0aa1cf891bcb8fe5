"""Made-up series for tests, as inputs of models."""

from __future__ import annotations

import numpy as np
import torch

from regard.layers.embeddings import Inputs


def waves(count, *, seed=0, columns=1):
    """Return slow and fast waves with gaps, and which are fast."""
    random = np.random.default_rng(seed)
    items, labels = [], []
    for number in range(count):
        steps = int(random.integers(20, 40))
        rate = (0.05, 0.25)[number % 2]
        phase = random.random()
        values = np.sin(2 * np.pi * (rate * np.arange(steps) + phase))[:, None]
        values = values + 0.1 * random.normal(size=(steps, columns))
        values[random.random(values.shape) < 0.05] = np.nan
        items.append(values)
        labels.append(number % 2)
    return items, np.array(labels)


def alone(tokenizer, item):
    ids = torch.from_numpy(tokenizer.encode(item))[None]
    return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.long))


def padded(tokenizer, items):
    records = [torch.from_numpy(tokenizer.encode(item)) for item in items]
    lengths = torch.tensor([len(record) for record in records])
    ids = 100 * torch.rand(len(items), int(lengths.max()) + 3, tokenizer.vocab_size)
    for row, record in enumerate(records):
        ids[row, : len(record)] = record
    return Inputs(ids, (torch.arange(ids.size(1)) < lengths[:, None]).long()), lengths
