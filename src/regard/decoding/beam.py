"""Beam search: the W most probable prefixes of each prompt, extended side by side.

A prompt is read once and its state then copied to its W rows. A step takes the 2W best successors
of a prompt's live beams: those among the first W that end are finished and stored, the W best that
do not end live on, so that finished sequences never crowd out live ones. With one beam a step takes
only the best successor, which is greedy decoding.

A prompt is done when no live beam can still enter its n best: log-probabilities only fall, so the
score of a live beam is bounded by its present log-probability at the most favourable length. Unlike
stopping at the first W finished sequences, this loses nothing.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from regard.decoding.cuda_graphs import CapturedStep
from regard.decoding.engine import DIVERGED, DecodeBatch, Generated
from regard.errors import UserError

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Node:
    """One candidate in the tree of a search: a token after its parent.

    `parent` is the id of another node, or None after the prompt; `step` counts from 1; `score` is
    the log-probability since the prompt. A node is `alive` if it continued as a beam, `finished` if
    it ended and was stored, and otherwise pruned.
    """

    id: int
    parent: int | None
    token: int
    score: float
    alive: bool
    finished: bool
    step: int


@dataclass
class Trace:
    """Collects the tree of each prompt's search, by the number of the prompt."""

    trees: dict[int, list[Node]] = field(default_factory=dict)


@dataclass(frozen=True)
class Beam:
    """Search with `width` beams for the `n_best` sequences of highest score, best first.

    The score is the log-probability divided by length ** length_penalty, the length counting the
    new tokens and the end token: 0 compares log-probabilities, 1 averages per token. Where fewer
    than `n_best` finish within the limit, the best of those cut off there, or at dead ends, follow
    them, and there may still be fewer. A `trace` is filled during the search.
    """

    width: int = 5
    length_penalty: float = 0.0
    n_best: int = 1
    trace: Trace | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")
        if not -10 <= self.length_penalty <= 10:  # beyond, powers of a length overflow
            raise ValueError(f"length_penalty must be from -10 to 10, got {self.length_penalty}")
        if not 1 <= self.n_best <= self.width:
            raise ValueError(
                f"n_best must be from 1 to width, got n_best={self.n_best} and width={self.width}"
            )

    @property
    def rows(self) -> int:
        return self.width

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        if batch.request.on_token is not None:
            raise ValueError("on_token cannot stream beams, whose tokens change until the end")
        search = Search(batch, self)
        search.run()
        prompts = range(len(batch.numbers))
        if self.trace is not None:
            for prompt in prompts:
                self.trace.trees[batch.numbers[prompt]] = list(search.tree(prompt))
        return [search.results(prompt) for prompt in prompts]

    def rank(self, log_prob: float, length: int) -> float:
        return float(log_prob / max(1, length) ** self.length_penalty)


@dataclass(frozen=True)
class BeamStep:
    """The candidates of one step, C for each of B prompts, best first, on the host."""

    score: Array  # (B, C) log-probability since the prompt
    log_prob: Array  # (B, C) of the last token alone
    token: Array  # (B, C)
    parent: Array  # (B, C) the beam it extends, 0 to W - 1
    survivors: Array  # (B, W) the candidates that live on, best first
    live: Array  # (B, W) their log-probability; -inf where there are fewer
    dead: Array  # (B, W) beams that could not be extended
    broken: Array  # (B, W) beams whose logits are not numbers


