"""Convolution with filters as long as the sequence, by the fast Fourier transform: O(T log T).

The transform turns convolution round a circle into a product. Where the circle is no longer than
the sequence, what comes round it falls onto what is wanted; the usual remedy is to double it with
zeros. Here every place t is turned by an angle instead, from 0 to a quarter turn at the circle's
end. What has gone round has gained a quarter turn by the time that angles are taken back, so it is
imaginary, and what is wanted, real: they do not mix (the right-angle convolution of Crandall &
Fagin 1994, "Discrete weighted transforms and large-integer arithmetic"). Nothing is padded, and the
result is that of the T × T Toeplitz matrix of the filter.

`OnlineConvolution` is the same while decoding, when inputs come one by one and each depends on the
outputs before it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.layers.cache import ALL, RowBuffer

try:
    from regard.kernels.weighted_fft import weighted_fft as turn_rows
    from regard.kernels.weighted_fft import weighted_ifft as turn_rows_back
except ImportError:  # no Triton here
    turn_rows = turn_rows_back = None  # type: ignore[assignment, unused-ignore]

BLOCK = 32  # steps of decoding whose inputs are multiplied one by one; a power of two


def circle(length: int) -> int:
    """The least size from `length` on of the form 2^a · 3^b · 5^c, which is quick to transform."""
    best = 1 << (length - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-length // three)
            best = min(best, three << (rest - 1).bit_length())
            three *= 3
        five *= 5
    return best


def long_convolution(x: Tensor, filters: Tensor, ahead: Tensor | None = None) -> Tensor:
    """x (B, C, T) with the filters (C, T) of its channels: y[t] = Σ filters[t - s] · x[s] over
    s <= t, and with `ahead` (C, T) also Σ ahead[s - t - 1] · x[s] over s > t. (B, C, T).

    What comes is of x's type. It is computed in that of the filters, fp32 or fp64: sums over T
    numbers need their digits.
    """
    return _Convolve.apply(x, filters, ahead)  # type: ignore[no-any-return, no-untyped-call]


class _Convolve(torch.autograd.Function):
    """The gradient is worked out by hand: it takes the same transforms, of one more signal, where
    autograd would take some of them twice.

    What lies m places ahead comes from going back m places, or round all but m of them and then
    back by a quarter turn: the filter of both sides is filters - i · ahead from the end.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, filters: Tensor, ahead: Tensor | None) -> Tensor:
        length = x.size(-1)
        turn = turns(circle(length), filters)  # (S,)
        if ahead is not None:
            filters = F.pad(filters, (0, len(turn) - length))
            behind = F.pad(ahead[:, : length - 1].flip(-1), (len(turn) - length + 1, 0))
            filters = torch.complex(filters, -behind)
        waves, answer = of_rows(x, turn), spectrum(filters, turn)  # (B, C, S), (C, S)
        ctx.save_for_backward(waves, answer)
        return to_rows(times(waves, answer), turn, x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        waves, answer = ctx.saved_tensors
        dy, length = gradients[0], gradients[0].size(-1)
        turn = turns(waves.size(-1), answer.real)
        given = of_rows(dy, turn)
        dx = dh = da = None
        if ctx.needs_input_grad[0]:
            dx = to_rows(times(given, answer, back=True), turn, dy)
        if any(ctx.needs_input_grad[1:]):
            real, imaginary = signal(times(given, waves, back=True, over_rows=True), turn)
            dh = real[..., :length]
            if ctx.needs_input_grad[2]:
                behind = imaginary[..., len(turn) - length + 1 :]
                da = F.pad(-behind.flip(-1), (0, 1))  # the last is never reached
        return dx, dh, da


def of_rows(x: Tensor, turn: Tensor) -> Tensor:
    """The waves (B, C, S) of x (B, C, T)."""
    if turn_rows is not None and x.is_cuda and turn.dtype == torch.complex64:
        turned = turn_rows(x, torch.view_as_real(turn))
        waves: Tensor = torch.fft.fft(torch.view_as_complex(turned))
        return waves
    return spectrum(x.contiguous().to(turn.real.dtype), turn)


def to_rows(waves: Tensor, turn: Tensor, like: Tensor) -> Tensor:
    """The first places of what has such waves, as many as those of `like`, and of its type."""
    length = like.size(-1)
    if turn_rows_back is not None and like.is_cuda and turn.dtype == torch.complex64:
        z = torch.view_as_real(torch.fft.ifft(waves, norm="forward"))
        y: Tensor = turn_rows_back(z, torch.view_as_real(turn), length, like.dtype)
        return y.mT
    return signal(waves, turn)[0][..., :length].to(like.dtype)


def turns(size: int, like: Tensor) -> Tensor:
    """(S,): the numbers on the unit circle that turn the places of a circle, by up to a quarter."""
    places = torch.arange(size, device=like.device, dtype=torch.float64) * (math.pi / (2 * size))
    return torch.complex(places.cos().to(like.dtype), places.sin().to(like.dtype))


def spectrum(x: Tensor, turn: Tensor) -> Tensor:
    """The waves (..., S) of x (..., T), filled up with zeros and turned."""
    short = len(turn) - x.size(-1)
    waves: Tensor = torch.fft.fft(times(F.pad(x, (0, short)) if short else x, turn))
    return waves


def signal(waves: Tensor, turn: Tensor) -> tuple[Tensor, Tensor]:
    """What has such waves (..., S), turned back: its real and imaginary parts."""
    z, turn = torch.fft.ifft(waves, norm="forward"), turn / len(turn)  # which saves a pass
    if not torch.compiler.is_compiling():
        z *= turn.conj()
        return z.real, z.imag
    (a, b), (cos, sin) = (torch.view_as_real(each).unbind(-1) for each in (z, turn))
    return a * cos + b * sin, b * cos - a * sin


def times(one: Tensor, two: Tensor, *, back: bool = False, over_rows: bool = False) -> Tensor:
    """A product, or, to go back, one with the conjugate of the second; summed over rows if asked.

    Compilers know no complex numbers and copy what they do not know: for them, in real ones.
    """
    if not torch.compiler.is_compiling():
        product = one * (two.conj() if back else two)
        return product.sum(0) if over_rows else product
    c, d = torch.view_as_real(two).unbind(-1)
    if not one.is_complex():
        parts = [one * c, one * d]
    else:
        a, b = torch.view_as_real(one).unbind(-1)
        parts = [a * c + b * d, b * c - a * d] if back else [a * c - b * d, b * c + a * d]
    if over_rows:
        parts = [part.sum(0) for part in parts]
    return torch.view_as_complex(torch.stack(parts, dim=-1))


class OnlineConvolution:
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
        self.inputs = RowBuffer(filters.new_zeros(batch, channels, capacity), 0)
        self.owed = RowBuffer(
            filters.new_zeros(batch, channels, capacity), 0
        )  # to outputs, by column
        self.tail = RowBuffer(filters.new_zeros(BLOCK, batch, channels), 1)  # inputs of this block
        self.due = RowBuffer(filters.new_zeros(BLOCK, batch, channels), 1)  # and what is owed to it
        self.begun = RowBuffer(torch.zeros(batch, dtype=torch.int64, device=filters.device), 0)
        self.first = self.settled = 0  # columns: where steps began, and up to where all is sent on
        near = F.pad(filters[:, :BLOCK], (0, max(0, BLOCK - capacity)))
        self.near = F.pad(near.flip(-1), (0, BLOCK)).T.contiguous()  # (2·BLOCK, C): far to near
        self.within = torch.arange(BLOCK, device=filters.device)
        self.spectra: dict[int, Tensor] = {}

    @property
    def rows(self) -> tuple[RowBuffer, ...]:
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
