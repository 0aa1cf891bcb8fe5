"""How answers travel: a JSON head, then the bytes of the arrays in it.

4 bytes   length of the head, little-endian
head      JSON; an array is {"$array": [offset, dtype, shape]}
arrays    one after another, each at a multiple of 8 bytes from the end of the padded head
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

DTYPES = ("float32", "int32", "uint8")  # those that browsers have typed arrays for
ALIGN = 8  # typed arrays begin at a multiple of the size of their numbers


def pad(length: int) -> bytes:
    """Return the zero bytes that bring a length to a multiple of 8."""
    return bytes(-length % ALIGN)


def encode(answer: Any) -> bytes:
    """Return an answer as bytes."""
    body: list[bytes] = []
    head = json.dumps(_plain(answer, body), allow_nan=False, separators=(",", ":")).encode()
    start = len(head).to_bytes(4, "little") + head
    return b"".join([start, pad(len(start)), *body])


def _plain(value: Any, body: list[bytes]) -> Any:
    """Return a value as JSON has it; arrays are appended to the body."""
    if isinstance(value, np.ndarray):
        return _put(value, body)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, body) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, body) for item in value]
    if isinstance(value, np.generic):
        return _plain(value.item(), body)
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, str):  # lone surrogates have no UTF-8
        return value.encode("utf-8", "replace").decode()
    return str(value) if isinstance(value, PurePath) else value


def _put(array: np.ndarray, body: list[bytes]) -> dict[str, Any]:
    if array.dtype.name not in DTYPES:
        raise TypeError(f"arrays travel as {', '.join(DTYPES)}, got {array.dtype.name}")
    offset = sum(map(len, body))
    data = np.ascontiguousarray(array).tobytes()
    body.append(data + pad(len(data)))
    return {"$array": [offset, array.dtype.name, list(array.shape)]}


def decode(message: bytes) -> Any:
    """Return what `encode` was given; the page does the same in JavaScript."""
    end = 4 + int.from_bytes(message[:4], "little")
    body = message[end + -end % ALIGN :]

    def restore(value: dict[str, Any]) -> Any:
        if "$array" not in value:
            return value
        offset, dtype, shape = value["$array"]
        flat = np.frombuffer(body, dtype, count=math.prod(shape), offset=offset)
        return flat.reshape(shape)

    return json.loads(message[4:end], object_hook=restore)


def column_json(cells: Sequence[Any]) -> dict[str, Any]:
    """Return a column as codes and names, the most frequent first, or as numbers."""
    if not all(isinstance(cell, str) for cell in cells):
        return {"values": np.array(cells, np.float32)}
    names, counts = np.unique(np.array(cells, dtype=str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    code = {str(names[i]): k for k, i in enumerate(order)}
    return {"names": list(code), "codes": np.array([code[str(cell)] for cell in cells], np.int32)}
