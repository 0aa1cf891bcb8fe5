"""What is inside a language model as it reads: attention, a recurrent state, and, in files of their
own, tables of counts, hidden states and what a translator looks at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.layers.hyena import Hyena
from regard.look.counting_views import add_discounts, add_priors, add_states, add_transitions
from regard.look.forward_trace import ForwardTrace, PairTrace
from regard.look.page import AttentionMaps, Heatmap, Lines, MaskMap, Page
from regard.models.counts import Bigram
from regard.models.decoder import Decoder
from regard.models.dirichlet_ngram import DirichletNGram
from regard.models.encoder_decoder import ConditionedDecoder
from regard.models.hidden_markov import HiddenMarkov
from regard.models.kneser_ney import KneserNey

MOST_WEIGHTS = 1 << 23  # attention weights on one page: 8 MB at one byte each
SCORES = {"scaled_dot": "q · k / √d", "dot": "q · k"}  # as they are written; others are "score"
MOST_SCORED = 24  # tokens up to which the scores stand beside the weights
MOST_MASKED = 16  # positions of the mask that are drawn
MOST_DISTANCES = 64  # of filters that are drawn
MOST_UNITS = 64  # of a recurrent state


def add_inside(page: Page, reading: ForwardTrace) -> None:
    """Add the sections about this model's own way of working; a family without any adds none."""
    for kind, add in PANELS:
        if isinstance(reading.model, kind):
            add(page, reading, reading.model)
            return
    found = reading.activations("recurrent.output")
    if "recurrent.output" in found:
        add_recurrence(page, reading, found["recurrent.output"][0])


