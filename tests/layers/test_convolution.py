"""Long convolutions: transforms against the Toeplitz matrix, one by one against all at once."""

from __future__ import annotations

import pytest
import torch

from regard.layers.convolution import BLOCK, OnlineConvolution, fast_size, long_convolution

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def toeplitz(filters, ahead=None):
    """(C, T, T): row t has filters[t - s] at s <= t, and ahead[s - t - 1] after."""
    length = filters.size(-1)
    offset = torch.arange(length)[:, None] - torch.arange(length)
    matrix = torch.where(offset >= 0, filters[:, offset.clamp_min(0)], 0)
    if ahead is not None:
        matrix = matrix + torch.where(offset < 0, ahead[:, (-offset - 1).clamp_min(0)], 0)
    return matrix


def random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 31, 200])
def test_it_is_the_product_with_the_toeplitz_matrix(length, both, dtype):
    x = random(2, 3, length, dtype=dtype).requires_grad_()
    filters = [random(3, length, dtype=dtype, seed=i) / length**0.5 for i in (1, 2)]
    filters = [f.requires_grad_() for f in filters[: 1 + both]]
    got = long_convolution(x, *filters)
    expected = torch.einsum("cts,bcs->bct", toeplitz(*filters), x)
    torch.testing.assert_close(got, expected, atol=TOLERANCE[dtype], rtol=0)
    dy = random(2, 3, length, dtype=dtype, seed=3)
    for a, b in zip(
        torch.autograd.grad(got, (x, *filters), dy),
        torch.autograd.grad(expected, (x, *filters), dy),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=4 * TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_sizes_are_large_enough_and_fast_to_transform():
    for length in range(1, 400):
        size = fast_size(length)
        assert length <= size <= 1.2 * length + 1
        for prime in (2, 3, 5):
            while size % prime == 0:
                size //= prime
        assert size == 1


def test_half_precision_is_summed_in_single():
    x, filters = random(1, 2, 4096).bfloat16(), random(2, 4096, seed=1) / 64
    exact = long_convolution(x.double(), filters.double())
    got = long_convolution(x, filters)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.double(), exact, atol=1e-4, rtol=2**-8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("default")  # a compiler that gives advice has not failed
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
@pytest.mark.parametrize("length", [1, 100, 1000])
def test_on_a_gpu_it_is_what_the_cpu_computes(length, dtype, atol, compiled):
    """Channels beside each other, as projections leave them; in double precision on the CPU."""
    torch.compiler.reset()
    work = torch.compile(long_convolution) if compiled else long_convolution
    results = {}
    for device, exact in (("cpu", True), ("cuda", False)):
        x, dy = (random(3, length, 37, seed=i).to(dtype).to(device) for i in (0, 1))
        filters = (random(37, length, seed=2) / length**0.5).to(device)
        if exact:
            x, dy, filters = (each.double() for each in (x, dy, filters))
        x, filters = x.requires_grad_(), filters.requires_grad_()
        y = (long_convolution if exact else work)(x.mT, filters).mT
        assert y.dtype == x.dtype
        results[device] = [y, *torch.autograd.grad(y, (x, filters), dy)]
    for got, expected in zip(results["cuda"], results["cpu"], strict=True):
        torch.testing.assert_close(got.double().cpu(), expected, atol=atol, rtol=atol)


@pytest.mark.parametrize("recorded", [False, True])
def test_inputs_one_by_one_give_what_they_give_at_once(recorded):
    """Over several blocks, each prompt length; positions as numbers, and as a tensor."""
    length = 9 * BLOCK + 5
    x, filters = random(2, 3, length), random(3, length, seed=1) / length**0.5
    expected = long_convolution(x, filters)
    for prompt in (0, 1, BLOCK, 2 * BLOCK + 7):
        online = OnlineConvolution(2, filters)
        if prompt:
            got = online.read(x[..., :prompt], None, 0, 0, prompt)
            torch.testing.assert_close(got, expected[..., :prompt], atol=1e-5, rtol=0)
        for t in range(prompt, length):
            online.flush(t)
            position = torch.full((2, 1), t) if recorded else t
            got = online.step(x[..., t], position, t)
            torch.testing.assert_close(got, expected[..., t], atol=1e-5, rtol=0)


def test_rows_are_reordered_and_expanded_in_the_middle_of_a_block():
    """Row b goes on as its parent; after a prompt of its own, or one that beams share."""
    length, prompt = 6 * BLOCK, 40
    x, filters = random(2, 3, length), random(3, length, seed=1) / length**0.5
    online = OnlineConvolution(2, filters)
    online.read(x[..., :prompt], None, 0, 0, prompt)
    online.expand(2)
    rows = x.repeat_interleave(2, 0)  # what each of four rows has read
    generator = torch.Generator().manual_seed(5)
    for t in range(prompt, length):
        rows[..., t] = torch.randn(4, 3, generator=generator)
        online.flush(t)
        got = online.step(rows[..., t], t, t)
        torch.testing.assert_close(got, long_convolution(rows, filters)[..., t], atol=2e-5, rtol=0)
        parents = torch.randint(2, (4,), generator=generator) + torch.tensor([0, 0, 2, 2])
        rows = rows[parents]
        online.select(parents, slice(prompt, t + 1))  # all that differs within the beams of a row


def test_the_work_of_a_step_grows_no_faster_than_the_square_of_the_logarithm():
    """Numbers transformed while n inputs come: n / (2U) transforms of size 2U for each U."""
    counts = {}
    original = torch.fft.rfft
    for n in (1 << 10, 1 << 11, 1 << 12):
        total = 0

        def counting(x, size, *rest):
            nonlocal total
            total += size * size.bit_length()
            return original(x, size, *rest)

        online = OnlineConvolution(1, random(1, n))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.fft, "rfft", counting)
            for t in range(0, n, BLOCK):
                online.flush(t)
        counts[n] = total / n
    per = list(counts.values())
    for (n, a), b in zip(counts.items(), per[1:], strict=False):
        assert b / a < ((n.bit_length() + 1) / n.bit_length()) ** 2 * 1.2
