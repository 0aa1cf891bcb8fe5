"""Random point clouds and molecules for tests."""

from __future__ import annotations

import numpy as np
import torch

from regard.evaluation.eval_data import shard_of
from regard.layers.embeddings import Inputs
from regard.tokenizers import Points
from regard.tokenizers.points import PointCloud


def cloud(seed, count, *, atoms=False):
    random = np.random.default_rng(seed)
    points = random.normal(size=(count, 3)).astype(np.float32)
    kinds = random.choice([1, 6, 8], count).astype(np.uint8)
    none = np.zeros((count, 0), np.float32)
    return PointCloud(points, none, kinds) if atoms else PointCloud(points, none)


def alone(tokenizer, one):
    ids = torch.from_numpy(tokenizer.encode_batch([one])[0])[None]
    return Inputs(ids, torch.ones(ids.shape[:2], dtype=torch.long))


def molecules(count):
    clouds = [cloud(n, 3 + n % 7, atoms=True) for n in range(count)]
    tokenizer = Points.train(clouds)
    shard = shard_of(clouds, tokenizer)
    kinds = np.array([[(c.atoms == z).sum() for z in (1, 6, 8)] for c in clouds], float)
    return clouds, tokenizer, shard, kinds