def add_attention(
    page: Page, reading: ForwardTrace, model: Decoder, title: str = "Attention"
) -> None:
    """Every head of every layer, and who may look at whom."""
    add_filters(page, reading, model)
    looking = sum(kind != "hyena" for kind in model.config.kinds)
    if not looking:
        return
    heads = looking * model.config.n_heads
    first = min(len(reading.ids), max(2, math.isqrt(MOST_WEIGHTS // heads)))
    tokens = reading.tokens[:first]
    found = reading.activations(*named("block.*.attention", first), first=first)
    cut = ""
    if first < len(reading.ids):
        cut = (
            f" Only the first {first:,} of {len(reading.ids):,} tokens are drawn, to keep the page "
            "small; later tokens change nothing about them."
        )
    page.section(
        title,
        "Reading a token, each head looks back at the tokens before it and mixes what it finds "
        "there; a row shows how it shares its attention out, and sums to 1. Choose a small map "
        f"to see that head large, as a map or as arcs.{beside(found)}{cut}",
    )
    page.add(panel(found, tokens, tokens, model.config.score, title=title))
    add_reach(page, model, found, tokens)


def add_filters(page: Page, reading: ForwardTrace, model: Decoder) -> None:
    """How far back the long filters of Hyena layers reach, where there are any."""
    layers = [(i, block.mixer) for i, block in enumerate(model.blocks)]
    found = [(i, mixer) for i, mixer in layers if isinstance(mixer, Hyena)]
    if not found:
        return
    length = max(2, min(len(reading.ids), MOST_DISTANCES))
    with torch.no_grad():
        sizes = [mixer.filters(length).square().mean(0).sqrt() for _, mixer in found]  # (T,) each
    page.section(
        "Long filters",
        "A Hyena layer does not look: it takes what stood so many tokens back times a number that "
        "depends on the distance alone, and gates, which the tokens set, let it through or not. "
        "The map shows how large these numbers are, over all channels of a layer; distance 0 is "
        "the token itself.",
    )
    page.add(
        Heatmap(
            torch.stack(sizes).numpy(),
            [f"layer {i + 1}" for i, _ in found],
            [str(n) for n in range(length)],
            title="How much comes through from each distance",
            unit="root mean square of the filters",
        )
    )


def named(part: str, size: int) -> list[str]:
    """The activations of attention to ask for: weights and, of few tokens, their scores."""
    return [f"{part}.{kind}" for kind in ("weights", "scores")[: 1 + (size <= MOST_SCORED)]]


def stacked(found: Mapping[str, Tensor], kind: str) -> Tensor:
    """(L, H, T, S) the weights or scores of all layers that have some, of the first row of a
    batch.
    """
    return torch.stack([x[0] for name, x in found.items() if name.endswith(f".{kind}")])


def layers_of(found: Mapping[str, Tensor]) -> list[str]:
    """The names of the layers that weights are of, numbered from 1."""
    numbers = (re.search(r"block[.](\d+)[.]", name) for name in found if name.endswith(".weights"))
    return [f"layer {int(number[1]) + 1}" for number in numbers if number is not None]


def beside(found: Mapping[str, Tensor]) -> str:
    """What is said of the scores, where they are drawn."""
    if not any(name.endswith(".scores") for name in found):
        return ""
    return (
        " The first map is what comes before: how well the query of the row fits the key of the "
        "column, hatched where it may not look; the softmax of each row makes weights of it."
    )


def panel(
    found: Mapping[str, Tensor],
    tokens: Sequence[str],
    sources: Sequence[str],
    score: str,
    *,
    title: str,
    chosen: tuple[int, int] = (0, 0),
) -> AttentionMaps:
    """The heads of these activations, the first rows of them if they are too many to draw."""
    weights = stacked(found, "weights")
    rows = max(1, min(len(tokens), MOST_WEIGHTS // (weights[:, :, 0].numel())))
    scores = None
    if beside(found):
        scores = stacked(found, "scores")[:, :, :rows].numpy()
    part = f", the first {rows:,} of {len(tokens):,} rows" if rows < len(tokens) else ""
    return AttentionMaps(
        weights[:, :, :rows].numpy(),
        tokens[:rows],
        sources,
        layers_of(found),
        scores=scores,
        score_name=SCORES.get(score, "score"),
        title=title + part,
        chosen=chosen,
    )


def add_both(page: Page, reading: PairTrace, model: ConditionedDecoder) -> None:
    """The attention of decoder and encoder, each to its own sequence."""
    add_attention(page, reading, model.decoder, "Attention within the translation")
    sources, title = reading.sources, "Attention within the source"
    found = reading.activations(*named("encoder.block.*.attention", len(sources)))
    if not found:
        return
    page.section(
        title,
        "The encoder reads the whole source at once: every token looks at all of them, those after "
        "it too.",
    )
    page.add(panel(found, sources, sources, model.config.score, title=title))


def add_reach(page: Page, model: Decoder, found: Mapping[str, Tensor], tokens: list[str]) -> None:
    """Where the heads may look, and how far back they do."""
    window, weights = model.config.window, stacked(found, "weights")
    shown = min(len(tokens), max(MOST_MASKED, window + MOST_MASKED // 2))
    seen = model.mask("window" if window else "attention")
    assert seen is not None
    allowed = seen.tensor(1, shown, shown, torch.device("cpu"))[0, 0]  # (T, S)
    only = "" if set(model.config.kinds) == {"window"} else ", in layers with a window,"
    back = f" and{only} at most {window - 1:,} positions back" if window else ""
    page.section(
        "Mask and reach",
        f"A token may look at itself and at what came before{back}, never ahead: otherwise the "
        "model could read the answer that it is to predict. Within that, some heads stay close by "
        "and others look far back.",
    )
    part = f", the first {shown} tokens" if shown < len(tokens) else ""
    layers = layers_of(found)
    heads = [f"head {i + 1}" for i in range(weights.size(1))]
    page.add(
        MaskMap(allowed.numpy(), tokens[:shown], title=f"Who may look at whom{part}"),
        Heatmap(
            distances(weights).numpy(),
            layers,
            heads,
            title="How far back each head looks on average",
            unit="tokens",
        ),
    )


def distances(weights: Tensor) -> Tensor:
    """(L, H) mean distance from a query to what it looks at, of causal weights (L, H, T, S)."""
    at = torch.arange(weights.size(-1))
    back = (at[:, None] - at).clamp_min(0)  # (T, S)
    return (weights * back).sum(dim=-1).mean(dim=-1)


def add_recurrence(page: Page, reading: ForwardTrace, states: Tensor) -> None:
    """The hidden state (T, D) of the last layer while it reads, and how far each token moved it."""
    length, width = states.shape
    units = min(width, MOST_UNITS)
    names = [f"unit {i + 1}" for i in range(units)]
    values = states[:, :units].numpy()
    short = length <= units
    page.section(
        "Hidden state",
        "A recurrent network keeps all it remembers in one vector, which every token changes. "
        f"{'Each row' if short else 'Each column'} is that vector after a token"
        f"{f', its first {units} of {width:,} units' if units < width else ''}; units that hold "
        "their colour remember, units that flicker follow the text.",
    )
    title = "output of the last layer"
    if short:
        page.add(Heatmap(values, reading.tokens, names, title=title, scale="diverging"))
    else:
        page.add(Heatmap(values.T, names, reading.tokens, title=title, scale="diverging"))
    before = torch.cat([torch.zeros(1, width), states[:-1]])  # the state starts at zero
    change = (states - before).norm(dim=1).numpy()
    at = list(range(1, length + 1))
    page.add(
        Lines(
            [("change", at, change.tolist())],
            x_label="token read",
            y_label="length of the change",
            title="How far each token moved the state",
        )
    )


PANELS: tuple[tuple[type, Callable[[Page, Any, Any], None]], ...] = (
    (Bigram, add_transitions),
    (DirichletNGram, add_priors),
    (KneserNey, add_discounts),
    (HiddenMarkov, add_states),
    (Decoder, add_attention),
    (ConditionedDecoder, add_both),
)
