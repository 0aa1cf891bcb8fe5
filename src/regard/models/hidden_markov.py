"""Models that are fitted by passes over all the data, each of which improves them, and how a pass
reads: sequences side by side, in blocks, on all cores, with sums that do not depend on how many.

The hidden Markov model: states follow one another unseen, and each emits symbols of its own.

Rabiner 1989, "A tutorial on hidden Markov models and selected applications in speech recognition",
Proceedings of the IEEE 77(2). A chain of K states begins with `initial`, moves by `transition` and
emits by `emission`; what is known of the past is the distribution of the present state, K numbers,
where a Markov chain knows the last symbol and attention everything. In a left-right model (section
IV.A) no state is ever returned to: its transition matrix is triangular like a causal mask, but
there a position looks back, here a state only moves on.

A record is `<S> x₁ … xₙ <E>`. `<S>` is no symbol that a state could emit: after it the chain is
about to begin, wherever it stands in a row. `<E>` is emitted like any other. What is entered in the
middle, a window of running text, begins with `anywhere` instead of `initial`.

Fitted by expectation-maximisation (Baum et al. 1970; Dempster, Laird & Rubin 1977), in the scaled
form of Rabiner's section V.A, in double precision. The estimate is the mode of the posterior under
Dirichlet priors with parameters 1 + `smoothing`, (n + smoothing) / (N + smoothing · cells), over
the cells that the topology allows: so every symbol stays possible in every state, zeros of the
topology stay zeros, and no pass lowers log-likelihood plus log-prior.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.shards import Shard
from regard.layers.attention import Tap
from regard.layers.cache import DecodeState, RecurrentState, last_of
from regard.models.language_model import CHUNK, IGNORE, Constrain, LanguageModel

# Sequences read side by side: few enough for the numbers of a step to stay in a core's cache.
ROWS, TOKENS = 512, 1 << 15

Ints = NDArray[np.int64]
Found = TypeVar("Found")


@dataclass(frozen=True)
class EMPass:
    """What one pass over the data found, of the model as it was before it."""

    log_likelihood: float  # of all the data, in nats
    log_prior: float  # of the parameters, up to a constant

    @property
    def objective(self) -> float:
        """What no pass lowers."""
        return self.log_likelihood + self.log_prior


class EMModel(LanguageModel):
    """A model that is fitted by passes over all the data, each of which improves it, and without
    gradients.
    """

    @abstractmethod
    def improve(self, train: Shard) -> EMPass:
        """One pass; the same data and the same model give the same bits, on however many threads.

        The objective of the next pass is never lower than that of this one.
        """


@dataclass(frozen=True, eq=False)
class SequenceBlock:
    """Sequences read side by side, longest first: n_t of the N have a symbol number t."""

    ids: list[Tensor]  # for each t the (n_t,) symbols
    places: Tensor  # (N,) where the first symbols stand in what they were taken from
    fresh: Tensor  # (N,) does the sequence follow `<S>`?


def cut(shard: Shard, most: int) -> Iterator[SequenceBlock]:
    """The symbols after each `<S>` of a shard, in sequences of at most `most`."""
    offsets = np.asarray(shard.offsets)
    sizes = np.diff(offsets) - 1
    counts = -(-sizes // most)  # sequences of each record
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    places = np.repeat(offsets[:-1] + 1, counts) + number * most
    lengths = np.minimum(most, np.repeat(sizes, counts) - number * most)
    return blocks_of(np.asarray(shard.ids), places, lengths, number == 0, ROWS)


def blocks_of(
    ids: NDArray[Any], places: Ints, lengths: Ints, fresh: NDArray[np.bool_], rows: int
) -> Iterator[SequenceBlock]:
    """Stretches of `ids`, longest first, at most `rows` of them and TOKENS symbols to a block."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        longest = int(lengths[order[begin]])
        part = order[begin : begin + max(1, min(rows, TOKENS // longest))]
        alive = np.searchsorted(-lengths[part], -np.arange(longest))  # (T,) longer than t
        symbols = [
            torch.from_numpy(ids[places[part[:n]] + t].astype(np.int64))
            for t, n in enumerate(alive.tolist())
        ]
        yield SequenceBlock(symbols, torch.from_numpy(places[part]), torch.from_numpy(fresh[part]))
        begin += len(part)


def each_alone(
    work: Callable[[SequenceBlock], Found], blocks: Iterable[SequenceBlock]
) -> Iterator[Found]:
    """What `work` makes of every block, in their order, computed on as many threads as torch has.

    Each thread computes alone: a block is too small to be shared, and what it gives then does not
    depend on how many threads there are. Few blocks are in memory at once.
    """
    threads = torch.get_num_threads()
    ahead: deque[Future[Found]] = deque()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for block in blocks:
                ahead.append(pool.submit(work, block))
                if len(ahead) > 2 * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
    finally:
        torch.set_num_threads(threads)  # threads to come begin with what any of them has set


MOST = {"n_states": 1 << 12, "max_jump": 1 << 12, "max_len": 1 << 16}


@dataclass(frozen=True, kw_only=True)
class HiddenMarkovConfig:
    """Shape of a hidden Markov model. `max_len` is how much is read at once in training and
    scoring; decoding has no limit.
    """

    n_states: int = 64
    topology: Literal["ergodic", "left-right"] = "ergodic"
    max_jump: int = 2  # states that one step moves on at most, left-right; Rabiner's Δ
    smoothing: float = 0.1  # pseudo-counts of every cell
    max_len: int = 256

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be from 1 to {most}, got {getattr(self, name)}")
        if not 0 <= self.smoothing <= 1000:
            raise ValueError(f"smoothing must be from 0 to 1000, got {self.smoothing}")

    def reach(self) -> Tensor:
        """(K, K): may this state be followed by that one?"""
        every = torch.ones(self.n_states, self.n_states, dtype=torch.bool)
        return every if self.topology == "ergodic" else every.triu().tril(self.max_jump)

    def first(self) -> Tensor:
        """(K,): may a record begin in this state?"""
        begins = torch.ones(self.n_states, dtype=torch.bool)
        if self.topology == "left-right":
            begins[1:] = False
        return begins


@dataclass(frozen=True, eq=False)
class ExpectedCounts:
    """How often, by expectation, each thing happened in a block."""

    initial: Tensor  # (K,) first states after `<S>`
    anywhere: Tensor  # (K,) first states of what was entered in the middle
    transition: Tensor  # (K, K)
    symbols: Tensor  # (U,) that occur
    emission: Tensor  # (U, K)
    log_likelihood: float


class HiddenMarkov(EMModel):
    """A hidden Markov model with discrete emissions."""

    Config = HiddenMarkovConfig
    PRESETS: ClassVar[dict[str, Callable[[int, int], Any]]] = {
        "ergodic": lambda n_layers, d_model: resize_table(d_model, "ergodic"),
        "left-right": lambda n_layers, d_model: resize_table(d_model, "left-right"),
    }
    marker: Tensor

    def __init__(self, vocab_size: int, config: HiddenMarkovConfig) -> None:
        super().__init__(vocab_size, config)
        states = config.n_states
        self.initial = table(config.first().double())  # (K,)
        self.anywhere = table(torch.ones(states, dtype=torch.float64))  # (K,)
        self.transition = table(noise(states, states) * config.reach())  # (K, K), rows sum to 1
        self.emission = table(noise(vocab_size, states), dim=0)  # (V, K), columns sum to 1
        self.register_buffer("marker", torch.tensor(-1))  # the id of `<S>`, known from the data

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        """See LanguageModel."""
        logits = self._logits(self._predicted(ids, segments))  # (B, T, V)
        if tap is not None:
            if tap.wants("states"):
                tap("states", self.posterior(ids))
            tap("logits", logits)
        return logits

    def score(
        self,
        ids: Tensor,
        targets: Tensor,
        segments: Tensor | None = None,
        *,
        constrain: Constrain | None = None,
    ) -> Tensor:
        """See LanguageModel."""
        wanted = targets.flatten().clamp_min(0)  # (B·T,)
        predicted = self._predicted(ids, segments).flatten(0, 1)  # (B·T, K)
        rows = max(1, CHUNK // (self.vocab_size if constrain else self.config.n_states))
        parts = []
        chunks = zip(
            predicted.split(rows), ids.flatten().split(rows), wanted.split(rows), strict=True
        )
        for states, previous, target in chunks:
            if constrain is None:
                parts.append((states * self.emission[target]).sum(-1).log())
            else:
                logs = constrain(self._logits(states), previous).log_softmax(-1)  # (N, V)
                parts.append(logs.gather(1, target[:, None]).squeeze(1))
        scores = torch.cat(parts).float().view(targets.shape)
        return scores.masked_fill(targets == IGNORE, 0.0)

    def start(self, batch: int, capacity: int) -> DecodeState:
        """See LanguageModel. What is remembered is the distribution of the next state, (B, K)."""
        return DecodeState([RecurrentState(self.anywhere.expand(1, batch, -1))], batch, capacity)

    def extend(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        """See LanguageModel."""
        state.check(ids.size(1))
        memory = state.layers[0]
        assert isinstance(memory, RecurrentState)
        predicted = last_of(self._predicted(ids, None, memory.vectors[0][0]), lengths)  # (B, K)
        memory.vectors = (predicted[None],)
        state.advance(lengths, ids.size(1))
        return self._logits(predicted)

    def posterior(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, T, K): how probable each state was at each symbol, given all of its record.

        Zeros at `<S>`, which no state emits, and at padding.
        """
        found = self.emission.new_zeros(ids.numel(), self.config.n_states)
        for block in self._stretches(ids, lengths, ROWS):
            filtered, scaled, _ = self._forward(block)
            self._backward(filtered, scaled)
            for t, states in enumerate(filtered):
                found[block.places[: len(states)] + t] = states
        return found.view(*ids.shape, -1)

    def viterbi(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(B, T): the states of the most probable path through each record (Viterbi 1967).

        -1 at `<S>`, which no state emits, and at padding.
        """
        moves, found = self.transition.log(), torch.full((ids.numel(),), -1)
        for block in self._stretches(ids, lengths, max(1, CHUNK // moves.numel())):
            best = torch.where(block.fresh[:, None], self.initial, self.anywhere).log()
            best = best + self.emission[block.ids[0]].log()  # (N, K)
            ended, origins = [best], []
            for x in block.ids[1:]:
                best, origin = (ended[-1][: len(x), :, None] + moves).max(1)  # (n, K)
                ended.append(best + self.emission[x].log())
                origins.append(origin)
            state = ended[-1].argmax(1)  # (n,)
            for t in reversed(range(len(ended))):
                if t < len(origins):
                    came = origins[t].gather(1, state[:, None])[:, 0]
                    state = torch.cat([came, ended[t][len(came) :].argmax(1)])
                found[block.places[: len(state)] + t] = state
        return found.view(ids.shape)

    def improve(self, train: Shard) -> EMPass:
        """See IteratedModel. Sequences longer than max_len are cut."""
        self.marker.fill_(int(train.ids[0]))
        initial, anywhere = torch.zeros_like(self.initial), torch.zeros_like(self.anywhere)
        transition, emission = torch.zeros_like(self.transition), torch.zeros_like(self.emission)
        log_likelihood = 0.0
        for counts in each_alone(self.expect, cut(train, self.config.max_len)):
            initial += counts.initial
            anywhere += counts.anywhere
            transition += counts.transition
            emission[counts.symbols] += counts.emission
            log_likelihood += counts.log_likelihood
        entered = bool(anywhere.any())  # is any sequence entered in the middle?
        found = EMPass(log_likelihood, self._log_prior(entered))
        # The most probable parameters given the counts (the M-step). If no sequence is entered in
        # the middle, all that is known of that is how often each state was visited.
        more, every = self.config.smoothing, torch.ones_like(self.anywhere)
        settle(self.initial, initial, self.config.first(), more)
        settle(self.anywhere, anywhere if entered else emission.sum(0), every, more)
        settle(self.transition, transition, self.config.reach(), more)
        settle(self.emission, emission, self._emitted()[:, None].expand_as(emission), more, dim=0)
        return found

    def expect(self, block: SequenceBlock) -> ExpectedCounts:
        """The expected counts of a block (the E-step): derivatives of its log-likelihood."""
        filtered, scaled, log_likelihood = self._forward(block)
        transition = self._backward(filtered, scaled)
        symbols = torch.cat(block.ids).numpy()
        order = np.argsort(symbols, kind="stable")
        named, firsts = np.unique(symbols[order], return_index=True)
        emission = np.add.reduceat(torch.cat(filtered).numpy()[order], firsts, axis=0)
        fresh = block.fresh[:, None]
        return ExpectedCounts(
            (filtered[0] * fresh).sum(0),
            (filtered[0] * ~fresh).sum(0),
            transition,
            torch.from_numpy(named),
            torch.from_numpy(emission),
            log_likelihood,
        )

    def _log_prior(self, entered: bool) -> float:
        """The logarithm of the parameters' prior density, up to a constant."""
        if not self.config.smoothing:
            return 0.0
        held = [self.initial[self.config.first()], self.transition[self.config.reach()]]
        held += [self.emission[self._emitted()], *([self.anywhere] if entered else [])]
        logs = [float(x.log().sum()) for x in held]
        return float(self.config.smoothing * sum(logs))

    def _emitted(self) -> Tensor:
        """(V,): the symbols that states may emit: all but `<S>`."""
        return torch.arange(self.vocab_size) != self.marker

    def _logits(self, predicted: Tensor) -> Tensor:
        """(..., K) distributions of the next state to (..., V) log-probabilities."""
        return (predicted @ self.emission.mT).log().float()

    def _predicted(
        self, ids: Tensor, segments: Tensor | None, predicted: Tensor | None = None
    ) -> Tensor:
        """(B, T, K): the distribution of the next state after each symbol."""
        if segments is not None:
            raise ValueError("a hidden Markov model cannot keep packed records apart")
        if predicted is None:
            predicted = self.anywhere.expand(len(ids), -1)  # (B, K)
        found = []
        for x in ids.unbind(1):
            filtered, _, _ = self._read(predicted, x)
            begins = (x == self.marker)[:, None]
            predicted = torch.where(begins, self.initial, filtered @ self.transition)
            found.append(predicted)
        return torch.stack(found, dim=1)

    def _read(self, predicted: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Read one symbol of each row, (n,), where the distribution of its state is (n, K).

        Returns that distribution knowing the symbol, each state's emission of it over the symbol's
        probability, and that probability, (n, 1). What is impossible says nothing of its state.
        """
        emitted = self.emission[ids]  # (n, K)
        joint = predicted * emitted
        chance = joint.sum(-1, keepdim=True)  # (n, 1)
        impossible = chance <= 0
        if bool(impossible.any()):
            emitted = torch.where(impossible, 1.0, emitted)
            joint = torch.where(impossible, predicted, joint)
            chance = torch.where(impossible, 1.0, chance)
        return joint / chance, emitted / chance, chance

    def _forward(self, block: SequenceBlock) -> tuple[list[Tensor], list[Tensor], float]:
        """For each t the states' distribution given the symbols up to t and their emissions over
        the symbol's probability, both (n_t, K); the log-likelihood of all.
        """
        predicted = torch.where(block.fresh[:, None], self.initial, self.anywhere)
        filtered: list[Tensor] = []
        scaled, total = [], torch.zeros((), dtype=torch.float64)
        for x in block.ids:
            if filtered:
                predicted = filtered[-1][: len(x)] @ self.transition
            state, weight, chance = self._read(predicted, x)
            filtered.append(state)
            scaled.append(weight)
            total += chance.log().sum()
        return filtered, scaled, float(total)

    def _backward(self, filtered: list[Tensor], scaled: list[Tensor]) -> Tensor:
        """Turn what `_forward` gave, in place, into distributions given all symbols; returns the
        (K, K) expected transitions.
        """
        moved = torch.zeros_like(self.transition)
        for t in reversed(range(len(filtered) - 1)):
            following = scaled[t + 1]
            n = len(following)
            moved += filtered[t][:n].mT @ following
            backward = following @ self.transition.mT  # (n, K)
            filtered[t][:n] *= backward
            scaled[t][:n] *= backward
        return moved * self.transition

    def _stretches(self, ids: Tensor, lengths: Tensor | None, rows: int) -> Iterator[SequenceBlock]:
        """The rows of (B, T) ids, cut at every `<S>`, which belongs to none."""
        symbols = ids.numpy()
        sizes = np.full(len(ids), ids.size(1)) if lengths is None else lengths.numpy()
        inside = (np.arange(ids.size(1)) < sizes[:, None]) & (symbols != int(self.marker))
        edges = np.diff(np.pad(inside, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        row, column = np.nonzero(edges[:, :-1] == 1)
        _, end = np.nonzero(edges[:, 1:] == -1)
        places = row * ids.size(1) + column
        return blocks_of(symbols.ravel(), places, end + 1 - column, column > 0, rows)


def resize_table(d_model: int, topology: Literal["ergodic", "left-right"]) -> HiddenMarkovConfig:
    """A fourth of the width that the dial gives to neural models."""
    return HiddenMarkovConfig(n_states=max(1, d_model // 4), topology=topology)


def noise(*shape: int) -> Tensor:
    """Positive random numbers whose rows, normalised, are spread evenly over the simplex."""
    return torch.empty(*shape, dtype=torch.float64).exponential_()


def table(values: Tensor, dim: int = -1) -> nn.Parameter:
    """Probabilities proportional to `values`, as a parameter without gradient."""
    return nn.Parameter(values / values.sum(dim, keepdim=True), requires_grad=False)


def settle(held: Tensor, counts: Tensor, allowed: Tensor, more: float, dim: int = -1) -> None:
    """Put the most probable distributions in place, given counts and `more` of each cell allowed.

    One that nothing was counted for becomes even.
    """
    counts = counts + more * allowed
    counts = torch.where(counts.sum(dim, keepdim=True) > 0, counts, allowed.to(counts))
    held.copy_(counts / counts.sum(dim, keepdim=True))
