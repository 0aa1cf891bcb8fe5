"""One decoding step on a CPU, recorded once and replayed with the fastest kernels available.

At batch 1 a small model spends its time between operators, not in them; a large one reads all its
weights for every token and waits for memory. So a step runs once while its operators are recorded.
A fixed state always uses the same memory: views stay valid, what depends on weights alone is done
already, and the rest is called again on the same arrays. Matrix products go to the library that
reads the weights fastest, other operators to NumPy, which has a tenth of the overhead, or to
PyTorch where NumPy has no equivalent. Nothing here depends on the model.

A maker gets the result and the arguments of a recorded operator, and returns a call that computes
the result again, in place, from what the arguments hold by then; or None where NumPy would not be
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.torch_private import (
    TorchDispatchMode,
    int_mm_op,
    is_mutable,
    onednn_linear,
    onednn_pack,
    out_variant,
    tensors_in,
    to_copy_op,
)
from regard.layers.cache import DecodeState
from regard.models.language_model import LanguageModel

LARGE = 1 << 18  # weights from which a product is worth a thread
PACKED = 4  # rows from which oneDNN's own layout of a matrix is faster than ours
HEADS = 32  # rows times heads from which PyTorch's threads attend faster than NumPy,
KEYS = 64  # given so many keys; with fewer the fused kernel spends its time between the heads
WIDE = 1 << 16  # elements from which PyTorch, which has threads, is faster than NumPy
OVERHEAD = 1 << 23  # weights times rows up to which a step is overhead rather than arithmetic
WEIGHTS = 1 << 29  # weights up to which memory for a packed copy of them, 2 GB, is taken
MIN_STEPS = 24  # steps that must remain for recording, some milliseconds, to pay

Call = Callable[[], object]
Maker = Callable[..., Call | None]
Record = tuple[Any, tuple[Any, ...], dict[str, Any], Any]  # operator, arguments, result
aten = torch.ops.aten


def array(value: Any) -> Any:
    """Return the memory of a tensor as an array, and numbers as they are."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def storages(value: Any) -> set[int]:
    """Return the addresses of the memory of all tensors in nested arguments."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors_in(value)}


def changing_storages(records: Sequence[Record], changing_input: Tensor) -> set[int]:
    """Return the memory that differs from step to step: the input, and all that is written in
    place, such as caches and lengths.
    """
    changing = storages(changing_input)
    for func, args, _, _ in records:
        if is_mutable(func):
            changing |= storages(args[0])
    return changing


def linear(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Call | None:
    """x W' + b: small products by NumPy, large ones by oneDNN.

    MKL, PyTorch's default on a CPU, reads a matrix at half the speed of memory on some processors.
    oneDNN reads it at full speed, several rows best from a copy in its own layout. NumPy's BLAS is
    as fast alone, but its threads and PyTorch's get in each other's way.
    """
    if not x.is_contiguous():
        return None
    rows = out.numel() // weight.size(0)
    if weight.numel() >= LARGE and torch.backends.mkldnn.is_available():
        packed = weight.detach() if rows < PACKED else onednn_pack(weight.detach(), rows)
        kernel = onednn_linear()
        return lambda: out.copy_(kernel(x, packed, bias, "none", [], ""))
    w, b = array(weight), None if bias is None else array(bias)
    if rows == 1:
        vector, result = array(x.view(-1)), array(out.view(-1))
        if b is None:
            return lambda: np.dot(w, vector, out=result)
        return lambda: np.add(np.dot(w, vector, out=result), b, out=result)
    matrix, result, transposed = array(x.view(rows, -1)), array(out.view(rows, -1)), w.T
    if b is None:
        return lambda: np.matmul(matrix, transposed, out=result)
    return lambda: np.add(np.matmul(matrix, transposed, out=result), b, out=result)


def int_mm(out: Tensor, x: Tensor, weight: Tensor) -> Call:
    kernel = int_mm_op.out
    return lambda: kernel(x, weight, out=out)


def attention(
    state: DecodeState,
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    *rest: Any,
    enable_gqa: bool = False,
    **_: Any,
) -> Call | None:
    """A few queries of a row with one mask over the keys in use: the newest token over its past, or
    beams over their source.
    """
    (batch, heads, queries, width), groups = q.shape, k.size(1)
    if attn_mask is None or attn_mask.dtype != torch.bool or attn_mask.shape[1:3] != (1, 1):
        return None
    if batch * heads >= HEADS and k.size(2) >= KEYS:
        return fused_attention(state, out, q, k, v, attn_mask, enable_gqa)
    per_group, rows = heads // groups * queries, batch * groups
    query = np.empty(q.shape, np.float32)  # (B, H, T, K)
    grouped = query.reshape(rows, per_group, width)
    source, result = array(q), array(out)
    sums = np.empty_like(grouped)
    ungrouped = sums.reshape(query.shape)
    keys = array(k.view(rows, -1, width)).transpose(0, 2, 1)  # (B·G, K, S)
    values = array(v.view(rows, -1, width))  # (B·G, S, K)
    allowed = array(attn_mask.expand(batch, 1, 1, -1))[:, 0]  # (B, 1, S)
    scale = np.float32(width**-0.5)
    buffer = np.empty(rows * per_group * k.size(2), np.float32)
    count_keys = key_counter(state, k)

    def call() -> None:
        used = count_keys()
        dense = buffer[: rows * per_group * used]  # contiguous, which is faster
        scores = dense.reshape(rows, per_group, used)
        np.multiply(source, scale, out=query)
        np.matmul(grouped, keys[:, :, :used], out=scores)
        mask = allowed[:, :, :used]
        if not np.logical_and.reduce(mask, None):
            np.copyto(scores.reshape(batch, -1, used), -np.inf, where=~mask)
        np.subtract(scores, np.maximum.reduce(scores, -1, keepdims=True), out=scores)
        np.exp(dense, out=dense)
        total = np.add.reduce(scores, -1, keepdims=True)
        np.matmul(scores, values[:, :used], out=sums)
        np.divide(sums, total, out=sums)
        np.copyto(result, ungrouped)

    return call


def key_counter(state: DecodeState, k: Tensor) -> Callable[[], int]:
    """Return a function that counts the keys in use: all of a source, or those of the cache so
    far, at most its slots.
    """
    if storages(k) & storages([memory.k for memory in state.memory or ()]):
        return lambda: k.size(2)
    return lambda: min(state.longest + 1, k.size(2))


def fused_attention(
    state: DecodeState, out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, gqa: bool
) -> Call:
    """PyTorch's fused kernel on the keys in use, without a mask where all are allowed."""
    count_keys = key_counter(state, k)

    def call() -> None:
        used = count_keys()
        allowed = mask[..., :used]
        y = F.scaled_dot_product_attention(
            q,
            k[:, :, :used],
            v[:, :, :used],
            attn_mask=None if bool(allowed.all()) else allowed,
            enable_gqa=gqa,
        )
        out.copy_(y)

    return call


