"""regard: train, measure, explain and export sequence models on your own data.

recipe, why = regard.plan(["names.txt"])
result = regard.train(recipe, "runs/names")
predictor = regard.load("runs/names")
predictor.generate(["ma"])
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = [
    "ComparisonResult",
    "Generator",
    "Predictor",
    "TrainResult",
    "Translator",
    "WordVectors",
    "compare",
    "load",
    "plan",
    "train",
]


def __getattr__(name: str) -> Any:
    """The public names, imported the first time one is used: `import regard` alone is instant."""
    if name in __all__:
        return getattr(import_module("regard.api"), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")
