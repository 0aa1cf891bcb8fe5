"""Series on pages: what a prediction rests on is drawn behind the series, and the page of a model
that fills in hidden patches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.shards import Shard
from regard.decoding.engine import device_of, evaluating
from regard.evaluation.eval_data import shard_of
from regard.evaluation.masked_series import last_values
from regard.layers.embeddings import Inputs
from regard.layers.series import fill_linearly, read_steps
from regard.layers.tap import Tap
from regard.look.attribution import ItemMaps, add_heads, maps_over, register_item_maps
from regard.look.internals import stack_layers
from regard.look.page import Answer, Lines, Page, SeriesMaps
from regard.look.page.document import summary
from regard.look.records import signed
from regard.tokenizers.step_patches import StepPatches

BATCH = 64  # series read at once
MOST_COLUMNS = 4  # that are drawn


@register_item_maps(StepPatches)
class SeriesPatches(ItemMaps):
    """The patches of a series."""

    token, removed = "patch", "hidden"
    positions_title = "Classes of steps"
    positions_note = (
        "The probability of each class at every step, behind the series; choose a class among the "
        "small views."
    )
    evidence_note = (
        "Hidden: how much the score of the prediction drops if the values of a patch are missing; "
        "this runs the model itself. Gradient × input: what each patch adds by the slope of the "
        "score, an approximation. Positive values support the prediction. Rollout follows the "
        "attention of all layers from the prediction down to the patches."
    )
    attention_note = (
        "Every patch and <S> attend to all of them. The small maps are the heads, a row for each "
        "layer; choose one to see it large, and click a patch to see where it looks."
    )

    def draw(self, maps: NDArray[Any], names: Sequence[str], **options: Any) -> SeriesMaps:
        values = self.tokenizer.decode_record(self.record)  # (T, C)
        counts = self.record[1:, 0].astype(int)
        owners = np.repeat(np.arange(len(counts)), counts)
        columns = self.tokenizer.columns[:MOST_COLUMNS]
        return SeriesMaps(
            maps=maps,
            names=names,
            values=values.T[:MOST_COLUMNS],
            columns=columns,
            owners=owners.tolist(),
            **options,
        )

    def without_each(self, source: Inputs) -> Iterator[Inputs]:
        count = source.ids.size(1) - 1
        rows = source.ids.repeat(count + 1, 1, 1)
        each = torch.arange(count)
        rows[each, each + 1, 1:] = torch.nan
        for batch in rows.split(BATCH):
            yield Inputs(batch, torch.ones(batch.shape[:2], dtype=torch.long, device=batch.device))


def filled_series_page(
    predictor: Any, item: NDArray[Any], *, title: str, facts: Sequence[tuple[str, object]]
) -> Page:
    """Return the page about a series, patches of which are hidden and filled in."""
    model, tokenizer = predictor.model, predictor.tokenizer
    page = Page(title, summary(facts))
    items: list[Any] = [item]
    shard = shard_of(items, tokenizer)
    (batch,) = model.masking(shard, tokenizer, int(model.config.max_len)).batches(1)
    source = Inputs(batch.ids, batch.segments)
    tap = Tap(["*.attention.weights"])
    with evaluating(model), torch.inference_mode():
        filled = model.predict(source.to(device_of(model)), tap=tap)[0, 1:].float().cpu()
    _add_filled(page, tokenizer, shard, source, filled.numpy(), model.config)
    if tap.activations:
        weights = {name: x.float().cpu() for name, x in tap.activations.items()}
        add_heads(page, maps_over(tokenizer, shard.record(0)), stack_layers(weights))
    page.add_facts(facts)
    return page


def _add_filled(
    page: Page,
    tokenizer: StepPatches,
    shard: Shard,
    source: Inputs,
    filled: NDArray[Any],
    config: Any,
) -> None:
    """Draw the series, what the model fills in, and a line between the known values."""
    truth = tokenizer.decode_record(shard.record(0))  # (T, C)
    steps = read_steps(source, config.patch, config.n_channels)
    length, scale, mean = len(truth), tokenizer.deviation, tokenizer.mean
    hidden = ~steps.known[0].numpy()[:length] & np.isfinite(truth)
    guesses = {
        "filled in": filled.reshape(-1, config.n_channels)[:length],
        "a line": fill_linearly(steps)[0].numpy()[:length],
        "the last value": last_values(steps)[0].numpy()[:length],
    }
    errors = {
        name: _error(guess * scale + mean, truth, hidden, scale) for name, guess in guesses.items()
    }
    page.section(
        "Filled in",
        f"{int(hidden.any(1).sum()):,} of {length:,} steps are hidden from the model, which "
        "predicts them from all others.",
    )
    filled_in, *others = errors.values()
    better = "better" if filled_in < min(others) else "not better"
    names = " and ".join(f"{name} ({signed(x)})" for name, x in list(errors.items())[1:])
    page.add(
        Answer(
            headline=signed(filled_in),
            label="mean squared error of what is filled in, standardized",
            notes=[f"The model is {better} here than {names}."],
        )
    )
    index = list(range(1, length + 1))
    for c, name in enumerate(tokenizer.columns[:MOST_COLUMNS]):
        curves: list[tuple[str, Sequence[float], Sequence[float]]] = [
            ("series", index, truth[:, c].tolist())
        ]
        for words in ("filled in", "a line"):
            steps_hidden = np.flatnonzero(hidden[:, c])
            guess = guesses[words][steps_hidden, c] * scale[c] + mean[c]
            curves.append((words, (steps_hidden + 1).tolist(), guess.tolist()))
        dots = [words for words, xs, _ in curves[1:] if xs]
        page.add(Lines(curves, x_label="step", y_label=name, title=name, dots=dots))


def _error(
    guess: NDArray[Any], truth: NDArray[Any], hidden: NDArray[Any], scale: NDArray[Any]
) -> float:
    gaps = ((guess - truth) / scale)[hidden]
    return float(np.square(gaps).mean()) if len(gaps) else 0.0
