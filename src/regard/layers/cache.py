"""What a model remembers between decoding steps: one state per layer, behind one interface.

A state has B rows. Rows may have read different numbers of tokens (ragged prompts), and beam search
reorders them with `select`, in place where a step is recorded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from regard.layers.masks import Mask

ALL = slice(None)


class LayerState(ABC):
    """The decode state of one layer."""

    deferred: ClassVar[bool] = False  # is there work for `flush` between steps?

    @abstractmethod
    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        """Make row b a copy of row parents[b]. Positions outside `columns` are equal in both rows,
        or unused.
        """

    @abstractmethod
    def expand(self, width: int) -> None:
        """Make row b the rows b·width to b·width + width - 1: B rows become B·width."""

    @abstractmethod
    def reset(self) -> None:
        """Empty the state, with its first number of rows, in the same memory."""

    def flush(self, column: int) -> None:
        """Do the work that is due before the step at this position of the longest row; a second
        call does nothing.
        """
        raise NotImplementedError


class BuffersByShape:
    """One tensor for each shape, so that a recorded step finds its memory again after other shapes
    were in use.
    """

    def __init__(self) -> None:
        self.buffers: dict[torch.Size, Tensor] = {}

    def store(self, tensor: Tensor) -> Tensor:
        """Return the values in the memory of the last tensor of this shape."""
        buffer = self.buffers.setdefault(tensor.shape, tensor)
        return buffer if buffer is tensor else buffer.copy_(tensor)


class RowBuffer(LayerState):
    """A tensor with rows along `dim` and positions along `column_dim`, whose memory stays the same
    for each number of rows.
    """

    def __init__(self, tensor: Tensor, dim: int = 0, column_dim: int | None = None) -> None:
        self.tensor = self.initial = tensor
        self.dim, self.expanded = dim, BuffersByShape()
        self.leading = None if column_dim is None else (ALL,) * column_dim

    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        part = self.tensor
        if self.leading is not None and columns != ALL:
            part = part[(*self.leading, columns)]
        part.copy_(part.index_select(self.dim, parents))

    def expand(self, width: int) -> None:
        self.tensor = self.expanded.store(self.tensor.repeat_interleave(width, self.dim))

    def reset(self) -> None:
        self.tensor = self.initial.zero_()


class KVCache(RowBuffer):
    """Keys and values of one attention layer, allocated once: (2, B, G, S, K), S the capacity."""

    def __init__(
        self, batch: int, n_kv_heads: int, capacity: int, d_head: int, like: Tensor
    ) -> None:
        super().__init__(like.new_zeros(2, batch, n_kv_heads, capacity, d_head), 1, 3)
        self._split()

    def _split(self) -> None:
        self.k, self.v = (part.detach() for part in self.tensor)  # (B, G, S, K), the same memory

    def write(self, k: Tensor, v: Tensor, slots: int | Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Store k and v (B, G, T, K) and return all keys and values up to `end`.

        `slots` are (B, T), or an int, the first slot in all rows.
        """
        if isinstance(slots, int):
            self.k[:, :, slots : slots + k.size(2)] = k
            self.v[:, :, slots : slots + k.size(2)] = v
        else:
            rows = torch.arange(k.size(0), device=k.device)[:, None]  # (B, 1)
            self.k[rows, :, slots] = k.transpose(1, 2)  # (B, T, G, K)
            self.v[rows, :, slots] = v.transpose(1, 2)
        return self.k[:, :, :end], self.v[:, :, :end]

    def expand(self, width: int) -> None:
        super().expand(width)
        self._split()

    def reset(self) -> None:
        self.tensor = self.initial  # old values stay: no query attends to them before they change
        self._split()


class RecurrentState(LayerState):
    """The vectors of a recurrent stack, each (layers, B, D)."""

    def __init__(self, *vectors: Tensor) -> None:
        self.vectors = self.initial = vectors

    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        self.vectors = tuple(vector[:, parents] for vector in self.vectors)

    def expand(self, width: int) -> None:
        self.vectors = tuple(vector.repeat_interleave(width, 1) for vector in self.vectors)

    def reset(self) -> None:
        self.vectors = self.initial


class Ring(RowBuffer):
    """The last R vectors that a layer has read, (B, R, D): that of position p at index p mod R,
    zeros before the first position. A vector is read or written without moving the others.
    """

    def __init__(self, batch: int, size: int, width: int, like: Tensor) -> None:
        super().__init__(like.new_zeros(batch, size, width))

    def read(self, position: int | Tensor) -> Tensor:
        """Return the vectors (B, D) of one position, an int for all rows or (B,)."""
        index = position % self.tensor.size(1)
        if isinstance(index, int):
            return self.tensor[:, index]
        return self.tensor[torch.arange(len(index), device=index.device), index]

    def write(self, position: int | Tensor, x: Tensor) -> None:
        """Store the vectors (B, D) of one position over those of R positions before."""
        index = position % self.tensor.size(1)
        if isinstance(index, int):
            self.tensor[:, index] = x
        else:
            self.tensor[torch.arange(len(index), device=index.device), index] = x

    def last(self, end: int | Tensor) -> Tensor:
        """Return the vectors (B, R, D) of the R positions before `end`, in order."""
        return self.tensor.gather(1, self._indices(end))

    def refill(self, end: int | Tensor, x: Tensor) -> None:
        """Set what `last(end)` returns."""
        self.tensor.scatter_(1, self._indices(end), x)

    def _indices(self, end: int | Tensor) -> Tensor:
        """Return the indices (B, R, D) of the R positions before `end`."""
        size = self.tensor.size(1)
        first = end if isinstance(end, int) else end[:, None]  # end - R, modulo R
        index = (first + torch.arange(size, device=self.tensor.device)) % size  # (R,) or (B, R)
        return index[..., None].expand_as(self.tensor)


