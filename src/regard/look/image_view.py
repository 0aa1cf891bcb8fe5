"""What a model of pictures makes of one: what its answer rests on, patch by patch, where every head
looks, and how alike its positions are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.layers.embeddings import PLACE, Inputs
from regard.layers.positions import LearnedGrid, RotaryGrid, SinusoidalGrid
from regard.look.attribution import centred, of_outputs, rollout
from regard.look.internals import stacked
from regard.look.page import Page, Picture
from regard.models.supervised import NeuralSupervisedModel, SupervisedModel
from regard.models.vision import VisionTransformer
from regard.tokenizers import Patches

BATCH = 64  # pictures read at once
MOST_WEIGHTS = 1 << 22  # attention weights on one page


def pixels_of(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture as pages show it: grey, or of three colours."""
    if image.shape[2] in (1, 3):
        return image
    return np.repeat(image.mean(2, keepdims=True).astype(np.uint8), 1, axis=2)


def grid_of(source: Inputs) -> tuple[int, int]:
    """Rows and columns of the one picture."""
    rows, columns = source.ids[0, :, :PLACE].amax(0).tolist()
    return int(rows), int(columns)


def covered_sources(source: Inputs, tokenizer: Patches) -> Iterator[Inputs]:
    """The one picture with each of its patches covered by the mean of its channels, and, at the
    last, as it is; some at a time.
    """
    count = source.ids.size(1) - 1
    grey = torch.tensor(tokenizer.mean).repeat_interleave(tokenizer.patch**2) * 255
    rows = source.ids.float().repeat(count + 1, 1, 1)
    each = torch.arange(count)
    rows[each, each + 1, PLACE:] = grey.to(rows.device)
    for some in rows.split(BATCH):
        there = torch.ones(some.shape[:2], dtype=torch.long, device=some.device)
        yield Inputs(some, there)


@torch.inference_mode()
def covered(model: SupervisedModel, source: Inputs, output: int, tokenizer: Patches) -> Tensor:
    """(N,): how much less an output is with each patch covered by the mean of its channels."""
    found = []
    for some in covered_sources(source, tokenizer):
        answers = model.answers(some)
        found.append(centred(model.task, answers)[:, output].float().cpu())
    scores = torch.cat(found)
    return scores[-1] - scores[:-1]


def add_reasons(
    page: Page, answering: Any, model: NeuralSupervisedModel, chosen: list[int], names: list[str]
) -> None:
    """What in the picture the answer rests on."""
    source, tokenizer = answering.source, answering.predictor.tokenizer
    image, grid = pixels_of(answering.picture), grid_of(source)
    page.section(
        "What the answer rests on",
        "Covered: how much the score of the answer loses when a patch is painted over with the "
        "mean colour; that asks the model itself. Gradient × input: what each patch adds by the "
        "slope of the score, a hint and no proof. What speaks for the answer is above zero. "
        "Rollout follows the attention of all layers from the answer down to the patches.",
    )
    first = names[chosen[0]]
    maps = [("covered, for " + first, covered(model, source, chosen[0], tokenizer))]
    vision = isinstance(model, VisionTransformer)
    if vision:
        found = of_outputs(model, source, chosen).cpu()[:, 1:]
        maps += [
            (f"gradient × input, for {names[k]}", row) for k, row in zip(chosen, found, strict=True)
        ]
    page.add(
        *(
            Picture(
                image,
                grid,
                values.double().numpy()[None, None],
                [name],
                title=name,
                unit="" if model.task == "value" else "logits",
                scale="diverging",
            )
            for name, values in maps
        )
    )
    if vision:
        taps = answering.activations("*.attention.weights", "pooling.weights")
        pooled = taps.pop("pooling.weights")[0]
        followed = rollout(stacked(taps, "weights"), pooled).double().numpy()
        page.add(
            Picture(
                image,
                grid,
                followed[None, None, 1:],
                ["rollout"],
                title="Where it is read from: attention rollout",
                unit="share of all",
                aside=followed[None, :1],
            )
        )


def add_attention(page: Page, answering: Any) -> None:
    """Every head of every layer over the picture."""
    found = answering.activations("*.attention.weights")
    if found:
        picture, grid = pixels_of(answering.picture), grid_of(answering.source)
        heads_over(page, picture, grid, stacked(found, "weights"))


def heads_over(
    page: Page, picture: NDArray[np.uint8], grid: tuple[int, int], weights: Tensor
) -> None:
    """The section about weights (L, H, T, T) of all heads, `<S>` the first of what they see."""
    layers, heads = weights.shape[:2]
    shown = weights.flatten(0, 1).double().numpy()
    if shown.size > MOST_WEIGHTS:  # of very many patches, what `<S>` and every layer's mean see
        shown, heads = weights.mean(1).double().numpy(), 1
    if shown.size > MOST_WEIGHTS:
        return
    page.section(
        "Attention",
        "Every patch, and <S>, looks at all of them. The small maps are the heads, a row for each "
        "layer; choose one to see it large, and click a patch to see where it looks. Weights of a "
        "row sum to 1, with what goes to <S>. Where a head looks says what was read, not what was "
        "made of it.",
    )
    names = [f"layer {i + 1}, head {j + 1}" for i in range(layers) for j in range(heads)]
    page.add(
        Picture(
            picture,
            grid,
            shown[:, :, 1:],
            names,
            title=f"Attention of {layers} layers",
            across=heads,
            aside=shown[:, :, 0],
        )
    )


@torch.inference_mode()
def similarity(model: VisionTransformer) -> Tensor | None:
    """(N, N): how alike the codes of the places of the grid are, 1 for the same; None where the
    positions have none.
    """
    scheme = model.encoder.positions
    rows, columns = model.config.grid
    axes = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    where = torch.stack(axes, -1).flatten(0, 1)[None].float()  # (1, N, 2)
    if isinstance(scheme, LearnedGrid):
        codes = scheme.embedding.weight[1:].float().cpu()
    elif isinstance(scheme, SinusoidalGrid):
        codes = scheme.add(torch.zeros(1, rows * columns, model.config.d_model), where)[0]
    elif isinstance(scheme, RotaryGrid):
        rates = scheme.rates.float().cpu()
        gaps = where[0][:, None] - where[0][None]  # (N, N, 2)
        alike: Tensor = (gaps[..., None] * rates).cos().flatten(2).mean(-1)
        return alike
    else:
        return None
    codes = codes / codes.norm(dim=1, keepdim=True).clamp_min(1e-12)
    cosines: Tensor = codes @ codes.T
    return cosines


def add_positions(page: Page, model: VisionTransformer) -> None:
    """How alike positions are."""
    found = similarity(model)
    if found is None or found.numel() > MOST_WEIGHTS:
        return
    page.section(
        "Positions",
        "How alike the codes of two places are: the cosine of the angle between them; of rotary "
        "positions, the mean cosine of what they turn by. Click a place to see which it resembles. "
        "Nobody told the model what a row or a column is: learned positions show whether it found "
        "out.",
    )
    rows, columns = model.config.grid
    blank = np.full((rows, columns, 1), 255, np.uint8)
    page.add(
        Picture(
            blank,
            (rows, columns),
            found.double().numpy()[None],
            ["similarity"],
            title=f"Similarity of positions ({model.config.positions})",
            unit="cosine",
            scale="diverging",
            verb="resembles",
        )
    )
