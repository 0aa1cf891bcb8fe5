"""What a model remembers between decoding steps: one entry per layer, behind one interface.

A state belongs to a batch of B rows. Rows may have seen different numbers of tokens (ragged
prompts), and beam search reorders them with `select`, which every kind of memory implements in
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from regard.layers.masks import Mask

ALL = slice(None)


class LayerState(Protocol):
    """The memory of one layer."""

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b], in place. What stands at other places than these
        is equal in both, or unused.
        """

    def expand(self, width: int) -> None:
        """Row b becomes the rows b·width to b·width + width - 1: B rows become B·width."""

    def reset(self) -> None:
        """Empty again, with as many rows as at first, in the same memory."""


@runtime_checkable
class Deferred(Protocol):
    """Memory that puts some work off, to be done between steps."""

    def settle(self, column: int) -> None:
        """Do what is due before the step at this place of the longest row; a second call does
        nothing.
        """


class WidenedBuffers:
    """What a tensor becomes by `expand`: memory of its own for each number of rows, so that a step
    recorded with one of them finds its rows where they were, whatever came in between.
    """

    def __init__(self) -> None:
        self.kept: dict[torch.Size, Tensor] = {}

    def hold(self, tensor: Tensor) -> Tensor:
        """The same values, in the memory of the last tensor of this shape."""
        memory = self.kept.setdefault(tensor.shape, tensor)
        return memory if memory is tensor else memory.copy_(tensor)


class RowBuffer:
    """A tensor with a row for each sequence along one axis, whose memory stays the same."""

    def __init__(self, tensor: Tensor, dim: int) -> None:
        self.now = self.narrow = tensor  # the second before any `expand`
        self.dim, self.widened = dim, WidenedBuffers()

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b], at these places of the last axis."""
        part = self.now if places == ALL else self.now[..., places]
        part.copy_(part.index_select(self.dim, parents))

    def expand(self, width: int) -> None:
        """Row b becomes `width` rows, in the memory of last time where there is one."""
        self.now = self.widened.hold(self.now.repeat_interleave(width, self.dim))

    def reset(self) -> None:
        """The rows it began with, holding what they held last."""
        self.now = self.narrow


class KVCache:
    """Keys and values of one attention layer, allocated once: (2, B, G, S, K), S the capacity."""

    def __init__(
        self, batch: int, n_kv_heads: int, capacity: int, d_head: int, like: Tensor
    ) -> None:
        self.kv = like.new_zeros(2, batch, n_kv_heads, capacity, d_head)
        self.narrow, self.widened = self.kv, WidenedBuffers()  # the first before any `expand`
        self._show()

    def write(self, k: Tensor, v: Tensor, places: int | Tensor, end: int) -> tuple[Tensor, Tensor]:
        """Store k and v (B, G, T, K) at `places`, the first for all rows or all of them (B, T), and
        return what is known up to `end`.
        """
        if isinstance(places, int):
            self.k[:, :, places : places + k.size(2)] = k
            self.v[:, :, places : places + k.size(2)] = v
        else:
            rows = torch.arange(k.size(0), device=k.device)[:, None]  # (B, 1)
            self.k[rows, :, places] = k.transpose(1, 2)  # (B, T, G, K)
            self.v[rows, :, places] = v.transpose(1, 2)
        return self.k[:, :, :end], self.v[:, :, :end]

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b], in place."""
        part = self.kv[:, :, :, places]
        part.copy_(part.index_select(1, parents))

    def expand(self, width: int) -> None:
        """Row b becomes `width` rows: a prompt read once serves all its beams."""
        self.kv = self.widened.hold(self.kv.repeat_interleave(width, 1))  # (2, B·W, G, S, K)
        self._show()

    def reset(self) -> None:
        """What was written stays, but nobody looks there before it is written over."""
        self.kv = self.narrow
        self._show()

    def _show(self) -> None:
        """Keys and values (B, G, S, K), each by itself, in the same memory."""
        self.k, self.v = (part.detach() for part in self.kv)


