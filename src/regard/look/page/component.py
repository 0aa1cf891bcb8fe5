"""What every component is, and how its values become JSON that the page's script can read back.

Numbers travel rounded to a few significant digits; large arrays travel as base64 of quantised
integers, together with what the script needs to print how exact each value is.
"""

from __future__ import annotations

import base64
import html
import json
import math
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

DIGITS = 6  # significant digits of a number in JSON: beyond what any chart can show
PACK_ABOVE = 20_000  # values; a longer JSON list would cost more than three bytes per value
MISSING = 65_535  # the 16-bit code of a value that is not finite

_NAMED = {" ": "·", "\n": "↵", "\t": "⇥"}
# Joiners shape whole words of Persian, Hindi and emoji; showing them would break the word apart.
_JOINERS = "\u200c\u200d"


class Component(ABC):
    """Plain data; `kind` names the script's renderer and `data()` is what it receives."""

    kind: ClassVar[str]

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """The component as JSON-able values, without NaN or Infinity."""

    def fallback(self) -> str:
        """HTML that stands in until the script draws, and for good where scripts are off."""
        title = getattr(self, "title", "") or self.kind
        return f'<p class="undrawn">{escape(title)}: this figure is drawn by the script.</p>'


def visible(text: str, *, spaces: bool = True) -> str:
    """Make control, format and space characters readable; the script's `visible` agrees with it.

    With `spaces` false, ordinary white space stays as it is (titles and prose rather than tokens).
    """
    if not text:
        return "∅" if spaces else ""
    shown = "".join(_visible_character(c, spaces) for c in text)
    return "◌" + shown if spaces and unicodedata.category(text[0]).startswith("M") else shown


def _visible_character(character: str, spaces: bool) -> str:
    if character in _NAMED:
        return _NAMED[character] if spaces else character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # the block of control pictures
    if code == 0x7F:
        return "␡"
    hidden = unicodedata.category(character) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs"}
    return f"⟨{code:04X}⟩" if hidden and character not in _JOINERS else character


def escape(text: str) -> str:
    """Text for an HTML element or attribute: no markup, and nothing that reorders what follows."""
    return html.escape(visible(text, spaces=False), quote=True)


def to_json(value: object) -> str:
    """JSON for a script element that no string inside it can close."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is \u2028
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def number(value: float) -> float | str | None:
    """A rounded float; None for NaN and "inf" or "-inf", which JSON cannot say."""
    value = float(value)
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.{DIGITS}g}")


def numbers(values: Iterable[float]) -> list[float | str | None]:
    """`number` of each value."""
    return [number(v) for v in values]


def cell(value: object) -> str:
    """A table cell or a fact as text: four digits for floats, thousands marked, a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    if isinstance(value, float | np.floating):
        size = float(value)
        if not math.isfinite(size):
            return {math.inf: "∞", -math.inf: "−∞"}.get(size, "not a number")
        return f"{size:.4g}" if abs(size) < 1e4 else f"{size:,.0f}"
    return str(value)


def matrix(name: str, values: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """The values as a float array with exactly this many dimensions, none of them empty."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions or 0 in array.shape:
        raise ValueError(
            f"{name} must have {dimensions} dimensions, none of them 0, got shape {array.shape}"
        )
    return array


def choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise unless the value is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def same_length(name: str, got: int, other: str, expected: int) -> None:
    """Raise unless two lengths that must agree do."""
    if got != expected:
        raise ValueError(f"{name} must have one entry per {other}: got {got} for {expected}")


def pack(values: NDArray[np.float64]) -> dict[str, Any]:
    """Any array: a rounded list when small, else 16-bit steps from its least to its greatest."""
    shape = list(values.shape)
    finite = np.isfinite(values)
    if values.size <= PACK_ABOVE:
        flat = [v if math.isfinite(v) else None for v in values.ravel().tolist()]
        return {"shape": shape, "list": [None if v is None else number(v) for v in flat]}
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    span = (high - low) or 1.0
    scaled = np.where(finite, (values - low) / span, 0.0) * (MISSING - 1)
    codes = np.where(finite, np.rint(scaled), MISSING).astype("<u2")
    return {"shape": shape, "u16": _base64(codes), "low": float(low), "high": float(high)}


def pack_weights(weights: NDArray[np.float64]) -> dict[str, Any]:
    """Values in [0, 1]: a rounded list when small, else 8 bits of their square root.

    Steps of the root stay fine near zero, where the weights of a long row live: 1/512 is kept to
    within five per cent, while equal steps of 1/255 would lose it.
    """
    if weights.size <= PACK_ABOVE:
        return {"shape": list(weights.shape), "list": np.round(weights, DIGITS).ravel().tolist()}
    codes = np.rint(np.sqrt(weights) * 255).astype(np.uint8)
    return {"shape": list(weights.shape), "u8root": _base64(codes)}


def _base64(codes: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii")
