"""Activations by name: a tap records them, an edit changes them.

Activations have names such as `block.3.attention.weights`. A `Tap` is passed down `forward`, which
hands it each activation and goes on with what it returns; nothing is stored on modules. Ablation,
activation patching (Vig et al. 2020, arXiv:2004.12265; Meng et al. 2022, arXiv:2202.05262) and
steering (Turner et al. 2023, arXiv:2308.10248) are edits:

    run(ids, tap=Tap(edits=[Edit.zero("block.0.attention.heads", (slice(None), 2))]))

| name | shape | what |
|---|---|---|
| `embedding` | (B, T, D) | the input of the first block, with positions that are added |
| `block.i.attention.norm` | (B, T, D) | what the mixer reads (post-norm: the sum after its norm) |
| `block.i.attention.q`, `.k`, `.v` | (B, H or G, T, K) | as compared: normalized and rotated |
| `block.i.attention.scores`, `.weights` | (B, H, T, S) | before and after the softmax |
| `block.i.attention.heads` | (B, H, T, K) | the weighted values of each head |
| `block.i.attention.gates`, `.values` | (B, T, N·D), (B, T, D) | of Hyena: the gates, the values |
| `block.i.attention.output` | (B, T, D) | what is added to the residual stream |
| `block.i.attention.residual` | (B, T, D) | the residual stream after it |
| `block.i.cross.*` | | the same of attention to a source, keys and values (B, H, S, K) |
| `block.i.feedforward.norm`, `.hidden`, `.output` | (B, T, D), (B, T, F), (B, T, D) | |
| `block.i.output` | (B, T, D) | the residual stream after the block |
| `norm` | (B, T, D) | what the head reads |
| `logits` | (B, T, V) | |

Other families have `layer.i.output`, `recurrent.output`, `filters.output`, `states` and
`pooling.weights`; `regard look RUN --shapes` lists those of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Self

from torch import Tensor

from regard.errors import UsageError, did_you_mean

Value = float | Tensor


def scaled(entries: Tensor, value: Value) -> Tensor:
    return entries * value


def replaced(entries: Tensor, value: Value) -> Value:
    return value


def increased(entries: Tensor, value: Value) -> Tensor:
    return entries + value


@dataclass(frozen=True, eq=False)
class Edit:
    """A change of the activations whose names match a pattern.

    `where` indexes the entries that change, all of them by default: `(slice(None), 2)` is head 2 of
    every row. `value` is a number or a tensor that broadcasts to these entries.
    """

    pattern: str
    change: Callable[[Tensor, Value], Value]
    value: Value = 0.0
    where: tuple[Any, ...] = ()

    @classmethod
    def scale(cls, pattern: str, factor: Value, where: tuple[Any, ...] = ()) -> Self:
        """Multiply by a factor."""
        return cls(pattern, scaled, factor, where)

    @classmethod
    def zero(cls, pattern: str, where: tuple[Any, ...] = ()) -> Self:
        """Set to zero, also where the activation is infinite or NaN."""
        return cls(pattern, replaced, 0.0, where)

    @classmethod
    def replace(cls, pattern: str, value: Value, where: tuple[Any, ...] = ()) -> Self:
        """Set to a value, such as the same activation of another input."""
        return cls(pattern, replaced, value, where)

    @classmethod
    def add(cls, pattern: str, value: Value, where: tuple[Any, ...] = ()) -> Self:
        """Add a value, such as a direction to steer into."""
        return cls(pattern, increased, value, where)

    def __call__(self, activation: Tensor) -> Tensor:
        """Return the changed activation; the one given stays as it is."""
        where, value = self.where or (...,), self.value
        if isinstance(value, Tensor):
            value = value.to(activation)
        changed = activation.clone()
        changed[where] = self.change(changed[where], value)
        return changed


class Tap:
    """Records the activations whose names match a pattern (`*.weights`, `logits`), after the edits
    that apply to them. Edits apply in their order.
    """

    def __init__(
        self,
        patterns: Iterable[str] = (),
        *,
        edits: Iterable[Edit] = (),
        _prefix: str = "",
        _activations: dict[str, Tensor] | None = None,
        _names: set[str] | None = None,
    ) -> None:
        self.patterns, self.edits = tuple(patterns), tuple(edits)
        self.prefix = _prefix
        self.activations: dict[str, Tensor] = {} if _activations is None else _activations
        self.names: set[str] = set() if _names is None else _names  # of all activations so far

    def at(self, name: str | int) -> Tap:
        """Return the same tap one level down: `tap.at("block").at(3)("weights", w)` records
        `block.3.weights`.
        """
        return Tap(
            self.patterns,
            edits=self.edits,
            _prefix=f"{self.prefix}{name}.",
            _activations=self.activations,
            _names=self.names,
        )

    def wants(self, name: str) -> bool:
        """Return whether an activation is recorded or changed, so that `forward` can skip work for
        others.
        """
        full = self.prefix + name
        patterns = (*self.patterns, *(edit.pattern for edit in self.edits))
        return any(fnmatchcase(full, pattern) for pattern in patterns)

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        """Return an activation after its edits; record it, detached, if it matches."""
        full = self.prefix + name
        self.names.add(full)
        for edit in self.edits:
            if fnmatchcase(full, edit.pattern):
                tensor = edit(tensor)
        if any(fnmatchcase(full, pattern) for pattern in self.patterns):
            self.activations[full] = tensor.detach()
        return tensor

    def check_edits(self) -> None:
        """Raise for an edit that changed nothing: no activation of the model has such a name."""
        for edit in self.edits:
            if not any(fnmatchcase(name, edit.pattern) for name in self.names):
                hint = did_you_mean(edit.pattern, sorted(self.names))
                raise UsageError(f"no activation is called {edit.pattern!r}; {hint}")


def tapped(tap: Tap | None, name: str, tensor: Tensor) -> Tensor:
    """Return an activation as the tap leaves it; without a tap, as it is."""
    return tensor if tap is None else tap(name, tensor)
