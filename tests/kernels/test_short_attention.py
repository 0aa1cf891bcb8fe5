"""The kernels for short sequences against attention in fp64, alone, compiled and captured; skipped
without a GPU. When they are used is tested without one.
"""

from __future__ import annotations

import pytest
import torch

from regard.kernels.torch_private import FakeTensorMode
from regard.layers import attention
from regard.layers.attention import AttentionContext, SelfAttention, attend, softmax
from regard.layers.masks import Causal, Documents, Padding, Rendered

B, H = 3, 2
advice = pytest.mark.filterwarnings("default")  # a compiler that gives advice has not failed
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TOLERANCE = {torch.bfloat16: 1.5e-2, torch.float16: 2e-3}  # of the length of each result


def inputs(t, s, k, dtype, device, seed=0):
    """Views as models make them: heads of one product, keys and values of another."""
    torch.manual_seed(seed)
    one = torch.randn(B, t, 3 * H, k, device=device, dtype=dtype)
    two = torch.randn(B, s, 2, H, k, device=device, dtype=dtype)
    views = (one[:, :, H : 2 * H], two[:, :, 0], two[:, :, 1])
    return [x.transpose(1, 2).detach().requires_grad_() for x in views]


def masks(name, t, s, device):
    """Rows 1 of the batch and 3 of the queries have no keys, where a mask can express it."""
    torch.manual_seed(t + s)
    full = torch.rand(B, 1, t, s, device=device) < 0.5
    full[:, :, 3], full[1] = False, False
    lengths = torch.tensor([(s + 1) // 2, 0, s], device=device)
    segments = torch.arange(t, device=device) // 7 + torch.arange(B, device=device)[:, None]
    return {
        "none": lambda: None,
        "causal": Causal,
        "holes": lambda: Rendered(full, True),
        "one for all rows": lambda: Rendered(full[:1], True),
        "one for all queries": lambda: Padding(lengths).rendered(B, t, s, torch.device(device)),
        "expanded": lambda: Rendered(full[:1].expand(B, 1, t, s), True),
        "transposed": lambda: Rendered(full.mT.contiguous().mT, True),
        "packed": lambda: Documents(segments) & Causal(),
    }[name]()


def oracle(q, k, v, mask):
    """Equation 1 in fp64."""
    q, k, v = (x.double() for x in (q, k, v))
    scores = q @ k.mT * q.size(-1) ** -0.5
    if mask is not None:
        allowed = mask.tensor(len(q), q.size(2), k.size(2), q.device)
        scores = scores.masked_fill(~allowed, -torch.inf)
    return softmax(scores) @ v


def results(function, q, k, v, mask, seed=1):
    """What a function gives, and the gradients of q, k and v for a random gradient of that."""
    torch.manual_seed(seed)
    dy = torch.randn(B, q.size(2), H, q.size(3), device=q.device).to(q.dtype).transpose(1, 2)
    y = function(q, k, v, mask)
    return (y.detach(), *torch.autograd.grad(y, (q, k, v), dy.to(y.dtype)))


def check_same(got, expected, tolerance):
    for name, ours, plain in zip(("y", "dq", "dk", "dv"), got, expected, strict=True):
        assert ours.shape == plain.shape and ours.isfinite().all(), name
        error = (ours.double() - plain).norm() / plain.norm().clamp_min(0.1)
        assert error < tolerance, f"{name}: {error:.2g}"


def taken(q, k, v, mask):
    """`attend`, which must not have fallen back."""
    y = attend(q, k, v, mask)
    if y.requires_grad:
        assert "short_attention" in y.grad_fn.name()
    return y


@gpu
@pytest.mark.parametrize(
    ("t", "s", "k", "dtype"),
    [
        (16, 1, 64, torch.bfloat16),
        (17, 17, 32, torch.float16),
        (32, 32, 64, torch.bfloat16),
        (40, 120, 64, torch.bfloat16),
        (128, 128, 64, torch.bfloat16),
    ],
)
def test_the_kernels_give_the_result_and_gradients_of_equation_one(t, s, k, dtype):
    names = ["none", "holes", "one for all rows", "one for all queries", "expanded", "transposed"]
    for name in names + ["causal", "packed"] * (t == s):
        q, key, value = inputs(t, s, k, dtype, "cuda")
        mask = masks(name, t, s, "cuda")
        check_same(
            results(taken, q, key, value, mask),
            results(oracle, q, key, value, mask),
            TOLERANCE[dtype],
        )


@gpu
@pytest.mark.parametrize(("t", "k"), [(64, 128), (33, 16)])
def test_wide_and_narrow_heads(t, k):
    q, key, value = inputs(t, t, k, torch.bfloat16, "cuda")
    mask = masks("holes", t, t, "cuda")
    check_same(results(taken, q, key, value, mask), results(oracle, q, key, value, mask), 1.5e-2)


@gpu
def test_a_query_without_keys_gets_zeros_and_has_no_gradient():
    q, k, v = inputs(20, 24, 32, torch.bfloat16, "cuda")
    y, dq, dk, dv = results(taken, q, k, v, masks("holes", 20, 24, "cuda"))
    assert not y[:, :, 3].any() and not dq[:, :, 3].any() and y[0, :, 4].any()
    assert not any(x[1].any() for x in (y, dq, dk, dv))


@gpu
def test_results_lie_in_memory_as_the_next_product_reads_them():
    q, k, v = inputs(20, 24, 32, torch.bfloat16, "cuda")
    for x in results(taken, q, k, v, None):
        assert x.transpose(1, 2).is_contiguous()


@gpu
def test_gradients_of_any_strides():
    q, k, v = inputs(20, 20, 32, torch.bfloat16, "cuda")
    got = torch.autograd.grad(attend(q, k, v, Causal()).sum(), (q, k, v))  # all strides 0
    check_same(
        (q, *got), (q, *torch.autograd.grad(oracle(q, k, v, Causal()).sum(), (q, k, v))), 1.5e-2
    )


@gpu
@advice
@pytest.mark.parametrize("name", ["causal", "holes", "one for all queries", "packed"])
def test_compiled_in_one_piece(name):
    compiled = torch.compile(attend, fullgraph=True)
    for t in (32, 100):
        q, k, v = inputs(t, t, 64, torch.bfloat16, "cuda")
        mask = masks(name, t, t, "cuda")
        check_same(results(compiled, q, k, v, mask), results(oracle, q, k, v, mask), 1.5e-2)


@gpu
@advice
@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_in_training_captured_as_a_cuda_graph(compiled):
    """Replayed on new values, a captured step gives what one that is launched does."""
    torch.manual_seed(0)
    layer = SelfAttention(64, 2, qk_norm_eps=1e-6).cuda()
    function = torch.compile(layer, fullgraph=True) if compiled else layer
    x = torch.randn(4, 40, 64, device="cuda", dtype=torch.bfloat16)
    allowed = torch.rand(4, 1, 40, 40, device="cuda") < 0.5
    parameters = list(layer.parameters())

    def step():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            y = function(x, AttentionContext(mask=Rendered(allowed, True)))
        return (y.detach(), *torch.autograd.grad(y.float().square().sum(), parameters))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        captured = step()
    x.copy_(torch.randn_like(x))
    allowed.copy_(torch.rand(4, 1, 40, 40, device="cuda") < 0.3)
    graph.replay()
    for got, expected in zip(captured, step(), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@gpu
def test_the_same_numbers_every_time():
    q, k, v = inputs(128, 128, 64, torch.bfloat16, "cuda")
    mask = masks("packed", 128, 128, "cuda")
    once, again = (results(taken, q, k, v, mask) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


def fake(t=32, s=32, k=64, kv_heads=H, dtype=torch.bfloat16, device="cuda", mask_heads=None):
    """Arguments that have shapes and no numbers: they need no GPU."""
    with FakeTensorMode():
        q = torch.empty(B, H, t, k, dtype=dtype, device=device)
        key = torch.empty(B, kv_heads, s, k, dtype=dtype, device=device)
        mask = None
        if mask_heads is not None:
            mask = torch.empty(B, mask_heads, t, s, dtype=torch.bool, device=device)
        return q, key, key, mask


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"dtype": torch.float16}, True),
        ({"mask_heads": 1}, True),
        ({"t": 128, "s": 128}, True),
        ({"t": 16, "s": 1}, True),
        ({"t": 64, "s": 64, "k": 128}, True),
        ({"t": 1}, False),  # decoding
        ({"t": 15}, False),
        ({"t": 129}, False),
        ({"s": 129}, False),
        ({"t": 65, "s": 64, "k": 128}, False),
        ({"k": 48}, False),
        ({"k": 256}, False),
        ({"kv_heads": 1}, False),  # grouped
        ({"mask_heads": H}, False),
        ({"dtype": torch.float32}, False),
        ({"device": "cpu"}, False),
    ],
)
def test_what_fits_the_kernel(options, expected, monkeypatch):
    monkeypatch.setattr(attention, "short_attention", object())  # as if Triton were here
    assert attention.fits_short_kernel(*fake(**options)) is expected


