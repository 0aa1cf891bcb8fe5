"""How well a model fills in masked tokens: nats for each, and the share that it gets right.

The masks are those of validation (`data/masking.py`), the same for every model of the same tokens,
so that two are compared in pairs.
"""

from __future__ import annotations

import numpy as np
import torch

from regard.data.batching import Masked
from regard.data.shards import Shard
from regard.decoding.engine import device_of
from regard.evaluation.bootstrap import Floats
from regard.evaluation.estimates import BootstrapEstimate, by_sums, digest
from regard.evaluation.predictions import BATCH_TOKENS, Predictions
from regard.layers.embeddings import Inputs
from regard.models.encoder import MaskedLM
from regard.tokenizers import Tokenizer

NAMES = ("nats_per_token", "accuracy")


class MaskedLMResult(Predictions):
    """What a model makes of masked tokens: `scores` (U, 3) are nats, right ones and asked ones of
    every piece that was read.
    """

    @property
    def estimates(self) -> dict[str, BootstrapEstimate]:
        """Nats for each masked token, and accuracy."""
        values, samples = by_sums(_ratios, self.scores)
        why = "" if self.scores[:, 2].sum() else "no token is masked"
        data = digest(self.truths)
        return {
            name: BootstrapEstimate(float(values[i]), samples[:, i], data, cost=i == 0, why=why)
            for i, name in enumerate(NAMES)
        }


def _ratios(sums: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):  # a resample without a mask is undefined
        found: Floats = sums[:, :2] / sums[:, 2:]
    return found


@torch.inference_mode()
def measure_masked_lm(model: MaskedLM, shard: Shard, tokenizer: Tokenizer) -> MaskedLMResult:
    """Have a model fill in the masked tokens of a shard."""
    asked, device = Masked(shard, tokenizer, int(model.config.max_len)), device_of(model)
    sums = np.zeros((len(asked.sizes), 3))
    for batch in asked.batches(BATCH_TOKENS):
        assert batch.segments is not None
        at = batch.targets >= 0  # (B, T)
        truths = batch.targets[at]  # (N,)
        source = Inputs(batch.ids, batch.segments).to(device)
        places = at.flatten().nonzero().squeeze(1)
        logs = model(source, at=places.to(device)).float().log_softmax(-1).cpu()  # (N, V)
        nats = -logs.gather(1, truths[:, None])[:, 0].double().numpy()
        right = (logs.argmax(-1) == truths).double().numpy()
        items = batch.items[at.nonzero()[:, 0].numpy()]
        np.add.at(sums, items, np.stack([nats, right, np.ones_like(nats)], axis=1))
    lengths = np.ones(len(sums), np.int64)
    return MaskedLMResult("masked", sums, np.asarray(shard.ids), lengths)
