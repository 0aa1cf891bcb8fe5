"""From a recipe and a run folder to a trained and measured model, new or resumed.

A `Session` opens or resumes the run and picks its loop. `Trainer` is the loop by gradient descent.
`evaluate_and_write` measures the result and writes the model card. An error before the first step
leaves no folder behind; a run that stops later can be resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import regard
from regard.data.batching import Batch, LabelledExamples, sample
from regard.data.corpus import Corpus, prepare, reopen
from regard.data.shards import Shard
from regard.decoding import ForbiddenTransitions
from regard.errors import UserError
from regard.evaluation import Metric, Metrics, metric_rows, metric_title, to_document
from regard.evaluation.language_modeling import (
    BATCH_TOKENS,
    MeanLoss,
    Stopped,
    mean_loss,
    truncate_shard,
)
from regard.kernels import has_numba
from regard.models.supervised import Budget
from regard.notebook import html_table
from regard.recipe import SPLITS, Recipe, build, read, to_toml
from regard.run import (
    FORBIDDEN,
    METADATA,
    METRICS,
    RECIPE,
    WEIGHTS,
    MetricsLog,
    Run,
    refuse_used,
    used,
    weights,
    write_config,
)
from regard.storage import atomic_write, sweep, write_json, write_tensors, write_text
from regard.training import checkpoint, loggers
from regard.training.checkpoint import PRETRAINED, copy_embeddings, copy_weights, tokens_of
from regard.training.defaults import ONE_PASS
from regard.training.distributed import ALONE, ProcessGroup, empty
from regard.training.film import FilmWriter, has_frame
from regard.training.loop import EMLoop, Filming, Listening, Loop, SingleLoop, seed_of
from regard.training.optimizer import factor
from regard.training.progress import Interrupt, Reporter, resident_bytes
from regard.training.step import Stepper, choose_device, idle, may_capture, settings
from regard.training.throughput import (
    SHORT_STEP,
    Clock,
    Pace,
    check_weights,
    final_parts,
    forecast_run,
    measure,
)
from regard.training.word2vec_training import Word2VecLoop

P = TypeVar("P")  # the pipeline of a run
GROUPS = 20  # groups of records, whose losses give the standard error of the mean


@torch.inference_mode()
def loss_per_target(
    objective: nn.Module,
    examples: LabelledExamples,
    device: torch.device,
    *,
    stop: Callable[[], object] = bool,
    world: ProcessGroup = ALONE,
) -> MeanLoss:
    """Return the mean loss of labelled examples; processes take batches in turn.

    Every GROUPS-th record forms a group. The standard error is that of the losses of the groups,
    whatever the loss of a record is the sum of.
    """
    was_training = objective.training
    objective.eval()
    records = np.arange(len(examples.sizes))
    groups = min(GROUPS, len(records))
    losses, targets = torch.zeros(2, groups, dtype=torch.float64)
    number = 0  # of the batch
    try:
        for group in range(groups):
            for batch in examples.batches(BATCH_TOKENS, records[group::groups]):
                if number % world.size == 0 and stop():
                    raise Stopped
                targets[group] += batch.symbols
                if number % world.size == world.rank:
                    tensors = [None if x is None else x.to(device) for x in batch.tensors()]
                    losses[group] += float(objective(*tensors)[1])
                number += 1
    finally:
        objective.train(was_training)
    return mean_loss(world.sum(losses).numpy(), targets.numpy())


class Trainer(Loop):
    """Train a neural model on a corpus by gradient descent, in a run folder."""

    def __init__(
        self,
        model: Any,
        corpus: Corpus,
        recipe: Recipe,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: ForbiddenTransitions | None = None,
        world: ProcessGroup = ALONE,
    ) -> None:
        train = recipe.train
        super().__init__(model, corpus, train, run, reporter, forbidden=forbidden, world=world)
        self.task = recipe.build_task()
        self.items = self.items or (recipe.modality("input") or recipe.modality("output")).words[1]
        self.last_step: dict[str, float] = {}
        captured = model.static_shapes and may_capture(train, world)
        self.loader = self.task.loader(model, corpus, recipe, captured=captured)
        self.stepper = Stepper(
            model,
            train,
            lambda placed, rule=forbidden: self.task.objective(placed, corpus, recipe, rule),
            world=world,
            static=self.loader.few_shapes and model.static_shapes,
        )
        self.device, self.optimizer = self.stepper.device, self.stepper.optimizer
        self.ahead: tuple[int, list[Batch]] = (-1, [])  # a step and its batches, made beforehand
        self.plan(train.steps)
        batches = self.loader.step(0, world.rank, world.size)
        self.forecast = forecast_run(model, batches, train, self.stepper) if batches else None
        if self.forecast is not None:
            self.forecast.check(train, model.config, self.device)
        self.compile(train.steps)

    def compile(self, steps: int) -> bool:
        """Compile the model if the recipe says so or it is worth it; return whether it did."""
        before = self.stepper.compiled
        if failed := self.stepper.compile_for(self.batches(0)[0], steps):
            self.reporter.warn(f"torch.compile failed ({failed}); going on without it")
        return self.stepper.compiled and not before

    def symbol_loss(self, shard: Shard, stop: Callable[[], object] = bool) -> MeanLoss:
        return super().cost(shard, stop)

    def target_loss(self, examples: LabelledExamples, stop: Callable[[], object]) -> MeanLoss:
        objective = self.stepper.objective
        return loss_per_target(objective, examples, self.device, stop=stop, world=self.world)

    def cost(self, shard: Shard, stop: Callable[[], object] = bool) -> MeanLoss:
        loss: MeanLoss = self.task.validation_loss(self, shard, stop)
        return loss

    def better(self, value: float | None) -> bool:
        return self.task.stores_last or super().better(value)

    def restore_best(self) -> None:
        super().restore_best()
        self.stepper.optimizer.forget()

    @property
    def steady(self) -> bool:
        return self.stepper.steady

    def batches(self, step: int) -> list[Batch]:
        """Return the batches of this process in a step; an empty one if it has no part in it."""
        if self.ahead[0] == step:
            return self.ahead[1]
        tokenizer = self.corpus.tokenizer
        batches = self.loader.step(step, self.world.rank, self.world.size)
        batches = batches or [empty(tokenizer.start, self.corpus.train.ids.shape[1:])]
        return self.stepper.prepared(batches, tokenizer.pad)

    def gradient(self, step: int) -> tuple[Tensor, int]:
        """Compute the gradient of a step; return the loss of each process and all symbols."""
        rank = () if self.world.first else (self.world.rank,)
        torch.manual_seed(seed_of(self.recipe.seed, step, *rank))
        batches = self.batches(step)
        symbols = max(1, self.world.total(sum(batch.symbols for batch in batches)))
        return self.stepper.gradient(batches, symbols), symbols

    def take_step(self, step: int) -> tuple[float, int]:
        """Update the weights, the same in all processes, unless the gradient is not finite."""
        nats, symbols = self.gradient(step)
        norm = self.stepper.norm()
        wait = self.stepper.tell(nats, norm)
        # while the device computes:
        rate = factor(self.recipe.schedule, step, self.steps, self.recipe.warmup)
        self.stepper.optimizer.set_rates(rate)
        if self.device.type == "cuda":
            self.ahead = step + 1, self.batches(step + 1)
        nats, length = wait()
        if not bool(torch.isfinite(nats).all() & torch.isfinite(length)):
            raise self.not_finite(step, nats)
        self.stepper.update(norm)
        self.last_step = {"learning_rate": rate * self.recipe.lr, "gradient_norm": float(length)}
        return float(nats.double().sum()), symbols

    def step_values(self) -> dict[str, float]:
        return self.last_step

    def memory_bytes(self) -> int:
        if self.device.type == "cuda":
            return int(torch.cuda.memory_allocated(self.device))
        return super().memory_bytes()

    def not_finite(self, step: int, nats: Tensor) -> UserError:
        """Return an error that names the step, the first tensor that is not finite, and the records
        of the step.
        """
        size = self.world.size
        ranks = (~torch.isfinite(nats)).nonzero().flatten().tolist() or range(size)
        records = sorted({r for rank in ranks for r in self.loader.records_of(step, rank, size)})
        shown = ", ".join(f"{r:,}" for r in records[:5]) + (" …" if len(records) > 5 else "")
        first = self.loader.step(step, ranks[0], size)[0]
        text = self.corpus.tokenizer.decode(first.ids[0, :60].numpy())
        return UserError(
            f"step {step}: {self.first_not_finite()} is not finite (loss {float(nats.sum())}); "
            "the update was not made. "
            f"Training records in this step: {shown}; the first read is {text!r}. "
            "Try a lower train.lr, or look at these records"
        )

    def facts(self) -> dict[str, Any]:
        loader, stepper = self.loader, self.stepper
        return super().facts() | {
            "epochs": round(self.progress.step / loader.steps_per_epoch, 3),
            "padding": round(loader.padding, 4),
            "windowed_records": loader.windowed,
            "device": str(self.device),
            "processes": self.world.size,
            "precision": stepper.precision,
            "compile_seconds": round(stepper.compile_seconds, 1),
            **({} if self.forecast is None else {"forecast": self.forecast.facts()}),
        }


LOOPS: dict[str, Callable[..., SingleLoop]] = {"em": EMLoop, "word2vec": Word2VecLoop}
SLOW = 10_000_000  # tokens from which counting without numba is slow
CALIBRATION = 0.03  # share of the time that is spent on timing steps
FASTER = 0.95  # a time below this share of another is clearly shorter
MEASURING = 0.05  # share of the time for evaluating a model that counts
CLOSING = 1.0  # seconds for its intervals and files
TIMED = 100  # runs of at least so many steps are timed beforehand


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of a session, to be evaluated: the final recipe, the data, how it ended."""

    recipe: Recipe
    corpus: Corpus
    forbidden: ForbiddenTransitions | None
    outcome: str  # done, early or interrupted
    signal: int  # that interrupted it
    facts: dict[str, Any]  # parameters, steps, train_seconds and more, for regard.json
    clock: Clock | None = None  # of a run whose minutes decide
    parts: dict[str, int] | None = None  # tokens of each held-out split to evaluate on, if known
    reporter: Reporter = field(default_factory=lambda: Reporter(quiet=True))
    reported: str = ""  # the split that the run is judged by; by default that of the data

    @property
    def reported_split(self) -> str:
        """The split on which measures that take long are made, too."""
        return self.reported or self.corpus.reported_split


