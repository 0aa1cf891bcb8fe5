"""Which tokens the attention of a classifier selects, on a user's run.

In the theory (`svm`) attention comes to select one token of each sequence, and a locally optimal
one: one whose own score v · x is higher than that of its neighbours. Here x are the last vectors of
a record, v is the head of the predicted class less the mean of the others, and the attention is
that of the pooling or, where it has none of its own, attention followed through all layers (the
rollout of Abnar & Zuidema 2020, arXiv:2005.00928).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import regard
from regard.data.batching import LabelledExamples
from regard.errors import UserError
from regard.lab.experiment import Claim, Mean
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look.attribution import rollout
from regard.look.internals import stack_layers
from regard.look.page import Contributions, Table
from regard.models.supervised import NeuralSupervisedModel

MAX_RECORDS = 200  # measured
N_DRAWN = 8  # records whose tokens are drawn
CHANCE = 0.5  # mean rank of a token chosen at random
SELECTING = ("attention", "max")  # poolings whose weights depend on the record


@dataclass(frozen=True, eq=False)
class Selection:
    """A record: its tokens, the attention (T,) to each and the own score (T,) of each."""

    tokens: Sequence[str]
    weights: NDArray[np.float64]
    scores: NDArray[np.float64]

    @property
    def chosen(self) -> int:
        return int(self.weights.argmax())

    @property
    def rank(self) -> float:
        """The share of the other tokens whose score is lower than that of the chosen one, ties
        counting half.
        """
        others = np.delete(self.scores, self.chosen)
        own = self.scores[self.chosen]
        return float((np.sum(others < own) + np.sum(others == own) / 2) / max(1, len(others)))


def select_tokens(path: Path) -> list[Selection]:
    """Return what a run's classifier selects in held-out records."""
    predictor = regard.load(path)
    model, tokenizer = predictor.model, predictor.tokenizer
    if not isinstance(model, NeuralSupervisedModel) or not hasattr(model, "pool"):
        raise UserError(
            f"{path} holds a {type(model).__name__}: token selection is that of a classifier with "
            "attention (--model transformer)"
        )
    shard = predictor.held_out()[1]
    views = shard.views
    found = []
    for number in range(min(MAX_RECORDS, shard.records // views)):
        one = shard.take(np.arange(number * views, (number + 1) * views))
        examples = LabelledExamples(one, tokenizer, int(model.config.max_len), first=True)
        (batch,) = examples.batches(1)
        assert batch.segments is not None
        found.append(select(model, Inputs(batch.ids, batch.segments), tokenizer))
    if any(selection is None for selection in found):
        raise UserError(f"{path}: the vectors of its tokens are averaged with equal weights")
    return [selection for selection in found if selection is not None and len(selection.tokens) > 1]


@torch.no_grad()
def select(model: Any, source: Inputs, tokenizer: Any) -> Selection | None:
    """Return the attention to the tokens of one record, and their own scores; None without any."""
    tap = Tap(["*.attention.weights", "pooling.weights"])
    logits = model.predict(source, tap=tap)[0]  # (O,)
    activations = {name: value.float() for name, value in tap.activations.items()}
    pooled = activations.pop("pooling.weights")[0]  # (T,)
    if model.config.pooling in SELECTING:
        weights = pooled
    elif activations and len(activations) == model.config.n_layers:
        weights = torch.as_tensor(np.asarray(rollout(stack_layers(activations), pooled)))
    else:
        return None
    x = model.vectors(source)[0]  # (T, D)
    ids = source.ids[0]
    names = (
        [tokenizer.text(int(i)) for i in ids] if ids.dim() == 1 else list(map(str, range(len(ids))))
    )
    return Selection(names, weights.double().numpy(), own_scores(model.head.weight, x, logits))


def own_scores(head: Tensor, x: Tensor, logits: Tensor) -> NDArray[np.float64]:
    """Return v · x of each token: the score of the predicted class less the mean of the others; of
    a single output, in the direction of the prediction.
    """
    best = int(logits.argmax())
    if len(logits) == 1:
        v = head[0] * torch.sign(logits[0])
    else:
        others = torch.cat([head[:best], head[best + 1 :]])
        v = head[best] - others.mean(0)
    return np.asarray((x @ v).double().numpy())


def selection_claims(found: Sequence[Selection]) -> list[Claim]:
    """The tokens that attention chooses have higher scores than others."""
    if not found:
        return []
    return [
        Claim.within(
            "your classifier attends to tokens of high score",
            f"mean rank of the most attended token by its own score above {CHANCE} (1: the best)",
            Mean.of([selection.rank for selection in found]),
            least=CHANCE,
        )
    ]


def selection_parts(found: Sequence[Selection]) -> list[Table | Contributions]:
    """Return the selected tokens as a table, and the attention drawn over some records."""
    rows: list[list[object]] = []
    drawn: list[Table | Contributions] = []
    for number, selection in enumerate(found[:N_DRAWN], start=1):
        i = selection.chosen
        rows.append([number, selection.tokens[i], i, float(selection.weights[i]), selection.rank])
        drawn.append(
            Contributions(
                selection.tokens,
                [("attention", selection.weights.tolist())],
                title=f"Record {number}: the tokens it attends to",
                unit="share",
            )
        )
    columns = ["record", "selected token", "position", "its weight", "rank of its score"]
    align = ["right", "left", "right", "right", "right"]
    table = Table(columns, rows, align, title="Tokens that your classifier selects")
    return [table, *drawn]