class BeamState:
    """The live beams of a batch of searches, on the device.

    On a GPU a complete step, with choosing and reordering, is captured as one CUDA graph, which the
    next batch of this shape reuses together with its memory.
    """

    total: Tensor  # (B, W) log-probability of each live beam, -inf where there is none
    ids: Tensor  # (B·W,) its newest token
    parents: Tensor  # (B·W,) the row it extends

    def __init__(self, batch: DecodeBatch, width: int, logits: Tensor) -> None:
        """`logits` (B, V) are those after the prompts."""
        self.width, self.size = width, len(logits)
        self.offsets = torch.arange(self.size, device=batch.device)[:, None] * width  # (B, 1)
        self.captured: CapturedStep | None = None
        first = self.start(batch, logits)
        if batch.graph_pays:
            steps = batch.request.max_new
            self.step = torch.zeros(1, dtype=torch.int64, device=batch.device)
            self.records = [field.new_zeros(steps, *field.shape) for field in first]
            self._capture()
            self._record(first)

    @classmethod
    def start_search(cls, batch: DecodeBatch, width: int, logits: Tensor) -> BeamState:
        """Return the captured state of an earlier batch with the same shape and rules, or a new
        one.
        """
        request = batch.request
        rules: tuple[object, ...] = (width, len(logits), request.max_new, request.end)
        rules += (request.banned, id(request.constraint))  # which the graph keeps alive
        cached: tuple[object, BeamState] | None = batch.slot.search
        if cached is not None and cached[0] == rules:
            beams = cached[1]
            memory = beams._tensors
            first = beams.start(batch, logits)
            beams._store(memory)
            beams.step.zero_()
            beams._record(first)
            batch.state.fix(batch.device)
            return beams
        beams = cls(batch, width, logits)
        batch.slot.search = None if beams.captured is None else (rules, beams)
        return beams

    def start(self, batch: DecodeBatch, logits: Tensor) -> tuple[Tensor, ...]:
        """Return the first candidates of each prompt."""
        self.batch = batch
        self.unread: list[tuple[Tensor, ...]] = []
        self.total = logits.new_full((self.size, self.width), -math.inf)
        self.total[:, 0] = 0  # a prompt starts with one beam
        candidates = self.choose(logits.repeat_interleave(self.width, 0))  # (B·W, V)
        self.unread.append(candidates)
        return candidates

    def advance(self) -> None:
        if self.captured is not None:
            self.captured()
            return
        if self.width > 1:
            self.batch.select(self.parents)
        self.unread.append(self.choose(self.batch.extend(self.ids)))

    def choose(self, logits: Tensor) -> tuple[Tensor, ...]:
        """Choose the next beams from logits (B·W, V), and return the fields of a BeamStep."""
        width, size = self.width, logits.size(-1)
        count = 2 * width if width > 1 else 1
        # The best of all beams are among the best of each, which saves sorting (B, W·V).
        each = min(count, size)
        log_probs, tokens = logits.log_softmax(-1).topk(each)  # (B·W, C)
        stuck = log_probs[:, :1].isnan()  # (B·W, 1): all logits are -inf, or some not a number
        broken = stuck
        if logits.is_cuda or bool(stuck.any()):  # reading a CPU tensor is free
            broken = stuck & (logits.amax(-1, keepdim=True) != -math.inf)
        log_probs = log_probs.masked_fill(stuck, -math.inf)
        scores = log_probs.view(-1, width, each) + self.total[:, :, None]  # (B, W, C)
        score, index = scores.flatten(1).topk(min(count, width * each))  # (B, C)
        log_prob = log_probs.view(self.size, -1).gather(1, index)
        token = tokens.view(self.size, -1).gather(1, index)
        unfinished = score.masked_fill(token == self.batch.request.end, -math.inf)
        live, survivors = unfinished.topk(width)
        alive, parent = self.total > -math.inf, index // each
        dead, broken = (x.view(-1, width) & alive for x in (stuck, broken))
        self.total, self.ids = live, token.gather(1, survivors).flatten()
        self.parents = (parent.gather(1, survivors) + self.offsets).flatten()
        return score, log_prob, token, parent, survivors, live, dead, broken

    def read(self, first: int, end: int) -> list[Array]:
        """Return the fields of BeamStep of some steps, stacked, on the host."""
        if self.captured is not None:
            return [record[first:end].numpy(force=True) for record in self.records]
        unread, self.unread = self.unread, []
        return [torch.stack(field).numpy(force=True) for field in zip(*unread, strict=True)]

    @property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.total, self.parents, self.ids

    def _capture(self) -> None:
        """Capture a step as a CUDA graph, without taking it."""
        batch, memory = self.batch, self._tensors
        before = [x.clone() for x in memory]

        def work() -> Tensor:
            if self.width > 1:
                batch.state.select(self.parents)
            candidates = self.choose(batch.plain_step(self.ids))
            self._store(memory)
            self._record(candidates)
            return candidates[0]

        self.parents.copy_(torch.arange(len(self.parents), device=batch.device))  # moves nothing
        self.captured = CapturedStep(work, batch.state, batch.device, self.ids)
        for tensor, value in zip(memory, before, strict=True):
            tensor.copy_(value)
        self.step.zero_()

    def _store(self, memory: tuple[Tensor, Tensor, Tensor]) -> None:
        """Copy the live beams to the memory that the graph reads."""
        for tensor, value in zip(memory, self._tensors, strict=True):
            tensor.copy_(value)
        self.total, self.parents, self.ids = memory

    def _record(self, candidates: tuple[Tensor, ...]) -> None:
        for record, value in zip(self.records, candidates, strict=True):
            record.index_copy_(0, self.step, value[None])
        self.step.add_(1)


