"""A training session: from a recipe and a folder to a fitted model, afresh or from a checkpoint.

Whatever is refused before the first step leaves no folder behind; whatever is stopped later leaves
one that can be resumed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.data.corpus import Corpus, prepare, reopen
from regard.decoding import ForbiddenTransitions
from regard.errors import UserError
from regard.models.counts import CountingFit
from regard.models.hidden_markov import EMModel
from regard.models.ngrams import has_numba
from regard.models.supervised import Budget, FittedModel, NeuralSupervisedModel
from regard.models.word2vec import Word2Vec
from regard.recipe import Recipe, build, read, to_toml
from regard.run import (
    FORBIDDEN,
    METRICS,
    RECIPE,
    WEIGHTS,
    Metrics,
    described,
    open_run,
    replacing,
    sweep,
    weights,
    write_config,
    write_tensors,
    write_text,
)
from regard.tokenizers import Pretrained
from regard.training import checkpoint
from regard.training.distributed import ALONE, ProcessGroup
from regard.training.em_loop import EMLoop, SingleLoop
from regard.training.init_from import PRETRAINED, begin, lend, tokens_of
from regard.training.loop import seed_of
from regard.training.precision import choose_device, idle, settings
from regard.training.progress import Interrupt, Reporter
from regard.training.throughput import Clock, check_weights, measure
from regard.training.trainer import Trainer
from regard.training.word2vec_training import Word2VecLoop

SLOW = 10_000_000  # tokens whose counting is felt
CALIBRATION = 0.03  # of the minutes pass while it is found out how many steps they are
MEASURING = 0.05  # of the minutes are for measuring a model that counts
CLOSING = 1.0  # seconds for its intervals and files
TIMED = 100  # steps of a run from which a few are timed beforehand


@dataclass(frozen=True)
class TrainingOutcome:
    """What a session leaves for measuring: the recipe as carried out, the data, how it ended."""

    recipe: Recipe
    corpus: Corpus
    forbidden: ForbiddenTransitions | None
    outcome: str  # done, early or interrupted
    signal: int  # that interrupted it
    facts: dict[str, Any]  # parameters, steps, train_seconds and more, for regard.json
    clock: Clock | None = None  # of a run whose minutes decide
    parts: dict[str, int] | None = None  # tokens of each held-out split to measure, where known


@dataclass(frozen=True)
class Session:
    """Where a model is trained and who is told; `began` is when train.minutes began to count.

    Of a world of processes all take part, and the first alone writes.
    """

    run: Path
    resume: bool
    reporter: Reporter
    began: float
    world: ProcessGroup = ALONE

    def fit(self, recipe: Recipe) -> TrainingOutcome:
        """Fit the recipe's model in the run folder; one that is resumed keeps its own recipe."""
        world = self.world
        # a missing GPU is told before anything is written
        world.together(lambda: choose_device(recipe.train.device, world))
        with contextlib.ExitStack() as stack:
            new = world.broadcast_from_rank0(lambda: stack.enter_context(self.folder()))
            recipe = world.build_then_open(lambda: self.carried(recipe, new), self.stored)
            corpus = world.build_then_open(lambda: self.corpus(recipe), lambda: reopen(self.run))
            forbidden = world.build_then_open(
                lambda: self.forbidden(recipe, corpus, new),
                lambda: self.forbidden(recipe, corpus, False),
            )
            cls = recipe.family
            if issubclass(cls, (CountingFit, FittedModel)):
                known = world.broadcast_from_rank0(
                    lambda: count(recipe, corpus, self.run, self.reporter.say, self.began)
                )
                return TrainingOutcome(recipe, corpus, forbidden, "done", 0, known)
            for kind, loop in ((EMModel, EMLoop), (Word2Vec, Word2VecLoop)):
                if issubclass(cls, kind):
                    return self.by_one(loop, recipe, corpus, forbidden, new)
            with settings(recipe.train, choose_device(recipe.train.device, world)):
                trainer = self.trainer(recipe, corpus, forbidden)
                recipe = self.settled(recipe, trainer)
                self.enter(trainer, recipe, new)
                outcome = trainer.run()
            trainer.stepper.release()
            if planned := trainer.progress.steps:  # on the way
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
            )

    def by_one(
        self,
        loop: Callable[..., SingleLoop],
        recipe: Recipe,
        corpus: Corpus,
        forbidden: ForbiddenTransitions | None,
        new: bool,
    ) -> TrainingOutcome:
        """Fit a model as only one process can: the first does, the others wait, until it has
        saved.
        """
        world = self.world

        def work() -> tuple[int, str, int, dict[str, Any]]:
            torch.manual_seed(seed_of(recipe.train.seed))
            worker = loop(recipe, corpus, self.run, self.reporter, forbidden=forbidden)
            worker.repeated = world.size > 1
            return worker.fit(recipe, new=new, began=self.began)

        with contextlib.nullcontext() if world.first else Interrupt(repeated=True):
            steps, outcome, signal, known = world.broadcast_from_rank0(work)
        return TrainingOutcome(
            recipe.replace(train={"steps": steps}), corpus, forbidden, outcome, signal, known
        )

    @contextlib.contextmanager
    def folder(self) -> Iterator[bool]:
        """The run folder, made or taken over, for one process; True if training starts afresh.

        If what happens inside is refused before training starts, a folder made here goes again.
        """
        run = self.run
        if run.exists() and not run.is_dir():
            raise UserError(f"--out {run} is a file; name a new folder")
        started = (run / RECIPE).exists()
        if run.exists() and any(run.iterdir()) and not self.resume:
            hint = (
                "add --resume to go on, or choose another --out"
                if started
                else "choose another --out"
            )
            raise UserError(f"{run} exists and is not empty: {hint}")
        made = [path for path in (run, *run.parents) if not path.exists()]
        ours = bool(made) or not any(run.iterdir())
        try:
            run.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot create {run}: {error.strerror}") from None
        if self.resume and not checkpoint.steps(run) and not (run / PRETRAINED).exists():
            self.reporter.say(f"no checkpoint in {run}: starting from the beginning")
        try:
            with alone(run):
                sweep(run)
                checkpoint.sweep(run)
                yield not (self.resume and started)
        except Exception:
            if ours and not (run / METRICS).exists():
                shutil.rmtree(made[-1] if made else run, ignore_errors=True)
            raise

    def stored(self) -> Recipe:
        """The run's own recipe."""
        return build(read(self.run / RECIPE))

    def carried(self, recipe: Recipe, new: bool) -> Recipe:
        """The recipe to carry out: a new run stores the one that is asked for."""
        if not new:
            return self.stored()
        write_text(self.run / RECIPE, to_toml(recipe))
        return recipe

    def corpus(self, recipe: Recipe) -> Corpus:
        """The tokenised data, from RUN/data where it is whole; says what was left out."""
        fixed = bool(checkpoint.steps(self.run))
        corpus = prepare(
            recipe.data,
            recipe.tokens,
            self.run,
            self.reporter.say,
            fixed=fixed,
            task=recipe.task,
            start=tokens_of(recipe.train.start),
        )
        for line in (*corpus.warnings, *corpus.cut(context(recipe.model.config))):
            self.reporter.warn(line)
        return corpus

    def forbidden(self, recipe: Recipe, corpus: Corpus, new: bool) -> ForbiddenTransitions | None:
        """The forbidden transitions of a recipe, saved in the run; the data must not break them."""
        asked, tokenizer, shard = recipe.train.forbid, corpus.tokenizer, corpus.train
        path = self.run / FORBIDDEN
        if not asked:
            return None
        if not new and path.exists():
            return ForbiddenTransitions.load(path)
        if asked == "unseen":
            size, start, end = tokenizer.vocab_size, tokenizer.start, tokenizer.end
            found = ForbiddenTransitions.unseen([shard.ids], size, start=start, end=end)
        else:
            found = ForbiddenTransitions.from_file(asked, tokenizer)
            broken = found.violations(shard.ids, shard.offsets)
            if broken:
                first = tokenizer.decode(shard.record(broken[0])[:60])
                raise UserError(
                    f"{asked}: {len(broken):,} training records contain a forbidden transition, "
                    f"the first is record {broken[0]:,}: {first!r}"
                )
        with replacing(path) as temporary:
            found.save(temporary)
        return found

    def trainer(
        self, recipe: Recipe, corpus: Corpus, forbidden: ForbiddenTransitions | None
    ) -> Trainer:
        """A trainer before its first step; the seed alone decides its weights."""
        torch.manual_seed(seed_of(recipe.train.seed))
        start, size = recipe.train.start, corpus.tokenizer.vocab_size
        if isinstance(corpus.tokenizer, Pretrained) and tokens_of(start):
            size = described(open_run(start))[2]  # published models round up
        config = fitting(recipe.model.config, corpus)
        device = choose_device(recipe.train.device, self.world)
        check_weights(lambda: recipe.family(size, config), config, device)
        model = recipe.family(size, config)
        if start and not checkpoint.steps(self.run):
            if tokens_of(start):
                self.reporter.say(begin(model, Path(start)))
            else:
                self.reporter.say(lend(model, Path(start), corpus.tokenizer))
        if isinstance(model, NeuralSupervisedModel):
            model.measure(corpus.train)
        return Trainer(
            model, corpus, recipe, self.run, self.reporter, forbidden=forbidden, world=self.world
        )

    def settled(self, recipe: Recipe, trainer: Trainer) -> Recipe:
        """The recipe with the number of steps that fit into its minutes, which is stored; the
        trainer's forecast then knows how long they take.
        """
        steps = recipe.train.steps
        if steps and (trainer.forecast is None or steps < TIMED or self.world.size > 1):
            return recipe
        if steps:
            pace = measure(trainer, 0.0)
        else:
            trainer.clock = clock = Clock(self.began, recipe.train.minutes * 60)
            pace = measure(trainer, max(0.0, CALIBRATION * clock.left))
            steps = pace.steps_within(clock)
            if trainer.compile(steps):  # repaid by so many
                pace = measure(trainer, max(0.0, CALIBRATION * clock.left))
                steps = pace.steps_within(clock)
            trainer.plan(steps)
            trainer.pace, trainer.progress.timed = pace, True
            recipe = recipe.replace(train={"steps": steps})
            self.world.on_rank0(lambda: write_text(self.run / RECIPE, to_toml(recipe)))
        if trainer.forecast is not None:
            trainer.forecast = trainer.forecast.timed(pace.per_step, pace.cost(steps))
        return recipe

    def enter(self, trainer: Trainer, recipe: Recipe, new: bool) -> None:
        """Take the newest checkpoint of a run that goes on, and say what will be done."""
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
        self.world.on_rank0(lambda: write_config(self.run, recipe.model.name, trainer.model))
        resumed = not new and trainer.resume()
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
        if hint := idle(trainer.device, self.world):
            self.reporter.say(hint)


