"""Weights in few bits, and the numbers that the page makes of them.

A matrix has one scale per row and integers of 8 or 16 bits: w ≈ scale · code. Probabilities are 16
bits on a logarithmic scale, and 0 stays 0. Everything else is stored as it is. `values` are
computed as the page computes them, so that Python can run the very same model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.live.parts import LivePart
from regard.look.page.document import encode_bytes

LEVELS = 65_534  # steps between the least and the greatest logarithm; code 0 is probability 0


@dataclass(frozen=True, eq=False)
class Packed:
    """A stored array: its bytes, what the page needs to read them, and the values that it gets."""

    header: dict[str, Any]
    data: bytes
    values: NDArray[Any]


def pack_rows(matrix: NDArray[np.float32], bits: int) -> Packed:
    """Store a matrix (N, M) in integers of 8 or 16 bits, with a scale per row."""
    most = (1 << (bits - 1)) - 1
    scale = (np.abs(matrix).max(1) / most).astype("<f4")  # (N,)
    scale[scale == 0] = 1
    codes = np.rint(matrix / scale[:, None]).clip(-most, most).astype(f"<i{bits // 8}")
    header = {"codec": f"int{bits}", "shape": list(matrix.shape)}
    values = scale[:, None] * codes.astype(np.float32)
    return Packed(header, scale.tobytes() + codes.tobytes(), values)


def pack_logs(probabilities: NDArray[np.float64]) -> Packed:
    """Store probabilities by their logarithms, in 16 bits."""
    positive = probabilities > 0
    logs = np.log(probabilities, where=positive, out=np.zeros_like(probabilities))
    low, high = (logs[positive].min(), logs[positive].max()) if positive.any() else (0.0, 0.0)
    step = float(high - low) / LEVELS or 1.0
    codes = np.where(positive, 1 + np.rint((logs - low) / step), 0).astype("<u2")
    values = np.where(positive, np.exp(low + (codes - 1.0) * step), 0.0)
    header = {"codec": "log16", "shape": list(probabilities.shape), "low": low, "step": step}
    return Packed(header, codes.tobytes(), values)


def pack_exact(array: NDArray[Any]) -> Packed:
    """Store numbers as single precision, or whole numbers in as few bytes as they need."""
    if array.dtype.kind in "iu":
        array = array.astype(np.min_scalar_type(int(array.max(initial=0))))
    else:
        array = array.astype("<f4")
    header = {"codec": str(array.dtype), "shape": list(array.shape)}
    return Packed(header, array.tobytes(), array)


def pack_part(part: LivePart, bits: int) -> dict[str, Any]:
    """Return the tensors of a part as JSON; those that lose digits get their new values in place,
    so that the model in Python is the one in the page.
    """
    packed: dict[str, Packed] = {}
    for name, tensor in part.matrices.items():
        packed[name] = pack_rows(tensor.detach().float().numpy(), bits)
        set_values(tensor, packed[name])
    for name, tensor in part.probabilities.items():
        packed[name] = pack_logs(tensor.double().numpy())
        set_values(tensor, packed[name])
    for name, tensor in part.arrays.items():
        packed[name] = pack_exact(tensor.detach().numpy())
    return join(packed.items())


@torch.no_grad()
def set_values(tensor: Tensor, packed: Packed) -> None:
    """Write the values of the page into a tensor."""
    tensor.copy_(torch.from_numpy(packed.values))


def join(arrays: Iterable[tuple[str, Packed]]) -> dict[str, Any]:
    """Return all arrays as one string of base64 with their places in it."""
    headers, parts, at = {}, [], 0
    for name, packed in arrays:
        headers[name] = packed.header | {"at": at}
        padding = bytes(-len(packed.data) % 8)  # every array begins at a multiple of eight bytes
        parts += [packed.data, padding]
        at += len(packed.data) + len(padding)
    return {"arrays": headers, "bytes": encode_bytes(np.frombuffer(b"".join(parts), np.uint8))}
