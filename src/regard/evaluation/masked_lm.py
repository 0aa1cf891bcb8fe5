"""How well a model predicts masked tokens: nats per masked token, and accuracy.

The masks are those of validation (`data.batching.Masked`), the same for every model of the same
tokens, so that two are compared in pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from regard.data.batching import Masked
from regard.data.shards import Shard
from regard.decoding.engine import device_of
from regard.evaluation.bootstrap import BootstrapEstimate, CountedSums, digest
from regard.evaluation.metrics import Report, estimate_metrics, register_metric
from regard.evaluation.predictions import BATCH_TOKENS, Predictions, register_report
from regard.layers.embeddings import Inputs
from regard.models.encoder import MaskedLM
from regard.tokenizers import Tokenizer


@register_metric("masked", "nats_per_token", title="nats per masked token", lower_is_better=True)
def nats_per_masked_token(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(0, "no token is masked")


@register_metric("masked", "accuracy", title="accuracy")
def masked_accuracy(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(1, "no token is masked")


@dataclass(frozen=True, eq=False)
class MaskedLMReport(Report):
    """How well masked tokens are predicted."""

    ranking = ("nats_per_token",)

    estimates: dict[str, BootstrapEstimate]


@register_report("masked")
def report_masked_tokens(predictions: Predictions) -> Report:
    sums = CountedSums(predictions.scores, digest(predictions.truths))
    return MaskedLMReport(estimate_metrics("masked", sums))


@torch.inference_mode()
def measure_masked_lm(model: MaskedLM, shard: Shard, tokenizer: Tokenizer) -> Predictions:
    """Predict the masked tokens of a shard; the `scores` (U, 3) are the sums of nats, correct
    predictions and masked tokens of each chunk that was read.
    """
    masked, device = Masked(shard, tokenizer, int(model.config.max_len)), device_of(model)
    sums = np.zeros((len(masked.sizes), 3))
    for batch in masked.batches(BATCH_TOKENS):
        assert batch.segments is not None
        is_masked = batch.targets >= 0  # (B, T)
        truths = batch.targets[is_masked]  # (N,)
        source = Inputs(batch.ids, batch.segments).to(device)
        positions = is_masked.flatten().nonzero().squeeze(1)
        log_probs = (
            model(source, positions=positions.to(device)).float().log_softmax(-1).cpu()
        )  # (N, V)
        nats = -log_probs.gather(1, truths[:, None])[:, 0].double().numpy()
        hits = (log_probs.argmax(-1) == truths).double().numpy()
        chunks = batch.items[is_masked.nonzero()[:, 0].numpy()]
        np.add.at(sums, chunks, np.stack([nats, hits, np.ones_like(nats)], axis=1))
    return Predictions("masked", sums, np.asarray(shard.ids), np.ones(len(sums), np.int64))
