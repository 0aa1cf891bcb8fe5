"""One sequence per row, token by token, and the host's record of it.

Tokens stay on the device; the host looks at them every step on a CPU, where looking is free, and
every few steps elsewhere, at those of some steps ago, so that an accelerator never waits for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decode.engine import Batch, Generated
from regard.errors import UserError

DIVERGED = (
    "the model's logits are not finite numbers: its weights have diverged or overflowed; train it "
    "again with a lower train.lr, or decode in fp32"
)
Pick = Callable[[Tensor, int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Said:
    """What was picked in some steps, on its way to the host."""

    ids: Tensor  # (steps, B)
    scores: Tensor  # (steps, B)
    logits: tuple[Tensor, ...]  # (B, V) each, where they are
    arrived: torch.cuda.Event | None


def send(picked: list[tuple[Tensor, Tensor, Tensor]]) -> Said:
    """Ids (B,), scores (B,) and the logits (B, V) they were picked from, a triple per step, sent to
    the host, which need not wait for them yet.
    """
    ids, scores, logits = zip(*picked, strict=True)
    if len(picked) == 1:  # no copy
        one, other = ids[0][None], scores[0][None]
    else:
        one, other = torch.stack(ids), torch.stack(scores)
    if not one.is_cuda:
        return Said(one, other, logits, None)
    one, other = one.to("cpu", non_blocking=True), other.to("cpu", non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return Said(one, other, logits, arrived)


class Transcript:
    """The host's record of one sequence per row: who has ended, and what was said until then."""

    def __init__(self, batch: Batch) -> None:
        rows = range(len(batch.numbers))
        self.batch = batch
        self.ids: list[list[int]] = [[] for _ in rows]
        self.log_probs: list[list[float]] = [[] for _ in rows]
        self.live = list(rows)
        self.dead: set[int] = set()

    def take(self, said: Said) -> None:
        """Note what was picked."""
        if said.arrived is not None:
            said.arrived.synchronize()
        for step in zip(said.ids.tolist(), said.scores.tolist(), said.logits, strict=True):
            self._step(*step)

    def _step(self, ids: list[int], scores: list[float], logits: Tensor) -> None:
        request, ended = self.batch.request, set()
        for row in self.live:  # an ended row says nothing more
            if not math.isfinite(scores[row]):
                check_dead_end(logits[row])
                self.dead.add(row)
                ended.add(row)
                continue
            self.ids[row].append(ids[row])
            self.log_probs[row].append(scores[row])
            if request.on_token is not None:
                request.on_token(self.batch.numbers[row], ids[row])
            if ids[row] == request.end:
                ended.add(row)
        if ended:
            self.live = [row for row in self.live if row not in ended]

    def results(self, *, log_probs: bool) -> list[list[Generated]]:
        """One sequence for each row."""
        found = []
        for row, ids in enumerate(self.ids):
            values = self.log_probs[row] if log_probs else []
            finished = bool(ids) and ids[-1] == self.batch.request.end
            dead = row in self.dead
            one = Generated(
                ids=ids, log_probs=values, score=sum(values), finished=finished, dead_end=dead
            )
            found.append([one])
        return found


def follow(batch: Batch, pick: Pick, *, log_probs: bool = True) -> list[list[Generated]]:
    """Decode one sequence per row; `pick(scores, step)` chooses from (B, V) scores.

    It returns the ids (B,) and their scores (B,). Scores are log-probabilities, or the raw logits
    where `log_probs` is False, which saves normalising them. A row without any possible token has
    scores that are not finite, and ends there.
    """
    transcript = Transcript(batch)
    picked: list[tuple[Tensor, Tensor, Tensor]] = []
    unread: list[Said] = []
    logits = batch.begin()  # (B, V)
    for step in range(1, batch.request.max_new + 1):
        ids, chosen = pick(logits.log_softmax(-1) if log_probs else logits, step - 1)
        picked.append((ids, chosen, logits))
        last = step == batch.request.max_new
        if last or step % batch.every == 0:
            unread.append(send(picked))
            picked.clear()
            while len(unread) > (0 if last else batch.behind):
                transcript.take(unread.pop(0))
            if last or not transcript.live:
                break
        logits = batch.extend(ids)
    return transcript.results(log_probs=log_probs)


def check_dead_end(logits: Tensor) -> None:
    """Tell a dead end, where all logits (V,) are -inf, from a model that computes nonsense."""
    if not bool((logits == -math.inf).all()):
        raise UserError(DIVERGED)
