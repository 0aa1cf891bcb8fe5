"""Beam search: the W most probable prefixes of each prompt, extended side by side.

A prompt is read once and its state then copied to its W rows. A step takes the 2W best successors
of a prompt's live beams: those among the first W that end are finished and kept aside, the W best
that do not end live on, so finished sequences never crowd out live ones. With one beam nothing is
kept beside the best successor, which makes it the greedy path.

A prompt is done when no live beam can still enter its n best: log-probabilities only fall, so a
live beam's score is bounded by its present log-probability at the most favourable length. This
loses nothing, unlike stopping at the first W finished sequences.
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
    the log-probability from the prompt to here. `kept`: it lived on as a beam; `finished`: it ended
    and was put aside. Neither: it was cut off.
    """

    id: int
    parent: int | None
    token: int
    score: float
    kept: bool
    finished: bool
    step: int


@dataclass
class Trace:
    """Collects the tree of each prompt's search, by the prompt's number, to be drawn."""

    trees: dict[int, list[Node]] = field(default_factory=dict)


@dataclass(frozen=True)
class Beam:
    """Search with `width` beams for the `n_best` sequences of highest score, best first.

    The score is the log-probability divided by length ** length_penalty, the length counting the
    new tokens with the end token: 0 compares plain log-probabilities, 1 averages per token. Where
    fewer than `n_best` finish within the limit, the best of those cut off there, or at dead ends,
    stand after them, and there may still be fewer. A `trace` is filled as the search goes.
    """

    width: int = 5
    length_penalty: float = 0.0
    n_best: int = 1
    trace: Trace | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, got {self.width}")
        if not -10 <= self.length_penalty <= 10:  # beyond, powers of a length leave the numbers
            raise ValueError(f"length_penalty must be from -10 to 10, got {self.length_penalty}")
        if not 1 <= self.n_best <= self.width:
            raise ValueError(
                f"n_best must be from 1 to width, got n_best={self.n_best} and width={self.width}"
            )

    @property
    def rows(self) -> int:
        """See Strategy."""
        return self.width

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        """See Strategy."""
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
        """What a sequence of this log-probability and length is ranked by."""
        return float(log_prob / max(1, length) ** self.length_penalty)


@dataclass(frozen=True)
class BeamStep:
    """The candidates of one step, C for each of B prompts, best first, as the host reads them."""

    score: Array  # (B, C) log-probability since the prompt
    log_prob: Array  # (B, C) of the last token alone
    token: Array  # (B, C)
    parent: Array  # (B, C) the beam it extends, 0 to W - 1
    kept: Array  # (B, W) the candidates that live on, best first
    live: Array  # (B, W) their log-probability; -inf where there are fewer
    dead: Array  # (B, W) beams that could not be extended
    broken: Array  # (B, W) beams whose logits are no numbers


