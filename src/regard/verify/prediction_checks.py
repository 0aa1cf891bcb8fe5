"""Checks of what only models that answer have: a record's answer and vector are its own, whatever
stands beside it; what the run says of itself can be measured again.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batching import LabelledExamples
from regard.data.collate import IGNORE
from regard.data.corpus import reopen
from regard.data.targets import LABELLED
from regard.errors import UserError
from regard.evaluation.eval_data import held_out
from regard.evaluation.language_modeling import target_name
from regard.evaluation.predictions import (
    ANSWERS,
    load_predictions,
    predict_shard,
    targets_of,
)
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel
from regard.run import FACTS, read_metadata
from regard.tokenizers import Patches, Points
from regard.tokenizers.points import PointCloud
from regard.training.objectives import SupervisedObjective
from regard.training.validation import beginning
from regard.verify.fixtures import Fixture, has_data, tokenizer_of
from regard.verify.report import Finding, Gap

RECORDS, MADE_UP, TOKENS = 48, 8, 4096  # records tried of the run's own, and made up; tokens read
BESIDE = (16, 7)  # records in a batch, in order and shuffled
STEP = 1e-6  # of a finite difference, in double precision
SMALLER = tuple(STEP / 10**n for n in range(4))
FLAT = 1e-5  # what a derivative may differ by, of its size
AGAIN = 1e-4  # what a figure may differ by: it may have been measured on another device


@dataclass(frozen=True)
class PredictionFixture(Fixture):
    """What answers, and records to ask it about: (T,) ids each, or (T, V) numbers, of different
    lengths.
    """

    records: Sequence[Tensor]

    def tried(self, model: Any) -> Tensor:
        """(R, O) answers to each record alone or, of positions, (P, O) of all of them."""
        return torch.cat([flat(model.answers(alone(ids)), model) for ids in self.records])

    def batches(self, order: Sequence[int], size: int, more: int = 0) -> Iterator[RecordRows]:
        """Records in this order, so many beside each other, each filled up to the longest and by
        `more`: with padding, or with anything where there is more.
        """
        generator = torch.Generator().manual_seed(3)
        room = int(self.whole.config.max_len)
        for first in range(0, len(order), size):
            chosen = list(order[first : first + size])
            lengths = torch.tensor([len(self.records[i]) for i in chosen])
            width = min(room, int(lengths.max()) + more)
            numbers = self.records[0].shape[1:]
            width = width if not numbers else int(lengths.max()) + more
            ids = torch.full((len(chosen), width, *numbers), self.pad).to(self.records[0].dtype)
            if more:
                kinds = 256 if numbers else self.whole.vocab_size
                ids = torch.randint(kinds, ids.shape, generator=generator).to(ids.dtype)
            for row, i in enumerate(chosen):
                ids[row, : lengths[row]] = self.records[i]
            inside = torch.arange(width) < lengths[:, None]
            yield RecordRows(chosen, Inputs(ids, inside.long()), lengths.tolist())


@dataclass(frozen=True)
class RecordRows:
    """Records beside each other: which, the rows they are in, and how long each is."""

    records: list[int]
    source: Inputs
    lengths: list[int]


def open_prediction_fixture(run: Path, model: SupervisedModel) -> PredictionFixture:
    """The model of a run folder and records to ask it about: its own where it has data, and some
    made up from the whole vocabulary.
    """
    tokenizer = tokenizer_of(run, model.vocab_size)
    room, generator = int(model.config.max_len), torch.Generator().manual_seed(0)
    records: list[Tensor] = []
    if tokenizer is not None and has_data(run):
        with contextlib.suppress(UserError):  # the checks that need the data say what is wrong
            corpus = reopen(run)
            part = beginning(corpus.test or corpus.valid or corpus.train, TOKENS)
            unasked = replace(part, targets=np.zeros(part.records, np.int32), aligned=False)
            for batch in LabelledExamples(unasked, tokenizer, room).batches(TOKENS):
                assert batch.segments is not None
                pairs = zip(batch.ids, batch.segments, strict=True)
                records += [ids[inside > 0] for ids, inside in pairs]
    if isinstance(tokenizer, Patches):
        records = [*made_up_pictures(tokenizer), *records]
        return PredictionFixture(run, model, tokenizer, records[: RECORDS + MADE_UP])
    if isinstance(tokenizer, Points):
        records = [*made_up_clouds(tokenizer), *records]
        return PredictionFixture(run, model, tokenizer, records[: RECORDS + MADE_UP])
    equal = len({len(ids) for ids in records}) == 1  # perhaps no other length can be read
    for number in range(MADE_UP):
        length = len(records[0]) if equal else min(room, 2 + 3 * number)
        ids = torch.randint(model.vocab_size, (length,), generator=generator)
        if tokenizer is not None:
            ids[0], ids[-1] = tokenizer.start, tokenizer.end
        records.insert(0, ids)
    return PredictionFixture(run, model, tokenizer, records[: RECORDS + MADE_UP])


def made_up_pictures(tokenizer: Patches) -> list[Tensor]:
    """Pictures of noise: of the size of training, and of others."""
    random = np.random.default_rng(0)
    found = []
    for number in range(MADE_UP):
        tall, wide = tokenizer.height, tokenizer.width
        if number % 2:
            tall, wide = (max(1, side * (number + 1) // MADE_UP) for side in (tall, wide))
        image = random.integers(0, 256, (tall, wide, tokenizer.channels), dtype=np.uint8)
        found.append(torch.from_numpy(tokenizer.encode_batch([image])[0]))
    return found


def made_up_clouds(tokenizer: Points) -> list[Tensor]:
    """Clouds of noise, of different numbers of points."""
    clouds = [noise(tokenizer, 2 + 5 * number, number) for number in range(MADE_UP)]
    return [torch.from_numpy(tokenizer.encode_batch([cloud])[0]) for cloud in clouds]


def noise(tokenizer: Points, count: int, seed: int) -> PointCloud:
    """A cloud of so many points anywhere."""
    random = np.random.default_rng(seed)
    points = random.normal(size=(count, tokenizer.dimensions)) * (tokenizer.reach / 4)
    features = random.normal(size=(count, len(tokenizer.mean)))
    atoms = random.choice(tokenizer.elements, count) if tokenizer.elements else np.zeros(0)
    return PointCloud(
        points.astype(np.float32), features.astype(np.float32), atoms.astype(np.uint8)
    )


def permuted_is_ordered(subject: PredictionFixture) -> Finding | None:
    """Of clouds: points in another order against the order of the file, from reading on, and tokens
    in another order; None of anything else.
    """
    model, tokenizer, gap = subject.whole, subject.tokenizer, Gap()
    if not isinstance(tokenizer, Points):
        return None
    random = np.random.default_rng(8)

    def read(ids: Tensor) -> Tensor:
        return flat(model.answers(alone(ids)), model)

    for number in range(MADE_UP):
        cloud = noise(tokenizer, 4 + 9 * number, 20 + number)
        order = random.permutation(len(cloud))
        atoms = cloud.atoms[order] if len(cloud.atoms) else cloud.atoms
        other = PointCloud(cloud.points[order], cloud.features[order], atoms)
        one, two = (
            read(torch.from_numpy(tokenizer.encode_batch([each])[0])) for each in (cloud, other)
        )
        if each_position(model):
            one = torch.cat((one[:1], one[1:][torch.from_numpy(order)]))
        gap.add(two, one, len(one))
    for ids in subject.records:
        turned = torch.from_numpy(random.permutation(len(ids) - 1)) + 1
        where = torch.cat((torch.zeros(1, dtype=torch.long), turned))
        one, two = read(ids), read(ids[where])
        gap.add(two, one[where] if each_position(model) else one, len(one))
    return gap.finding(subject.tolerance, f" of {MADE_UP + len(subject.records)} clouds")


def alone(ids: Tensor) -> Inputs:
    """A record as the only row."""
    return Inputs(ids[None], torch.ones(1, len(ids), dtype=torch.long))


def flat(found: Tensor, model: SupervisedModel) -> Tensor:
    """Answers (1, O), or those of all positions of the one row."""
    return found[0].float() if each_position(model) else found.float()


def each_position(model: SupervisedModel) -> bool:
    """Is there an answer at every position?"""
    return model.task in ("position-label", "masked")


def compare(
    subject: PredictionFixture, ways: Sequence[tuple[Sequence[int], int, int]],
    read: Callable[[Inputs], Tensor], each: bool,
) -> Gap:  # fmt: skip
    """What `read` gives of each record alone, against beside others, in some orders and sizes."""
    gap, found = Gap(), [read(alone(ids))[0].float() for ids in subject.records]
    for order, size, more in ways:
        for batch in subject.batches(order, size, more):
            rows = read(batch.source).float()
            for row, i in enumerate(batch.records):
                got = rows[row, : batch.lengths[row]] if each else rows[row]
                gap.add(got, found[i], batch.lengths[row] if each else 1)
    return gap


def in_order(subject: PredictionFixture) -> list[int]:
    """The records as they are."""
    return list(range(len(subject.records)))


def shuffled(subject: PredictionFixture) -> list[int]:
    """The records in another order."""
    generator = torch.Generator().manual_seed(4)
    return [int(i) for i in torch.randperm(len(subject.records), generator=generator)]


def batch_is_single(subject: PredictionFixture) -> Finding:
    """Answers to records beside each other, padded, against each alone."""
    ways = [(in_order(subject), BESIDE[0], 0)]
    gap = compare(subject, ways, subject.whole.answers, each_position(subject.whole))
    return gap.finding(subject.tolerance, f" of {len(subject.records)} records")


def shuffled_is_ordered(subject: PredictionFixture) -> Finding:
    """The same in another order, beside others, and with anything in the padding."""
    order = shuffled(subject)
    ways = [(order, BESIDE[1], 0), (order[::-1], BESIDE[0], 3)]
    gap = compare(subject, ways, subject.whole.answers, each_position(subject.whole))
    return gap.finding(subject.tolerance, ", anything in the padding among them")


def embedded_together_is_alone(subject: PredictionFixture) -> Finding | None:
    """Vectors of records, and of their positions, beside others against each alone."""
    model = subject.whole
    if not isinstance(model, NeuralSupervisedModel):
        return None
    ways = [(in_order(subject), BESIDE[0], 0), (shuffled(subject), BESIDE[1], 3)]
    gap = compare(subject, ways, model.embed, False)
    inner = compare(subject, ways, model.vectors, True)
    gap.worst, gap.positions = max(gap.worst, inner.worst), gap.positions + inner.positions
    largest = float(torch.cat([model.embed(alone(ids)) for ids in subject.records]).abs().max())
    return gap.finding(subject.tolerance * max(1.0, largest), ", vectors of records and positions")


def fused_is_explicit(subject: PredictionFixture) -> Finding | None:
    """The fused attention kernel against the explicit path, which forms the weights."""
    model, gap, layers = subject.whole, Gap(), 0
    for batch in subject.batches(in_order(subject), BESIDE[0]):
        tap = Tap(["*.attention.weights"])
        explicit = model.answers(batch.source, tap=tap)
        layers = len(tap.found)
        if not layers:
            return None
        got = model.answers(batch.source)
        inside = torch.ones(len(got)).bool()
        if each_position(model):
            inside = batch.source.segments > 0
        gap.add(got[inside], explicit[inside], int(inside.sum()))
    return gap.finding(subject.tolerance, f" and {layers} layers")


def probabilities_are_some(subject: PredictionFixture) -> Finding | None:
    """Probabilities of classes sum to one; those of labels are from 0 to 1."""
    output = subject.whole.output
    both = output.must_agree(output.probabilities(subject.logits.double()))
    if both is None:
        return None
    gap = Gap()
    gap.add(both[0], both[1], len(both[0]))
    return gap.finding(subject.tolerance)


def gradient_is_a_difference(subject: PredictionFixture) -> Finding | None:
    """The gradient of the objective against finite differences, in double precision: along the
    head, and along all parameters at once.
    """
    if not isinstance(subject.whole, NeuralSupervisedModel):
        return None
    model = copy.deepcopy(subject.whole).double().eval()
    batch = next(subject.batches(in_order(subject), 4))
    objective, targets = SupervisedObjective(model), made_up_targets(model, batch.source)

    def cost() -> Tensor:
        return objective.cost(model(batch.source), targets)[0]

    with torch.enable_grad():
        parameters = [p.requires_grad_() for p in model.parameters()]
        gradients = torch.autograd.grad(cost(), parameters, allow_unused=True)
    generator = torch.Generator().manual_seed(5)
    worst, directions = 0.0, 0
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    last = pairs[-2:]  # the head's, where it has its own
    for some in (last, pairs):
        for _ in range(3):
            steps = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p, _ in some]
            slope = sum(float((g * d).sum()) for (_, g), d in zip(some, steps, strict=True))
            moved = [(p, d) for (p, _), d in zip(some, steps, strict=True)]
            # where a maximum changes hands within a step, smaller ones tell
            tried = (difference(cost, moved, step) for step in SMALLER)
            gap = min(abs(slope - x) / max(abs(slope), abs(x), 1e-3) for x in tried)
            worst, directions = max(worst, gap), directions + 1
    told = f"along {directions} directions, of the head and of all {len(parameters)} tensors"
    return worst <= FLAT, f"derivatives differ by {worst:.1e} of their size (allowed {FLAT}) {told}"


def difference(
    cost: Callable[[], Tensor], moved: Sequence[tuple[Tensor, Tensor]], step: float
) -> float:
    """The slope of a cost along a direction of parameters, from four points around: what is left
    out is of the fifth order, for networks of fast waves.
    """
    ends = []
    for move in (-2, 1, 2, 1, -2):  # to 2, 1 before, 1, 2 after, and back
        for parameter, direction in moved:
            parameter.data.add_(direction, alpha=move * step)
        ends.append(float(cost()))
    return (8 * (ends[2] - ends[1]) - (ends[3] - ends[0])) / (12 * step)


def made_up_targets(model: NeuralSupervisedModel, source: Inputs) -> Tensor:
    """Something to ask of rows."""
    generator, rows = torch.Generator().manual_seed(6), source.ids.size(0)
    outputs = model.vocab_size if model.task == "masked" else int(model.config.n_outputs)
    shape = tuple(source.ids.shape[:2]) if each_position(model) else (rows,)
    targets = model.output.random_targets(shape, outputs, generator)
    if model.output.scaled:
        return targets * model.scale + model.shift
    return targets.masked_fill(source.segments == 0, IGNORE) if each_position(model) else targets


def figures_are_on_record(subject: PredictionFixture) -> Finding | None:
    """Answers to what was held out, asked again, against those kept and the figures on record."""
    run, path = subject.run, subject.run / FACTS
    if not has_data(run) or not path.exists() or subject.tokenizer is None:
        return None
    if subject.whole.task not in LABELLED:
        return None
    try:
        side, shard = held_out(run, subject.tokenizer)
    except UserError:
        return None  # nothing was held out
    facts = read_metadata(run)
    told = (facts.get("metrics") or {}).get(side)
    if not told or (facts.get("measured") or {}).get(side) != 1:
        return None
    again = predict_shard(subject.whole, shard, subject.tokenizer, targets_of(run))
    detail = ""
    if (run / ANSWERS).exists():
        before = load_predictions(run).answered
        scores = torch.from_numpy(again.scores), torch.from_numpy(before.scores)
        gap = Gap()
        gap.add(*scores, len(scores[0]))
        held, detail = gap.finding(AGAIN * max(1.0, float(scores[1].abs().max())), " kept")
        if not held:
            return False, detail
    on_record = dict(told)
    for target, found in told.get("targets", {}).items():
        on_record |= {target_name(name, target): figure for name, figure in found.items()}
    compared = {name: one for name, one in again.figures().items() if name in on_record}
    for name, figure in compared.items():
        value, now = on_record[name].get("value"), figure.to_json()["value"]
        if (value is None) != (now is None):
            return False, f"{name} on {side} is {now}, on record is {value}"
        if value is not None and abs(value - now) > AGAIN * max(1.0, abs(value)):
            return False, f"{name} on {side} is {now:.6f}, on record is {value:.6f}"
    return True, f"{len(compared)} figures of the {side} part come out again; {detail}".rstrip("; ")
