"""Recurrence: a state carried from symbol to symbol.

The plain network (Elman 1990), the GRU (Cho et al. 2014, arXiv:1406.1078) and the LSTM (Hochreiter
& Schmidhuber 1997). The cells are torch's own, whose kernels are fused; this file adds what
decoding needs: ragged prompts and a state that beams can reorder.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.cache import RecurrentState, last_of


class RecurrentStack(nn.Module):
    """A stack of recurrent layers over (B, T, D), of torch's `nn.RNN`, `nn.GRU` or `nn.LSTM`."""

    def __init__(self, cell: type[nn.RNNBase], d_model: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        build: Any = cell  # the base class asks for a mode, which its subclasses know
        self.cells: nn.RNNBase = build(
            d_model, d_model, n_layers, batch_first=True, dropout=dropout if n_layers > 1 else 0.0
        )

    def forward(self, x: Tensor, first: RecurrentState | None = None) -> Tensor:
        """(B, T, D) to (B, T, D), from a zero state or from `first`; right padding cannot reach
        what stands before it.
        """
        y: Tensor = self.cells(x, None if first is None else self.carried(first))[0]
        return y

    def carried(self, state: RecurrentState) -> Any:
        """A state as torch's cells take it."""
        vectors = tuple(vector.contiguous() for vector in state.vectors)
        return vectors if isinstance(self.cells, nn.LSTM) else vectors[0]

    def new_state(self, batch: int, like: Tensor) -> RecurrentState:
        """The zero state: hidden vectors, of an LSTM cell vectors too, (layers, B, D) each."""
        shape = (self.cells.num_layers, batch, self.cells.hidden_size)
        many = 2 if isinstance(self.cells, nn.LSTM) else 1
        return RecurrentState(*(like.new_zeros(shape) for _ in range(many)))

    def advance(self, x: Tensor, lengths: Tensor | None, state: RecurrentState) -> Tensor:
        """Carry `state` over the first lengths[b] vectors of each row; return the last output of
        each, (B, D).
        """
        given = self.carried(state)
        if lengths is None:
            y, after = self.cells(x, given)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            y, after = self.cells(packed, given)
            y = pad_packed_sequence(y, batch_first=True)[0]  # (B, T, D)
        state.vectors = after if isinstance(after, tuple) else (after,)
        return last_of(y, lengths)


class BidirectionalStack(nn.Module):
    """A recurrent layer that reads a sequence from its beginning, and one from its end."""

    def __init__(self, cell: type[nn.RNNBase], d_model: int) -> None:
        super().__init__()
        self.onward = RecurrentStack(cell, d_model, 1, 0.0)
        self.backward = RecurrentStack(cell, d_model, 1, 0.0)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) to (B, S, 2D), and the vectors (B, 2D) where both directions end.

        A row is read from its first to its last of lengths[b] positions and back: padding comes
        last in both directions and reaches nothing.
        """
        places = torch.arange(x.size(1), device=x.device)
        turned = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
        turned = turned[..., None].expand_as(x)  # (B, S, D): its own inverse
        onward, backward = self.onward(x), self.backward(x.gather(1, turned))  # (B, S, D)
        ends = torch.cat((last_of(onward, lengths), last_of(backward, lengths)), dim=-1)
        return torch.cat((onward, backward.gather(1, turned)), dim=-1), ends
