"""Every private PyTorch API that regard uses; none has a public equivalent of the same speed.

- `TorchDispatchMode` is the only hook that sees each operator with the tensors it really reads and
  writes. "Extending PyTorch" documents it, but no public module exports it.
- `FakeTensorMode` runs a model on shapes alone, for estimates of memory, and raises SHAPE_ERRORS
  where it cannot. The meta device refuses code that creates tensors on the CPU.
- `is_mutable` and `out_variant` read operator schemas, where only `OpOverload.is_view` is public.
- `onednn_linear` and `onednn_pack`: oneDNN reads a matrix at the speed of memory where MKL, the
  default, does not; otherwise only compiled models reach it.
- `int_mm` and `int_mm_op` are the int8 matrix product as a function and as an operator,
  `to_copy_op` is what `Tensor.to` dispatches to, `addmm_activation_op` a linear layer with GELU in
  one cuBLAS call.
- `foreach_add_` and `foreach_copy_` launch one kernel for a list of tensors.
- `undo_compile`: `nn.Module.compile` has no inverse.
- `tensors_in` does what the private `pytree` module would be needed for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

FakeTensorMode = fake_tensor.FakeTensorMode
SHAPE_ERRORS = (
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
)
aten: Any = torch.ops.aten
int_mm, int_mm_op = torch._int_mm, aten._int_mm
to_copy_op, addmm_activation_op = aten._to_copy, aten._addmm_activation
foreach_add_, foreach_copy_ = torch._foreach_add_, torch._foreach_copy_


def tensors_in(value: Any) -> list[Tensor]:
    """Return all tensors in nested tuples, lists and dicts, as operators take and return them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def is_mutable(operator: Any) -> bool:
    """Return whether the operator writes to one of its arguments."""
    mutable: bool = operator._schema.is_mutable
    return mutable


def out_variant(operator: Any) -> Any:
    """Return the overload that takes the same arguments and `out`, or None."""
    variant = getattr(operator.overloadpacket, "out", None)
    if variant is None:
        return None
    arguments = variant._schema.arguments
    inputs = [(a.name, str(a.type)) for a in arguments if not a.is_out]
    same = inputs == [(a.name, str(a.type)) for a in operator._schema.arguments]
    return variant if same and arguments[-1].name == "out" else None


def onednn_linear() -> Any:
    """Return oneDNN's linear operator; only a PyTorch that was built with oneDNN has it."""
    return torch.ops.mkldnn._linear_pointwise.default


def onednn_pack(weight: Tensor, rows: int) -> Tensor:
    """Return a copy of a weight matrix in oneDNN's layout for products with this many rows."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return packed


def undo_compile(module: nn.Module) -> None:
    """Make a module run eagerly again after `module.compile()`."""
    module._compiled_call_impl = None