class Beams:
    """The device's side of a batch of searches: what is alive, and the candidates found.

    On a GPU a whole step, with choosing and reordering, is captured as one graph, which the next
    batch of this shape takes over with its memory.
    """

    def __init__(self, batch: DecodeBatch, width: int, logits: Tensor) -> None:
        """`logits` (B, V) follow the prompts, which have been read."""
        self.width, self.size = width, len(logits)
        self.offsets = torch.arange(self.size, device=batch.device)[:, None] * width  # (B, 1)
        self.captured: CapturedStep | None = None
        first = self.begin(batch, logits)
        if batch.captures:
            most = batch.request.max_new
            self.step = torch.zeros(1, dtype=torch.int64, device=batch.device)
            self.records = [field.new_zeros(most, *field.shape) for field in first]
            self._capture()
            self._record(first)

    @classmethod
    def of(cls, batch: DecodeBatch, width: int, logits: Tensor) -> Beams:
        """Those of the batch before, if they have its shape and rules; else new ones."""
        request = batch.request
        rules: tuple[object, ...] = (width, len(logits), request.max_new, request.end)
        rules += (request.banned, id(request.constraint))  # which the graph keeps alive
        kept: tuple[object, Beams] | None = batch.slot.search
        if kept is not None and kept[0] == rules:
            beams = kept[1]
            held = beams.total, beams.parents, beams.ids
            first = beams.begin(batch, logits)
            beams._hold(held)
            beams.step.zero_()
            beams._record(first)
            batch.state.fix(batch.device)
            return beams
        beams = cls(batch, width, logits)
        batch.slot.search = None if beams.captured is None else (rules, beams)
        return beams

    def begin(self, batch: DecodeBatch, logits: Tensor) -> tuple[Tensor, ...]:
        """The first candidates of each prompt."""
        self.batch = batch
        self.unread: list[tuple[Tensor, ...]] = []
        self.total = logits.new_full((self.size, self.width), -math.inf)
        self.total[:, 0] = 0  # at first there is one beam; the others are not alive
        found = self.look(logits.repeat_interleave(self.width, 0))  # (B·W, V)
        self.unread.append(found)
        return found

    def advance(self) -> None:
        """One more step."""
        if self.captured is not None:
            self.captured()
            return
        if self.width > 1:
            self.batch.select(self.parents)
        self.unread.append(self.look(self.batch.extend(self.ids)))

    def look(self, logits: Tensor) -> tuple[Tensor, ...]:
        """The fields of a Step from logits (B·W, V); from now on, what they say is alive."""
        width, size = self.width, logits.size(-1)
        count = 2 * width if width > 1 else 1
        # The best of all beams are among the best of each, which spares sorting (B, W·V).
        each = min(count, size)
        log_probs, tokens = logits.log_softmax(-1).topk(each)  # (B·W, C)
        stuck = log_probs[:, :1].isnan()  # (B·W, 1): every logit is -inf, or some are no numbers
        broken = stuck
        if logits.is_cuda or bool(stuck.any()):  # on a CPU, looking is free
            broken = stuck & (logits.amax(-1, keepdim=True) != -math.inf)
        log_probs = log_probs.masked_fill(stuck, -math.inf)
        scores = log_probs.view(-1, width, each) + self.total[:, :, None]  # (B, W, C)
        score, place = scores.flatten(1).topk(min(count, width * each))  # (B, C)
        log_prob = log_probs.view(self.size, -1).gather(1, place)
        token = tokens.view(self.size, -1).gather(1, place)
        live, kept = score.masked_fill(token == self.batch.request.end, -math.inf).topk(width)
        alive, parent = self.total > -math.inf, place // each
        dead, broken = (x.view(-1, width) & alive for x in (stuck, broken))
        self.total, self.ids = live, token.gather(1, kept).flatten()
        self.parents = (parent.gather(1, kept) + self.offsets).flatten()
        return score, log_prob, token, parent, kept, live, dead, broken

    def read(self, first: int, end: int) -> list[Array]:
        """The candidates of some steps, the fields of Step stacked, brought to the host."""
        if self.captured is not None:
            return [record[first:end].numpy(force=True) for record in self.records]
        unread, self.unread = self.unread, []
        return [torch.stack(field).numpy(force=True) for field in zip(*unread, strict=True)]

    def _capture(self) -> None:
        """Make a step a CUDA graph, without taking one."""
        batch, held = self.batch, (self.total, self.parents, self.ids)
        before = [x.clone() for x in held]

        def work() -> Tensor:
            if self.width > 1:
                batch.state.select(self.parents)
            found = self.look(batch.feed(self.ids))
            self._hold(held)
            self._record(found)
            return found[0]

        self.parents.copy_(torch.arange(len(self.parents), device=batch.device))  # moves nothing
        self.captured = CapturedStep(work, batch.state, batch.device, self.ids)
        for memory, value in zip(held, before, strict=True):
            memory.copy_(value)
        self.step.zero_()

    def _hold(self, held: tuple[Tensor, Tensor, Tensor]) -> None:
        """What is alive, written where it always stands."""
        for memory, value in zip(held, (self.total, self.parents, self.ids), strict=True):
            memory.copy_(value)
        self.total, self.parents, self.ids = held

    def _record(self, found: tuple[Tensor, ...]) -> None:
        for record, one in zip(self.records, found, strict=True):
            record.index_copy_(0, self.step, one[None])
        self.step.add_(1)