@dataclass(frozen=True)
class Session:
    """Train the model of a recipe in a run folder; `began` is when train.minutes started.

    All processes of `world` take part, and only the first writes.
    """

    run: Path
    resume: bool
    reporter: Reporter
    began: float
    world: ProcessGroup = ALONE

    def fit(self, recipe: Recipe) -> TrainingOutcome:
        """Train the model of a recipe; a run that is resumed uses its stored recipe."""
        world = self.world
        # a missing GPU is an error before anything is written
        world.together(lambda: choose_device(recipe.train.device, world))
        world.on_rank0(lambda: loggers.check_loggers(recipe))
        with contextlib.ExitStack() as stack:
            new = world.broadcast_from_rank0(lambda: stack.enter_context(self.folder()))
            recipe = world.build_then_open(lambda: self.store(recipe, new), self.stored)
            corpus = world.build_then_open(lambda: self.corpus(recipe), lambda: reopen(self.run))
            forbidden = world.build_then_open(
                lambda: self.forbidden(recipe, corpus, new),
                lambda: self.forbidden(recipe, corpus, False),
            )
            cls = recipe.family
            if recipe.train.film and cls.loop != "gradient":
                self.reporter.say(f"no film: {recipe.model.name} does not learn step by step")
            if cls.loop in ONE_PASS:
                known = world.broadcast_from_rank0(
                    lambda: (
                        facts_of_fit(self.run)
                        or count(recipe, corpus, self.run, self.reporter, self.began)
                    )
                )
                return TrainingOutcome(
                    recipe, corpus, forbidden, "done", 0, known, reporter=self.reporter
                )
            if cls.loop in LOOPS:
                return self.fit_on_rank0(LOOPS[cls.loop], recipe, corpus, forbidden, new)
            with settings(recipe.train, choose_device(recipe.train.device, world)):
                trainer = self.trainer(recipe, corpus, forbidden)
                recipe = self.plan_steps(recipe, trainer)
                self.start(trainer, recipe, new)
                trainer.listening = self.listening(recipe)
                trainer.filming = self.filming(recipe, trainer)
                outcome = trainer.run()
            trainer.stepper.release()
            if planned := trainer.progress.steps:  # replanned during the run
                recipe = recipe.replace(train={"steps": planned})
                self.world.on_rank0(lambda: write_text(self.run / RECIPE, to_toml(recipe)))
            parts = trainer.final_parts(trainer.progress.step)
            return TrainingOutcome(
                recipe,
                corpus,
                forbidden,
                outcome,
                trainer.signal,
                trainer.facts(),
                trainer.clock,
                parts,
                self.reporter,
            )

    def listening(self, recipe: Recipe) -> Listening:
        """Return what gives the metrics of the first process to the loggers of a recipe."""
        if not self.world.first:
            return lambda metrics, step: contextlib.nullcontext()
        run, warn = self.run, self.reporter.warn
        return lambda metrics, step: loggers.listening(metrics, run, recipe, step, warn)

    def filming(self, recipe: Recipe, trainer: Trainer) -> Filming:
        """Return what takes the frames of a film at validations, if the recipe wants one."""
        if not (recipe.train.film and self.world.first):
            return lambda step: None
        writer = FilmWriter(self.run, trainer.model, trainer.corpus)

        def take(step: int) -> None:
            if has_frame(step, trainer.eval_every, trainer.steps):
                writer.take(step)

        return take

    def fit_on_rank0(
        self,
        loop: Callable[..., SingleLoop],
        recipe: Recipe,
        corpus: Corpus,
        forbidden: ForbiddenTransitions | None,
        new: bool,
    ) -> TrainingOutcome:
        """Train a model in the first process; the others wait until it has saved."""
        world = self.world

        def work() -> tuple[int, str, int, dict[str, Any]]:
            torch.manual_seed(seed_of(recipe.train.seed))
            worker = loop(recipe, corpus, self.run, self.reporter, forbidden=forbidden)
            worker.repeated = world.size > 1
            worker.listening = self.listening(recipe)
            return worker.fit(recipe, new=new, began=self.began)

        with contextlib.nullcontext() if world.first else Interrupt(repeated=True):
            steps, outcome, signal, known = world.broadcast_from_rank0(work)
        recipe, reporter = recipe.replace(train={"steps": steps}), self.reporter
        return TrainingOutcome(recipe, corpus, forbidden, outcome, signal, known, reporter=reporter)

    @contextlib.contextmanager
    def folder(self) -> Iterator[bool]:
        """Create or reuse the run folder, and lock it; yield whether the run is new.

        After an error before training has started, a folder made here is removed.
        """
        run = self.run
        if run.exists() and not run.is_dir():
            raise UserError(f"--out {run} is a file; name a new folder")
        started = (run / RECIPE).exists()
        if not self.resume:
            refuse_used(run)
        created = [path for path in (run, *run.parents) if not path.exists()]
        removable = bool(created) or not used(run)
        try:
            run.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create {run}: {error.strerror}") from None
        planned = started and not (run / METRICS).exists()  # nothing was lost
        known = planned or checkpoint.steps(run) or (run / PRETRAINED).exists()
        if self.resume and not known:
            self.reporter.say(f"no checkpoint in {run}: starting from the beginning")
        try:
            with alone(run):
                sweep(run)
                checkpoint.sweep(run)
                yield not (self.resume and started)
        except Exception:
            if removable and not (run / METRICS).exists():
                shutil.rmtree(created[-1] if created else run, ignore_errors=True)
            raise

    def stored(self) -> Recipe:
        """Return the stored recipe."""
        return build(read(self.run / RECIPE))

    def store(self, recipe: Recipe, new: bool) -> Recipe:
        """Store the recipe of a new run and return it; otherwise return the stored one."""
        if not new:
            return self.stored()
        write_text(self.run / RECIPE, to_toml(recipe))
        return recipe

    def corpus(self, recipe: Recipe) -> Corpus:
        """Return the tokenized data, from RUN/data if it is complete, and print its warnings."""
        fixed = bool(checkpoint.steps(self.run))
        init_from = tokens_of(recipe.train.init_from)
        corpus = prepare(
            recipe,
            self.run,
            self.reporter.say,
            fixed=fixed,
            init_from=init_from,
            progress=self.reporter.progress,
        )
        self.reporter.stop()
        for line in (
            *corpus.warnings,
            *corpus.truncation_warnings(context(recipe.model.config)),
        ):
            self.reporter.warn(line)
        return corpus

    def forbidden(self, recipe: Recipe, corpus: Corpus, new: bool) -> ForbiddenTransitions | None:
        """Return the forbidden transitions of a recipe, and store them in the run; it is an error
        if the training data contains one.
        """
        rule, tokenizer, shard = getattr(recipe.task, "forbid", ""), corpus.tokenizer, corpus.train
        path = self.run / FORBIDDEN
        if not rule:
            return None
        if not new and path.exists():
            return ForbiddenTransitions.load(path)
        if rule == "unseen":
            size, start, end = tokenizer.vocab_size, tokenizer.start, tokenizer.end
            forbidden = ForbiddenTransitions.unseen([shard.ids], size, start=start, end=end)
        else:
            forbidden = ForbiddenTransitions.from_file(rule, tokenizer)
            records = forbidden.violations(shard.ids, shard.offsets)
            if records:
                first = tokenizer.decode(shard.record(records[0])[:60])
                raise UserError(
                    f"{rule}: {len(records):,} training records contain a forbidden transition, "
                    f"the first is record {records[0]:,}: {first!r}"
                )
        with atomic_write(path) as temporary:
            forbidden.save(temporary)
        return forbidden

    def trainer(
        self, recipe: Recipe, corpus: Corpus, forbidden: ForbiddenTransitions | None
    ) -> Trainer:
        """Return a trainer before its first step; its weights depend on the seed only."""
        torch.manual_seed(seed_of(recipe.train.seed))
        start, size = recipe.train.init_from, corpus.tokenizer.vocab_size
        if corpus.tokenizer.padded_vocab and tokens_of(start):
            size = Run.open(start).description[2]
        config = fit_config(recipe.model.config, corpus)
        device = choose_device(recipe.train.device, self.world)
        check_weights(lambda: recipe.family(size, config), config, device)
        model = recipe.family(size, config)
        if start and not checkpoint.steps(self.run):
            if tokens_of(start):
                self.reporter.say(copy_weights(model, Path(start)))
            else:
                self.reporter.say(copy_embeddings(model, Path(start), corpus.tokenizer))
        model.prepare(corpus.train)
        return Trainer(
            model, corpus, recipe, self.run, self.reporter, forbidden=forbidden, world=self.world
        )

    def plan_steps(self, recipe: Recipe, trainer: Trainer) -> Recipe:
        """Return the recipe with the number of steps that fit into its minutes, and store it; add
        the time to the forecast of the trainer.
        """
        steps = recipe.train.steps
        if steps and (trainer.forecast is None or steps < TIMED or self.world.size > 1):
            return recipe
        if steps:
            pace = measure(trainer, 0.0)
        else:
            trainer.clock = clock = Clock(self.began, recipe.train.minutes * 60)
            pace = self.choose_threads(trainer, max(0.0, CALIBRATION * clock.left))
            steps = pace.steps_within(clock)
            if trainer.compile(steps):
                pace = measure(trainer, max(0.0, CALIBRATION * clock.left))
                steps = pace.steps_within(clock)
            trainer.plan(steps)
            trainer.pace, trainer.progress.timed = pace, True
            recipe = recipe.replace(train={"steps": steps})
            self.world.on_rank0(lambda: write_text(self.run / RECIPE, to_toml(recipe)))
        if trainer.forecast is not None:
            trainer.forecast = trainer.forecast.timed(pace.per_step, pace.cost(steps))
        return recipe

    def choose_threads(self, trainer: Trainer, seconds: float) -> Pace:
        """Return the pace with all threads of the CPU or, as long as half of them are faster, with
        fewer. Threads wait for each other after every operation, which takes long if other programs
        compute, too. Each measurement takes about `seconds`.
        """
        pace = measure(trainer, seconds)
        if trainer.device.type != "cpu" or self.world.size > 1:
            return pace
        available = threads = torch.get_num_threads()
        while threads > 1 and pace.per_step < SHORT_STEP:
            torch.set_num_threads(threads // 2)
            half = measure(trainer, seconds)
            if half.per_step > FASTER * pace.per_step:
                torch.set_num_threads(threads)
                break
            threads, pace = threads // 2, half
        trainer.progress.threads = threads
        if threads < available:
            self.reporter.say(f"{threads} of {available} threads compute: steps are faster so")
        if pace.per_step < SHORT_STEP:
            trainer.short_step = pace.per_step
        return pace

    def start(self, trainer: Trainer, recipe: Recipe, new: bool) -> None:
        """Load the newest checkpoint of a run that is resumed, and print what will be trained."""
        loader = trainer.loader
        if loader.windowed and recipe.data.strict and not loader.running:
            raise UserError(
                f"{loader.windowed:,} records are longer than model.max_len = "
                f"{recipe.model.config.max_len} and data.strict is set; raise max_len, or drop "
                "strict to have them cut"
            )
        if loader.dropped:
            most = recipe.model.config.max_len
            why = f"longer than model.max_len = {most}, or of too unlike lengths"
            if recipe.data.strict:
                raise UserError(f"{loader.dropped:,} pairs are {why}, and data.strict is set")
            self.reporter.warn(f"{loader.dropped:,} pairs do not train: they are {why}")
        name, task = recipe.model.name, recipe.task.name
        self.world.on_rank0(lambda: write_config(self.run, name, trainer.model, task))
        resumed = not new and trainer.resume()
        self.announce(trainer, recipe, resumed=resumed)
        if hint := idle(trainer.device, self.world):
            self.reporter.say(hint)

    def announce(self, trainer: Trainer, recipe: Recipe, *, resumed: bool = False) -> None:
        """Print what will be trained, and how much memory and time it takes."""
        loader = trainer.loader
        size = sum(p.numel() for p in trainer.model.parameters())
        epochs = trainer.steps / loader.steps_per_epoch
        cut = ""
        if loader.windowed and trainer.corpus.targets is None and not loader.running:
            how = "read in windows" if trainer.corpus.train.source is None else "cut"
            cut = f", {loader.windowed:,} records longer than the context {how}"
        resumed_at = f", from step {trainer.progress.step:,}" if resumed else ""
        many = f" in {self.world.size} processes" if self.world.size > 1 else ""
        self.reporter.say(
            f"training {size:,} parameters for {trainer.steps:,} steps of about "
            f"{recipe.train.batch_tokens:,} tokens ({epochs:.1f} epochs, padding "
            f"{loader.padding:.1%}{cut}) on {trainer.stepper.how()}{many}{resumed_at}"
        )
        if trainer.forecast is not None:
            self.reporter.say(trainer.forecast.line())

    def rehearse(self, recipe: Recipe) -> Corpus:
        """Read the data, time a few steps and print what would be trained; return the data."""
        with self.folder():
            corpus = self.corpus(self.store(recipe, True))
            if recipe.family.loop == "gradient":
                with settings(recipe.train, choose_device(recipe.train.device, self.world)):
                    trainer = self.trainer(recipe, corpus, self.forbidden(recipe, corpus, True))
                    self.announce(trainer, self.plan_steps(recipe, trainer))
        return corpus


def context(config: Any) -> int:
    """Return how many tokens a model reads at once; 0 if there is no limit."""
    return int(getattr(config, "max_len", 0))


def fit_config(config: Any, corpus: Corpus) -> Any:
    """Return the configuration with the values that the data determines: the vocabulary of sources
    with another tokenizer, the number of outputs, patches of images, groups of points.
    """
    values = dict(corpus.reads.model_config)
    if corpus.source_tokenizer is not None and corpus.source_tokenizer is not corpus.tokenizer:
        values["source_vocab"] = corpus.source_tokenizer.vocab_size
    if corpus.targets is not None:
        values |= {"task": corpus.targets.task, "n_outputs": corpus.targets.n_outputs}
    fields = {field.name for field in dataclasses.fields(config)}
    return dataclasses.replace(config, **{k: v for k, v in values.items() if k in fields})


@contextlib.contextmanager
def alone(run: Path) -> Iterator[None]:
    """Nobody else trains in this folder meanwhile; the system lets go when the process dies."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(run, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"another process is training in {run}") from None
    finally:
        os.close(handle)


FIT_FACTS = ("parameters", "steps", "train_seconds", "symbols_per_second", "device", "reductions")


def facts_of_fit(run: Path) -> dict[str, Any]:
    """Return the facts about a finished run, which is not fitted again: with other time left, it
    might become another model; {} if it is not finished.
    """
    metadata: dict[str, Any] = dict(Run(run).metadata)
    if metadata.get("outcome") != "done" or not (run / WEIGHTS).exists():
        return {}
    return {key: metadata[key] for key in FIT_FACTS if key in metadata}


def count(
    recipe: Recipe, corpus: Corpus, run: Path, reporter: Reporter, started: float
) -> dict[str, Any]:
    """Fit a model that counts, within the minutes that began at `started`; return facts."""
    began = time.monotonic()
    shard = corpus.train
    cls = recipe.family
    model = cls(corpus.tokenizer.vocab_size, fit_config(recipe.model.config, corpus))
    say, name = reporter.say, recipe.model.name
    if shard.tokens > SLOW and not has_numba():
        say("counting is many times faster with numba: pip install 'regard[fast]'")
    say(f"fitting {name} to {shard.records:,} records")
    seconds = math.inf if recipe.train.steps else recipe.train.minutes * 60
    seconds = (1 - MEASURING) * seconds - (began - started) - CLOSING
    budget = Budget(say, seconds, reporter.progress, name)
    budget.tick("")
    model.fit(shard, corpus.valid, say, budget)
    reporter.stop()
    seconds = time.monotonic() - began
    # after fitting, which may choose some settings
    write_config(run, name, model, recipe.task.name)
    write_tensors(run / WEIGHTS, weights(model))
    metrics = MetricsLog(run)
    read = {"items": "symbols", "read": shard.symbols, "memory_bytes": resident_bytes()}
    metrics.log("train", step=1, **read, seconds=seconds)
    metrics.close()
    return {
        "parameters": sum(t.numel() for t in model.state_dict().values()),
        "steps": 1,
        "train_seconds": round(seconds, 3),
        "symbols_per_second": round(shard.symbols / max(seconds, 1e-9), 1),
        "device": "cpu",
        **({"reductions": budget.reductions} if budget.reductions else {}),
    }


BLOCK_TOKENS = 4096  # the least size of a block, if only a sample of running text is evaluated


@dataclass(frozen=True, repr=False)
class TrainResult(Generic[P]):
    """The result of training: the run folder, how it ended, metrics of each held-out split."""

    run: Path
    task: str
    outcome: str  # done, early or interrupted
    signal: int  # that interrupted it, else 0
    steps: int
    seconds: float
    parameters: int
    splits: dict[str, Metrics]  # metrics by split and name
    measured: dict[str, float]  # share of the tokens of each split that was evaluated
    epochs: float | None = None  # None if the model is fitted in one pass
    forecast: dict[str, Any] | None = None  # of memory and time, if there was one
    warnings: tuple[str, ...] = ()  # about the data
    selection: dict[str, Any] = field(default_factory=dict)  # of a model, if several were tried

    @property
    def metrics(self) -> Metrics:
        """The metrics on the test split or, if there is none, on the validation split."""
        return self.splits.get("test") or self.splits.get("valid") or Metrics()

    @cached_property
    def model(self) -> P:
        """The best model as the pipeline of its task, on the CPU."""
        pipeline: P = Run(self.run).pipeline()
        return pipeline

    @property
    def summary(self) -> str:
        """How training ended, in a line."""
        ended = {"early": "stopped early", "done": "trained"}.get(self.outcome, self.outcome)
        steps = f"{self.steps:,} steps, " if self.steps > 1 else ""  # 1: it was fitted at once
        return f"{self.run}: {ended}, {steps}{self.seconds:.1f} s, {self.parameters:,} parameters"

    def __repr__(self) -> str:
        name, metric = next(iter(self.metrics.items()), ("", None))
        shown = f"; {metric_title(name, metric)} {metric}" if metric else "; nothing was held out"
        return f"<{type(self).__name__} {self.summary}{shown}>"

    def _repr_html_(self) -> str:
        notes = [*self.selection.get("lines", ()), *self.warnings]
        rows = metric_rows(self.splits)
        return html_table(("", *self.splits), rows, title=self.summary, notes=notes)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `regard train --json`."""
        return {
            "run": str(self.run),
            "outcome": self.outcome,
            "steps": self.steps,
            "train_seconds": round(self.seconds, 3),
            "parameters": self.parameters,
            "epochs": self.epochs,
            "metrics": {split: to_document(metrics) for split, metrics in self.splits.items()},
            "measured": self.measured,
            "forecast": self.forecast,
            "warnings": list(self.warnings),
            **({"selection": self.selection} if self.selection else {}),
        }


def evaluate_and_write(
    run: Path,
    fitted: TrainingOutcome,
    *,
    measures: bool = True,
    splits: Sequence[str] = SPLITS,
) -> TrainResult[Any]:
    """Evaluate the model on held-out splits (on a part of a large one) and write the files of a
    finished run.

    Neither is done if the run was interrupted, or without `measures`, in all processes but one.
    """
    measures = measures and fitted.outcome != "interrupted"
    facts, recipe, corpus = fitted.facts, fitted.recipe, fitted.corpus
    task = recipe.build_task()
    metrics: dict[str, Metrics] = {}
    shares: dict[str, float] = {}
    metadata: dict[str, Any] = {}
    if measures:
        model = Run(run).model().to(facts["device"])
        parts = fitted.parts or final_parts(recipe.train, corpus, facts["steps"])
        for split, tokens in parts.items():
            if split not in splits:
                continue
            shard = corpus.split(split)
            assert shard is not None
            part = shard
            if not task.measures_all:
                part = final_sample(shard, tokens, context(model.config))
            shares[split] = round(part.tokens / shard.tokens, 4)
            metrics[split] = Metrics(task.evaluate(fitted, model, Run(run), split, part))
        if fitted.clock is None or fitted.clock.left > 0:  # otherwise `look` computes it
            metadata = task.metadata(model, corpus)
    result: TrainResult[Any] = TrainResult(
        run=run,
        task=recipe.task.name,
        outcome=fitted.outcome,
        signal=fitted.signal,
        steps=facts["steps"],
        seconds=facts["train_seconds"],
        parameters=facts["parameters"],
        splits=metrics,
        measured=shares,
        epochs=facts.get("epochs"),
        forecast=facts.get("forecast"),
        warnings=(*corpus.warnings, *corpus.truncation_warnings(context(recipe.model.config))),
    )
    if measures:
        before = Run(run).metadata.get("selection")
        result = replace(result, selection=before or {})
        write_json(run / METADATA, facts_of(fitted, result) | metadata)
        write_text(run / "README.md", model_card(recipe, result))
        loggers.log_results(run, recipe, result.steps, metrics, fitted.reporter.warn)
    return result


def final_sample(shard: Shard, tokens: int, context: int) -> Shard:
    """Return a sample of about `tokens` tokens of a split, the same for all models.

    Running text is sampled in blocks that are long compared with `context`. Labelled records are in
    random order already: the sample is the first of them.
    """
    if shard.targets is not None:
        return truncate_shard(shard, tokens)
    return sample(shard, tokens, 0, block=max(BLOCK_TOKENS, 8 * context))


def facts_of(fitted: TrainingOutcome, result: TrainResult[Any]) -> dict[str, Any]:
    """Return the contents of regard.json."""
    document = result.to_json()
    return {
        "regard": regard.__version__,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "seed": fitted.recipe.train.seed,
        "outcome": fitted.outcome,
        "data": fitted.corpus.facts,
        **fitted.facts,
        "metrics": document["metrics"],
        "measured": document["measured"],
        **({"selection": result.selection} if result.selection else {}),
    }


def model_card(recipe: Recipe, result: TrainResult[Any]) -> str:
    """Return the README of a run folder."""
    card = recipe.build_task().card
    known = list(dict.fromkeys(name for metrics in result.splits.values() for name in metrics))
    shown = [name for name in card.metrics if name in known] or known
    *first, last = (f"`regard {verb.format(run='.')}`" for verb in card.verbs)
    uses = f"{', '.join(first)} and {last}"
    table = metric_table(result.splits, shown)
    return "\n".join(
        [
            f"# {recipe.model.name}, trained with regard",
            "",
            f"{result.parameters:,} parameters, "
            f"{result.steps:,} steps, {result.seconds:,.0f} seconds of training. "
            "Intervals are 95%.",
            "",
            *table,
            "",
            f"`recipe.toml` says how it was made; {uses} use it.",
            "`data/` and `checkpoints/` are only needed to resume training.",
            "",
        ]
    )


def metric_table(splits: Mapping[str, Mapping[str, Metric]], names: Sequence[str]) -> list[str]:
    """Return the lines of a Markdown table: a row for each metric, a column for each split."""
    if not splits:
        return []
    rows = [[title.replace("|", "\\|"), *cells] for title, *cells in metric_rows(splits, names)]
    head = f"| metric | {' | '.join(splits)} |"
    return [head, "|---" * (len(splits) + 1) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
