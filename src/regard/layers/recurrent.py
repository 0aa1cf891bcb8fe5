"""Recurrent layers with ragged prompts and a state that beams can reorder.

The plain network (Elman 1990), the GRU (Cho et al. 2014, arXiv:1406.1078) and the LSTM (Hochreiter
& Schmidhuber 1997). The cells are torch's own, whose kernels are fused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.cache import RecurrentState, take_last


class RecurrentStack(nn.Module):
    """A stack of recurrent layers over (B, T, D), of torch's `nn.RNN`, `nn.GRU` or `nn.LSTM`."""

    def __init__(self, cell: type[nn.RNNBase], d_model: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        build: Any = cell  # the base class requires a mode, which its subclasses know
        self.cells: nn.RNNBase = build(
            d_model, d_model, n_layers, batch_first=True, dropout=dropout if n_layers > 1 else 0.0
        )

    def forward(self, x: Tensor, initial: RecurrentState | None = None) -> Tensor:
        """(B, T, D) to (B, T, D), from a zero state or from `initial`; right padding does not reach
        the positions before it.
        """
        y: Tensor = self.cells(x, None if initial is None else self._cell_state(initial))[0]
        return y

    def _cell_state(self, state: RecurrentState) -> Any:
        vectors = tuple(vector.contiguous() for vector in state.vectors)
        return vectors if isinstance(self.cells, nn.LSTM) else vectors[0]

    def new_state(self, batch: int, like: Tensor) -> RecurrentState:
        """Return the zero state: hidden vectors and, for an LSTM, cell vectors, (layers, B, D)."""
        shape = (self.cells.num_layers, batch, self.cells.hidden_size)
        count = 2 if isinstance(self.cells, nn.LSTM) else 1
        return RecurrentState(*(like.new_zeros(shape) for _ in range(count)))

    def advance(self, x: Tensor, lengths: Tensor | None, state: RecurrentState) -> Tensor:
        """Read the first lengths[b] vectors of each row and return its last output, (B, D)."""
        before = self._cell_state(state)
        if lengths is None:
            y, after = self.cells(x, before)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            y, after = self.cells(packed, before)
            y = pad_packed_sequence(y, batch_first=True)[0]  # (B, T, D)
        state.vectors = after if isinstance(after, tuple) else (after,)
        return take_last(y, lengths)


class BidirectionalStack(nn.Module):
    """A recurrent layer that reads a sequence from its start, and one from its end."""

    def __init__(self, cell: type[nn.RNNBase], d_model: int) -> None:
        super().__init__()
        self.onward = RecurrentStack(cell, d_model, 1, 0.0)
        self.backward = RecurrentStack(cell, d_model, 1, 0.0)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S, D) to (B, S, 2D), and the vectors (B, 2D) where both directions end.

        Each row is reversed within its lengths[b] positions, so that padding comes last in both
        directions and has no effect.
        """
        positions = torch.arange(x.size(1), device=x.device)
        reverse = lengths[:, None] - 1 - positions
        reverse = torch.where(positions < lengths[:, None], reverse, positions)
        reverse = reverse[..., None].expand_as(x)  # (B, S, D): its own inverse
        forward, backward = self.onward(x), self.backward(x.gather(1, reverse))  # (B, S, D)
        ends = torch.cat((take_last(forward, lengths), take_last(backward, lengths)), dim=-1)
        return torch.cat((forward, backward.gather(1, reverse)), dim=-1), ends
