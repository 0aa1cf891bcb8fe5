"""The check that training is repeatable: killed and resumed, it ends with the very same bits."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from regard.data.corpus import Corpus, reopen
from regard.decode import Forbidden
from regard.documents import read_lines
from regard.models.assessor import FittedAssessor, NeuralAssessor
from regard.models.counts import Counting
from regard.models.passes import IteratedModel
from regard.models.word_vectors import WordVectors
from regard.recipe import Recipe, build, read
from regard.run import METRICS, RECIPE, read_tensors, weights
from regard.schemas import Event
from regard.train import checkpoint
from regard.train.iterate import Iteration
from regard.train.loop import Loop, seed_of
from regard.train.progress import Reporter, Status
from regard.train.session import fitting
from regard.train.trainer import Trainer
from regard.train.validation import beginning
from regard.train.vectors import VectorTraining
from regard.verify.report import Finding
from regard.verify.subject import Held, has_data

STEPS, KEPT, KILLED = 4, 2, 3  # trained; a checkpoint every so many; the kill comes after this one
BATCH_TOKENS = 256
LARGEST = 50_000_000  # parameters that are trained for this check at most
COUNTED = 20_000_000  # tokens counted again at most
TIMINGS = ("seconds", "symbols_per_second")  # what differs between equal runs
FORBIDDEN = "forbidden.safetensors"  # where a run keeps its forbidden transitions


class Killed(Exception):
    """The simulated end of a process."""


class Killer(Reporter):
    """A reporter that ends training in the middle of a step, as a kill would, saving nothing."""

    def update(self, status: Status) -> None:
        """See Reporter."""
        if status.step == KILLED:
            raise Killed


def resume_bit_equality(subject: Held) -> Finding | None:
    """A few steps of the run's recipe, straight and killed and resumed; or counting again."""
    if not has_data(subject.run):
        return None
    if isinstance(subject.whole, (Counting, FittedAssessor)):
        return recount(subject.whole, reopen(subject.run))
    if not (subject.run / RECIPE).exists():
        return None
    if subject.parameters > LARGEST:
        many = f"{subject.parameters:,} parameters"
        return True, f"does not apply: {many} are too many to train here (at most {LARGEST:,})"
    recipe = build(read(subject.run / RECIPE))
    corpus = replace(reopen(subject.run), valid=None)
    with TemporaryDirectory() as folder, torch.enable_grad():
        straight, stopped = Path(folder) / "straight", Path(folder) / "stopped"
        finish(trainer(recipe, corpus, straight, subject.run))
        with contextlib.suppress(Killed):
            finish(trainer(recipe, corpus, stopped, subject.run, Killer(quiet=True)))
        resumed = trainer(recipe, corpus, stopped, subject.run, other_start=True)
        if not resumed.resume():
            return False, f"no checkpoint was left after step {KEPT}"
        from_step = resumed.progress.step
        finish(resumed)
        return compare(straight, stopped, from_step)


def finish(worker: Loop) -> None:
    """Train to the end; Ctrl-C, which training takes as a wish to save and stop, ends verifying."""
    if worker.run() == "interrupted":
        raise KeyboardInterrupt


def trainer(
    recipe: Recipe,
    corpus: Corpus,
    folder: Path,
    run: Path,
    reporter: Reporter | None = None,
    *,
    other_start: bool = False,
) -> Loop:
    """The run's own training, short and small, on the CPU.

    `other_start` begins with other weights: whatever a checkpoint fails to bring back then shows.
    """
    precision = "fp64" if recipe.train.precision == "fp64" else "fp32"
    small = {
        "steps": STEPS, "batch_tokens": min(BATCH_TOKENS, recipe.train.batch_tokens), "patience": 0,
        "eval_every": STEPS, "checkpoint_every": KEPT,
        "device": "cpu", "precision": precision, "compile": "off",
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    torch.manual_seed(seed_of(recipe.train.seed) + other_start)
    path = run / FORBIDDEN
    forbidden = Forbidden.load(path) if path.exists() else None
    recipe, reporter = recipe.replace(train=small), reporter or Reporter(quiet=True)
    cls = recipe.family
    if issubclass(cls, WordVectors):
        return VectorTraining(recipe, corpus, folder, reporter)
    if issubclass(cls, IteratedModel):  # a step of it is a pass over all there is
        part = replace(corpus, train=beginning(corpus.train, STEPS * BATCH_TOKENS))
        return Iteration(recipe, part, folder, reporter, forbidden=forbidden)
    model = cls(corpus.tokenizer.vocab_size, fitting(recipe.model.config, corpus))
    if isinstance(model, NeuralAssessor):
        model.measure(corpus.train)
    return Trainer(model, corpus, recipe, folder, reporter, forbidden=forbidden)


def compare(straight: Path, stopped: Path, from_step: int) -> Finding:
    """The last checkpoints byte by byte, and the metrics but for timings."""
    total = 0
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (checkpoint.steps(folder)[-1] / name for folder in (straight, stopped))
        if checkpoint.checksum(one) != checkpoint.checksum(other):
            return False, f"resumed from step {from_step}, {differing(one, other)} differs"
        total += one.stat().st_size
    if logged(straight) != logged(stopped):
        return False, f"resumed from step {from_step}, {METRICS} differs beyond timings"
    detail = f"{STEPS} steps straight = killed in step {KILLED}, resumed from step {from_step}"
    return True, f"{detail}: {total:,} bytes of weights and optimizer are equal"


def differing(one: Path, other: Path) -> str:
    """The first tensor in which two files differ."""
    left, right = read_tensors(one), read_tensors(other)
    for name in sorted(left.keys() | right.keys()):
        if name not in left or name not in right or not torch.equal(left[name], right[name]):
            return name
    return one.name


def logged(folder: Path) -> list[dict[str, object]]:
    """The lines of metrics.jsonl without what the clock put there."""
    events = read_lines(folder / METRICS, Event)
    return [{k: v for k, v in event.items() if k not in TIMINGS} for event in events]


def recount(model: Any, corpus: Corpus) -> Finding:
    """Fit again, twice: one table, and the run's own if all of its data could be counted."""
    shard, part = corpus.train, beginning(corpus.train, COUNTED)
    valid = corpus.valid if isinstance(model, FittedAssessor) else None  # which chooses for these
    tables = []
    for _ in range(2):
        fresh = type(model)(model.vocab_size, model.config)
        fresh.fit(part, valid, lambda said: None)
        tables.append(weights(fresh))
    if whole := part.tokens == shard.tokens:
        tables.append(weights(model))
    for table in tables[1:]:
        for name, tensor in tables[0].items():
            if name not in table or not torch.equal(tensor, table[name]):
                return False, f"{name} differs when {part.tokens:,} tokens are counted again"
    own = ", and so does the run's own" if whole else ""
    return True, f"counting {part.tokens:,} tokens twice gives the same table{own}"
