"""Names of experiments, what each asks, and where it lives; one is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from regard.errors import UsageError, did_you_mean
from regard.lab.result import Options, Result


class Experiment(NamedTuple):
    """Where a function from Options to Result lives, its question in a line, and what a FILE given
    to it is, if it takes one.
    """

    place: str
    line: str
    file: str = ""


EXPERIMENTS = {
    "distance": Experiment(
        "regard.lab.distance:distance",
        "how far apart may two motifs be for a model to relate them?",
    ),
    "kernels": Experiment(
        "regard.lab.kernels:kernels",
        "is attention a weighted mean, and does learning its weights gain over assuming them?",
        "a CSV of points, columns x and y",
    ),
    "lookup": Experiment(
        "regard.lab.lookup:lookup",
        "is attention a dictionary that became fuzzy?",
        "a TSV of keys and values, each key once",
    ),
    "bayes": Experiment(
        "regard.lab.bayes:bayes",
        "what is known as counts arrive, and is the MAP what Lagrange multipliers say?",
    ),
    "invariants": Experiment(
        "regard.lab.invariants:invariants",
        "which laws does attention obey: order, sums, hulls, scales?",
    ),
    "svm": Experiment(
        "regard.lab.svm:svm",
        "does attention trained by gradient descent tend to the largest margin?",
    ),
    "positions": Experiment(
        "regard.lab.positions:positions",
        "are positions frequencies, and which schemes work beyond the length trained on?",
        "text to train on",
    ),
    "tricks": Experiment(
        "regard.lab.tricks:tricks",
        "what do residuals, norms, scaling, warm-up and label smoothing each gain?",
        "text to train on",
    ),
    "gradients": Experiment(
        "regard.lab.gradients:gradients",
        "how far back does the gradient of recurrence, convolution and attention reach?",
    ),
    "agreement": Experiment(
        "regard.lab.agreement:agreement",
        "up to which distance does a verb agree with its subject?",
    ),
    "heads": Experiment(
        "regard.lab.heads:heads",
        "what does each head do, and how many are needed?",
        "the run folder of a Transformer",
    ),
    "complexity": Experiment(
        "regard.lab.complexity:complexity",
        "what does each kind of layer cost here, against length and width?",
    ),
    "recall": Experiment(
        "regard.lab.recall:recall",
        "who recalls what was said, however long ago?",
    ),
    "scaling": Experiment(
        "regard.lab.scaling:scaling",
        "would more data or a larger model help, and can smaller ones tell?",
        "text to train on",
    ),
    "dimensions": Experiment(
        "regard.lab.dimensions:dimensions",
        "how many numbers does a word's vector need?",
        "text, words with blanks between them",
    ),
}


def perform(name: str, options: Options) -> Result:
    """Run the experiment of that name."""
    if name not in EXPERIMENTS:
        raise UsageError(f"unknown experiment {name!r}; {did_you_mean(name, list(EXPERIMENTS))}")
    if options.file is not None and not EXPERIMENTS[name].file:
        takers = ", ".join(key for key, one in EXPERIMENTS.items() if one.file)
        raise UsageError(f"experiment {name!r} takes no file; those that do: {takers or 'none'}")
    module, _, attribute = EXPERIMENTS[name].place.partition(":")
    function: Callable[[Options], Result] = getattr(import_module(module), attribute)
    return function(options)