class RecurrentState:
    """The vectors a recurrent stack carries from step to step, each (layers, B, D)."""

    def __init__(self, *vectors: Tensor) -> None:
        self.vectors = self.first = vectors

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b]."""
        self.vectors = tuple(vector[:, parents] for vector in self.vectors)

    def expand(self, width: int) -> None:
        """Row b becomes `width` rows."""
        self.vectors = tuple(vector.repeat_interleave(width, 1) for vector in self.vectors)

    def reset(self) -> None:
        """The vectors it began with."""
        self.vectors = self.first


class Ring:
    """The last R vectors that a layer has read, (B, R, D): position p's stands in place p mod R.

    Before the first position stand zeros. One vector is read or written without moving the others.
    """

    def __init__(self, batch: int, size: int, width: int, like: Tensor) -> None:
        self.past = self.narrow = like.new_zeros(batch, size, width)
        self.widened = WidenedBuffers()

    def read(self, position: int | Tensor) -> Tensor:
        """The vectors (B, D) of one position, the same in all rows or (B,) different ones."""
        place = position % self.past.size(1)
        if isinstance(place, int):
            return self.past[:, place]
        return self.past[torch.arange(len(place), device=place.device), place]

    def write(self, position: int | Tensor, x: Tensor) -> None:
        """Store the vectors (B, D) of one position, over those of R positions before."""
        place = position % self.past.size(1)
        if isinstance(place, int):
            self.past[:, place] = x
        else:
            self.past[torch.arange(len(place), device=place.device), place] = x

    def last(self, end: int | Tensor) -> Tensor:
        """(B, R, D): the vectors of the R positions before `end`, in order."""
        return self.past.gather(1, self._places(end))

    def refill(self, end: int | Tensor, x: Tensor) -> None:
        """What `last(end)` is to be from now on."""
        self.past.scatter_(1, self._places(end), x)

    def _places(self, end: int | Tensor) -> Tensor:
        """(B, R, D): where the R positions before `end` stand."""
        size = self.past.size(1)
        first = end if isinstance(end, int) else end[:, None]  # end - R, modulo R
        places = (first + torch.arange(size, device=self.past.device)) % size  # (R,) or (B, R)
        return places[..., None].expand_as(self.past)

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b], in place."""
        self.past.copy_(self.past[parents])

    def expand(self, width: int) -> None:
        """Row b becomes `width` rows, in the memory of last time where there is one."""
        self.past = self.widened.hold(self.past.repeat_interleave(width, 0))  # (B·W, R, D)

    def reset(self) -> None:
        """Zeros, in the memory it began with."""
        self.past = self.narrow.zero_()


