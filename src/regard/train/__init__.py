"""Fitting: objectives, optimizers, schedules, checkpoints and the loop that joins them.

The package is also the public function: `regard.train(recipe, out)` is `regard.api.train`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that can be called, as `regard.train` is both a folder and a verb."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from importlib import import_module

        return import_module("regard.api").train(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
