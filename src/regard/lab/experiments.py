"""Names of experiments, what each asks, and where it lives; one is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from regard.errors import UsageError, did_you_mean
from regard.lab.result import Options, Result


class Experiment(NamedTuple):
    """Where a function from Options to Result lives, and its question in a line."""

    place: str
    line: str


EXPERIMENTS = {
    "distance": Experiment(
        "regard.lab.distance:distance",
        "how far apart may two motifs be for a model to relate them?",
    ),
    "dimensions": Experiment(
        "regard.lab.dimensions:dimensions",
        "how many numbers does a word's vector need? [FILE: your own text]",
    ),
}


def perform(name: str, options: Options) -> Result:
    """Run the experiment of that name."""
    if name not in EXPERIMENTS:
        raise UsageError(f"unknown experiment {name!r}; {did_you_mean(name, list(EXPERIMENTS))}")
    module, _, attribute = EXPERIMENTS[name].place.partition(":")
    function: Callable[[Options], Result] = getattr(import_module(module), attribute)
    return function(options)