def context(config: Any) -> int:
    """How many tokens a model reads at once; 0 where there is no limit."""
    return int(getattr(config, "max_len", 0))


def fitting(config: Any, corpus: Corpus) -> Any:
    """The configuration with what the data decide: the vocabulary of a translator's sources, where
    they have one of their own, how many answers there are, how images are cut and points grouped.
    """
    source, targets = corpus.source_tokenizer, corpus.targets
    if targets is not None:
        own = corpus.tokenizer.decides
        own = {key: own[key] for key in own if hasattr(config, key)}  # whoever counts, needs none
        return dataclasses.replace(config, task=targets.task, n_outputs=targets.n_outputs, **own)
    if source is None or source is corpus.tokenizer:
        return config
    return dataclasses.replace(config, source_vocab=source.vocab_size, **source.decides)


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


def count(
    recipe: Recipe, corpus: Corpus, run: Path, say: Callable[[str], None], started: float
) -> dict[str, Any]:
    """Fit a model that counts, within the minutes that began at `started`; its facts."""
    began = time.monotonic()
    shard = corpus.train
    cls = recipe.family
    model = cls(corpus.tokenizer.vocab_size, fitting(recipe.model.config, corpus))
    if shard.tokens > SLOW and not has_numba():
        say("counting is many times faster with numba: pip install 'regard[fast]'")
    say(f"fitting {recipe.model.name} to {shard.records:,} records")
    seconds = math.inf if recipe.train.steps else recipe.train.minutes * 60
    budget = Budget(say, (1 - MEASURING) * seconds - (began - started) - CLOSING)
    model.fit(shard, corpus.valid, say, budget)
    seconds = time.monotonic() - began
    write_config(run, recipe.model.name, model)  # with what fitting has chosen
    write_tensors(run / WEIGHTS, weights(model))
    metrics = Metrics(run)
    metrics.log("train", step=1, symbols=shard.symbols, seconds=seconds)
    metrics.close()
    return {
        "parameters": sum(t.numel() for t in model.state_dict().values()),
        "steps": 1,
        "train_seconds": round(seconds, 3),
        "symbols_per_second": round(shard.symbols / max(seconds, 1e-9), 1),
        "device": "cpu",
        **({"reductions": budget.reductions} if budget.reductions else {}),
    }