class Search:
    """One batch of searches: candidates on the device, finished sequences on the host."""

    def __init__(self, batch: DecodeBatch, beam: Beam) -> None:
        self.batch, self.beam, self.size = batch, beam, len(batch.numbers)
        self.steps: list[BeamStep] = []
        self.n_steps = [0] * self.size  # until each prompt was done
        # (-rank, step, candidate) of each prompt's finished sequences, best first
        self.finished: list[list[tuple[float, int, int]]] = [[] for _ in range(self.size)]
        self.dead: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]  # (step, beam)
        self.done = np.zeros(self.size, dtype=bool)

    def run(self) -> None:
        """Search until every prompt is done or has reached the limit."""
        batch, max_new = self.batch, self.batch.request.max_new
        logits = batch.read_prompts()  # (B, V)
        batch.expand(self.beam.width)
        beams = BeamState.start_search(batch, self.beam.width, logits)
        for step in range(1, max_new + 1):
            if step == max_new or step % batch.every == 0:
                for fields in zip(*beams.read(len(self.steps), step), strict=True):
                    self._append(BeamStep(*fields))
                if step == max_new or self.done.all():
                    return
            beams.advance()

    def _append(self, step: BeamStep) -> None:
        """Store the sequences that ended in this step, and find the prompts that are done."""
        if step.broken.any():
            raise UserError(DIVERGED)
        self.steps.append(step)
        length, width = len(self.steps), self.beam.width
        for prompt, beam in zip(*np.nonzero(step.dead), strict=True):
            if not self.done[prompt]:
                self.dead[prompt].append((length - 2, int(beam)))
        ends = step.token[:, :width] == self.batch.request.end
        ends &= (step.score[:, :width] > -math.inf) & ~self.done[:, None]
        for prompt, candidate in zip(*np.nonzero(ends), strict=True):
            rank = self.beam.rank(float(step.score[prompt, candidate]), length)
            insort(self.finished[prompt], (-rank, length - 1, int(candidate)))
        for prompt in np.flatnonzero(~self.done).tolist():
            self.n_steps[prompt] = length
            best = float(step.live[prompt, 0])
            self.done[prompt] = best == -math.inf or self._is_final(prompt, best, length)

    def _is_final(self, prompt: int, live: float, length: int) -> bool:
        """Return whether no beam of log-probability `live` can enter the n best."""
        finished, n_best = self.finished[prompt], self.beam.n_best
        if len(finished) < n_best:
            return False
        lengths = (min(length + 1, self.batch.request.max_new), self.batch.request.max_new)
        return -finished[n_best - 1][0] >= max(self.beam.rank(live, n) for n in lengths)

    def _path(self, prompt: int, step: int, candidate: int) -> tuple[list[int], list[float]]:
        """Return the tokens from the prompt to a candidate, and their log-probabilities."""
        ids, log_probs = [], []
        for at in range(step, -1, -1):
            record = self.steps[at]
            ids.append(int(record.token[prompt, candidate]))
            log_probs.append(float(record.log_prob[prompt, candidate]))
            if at:
                beam = record.parent[prompt, candidate]
                candidate = self.steps[at - 1].survivors[prompt, beam]
        return ids[::-1], log_probs[::-1]

    def _generated(self, prompt: int, step: int, candidate: int, dead: bool) -> Generated:
        ids, log_probs = self._path(prompt, step, candidate) if step >= 0 else ([], [])
        return Generated(
            ids=ids,
            log_probs=log_probs,
            score=self.beam.rank(sum(log_probs), len(ids)),
            finished=bool(ids) and ids[-1] == self.batch.request.end,
            dead_end=dead,
        )

    def results(self, prompt: int) -> list[Generated]:
        """Return the n best sequences of a prompt: finished ones, then, if too few, others."""
        n_best = self.beam.n_best
        finished = self.finished[prompt][:n_best]
        sequences = [self._generated(prompt, step, at, dead=False) for _, step, at in finished]
        sequences.sort(key=lambda one: -one.score)  # the rounding of sums may swap neighbours
        if len(sequences) < n_best:
            others = sorted(self._unfinished(prompt), key=lambda one: -one[0])
            others = others[: n_best - len(sequences)]
            rest = [self._generated(prompt, step, at, dead) for _, dead, step, at in others]
            sequences += sorted(rest, key=lambda one: -one.score)
        return sequences

    def _unfinished(self, prompt: int) -> Iterator[tuple[float, bool, int, int]]:
        """Yield the beams still alive at the limit and those at dead ends: score, whether it is a
        dead end, step and candidate.
        """
        last, length = self.steps[-1], len(self.steps)
        if not self.done[prompt] and length == self.batch.request.max_new:
            for candidate, score in zip(last.survivors[prompt], last.live[prompt], strict=True):
                if score > -math.inf:
                    yield self.beam.rank(float(score), length), False, length - 1, int(candidate)
        for step, beam in self.dead[prompt]:
            candidate = int(self.steps[step].survivors[prompt, beam]) if step >= 0 else 0
            score = float(self.steps[step].live[prompt, beam]) if step >= 0 else 0.0
            yield self.beam.rank(score, step + 1), True, step, candidate

    def tree(self, prompt: int) -> Iterator[Node]:
        """Yield every candidate of a prompt's search, step by step."""
        end, total = self.batch.request.end, 0
        parents: dict[int, int] = {}  # the node of each beam
        for at, record in enumerate(self.steps[: self.n_steps[prompt]]):
            survivors = {
                int(candidate): beam
                for beam, candidate in enumerate(record.survivors[prompt])
                if record.live[prompt, beam] > -math.inf
            }
            nodes: dict[int, int] = {}
            for candidate, score in enumerate(record.score[prompt].tolist()):
                if score == -math.inf:
                    continue
                token = int(record.token[prompt, candidate])
                if candidate in survivors:
                    nodes[survivors[candidate]] = total
                yield Node(
                    id=total,
                    parent=parents[int(record.parent[prompt, candidate])] if at else None,
                    token=token,
                    score=score,
                    alive=candidate in survivors,
                    finished=token == end and candidate < self.beam.width,
                    step=at + 1,
                )
                total += 1
            parents = nodes
