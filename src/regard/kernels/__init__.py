"""Triton and numba kernels. Every kernel has a plain PyTorch or numpy twin that it is tested
against.
"""

from __future__ import annotations

import importlib.util
from functools import cache


@cache
def has_numba() -> bool:
    """Return whether numba, the extra `fast`, is installed."""
    return importlib.util.find_spec("numba") is not None
