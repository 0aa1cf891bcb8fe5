"""What a language model may say next, before and after temperature, top-K and top-P, at every step
of a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.decoding import Sample
from regard.decoding.engine import device_of, evaluating
from regard.pipelines.generator import Generator

MOST_LISTED = 24  # tokens of a step


@dataclass(frozen=True, eq=False)
class SamplingStep:
    """The most probable tokens at one step.

    `before` are probabilities of the model after banned and forbidden tokens were excluded, `after`
    those from which one is drawn. `n_kept` tokens have one above 0 and had a `mass` before.
    """

    ids: list[int]
    tokens: list[str]
    before: list[float]
    after: list[float]
    n_kept: int
    possible: int
    mass: float
    chosen: int | None  # the token that was sampled, if one was


def sampling_steps(
    generator: Generator,
    prompt: Sequence[int],
    sampled: Sequence[int],
    sample: Sample,
    most: int = MOST_LISTED,
) -> list[SamplingStep]:
    """Return a step for each of the tokens `sampled` after a prompt, and one for the next token.

    They end with the context of the model: there, generating goes on from half of it.
    """
    limit = generator.model.max_context
    read = list(prompt)
    if limit is not None and len(read) > limit:
        read = read[-max(1, limit // 2) :]
    sampled = list(sampled)[: None if limit is None else limit - len(read)]
    logits = masked_logits(generator, [*read, *sampled], len(read) - 1)  # (1 + T, V)
    log_probs = logits.log_softmax(-1)
    before, after = log_probs.exp(), filtered(log_probs, sample)
    chosen: list[int | None] = [*sampled, None]
    if sampled and sampled[-1] == generator.tokenizer.end:
        chosen.pop()  # nothing follows the end
    rows = zip(before, after, chosen, strict=False)
    return [_step(generator, *row, most) for row in rows]


@torch.inference_mode()
def masked_logits(generator: Generator, ids: Sequence[int], first: int) -> Tensor:
    """Return the logits (T, V) of what follows position `first` and each later one, -∞ for tokens
    that are never generated there.
    """
    model = generator.model
    row = torch.tensor([list(ids)], device=device_of(model))
    with evaluating(model):
        logits: Tensor = model.logits(row)[0, first:].float()
        banned = generator.tokenizer.never_produced(model.vocab_size)
        if banned:
            logits[:, list(banned)] = -math.inf
        if generator.forbidden is not None:
            logits = generator.forbidden(logits, row[0, first:])
    return logits.cpu()


def filtered(log_probs: Tensor, sample: Sample) -> Tensor:
    """Return the probabilities (T, V) from which a sample draws."""
    if sample.temperature == 0:
        best = log_probs.argmax(-1, keepdim=True)
        return torch.zeros_like(log_probs).scatter(1, best, 1.0)
    weights, ids = sample.weights(log_probs)
    if ids is not None:
        weights = torch.zeros_like(log_probs).scatter(1, ids, weights)
    return weights / weights.sum(-1, keepdim=True)


def _step(
    generator: Generator, before: Tensor, after: Tensor, chosen: int | None, most: int
) -> SamplingStep:
    possible = before.nan_to_num() > 0
    order = before.nan_to_num().sort(descending=True, stable=True).indices
    listed = order[possible[order]][:most].tolist()
    if chosen is not None and chosen not in listed:
        listed = [*listed[: most - 1], chosen]
    mask = after.nan_to_num() > 0
    return SamplingStep(
        listed,
        [generator.tokenizer.text(i) for i in listed],
        before[listed].tolist(),
        after[listed].tolist(),
        int(mask.sum()),
        int(possible.sum()),
        float(before[mask].sum()),
        chosen,
    )
