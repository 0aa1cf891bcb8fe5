"""Recurrent stacks against torch's cells on each row alone."""

from __future__ import annotations

import torch
from torch import nn

from regard.layers.recurrent import RecurrentStack


def test_the_recurrence_carries_its_state_over_ragged_prompts():
    torch.manual_seed(2)
    stack = RecurrentStack(nn.LSTM, 5, 2, 0.0).eval()
    x, lengths = torch.randn(3, 6, 5), torch.tensor([2, 6, 4])
    state = stack.new_state(3, x)
    last = stack.advance(x, lengths, state)
    more = stack.advance(x[:, :2], None, state)
    for row, n in enumerate(lengths.tolist()):
        alone = torch.cat([x[row, :n], x[row, :2]])[None]
        out, (hidden, cell) = stack.cells(alone)
        torch.testing.assert_close(last[row], out[0, n - 1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(more[row], out[0, -1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(state.vectors[0][:, row], hidden[:, 0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(state.vectors[1][:, row], cell[:, 0], atol=1e-6, rtol=1e-5)
