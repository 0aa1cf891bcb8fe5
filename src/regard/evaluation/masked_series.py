"""How well a model fills in hidden patches of series: the squared and the absolute error of the
values, standardized, beside those of a line between the known neighbors and of the last value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.data.shards import Shard
from regard.decoding.engine import device_of
from regard.evaluation import Report, estimate_metrics, register_metric
from regard.evaluation.bootstrap import BootstrapEstimate, CountedSums, digest
from regard.evaluation.language_modeling import register_masked_measure
from regard.evaluation.predictions import BATCH_POSITIONS, Predictions, register_report
from regard.layers.embeddings import Inputs
from regard.layers.series import StepValues, fill_linearly, neighbors_in_time, read_steps
from regard.models.series_classifiers import MaskedSeries
from regard.tokenizers import Tokenizer

KIND = "masked-series"
NOTHING = "no value is masked"


@register_metric(KIND, "mse", title="MSE, standardized", lower_is_better=True)
def squared_error(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(0, NOTHING)


@register_metric(KIND, "mae", title="MAE, standardized", lower_is_better=True)
def absolute_error(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(1, NOTHING)


@register_metric(KIND, "mse_linear", title="MSE of a line", lower_is_better=True)
def squared_error_of_lines(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(2, NOTHING)


@register_metric(KIND, "mae_linear", title="MAE of a line", lower_is_better=True)
def absolute_error_of_lines(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(3, NOTHING)


@register_metric(KIND, "mse_last", title="MSE of the last value", lower_is_better=True)
def squared_error_of_last(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(4, NOTHING)


@register_metric(KIND, "mae_last", title="MAE of the last value", lower_is_better=True)
def absolute_error_of_last(sums: CountedSums) -> BootstrapEstimate:
    return sums.mean(5, NOTHING)


@register_metric(KIND, "skill", title="skill against lines")
def skill(sums: CountedSums) -> BootstrapEstimate:
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums.estimate(1 - sums.sums[:, 0] / sums.sums[:, 2], NOTHING)


@dataclass(frozen=True, eq=False)
class MaskedSeriesReport(Report):
    """How well hidden patches are filled in."""

    ranking = ("mse",)

    estimates: dict[str, BootstrapEstimate]


@register_report(KIND)
def report_masked_series(predictions: Predictions) -> Report:
    sums = CountedSums(predictions.scores, digest(predictions.truths))
    return MaskedSeriesReport(estimate_metrics(KIND, sums))


def last_values(steps: StepValues) -> Tensor:
    """Return the last known value (B, T, C) before each step, or the next one at the start."""
    before, after = neighbors_in_time(steps)
    length = steps.known.size(1)
    previous = steps.values.gather(1, before.clamp_min(0))
    following = steps.values.gather(1, after.clamp_max(max(0, length - 1)))
    return torch.where(before < 0, following, previous)


@register_masked_measure(MaskedSeries)
@torch.inference_mode()
def measure_masked_series(model: MaskedSeries, shard: Shard, tokenizer: Tokenizer) -> Predictions:
    """Fill in the hidden patches of a shard; the `scores` (R, 7) are the sums of squared and of
    absolute errors of the model, of lines and of last values, and the number of values.
    """
    config, device = model.config, device_of(model)
    masked = model.masking(shard, tokenizer, int(config.max_len))
    sums = np.zeros((len(masked.sizes), 7))
    for batch in masked.batches(BATCH_POSITIONS):
        assert batch.segments is not None
        source = Inputs(batch.ids, batch.segments)
        steps = read_steps(source, config.patch, config.n_channels)
        filled = model(source.to(device))[:, 1:].float().cpu()  # (B, N, P C)
        values = filled.unflatten(-1, (config.patch, -1)).flatten(1, 2)  # (B, T, C)
        truths = batch.targets[:, 1:].unflatten(-1, (config.patch, -1)).flatten(1, 2)
        scored = ~truths.isnan()
        columns = []
        for guess in (values, fill_linearly(steps), last_values(steps)):
            gap = torch.where(scored, guess - truths, 0.0).double()
            columns += [gap.square().sum((1, 2)), gap.abs().sum((1, 2))]
        columns.append(scored.sum((1, 2)).double())
        sums[batch.items] = torch.stack(columns, 1).numpy()
    return Predictions(KIND, sums, np.asarray(shard.ids), np.ones(len(sums), np.int64))
