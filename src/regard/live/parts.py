"""A part of a live page: the program of an object and what the program needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regard.errors import UserError
from regard.look.page.document import Asset
from regard.registry import LIVE

PACKAGE = __package__


def assets(*names: str) -> tuple[Asset, ...]:
    """Return script files of this package."""
    return tuple((PACKAGE, f"{name}.js") for name in names)


@dataclass(frozen=True, eq=False)
class LivePart:
    """What becomes of a model, a tokenizer or a pipeline in a live page.

    `program` is the name under which one of the `scripts` registers itself; it gets `config`, which
    is JSON, and the tensors by name. `matrices` are quantised by rows and `probabilities` on a
    logarithmic scale, both in place; `arrays` are stored as they are.
    """

    program: str
    config: Mapping[str, Any]
    scripts: tuple[Asset, ...] = ()
    matrices: Mapping[str, Tensor] = field(default_factory=dict)
    probabilities: Mapping[str, Tensor] = field(default_factory=dict)
    arrays: Mapping[str, Tensor] = field(default_factory=dict)


def live_part(item: Any, *context: Any) -> LivePart:
    """Return the part of an object, by its class; UserError if there is none."""
    make = LIVE.find(type(item))
    if make is None:
        name = getattr(item, "name", type(item).__name__)
        raise UserError(f"live pages do not support {name}; regard look without --live shows it")
    part: LivePart = make(item, *context)
    return part
