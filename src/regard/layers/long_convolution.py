"""Convolution with filters as long as the sequence, by the fast Fourier transform: O(T log T).

The transform turns convolution round a circle into a product. Padded with zeros to at least 2T - 1,
the circle is too long for anything to come round it, so the result is that of the T × T Toeplitz
matrix of the filter. The gradient is worked out by hand: all of it is real transforms too, where
autograd would take complex ones of the whole circle, and the two spectra are kept, not made again.
On a GPU, where long transforms go through memory more often, long sequences are cut into parts.

`Online` is the same while decoding, when inputs come one by one and each depends on the outputs
before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.state import ALL, Rows

CUT = 32_768  # places of a GPU's parts: up to here, transforms read and write memory twice
BLOCK = 32  # steps of decoding whose inputs are multiplied one by one; a power of two


def circle(length: int) -> int:
    """The least size of 2^a · 3^b · 5^c, quick to transform, in which `length` places and as many
    before them do not meet.
    """
    least = max(1, 2 * length - 1)
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-least // three)
            best = min(best, three << (rest - 1).bit_length())
            three *= 3
        five *= 5
    return best


def long_convolution(x: Tensor, filters: Tensor, ahead: Tensor | None = None) -> Tensor:
    """x (B, C, T) with the filters (C, T) of its channels: y[t] = Σ filters[t - s] · x[s] over
    s <= t, and with `ahead` (C, T) also Σ ahead[s - t - 1] · x[s] over s > t. (B, C, T).

    Half precision is computed in single: sums over T numbers need its digits, and cuFFT has no
    bf16. What comes is what the filters are of, fp32 or fp64.
    """
    length = x.size(-1)
    size, cut = circle(length), length
    if ahead is not None:  # behind place 0 of a circle stand the places before it
        filters = torch.cat(
            (F.pad(filters, (0, size - 2 * length + 1)), ahead[:, : length - 1].flip(-1)), dim=-1
        )
    elif x.is_cuda and length > CUT:
        size, cut = 2 * CUT, CUT
    return _Convolve.apply(x.to(filters.dtype), filters, size, cut)  # type: ignore[no-any-return, no-untyped-call]


class _Convolve(torch.autograd.Function):
    """x (B, C, T) with filters (C, T), in parts of `cut`, each round a circle of `size`; or with
    filters (C, size) round one circle.

    Part k of the result is Σ of part i of x with part k - i of the filters, and of what comes over
    from the part before: in a circle of two cuts, moved by one, which changes the sign of every odd
    wave. So the spectra of the parts are convolved like numbers, and transforms stay short.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, size: int, cut: int) -> Tensor:
        whole = filters.size(-1) > x.size(-1)
        waves = torch.fft.rfft(parts(x, cut), size)  # (B, C, K, F)
        answer = torch.fft.rfft(parts(filters, size if whole else cut), size)  # (C, K, F)
        answer = with_neighbour(answer, 1)
        ctx.save_for_backward(waves, answer)
        ctx.size, ctx.cut, ctx.lengths = size, cut, (x.size(-1), filters.size(-1))
        count = waves.size(-2)
        found = [
            total(times(waves[..., i, :], answer[..., k - i, :]) for i in range(k + 1))
            for k in range(count)
        ]
        return joined(found, size, cut, x.size(-1))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        waves, answer = ctx.saved_tensors
        size, cut, (own, filters) = ctx.size, ctx.cut, ctx.lengths
        dy = torch.fft.rfft(parts(gradients[0], cut), size)
        every = range(dy.size(-2))
        dx = dh = None
        if ctx.needs_input_grad[0]:
            back = answer.conj()
            found = [
                total(times(dy[..., k, :], back[..., k - i, :]) for k in every[i:]) for i in every
            ]
            dx = joined(found, size, cut, own)
        if ctx.needs_input_grad[1]:
            back = waves.conj()
            found = [
                total(times(dy[..., k, :], back[..., k - i, :]).sum(0) for k in every[i:])
                for i in every
            ]
            both = with_neighbour(torch.stack(found, dim=-2), -1)
            dh = joined(both.unbind(-2), size, max(cut, filters if filters > own else 0), filters)
        return dx, dh, None, None