class Search:
    """One batch of searches: candidates on the device, finished sequences on the host."""

    def __init__(self, batch: DecodeBatch, beam: Beam) -> None:
        self.batch, self.beam, self.size = batch, beam, len(batch.numbers)
        self.steps: list[BeamStep] = []
        self.taken = [0] * self.size  # steps that count for each prompt
        # (-rank, step, candidate) of each prompt's finished sequences, best first
        self.finished: list[list[tuple[float, int, int]]] = [[] for _ in range(self.size)]
        self.dead: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]  # (step, beam)
        self.done = np.zeros(self.size, dtype=bool)

    def run(self) -> None:
        """Search until every prompt is done or has reached the limit."""
        batch, max_new = self.batch, self.batch.request.max_new
        logits = batch.begin()  # (B, V)
        batch.expand(self.beam.width)
        beams = Beams.of(batch, self.beam.width, logits)
        for step in range(1, max_new + 1):
            if step == max_new or step % batch.every == 0:
                for fields in zip(*beams.read(len(self.steps), step), strict=True):
                    self._sort_out(BeamStep(*fields))
                if step == max_new or self.done.all():
                    return
            beams.advance()

    def _sort_out(self, step: BeamStep) -> None:
        """Put aside what ended in this step, and see which prompts are done."""
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
            self.taken[prompt] = length
            best = float(step.live[prompt, 0])
            self.done[prompt] = best == -math.inf or self._safe(prompt, best, length)

    def _safe(self, prompt: int, live: float, length: int) -> bool:
        """Are the n best finished ones out of reach for a beam of log-probability `live`?"""
        finished, n_best = self.finished[prompt], self.beam.n_best
        if len(finished) < n_best:
            return False
        lengths = (min(length + 1, self.batch.request.max_new), self.batch.request.max_new)
        return -finished[n_best - 1][0] >= max(self.beam.rank(live, n) for n in lengths)

    def _path(self, prompt: int, step: int, candidate: int) -> tuple[list[int], list[float]]:
        """The tokens from the prompt to a candidate, and their log-probabilities."""
        ids, log_probs = [], []
        for at in range(step, -1, -1):
            record = self.steps[at]
            ids.append(int(record.token[prompt, candidate]))
            log_probs.append(float(record.log_prob[prompt, candidate]))
            if at:
                beam = record.parent[prompt, candidate]
                candidate = self.steps[at - 1].kept[prompt, beam]
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
        """The n best sequences of a prompt: finished ones, then, if they are too few, others."""
        n_best = self.beam.n_best
        ended = [(step, candidate) for _, step, candidate in self.finished[prompt][:n_best]]
        found = [self._generated(prompt, *place, dead=False) for place in ended]
        found.sort(key=lambda one: -one.score)  # the rounding of sums may swap neighbours
        if len(found) < n_best:
            rest = sorted(self._cut_off(prompt), key=lambda one: -one[0])[: n_best - len(found)]
            more = [self._generated(prompt, step, at, dead) for _, dead, step, at in rest]
            found += sorted(more, key=lambda one: -one.score)
        return found

    def _cut_off(self, prompt: int) -> Iterator[tuple[float, bool, int, int]]:
        """The beams still alive at the limit, or at dead ends: what they are ranked by, whether
        they are dead, step and candidate.
        """
        last, length = self.steps[-1], len(self.steps)
        if not self.done[prompt] and length == self.batch.request.max_new:
            for candidate, score in zip(last.kept[prompt], last.live[prompt], strict=True):
                if score > -math.inf:
                    yield self.beam.rank(float(score), length), False, length - 1, int(candidate)
        for step, beam in self.dead[prompt]:
            candidate = int(self.steps[step].kept[prompt, beam]) if step >= 0 else 0
            score = float(self.steps[step].live[prompt, beam]) if step >= 0 else 0.0
            yield self.beam.rank(score, step + 1), True, step, candidate

    def tree(self, prompt: int) -> Iterator[Node]:
        """Every candidate of a prompt's search, step by step."""
        end, total = self.batch.request.end, 0
        above: dict[int, int] = {}  # the node of each beam
        for at, record in enumerate(self.steps[: self.taken[prompt]]):
            kept = {
                int(candidate): beam
                for beam, candidate in enumerate(record.kept[prompt])
                if record.live[prompt, beam] > -math.inf
            }
            numbers: dict[int, int] = {}
            for candidate, score in enumerate(record.score[prompt].tolist()):
                if score == -math.inf:
                    continue
                token = int(record.token[prompt, candidate])
                if candidate in kept:
                    numbers[kept[candidate]] = total
                yield Node(
                    id=total,
                    parent=above[int(record.parent[prompt, candidate])] if at else None,
                    token=token,
                    score=score,
                    kept=candidate in kept,
                    finished=token == end and candidate < self.beam.width,
                    step=at + 1,
                )
                total += 1
            above = numbers
