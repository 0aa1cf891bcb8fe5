"""Whether a captioner knows which caption belongs to which image: each is scored with every other.

Recall at k is the share of images whose caption is among the first k of all captions, and of
captions whose image is among the first k of all images, in per cent. For an image, captions are
ranked by log P(c | i) minus the logarithm of the mean of P(c | i') over all images, since short
captions would otherwise be first for every image; for a caption, images are ranked by log P(c | i).
Images with equal captions do not compete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.shards import Shard
from regard.decoding.engine import device_of, evaluating
from regard.evaluation.bootstrap import BootstrapEstimate, Floats, resample_sums
from regard.layers.embeddings import Inputs
from regard.models.language_model import IGNORE
from regard.models.seq2seq import Seq2SeqModel
from regard.tokenizers import Tokenizer

RANKS = (1, 5)  # k of recall at k
POSITIONS = 1 << 14  # scored at once


def measure_recall(
    model: Seq2SeqModel, tokenizer: Tokenizer, pairs: Shard
) -> dict[str, BootstrapEstimate]:
    """Return `caption_1`, `caption_5`, `image_1` and `image_5` over the images of pairs."""
    scores, captions = score_captions(model, tokenizer, pairs)
    numbers = {caption: i for i, caption in enumerate(captions)}
    truths = [numbers[tuple(pairs.record(i)[1:].tolist())] for i in range(pairs.records)]
    return recall_from_scores(scores, np.array(truths))


def score_captions(
    model: Seq2SeqModel, tokenizer: Tokenizer, pairs: Shard
) -> tuple[Floats, list[tuple[int, ...]]]:
    """Return log P (N, M) of M different captions given each of N images, and the captions."""
    assert pairs.source is not None
    records = (tuple(pairs.record(i)[1:].tolist()) for i in range(pairs.records))
    captions = sorted(dict.fromkeys(records), key=len)
    rows, device = max(1, POSITIONS // len(captions[-1])), device_of(model)
    batches = [
        _pad_captions(captions[i : i + rows], tokenizer.start)
        for i in range(0, len(captions), rows)
    ]
    table = []
    with evaluating(model), torch.inference_mode():
        for number in range(pairs.records):
            ids = torch.from_numpy(np.array(pairs.source.record(number)))[None].to(device)
            segments = torch.ones(ids.shape[:2], dtype=torch.int64, device=device)
            conditioned = model.condition(Inputs(ids, segments))
            scores = [conditioned.score(x.to(device), y.to(device)) for x, y in batches]
            table.append(torch.cat([score.double().sum(1) for score in scores]).cpu())
    return torch.stack(table).numpy(), captions


def _pad_captions(captions: Sequence[tuple[int, ...]], start: int) -> tuple[Tensor, Tensor]:
    """Return (M, T) ids and targets of captions that end with `<E>`."""
    targets = torch.full((len(captions), max(map(len, captions))), IGNORE)
    for row, caption in enumerate(captions):
        targets[row, : len(caption)] = torch.tensor(caption)
    ids = torch.cat((torch.full((len(captions), 1), start), targets[:, :-1]), 1)
    return ids.clamp_min(0), targets


def recall_from_scores(scores: Floats, truths: NDArray[np.int64]) -> dict[str, BootstrapEstimate]:
    """Return the recall from log P (N, M), where caption truths[i] belongs to image i.

    The rank of the true one is one more than the number of others that score at least as high.
    """
    count = len(scores)
    true_scores = scores[np.arange(count), truths]  # (N,)
    relative = scores - (np.logaddexp.reduce(scores, axis=0) - math.log(count))
    true_relative = relative[np.arange(count), truths]
    same_caption = truths[:, None] == truths[None]
    rivals = (true_scores[:, None] <= scores[:, truths].T) & ~same_caption  # (N, N) other images
    ranks = {
        "caption": (relative >= true_relative[:, None]).sum(1),  # the true one is among them
        "image": 1 + rivals.sum(1),
    }
    return {
        f"{name}_{k}": _estimate_share(rank <= k, f"{count:,} images")
        for name, rank in ranks.items()
        for k in RANKS
    }


def _estimate_share(hits: NDArray[np.bool_], data: str) -> BootstrapEstimate:
    """Return the estimate of the share of hits, in per cent."""
    sums = resample_sums(np.stack([hits, np.ones_like(hits)], 1).astype(np.float64))
    samples = 100 * sums[:, 0] / sums[:, 1]
    return BootstrapEstimate(100 * float(hits.mean()), samples, data, digits=1)
