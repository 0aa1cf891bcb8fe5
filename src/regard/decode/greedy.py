"""Greedy decoding: the most probable token at every step."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from regard.decode.engine import Batch, Generated
from regard.decode.transcript import follow


@dataclass(frozen=True)
class Greedy:
    """Take the most probable token each time; of equals the one with the lowest id.

    Without `log_probs` the logits are never normalised, which is faster; `Generated.log_probs` is
    then empty and its score 0.
    """

    log_probs: bool = True

    @property
    def rows(self) -> int:
        """See Strategy."""
        return 1

    def decode(self, batch: Batch) -> list[list[Generated]]:
        """See Strategy."""
        return follow(batch, _most_probable, log_probs=self.log_probs)


def _most_probable(scores: Tensor, step: int) -> tuple[Tensor, Tensor]:
    chosen, ids = scores.max(-1)
    return ids, chosen
