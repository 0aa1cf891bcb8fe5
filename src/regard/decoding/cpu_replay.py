"""The products of a replayed decoding step: matrices times vectors, and one query over its keys.

Small ones go to NumPy. In large ones a step waits for memory rather than for Python, and PyTorch's
own choice on a CPU, MKL, reads a matrix at half the speed of memory on some processors; oneDNN,
which compiled models use, reads it at full speed, several rows best from a copy in its own layout.
(NumPy's BLAS is as fast alone, but its threads and PyTorch's get in each other's way.)

PyTorch's operations as NumPy calls on the same memory: what a replayed decoding step is made of.

A maker gets the result and the arguments of an operation that was recorded, and returns a call that
computes the result again, in place, from what the arguments hold by then; or None where NumPy would
not do it faster. Makers reshape only where that gives a view.

One decoding step on a CPU, recorded once and replayed with the fastest kernels there are.

At batch 1 a small model spends its time between the operations, not in them; a large one reads all
its weights for every token and waits for memory. So a step is run once while its operations are
noted. A fixed state always works on the same memory, so views stay valid, what depends on weights
alone is done already, and the rest is called again on the very same arrays: products by whichever
library reads the weights fastest, the rest by NumPy where it has the operation (a tenth of the
overhead) and by PyTorch where it has not. The model is written once; nothing here knows what a
Transformer is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from regard.layers.cache import DecodeState
from regard.models.language_model import LanguageModel

Call = Callable[[], object]
LARGE = 1 << 18  # weights from which a product is worth a thread
PACKED = 4  # rows from which oneDNN's own layout of a matrix is faster than ours
HEADS = 32  # rows times heads from which PyTorch's threads attend faster than NumPy,
KEYS = 64  # given so many keys; with fewer the fused kernel spends its time between the heads


def array(value: Any) -> Any:
    """A tensor's memory as an array; numbers as they are."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def linear(
    state: DecodeState, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Call | None:
    """x W' + b."""
    if not x.is_contiguous():
        return None
    rows = out.numel() // weight.size(0)
    if weight.numel() >= LARGE and torch.backends.mkldnn.is_available():
        return by_onednn(out, x, weight, bias, rows)
    w, b = array(weight), None if bias is None else array(bias)
    if rows == 1:
        vector, result = array(x.view(-1)), array(out.view(-1))
        if b is None:
            return lambda: np.dot(w, vector, out=result)
        return lambda: np.add(np.dot(w, vector, out=result), b, out=result)
    matrix, result, turned = array(x.view(rows, -1)), array(out.view(rows, -1)), w.T
    if b is None:
        return lambda: np.matmul(matrix, turned, out=result)
    return lambda: np.add(np.matmul(matrix, turned, out=result), b, out=result)


def by_onednn(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, rows: int) -> Call:
    """x W' + b; where W is packed, the copy lives as long as the call."""
    w = weight.detach()
    if rows >= PACKED:
        w = torch.ops.mkldnn._reorder_linear_weight(w, rows)
    kernel = torch.ops.mkldnn._linear_pointwise.default
    return lambda: out.copy_(kernel(x, w, bias, "none", [], ""))


