"""Sections about one input: what each attention head does there, and what the model would predict
after each block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

WORK = 6e10  # products of parameters, tokens and heads: about two seconds
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
        words = EffectWords(
            f"the text{cut} costs", "bits", " bits more", " bits less", 1 / math.log(2)
        )
        subject = Subject.of_ids(model, ids)
        effects = head_effects(subject, text_log_probability(targets))
        add_heads(page, effects, head_scores(subject, causal=True), words)
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
        words = EffectWords(f"{name} is", "", " lower", " higher")
        if context.predictor.targets.kind.categorical:
            start = f"the log-probability of {name} is"
            words = EffectWords(start, "bits", " bits lower", " bits higher", 1 / math.log(2))
        scores = head_scores(subject, causal=False, words=context.tokenizer.reads_text)
        add_heads(page, head_effects(subject, output_score(model, output)), scores, words)
    if parts.blocks:
        add_class_lens(page, context, model, subject)


@dataclass(frozen=True)
class EffectWords:
    """How an effect is told: what changes, in which unit, which way, and a factor to the unit."""

    start: str
    unit: str
    lost: str
    gained: str
    factor: float = 1.0

    def tell(self, effect: float) -> str:
        """Return the effect of a head as the end of a sentence."""
        size = cell(float(f"{abs(effect):.3g}"))
        return f"{self.start} {size}{self.lost if effect >= 0 else self.gained}"

    @property
    def column(self) -> str:
        """The heading of effects."""
        return f"{self.unit} lost without it".strip()


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
    page: Page,
    effects: Mapping[str, Tensor],
    scores: Mapping[str, Sequence[HeadScores]],
    words: EffectWords,
) -> None:
    """Add the section about the effects of all heads, and where they attend."""
    effects = {name: x * words.factor for name, x in effects.items()}
    values = torch.cat(list(effects.values()))
    order = torch.argsort(values.abs(), descending=True, stable=True).tolist()
    sites = [(name, head) for name, x in effects.items() for head in range(len(x))]
    name, head = sites[order[0]]
    largest = float(values[order[0]])
    small = int((values.abs() < SMALL * abs(largest)).sum())
    first = f"{name_layer(name).capitalize()}, head {head + 1}, matters most"
    rest = f" {small} of {len(values)} heads make next to no difference." if small else ""
    page.section(
        "What each head does here",
        f"{first}: without it, {words.tell(largest)}.{rest} Each head is switched off alone; heads "
        "that do the same work replace each other.",
    )
    page.add(draw_effects(effects, words.column))
    page.add(tabulate_heads([sites[i] for i in order], values[order], scores, words.column))


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
    unit: str,
) -> Table:
    """List the heads with the largest effects, and where they attend."""
    rows: list[list[object]] = []
    for (name, head), value in zip(sites[:MOST_HEADS], values.tolist(), strict=False):
        known = scores[name][head] if name in scores else HeadScores(math.nan, math.nan)
        numbers = [value, *(getattr(known, key) for key in SCORES.values())]
        shown = [None if math.isnan(x) else float(f"{x:.3g}") for x in numbers]
        role = None if math.isnan(known.previous) else known.role
        rows.append([f"{name_layer(name)}, head {head + 1}", role, *shown])
    columns = ["head", "does mostly", unit, *SCORES]
    filled = [i for i in range(len(columns)) if any(row[i] is not None for row in rows)]
    part = f", the {len(rows)} with the largest effects" if len(rows) < len(sites) else ""
    return Table(
        [columns[i] for i in filled],
        [[row[i] for i in filled] for row in rows],
        ["left" if i < 2 else "right" for i in filled],
        title=f"Where heads attend, and mean weights{part}",
    )


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
        return f"The prediction is {name} already for the embedding alone."
    return f"{blocks[settled].capitalize()} the prediction is {name}, and stays so."


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
