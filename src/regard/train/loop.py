"""The training loop: the same steps, in the same order, however often it is stopped and resumed.

Nothing about the position in the data or the random numbers is stored: a step's batch is a pure function of its number,
and every step seeds torch from (seed, step). What is stored are weights, optimizer and a few running sums.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batching import Batch, Loader
from regard.data.corpus import Corpus
from regard.decode.constraints import Forbidden
from regard.errors import UserError
from regard.models.language_model import NeuralLanguageModel
from regard.recipe import Recipe
from regard.run import WEIGHTS, Metrics, weights, write_tensors
from regard.train import checkpoint
from regard.train.objectives import next_token
from regard.train.optimizer import Optimizer
from regard.train.precision import autocast, choose_device, choose_precision
from regard.train.progress import Reporter, Status
from regard.train.schedule import factor
from regard.train.signals import Interrupt
from regard.train.validation import log_probs, nats_per_symbol

EVALUATIONS = 20  # validations in a run, unless the recipe says how often
VALIDATION_SHARE = 0.15  # tokens validated per token trained: about 5% of the time, as there is no backward pass
LOGGED = 200  # training lines in metrics.jsonl, about


def seed_of(*numbers: int) -> int:
    """One 63-bit seed from several numbers, the same everywhere."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass
class Progress:
    """What a run remembers besides tensors; saved with every checkpoint, exactly."""

    step: int = 0
    best: float | None = None  # validation nats per symbol
    best_step: int = 0
    stale: int = 0  # validations since the best
    nats: float = 0.0  # summed since the last logged line ...
    symbols: int = 0  # ... and over how many symbols
    seconds: float = 0.0  # spent training, over all sessions
    seen: int = 0  # symbols trained on
    metrics: int = 0  # bytes of metrics.jsonl


