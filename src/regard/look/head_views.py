"""Sections about one input: what each attention head does there, and what the model would predict
after each block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.evaluation.head_scores import HeadScores
from regard.look.internals import (
    ForwardTrace,
    PredictionContext,
    register_evidence,
    register_view,
)
from regard.look.interventions import (
    BLOCK,
    Measure,
    Subject,
    head_effects,
    head_scores,
    logit_lens,
    output_score,
    text_log_probability,
)
from regard.look.page import Component, Heatmap, Page, Table
from regard.look.page.document import cell, visible
from regard.models.decoder import Decoder
from regard.models.supervised import NeuralSupervisedModel

WORK = 2e10  # products of parameters, tokens and heads: about two seconds on two cores
FEWEST_TOKENS = 8  # that are read, however large the model is
MOST_HEADS = 8  # in the table
MOST_POSITIONS = 48  # of the map of the lens
MOST_ROWS = 12  # positions in its table
MOST_CLASSES = 12
SMALL = 0.01  # share of the largest effect from which on a head matters
SCORES = {
    "entropy, bits": "bits",
    "distance": "offset",
    "first token": "first",
    "token before": "previous",
    "same token": "same",
    "what followed it": "induction",
}


@register_view(Decoder)
def add_text_heads(page: Page, trace: ForwardTrace, model: Decoder) -> None:
    """Draw the effect of each head on the bits of the text, and the tokens that are expected after
    each block.
    """
    parts = Parts.of(Subject.of_ids(model, trace.ids[:1]))
    if parts.heads and trace.targets:
        length = affordable_tokens(model, parts.heads)
        ids, targets = trace.ids[:length], trace.targets[:length]
        cut = f", its first {len(ids)} tokens," if len(ids) < len(trace.ids) else ""
        effect = f"the text{cut} costs {{}} bits more", "bits more without it"
        measure = text_log_probability(targets)
        add_heads(page, Subject.of_ids(model, ids), measure, effect, causal=True)
    if parts.blocks and trace.targets:
        add_text_lens(page, trace, model)


@register_evidence(NeuralSupervisedModel)
def add_prediction_heads(
    page: Page, context: PredictionContext, model: NeuralSupervisedModel
) -> None:
    """Draw the effect of each head on the prediction, and what is predicted after each block."""
    if model.output.positional:
        return
    subject = Subject(model, context.source)
    parts, output = Parts.of(subject), context.explained[0]
    if parts.heads and subject.tokens <= 10 * affordable_tokens(model, parts.heads):
        name = visible(context.outputs[output])
        effect = f"{name} falls by {{}}", f"{name}: how much it falls without it"
        if context.predictor.targets.kind.categorical:
            effect = f"the probability of {name} falls by {{}} bits", "bits lost without it"
        add_heads(page, subject, output_score(model, output), effect, causal=False)
    if parts.blocks:
        add_class_lens(page, context, model, subject)


class Parts(dict[str, Tensor]):
    """The activations of a model that tell which parts it has."""

    @classmethod
    def of(cls, subject: Subject) -> Parts:
        """Read the input once."""
        return cls(subject.activations("*.heads", "block.*.output"))

    @property
    def heads(self) -> int:
        """The number of attention heads."""
        return sum(len(x) for name, x in self.items() if name.endswith(".heads"))

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return sum(re.fullmatch(BLOCK, name) is not None for name in self)


def affordable_tokens(model: torch.nn.Module, heads: int) -> int:
    """Return how many tokens can be read without each head in a few seconds."""
    parameters = sum(p.numel() for p in model.parameters())
    return max(FEWEST_TOKENS, int(WORK / parameters / (heads + 1)))


def name_layer(name: str) -> str:
    """Return a readable name of an activation's layer: `block.0.attention` is layer 1."""
    (number,) = re.findall(r"block\.(\d+)", name)
    source = ", source" if name.endswith("cross") else ""
    return f"layer {int(number) + 1}{source}"


def add_heads(
    page: Page, subject: Subject, measure: Measure, effect: tuple[str, str], *, causal: bool
) -> None:
    """Add the section about the effects of all heads; `effect` is a sentence about the largest and
    the unit.
    """
    sentence, unit = effect
    bits = 1 / math.log(2) if "bits" in unit else 1.0
    effects = {name: x * bits for name, x in head_effects(subject, measure).items()}
    scores = head_scores(subject, causal=causal)
    values = torch.cat(list(effects.values()))
    order = torch.argsort(values.abs(), descending=True, stable=True).tolist()
    sites = [(name, head) for name, x in effects.items() for head in range(len(x))]
    name, head = sites[order[0]]
    largest = float(values[order[0]])
    small = int((values.abs() < SMALL * abs(largest)).sum())
    most = f"{name_layer(name)}, head {head + 1}" if len(values) > 1 else "The only head"
    rest = f" {small} of {len(values)} change next to nothing." if small else ""
    page.section(
        "What each head does here",
        f"{most[0].upper()}{most[1:]} matters most: without it, {sentence.format(cell(largest))}."
        f"{rest} Each head is switched off alone; heads that do the same work replace each other.",
    )
    page.add(draw_effects(effects, unit), tabulate_heads(sites, values, scores, order, unit))


def draw_effects(effects: Mapping[str, Tensor], unit: str) -> Heatmap:
    """Draw a row for each layer and a column for each head."""
    most = max(len(x) for x in effects.values())
    table = np.full((len(effects), most), np.nan)
    for row, x in enumerate(effects.values()):
        table[row, : len(x)] = x.numpy()
    rows, columns = [name_layer(n) for n in effects], [f"head {i + 1}" for i in range(most)]
    return Heatmap(table, rows, columns, "Without each head", scale="diverging", unit=unit)


