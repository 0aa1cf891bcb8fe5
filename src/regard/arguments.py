"""Arguments that are either one item or a list of items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

from regard.errors import quoted


def is_text(value: object) -> bool:
    """Return whether the value is a str."""
    return isinstance(value, str)


def is_path(value: object) -> bool:
    """Return whether the value is a str or a Path."""
    return isinstance(value, str | Path)


def one_or_many(
    name: str, value: Any, is_item: Callable[[object], bool] = is_text, what: str = "a str"
) -> tuple[list[Any], bool]:
    """Return the items of the argument `name`, and whether it was a single item.

    `what` names an item in the TypeError that any other value raises.
    """
    if is_item(value):
        return [value], True
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping | AbstractSet):
        raise TypeError(
            f"{name} must be {what} or a list of them, got {type(value).__name__} {quoted(value)}"
        )
    items = list(value)
    for number, item in enumerate(items):
        if not is_item(item):
            raise TypeError(
                f"{name}[{number}] must be {what}, got {type(item).__name__} {quoted(item)}"
            )
    return items, False
