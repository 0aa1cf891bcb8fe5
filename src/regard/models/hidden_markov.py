"""The hidden Markov model: a chain of hidden states, each with its own distribution of symbols.

Rabiner 1989, "A tutorial on hidden Markov models and selected applications in speech recognition",
Proceedings of the IEEE 77(2). A chain of K states starts with `initial`, moves by `transition` and
emits by `emission`. All that is known of the past is the distribution of the present state, K
numbers, where a Markov chain knows the last symbol and attention everything. In a left-right model
(section IV.A) no state is ever returned to: its transition matrix is triangular like a causal mask,
but in attention a position looks back, while here a state only moves on.

A record is `<S> x₁ … xₙ <E>`. No state emits `<S>`: after it the chain is about to start, wherever
it is in a row. `<E>` is emitted like any symbol. A sequence that starts in the middle of a record,
such as a window of running text, starts with `anywhere` instead of `initial`.

The model is fitted by expectation-maximisation (Baum et al. 1970; Dempster, Laird & Rubin 1977), in
the scaled form of Rabiner's section V.A, in double precision. The estimate is the mode of the
posterior under Dirichlet priors with parameters 1 + `smoothing`, (n + smoothing) / (N + smoothing ·
cells), over the cells that the topology allows: every symbol stays possible in every state, zeros
of the topology stay zeros, and no pass lowers log-likelihood plus log-prior. Passes read the data
in blocks of sequences, on all cores; the sums do not depend on the number of threads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.shards import Shard
from regard.layers.cache import DecodeState, RecurrentState, take_last
from regard.layers.tap import Tap, tapped
from regard.models import Presets, check_ranges
from regard.models.language_model import CHUNK, Constrain, LanguageModel
from regard.models.ngrams import Ints

# Sequences and tokens of a block: few enough for the numbers of a step to stay in a core's cache.
ROWS, TOKENS = 512, 1 << 15

Output = TypeVar("Output")


@dataclass(frozen=True)
class EMPass:
    """The likelihood that one pass over the data measured, of the model before the pass."""

    log_likelihood: float  # of all the data, in nats
    log_prior: float  # of the parameters, up to a constant

    @property
    def objective(self) -> float:
        """What no pass lowers."""
        return self.log_likelihood + self.log_prior


class EMModel(LanguageModel):
    """A model that is fitted by passes over all the data, without gradients."""

    loop = "em"

    @abstractmethod
    def improve(self, train: Shard) -> EMPass:
        """Run one pass. Its result does not depend on the number of threads, and the objective of
        the next pass is never lower than that of this one.
        """


@dataclass(frozen=True, eq=False)
class SequenceBlock:
    """N sequences side by side, longest first; n_t of them have a symbol number t."""

    ids: list[Tensor]  # for each t the (n_t,) symbols
    offsets: Tensor  # (N,) index of each first symbol in the ids they were taken from
    at_start: Tensor  # (N,) whether the sequence follows `<S>`


def split_records(shard: Shard, max_len: int) -> Iterator[SequenceBlock]:
    """Yield the symbols after each `<S>` of a shard, in sequences of at most `max_len`."""
    offsets = np.asarray(shard.offsets)
    sizes = np.diff(offsets) - 1
    counts = -(-sizes // max_len)  # sequences of each record
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.repeat(offsets[:-1] + 1, counts) + number * max_len
    lengths = np.minimum(max_len, np.repeat(sizes, counts) - number * max_len)
    return make_blocks(np.asarray(shard.ids), first, lengths, number == 0, ROWS)


def make_blocks(
    ids: NDArray[Any], offsets: Ints, lengths: Ints, at_start: NDArray[np.bool_], rows: int
) -> Iterator[SequenceBlock]:
    """Yield blocks of sequences, longest first, of at most `rows` sequences and TOKENS symbols."""
    order = np.argsort(-lengths, kind="stable")
    first = 0
    while first < len(order):
        longest = int(lengths[order[first]])
        part = order[first : first + max(1, min(rows, TOKENS // longest))]
        alive = np.searchsorted(-lengths[part], -np.arange(longest))  # (T,) longer than t
        symbols = [
            torch.from_numpy(ids[offsets[part[:n]] + t].astype(np.int64))
            for t, n in enumerate(alive.tolist())
        ]
        yield SequenceBlock(
            symbols, torch.from_numpy(offsets[part]), torch.from_numpy(at_start[part])
        )
        first += len(part)


def map_blocks(
    work: Callable[[SequenceBlock], Output], blocks: Iterable[SequenceBlock]
) -> Iterator[Output]:
    """Apply `work` to every block, in order, on as many threads as torch uses.

    Each thread computes alone: a block is too small to be shared, and the result then does not
    depend on the number of threads. Few blocks are in memory at once.
    """
    threads = torch.get_num_threads()
    pending: deque[Future[Output]] = deque()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for block in blocks:
                pending.append(pool.submit(work, block))
                if len(pending) > 2 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
    finally:
        torch.set_num_threads(threads)  # new threads start with the number that any thread set


@dataclass(frozen=True, kw_only=True)
class HiddenMarkovConfig:
    """Shape of a hidden Markov model. `max_len` limits how much is read at once in training and
    scoring; decoding has no limit.
    """

    n_states: int = 64
    topology: Literal["ergodic", "left-right"] = "ergodic"
    max_jump: int = 2  # left-right: the most states that one step moves on; Rabiner's Δ
    smoothing: float = 0.1  # pseudo-counts of every cell
    max_len: int = 256

    def __post_init__(self) -> None:
        check_ranges(self, n_states=1 << 12, max_jump=1 << 12, max_len=1 << 16)
        if not 0 <= self.smoothing <= 1000:
            raise ValueError(f"smoothing must be from 0 to 1000, got {self.smoothing}")

    def allowed_transitions(self) -> Tensor:
        """Return which state (row) may be followed by which (column), (K, K)."""
        allowed = torch.ones(self.n_states, self.n_states, dtype=torch.bool)
        return allowed if self.topology == "ergodic" else allowed.triu().tril(self.max_jump)

    def allowed_initial(self) -> Tensor:
        """Return in which states a record may start, (K,)."""
        allowed = torch.ones(self.n_states, dtype=torch.bool)
        if self.topology == "left-right":
            allowed[1:] = False
        return allowed


@dataclass(frozen=True, eq=False)
class ExpectedCounts:
    """Expected counts of a block."""

    initial: Tensor  # (K,) first states after `<S>`
    anywhere: Tensor  # (K,) first states of sequences that start in the middle
    transition: Tensor  # (K, K)
    symbols: Tensor  # (U,) that occur
    emission: Tensor  # (U, K)
    log_likelihood: float


class HiddenMarkov(EMModel):
    """A hidden Markov model with discrete emissions."""

    Config = HiddenMarkovConfig
    PRESETS: ClassVar[Presets] = {
        "ergodic": lambda n_layers, d_model: sized_config(d_model, "ergodic"),
        "left-right": lambda n_layers, d_model: sized_config(d_model, "left-right"),
    }
    marker: Tensor

    def __init__(self, vocab_size: int, config: HiddenMarkovConfig) -> None:
        super().__init__(vocab_size, config)
        states, allowed = config.n_states, config.allowed_transitions()
        self.initial = normalize(config.allowed_initial().double())  # (K,)
        self.anywhere = normalize(torch.ones(states, dtype=torch.float64))  # (K,)
        self.transition = normalize(exponential_noise(states, states) * allowed)  # (K, K)
        self.emission = normalize(exponential_noise(vocab_size, states), dim=0)  # (V, K)
        self.register_buffer("marker", torch.tensor(-1))  # the id of `<S>`, known from the data

    def logits(
        self, ids: Tensor, segments: Tensor | None = None, *, tap: Tap | None = None
    ) -> Tensor:
        logits = self._logits(self._predict_states(ids, segments))  # (B, T, V)
        if tap is not None and tap.wants("states"):
            tap("states", self.posterior(ids))
        return tapped(tap, "logits", logits)

    def score_targets(
        self, ids: Tensor, targets: Tensor, segments: Tensor | None, constrain: Constrain | None
    ) -> Tensor:
        states = self._predict_states(ids, segments).flatten(0, 1)  # (B·T, K)
        if constrain is not None:
            return self.score_in_chunks(
                lambda rows: self._logits(states[rows]), ids, targets, constrain
            )
        rows = max(1, CHUNK // self.config.n_states)
        chunks = zip(states.split(rows), targets.flatten().split(rows), strict=True)
        p = torch.cat([(state * self.emission[target]).sum(-1) for state, target in chunks])
        return p.log().float().view(targets.shape)

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        """The state is the distribution of the next state of the chain, (B, K)."""
        return DecodeState([RecurrentState(self.anywhere.expand(1, batch, -1))], batch, capacity)

    def step(self, ids: Tensor, lengths: Tensor | None, state: DecodeState) -> Tensor:
        state.check(ids.size(1))
        recurrent = cast(RecurrentState, state.layers[0])
        states = self._predict_states(ids, None, recurrent.vectors[0][0])
        last = take_last(states, lengths)  # (B, K)
        recurrent.vectors = (last[None],)
        state.advance(lengths, ids.size(1))
        return self._logits(last)

    def posterior(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the probability of each state at each symbol given its whole record, (B, T, K).

        Zeros at `<S>`, which no state emits, and at padding.
        """
        posterior = self.emission.new_zeros(ids.numel(), self.config.n_states)
        for block in self._blocks(ids, lengths, ROWS):
            filtered, scaled, _ = self._forward(block)
            self._backward(filtered, scaled)
            for t, states in enumerate(filtered):
                posterior[block.offsets[: len(states)] + t] = states
        return posterior.view(*ids.shape, -1)

    def viterbi(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the states of the most probable path through each record, (B, T) (Viterbi 1967).

        -1 at `<S>`, which no state emits, and at padding.
        """
        moves, path = self.transition.log(), torch.full((ids.numel(),), -1)
        for block in self._blocks(ids, lengths, max(1, CHUNK // moves.numel())):
            best = torch.where(block.at_start[:, None], self.initial, self.anywhere).log()
            best = best + self.emission[block.ids[0]].log()  # (N, K)
            scores, origins = [best], []
            for x in block.ids[1:]:
                best, origin = (scores[-1][: len(x), :, None] + moves).max(1)  # (n, K)
                scores.append(best + self.emission[x].log())
                origins.append(origin)
            state = scores[-1].argmax(1)  # (n,)
            for t in reversed(range(len(scores))):
                if t < len(origins):
                    origin = origins[t].gather(1, state[:, None])[:, 0]
                    state = torch.cat([origin, scores[t][len(origin) :].argmax(1)])
                path[block.offsets[: len(state)] + t] = state
        return path.view(ids.shape)

    def improve(self, train: Shard) -> EMPass:
        self.marker.fill_(int(train.ids[0]))
        initial, anywhere = torch.zeros_like(self.initial), torch.zeros_like(self.anywhere)
        transition, emission = torch.zeros_like(self.transition), torch.zeros_like(self.emission)
        log_likelihood = 0.0
        for counts in map_blocks(self.expect, split_records(train, self.config.max_len)):
            initial += counts.initial
            anywhere += counts.anywhere
            transition += counts.transition
            emission[counts.symbols] += counts.emission
            log_likelihood += counts.log_likelihood
        mid_record = bool(anywhere.any())  # does any sequence start in the middle of a record?
        result = EMPass(log_likelihood, self._log_prior(mid_record))
        # The M-step. If no sequence starts in the middle of a record, the best guess for `anywhere`
        # is how often each state was visited.
        allowed = self.config.allowed_transitions()
        self._update(self.initial, initial, self.config.allowed_initial())
        visits = anywhere if mid_record else emission.sum(0)
        self._update(self.anywhere, visits, torch.ones_like(self.anywhere))
        self._update(self.transition, transition, allowed)
        self._update(self.emission, emission, self._emitted()[:, None].expand_as(emission), dim=0)
        return result

    def _update(self, table: Tensor, counts: Tensor, allowed: Tensor, dim: int = -1) -> None:
        """Set a table to its most probable distributions given counts and the smoothing; uniform
        where nothing was counted.
        """
        counts = counts + self.config.smoothing * allowed
        counts = torch.where(counts.sum(dim, keepdim=True) > 0, counts, allowed.to(counts))
        table.copy_(counts / counts.sum(dim, keepdim=True))

    def expect(self, block: SequenceBlock) -> ExpectedCounts:
        """Return the expected counts of a block (the E-step): derivatives of its log-likelihood."""
        filtered, scaled, log_likelihood = self._forward(block)
        transition = self._backward(filtered, scaled)
        ids = torch.cat(block.ids).numpy()
        order = np.argsort(ids, kind="stable")
        symbols, firsts = np.unique(ids[order], return_index=True)
        emission = np.add.reduceat(torch.cat(filtered).numpy()[order], firsts, axis=0)
        at_start = block.at_start[:, None]
        return ExpectedCounts(
            (filtered[0] * at_start).sum(0),
            (filtered[0] * ~at_start).sum(0),
            transition,
            torch.from_numpy(symbols),
            torch.from_numpy(emission),
            log_likelihood,
        )

    def _log_prior(self, mid_record: bool) -> float:
        """The log-density of the parameters' prior, up to a constant."""
        config = self.config
        if not config.smoothing:
            return 0.0
        tables = [
            self.initial[config.allowed_initial()],
            self.transition[config.allowed_transitions()],
            self.emission[self._emitted()],
            *([self.anywhere] if mid_record else []),
        ]
        return float(config.smoothing * sum([float(x.log().sum()) for x in tables]))

    def _emitted(self) -> Tensor:
        """(V,) the symbols that states may emit: all but `<S>`."""
        return torch.arange(self.vocab_size) != self.marker

    def _logits(self, states: Tensor) -> Tensor:
        """(..., K) distributions of the next state to (..., V) log-probabilities."""
        return (states @ self.emission.mT).log().float()

    def _predict_states(
        self, ids: Tensor, segments: Tensor | None, states: Tensor | None = None
    ) -> Tensor:
        """Return the distribution of the next state after each symbol, (B, T, K)."""
        if segments is not None:
            raise ValueError("a hidden Markov model cannot keep packed records apart")
        if states is None:
            states = self.anywhere.expand(len(ids), -1)  # (B, K)
        predictions = []
        for x in ids.unbind(1):
            filtered, _, _ = self._filter(states, x)
            is_marker = (x == self.marker)[:, None]
            states = torch.where(is_marker, self.initial, filtered @ self.transition)
            predictions.append(states)
        return torch.stack(predictions, dim=1)

    def _filter(self, states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Update state distributions (n, K) with one symbol of each row, (n,).

        Returns the distribution given the symbol, each state's emission of it divided by the
        symbol's probability, and that probability, (n, 1). An impossible symbol changes nothing.
        """
        emitted = self.emission[ids]  # (n, K)
        joint = states * emitted
        p = joint.sum(-1, keepdim=True)  # (n, 1)
        impossible = p <= 0
        if bool(impossible.any()):
            emitted = torch.where(impossible, 1.0, emitted)
            joint = torch.where(impossible, states, joint)
            p = torch.where(impossible, 1.0, p)
        return joint / p, emitted / p, p

    def _forward(self, block: SequenceBlock) -> tuple[list[Tensor], list[Tensor], float]:
        """For each t the distribution of states given the symbols up to t, and their scaled
        emissions, both (n_t, K); the log-likelihood of the block.
        """
        states = torch.where(block.at_start[:, None], self.initial, self.anywhere)
        filtered: list[Tensor] = []
        scaled, total = [], torch.zeros((), dtype=torch.float64)
        for x in block.ids:
            if filtered:
                states = filtered[-1][: len(x)] @ self.transition
            state, weight, p = self._filter(states, x)
            filtered.append(state)
            scaled.append(weight)
            total += p.log().sum()
        return filtered, scaled, float(total)

    def _backward(self, filtered: list[Tensor], scaled: list[Tensor]) -> Tensor:
        """Turn the results of `_forward`, in place, into distributions given all symbols; return
        the expected transitions (K, K).
        """
        moves = torch.zeros_like(self.transition)
        for t in reversed(range(len(filtered) - 1)):
            following = scaled[t + 1]
            n = len(following)
            moves += filtered[t][:n].mT @ following
            backward = following @ self.transition.mT  # (n, K)
            filtered[t][:n] *= backward
            scaled[t][:n] *= backward
        return moves * self.transition

    def _blocks(self, ids: Tensor, lengths: Tensor | None, rows: int) -> Iterator[SequenceBlock]:
        """The rows of (B, T) ids, split at every `<S>`, which belongs to none."""
        symbols = ids.numpy()
        sizes = np.full(len(ids), ids.size(1)) if lengths is None else lengths.numpy()
        inside = (np.arange(ids.size(1)) < sizes[:, None]) & (symbols != int(self.marker))
        edges = np.diff(np.pad(inside, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        row, column = np.nonzero(edges[:, :-1] == 1)
        _, end = np.nonzero(edges[:, 1:] == -1)
        offsets = row * ids.size(1) + column
        return make_blocks(symbols.ravel(), offsets, end + 1 - column, column > 0, rows)


def sized_config(d_model: int, topology: Literal["ergodic", "left-right"]) -> HiddenMarkovConfig:
    """Return a config with a quarter as many states as neural models of this size are wide."""
    return HiddenMarkovConfig(n_states=max(1, d_model // 4), topology=topology)


def exponential_noise(*shape: int) -> Tensor:
    """Return random numbers whose rows, normalised, are uniformly distributed over the simplex."""
    return torch.empty(*shape, dtype=torch.float64).exponential_()


def normalize(values: Tensor, dim: int = -1) -> nn.Parameter:
    """Return probabilities proportional to `values`, as a parameter without gradient."""
    return nn.Parameter(values / values.sum(dim, keepdim=True), requires_grad=False)
