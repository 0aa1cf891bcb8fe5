"""Checks that the configurations of all model families share, and the type of their presets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Presets = dict[str, Callable[[int, int], Any]]  # name to (n_layers, d_model) -> config


def check_ranges(config: Any, least: int = 1, **most: int) -> None:
    """Raise ValueError unless each named field lies between `least` and its own bound."""
    for name, bound in most.items():
        if not least <= getattr(config, name) <= bound:
            raise ValueError(f"{name} must be from {least} to {bound}, got {getattr(config, name)}")


def check_choices(config: Any, **allowed: Iterable[str]) -> None:
    """Raise ValueError unless each named field is one of its allowed values."""
    for name, choices in allowed.items():
        if getattr(config, name) not in choices:
            raise ValueError(
                f"{name} must be one of {', '.join(choices)}, got {getattr(config, name)!r}"
            )


def check_dropout(config: Any) -> None:
    """Raise ValueError unless dropout is a probability below 1."""
    if not 0 <= config.dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {config.dropout}")