def int_mm(state: DecodeState, out: Tensor, x: Tensor, weight: Tensor) -> Call:
    """A product of int8 matrices in int32."""
    kernel = torch.ops.aten._int_mm.out
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
    """A few queries of a row, all of which may see the same, over the keys there are: one, or one
    of each beam over their source; see layers.attention for what is computed.
    """
    (batch, heads, queries, width), groups = q.shape, k.size(1)
    if attn_mask is None or attn_mask.dtype != torch.bool or attn_mask.shape[1:3] != (1, 1):
        return None
    if batch * heads >= HEADS and k.size(2) >= KEYS:
        return attention_by_torch(state, out, q, k, v, attn_mask, enable_gqa)
    each, rows = heads // groups * queries, batch * groups
    query = np.empty(q.shape, np.float32)  # (B, H, T, K)
    grouped = query.reshape(rows, each, width)
    source, result = array(q), array(out)
    found = np.empty_like(grouped)
    whole = found.reshape(query.shape)
    keys = array(k.view(rows, -1, width)).transpose(0, 2, 1)  # (B·G, K, S)
    values = array(v.view(rows, -1, width))  # (B·G, S, K)
    allowed = array(attn_mask.expand(batch, 1, 1, -1))[:, 0]  # (B, 1, S)
    scale = np.float32(width**-0.5)
    room = np.empty(rows * each * k.size(2), np.float32)
    held = reach(state, k)

    def call() -> None:
        used = held()
        dense = room[: rows * each * used]  # without gaps, which NumPy rewards
        scores = dense.reshape(rows, each, used)
        np.multiply(source, scale, out=query)
        np.matmul(grouped, keys[:, :, :used], out=scores)
        seen = allowed[:, :, :used]
        if not np.logical_and.reduce(seen, None):
            np.copyto(scores.reshape(batch, -1, used), -np.inf, where=~seen)
        np.subtract(scores, np.maximum.reduce(scores, -1, keepdims=True), out=scores)
        np.exp(dense, out=dense)
        total = np.add.reduce(scores, -1, keepdims=True)
        np.matmul(scores, values[:, :used], out=found)
        np.divide(found, total, out=found)
        np.copyto(result, whole)

    return call


def reach(state: DecodeState, k: Tensor) -> Callable[[], int]:
    """How many keys there are to look at: all those of a source, or the cache's so far, at most as
    many as it has slots.
    """
    sources = {memory.k.untyped_storage().data_ptr() for memory in state.memory or ()}
    if k.untyped_storage().data_ptr() in sources:
        return lambda: k.size(2)
    return lambda: min(state.longest + 1, k.size(2))


def attention_by_torch(
    state: DecodeState, out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, gqa: bool
) -> Call:
    """The fused kernel on as much of the cache as is in use, without a mask where all is seen."""

    held = reach(state, k)

    def call() -> None:
        used = held()
        seen = mask[..., :used]
        y = F.scaled_dot_product_attention(
            q,
            k[:, :, :used],
            v[:, :, :used],
            attn_mask=None if bool(seen.all()) else seen,
            enable_gqa=gqa,
        )
        out.copy_(y)

    return call


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

    def maker(state: DecodeState, out: Tensor, *args: Any, **kwargs: Any) -> Call | None:
        if kwargs:
            return None
        result, *inputs = flat(out, *args)
        if len(inputs) == 1:
            (one,) = inputs
            return lambda: function(one, out=result)
        one, two = inputs
        return lambda: function(one, two, out=result)

    return maker


def embedding(state: DecodeState, out: Tensor, weight: Tensor, ids: Tensor, *rest: Any) -> Call:
    """Rows of a table."""
    table, index, result = array(weight), array(ids), array(out)
    return lambda: np.take(table, index, 0, result, "clip")


def index(state: DecodeState, out: Tensor, x: Tensor, indices: Any) -> Call | None:
    """x[indices] along the first axis."""
    if len(indices) != 1 or indices[0].dtype != torch.int64:
        return None
    values, places, result = array(x), array(indices[0]), array(out)
    return lambda: np.take(values, places, 0, result, "clip")