def parts(x: Tensor, cut: int) -> Tensor:
    """(..., T) as (..., K, cut), filled up with zeros."""
    if x.size(-1) <= cut:
        return x.unsqueeze(-2)
    full = F.pad(x, (0, -x.size(-1) % cut))
    return full.view(*full.shape[:-1], -1, cut)


def joined(spectra: Sequence[Tensor], size: int, cut: int, length: int) -> Tensor:
    """The first `cut` places of the circles that spectra (..., F) are of, end to end: (..., T)."""
    y: Tensor = torch.fft.irfft(torch.stack(tuple(spectra), dim=-2), size)
    return y[..., :cut].flatten(-2)[..., :length]


def with_neighbour(spectra: Tensor, by: int) -> Tensor:
    """(..., K, F), to each part added what the one before it (by = 1) or after it (-1) leaves:
    that one moved by half of the circle.
    """
    if spectra.size(-2) == 1:
        return spectra
    sign = 1 - 2 * (torch.arange(spectra.size(-1), device=spectra.device) % 2)
    rest = spectra[..., :-1, :] if by > 0 else spectra[..., 1:, :]
    none = torch.zeros_like(spectra[..., :1, :])
    ends = (none, rest * sign) if by > 0 else (rest * sign, none)
    return spectra + torch.cat(ends, dim=-2)


def total(terms: Iterable[Tensor]) -> Tensor:
    """Their sum."""
    return reduce(torch.add, terms)


def times(one: Tensor, two: Tensor) -> Tensor:
    """A product of complex numbers; for a compiler, which knows none, in real ones."""
    if not torch.compiler.is_compiling():
        return one * two
    (a, b), (c, d) = (torch.view_as_real(x.resolve_conj()).unbind(-1) for x in (one, two))
    return torch.view_as_complex(torch.stack((a * c - b * d, a * d + b * c), dim=-1))


