"""Checks of models of labels and values, and of word vectors.

A prediction depends on its record alone, gradients are derivatives of the loss, and the metrics on
record can be measured again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import IGNORE
from regard.data.corpus import reopen
from regard.errors import UserError
from regard.evaluation import target_name
from regard.evaluation.eval_data import held_out
from regard.evaluation.predictions import PREDICTIONS, load_predictions, predict_shard, read_targets
from regard.evaluation.word_similarity import word_losses
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.supervised import NeuralSupervisedModel
from regard.recipe import build, read
from regard.run import METADATA, RECIPE, Run, weights
from regard.training.loop import seed_of
from regard.training.objectives import SupervisedObjective
from regard.training.throughput import final_parts
from regard.training.trainer import final_sample
from regard.training.word2vec_training import ThreadCopies, untrained
from regard.verify.fixtures import (
    N_SAMPLES,
    N_TOKENS,
    Finding,
    Gap,
    PredictionFixture,
    Word2VecFixture,
    has_data,
    single,
)

BATCHES = (16, 7)  # records in a batch, in order and shuffled
STEPS = (1e-6, 1e-7, 1e-8, 1e-9)  # of finite differences, in double precision
SLOPE_TOLERANCE = 1e-5  # of a derivative, relative to its size
METRIC_TOLERANCE = 1e-4  # of a metric, which may have been measured on another device

Layout = tuple[
    Sequence[int], int, int
]  # the order of records, their number in a batch, extra padding


def compare_batches(
    fixture: PredictionFixture,
    layouts: Iterable[Layout],
    compute: Callable[[Inputs], Tensor],
    gap: Gap,
    *,
    positional: bool,
) -> None:
    """Add to `gap` what `compute` gives for records in batches, compared with each by itself."""
    expected = [compute(single(record))[0].float() for record in fixture.records]
    for order, size, extra in layouts:
        for batch in fixture.batches(order, size, extra):
            outputs = compute(batch.source).float()
            for row, number in enumerate(batch.records):
                length = batch.lengths[row] if positional else 1
                output = outputs[row, :length] if positional else outputs[row]
                gap.add(output, expected[number], length)


def ordered(fixture: PredictionFixture) -> list[int]:
    return list(range(len(fixture.records)))


def shuffled(fixture: PredictionFixture) -> list[int]:
    order = torch.randperm(len(fixture.records), generator=torch.Generator().manual_seed(4))
    numbers: list[int] = order.tolist()
    return numbers


def batch_is_single(fixture: PredictionFixture) -> Finding:
    """A record has the same prediction padded in a batch as by itself."""
    gap = Gap()
    layouts = [(ordered(fixture), BATCHES[0], 0)]
    predict = fixture.model.predict
    compare_batches(fixture, layouts, predict, gap, positional=fixture.positional)
    return gap.finding(fixture.tolerance, f" of {len(fixture.records)} records")


def shuffled_is_ordered(fixture: PredictionFixture) -> Finding:
    """The order of records, the others in a batch and what is in the padding change nothing."""
    order, gap = shuffled(fixture), Gap()
    layouts = [(order, BATCHES[1], 0), (order[::-1], BATCHES[0], 3)]
    predict = fixture.model.predict
    compare_batches(fixture, layouts, predict, gap, positional=fixture.positional)
    return gap.finding(fixture.tolerance, ", random padding among them")


def permuted_is_ordered(fixture: PredictionFixture) -> Finding | None:
    """The order of the parts of an item, such as the points of a cloud, changes no prediction:
    neither in a file nor among tokens.
    """
    tokenizer, gap, random = fixture.tokenizer, Gap(), np.random.default_rng(8)
    items = [] if tokenizer is None else tokenizer.permuted_items(N_SAMPLES, random)
    if tokenizer is None or not items:
        return None
    for item, permuted, order in items:
        one, two = (
            fixture.predict(torch.from_numpy(tokenizer.encode(x))) for x in (item, permuted)
        )
        if fixture.positional:
            one = torch.cat((one[:1], one[1:][torch.from_numpy(order)]))
        gap.add(two, one, len(one))
    for record in fixture.records:
        order = np.concatenate(([0], 1 + random.permutation(len(record) - 1)))
        one, two = fixture.predict(record), fixture.predict(record[order])
        gap.add(two, one[order] if fixture.positional else one, len(one))
    count = len(items) + len(fixture.records)
    return gap.finding(fixture.tolerance, f" of {count} {tokenizer.words[1]}")


def embedded_together_is_alone(fixture: PredictionFixture) -> Finding:
    """A record, and each of its positions, has the same vector in a batch as by itself."""
    model, gap = fixture.model, Gap()
    layouts = [(ordered(fixture), BATCHES[0], 0), (shuffled(fixture), BATCHES[1], 3)]
    compare_batches(fixture, layouts, model.embed, gap, positional=False)
    compare_batches(fixture, layouts, model.vectors, gap, positional=True)
    vectors = torch.cat([model.embed(single(record)) for record in fixture.records])
    allowed = fixture.tolerance * max(1.0, float(vectors.abs().max()))
    return gap.finding(allowed, ", vectors of records and positions")


def fused_is_explicit(fixture: PredictionFixture) -> Finding | None:
    """The fused attention kernel gives the predictions of the explicit path, which forms the
    weights.
    """
    model, gap, layers = fixture.model, Gap(), 0
    for batch in fixture.batches(ordered(fixture), BATCHES[0]):
        tap = Tap(["*.attention.weights"])
        explicit = model.predict(batch.source, tap=tap)
        layers = len(tap.activations)
        if not layers:
            return None
        fused = model.predict(batch.source)
        if fixture.positional:
            inside = batch.source.segments > 0
            fused, explicit = fused[inside], explicit[inside]
        gap.add(fused, explicit, len(fused))
    return gap.finding(fixture.tolerance, f" and {layers} layers")


def probabilities_sum_to_one(fixture: PredictionFixture) -> Finding | None:
    """The probabilities of classes sum to one; those of labels are from 0 to 1."""
    head = fixture.model.output
    both = head.must_agree(head.probabilities(fixture.outputs.double()))
    if both is None:
        return None
    gap = Gap()
    gap.add(both[0], both[1], len(both[0]))
    return gap.finding(fixture.tolerance)


def gradient_is_slope(fixture: PredictionFixture) -> Finding:
    """The gradient of the training objective is its slope, by finite differences in double
    precision: along the head, and along all parameters at once.
    """
    model = copy.deepcopy(fixture.model).double().eval()
    source = next(fixture.batches(ordered(fixture), 4)).source
    objective, targets = SupervisedObjective(model), sample_targets(model, source)

    def loss() -> Tensor:
        total: Tensor = objective(source.ids, targets, source.segments)[0]
        return total

    with torch.enable_grad():
        parameters = [p.requires_grad_() for p in model.parameters()]
        gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
    generator = torch.Generator().manual_seed(5)
    worst, directions = 0.0, 0
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    for subset in (pairs[-2:], pairs):  # the last two are those of the head, if it has its own
        for _ in range(3):
            steps = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p, _ in subset]
            slope = sum(float((g * d).sum()) for (_, g), d in zip(subset, steps, strict=True))
            direction = [(p, d) for (p, _), d in zip(subset, steps, strict=True)]
            # If the largest of several values changes within a step, a smaller step is right.
            slopes = (finite_difference(loss, direction, step) for step in STEPS)
            error = min(abs(slope - x) / max(abs(slope), abs(x), 1e-3) for x in slopes)
            worst, directions = max(worst, error), directions + 1
    detail = f"derivatives differ by {worst:.1e} of their size (allowed {SLOPE_TOLERANCE})"
    where = f"along {directions} directions, of the head and of all {len(parameters)} tensors"
    return worst <= SLOPE_TOLERANCE, f"{detail} {where}"


def finite_difference(
    loss: Callable[[], Tensor], direction: Sequence[tuple[Tensor, Tensor]], step: float
) -> float:
    """Return the slope of a loss along a direction of parameters, from four points around: the
    error is of the fifth order, for networks of high frequencies.
    """
    losses = []
    for move in (-2, 1, 2, 1, -2):  # to -2, -1, 1, 2 steps, and back to 0
        for parameter, offset in direction:
            parameter.data.add_(offset, alpha=move * step)
        losses.append(float(loss()))
    return (8 * (losses[2] - losses[1]) - (losses[3] - losses[0])) / (12 * step)


def sample_targets(model: NeuralSupervisedModel, source: Inputs) -> Tensor:
    head, generator = model.output, torch.Generator().manual_seed(6)
    shape = tuple(source.ids.shape[:2]) if head.positional else (source.ids.size(0),)
    targets = head.random_targets(shape, model.n_outputs, generator)
    if head.scaled:
        return targets * model.scale + model.shift
    return targets.masked_fill(source.segments == 0, IGNORE) if head.positional else targets


def metrics_are_on_record(fixture: PredictionFixture) -> Finding | None:
    """The predictions of the held-out split, computed again, are those that the run has stored, and
    give its metrics.
    """
    run = fixture.run
    if not has_data(run) or not (run / METADATA).exists() or fixture.tokenizer is None:
        return None
    try:
        split, shard = held_out(run, fixture.tokenizer)
    except UserError:
        return None  # nothing was held out
    metadata = Run(run).metadata
    stored = (metadata.get("metrics") or {}).get(split)
    if not stored or (metadata.get("measured") or {}).get(split) != 1:
        return None
    predictions = predict_shard(fixture.model, shard, fixture.tokenizer, read_targets(run))
    detail = ""
    if (run / PREDICTIONS).exists():
        scores = torch.from_numpy(load_predictions(run).scores)
        gap = Gap()
        gap.add(torch.from_numpy(predictions.scores), scores, len(scores))
        allowed = METRIC_TOLERANCE * max(1.0, float(scores.abs().max()))
        ok, detail = gap.finding(allowed, " of the stored predictions")
        if not ok:
            return False, detail
    expected: dict[str, Any] = dict(stored)
    for target, metrics in stored.get("targets", {}).items():
        expected |= {target_name(name, target): metric for name, metric in metrics.items()}
    compared = {name: one for name, one in predictions.metrics().items() if name in expected}
    for name, metric in compared.items():
        before, now = expected[name].get("value"), metric.to_json()["value"]
        same = before is now is None
        if before is not None and now is not None:
            same = abs(before - now) <= METRIC_TOLERANCE * max(1.0, abs(before))
        if not same:
            return False, f"{name} on {split} is {now}, on record is {before}"
    return True, f"{len(compared)} metrics of the {split} split are as stored; {detail}".rstrip(
        "; "
    )


N_STEPS, RATE = 3, 0.05  # of the training with one thread and with two


def one_thread_is_many(fixture: Word2VecFixture) -> Finding | None:
    """A few steps of the run's training give the same bits with one thread as with two."""
    if not has_data(fixture.run) or not (fixture.run / RECIPE).exists():
        return None
    recipe, corpus = build(read(fixture.run / RECIPE)), reopen(fixture.run)
    tensors, n_threads = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(seed_of(recipe.train.seed))
            model = untrained(recipe, corpus)
            copies = ThreadCopies(model, N_TOKENS)
            for step in range(N_STEPS):
                seeds = [seed_of(step, p) for p in range(model.config.shares)]
                copies.read(corpus.train.ids[step * N_TOKENS :][:N_TOKENS], RATE, seeds)
            copies.pool.shutdown()
            tensors.append(weights(model))
    finally:
        torch.set_num_threads(n_threads)
    for name, tensor in tensors[0].items():
        if not torch.equal(tensor, tensors[1][name]):
            return False, f"{name} differs between one thread and two"
    shares = fixture.model.config.shares
    return True, f"{N_STEPS} steps in {shares} shares: one thread and two give the same bits"


def word_loss_is_on_record(fixture: Word2VecFixture) -> Finding | None:
    """The loss of the held-out split, measured again, is the one that the run has stored."""
    run = fixture.run
    if fixture.tokenizer is None or not has_data(run) or not (run / RECIPE).exists():
        return None
    try:
        split, shard = held_out(run, fixture.tokenizer)
        metadata = Run(run).metadata
        stored = metadata["metrics"][split]["loss"]["value"]
    except (UserError, KeyError):
        return None
    tokens = final_parts(build(read(run / RECIPE)).train, reopen(run), metadata["steps"])[split]
    sample = final_sample(shard, tokens, 0)
    value = word_losses(fixture.model, sample).metrics()["loss"].value
    return value == stored, f"loss on {split}: {stored!r} on record, {value!r} measured"
