"""The page of `regard look` about a translator: one source, what was made of it, and where it
looked for each word.

All of it but the search is teacher forced: the target is given, its own translation or another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding import Beam, Generated, Node, Trace
from regard.decoding.engine import evaluating
from regard.evaluation.translation import CROSS, Agreement
from regard.look.forward_trace import PairTrace
from regard.look.internals import add_inside, beside, named, panel, stacked
from regard.look.language_page import STEPS, add_surprise, beam_tree
from regard.look.page import Facts, Heatmap, Page, Sequences, Surprise, Table, Text
from regard.look.page.component import cell
from regard.models.ibm_model1 import ConditionedIBM1
from regard.pipelines.translator import Translator

RANKED = "log-probability per token"
WIDE = 24  # source tokens from which the alignment has a row of the page for itself


@dataclass(frozen=True, eq=False)
class SourceTarget:
    """Ids without markers: a source, or the tokens of a picture, and a target to look at in place
    of the model's own translation, or a `reference` to show beside it.
    """

    source: Sequence[int] | NDArray[Any]
    target: Sequence[int] | None = None
    reference: Sequence[int] | None = None


@dataclass(frozen=True, eq=False)
class BeamResult:
    """What a beam search found: the best translations, every candidate, and its width."""

    found: list[Generated]
    nodes: list[Node]
    width: int


def translation_page(
    translator: Translator,
    pair: SourceTarget,
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    agreement: Agreement | None = None,
    beams: int = 5,
) -> Page:
    """The page about a translator reading a pair; `agreement` says which head aligns."""
    page = Page(title, " · ".join(f"{label} {cell(value)}" for label, value in facts[:3]))
    if facts:
        page.section("The model")
        page.add(Facts(facts))
    with evaluating(translator.model):
        searched = search(translator, pair.source, beams)
        readings = read(translator, pair, searched)
        (name, reading), *_ = readings.items()
        add_translations(page, translator, readings, searched)
        add_alignment(page, reading, agreement)
        add_surprise(page, reading, name)
        for other, second in list(readings.items())[1:]:
            targets, bits = second.surprise()
            page.add(Surprise(second.names(targets), [(other, bits.tolist())]))
        add_cross(page, reading, agreement)
        add_inside(page, reading)
        add_search(page, reading, searched)
    return page


def search(translator: Translator, source: Sequence[int] | NDArray[Any], width: int) -> BeamResult:
    """The search of `regard translate`, this wide, and what it weighed."""
    trace = Trace()
    beam = Beam(width=width, length_penalty=1.0, n_best=width, trace=trace)
    (found,) = translator.answers([source], beam)
    return BeamResult(found, trace.trees[0], width)


def read(translator: Translator, pair: SourceTarget, searched: BeamResult) -> dict[str, PairTrace]:
    """The targets that are looked at, by what they are; the first most closely."""
    tokenizer, sources = translator.tokenizer, translator.source_tokenizer
    own = searched.found[0] if searched.found else None
    ids: Sequence[int] = own.ids if own else []
    targets: dict[str, tuple[list[int], bool]] = {}
    if pair.target is None:
        ended = own is not None and own.finished
        targets[f"its {translator.makes}"] = (list(ids[:-1] if ended else ids), ended)
    else:
        targets[f"the {translator.makes} given"] = (list(pair.target), True)
    if pair.reference is not None:
        targets["the reference"] = (list(pair.reference), True)
    room, readings = int(translator.model.config.max_len) - 1, {}
    for name, (target, whole) in targets.items():
        readings[name] = PairTrace.of(
            translator.model,
            translator.readable(pair.source),
            tokenizer=tokenizer,
            ids=[tokenizer.start, *target[:room]],
            continues=not whole or len(target) > room,
            constrain=translator.forbidden,
            banned=tokenizer.never_produced(translator.model.vocab_size),
            source_tokenizer=sources,
        )
    return readings


def add_translations(
    page: Page, translator: Translator, readings: dict[str, PairTrace], searched: BeamResult
) -> None:
    """The source and its translations, with what the model holds of each."""
    first = next(iter(readings.values()))
    decode = translator.tokenizer.decode
    source = translator.source_tokenizer.decode(first.source)
    rows: list[list[object]] = [["picture" if translator.sees else "source", source, None]]
    for name, one in readings.items():
        _, bits = one.surprise()
        per_token = float(-bits.mean() * math.log(2)) if len(bits) else None
        rows.append([name, decode(one.ids), per_token])
    page.section(
        translator.makes.capitalize(),
        "Ranked by log-probability per token, so that length alone costs nothing; 0 would be "
        "certainty. The search rules out what is never said, <unk> for one, which can raise its "
        "figures.",
    )
    page.add(Table(["", "", "per token"], rows, align=["left", "left", "right"], highlight=[1]))
    best = [(decode(one.ids) + ("" if one.finished else " …"), one.score) for one in searched.found]
    if len(best) > 1:
        found = f"The {len(best)} best that a beam of {searched.width} found"
        page.add(Sequences(best, title=found, score_name=RANKED))


def add_alignment(page: Page, reading: PairTrace, agreement: Agreement | None) -> None:
    """Where each target word comes from: by the head that aligns, or by the table of model 1."""
    if not reading.targets:
        return
    if isinstance(reading.model, ConditionedIBM1):
        title, note, weights = "P(source word | word)", TABLE, from_table(reading, reading.model)
        columns, unit = ["NULL", *reading.sources], "probability"
    else:
        found = reading.activations(CROSS)
        if not found:
            return
        title, note, weights = by_head(stacked(found, "weights"), agreement)
        columns, unit = reading.sources, "weight"
    rows = reading.names(reading.targets)
    page.section(
        "Alignment",
        f"{note} A row is a token of the translation; outlined is the source word with the most "
        "weight, <E> aside.",
    )
    weights = weights[: len(rows)]
    outlined = marks(reading, weights)
    named_map = {"title": title, "unit": unit, "scale": "weights"}
    shown = [Heatmap(weights, rows, columns, marks=outlined, **named_map)]
    if agreement is not None and np.size(agreement.per_head) > 1:
        shown.append(per_head(agreement))
    for together in [shown] if len(columns) < WIDE else [[one] for one in shown]:
        page.add(*together)


TABLE = (
    "The table says how probable every word of the source makes each word of the translation; with "
    "how far apart they stand, that tells where it probably comes from."
)


def by_head(weights: Tensor, agreement: Agreement | None) -> tuple[str, str, NDArray[Any]]:
    """A title, what is to be said of it, and the weights (T, S) of the one head of weights
    (L, H, T, S) that aligns, or those of the last layer's heads together.
    """
    looked = "Where in the source the model looked to say each token"
    if weights.shape[:2] == (1, 1):
        as_table = agreement and f", on {agreement.per_head[0][0]:.0%} of links as IBM model 1"
        return "Its one head", f"{looked}{as_table or ''}.", weights[0, 0].numpy()
    if agreement is None:
        note = f"{looked}. The run has no data to tell which head aligns: this is the mean over "
        title = "The last layer's heads together"
        return title, note + "the heads of the last layer.", weights[-1].mean(0).numpy()
    layer, head = agreement.best
    name, share = f"layer {layer + 1}, head {head + 1}", agreement.per_head[layer][head]
    note = (
        f"{looked}: of all heads that look at it, {name} agrees most with IBM model 1, an aligner "
        f"of words that knows nothing of networks, on {share:.0%} of {agreement.links:,} links "
        "(Garg et al. 2019)."
    )
    return f"The alignment head: {name}", note, weights[layer, head].numpy()


def from_table(reading: PairTrace, given: ConditionedIBM1) -> NDArray[Any]:
    """(T, 1 + S) the probability that each target came from NULL, and from each source word."""
    ids = torch.tensor([reading.targets])  # (1, T)
    lexicon = given.translator.lexicon
    t = lexicon.probability(given.words[:, None], ids[..., None])  # (1, T, 1 + S)
    joint = (given.weights(given.places(ids)) * t)[0]
    found: NDArray[Any] = (joint / joint.sum(-1, keepdim=True).clamp_min(1e-300)).numpy()
    return found


def marks(reading: PairTrace, weights: NDArray[Any]) -> list[tuple[int, int]]:
    """The source word that each target word of weights (T, S) got most from; a row of zeros and
    `<E>` have none.
    """
    words = weights.shape[1] - 1  # <E> is the last
    rows = [t for t, i in enumerate(reading.targets) if i != reading.tokenizer.end]
    return [
        (t, int(weights[t, :words].argmax())) for t in rows if words and weights[t, :words].any()
    ]


def per_head(agreement: Agreement) -> Heatmap:
    """How often each head agrees with model 1."""
    shares = np.asarray(agreement.per_head)
    return Heatmap(
        shares,
        [f"layer {i + 1}" for i in range(shares.shape[0])],
        [f"head {i + 1}" for i in range(shares.shape[1])],
        title="Agreement of each head with IBM model 1",
        scale="weights",
        unit="share of its links",
        marks=[agreement.best],
    )


def add_cross(page: Page, reading: PairTrace, agreement: Agreement | None) -> None:
    """Every head of every layer that looks at the source, where there are several."""
    rows, columns, title = reading.names(reading.targets), reading.sources, "Looking at the source"
    found = reading.activations(*named("*cross", max(len(rows), len(columns))))
    if not found or not rows or stacked(found, "weights")[:, :, 0, 0].numel() == 1:
        return
    found = {name: x[:, :, : len(rows)] for name, x in found.items()}
    first = agreement.best if agreement else (0, 0)
    aligns = " The alignment head is shown first." if agreement else ""
    page.section(
        title,
        "To say a token, the one that names the row, every head of every layer looks at the source "
        f"that the encoder has read, and mixes what it finds there.{aligns} Few heads align; others"
        f" look at the end, at neighbours or at nothing in particular.{beside(found)}",
    )
    score = reading.model.config.score
    page.add(panel(found, rows, columns, score, title=title, chosen=first))


def add_search(page: Page, reading: PairTrace, searched: BeamResult) -> None:
    """The tree of the beam search, as far as the best translation goes."""
    best = searched.found[0] if searched.found else None
    last = len(best.ids) if best else STEPS
    nodes = [node for node in searched.nodes if node.step <= last]
    left_out = ""
    if last > STEPS:
        nodes = [node for node in nodes if node.kept or node.finished]
        left_out = " Candidates that were dropped at once are left out."
    page.section(
        "Beam search",
        f"The {searched.width} most probable beginnings are extended side by side and the rest is "
        f"dropped.{left_out} It ended when nothing could overtake the best translation; the tree "
        "is drawn to where that ends. Point at a node for the log-probability up to there.",
    )
    page.add(beam_tree(reading, nodes, best) if nodes else Text("The search found nothing."))