class Online:
    """A causal long convolution whose inputs come one by one: the memory of one, while decoding.

    Rows end at one column: shorter ones begin later, behind zeros, which changes nothing about a
    convolution. The inputs of the BLOCK at hand are multiplied one by one. Whenever blocks are full
    up to a column whose number, counted from the last prompt, is divisible by U but not by 2U,
    their last U inputs are sent on to the next U outputs by one transform of size 2U: every input
    meets every later output exactly once, and n steps cost O(n log² n) (van der Hoeven 2002; as
    decoding of long convolutions, Oncescu et al. 2024, "Flash Inference", arXiv:2410.12982). What a
    prompt adds to all that may follow it is computed when it is read.

    A step always does the same operations on the same memory; what is done between steps, `settle`
    does, which knows where it stands without asking the device.
    """

    def __init__(self, batch: int, filters: Tensor) -> None:
        """`filters` (C, S): S is the capacity."""
        channels, capacity = filters.shape
        self.filters, self.capacity = filters, capacity
        self.inputs = Rows(filters.new_zeros(batch, channels, capacity), 0)
        self.owed = Rows(filters.new_zeros(batch, channels, capacity), 0)  # to outputs, by column
        self.tail = Rows(filters.new_zeros(BLOCK, batch, channels), 1)  # inputs of this block
        self.due = Rows(filters.new_zeros(BLOCK, batch, channels), 1)  # and what is owed to it
        self.begun = Rows(torch.zeros(batch, dtype=torch.int64, device=filters.device), 0)
        self.first = self.settled = 0  # columns: where steps began, and up to where all is sent on
        near = F.pad(filters[:, :BLOCK], (0, max(0, BLOCK - capacity)))
        self.near = F.pad(near.flip(-1), (0, BLOCK)).T.contiguous()  # (2·BLOCK, C): far to near
        self.within = torch.arange(BLOCK, device=filters.device)
        self.spectra: dict[int, Tensor] = {}

    @property
    def rows(self) -> tuple[Rows, ...]:
        """All memory that has rows."""
        return self.inputs, self.owed, self.tail, self.due, self.begun

    def step(self, x: Tensor, position: int | Tensor, column: int) -> Tensor:
        """One more input (B, C); its output (B, C).

        All rows are at `column`; where positions are a tensor (B, 1), it is not looked at, so that
        the step may be recorded.
        """
        tail, due = self.tail.now, self.due.now
        if isinstance(position, int):
            phase = (column - self.first) % BLOCK
            tail[phase] = x
            near, owed = self.near[BLOCK - 1 - phase : 2 * BLOCK - 1 - phase], due[phase]
        else:
            at = (position[0] - self.begun.now[:1]) % BLOCK  # (1,): the same in all rows
            tail[at] = x[None]
            near, owed = self.near[self.within + (BLOCK - 1 - at)], due[at][0]  # (BLOCK, C), (B, C)
        return owed + (tail * near[:, None]).sum(0)  # what is nearer than 0 has not come yet: 0

    def settle(self, column: int) -> None:
        """Send on what blocks that are full by now owe to the outputs after them."""
        while column - self.settled >= BLOCK:
            inputs, owed, end = self.inputs.now, self.owed.now, self.settled + BLOCK
            inputs[:, :, self.settled : end] = self.tail.now.permute(1, 2, 0)
            self.settled = end
            width = (end - self.first) & (self.first - end)  # the largest power of 2 in it
            room = min(width, self.capacity - end)
            if room > 0:
                waves = torch.fft.rfft(inputs[:, :, end - width : end], 2 * width)
                waves = waves * self.spectrum(width)
                owed[:, :, end : end + room] += torch.fft.irfft(waves)[..., width : width + room]
                self.load()

    def spectrum(self, width: int) -> Tensor:
        """(C, width + 1): of the filters up to a distance of 2·width, made once."""
        if width not in self.spectra:
            self.spectra[width] = torch.fft.rfft(self.filters[:, : 2 * width], 2 * width)
        return self.spectra[width]

    def load(self) -> None:
        """What is owed to the block that begins."""
        owed = self.owed.now[:, :, self.settled : self.settled + BLOCK].permute(2, 0, 1)
        self.due.now[: len(owed)] = owed

    def read(
        self, x: Tensor, lengths: Tensor | None, seen: int | Tensor, column: int, until: int
    ) -> Tensor:
        """Several inputs at once: (B, C, T), of which lengths[b] count, after the `seen` of each
        row, which end at `column`; all end at `until` then. The outputs (B, C, T).
        """
        inputs, (_, channels, width) = self.inputs.now, x.shape
        part = self.tail.now[: column - self.settled]  # of a block that is not full yet
        inputs[:, :, self.settled : column] = part.permute(1, 2, 0)
        known = torch.cat((inputs[:, :, :column], x.to(inputs.dtype)), dim=-1)  # (B, C, column + T)
        places = torch.arange(column, column + width, device=x.device).expand(len(x), -1)  # of x
        if lengths is not None:
            shift = until - column - lengths[:, None]  # (B, 1): by which rows move to end at one
            kept = torch.arange(until, device=x.device) - shift  # (B, until) places in `known`
            taken = kept.clamp_min(0)[:, None].expand(-1, channels, -1)
            known = known.gather(-1, taken) * (kept >= 0)[:, None]
            places = (places + shift).clamp_max(self.capacity - 1)
        inputs.zero_()[:, :, :until] = known
        self.owed.now.copy_(long_convolution(inputs, self.filters))
        self.first = self.settled = until
        self.begun.now.copy_(torch.as_tensor(seen + (width if lengths is None else lengths)))
        self.load()
        return self.owed.now.gather(-1, places[:, None].expand(-1, channels, -1))

    def select(self, parents: Tensor, places: slice = ALL) -> None:
        """Row b becomes a copy of row parents[b], in place.

        Where rows differ from a place on, their inputs do from that column or a later one; what is
        owed, if they share a prompt, as far as what came after it has been sent on.
        """
        begin = places.start or 0
        for rows in (self.tail, self.due, self.begun):
            rows.select(parents)
        self.inputs.select(parents, slice(begin, None))
        done = self.settled - self.first
        reach = self.settled + done if begin >= self.first else None
        self.owed.select(parents, slice(self.settled if begin else 0, reach))

    def expand(self, width: int) -> None:
        """Row b becomes `width` rows."""
        for rows in self.rows:
            rows.expand(width)

    def reset(self) -> None:
        """Nothing read yet, in the same memory."""
        for rows in self.rows:
            rows.reset()
            rows.now.zero_()
        self.first = self.settled = 0
