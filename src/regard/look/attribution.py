"""What in a sequence an answer rests on: gradient × input, changes to it, and attention followed
down the layers.

Gradient × input (Simonyan et al. 2014, arXiv:1312.6034; Shrikumar et al. 2017, arXiv:1605.01713):
how fast a score changes with a token's embedding, times that embedding. For a score that is linear
in the embeddings it is exactly what each token adds; elsewhere it is that of the tangent. Leaving a
token out, or writing another letter in its place (Zhou & Troyanskaya 2015,
doi:10.1038/nmeth.3547), asks the model itself, once for every change.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.layers.embeddings import Inputs, PatchEmbedding, PointEmbedding
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel

BATCH_TOKENS = 1 << 14  # positions read at once


def embedding_of(model: nn.Module) -> nn.Module:
    """The table that a model looks tokens up in, or its stem: the first of its embeddings."""
    return next(
        part
        for part in model.modules()
        if isinstance(part, nn.Embedding | PatchEmbedding | PointEmbedding)
    )


def gradient_times_input(
    model: NeuralSupervisedModel, source: Inputs, pick: Callable[[Tensor], Tensor]
) -> Tensor:
    """(B, T): what each token adds to the score (B,) that `pick` makes of the answers to each row.

    Positions, kinds of sentence and biases are no tokens: what they add is not among it.
    """
    read: list[Tensor] = []

    def leaf(module: nn.Module, given: object, rows: Tensor) -> Tensor:
        read.append(rows.detach().requires_grad_())
        return read[-1]

    training = model.training
    hook = embedding_of(model).register_forward_hook(leaf)
    try:
        model.eval()
        # cuDNN's recurrences have no gradient outside training
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            score = pick(model.answers(source))
            (gradient,) = torch.autograd.grad(score.sum(), read)  # rows do not see each other
    finally:
        hook.remove()
        model.train(training)
    return (gradient * read[0]).sum(-1).detach()


def of_outputs(model: NeuralSupervisedModel, source: Inputs, outputs: list[int]) -> Tensor:
    """(n, T): what each token of one sequence adds to each of n outputs."""
    rows = torch.arange(len(outputs))
    return gradient_times_input(
        model,
        copies(source, len(outputs)),
        lambda answers: centred(model.task, answers)[rows, outputs],
    )


def of_positions(
    model: NeuralSupervisedModel, source: Inputs, positions: list[int], outputs: list[int]
) -> Tensor:
    """(n, T): what each token of one sequence adds to an output at each of n positions."""
    rows = torch.arange(len(positions))
    return gradient_times_input(
        model,
        copies(source, len(positions)),
        lambda answers: centred(model.task, answers)[rows, positions, outputs],
    )


def left_out(model: SupervisedModel, source: Inputs, output: int) -> Tensor:
    """(T,): how much less an output is without each token of one sequence; 0 for its markers."""
    ids, length = source.ids, source.ids.size(1)
    keep = ~torch.eye(length, dtype=torch.bool, device=ids.device)[1:-1]  # (T − 2, T)
    if not len(keep):
        return torch.zeros(length)
    rows = ids.expand(len(keep), -1)[keep].view(len(keep), -1)  # (T − 2, T − 1)
    whole = scores(model, ids, output)
    return F.pad(whole - scores(model, rows, output), (1, 1))


def substituted(model: SupervisedModel, source: Inputs, output: int, letters: Tensor) -> Tensor:
    """(A, T): how much more an output is with each of A tokens in every place of one sequence;
    0 for its markers, and where nothing changes.
    """
    ids, length = source.ids, source.ids.size(1)
    rows = ids.repeat(len(letters), length, 1)  # (A, T, T)
    rows.diagonal(dim1=1, dim2=2).copy_(letters[:, None].expand(-1, length))
    inside = rows[:, 1:-1].flatten(0, 1)
    if not len(inside):
        return torch.zeros(len(letters), length)
    changed = scores(model, inside, output).view(len(letters), -1) - scores(model, ids, output)
    return F.pad(changed, (1, 1))


@torch.inference_mode()
def scores(model: SupervisedModel, ids: Tensor, output: int) -> Tensor:
    """(B,) an output of rows of ids without padding, on the host."""
    found = []
    for some in ids.split(max(1, BATCH_TOKENS // ids.size(1))):
        answers = model.answers(Inputs(some, torch.ones_like(some)))
        found.append(centred(model.task, answers)[:, output].float().cpu())
    return torch.cat(found)


def copies(source: Inputs, count: int) -> Inputs:
    """One sequence in so many rows."""
    rest = [-1] * (source.ids.dim() - 1)
    return Inputs(source.ids.expand(count, *rest), source.segments.expand(count, -1))


def centred(task: str, answers: Tensor) -> Tensor:
    """Answers as scores to explain: logits of classes less their mean, since what is added to all
    of them alike changes no probability (Shrikumar et al. 2017, section 3.6 of arXiv:1704.02685).
    """
    if task in ("label", "position-label"):
        return answers - answers.mean(-1, keepdim=True)
    return answers


def rollout(weights: Tensor, read: Tensor) -> Tensor:
    """(T,): attention followed from what is `read` (T,) of the last layer down to the tokens.

    `weights` (L, H, T, T) are those of every layer; the heads of one count alike, and half of a
    position comes from itself, by the residual (Abnar & Zuidema 2020, arXiv:2005.00928).
    """
    for layer in weights.mean(1).flip(0):  # (T, T)
        read = 0.5 * read + 0.5 * (read @ layer)
    return read
