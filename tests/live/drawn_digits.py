"""A Vision Transformer trained on scikit-learn's digits, and digits as a hand would draw them:
strokes of points (x, y) on a board of 100 × 100.
"""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from regard.layers.embeddings import Inputs
from regard.models.vision import VisionTransformer, modern
from regard.tokenizers import Patches

DIGITS = {
    0: [[(52, 18), (38, 22), (30, 38), (28, 55), (34, 74), (46, 83), (60, 80), (70, 66),
         (72, 48), (68, 30), (60, 20), (50, 18)]],
    1: [[(52, 16), (51, 35), (50, 55), (49, 84)]],
    2: [[(30, 34), (34, 23), (46, 17), (60, 20), (67, 31), (64, 44), (54, 57), (40, 71), (29, 82),
         (45, 81), (60, 81), (73, 81)]],
    3: [[(31, 24), (43, 17), (58, 18), (66, 28), (62, 40), (47, 47), (62, 52), (69, 64), (64, 78),
         (49, 84), (31, 78)]],
    4: [[(40, 16), (35, 32), (29, 52), (45, 53), (60, 53), (73, 52)],
        [(60, 28), (58, 52), (56, 86)]],
    5: [[(66, 17), (50, 18), (37, 19), (35, 32), (34, 45), (46, 42), (60, 46), (67, 58), (65, 73),
         (53, 83), (39, 83), (29, 77)]],
    6: [[(60, 16), (46, 28), (36, 46), (32, 64), (37, 79), (50, 85), (63, 80), (68, 67), (61, 55),
         (48, 53), (36, 62)]],
    7: [[(29, 20), (45, 19), (60, 19), (71, 20), (62, 38), (53, 57), (46, 84)]],
    8: [[(62, 24), (50, 17), (38, 24), (39, 36), (50, 46), (62, 56), (66, 70), (58, 82), (46, 84),
         (35, 76), (37, 62), (48, 50), (60, 40), (64, 28), (58, 19)]],
    9: [[(66, 32), (58, 20), (44, 19), (34, 30), (36, 44), (49, 51), (62, 44), (66, 32), (65, 50),
         (61, 68), (54, 86)]],
}  # fmt: skip


def images():
    """Return the images (1797, 8, 8, 1) as bytes, and the digits."""
    data = load_digits()
    return (data.images[..., None] * 255 // 16).astype(np.uint8), data.target


def train(steps=300, size=64):
    """Return a small model and its featurizer."""
    torch.manual_seed(0)
    pixels, digits = images()
    patches = Patches.train(pixels)
    ids, _ = patches.encode_batch(list(pixels))
    ids = torch.from_numpy(ids).view(len(pixels), -1, patches.vocab_size)
    settings = {**vars(modern(2, 48)), "n_outputs": 10, **patches.model_config}
    model = VisionTransformer(patches.vocab_size, type(modern(2, 48))(**settings))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, total_steps=steps)
    segments = torch.ones(size, ids.size(1), dtype=torch.long)
    for _ in range(steps):
        rows = torch.randint(len(ids), (size,))
        loss = F.cross_entropy(model(Inputs(ids[rows], segments)), torch.from_numpy(digits)[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval(), patches
