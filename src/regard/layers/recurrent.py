"""Recurrence: a state carried from symbol to symbol (Hochreiter & Schmidhuber 1997 for the LSTM).

The cells are torch's own, whose kernels are fused; this file adds what decoding needs: ragged
prompts and a state that beams can reorder.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.layers.state import Recurrence


class LSTMStack(nn.Module):
    """A stack of LSTM layers over (B, T, D)."""

    def __init__(self, d_model: int, n_layers: int, dropout: float) -> None:
        super().__init__()
        self.cells = nn.LSTM(
            d_model, d_model, n_layers, batch_first=True, dropout=dropout if n_layers > 1 else 0.0
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D), from a zero state; right padding cannot reach what stands before
        it.
        """
        y: Tensor = self.cells(x)[0]
        return y

    def new_state(self, batch: int, like: Tensor) -> Recurrence:
        """The zero state: hidden and cell vectors, (layers, B, D) each."""
        shape = (self.cells.num_layers, batch, self.cells.hidden_size)
        return Recurrence(like.new_zeros(shape), like.new_zeros(shape))

    def advance(self, x: Tensor, lengths: Tensor | None, state: Recurrence) -> Tensor:
        """Carry `state` over the first lengths[b] vectors of each row; return the last output of
        each, (B, D).
        """
        hidden, cell = state.vectors
        if lengths is None:
            y, state.vectors = self.cells(x, (hidden.contiguous(), cell.contiguous()))
            return y[:, -1]  # type: ignore[no-any-return]
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        y, state.vectors = self.cells(packed, (hidden.contiguous(), cell.contiguous()))
        padded = pad_packed_sequence(y, batch_first=True)[0]  # (B, T, D)
        return padded[torch.arange(x.size(0), device=x.device), lengths - 1]
