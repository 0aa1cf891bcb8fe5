"""The base class of page components, and how their values become JSON for the page's script.

Numbers are rounded to a few significant digits. Large arrays are stored as base64 of quantised
integers, together with what the script needs to print how exact each value is.
"""

from __future__ import annotations

import base64
import html
import json
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

DIGITS = 6  # significant digits of a number in JSON: more than any chart can show
PACK_ABOVE = 20_000  # values; a longer JSON list would cost more than three bytes per value
MISSING = 65_535  # the 16-bit code of a value that is not finite

_NAMED = {" ": "·", "\n": "↵", "\t": "⇥"}
# Joiners shape whole words of Persian, Hindi and emoji; showing them would break the word apart.
_JOINERS = "\u200c\u200d"


class Component:
    """A dataclass of plain data; `kind` names the script's renderer, `data()` is what it gets."""

    kind: ClassVar[str]

    def data(self) -> dict[str, Any]:
        """Return the component as JSON-able values, without NaN or Infinity."""
        return self.fields()

    def fields(self, *without: str) -> dict[str, Any]:
        """Return the fields as JSON-able values, without some."""
        names = self.__dataclass_fields__  # type: ignore[attr-defined]
        return {name: as_json(getattr(self, name)) for name in names if name not in without}

    def fallback(self) -> str:
        """Return the HTML shown until the script draws, and where scripts are off."""
        title = getattr(self, "title", "") or self.kind
        return f'<p class="undrawn">{escape(title)}: this figure is drawn by the script.</p>'


def visible(text: str, *, spaces: bool = True) -> str:
    """Make control, format and space characters readable; the script's `visible` does the same.

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
    """Escape text for an HTML element or attribute, without characters that reorder the rest."""
    return html.escape(visible(text, spaces=False), quote=True)


def to_json(value: object) -> str:
    """Return JSON for a script element that no string inside it can close."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 is \u2028
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def number(value: float) -> float | str | None:
    """Return a rounded float; None for NaN, and "inf" or "-inf", which JSON does not have."""
    value = float(value)
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.{DIGITS}g}")


def numbers(values: Iterable[float]) -> list[float | str | None]:
    return [number(v) for v in values]


def as_json(value: Any) -> Any:
    """Return a field of a component as JSON-able values: arrays are packed, numbers rounded."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.ndarray):
        return pack(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return number(float(value))
    return [as_json(item) for item in (value.items() if isinstance(value, Mapping) else value)]


def cell(value: object) -> str:
    """Format a table cell: four digits for floats, thousands separated, a dash for None."""
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


def as_array(name: str, values: ArrayLike, dimensions: int) -> NDArray[np.float64]:
    """Return a float array; raise unless it has this many dimensions, none of them empty."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions or 0 in array.shape:
        raise ValueError(
            f"{name} must have {dimensions} dimensions, none of them 0, got shape {array.shape}"
        )
    return array


def as_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Clip rounding errors off values in [0, 1]; raise where they lie outside of it."""
    if not (weights.min() >= -1e-6 and weights.max() <= 1 + 1e-3):
        raise ValueError(f"weights must lie in [0, 1], got {weights.min()} to {weights.max()}")
    return np.clip(weights, 0.0, 1.0)


def check_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raise unless the value is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_length(name: str, got: int, other: str, expected: int) -> None:
    """Raise unless `name` has one entry per `other`."""
    if got != expected:
        raise ValueError(f"{name} must have one entry per {other}: got {got} for {expected}")


def check_indices(name: str, what: str, indices: Iterable[int], count: int) -> None:
    """Raise unless all indices are from 0 to count - 1."""
    for i in indices:
        if not 0 <= i < count:
            raise ValueError(f"{name} must name {what} 0 to {count - 1}, got {i}")


def pack(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return a rounded list when small, else 16-bit steps from the least to the greatest value."""
    shape = list(values.shape)
    finite = np.isfinite(values)
    if values.size <= PACK_ABOVE:
        flat = [v if math.isfinite(v) else None for v in values.ravel().tolist()]
        return {"shape": shape, "list": [None if v is None else number(v) for v in flat]}
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    span = (high - low) or 1.0
    scaled = np.where(finite, (values - low) / span, 0.0) * (MISSING - 1)
    codes = np.where(finite, np.rint(scaled), MISSING).astype("<u2")
    return {"shape": shape, "u16": encode_bytes(codes), "low": float(low), "high": float(high)}


def pack_weights(weights: NDArray[np.float64]) -> dict[str, Any]:
    """Return values in [0, 1] as a rounded list when small, else as 8 bits of their square root.

    Steps of the root stay fine near zero, where most weights of a long row are: 1/512 is stored to
    within five per cent, while equal steps of 1/255 would lose it.
    """
    if weights.size <= PACK_ABOVE:
        return {"shape": list(weights.shape), "list": np.round(weights, DIGITS).ravel().tolist()}
    codes = np.rint(np.sqrt(weights) * 255).astype(np.uint8)
    return {"shape": list(weights.shape), "u8root": encode_bytes(codes)}


def encode_bytes(array: NDArray[Any]) -> str:
    """Return the bytes of an array in base64."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