def test_nothing_fits_without_triton(monkeypatch):
    monkeypatch.setattr(attention, "short_attention", None)
    assert not attention.fits_short_kernel(*fake())


@pytest.mark.parametrize("name", ["none", "causal", "holes", "one for all queries", "packed"])
def test_where_nothing_fits_the_result_is_the_same(name):
    q, k, v = inputs(20, 20, 32, torch.float32, "cpu")
    mask = masks(name, 20, 20, "cpu")
    check_same(results(attend, q, k, v, mask), results(oracle, q, k, v, mask), 1e-5)


@pytest.mark.parametrize("name", ["none", "causal", "holes", "one for all queries", "packed"])
def test_the_kernel_gets_the_mask(name, monkeypatch):
    """A stand-in for the kernel gives what the fused path gives."""

    def plain(q, k, v, allowed, causal):
        calls.append((allowed is None, causal))
        mask = Causal() if causal else None if allowed is None else Rendered(allowed, True)
        return oracle(q, k, v, mask).to(q.dtype)

    calls: list[tuple[bool, bool]] = []
    q, k, v = inputs(20, 20, 32, torch.float32, "cpu")
    mask = masks(name, 20, 20, "cpu")
    expected = attend(q, k, v, mask)
    monkeypatch.setattr(attention, "fits_short_kernel", lambda *_: True)
    monkeypatch.setattr(attention, "short_attention", plain)
    torch.testing.assert_close(attend(q, k, v, mask), expected, atol=1e-5, rtol=0)
    assert calls == [(name in ("none", "causal"), name == "causal")]
    attend(q, k, v, mask, bias=torch.zeros(H, 20, 20))
    assert len(calls) == 1, "the kernel takes no bias"
