"""Warnings at the top of a page: what its run's own files say against trusting what it shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from regard.run import Run

ENOUGH_BLEU = 1.0  # below it, translations share next to nothing with their references
USEFUL_BLEU = 10.0  # below it, few translations can be understood
TRIVIAL = {  # metrics that are greater if a model is better: their trivial value, and whose it is
    "mcc": (0.0, "always predicting the same class"),
    "auroc": (0.5, "guessing"),
    "auroc_mean": (0.5, "guessing"),
    "r2": (0.0, "always predicting the mean"),
    "skill": (0.0, "the naive forecast"),
}
TITLES = {"mcc": "MCC", "auroc": "AUROC", "auroc_mean": "mean AUROC", "r2": "R²", "skill": "skill"}


def run_warnings(run: Run, subject: str = "This model") -> list[str]:
    """Return why a reader should not trust a page about this run, a sentence each: it has read less
    than its whole training data, or is not better than a trivial baseline.
    """
    metadata = run.metadata
    sentences = list(_short_training(metadata))
    metrics = metadata.get("metrics", {})
    split = "test" if "test" in metrics else "valid"
    words = {"test": "test", "valid": "validation"}[split]
    measured = metrics.get(split, {})
    sentences += _not_better(measured, f"on the {words} split")
    sentences += _uniform(measured, run)
    for target, of_target in measured.get("targets", {}).items():
        sentences += _not_better(of_target, f"for {target} on the {words} split")
    return [f"{subject} {sentence}" for sentence in sentences]


def _short_training(metadata: dict[str, Any]) -> Iterator[str]:
    epochs, steps = metadata.get("epochs"), metadata.get("steps", 0)
    if epochs is not None and epochs < 1:
        yield (
            f"is barely trained: it has seen {epochs:.1%} of its training data, in "
            f"{steps:,} {'step' if steps == 1 else 'steps'}. What the page shows may be chance."
        )


def _not_better(metrics: dict[str, Any], where: str) -> Iterator[str]:
    """Compare the lower ends of 95% intervals with trivial values, the first metric that has one
    deciding.
    """
    for name, (trivial, baseline) in TRIVIAL.items():
        metric = metrics.get(name) or {}
        if metric.get("low") is None:
            continue
        if metric["low"] <= trivial:
            yield (
                f"is not significantly better than {baseline}: its {TITLES[name]} {where} is "
                f"{metric['value']:.3f} [{metric['low']:.3f}, {metric['high']:.3f}]."
            )
        break
    bleu = (metrics.get("bleu") or {}).get("value")
    if bleu is not None and bleu < ENOUGH_BLEU:
        yield f"does not translate: its BLEU {where} is {bleu:.1f} of 100."
    elif bleu is not None and bleu < USEFUL_BLEU:
        yield (
            f"translates badly: its BLEU {where} is {bleu:.1f} of 100, and below {USEFUL_BLEU:.0f} "
            "few translations can be understood. Its alignment may be chance."
        )


def _uniform(metrics: dict[str, Any], run: Run) -> Iterator[str]:
    """Compare a loss per token with that of the uniform distribution over the vocabulary."""
    nats = (metrics.get("nats_per_token") or {}).get("low")
    if nats is None:
        return
    uniform = math.log(run.description.vocab_size)
    if nats >= uniform:
        yield (
            "is not better than drawing tokens uniformly: its loss is "
            f"{nats / math.log(2):.2f} bits per token or more, theirs {uniform / math.log(2):.2f}."
        )
