"""Named activations: a tap is passed down `forward`, so nothing is ever stored on a module.

Names read like paths: `block.3.attention.weights`. Asking for attention weights selects the
explicit path of `attend`, because the fused kernel never forms them.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import Tensor


class Tap:
    """Collects the activations whose names match a pattern (`*.weights`, `logits`)."""

    def __init__(
        self, patterns: Iterable[str], *, _prefix: str = "", _store: dict[str, Tensor] | None = None
    ) -> None:
        self.patterns = tuple(patterns)
        self.prefix = _prefix
        self.found: dict[str, Tensor] = {} if _store is None else _store

    def at(self, name: str | int) -> Tap:
        """The same tap, one level down: `tap.at("block").at(3)("weights", w)` stores
        `block.3.weights`.
        """
        return Tap(self.patterns, _prefix=f"{self.prefix}{name}.", _store=self.found)

    def wants(self, name: str) -> bool:
        """Would this activation be kept? Lets `forward` skip work nobody asked for."""
        return any(fnmatchcase(self.prefix + name, pattern) for pattern in self.patterns)

    def __call__(self, name: str, tensor: Tensor) -> None:
        """Offer an activation; it is kept, detached, when wanted."""
        if self.wants(name):
            self.found[self.prefix + name] = tensor.detach()
