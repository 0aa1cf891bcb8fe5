"""Tiny language models whose caches can be wrong: one remembers two tokens, one everything."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.layers.cache import DecodeState, RecurrentState
from regard.models.language_model import LanguageModel


class LastTwo:
    """The two newest tokens of every row, (B, 2)."""

    def __init__(self, batch: int) -> None:
        self.ids = torch.zeros(batch, 2, dtype=torch.int64)

    def select(self, parents: Tensor, places: slice = slice(None)) -> None:
        self.ids = self.ids[parents]

    def expand(self, width: int) -> None:
        self.ids = self.ids.repeat_interleave(width, 0)


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

    def start(self, batch: int, capacity: int) -> DecodeState:
        return DecodeState([self.memory(batch)], batch, capacity)

    def logits(self, ids, segments=None, *, tap=None):
        memory = self.memory(len(ids))
        return torch.stack([self.read(memory, column) for column in ids.T], 1)  # (B, T, V)

    def score(self, ids, targets, segments=None, *, constrain=None):
        raise NotImplementedError

    def extend(self, ids, lengths, state):
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
