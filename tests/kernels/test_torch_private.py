"""The private PyTorch APIs do what the package relies on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.kernels import torch_private

aten = torch.ops.aten


def test_operators_know_whether_they_write_to_their_arguments():
    assert torch_private.is_mutable(aten.add_.Tensor)
    assert torch_private.is_mutable(aten.index_put_.default)
    assert not torch_private.is_mutable(aten.add.Tensor)
    assert aten.view.default.is_view and not aten.add.Tensor.is_view


def test_the_out_variant_takes_the_same_arguments_and_writes_the_result():
    x, out = torch.tensor([3.0, -1.0]), torch.empty(2)
    variant = torch_private.out_variant(aten.exp.default)
    assert torch_private.is_mutable(variant)
    variant(x, out=out)
    assert torch.equal(out, x.exp())
    assert torch_private.out_variant(aten.add_.Tensor) is None


def test_tensors_are_found_in_nested_arguments():
    a, b, c = torch.zeros(3)
    nested = (a, [1, b, None], {"out": (c,)}, "name")
    assert [id(x) for x in torch_private.tensors_in(nested)] == [id(x) for x in (a, b, c)]


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
@pytest.mark.parametrize("packed", [False, True])
def test_onednn_computes_a_linear_layer(packed):
    torch.manual_seed(0)
    layer, x = nn.Linear(16, 8), torch.randn(5, 16)
    with torch.inference_mode():
        weight = torch_private.onednn_pack(layer.weight, 5) if packed else layer.weight
        y = torch_private.onednn_linear()(x, weight, layer.bias, "none", [], "")
        torch.testing.assert_close(y, layer(x), atol=1e-5, rtol=1e-5)


def test_int8_products_are_exact():
    x, y = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in ((24, 16), (16, 8)))
    expected = x.int() @ y.int()
    assert torch.equal(torch_private.int_mm(x, y), expected)
    assert torch.equal(torch_private.int_mm_op.default(x, y), expected)


def test_lists_of_tensors_are_added_and_copied_in_place():
    targets = [torch.zeros(3), torch.zeros(2, 2)]
    torch_private.foreach_copy_(targets, [torch.ones(3), torch.ones(2, 2)])
    torch_private.foreach_add_(targets, [torch.ones(3), torch.ones(2, 2)])
    assert all((target == 2).all() for target in targets)


def test_a_compiled_module_runs_eagerly_again():
    def fail(*args: object) -> None:
        raise RuntimeError("compiled")

    module = nn.Linear(2, 2)
    module.compile(backend=lambda *_: fail)
    torch_private.undo_compile(module)
    x = torch.zeros(1, 2)
    assert torch.equal(module(x), module.forward(x))


def test_fake_tensors_have_shapes_and_no_memory():
    with torch_private.FakeTensorMode():
        x = torch.empty(1 << 20, 1 << 20)
        assert (x @ x).shape == x.shape
