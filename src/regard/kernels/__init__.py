"""Triton and numba kernels. Every kernel has a plain PyTorch twin that it is tested against."""
