"""regard: train, measure, explain and export sequence models on your own data.

    import regard

    regard.example("questions")  # writes questions.tsv
    result = regard.train("questions.tsv", target="kind", minutes=0.5)
    result.model.predict(["Who invented the telephone ?"])

A data frame or a list does as well as a file: regard.train(frame, target="kind").
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "ComparisonResult",
    "Evaluation",
    "Forecaster",
    "Generator",
    "MaskedPredictor",
    "Matcher",
    "Metric",
    "Pipeline",
    "Predictor",
    "Recipe",
    "TrainResult",
    "Translator",
    "WordVectors",
    "compare",
    "evaluate",
    "example",
    "export",
    "import_model",
    "load",
    "look_at",
    "plan",
    "train",
    "train_recipe",
]

if TYPE_CHECKING:
    from regard.api import (
        ComparisonResult,
        Evaluation,
        Forecaster,
        Generator,
        MaskedPredictor,
        Matcher,
        Metric,
        Pipeline,
        Predictor,
        Recipe,
        TrainResult,
        Translator,
        WordVectors,
        compare,
        evaluate,
        example,
        export,
        import_model,
        load,
        look_at,
        plan,
        train,
        train_recipe,
    )
else:

    def __getattr__(name: str) -> object:
        """The public names, imported when one is first used: `import regard` alone is instant."""
        if name in __all__:
            return getattr(import_module("regard.api"), name)
        raise AttributeError(f"module 'regard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
