"""What a model of point clouds makes of one: what its answer rests on, token by token, and where
every head looks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.point_clouds import SYMBOLS
from regard.layers.embeddings import Inputs
from regard.look.attribution import centred, of_outputs, rollout
from regard.look.internals import stacked
from regard.look.page import Page, Space
from regard.models.point_transformer import PointTransformer
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel
from regard.tokenizers import Points

BATCH = 64  # clouds read at once
MOST_WEIGHTS = 1 << 22  # attention weights on one page


def scene(answering: Any) -> dict[str, Any]:
    """What every view of the one cloud shows: its points, which token each is of, what it is."""
    tokenizer: Points = answering.predictor.tokenizer
    record = np.asarray(answering.shard.record(0))
    cloud = tokenizer.cloud(record)
    centres = record[1:, : tokenizer.dimensions]
    owners = np.arange(len(centres))
    if tokenizer.samples:
        gaps = np.square(cloud.points[:, None] - centres[None]).sum(-1)  # (P, N)
        owners = gaps.argmin(1)
    flat = np.zeros((len(cloud), 3))
    flat[:, : tokenizer.dimensions] = cloud.points[:, :3]
    kinds = [SYMBOLS[z - 1] if z else "?" for z in cloud.atoms.tolist()]
    return {"points": flat, "owners": owners.tolist(), "kinds": kinds}


@torch.inference_mode()
def left_out(model: SupervisedModel, source: Inputs, output: int) -> Tensor:
    """(N,): how much less an output is with each token left out."""
    count = source.ids.size(1) - 1
    segments = source.segments.repeat(count + 1, 1)  # the last is left as it is
    each = torch.arange(count)
    segments[each, each + 1] = 0
    found = []
    for some in segments.split(BATCH):
        rows = Inputs(source.ids.expand(len(some), -1, -1), some)
        found.append(centred(model.task, model.answers(rows))[:, output].float().cpu())
    scores = torch.cat(found)
    return scores[-1] - scores[:-1]


def add_points(page: Page, answering: Any, names: list[str]) -> None:
    """How probable each class is at every point."""
    likely: NDArray[np.float64] = answering.likely[1:]  # (N, O)
    page.section(
        "Answer",
        "How probable the model holds each class at every point; choose a class among the small "
        "views, and drag the large one to turn it.",
    )
    page.add(
        Space(
            **scene(answering),
            maps=likely.T[:, None],
            names=names,
            title="Classes of points",
            unit="probability",
            across=min(8, len(names)),
        )
    )


def add_reasons(
    page: Page, answering: Any, model: NeuralSupervisedModel, chosen: list[int], names: list[str]
) -> None:
    """What in the cloud the answer rests on."""
    source, seen = answering.source, scene(answering)
    page.section(
        "What the answer rests on",
        "Left out: how much the score of the answer loses without a token; that asks the model "
        "itself. Gradient × input: what each token adds by the slope of the score, a hint and no "
        "proof. What speaks for the answer is above zero. Rollout follows the attention of all "
        "layers from the answer down to the tokens. Points have the colour of the nearest centre.",
    )
    maps = [(f"left out, for {names[chosen[0]]}", left_out(model, source, chosen[0]))]
    neural = isinstance(model, PointTransformer)
    if neural:
        found = of_outputs(model, source, chosen).cpu()[:, 1:]
        maps += [
            (f"gradient × input, for {names[k]}", row) for k, row in zip(chosen, found, strict=True)
        ]
    unit = "" if model.task == "value" else "logits"
    for name, values in maps:
        shown = values.double().numpy()[None, None]
        page.add(Space(**seen, maps=shown, names=[name], title=name, unit=unit, scale="diverging"))
    if neural:
        taps = answering.activations("*.attention.weights", "pooling.weights")
        pooled = taps.pop("pooling.weights")[0]
        pooled = pooled / pooled.sum().clamp_min(1e-12)  # of sums too, shares
        followed = rollout(stacked(taps, "weights"), pooled).double().numpy()
        page.add(
            Space(
                **seen,
                maps=followed[None, None, 1:],
                names=["rollout"],
                title="Where it is read from: attention rollout",
                unit="share of all",
                aside=followed[None, :1],
            )
        )


def add_attention(page: Page, answering: Any) -> None:
    """Every head of every layer over the cloud."""
    found = answering.activations("*.attention.weights")
    if not found:
        return
    weights = stacked(found, "weights")  # (L, H, T, T)
    layers, heads = weights.shape[:2]
    shown = weights.flatten(0, 1).double().numpy()
    if shown.size > MOST_WEIGHTS:  # of very many tokens, what every layer's mean sees
        shown, heads = weights.mean(1).double().numpy(), 1
    if shown.size > MOST_WEIGHTS:
        return
    page.section(
        "Attention",
        "Every token, and <S>, looks at all of them. The small views are the heads, a row for each "
        "layer; choose one to see it large, drag to turn it, and click a point to see where it "
        "looks. Weights of a row sum to 1, with what goes to <S>. Where a head looks says what was "
        "read, not what was made of it.",
    )
    page.add(
        Space(
            **scene(answering),
            maps=shown[:, :, 1:],
            names=[f"layer {i + 1}, head {j + 1}" for i in range(layers) for j in range(heads)],
            title=f"Attention of {layers} layers",
            across=heads,
            aside=shown[:, :, 0],
        )
    )