def addcmul(
    state: DecodeState, out: Tensor, base: Tensor, a: Tensor, b: Tensor, *, value: float = 1
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
    state: DecodeState,
    out: Tensor,
    x: Tensor,
    order: float = 2,
    dim: Any = None,
    keep: bool = False,
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


def amax(
    state: DecodeState, out: Tensor, x: Tensor, dim: Any = (), keep: bool = False
) -> Call | None:
    """The largest along one axis."""
    if len(dim) != 1:
        return None
    values, result, axis = array(x), array(out), dim[0]
    return lambda: np.maximum.reduce(values, axis, out=result, keepdims=keep)


def silu(state: DecodeState, out: Tensor, x: Tensor) -> Call:
    """x / (1 + exp(-x))."""
    values, result = array(x), array(out)

    def call() -> None:
        np.negative(values, out=result)
        np.exp(result, out=result)
        np.add(result, 1, out=result)
        np.divide(values, result, out=result)

    return call


def cat(state: DecodeState, out: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Call:
    """Arrays end to end."""
    arrays, result = [array(p) for p in parts], array(out)
    return lambda: np.concatenate(arrays, dim, result)


def roll(state: DecodeState, out: Tensor, x: Tensor, shifts: Any, dims: Any = ()) -> Call | None:
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


def copy(state: DecodeState, out: Tensor, x: Tensor, *_: Any, **__: Any) -> Call:
    """The same values in memory of their own."""
    if out.numel() > WIDE:
        return lambda: out.copy_(x)
    values, result = array(x), array(out)
    return lambda: np.copyto(result, values, "unsafe")


def store(
    state: DecodeState, out: Tensor, target: Tensor, indices: Any, values: Tensor, *_: Any
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
    state: DecodeState,
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


OVERHEAD = 1 << 23  # weights times rows up to which a step is overhead rather than arithmetic
WEIGHTS = 1 << 29  # weights up to which memory for a packed copy of them, 2 GB, is taken
STEPS = 24  # steps that must remain for recording, some milliseconds, to pay


Noted = list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]]  # operation, arguments, result


class Recorder(TorchDispatchMode):
    """Notes every operation, with the tensors it really read and wrote."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.noted: Noted = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here; saying so spares the import of the compiler, a second."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        out = self.run(func, args, kwargs or {})
        self.noted.append((func, args, kwargs or {}, out))
        return out

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation's result."""
        return func(*args, **kwargs)


class Replay:
    """The step of `model` that extends `state`, which is fixed and already holds the prompt.

    Weights must stay as they are: some are kept in another layout.
    """

    def __init__(self, model: LanguageModel, state: DecodeState) -> None:
        state.check(1)  # what is done between steps is no part of one
        state.fix()
        self.state = state
        self.ids = torch.zeros(state.batch, 1, dtype=torch.int64)
        assert isinstance(state.length, Tensor)
        with Recorder() as recorder:
            self.logits = model.extend(self.ids, None, state)  # (B, V)
        # That was a rehearsal: what it wrote is written over by the first step.
        state.length.sub_(1)
        state.longest -= 1
        self.calls = self._calls(recorder.noted)

    def _calls(self, noted: Sequence[tuple[Any, Any, Any, Any]]) -> list[Call]:
        """What must be done again at every step, in order."""
        calls: list[Call] = []
        changing = {self.ids.untyped_storage().data_ptr()}
        for func, args, _, _ in noted:  # caches and lengths: written in place, different every time
            if func._schema.is_mutable:
                changing.add(args[0].untyped_storage().data_ptr())
        for func, args, kwargs, out in noted:
            read = {t.untyped_storage().data_ptr() for t in tensors((args, kwargs))}
            if not read & changing:
                continue  # the same every time
            written = {t.untyped_storage().data_ptr() for t in tensors(out)}
            changing |= written
            if written <= read and not func._schema.is_mutable:
                continue  # a view: the memory is there already
            wide = isinstance(out, Tensor) and out.numel() > WIDE
            maker = ALWAYS.get(func) or (None if wide else MAKERS.get(func))
            call = maker(self.state, out, *args, **kwargs) if maker is not None else None
            calls.append(call or by_torch(func, args, kwargs, out))
        return calls

    def __call__(self, ids: Tensor) -> Tensor:
        """Append one token (B,) to each row; the logits (B, V), valid until the next call."""
        self.state.check(1)
        self.ids.copy_(ids[:, None])
        with np.errstate(over="ignore"):  # exp of a large number is infinite, and 1 / that is 0
            for call in self.calls:
                call()
        self.state.longest += 1
        return self.logits


def pays(model: LanguageModel, state: DecodeState, steps: int) -> bool:
    """Is the model one whose steps can be recorded, and are there enough of them to gain from it?

    Small models always gain; larger ones where oneDNN is there to read their weights.
    """
    if not model.static_shapes or steps < STEPS:
        return False
    parameters = list(model.parameters())
    if not all(p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters):
        return False
    weights = sum(p.numel() for p in parameters)
    small = weights * state.batch <= OVERHEAD
    return small or (weights <= WEIGHTS and torch.backends.mkldnn.is_available())