class ContextWindow(LayerState):
    """The last tokens (B, N) of each row, negative where there are none: the state of a Markov
    chain.
    """

    def __init__(self, ids: Tensor) -> None:
        self.ids = self.initial = ids

    def push(self, ids: Tensor, lengths: Tensor | None) -> None:
        """Append the first lengths[b] of (B, T) ids to row b, or all of them."""
        width = self.ids.size(1)
        joined = torch.cat([self.ids, ids], dim=1)  # (B, N + T)
        if lengths is None:
            self.ids = joined[:, joined.size(1) - width :]
        else:
            index = lengths[:, None] + torch.arange(width, device=ids.device)
            self.ids = joined.gather(1, index)

    def select(self, parents: Tensor, columns: slice = ALL) -> None:
        self.ids = self.ids[parents]

    def expand(self, width: int) -> None:
        self.ids = self.ids.repeat_interleave(width, 0)

    def reset(self) -> None:
        self.ids = self.initial


@dataclass(frozen=True, slots=True)
class CrossKV:
    """The keys and values (B, H, S, K) of a source, and the mask of cross-attention to them."""

    k: Tensor
    v: Tensor
    mask: Mask | None


class DecodeState:
    """The state of a model: that of each layer, and how many tokens every row has read.

    `length` is an int while all rows agree, so that decoding needs no tensor arithmetic, and a (B,)
    tensor once they are ragged; `longest` is always an int. A `fixed` state keeps its length in one
    tensor and exposes its whole capacity, masked, so that every step has the same shapes.
    """

    def __init__(self, layers: Sequence[LayerState], batch: int, capacity: int) -> None:
        self.layers = list(layers)
        self.batch = self.rows = batch  # now, and before any `expand`
        self.capacity = capacity
        self.length: int | Tensor = 0
        self.longest = 0
        self.fixed = False
        self.length_buffers = BuffersByShape()  # (B,) of a fixed state
        self.writers: Tensor | None = None  # (B, S) the rows that wrote each position
        # the source of each layer's cross-attention: shared by the beams of a row, never reordered
        self.memory: Sequence[CrossKV] | None = None
        self.deferred = [layer for layer in self.layers if layer.deferred]

    def fix(self, device: torch.device | None = None) -> None:
        """Give all steps from now on the same shapes and memory, which `reset` does not change."""
        length = self.length
        if isinstance(length, int):
            length = torch.full((self.batch,), length, device=device)
        self.length, self.fixed = self.length_buffers.store(length.clone()), True

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.capacity

    def reset(self) -> None:
        """Empty the state, with the rows it was created with, in the same memory."""
        for layer in self.layers:
            layer.reset()
        self.batch, self.length, self.longest, self.fixed = self.rows, 0, 0, False
        self.writers = None

    def end(self, width: int) -> int:
        """Return the number of keys for a call with `width` new positions."""
        return self.capacity if self.fixed else self.longest + width

    def advance(self, lengths: Tensor | None, width: int) -> None:
        """Count lengths[b] more tokens in row b, or `width` more in every row."""
        if self.fixed:
            assert isinstance(self.length, Tensor) and lengths is None
            self.length.add_(width)
            self.longest += width
        elif lengths is None:
            self.length = self.length + width
            self.longest += width
        else:
            self.length = self.length + lengths
            self.longest = int(self.length.max())

    def check(self, width: int) -> None:
        """Prepare for `width` more positions; raise ValueError where the capacity is too small."""
        if self.longest + width > self.capacity:
            raise ValueError(
                f"state holds {self.longest} of {self.capacity} positions, {width} more do not "
                "fit; create it with a larger capacity"
            )
        for layer in self.deferred:
            layer.flush(self.longest)

    def longest_after(self, lengths: Tensor | None, width: int) -> int:
        """Return what `longest` will be after `advance`."""
        return self.longest + width if lengths is None else int((self.length + lengths).max())

    def select(self, parents: Tensor) -> None:
        # A GPU does not wait to learn which positions differ: all that are in use are copied.
        on_cpu = parents.device.type == "cpu"
        columns = self._changed_columns(parents) if on_cpu else slice(0, self.end(0))
        for layer in self.layers:
            layer.select(parents, columns)
        if isinstance(self.length, Tensor):
            self.length.copy_(self.length[parents])

    def _changed_columns(self, parents: Tensor) -> slice:
        """Return the positions where a row differs from its new parent.

        They are few, since the beams of one prompt have most of their past from one writer.
        """
        rows = torch.arange(self.batch)[:, None]  # (B, 1)
        before = rows.expand(-1, self.capacity) if self.writers is None else self.writers
        self.writers = before[parents]  # (B, S)
        differs = (self.writers != before)[:, : self.longest].any(0).nonzero()
        shortest = self.length if isinstance(self.length, int) else int(self.length.min())
        self.writers[:, shortest:] = rows  # from here on every row writes for itself
        return slice(int(differs[0]) if len(differs) else self.longest, self.longest)

    def expand(self, width: int) -> None:
        for layer in self.layers:
            layer.expand(width)
        self.batch *= width
        self.writers = None
        if isinstance(self.length, Tensor):
            self.length = self.length.repeat_interleave(width)


def take_last(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the vector (B, D) of each row's last position from (B, T, D); None: all have T."""
    if lengths is None:
        return x[:, -1]
    return x[torch.arange(len(x), device=x.device), lengths - 1]