class Trainer:
    """Fits a neural language model to a corpus, in a run folder."""

    def __init__(
        self,
        model: NeuralLanguageModel,
        corpus: Corpus,
        recipe: Recipe,
        run: Path,
        reporter: Reporter,
        *,
        forbidden: Forbidden | None = None,
    ) -> None:
        train = recipe.train
        self.recipe, self.run_folder, self.corpus, self.reporter = train, run, corpus, reporter
        self.device = choose_device(train.device)
        self.precision = choose_precision(train, self.device)
        self.model = model.to(self.device)
        if self.precision == "fp64":
            self.model.double()
        self.constrain = forbidden
        self.optimizer = Optimizer(self.model, train)
        self.loader = Loader(
            corpus.train,
            corpus.tokenizer,
            max_len=model.config.max_len,
            batch_tokens=train.batch_tokens,
            seed=train.seed,
            packs=model.packs,
            micro_tokens=max(train.micro_tokens, model.config.max_len),
        )
        self.progress = Progress()
        self.steps = train.steps
        self.eval_every = train.eval_every or max(1, self.steps // EVALUATIONS)
        self.checkpoint_every = train.checkpoint_every or self.eval_every
        self.log_every = max(1, self.steps // LOGGED)
        if train.compile == "on" or (train.compile == "auto" and self.device.type == "cuda"):
            self._compile()

    def _compile(self) -> None:
        try:
            self.model.compile()
            with torch.no_grad(), autocast(self.precision, self.device):
                batch = self.move(self.loader.step(0)[0])
                self.model(batch.ids, batch.segments)
        except Exception as error:  # whatever the compiler cannot do, eager can
            self.model._compiled_call_impl = None
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            self.reporter.warn(f"torch.compile failed ({reason}); going on without it")

    def move(self, batch: Batch) -> Batch:
        """The batch on the training device."""
        if self.device.type == "cpu":
            return batch
        ids, targets = (x.to(self.device, non_blocking=True) for x in (batch.ids, batch.targets))
        segments = None if batch.segments is None else batch.segments.to(self.device, non_blocking=True)
        return Batch(ids, targets, segments, batch.items, batch.tokens, batch.symbols)

    def gradient(self, step: int) -> tuple[float, int]:
        """Accumulate the gradient of one step; its total nats and symbols."""
        torch.manual_seed(seed_of(self.recipe.seed, step))
        batches = self.loader.step(step)
        symbols = sum(batch.symbols for batch in batches)
        total = torch.zeros((), device=self.device)
        for batch in batches:
            with autocast(self.precision, self.device):
                loss, nats = next_token(
                    self.model,
                    self.move(batch),
                    label_smoothing=self.recipe.label_smoothing,
                    constrain=self.constrain,
                )
            (loss / symbols).backward()  # type: ignore[no-untyped-call]
            total += nats
        return float(total), symbols

    def take_step(self, step: int) -> tuple[float, int]:
        """One update; refuses to make it if anything is not finite."""
        nats, symbols = self.gradient(step)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if not (math.isfinite(nats) and bool(torch.isfinite(norm))):
            raise self.not_finite(step, nats)
        if self.recipe.clip:
            nn.utils.clip_grads_with_norm_(parameters, self.recipe.clip, norm)
        self.optimizer.step(factor(self.recipe.schedule, step, self.steps, self.recipe.warmup))
        return nats, symbols

    def not_finite(self, step: int, nats: float) -> UserError:
        """Say what is NaN or infinite first: step, tensor and the records of the batch."""
        candidates: list[tuple[str, Tensor]] = []
        for name, parameter in self.model.named_parameters():
            candidates.append((name, parameter.detach()))
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                candidates.append((f"the gradient of {name}", parameter.grad))
        wrong = next((name for name, x in candidates if not bool(torch.isfinite(x).all())), "the loss")
        records = self.loader.records_of(step)
        shown = ", ".join(str(r) for r in records[:5]) + (" …" if len(records) > 5 else "")
        text = self.corpus.tokenizer.decode(self.corpus.train.record(records[0])[:60])
        return UserError(
            f"step {step}: {wrong} is not finite (loss {nats}); the update was not made. "
            f"Records of the training set in this step: {shown} (the first begins {text!r}). "
            "Try a lower train.lr, or look at these records"
        )

    def validate(self) -> float | None:
        """Nats per symbol on (the beginning of) the validation set, the same part every time."""
        shard = self.corpus.valid
        if shard is None:
            return None
        most = self.eval_every * self.recipe.batch_tokens * VALIDATION_SHARE
        batches = max(1, round(most / 8192)) if most < shard.tokens else None
        stride = self.model.config.max_len  # cold windows: the cheapest, and the same every time
        values, scored = log_probs(
            self.model, shard, self.corpus.tokenizer, stride=stride, constrain=self.constrain, batches=batches
        )
        return nats_per_symbol(values, scored, shard, self.corpus.tokenizer)

    def resume(self) -> bool:
        """Take the newest whole checkpoint; False if there is none."""
        found = checkpoint.newest(self.run_folder, self.reporter.warn)
        if found is None:
            return False
        tensors, state = found
        self.model.load_state_dict(tensors["model"], strict=False)
        self.optimizer.load(tensors["optimizer"])
        self.progress = Progress(**state)
        return True

    def save(self, metrics: Metrics) -> None:
        """Write a checkpoint of this moment."""
        self.progress.metrics = metrics.offset()
        groups = {"model": weights(self.model), "optimizer": self.optimizer.tensors()}
        checkpoint.save(self.run_folder, self.progress.step, groups, asdict(self.progress))

    def run(self) -> str:
        """Train to the end; returns "done", "early" or "interrupted", the last with a checkpoint written."""
        metrics = Metrics(self.run_folder, keep=self.progress.metrics)
        self.model.train()
        self.reporter.start(self.steps, self.progress.step)
        try:
            with Interrupt() as interrupt:
                outcome = self._run(metrics, interrupt)
        finally:
            self.reporter.stop()
            metrics.close()
        return outcome

    def _run(self, metrics: Metrics, interrupt: Interrupt) -> str:
        p, began, first = self.progress, time.monotonic(), self.progress.step
        spent, seen = p.seconds, p.seen
        while p.step < self.steps:
            nats, symbols = self.take_step(p.step)
            p.step += 1
            p.nats, p.symbols, p.seen = p.nats + nats, p.symbols + symbols, p.seen + symbols
            elapsed = time.monotonic() - began
            p.seconds = spent + elapsed
            rate = (p.seen - seen) / max(elapsed, 1e-9)
            self.report(nats / symbols, rate, elapsed / (p.step - first), p.step - first)
            if p.step % self.log_every == 0 or p.step == self.steps:
                metrics.log("train", step=p.step, nats_per_symbol=p.nats / p.symbols, symbols=p.seen,
                            seconds=p.seconds, symbols_per_second=rate)  # fmt: skip
                p.nats, p.symbols = 0.0, 0
            stop = False
            if p.step % self.eval_every == 0 or p.step == self.steps:
                stop = self.evaluate(metrics)
            if p.step % self.checkpoint_every == 0 or p.step == self.steps or stop or interrupt.asked:
                self.save(metrics)
            if stop:
                return "early"
            if interrupt.asked and p.step < self.steps:
                return "interrupted"
        return "done"

    def evaluate(self, metrics: Metrics) -> bool:
        """Validate, keep the best model, log; True when patience is at its end."""
        p, value = self.progress, self.validate()
        better = value is None or p.best is None or value < p.best
        p.stale = 0 if better else p.stale + 1
        if better:
            p.best, p.best_step = value, p.step
            write_tensors(self.run_folder / WEIGHTS, weights(self.model))
        if value is not None:
            metrics.log("valid", step=p.step, nats_per_symbol=value, best=better, seconds=p.seconds)
        return bool(self.recipe.patience and p.stale >= self.recipe.patience)

    def report(self, nats: float, rate: float, per_step: float, done: int) -> None:
        """Tell the reporter; the ETA once 20 steps, or a tenth of the run, have been timed."""
        p = self.progress
        known = done >= min(20, max(1, self.steps // 10))
        eta = per_step * (self.steps - p.step) if known else None
        self.reporter.update(Status(p.step, self.steps, nats, rate, eta, p.best))


def calibrate(trainer: Trainer, seconds: float) -> int:
    """How many steps fit into `seconds`, measured on a few that the caller throws away with the trainer."""
    trainer.steps = 1_000_000
    trainer.model.train()
    trainer.take_step(0)  # the first is slow: memory is taken, kernels are chosen
    times: list[float] = []
    began = time.monotonic()
    while len(times) < 3 or (time.monotonic() - began < 0.03 * seconds and len(times) < 50):
        start = time.monotonic()
        trainer.take_step(len(times) + 1)
        times.append(time.monotonic() - start)
    per_step = sorted(times)[len(times) // 2] * (1 + VALIDATION_SHARE / 3)
    return max(1, int(seconds / per_step))


def facts(trainer: Trainer) -> dict[str, Any]:
    """What a run was, for regard.json."""
    p = trainer.progress
    return {
        "parameters": sum(x.numel() for x in trainer.model.parameters()),
        "steps": p.step,
        "best_step": p.best_step,
        "train_seconds": round(p.seconds, 3),
        "symbols_per_second": round(p.seen / p.seconds, 1) if p.seconds else None,
        "epochs": round(p.step / trainer.loader.steps_per_epoch, 3),
        "padding": round(trainer.loader.padding, 4),
        "windowed_records": trainer.loader.windowed,
        "device": str(trainer.device),
        "precision": trainer.precision,
        "threads": torch.get_num_threads(),
    }
