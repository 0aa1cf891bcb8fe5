"""Greedy decoding, and sampling with temperature, top-K and top-P.

Top-K is by Fan et al. 2018 (arXiv:1805.04833), top-P, the nucleus, by Holtzman et al. 2019
(arXiv:1904.09751). Tokens are drawn by inverting the cumulative distribution at one uniform number
per sequence and step, from a counter-based generator (Philox: Salmon et al. 2011) keyed by the seed
and the number of the sequence. A draw therefore depends on neither the batch nor the order of work.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.decoding.engine import DecodeBatch, Generated, decode_rows

ROUNDING = 1e-6  # a sum of fp32 probabilities this close below p has reached it
MIN_TEMPERATURE = 1e-6  # below, fp32 logits divided by the temperature may overflow
MAX_SORTED = 4096  # vocabularies up to this size are sorted: cheaper than selecting first
PROBE = 1024  # in larger ones a nucleus is first searched among this many tokens


@dataclass(frozen=True)
class Greedy:
    """Take the most probable token each time; of equals the one with the lowest id.

    Without `log_probs` the logits are never normalized, which is faster; `Generated.log_probs` is
    then empty and its score 0.
    """

    log_probs: bool = True

    @property
    def rows(self) -> int:
        return 1

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        def pick(scores: Tensor, step: int) -> tuple[Tensor, Tensor]:
            highest, ids = scores.max(-1)
            return ids, highest

        return decode_rows(batch, pick, log_probs=self.log_probs)


@dataclass(frozen=True)
class Sample:
    """Draw each token at random, in this order:

    1. banned tokens and forbidden transitions are excluded;
    2. the logits are divided by `temperature` (0 means greedy);
    3. `top_k` keeps the K most probable tokens (0 keeps all);
    4. `top_p` keeps, of these, renormalized, the smallest set of most probable tokens whose mass
       reaches p, with the token that crosses it (1 keeps all);
    5. one token is drawn from the rest, renormalized.

    Of equally probable tokens the lower id counts as the more probable. The key (seed, i) decides
    the sequence of prompt i; without a seed, every call draws other sequences.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.temperature != 0 and not MIN_TEMPERATURE <= self.temperature < math.inf:
            raise ValueError(
                f"temperature must be 0 (greedy) or a number from {MIN_TEMPERATURE:g}, "
                f"got {self.temperature}"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k must be at least 0 (0 keeps all), got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, got {self.seed}")

    @property
    def rows(self) -> int:
        return 1

    def decode(self, batch: DecodeBatch) -> list[list[Generated]]:
        if self.temperature == 0:
            return Greedy().decode(batch)
        seed = secrets.randbits(64) if self.seed is None else self.seed
        numbers = uniforms(seed, batch.numbers, batch.request.max_new).to(batch.device)

        def pick(log_probs: Tensor, step: int) -> tuple[Tensor, Tensor]:
            weights, ids = self.weights(log_probs)
            token = draw(weights, numbers[step])[:, None]  # (B, 1)
            if ids is not None:
                token = ids.gather(1, token)
            return token[:, 0], log_probs.gather(1, token)[:, 0]

        return decode_rows(batch, pick)

    def weights(self, logits: Tensor) -> tuple[Tensor, Tensor | None]:
        """Apply steps 2 to 4 to (N, V) logits: return weights (N, M) and their ids (N, M).

        Weights need not sum to one; an excluded token has 0. No ids means all V tokens in order.
        """
        if self.temperature != 1:
            logits = logits / self.temperature
        size = logits.size(-1)
        if 0 < self.top_k < size:
            logits, ids = rank(logits, self.top_k)
            return keep_nucleus(logits.softmax(-1), self.top_p), ids
        if self.top_p == 1:
            return logits.softmax(-1), None
        weights = logits.softmax(-1)  # (N, V)
        if size > MAX_SORTED and logits.device.type == "cpu":
            highest, ids = rank(weights, PROBE)
            if bool((highest.sum(-1) >= self.top_p).all()):
                return keep_nucleus(highest, self.top_p), ids
        weights, ids = rank(weights, size)
        return keep_nucleus(weights, self.top_p), ids


def rank(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest of (N, V) scores in descending order, and their ids; ties go to
    the lower id.
    """
    size = scores.size(-1)
    if size <= MAX_SORTED or count >= size:
        values, ids = torch.sort(scores, dim=-1, descending=True, stable=True)
        return values[:, :count], ids[:, :count]
    # topk does not define the order of ties: of those at the threshold, keep the lowest ids.
    threshold = scores.topk(count).values[:, -1:]  # (N, 1)
    above, tied = scores > threshold, scores == threshold  # (N, V)
    n_tied = count - above.sum(-1, keepdim=True)  # (N, 1)
    selected = above | (tied & (tied.cumsum(-1) <= n_tied))  # (N, V)
    ids = scores.masked_fill(~selected, -math.inf).topk(count).indices.sort(-1).values
    values, order = torch.sort(scores.gather(1, ids), dim=-1, descending=True, stable=True)
    return values, ids.gather(1, order)


def keep_nucleus(weights: Tensor, top_p: float) -> Tensor:
    """Zero all but the shortest prefix of (N, M) sorted probabilities whose mass reaches top_p."""
    if top_p == 1:
        return weights
    reached = weights.cumsum(-1)[:, :-1] >= top_p - ROUNDING  # (N, M - 1): before the next token
    first = reached.new_zeros(len(reached), 1)  # the most probable token always remains
    return weights.masked_fill(torch.cat([first, reached], -1), 0)


def draw(weights: Tensor, uniform: Tensor) -> Tensor:
    """Draw an index for each row of (N, M) weights by inverse CDF at `uniform` (N,) in [0, 1)."""
    mass = weights.cumsum(-1)  # (N, M)
    target = uniform[:, None] * mass[:, -1:]  # (N, 1)
    index = torch.searchsorted(mass, target, right=True).clamp(max=weights.size(-1) - 1)  # (N, 1)
    # A parallel sum may round so that it rises where a weight is 0: never draw that token.
    possible = weights.gather(1, index) > 0
    return torch.where(possible, index, weights.argmax(-1, keepdim=True))[:, 0]


def uniforms(seed: int, numbers: list[int], count: int) -> Tensor:
    """Return (count, N) numbers in [0, 1): column n is the stream of the key (seed, numbers[n]).

    They are multiples of 2**-24, exact in fp32, so that none rounds up to 1.
    """
    streams = []
    for number in numbers:
        key = np.array([seed, number], dtype=np.uint64)
        bits = np.random.Philox(key=key).random_raw(count) >> np.uint64(40)
        streams.append((bits.astype(np.float64) * 2.0**-24).astype(np.float32))
    return torch.from_numpy(np.stack(streams, axis=1))
