"""PyTorch's operations as NumPy calls on the same memory: what a replayed decoding step is made of.

A maker gets the result and the arguments of an operation that was recorded, and returns a call that
computes the result again, in place, from what the arguments hold by then; or None where NumPy would
not do it faster. Makers reshape only where that gives a view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.decode.products import Call, array, attention, int_mm, linear
from regard.layers.state import State

aten = torch.ops.aten
WIDE = 1 << 16  # elements from which PyTorch, which has threads, outruns NumPy


def tensors(value: Any) -> list[Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [t for item in value for t in tensors(item)]
    return []


def by_torch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Call:
    """Call the operation again and put the result where it was the first time."""
    if func._schema.is_mutable:
        return lambda: func(*args, **kwargs)
    if isinstance(out, Tensor):
        kernel = writing(func)
        if kernel is not None:
            return lambda: kernel(*args, **kwargs, out=out)
        return lambda: out.copy_(func(*args, **kwargs))

    def several() -> None:
        for old, new in zip(out, func(*args, **kwargs), strict=True):
            old.copy_(new)

    return several


def writing(func: Any) -> Any:
    """The form of an operation that writes its result where it is told, if it has one."""
    kernel = getattr(func.overloadpacket, "out", None)
    if kernel is None:
        return None
    taken = [(a.name, str(a.type)) for a in kernel._schema.arguments if not a.is_out]
    same = taken == [(a.name, str(a.type)) for a in func._schema.arguments]
    return kernel if same and kernel._schema.arguments[-1].name == "out" else None


def flat(out: Tensor, *inputs: Any) -> list[Any]:
    """Arrays of the result and its inputs, as vectors and single numbers where the shapes allow.

    NumPy is three times as fast on equal shapes as where it must broadcast.
    """
    whole, n = [out, *inputs], out.numel()
    sizes = [t.numel() if isinstance(t, Tensor) else 1 for t in whole]
    dense = all(t.is_contiguous() for t in tensors(whole))
    if not dense or any(size not in (1, n) for size in sizes):
        return [array(t) for t in whole]
    shapes = [(n,) if size == n else () for size in sizes]
    return [
        array(t).reshape(shape) if isinstance(t, Tensor) else t
        for t, shape in zip(whole, shapes, strict=True)
    ]


def elementwise(function: Callable[..., Any]) -> Callable[..., Call | None]:
    """A maker for an operation that NumPy has too."""

    def maker(state: State, out: Tensor, *args: Any, **kwargs: Any) -> Call | None:
        if kwargs:
            return None
        result, *inputs = flat(out, *args)
        if len(inputs) == 1:
            (one,) = inputs
            return lambda: function(one, out=result)
        one, two = inputs
        return lambda: function(one, two, out=result)

    return maker


def embedding(state: State, out: Tensor, weight: Tensor, ids: Tensor, *rest: Any) -> Call:
    """Rows of a table."""
    table, index, result = array(weight), array(ids), array(out)
    return lambda: np.take(table, index, 0, result, "clip")


def index(state: State, out: Tensor, x: Tensor, indices: Any) -> Call | None:
    """x[indices] along the first axis."""
    if len(indices) != 1 or indices[0].dtype != torch.int64:
        return None
    values, places, result = array(x), array(indices[0]), array(out)
    return lambda: np.take(values, places, 0, result, "clip")


def addcmul(
    state: State, out: Tensor, base: Tensor, a: Tensor, b: Tensor, *, value: float = 1
) -> Call:
    """base + value · a · b; the scale of a norm's gain, which is fixed, goes into the gain."""
    if base.shape == (1,) and float(base) == 0:  # a norm: see layers.norms
        gain = torch.from_numpy(np.broadcast_to(array(b), out.shape) * np.float32(value))
        result, y, z = flat(out, a, gain)
        return lambda: np.multiply(y, z, out=result)
    result, x, y, z = flat(out, base, a, b)

    def call() -> None:
        np.multiply(y, z, out=result)
        if value != 1:
            np.multiply(result, value, out=result)
        np.add(result, x, out=result)

    return call


def vector_norm(
    state: State, out: Tensor, x: Tensor, order: float = 2, dim: Any = None, keep: bool = False
) -> Call | None:
    """Euclidean lengths along the last axis."""
    if order != 2 or dim not in ([-1], [x.dim() - 1]):
        return None
    values, result = array(x), array(out)
    if out.numel() == 1:
        vector, one = values.reshape(-1), result.reshape(-1)

        def single() -> None:
            one[0] = vector.dot(vector) ** 0.5

        return single
    squares = np.empty_like(values)

    def call() -> None:
        np.multiply(values, values, out=squares)
        np.add.reduce(squares, -1, out=result, keepdims=keep)
        np.sqrt(result, out=result)

    return call


