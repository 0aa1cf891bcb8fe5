"""Greedy decoding: the most probable token at every step.

Sampling: temperature, top-K (Fan et al. 2018, arXiv:1805.04833) and top-P, the nucleus
(Holtzman et al. 2019, arXiv:1904.09751).

Tokens are drawn by inverting the cumulative distribution at one uniform number per sequence and
step, which comes from a counter-based generator (Philox: Salmon et al. 2011) keyed by the seed and
the sequence's number. A draw therefore depends on neither the batch nor the order of work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.decoding.engine import DecodeBatch, Generated, follow


@dataclass(frozen=True)
class Greedy:
    """Take the most probable token each time; of equals the one with the lowest id.

    Without `log_probs` the logits are never normalised, which is faster; `Generated.log_probs` is
    then empty and its score 0.
    """

    log_probs: bool = True

    @property
    def rows(self) -> int:
        """See Strategy."""
        return 1

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        """See Strategy."""
        return follow(batch, _most_probable, log_probs=self.log_probs)


def _most_probable(scores: Tensor, step: int) -> tuple[Tensor, Tensor]:
    chosen, ids = scores.max(-1)
    return ids, chosen


ROUNDING = 1e-6  # a sum of fp32 probabilities this close below p has reached it
COLDEST = 1e-6  # below this, fp32 logits divided by the temperature may overflow
SORTED_WHOLE = 4096  # vocabularies up to this size are sorted whole: cheaper than selecting first
PROBE = 1024  # in larger ones a nucleus is first sought among this many tokens


@dataclass(frozen=True)
class Sample:
    """Draw each token at random, in this order:

    1. banned tokens and forbidden transitions are ruled out;
    2. the logits are divided by `temperature` (0 means greedy);
    3. `top_k` keeps the K most probable tokens (0 keeps all);
    4. `top_p` keeps, of what is left and renormalised, the smallest set of most probable tokens
       whose mass reaches p, with the token that crosses it (1 keeps all);
    5. one token is drawn from the rest, renormalised.

    Of equally probable tokens the lower id counts as the more probable. The sequence of prompt i
    is drawn with the key (seed, i).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature != 0 and not COLDEST <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be 0 (greedy) or a number from {COLDEST:g}, "
                f"got {self.temperature}"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0 (0 keeps all), got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, got {self.seed}")

    @property
    def rows(self) -> int:
        """See Strategy."""
        return 1

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        """See Strategy."""
        if self.temperature == 0:
            return Greedy().decode(batch)
        numbers = uniforms(self.seed, batch.numbers, batch.request.max_new).to(batch.device)

        def pick(log_probs: Tensor, step: int) -> tuple[Tensor, Tensor]:
            weights, ids = self.weights(log_probs)
            drawn = draw(weights, numbers[step])[:, None]  # (B, 1)
            if ids is not None:
                drawn = ids.gather(1, drawn)
            return drawn[:, 0], log_probs.gather(1, drawn)[:, 0]

        return follow(batch, pick)

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Steps 2 to 4 for (N, V) logits: weights (N, M) and the (N, M) ids they belong to.

        Weights need not sum to one; a token left out weighs 0. No ids means that all V tokens
        are there, in order.
        """
        if self.temperature != 1:
            logits = logits / self.temperature
        size = logits.size(-1)
        if 0 < self.top_k < size:
            logits, ids = ranked(logits, self.top_k)
            return nucleus(logits.softmax(-1), self.top_p), ids
        if self.top_p == 1:
            return logits.softmax(-1), None
        weights = logits.softmax(-1)  # (N, V)
        if size > SORTED_WHOLE and logits.device.type == "cpu":
            likeliest, ids = ranked(weights, PROBE)
            if bool((likeliest.sum(-1) >= self.top_p).all()):
                return nucleus(likeliest, self.top_p), ids
        weights, ids = ranked(weights, size)
        return nucleus(weights, self.top_p), ids


def ranked(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of (N, V) scores in falling order and their ids; ties by lower id."""
    size = scores.size(-1)
    if size <= SORTED_WHOLE or count >= size:
        values, ids = torch.sort(scores, dim=-1, descending=True, stable=True)
        return values[:, :count], ids[:, :count]
    # topk says nothing about ties: of those on the border, keep the lowest ids that still fit.
    border = scores.topk(count).values[:, -1:]  # (N, 1)
    above, tied = scores > border, scores == border  # (N, V)
    room = count - above.sum(-1, keepdim=True)  # (N, 1)
    kept = above | (tied & (tied.cumsum(-1) <= room))  # (N, V)
    ids = scores.masked_fill(~kept, -math.inf).topk(count).indices.sort(-1).values  # (N, count)
    values, order = torch.sort(scores.gather(1, ids), dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


def nucleus(weights: Tensor, top_p: float) -> Tensor:
    """Zero all but the shortest prefix of (N, M) falling probabilities whose mass reaches top_p."""
    if top_p == 1:
        return weights
    reached = weights.cumsum(-1)[:, :-1] >= top_p - ROUNDING  # (N, M - 1): before the next token
    first = reached.new_zeros(len(reached), 1)  # the most probable token always stays
    return weights.masked_fill(torch.cat([first, reached], -1), 0)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw an index for each row of (N, M) weights by inverse CDF at `uniform` (N,) in [0, 1)."""
    mass = weights.cumsum(-1)  # (N, M)
    target = uniform[:, None] * mass[:, -1:]  # (N, 1)
    found = torch.searchsorted(mass, target, right=True).clamp(max=weights.size(-1) - 1)  # (N, 1)
    # A parallel sum may round so that it rises where a weight is 0: never draw that token.
    possible = weights.gather(1, found) > 0
    return torch.where(possible, found, weights.argmax(-1, keepdim=True))[:, 0]


def uniforms(seed: int, numbers: list[int], count: int) -> Tensor:
    """(count, N) numbers in [0, 1): column n is the stream of the key (seed, numbers[n]).

    They are multiples of 2**-24, exact in fp32, so that none rounds up to 1.
    """
    streams = []
    for number in numbers:
        key = np.array([seed, number], dtype=np.uint64)
        bits = np.random.Philox(key=key).random_raw(count) >> np.uint64(40)
        streams.append((bits.astype(np.float64) * 2.0**-24).astype(np.float32))
    return torch.from_numpy(np.stack(streams, axis=1))