def by_torch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Call:
    """Return a call of the operator itself that writes to the memory of the first result."""
    if is_mutable(func):
        return lambda: func(*args, **kwargs)
    if isinstance(out, Tensor):
        kernel = out_variant(func)
        if kernel is not None:
            return lambda: kernel(*args, **kwargs, out=out)
        return lambda: out.copy_(func(*args, **kwargs))

    def call() -> None:
        for old, new in zip(out, func(*args, **kwargs), strict=True):
            old.copy_(new)

    return call


def flatten(out: Tensor, *inputs: Any) -> list[Any]:
    """Return arrays of the result and its inputs, as vectors and numbers where the shapes allow.

    NumPy is three times as fast on equal shapes as with broadcasting.
    """
    values, n = [out, *inputs], out.numel()
    sizes = [t.numel() if isinstance(t, Tensor) else 1 for t in values]
    dense = all(t.is_contiguous() for t in tensors_in(values))
    if not dense or any(size not in (1, n) for size in sizes):
        return [array(t) for t in values]
    shapes = [(n,) if size == n else () for size in sizes]
    return [
        array(t).reshape(shape) if isinstance(t, Tensor) else t
        for t, shape in zip(values, shapes, strict=True)
    ]


def elementwise(function: Callable[..., Any]) -> Maker:
    """Return the maker of an operator that is a NumPy function."""

    def maker(out: Tensor, *args: Any, **kwargs: Any) -> Call | None:
        if kwargs:
            return None
        result, *inputs = flatten(out, *args)
        if len(inputs) == 1:
            (x,) = inputs
            return lambda: function(x, out=result)
        x, y = inputs
        return lambda: function(x, y, out=result)

    return maker


