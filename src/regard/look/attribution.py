"""What in a sequence a prediction rests on: gradient × input, changes to the input, and attention
rollout.

Gradient × input (Simonyan et al. 2014, arXiv:1312.6034; Shrikumar et al. 2017, arXiv:1605.01713) is
the derivative of a score with respect to a token's embedding, times that embedding. For a score
that is linear in the embeddings it is exactly what each token adds; otherwise it is a linear
approximation. Leaving a token out, or substituting another one (Zhou & Troyanskaya 2015,
doi:10.1038/nmeth.3547), runs the model once for every change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.targets import OUTPUT_KINDS
from regard.layers.embeddings import Inputs, PatchEmbedding, PointEmbedding
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel

BATCH_TOKENS = 1 << 14  # positions read at once


def find_embedding(model: nn.Module) -> nn.Module | None:
    """Return the first embedding of a model: of tokens, patches or points."""
    kinds = nn.Embedding | PatchEmbedding | PointEmbedding
    return next((module for module in model.modules() if isinstance(module, kinds)), None)


def gradient_times_input(
    model: NeuralSupervisedModel, source: Inputs, pick: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return (B, T): what each token adds to the score (B,) that `pick` takes from the predictions.

    What positions, segments and biases add is not included.
    """
    embedding = find_embedding(model)
    if embedding is None:
        raise ValueError(f"{type(model).__name__} has no embedding")
    embedded: list[Tensor] = []

    def record(module: nn.Module, inputs: object, rows: Tensor) -> Tensor:
        embedded.append(rows.detach().requires_grad_())
        return embedded[-1]

    training = model.training
    hook = embedding.register_forward_hook(record)
    try:
        model.eval()
        # cuDNN's recurrences have no gradient outside training
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            score = pick(model.predict(source))
            (gradient,) = torch.autograd.grad(score.sum(), embedded)  # rows are independent
    finally:
        hook.remove()
        model.train(training)
    return (gradient * embedded[0]).sum(-1).detach()


def attribute_outputs(model: NeuralSupervisedModel, source: Inputs, outputs: list[int]) -> Tensor:
    """Return (n, T): what each token of one sequence adds to each of n outputs."""
    rows = torch.arange(len(outputs))
    return gradient_times_input(
        model,
        repeat_rows(source, len(outputs)),
        lambda scores: center(model, scores)[rows, outputs],
    )


def attribute_positions(
    model: NeuralSupervisedModel, source: Inputs, positions: list[int], outputs: list[int]
) -> Tensor:
    """Return (n, T): what each token of one sequence adds to an output at each of n positions."""
    rows = torch.arange(len(positions))
    return gradient_times_input(
        model,
        repeat_rows(source, len(positions)),
        lambda scores: center(model, scores)[rows, positions, outputs],
    )


def leave_out(model: SupervisedModel, source: Inputs, output: int) -> Tensor:
    """Return (T,): how much an output drops without each token of one sequence; 0 at markers."""
    ids, length = source.ids, source.ids.size(1)
    keep = ~torch.eye(length, dtype=torch.bool, device=ids.device)[1:-1]  # (T − 2, T)
    if not len(keep):
        return torch.zeros(length)
    rows = ids.expand(len(keep), -1)[keep].view(len(keep), -1)  # (T − 2, T − 1)
    return F.pad(score_ids(model, ids, output) - score_ids(model, rows, output), (1, 1))


def substitute(model: SupervisedModel, source: Inputs, output: int, letters: Tensor) -> Tensor:
    """Return (A, T): how much an output rises with each of A tokens at each position of one
    sequence; 0 at markers and where nothing changes.
    """
    ids, length = source.ids, source.ids.size(1)
    rows = ids.repeat(len(letters), length, 1)  # (A, T, T)
    rows.diagonal(dim1=1, dim2=2).copy_(letters[:, None].expand(-1, length))
    inside = rows[:, 1:-1].flatten(0, 1)
    if not len(inside):
        return torch.zeros(len(letters), length)
    changed = score_ids(model, inside, output).view(len(letters), -1)
    return F.pad(changed - score_ids(model, ids, output), (1, 1))


def score_ids(model: SupervisedModel, ids: Tensor, output: int) -> Tensor:
    """Return (B,): an output for rows of ids without padding."""
    batches = ids.split(max(1, BATCH_TOKENS // ids.size(1)))
    return score_batches(model, (Inputs(rows, torch.ones_like(rows)) for rows in batches), output)


@torch.inference_mode()
def score_batches(model: SupervisedModel, batches: Iterable[Inputs], output: int) -> Tensor:
    """Return (N,): an output for all rows of the batches, on the CPU."""
    scores = [center(model, model.predict(batch))[:, output].float().cpu() for batch in batches]
    return torch.cat(scores)


def repeat_rows(source: Inputs, count: int) -> Inputs:
    """Return one sequence as `count` equal rows."""
    rest = [-1] * (source.ids.dim() - 1)
    return Inputs(source.ids.expand(count, *rest), source.segments.expand(count, -1))


def center(model: SupervisedModel, scores: Tensor) -> Tensor:
    """Return the scores to explain: logits of classes minus their mean, since adding a constant to
    all of them changes no probability (Shrikumar et al. 2017, section 3.6 of arXiv:1704.02685).
    """
    return scores if OUTPUT_KINDS[model.task].per_column else subtract_mean(scores)


def subtract_mean(scores: Tensor) -> Tensor:
    """Return scores of classes (..., O) minus their mean over the classes."""
    return scores - scores.mean(-1, keepdim=True)


def rollout(weights: Tensor, pooled: Tensor) -> Tensor:
    """Return (T,): attention followed from the pooling weights (T,) down to the tokens.

    `weights` (L, H, T, T) are those of every layer. Heads are averaged, and half of each position
    comes from itself, through the residual (Abnar & Zuidema 2020, arXiv:2005.00928).
    """
    for layer in weights.mean(1).flip(0):  # (T, T)
        pooled = 0.5 * pooled + 0.5 * (pooled @ layer)
    return pooled
