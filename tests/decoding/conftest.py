"""Tiny language models with caches, one of two tokens and one of all, and exhaustive search."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from regard.layers.cache import DecodeState, LayerState, RecurrentState
from regard.models.language_model import LanguageModel


class LastTwo(LayerState):
    """The two newest tokens of every row, (B, 2)."""

    def __init__(self, batch: int) -> None:
        self.ids = torch.zeros(batch, 2, dtype=torch.int64)

    def select(self, parents: Tensor, columns: slice = slice(None)) -> None:
        self.ids = self.ids[parents]

    def expand(self, width: int) -> None:
        self.ids = self.ids.repeat_interleave(width, 0)

    def reset(self) -> None:
        raise NotImplementedError


class Tiny(LanguageModel):
    """Reads ids one at a time with `read(memory, ids) -> logits`; notes how often it is asked."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, None)
        self.calls: list[tuple[int, int]] = []  # (rows, tokens) of each extend

    def memory(self, batch: int) -> LastTwo | RecurrentState:
        raise NotImplementedError

    def read(self, memory, ids: Tensor) -> Tensor:
        raise NotImplementedError

    def copy(self, memory):
        raise NotImplementedError

    def keep(self, memory, old, counts: Tensor) -> None:
        """Undo the reading of a token in rows where it does not count (padding)."""
        raise NotImplementedError

    def init_state(self, batch: int, capacity: int) -> DecodeState:
        return DecodeState([self.memory(batch)], batch, capacity)

    def logits(self, ids, segments=None, *, tap=None):
        memory = self.memory(len(ids))
        return torch.stack([self.read(memory, column) for column in ids.T], 1)  # (B, T, V)

    def score(self, ids, targets, segments=None, *, constrain=None):
        raise NotImplementedError

    def step(self, ids, lengths, state):
        batch, width = ids.shape
        assert batch == state.batch
        self.calls.append((batch, width))
        state.check(width)
        lengths_or_all = torch.full((batch,), width) if lengths is None else lengths
        (memory,) = state.layers
        out = torch.zeros(batch, self.vocab_size, dtype=torch.float64)
        for t in range(width):
            counts = t < lengths_or_all  # (B,)
            old = self.copy(memory)
            logits = self.read(memory, ids[:, t])
            self.keep(memory, old, counts)
            out = torch.where(counts[:, None], logits, out)
        state.advance(lengths, width)
        return out


class Markov(Tiny):
    """A random chain of order 2: logits are a table indexed by the last two tokens."""

    def __init__(self, vocab_size: int, seed: int = 0, spread: float = 1.5) -> None:
        super().__init__(vocab_size)
        noise = torch.Generator().manual_seed(seed)
        shape = (vocab_size,) * 3
        table = torch.randn(shape, generator=noise, dtype=torch.float64) * spread
        self.register_buffer("table", table)

    def memory(self, batch):
        return LastTwo(batch)

    def read(self, memory, ids):
        memory.ids = torch.stack([memory.ids[:, 1], ids], 1)
        return self.table[memory.ids[:, 0], memory.ids[:, 1]]

    def copy(self, memory):
        return memory.ids

    def keep(self, memory, old, counts):
        memory.ids = torch.where(counts[:, None], memory.ids, old)


class Remembers(Tiny):
    """A random recurrence: the logits depend on every token read since the state was started."""

    WIDTH = 6

    def __init__(self, vocab_size: int, seed: int = 0) -> None:
        super().__init__(vocab_size)
        noise = torch.Generator().manual_seed(seed)

        def table(*shape: int) -> Tensor:
            return torch.randn(shape, generator=noise, dtype=torch.float64)

        self.register_buffer("embed", table(vocab_size, self.WIDTH))
        self.register_buffer("turn", torch.linalg.qr(table(self.WIDTH, self.WIDTH)).Q * 0.95)
        self.register_buffer("out", table(self.WIDTH, vocab_size))

    def memory(self, batch):
        return RecurrentState(torch.zeros(1, batch, self.WIDTH, dtype=torch.float64))

    def read(self, memory, ids):
        (h,) = memory.vectors
        h = torch.sin(h @ self.turn + self.embed[ids])  # (1, B, D)
        memory.vectors = (h,)
        return h[0] @ self.out

    def copy(self, memory):
        return memory.vectors[0]

    def keep(self, memory, old, counts):
        memory.vectors = (torch.where(counts[None, :, None], memory.vectors[0], old),)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Tensors this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def markov() -> Callable[..., Markov]:
    return Markov


@pytest.fixture
def remembers() -> Callable[..., Remembers]:
    return Remembers


@pytest.fixture(params=[Markov, Remembers])
def any_model(request) -> Callable[..., Tiny]:
    return request.param


def next_log_probs(model, prefixes, forbidden, banned):
    """(N, V) log-probabilities after equally long prefixes, recomputed from nothing.

    Rows for which nothing is possible are all -inf.
    """
    logits = model.logits(torch.tensor(prefixes))[:, -1].clone()
    logits[:, list(banned)] = -math.inf
    for row, prefix in enumerate(prefixes):
        for b in range(logits.size(-1)):
            if (prefix[-1], b) in forbidden:
                logits[row, b] = -math.inf
    return logits.log_softmax(-1).nan_to_num(nan=-math.inf, neginf=-math.inf).tolist()


def exhaustive(model, prompts, max_new, forbidden, *, end, banned):
    """All sequences of each prompt as (ids, log_probs, kind), kind ended, cut off or dead."""
    sequences = [[] for _ in prompts]
    live = [(number, [], []) for number in range(len(prompts))]
    for _ in range(max_new):
        prefixes = [[*prompts[n], *ids] for n, ids, _ in live]
        table = next_log_probs(model, prefixes, forbidden, banned)
        longer = []
        for (number, ids, log_probs), row in zip(live, table, strict=True):
            possible = [b for b in range(len(row)) if row[b] > -math.inf]
            if not possible:
                sequences[number].append((ids, log_probs, "dead"))
            for b in possible:
                one = (number, [*ids, b], [*log_probs, row[b]])
                if b == end:
                    sequences[number].append((*one[1:], "ended"))
                else:
                    longer.append(one)
        live = longer
        if not live:
            break
    for number, ids, log_probs in live:
        sequences[number].append((ids, log_probs, "cut off"))
    return sequences


def best(sequences, penalty, n_best):
    """The n best by rank; those that did not end only where too few did."""

    def rank(one):
        return sum(one[1]) / max(1, len(one[0])) ** penalty

    ended = sorted((s for s in sequences if s[2] == "ended"), key=rank, reverse=True)
    rest = sorted((s for s in sequences if s[2] != "ended"), key=rank, reverse=True)
    return [(s, rank(s)) for s in (ended + rest)[:n_best]]


def assert_equal(sequences, expected):
    assert [one.ids for one in sequences] == [s[0] for s, _ in expected]
    for one, ((_, log_probs, kind), rank) in zip(sequences, expected, strict=True):
        assert one.log_probs == pytest.approx(log_probs, abs=1e-12)
        assert one.score == pytest.approx(rank, abs=1e-12)
        assert one.finished == (kind == "ended")
        assert one.dead_end == (kind == "dead")


@pytest.fixture
def brute_force():
    """Exhaustive search, the n best of its sequences, and the comparison with results."""
    return SimpleNamespace(
        next_log_probs=next_log_probs, exhaustive=exhaustive, best=best, assert_equal=assert_equal
    )