def tabulate_heads(
    sites: Sequence[tuple[str, int]],
    values: Tensor,
    scores: Mapping[str, Sequence[HeadScores]],
    order: Sequence[int],
    unit: str,
) -> Table:
    """List the heads with the largest effects, and where they attend."""
    rows: list[list[object]] = []
    for i in order[:MOST_HEADS]:
        name, head = sites[i]
        row: list[object] = [f"{name_layer(name)}, head {head + 1}", float(values[i])]
        known = scores.get(name, ())
        numbers = [getattr(known[head], key) if known else math.nan for key in SCORES.values()]
        row += [None if math.isnan(number) else round(number, 3) for number in numbers]
        rows.append([*row, known[head].role if known else "reads the source"])
    columns = ["head", unit, *SCORES, "does mostly"]
    part = f"The {len(rows)} heads with the largest effects, and" if len(rows) < len(sites) else ""
    title = f"{part} where heads attend: weights on average".strip()
    align = ["left", *["right"] * (1 + len(SCORES)), "left"]
    return Table(columns, rows, align, title=f"{title[0].upper()}{title[1:]}")


def add_text_lens(page: Page, trace: ForwardTrace, model: Decoder) -> None:
    """Add the section about the tokens that are expected after each block."""
    shown = min(len(trace.targets), MOST_POSITIONS)
    targets = list(trace.targets[:shown])
    names, logits = logit_lens(Subject.of_ids(model, trace.ids[:shown]))
    p = logits.float().softmax(-1)  # (L + 1, T, V)
    best = p.argmax(-1)
    agree = (best == best[-1]).double().mean(1)  # (L + 1,)
    blocks = name_blocks(names)
    first = next(i for i, share in enumerate(agree.tolist()) if share >= 0.5)
    before = f"Already {blocks[first]}" if first < len(blocks) - 1 else "Only after the last block"
    page.section(
        "Logit lens",
        f"{before}, the most probable token is that of the whole model at {agree[first]:.0%} of "
        "the positions. The final norm and the head read what each block leaves, as if the blocks "
        "after it were left out. Early rows are hard to read: nothing trained them to be read.",
    )
    tokens = trace.names(trace.ids[:shown])
    table = p[:, range(shown), targets].numpy()
    part = f", the first {shown} positions" if shown < len(trace.targets) else ""
    title = f"Probability of the token that follows{part}"
    page.add(Heatmap(table.clip(0, 1), blocks, tokens, title, "weights", unit="probability"))
    page.add(tabulate_expected(trace, p, blocks, targets))


def tabulate_expected(
    trace: ForwardTrace, p: Tensor, blocks: Sequence[str], targets: Sequence[int]
) -> Table:
    """List the most probable token after each block, for the last positions."""
    first = max(0, len(targets) - MOST_ROWS)
    rows: list[list[object]] = []
    for t in range(first, len(targets)):
        cells = []
        for values in p[:, t]:
            token = int(values.argmax())
            (name,) = trace.names([token])
            cells.append(f"{visible(name)} {float(values[token]):.2f}")
        read, follows = map(visible, trace.names([trace.ids[t], targets[t]]))
        rows.append([t + 1, read, *cells, follows])
    columns = ["position", "reads", *blocks, "what follows"]
    part = f", the last {len(rows)} positions" if first else ""
    align = ["right", *["left"] * (len(columns) - 1)]
    return Table(columns, rows, align, title=f"The most probable token{part}")


def name_blocks(names: Sequence[str]) -> list[str]:
    """Return what the lens reads: the embedding, then what each block leaves."""
    return ["embedding" if n == "embedding" else f"after block {int(n[6:-7]) + 1}" for n in names]


def add_class_lens(
    page: Page, context: PredictionContext, model: NeuralSupervisedModel, subject: Subject
) -> None:
    """Add the section about what is predicted after each block."""
    names, scores = logit_lens(subject)
    blocks = name_blocks(names)
    table = model.output.probabilities(scores.double()).numpy()  # (L + 1, O)
    order = np.argsort(-table[-1], kind="stable")[:MOST_CLASSES]
    page.section(
        "Logit lens",
        f"{describe_settling(table, blocks, context)} The norm, the pooling and the head read what "
        "each block leaves, as if the blocks after it were left out.",
    )
    page.add(draw_outputs(table[:, order], blocks, [context.outputs[i] for i in order], context))


def describe_settling(
    table: NDArray[np.float64], blocks: Sequence[str], context: PredictionContext
) -> str:
    """Return from which block on the prediction stays, where there are classes."""
    if not context.predictor.targets.kind.single:
        return ""
    best = table.argmax(1)
    settled = int(np.flatnonzero(best != best[-1])[-1]) + 1 if (best != best[-1]).any() else 0
    name = visible(context.outputs[int(best[-1])])
    if settled == 0:
        return f"The embedding alone is enough: {name} is predicted from the start on."
    return f"{name} is the prediction only {blocks[settled]}."


def draw_outputs(
    table: NDArray[np.float64],
    blocks: Sequence[str],
    names: Sequence[str],
    context: PredictionContext,
) -> Component:
    """Draw probabilities as a map, and list values."""
    if not context.predictor.targets.kind.categorical:
        rows = [[block, *row] for block, row in zip(blocks, table.tolist(), strict=True)]
        return Table(["", *names], rows, title="The prediction after each block")
    title = "The prediction after each block"
    return Heatmap(table.clip(0, 1), blocks, names, title, "weights", unit="probability")