class ContextWindow:
    """All a Markov chain needs: the last tokens it has seen, (B, N), those missing below 0."""

    def __init__(self, ids: Tensor) -> None:
        self.ids = self.first = ids

    def push(self, ids: Tensor, lengths: Tensor | None) -> None:
        """Row b has seen the first lengths[b] of (B, T) more ids, or all of them."""
        width = self.ids.size(1)
        both = torch.cat([self.ids, ids], dim=1)  # (B, N + T)
        if lengths is None:
            self.ids = both[:, both.size(1) - width :]
        else:
            places = torch.arange(width, device=ids.device)
            self.ids = both.gather(1, lengths[:, None] + places)

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b]."""
        self.ids = self.ids[parents]

    def expand(self, width: int) -> None:
        """Row b becomes `width` rows."""
        self.ids = self.ids.repeat_interleave(width, 0)

    def reset(self) -> None:
        """Nothing seen yet."""
        self.ids = self.first


@dataclass(frozen=True, slots=True)
class CrossKV:
    """What cross-attention looks at: keys and values (B, H, S, K) of a source, and who may see
    what of it.
    """

    k: Tensor
    v: Tensor
    mask: Mask | None


class DecodeState:
    """The memory of a whole model: one layer state each, and how many tokens every row has seen.

    `length` is an int while all rows agree, so that decoding them needs no tensor arithmetic, and a
    (B,) tensor once they are ragged; `longest` is always an int. A `fixed` state keeps its length
    in one tensor and shows its whole capacity, masked, so that every step has the same shapes.
    """

    def __init__(self, layers: Sequence[LayerState], batch: int, capacity: int) -> None:
        self.layers = list(layers)
        self.batch = self.rows = batch  # now, and before any `expand`
        self.capacity = capacity
        self.length: int | Tensor = 0
        self.longest = 0
        self.fixed = False
        self.counters = WidenedBuffers()  # the length of a fixed state, (B,)
        self.writers: Tensor | None = None  # (B, S) rows that wrote what stands at each place
        # what each layer looks at besides: the same for all beams of a row, so never reordered
        self.memory: Sequence[CrossKV] | None = None
        self.settling = [layer for layer in self.layers if isinstance(layer, Deferred)]

    def fix(self, device: torch.device | None = None) -> None:
        """From now on every step has the same shapes and memory, which `reset` does not change."""
        length = self.length
        if isinstance(length, int):
            length = torch.full((self.batch,), length, device=device)
        self.length, self.fixed = self.counters.hold(length.clone()), True

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and capacity it was started with."""
        return self.rows, self.capacity

    def reset(self) -> None:
        """Empty again, with the rows it was started with, in the same memory."""
        for layer in self.layers:
            layer.reset()
        self.batch, self.length, self.longest, self.fixed = self.rows, 0, 0, False
        self.writers = None

    def end(self, width: int) -> int:
        """How many positions a call that adds `width` looks at."""
        return self.capacity if self.fixed else self.longest + width

    def advance(self, lengths: Tensor | None, width: int) -> None:
        """Count `lengths[b]` more tokens in row b, or `width` more in every row."""
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
        """Get ready for `width` more: refuse to go past the capacity the state was started with,
        and let layers do what they have put off.
        """
        if self.longest + width > self.capacity:
            raise ValueError(
                f"state holds {self.longest} of {self.capacity} positions, {width} more do not "
                "fit; start it with a larger capacity"
            )
        for layer in self.settling:
            layer.settle(self.longest)

    def after(self, lengths: Tensor | None, width: int) -> int:
        """What `longest` will be once rows have lengths[b] more, or all of them `width`."""
        return self.longest + width if lengths is None else int((self.length + lengths).max())

    def select(self, parents: Tensor) -> None:
        """Row b becomes a copy of row parents[b] in every layer, in place."""
        # On a GPU nobody waits to learn which places these are: all that hold something are copied.
        on_cpu = parents.device.type == "cpu"
        places = self._changed(parents) if on_cpu else slice(0, self.end(0))
        for layer in self.layers:
            layer.select(parents, places)
        if isinstance(self.length, Tensor):
            self.length.copy_(self.length[parents])

    def _changed(self, parents: Tensor) -> slice:
        """The places where some row differs from the one it is to become.

        They are few, since beams of one prompt have most of their past from one writer.
        """
        own = torch.arange(self.batch)[:, None]  # (B, 1)
        before = own.expand(-1, self.capacity) if self.writers is None else self.writers
        self.writers = before[parents]  # (B, S)
        differs = (self.writers != before)[:, : self.longest].any(0).nonzero()
        shortest = self.length if isinstance(self.length, int) else int(self.length.min())
        self.writers[:, shortest:] = own  # from here on every row writes for itself
        return slice(int(differs[0]) if len(differs) else self.longest, self.longest)

    def expand(self, width: int) -> None:
        """Row b becomes the rows b·width to b·width + width - 1, in every layer."""
        for layer in self.layers:
            layer.expand(width)
        self.batch *= width
        self.writers = None
        if isinstance(self.length, Tensor):
            self.length = self.length.repeat_interleave(width)


def last_of(x: Tensor, lengths: Tensor | None) -> Tensor:
    """From (B, T, D) each row's vector at its last position, (B, D); None: all rows have T."""
    if lengths is None:
        return x[:, -1]
    return x[torch.arange(len(x), device=x.device), lengths - 1]