def amax(state: State, out: Tensor, x: Tensor, dim: Any = (), keep: bool = False) -> Call | None:
    """The largest along one axis."""
    if len(dim) != 1:
        return None
    values, result, axis = array(x), array(out), dim[0]
    return lambda: np.maximum.reduce(values, axis, out=result, keepdims=keep)


def silu(state: State, out: Tensor, x: Tensor) -> Call:
    """x / (1 + exp(-x))."""
    values, result = array(x), array(out)

    def call() -> None:
        np.negative(values, out=result)
        np.exp(result, out=result)
        np.add(result, 1, out=result)
        np.divide(values, result, out=result)

    return call


def cat(state: State, out: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Call:
    """Arrays end to end."""
    arrays, result = [array(p) for p in parts], array(out)
    return lambda: np.concatenate(arrays, dim, result)


def roll(state: State, out: Tensor, x: Tensor, shifts: Any, dims: Any = ()) -> Call | None:
    """Turn the last axis."""
    if list(dims) != [-1]:
        return None
    cut = x.size(-1) - shifts[0]
    head, tail = array(x[..., cut:]), array(x[..., :cut])
    front, back = array(out[..., : shifts[0]]), array(out[..., shifts[0] :])

    def call() -> None:
        front[...] = head
        back[...] = tail

    return call


def copy(state: State, out: Tensor, x: Tensor, *_: Any, **__: Any) -> Call:
    """The same values in memory of their own."""
    if out.numel() > WIDE:
        return lambda: out.copy_(x)
    values, result = array(x), array(out)
    return lambda: np.copyto(result, values, "unsafe")


def store(
    state: State, out: Tensor, target: Tensor, indices: Any, values: Tensor, *_: Any
) -> Call | None:
    """target[row, :, place of that row] = values: a key or value joins its cache."""
    if len(indices) != 3 or indices[1] is not None or indices[2].shape != (target.size(0), 1):
        return None
    cache, places = array(target), array(indices[2].view(-1))
    new = array(values.view(target.size(0), target.size(1), target.size(3)))

    def call() -> None:
        first, *others = places.tolist()
        if others.count(first) == len(others):  # no row is ahead of another
            cache[:, :, first] = new
            return
        for row, place in enumerate((first, *others)):
            cache[row, :, place] = new[row]

    return call


def layer_norm(
    state: State,
    out: Tensor,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Call:
    """PyTorch's own, without a copy of the result."""
    kernel = torch.ops.aten.native_layer_norm.out
    moments = x.new_empty(x.shape[: -len(shape)] + (1,) * len(shape))
    more = {"out0": out, "out1": moments, "out2": moments.clone()}
    return lambda: kernel(x, shape, weight, bias, eps, **more)


Maker = Callable[..., Call | None]
# Whatever their size; of the others, those of wide results are left to PyTorch.
ALWAYS: dict[Any, Maker] = {
    aten.linear.default: linear,
    aten._int_mm.default: int_mm,
    aten.scaled_dot_product_attention.default: attention,
    aten.layer_norm.default: layer_norm,
    aten.index_put_.default: store,
    aten.clone.default: copy,
    aten._to_copy.default: copy,
    aten.to.dtype: copy,
}
MAKERS: dict[Any, Maker] = {
    aten.add.Tensor: elementwise(np.add),
    aten.add_.Tensor: elementwise(np.add),
    aten.sub.Tensor: elementwise(np.subtract),
    aten.mul.Tensor: elementwise(np.multiply),
    aten.remainder.Scalar: elementwise(np.remainder),
    aten.div.Tensor: elementwise(np.divide),
    aten.hypot.default: elementwise(np.hypot),
    aten.neg.default: elementwise(np.negative),
    aten.sin.default: elementwise(np.sin),
    aten.cos.default: elementwise(np.cos),
    aten.square.default: elementwise(np.square),
    aten.abs.default: elementwise(np.absolute),
    aten.round.default: elementwise(np.rint),
    aten.clamp_min.default: elementwise(np.maximum),
    aten.ge.Tensor: elementwise(np.greater_equal),
    aten.embedding.default: embedding,
    aten.index.Tensor: index,
    aten.addcmul.default: addcmul,
    aten.linalg_vector_norm.default: vector_norm,
    aten.amax.default: amax,
    aten.silu.default: silu,
    aten.cat.default: cat,
    aten.roll.default: roll,
}