def embedding(out: Tensor, weight: Tensor, ids: Tensor, *rest: Any) -> Call:
    table, index, result = array(weight), array(ids), array(out)
    return lambda: np.take(table, index, 0, result, "clip")


def index(out: Tensor, x: Tensor, indices: Any) -> Call | None:
    if len(indices) != 1 or indices[0].dtype != torch.int64:
        return None
    values, rows, result = array(x), array(indices[0]), array(out)
    return lambda: np.take(values, rows, 0, result, "clip")


def addcmul(out: Tensor, base: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Call:
    """base + value · a · b; in a norm the constant `value` is multiplied into the gain b."""
    if base.shape == (1,) and float(base) == 0:  # see RMSNorm
        gain = torch.from_numpy(np.broadcast_to(array(b), out.shape) * np.float32(value))
        result, y, z = flatten(out, a, gain)
        return lambda: np.multiply(y, z, out=result)
    result, x, y, z = flatten(out, base, a, b)

    def call() -> None:
        np.multiply(y, z, out=result)
        if value != 1:
            np.multiply(result, value, out=result)
        np.add(result, x, out=result)

    return call


def vector_norm(
    out: Tensor, x: Tensor, order: float = 2, dim: Any = None, keep: bool = False
) -> Call | None:
    if order != 2 or dim not in ([-1], [x.dim() - 1]):
        return None
    values, result = array(x), array(out)
    if out.numel() == 1:
        vector, scalar = values.reshape(-1), result.reshape(-1)

        def single() -> None:
            scalar[0] = vector.dot(vector) ** 0.5

        return single
    squares = np.empty_like(values)

    def call() -> None:
        np.multiply(values, values, out=squares)
        np.add.reduce(squares, -1, out=result, keepdims=keep)
        np.sqrt(result, out=result)

    return call


def amax(out: Tensor, x: Tensor, dim: Any = (), keep: bool = False) -> Call | None:
    if len(dim) != 1:
        return None
    values, result, axis = array(x), array(out), dim[0]
    return lambda: np.maximum.reduce(values, axis, out=result, keepdims=keep)


def silu(out: Tensor, x: Tensor) -> Call:
    values, result = array(x), array(out)

    def call() -> None:
        np.negative(values, out=result)
        np.exp(result, out=result)
        np.add(result, 1, out=result)
        np.divide(values, result, out=result)

    return call


def cat(out: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Call:
    arrays, result = [array(p) for p in parts], array(out)
    return lambda: np.concatenate(arrays, dim, result)


def roll(out: Tensor, x: Tensor, shifts: Any, dims: Any = ()) -> Call | None:
    if list(dims) != [-1]:
        return None
    cut = x.size(-1) - shifts[0]
    rolled, rest = array(x[..., cut:]), array(x[..., :cut])
    start, end = array(out[..., : shifts[0]]), array(out[..., shifts[0] :])

    def call() -> None:
        start[...] = rolled
        end[...] = rest

    return call


def copy(out: Tensor, x: Tensor, *_: Any, **__: Any) -> Call:
    if out.numel() > WIDE:
        return lambda: out.copy_(x)
    values, result = array(x), array(out)
    return lambda: np.copyto(result, values, "unsafe")


def store(out: Tensor, target: Tensor, indices: Any, values: Tensor, *_: Any) -> Call | None:
    """target[row, :, slot of that row] = values: a key or value is written to its cache."""
    if len(indices) != 3 or indices[1] is not None or indices[2].shape != (target.size(0), 1):
        return None
    cache, slots = array(target), array(indices[2].view(-1))
    new = array(values.view(target.size(0), target.size(1), target.size(3)))

    def call() -> None:
        first, *others = slots.tolist()
        if others.count(first) == len(others):  # all rows have the same length
            cache[:, :, first] = new
            return
        for row, slot in enumerate((first, *others)):
            cache[row, :, slot] = new[row]

    return call


def layer_norm(
    out: Tensor,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Call:
    """PyTorch's own, without a copy of the result."""
    kernel = aten.native_layer_norm.out
    moments = x.new_empty(x.shape[: -len(shape)] + (1,) * len(shape))
    outputs = {"out0": out, "out1": moments, "out2": moments.clone()}
    return lambda: kernel(x, shape, weight, bias, eps, **outputs)


# For results of any size; the makers of the second table are for results up to WIDE.
ALWAYS: dict[Any, Maker] = {
    aten.linear.default: linear,
    int_mm_op.default: int_mm,
    aten.layer_norm.default: layer_norm,
    aten.index_put_.default: store,
    aten.clone.default: copy,
    to_copy_op.default: copy,
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


class OperatorRecorder(TorchDispatchMode):
    """Records every operator with the tensors that it really read and wrote."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.records: list[Record] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and skipping would import the compiler: a second

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = self.run(func, args, kwargs or {})
        self.records.append((func, args, kwargs or {}, out))
        return out

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)


class ReplayedStep:
    """The step of a model that extends a state with the prompt, recorded.

    Weights must not change: some are copied to another layout.
    """

    def __init__(self, model: LanguageModel, state: DecodeState) -> None:
        state.check(1)  # deferred work is no part of a step
        state.fix()
        self.state = state
        self.ids = torch.zeros(state.batch, 1, dtype=torch.int64)
        assert isinstance(state.length, Tensor)
        with OperatorRecorder() as recorder:
            self.logits = model.step(self.ids, None, state)  # (B, V)
        # The first step overwrites what this run wrote.
        state.length.sub_(1)
        state.longest -= 1
        self.calls = self._calls(recorder.records)

    def _calls(self, records: Sequence[Record]) -> list[Call]:
        calls: list[Call] = []
        changing = changing_storages(records, self.ids)
        sdpa = aten.scaled_dot_product_attention.default
        always = ALWAYS | {sdpa: partial(attention, self.state)}
        for func, args, kwargs, out in records:
            read = storages((args, kwargs))
            if not read & changing:
                continue  # the same in every step
            written = storages(out)
            changing |= written
            if written <= read and not is_mutable(func):
                continue  # a view, whose memory is up to date
            wide = isinstance(out, Tensor) and out.numel() > WIDE
            maker = always.get(func) or (None if wide else MAKERS.get(func))
            call = maker(out, *args, **kwargs) if maker is not None else None
            calls.append(call or by_torch(func, args, kwargs, out))
        return calls

    def __call__(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; return logits (B, V), valid until the next call."""
        self.state.check(1)
        self.ids.copy_(ids[:, None])
        with np.errstate(over="ignore"):  # exp of a large number is infinite, and 1 / that is 0
            for call in self.calls:
                call()
        self.state.longest += 1
        return self.logits


def replay_pays(model: LanguageModel, state: DecodeState, steps: int) -> bool:
    """Return whether steps of the model can be recorded and there are enough to gain from it.

    Small models always gain; larger ones where oneDNN is available to read their weights.
    """
    if not model.static_shapes or steps < MIN_STEPS:
        return False
    parameters = list(model.parameters())
    if not all(p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters):
        return False
    weights = sum(p.numel() for p in parameters)
    small = weights * state.batch <= OVERHEAD
    return small or (weights <= WEIGHTS and torch.backends.mkldnn.is_available())
