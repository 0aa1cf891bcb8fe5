"""The kernels of decoding steps against PyTorch's operators; skipped without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [(1, 96, 80), (1, 768, 50_257), (8, 64, 51)])
def test_linear_is_a_matrix_product(dtype, size):
    from regard.kernels.decode import linear

    rows, d, n_out = size
    x = torch.randn(rows, d, device="cuda", dtype=dtype)
    w = torch.randn(n_out, d, device="cuda", dtype=dtype)
    result, expected = linear(x, w), F.linear(x.double(), w.double())
    got = result if isinstance(result, torch.Tensor) else result.run()
    assert (got - expected).norm() / expected.norm() < (1e-6 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("queries", [1, 4])
def test_attention_skips_what_the_mask_excludes_and_a_row_without_keys_gives_zeros(queries):
    from regard.kernels.decode import CacheAttention

    q = torch.randn(3, 4, queries, 32, device="cuda")
    k, v = torch.randn(2, 3, 2, 300, 32, device="cuda")
    mask = torch.rand(3, 1, 1, 300, device="cuda") < 0.3
    mask[1, ..., 40:] = False
    mask[2] = False
    k[1, :, 40:] = torch.nan  # never read
    expected = F.scaled_dot_product_attention(
        q[:2], k[:2].nan_to_num(), v[:2], attn_mask=mask[:2], enable_gqa=True
    )
    got = CacheAttention()(q, k, v, mask, enable_gqa=True)
    torch.testing.assert_close(got[:2], expected, atol=1e-5, rtol=1e-5)
    assert (got[2] == 0).all()


@pytest.mark.parametrize("rows", [1, 6])
def test_a_pending_linear_fuses_with_gelu_and_a_sum(rows):
    from regard.kernels.decode import PendingLinear, linear

    x, weight = torch.randn(rows, 1, 64, device="cuda"), torch.randn(48, 64, device="cuda")
    bias, addend = torch.randn(48, device="cuda"), torch.randn(rows, 1, 48, device="cuda")
    plain = F.linear(x, weight, bias)
    pending = linear(x, weight, bias)
    assert isinstance(pending, PendingLinear)
    got = pending.fuse(aten.gelu.default, (pending.result,), {"approximate": "tanh"})
    torch.testing.assert_close(got, F.gelu(plain, approximate="tanh"), atol=1e-3, rtol=1e-3)
    pending = linear(x, weight, bias)
    got = pending.fuse(aten.add.Tensor, (addend, pending.result), {})
    if rows == 1:
        torch.testing.assert_close(got, addend + plain, atol=1e-3, rtol=1e-3)
    else:
        assert got is None
    pending.flush()
    assert pending.fuse(aten.mul.Tensor, (pending.result, x), {}) is None


def test_a_pending_sum_fuses_with_layer_norm():
    from regard.kernels.decode import add

    x, y = torch.randn(2, 3, 1, 40, device="cuda")
    gain, bias = torch.randn(2, 40, device="cuda")
    pending = add(x, y)
    got = pending.fuse(aten.layer_norm.default, (pending.result, [40], gain, bias, 1e-5), {})
    torch.testing.assert_close(got, F.layer_norm(x + y, (40,), gain, bias), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(pending.result, x + y)


def test_keys_and_values_are_written_together():
    from regard.kernels.decode import write

    caches, rows = (
        torch.zeros(2, 3, 2, 9, 16, device="cuda"),
        torch.arange(3, device="cuda")[:, None],
    )
    slots, new = torch.tensor([[4], [0], [8]], device="cuda"), torch.randn(2, 3, 1, 2, 16).cuda()
    pending = write(caches[0], [rows, None, slots], new[0])
    arguments = (caches[1], [rows, None, slots], new[1])
    assert pending.fuse(aten.index_put_.default, arguments, {}) is not None
    expected = torch.zeros_like(caches)
    expected[0][rows, :, slots], expected[1][rows, :, slots] = new[0], new[1]
    assert torch.equal(caches, expected)


def test_beams_are_reordered_in_place_as_far_as_the_cache_is_filled():
    from regard.kernels.decode import kernels

    cache, lengths = torch.randn(2, 6, 2, 20, 16, device="cuda"), torch.full((6,), 11).cuda()
    parents, before = torch.tensor([2, 0, 0, 4, 5, 3], device="cuda"), cache.clone()
    pending = kernels(2, lengths)[aten.index_select.default](cache, 1, parents)
    assert pending.fuse(aten.copy_.default, (cache, pending.result), {}) is cache
    assert torch.equal(cache[:, :, :, :11], before[:, parents][:, :, :, :11])
    assert torch.equal(cache[:, :, :, 11:], before[:, :, :, 11:])
