"""Transform weights, applied and removed, against complex products; skipped without a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from regard.layers.convolution import fast_size, fft_weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("length", [1, 70, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernels_are_products_with_the_weights_and_their_conjugates(length, dtype):
    from regard.kernels.weighted_fft import apply_fft_weights, remove_fft_weights

    x = torch.randn(2, length, 37, device="cuda").to(dtype).mT  # channels next to each other
    weights = fft_weights(fast_size(length), x.float())  # (S,)
    size = len(weights)
    z = apply_fft_weights(x, torch.view_as_real(weights))
    expected = F.pad(x.float(), (0, size - length)) * weights  # (B, C, S)
    torch.testing.assert_close(torch.view_as_complex(z), expected, atol=1e-6, rtol=1e-5)
    y = remove_fft_weights(z, torch.view_as_real(weights), length, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(y.mT.float() * size, x.float(), atol=tolerance, rtol=tolerance)
