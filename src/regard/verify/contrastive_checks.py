"""Checks of contrastive models: a vector depends on its record alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from regard.errors import UserError
from regard.evaluation.eval_data import held_out
from regard.evaluation.retrieval import measure_retrieval
from regard.layers.tap import Tap
from regard.run import Run
from regard.tokenizers import Tokenizer, load_sources
from regard.verify.fixtures import (
    N_RECORDS,
    N_SAMPLES,
    Finding,
    Fixture,
    Gap,
    PredictionFixture,
    has_data,
    open_shard,
    open_tokenizer,
    single,
)
from regard.verify.prediction_checks import (
    BATCHES,
    METRIC_TOLERANCE,
    Layout,
    compare_batches,
    ordered,
    shuffled,
)


@dataclass(frozen=True)
class ContrastiveFixture(Fixture):
    """A contrastive model, and the texts and sources to try it on."""

    texts: PredictionFixture
    sources: PredictionFixture

    @classmethod
    def open(cls, run: Path, model: Any) -> Self:
        tokenizer = open_tokenizer(run, model.vocab_size)
        if tokenizer is None:
            raise UserError(f"{run} has no tokenizer that can be read")
        shard, most = open_shard(run), int(model.config.max_len)

        def fixture(encoder: Tokenizer, part: Any) -> PredictionFixture:
            lengths = [min(most, 2 + 3 * number) for number in range(N_SAMPLES)]
            records = encoder.sample_records(lengths)
            if part is not None:
                records += [part.record(i) for i in range(min(N_RECORDS, part.records))]
            ids = [torch.from_numpy(record.copy()) for record in records]
            if encoder.cuttable:
                ids = [record[:most].long() for record in ids]
            return PredictionFixture(run, model, encoder, ids)

        texts = fixture(tokenizer, shard)
        sources = fixture(load_sources(run, tokenizer), shard and shard.source)
        if len({len(record) for record in sources.records[N_SAMPLES:]}) == 1:
            sources = replace(sources, records=sources.records[N_SAMPLES:])  # only one size is read
        return cls(run, model, tokenizer, texts, sources)

    def compute(self, model: Any) -> Tensor:
        """Return the vectors of all sources, then those of all texts."""
        sources = [model.embed_sources(single(record)) for record in self.sources.records]
        texts = [model.embed_texts(single(record)) for record in self.texts.records]
        return torch.cat([*sources, *texts]).float()

    def parts(self) -> Iterator[tuple[PredictionFixture, Any]]:
        """Yield the records of both encoders, and how each embeds them."""
        yield self.sources, self.model.embed_sources
        yield self.texts, self.model.embed_texts


def fused_is_explicit(fixture: ContrastiveFixture) -> Finding | None:
    """The fused attention kernel gives the vectors of the explicit path."""
    gap, layers = Gap(), 0
    for part, embed in fixture.parts():
        for batch in part.batches(ordered(part), BATCHES[0]):
            tap = Tap(["*.attention.weights"])
            explicit = embed(batch.source, tap=tap)
            layers = max(layers, len(tap.activations))
            gap.add(embed(batch.source), explicit, len(explicit))
    return gap.finding(fixture.tolerance, f" and {layers} layers") if layers else None


def batch_is_single(fixture: ContrastiveFixture) -> Finding:
    """A record has the same vector padded in a batch as by itself."""
    return _compare(fixture, lambda part: [(ordered(part), BATCHES[0], 0)], "")


def shuffled_is_ordered(fixture: ContrastiveFixture) -> Finding:
    """The order of records, the others in a batch and what is in the padding change nothing."""

    def layouts(part: PredictionFixture) -> list[Layout]:
        order = shuffled(part)
        return [(order, BATCHES[1], 0), (order[::-1], BATCHES[0], 3)]

    return _compare(fixture, layouts, ", random padding among them")


def _compare(fixture: ContrastiveFixture, layouts: Any, note: str) -> Finding:
    gap, count = Gap(), 0
    for part, embed in fixture.parts():
        compare_batches(part, layouts(part), embed, gap, positional=False)
        count += len(part.records)
    return gap.finding(fixture.tolerance, f" of {count} sources and texts{note}")


def vectors_have_length_one(fixture: ContrastiveFixture) -> Finding | None:
    """Every vector has length 1, unless the model has none at all."""
    lengths = fixture.outputs.norm(dim=-1)
    if not bool(lengths.any()):
        return None
    gap = Gap()
    gap.add(lengths, torch.ones_like(lengths), len(lengths))
    return gap.finding(fixture.tolerance)


def metrics_are_on_record(fixture: ContrastiveFixture) -> Finding | None:
    """The recall of the held-out split, measured again, is the one that the run has stored."""
    run, tokenizer = fixture.run, fixture.tokenizer
    if not has_data(run) or tokenizer is None:
        return None
    try:
        split, shard = held_out(run, tokenizer, load_sources(run, tokenizer))
        stored = Run(run).metadata["metrics"][split]
    except (UserError, KeyError):
        return None
    metrics = measure_retrieval(fixture.model, shard, tokenizer).metrics()
    return _same_metrics(stored, metrics, split)


def _same_metrics(stored: Any, metrics: Any, split: str) -> Finding:
    names: Iterable[str] = [name for name in metrics if name in stored]
    for name in names:
        before, now = stored[name]["value"], metrics[name].value
        if abs(before - now) > METRIC_TOLERANCE:
            return False, f"{name} on {split} is {now}, on record is {before}"
    return True, f"{len(list(names))} metrics of the {split} split are as stored"
