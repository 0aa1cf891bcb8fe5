"""The pages of `regard look` about a language model reading one text: surprise, the next token,
beam search and samples; and about a masked language model.

A masked page shows what the model predicts at every position if that alone is masked, how
surprising the token there is, and the attention of its heads. The sum of these surprises is the
pseudo-log-likelihood of Salazar et al. 2020 (arXiv:1910.14659).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decoding import Beam, Generated, Node, Trace
from regard.decoding.engine import device_of, evaluating
from regard.evaluation.masked_tokens import MASK, predict_masked
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.look.internals import (
    ForwardTrace,
    PairTrace,
    add_encoder_attention,
    add_inside,
    attention_names,
)
from regard.look.page import (
    BeamTree,
    Component,
    Distribution,
    Facts,
    Heatmap,
    Page,
    Reading,
    Sequences,
    Surprise,
    Table,
    Text,
)
from regard.look.page.document import cell, visible
from regard.models.encoder import MaskedLM
from regard.models.language_model import Constrain, LanguageModel
from regard.pipelines.translator import Translator
from regard.tokenizers import Tokenizer

STEPS = 9  # of the beam search that is drawn: as many as a page is wide
SAMPLES, LONGEST = 10, 120  # continuations, and the most tokens of one
MOST_EXPECTED = 8  # alternatives listed at a position
QUOTED = 24  # characters of a text that are quoted in a sentence


def quote(trace: ForwardTrace, ids: Sequence[int]) -> str:
    """Return the end of a text in quotation marks, or the name of its only token."""
    content = [i for i in ids if i != trace.tokenizer.start]
    if not content:
        return trace.tokenizer.text(ids[0])
    text = visible(trace.tokenizer.decode(content))
    return f"“{text}”" if len(text) <= QUOTED else f"“…{text[-QUOTED:]}”"


def read_text(trace: ForwardTrace, title: str = "") -> Reading | None:
    """Return the text with the bits of each token and what was expected there; None where nothing
    is scored.
    """
    targets, bits = trace.surprise()
    if np.isnan(bits).all():
        return None
    expected, ranks = trace.expected(MOST_EXPECTED)
    return Reading(
        tokens=trace.names(targets),
        bits=bits.tolist(),
        expected=expected,
        ranks=ranks,
        size=trace.model.vocab_size,
        title=title,
    )


def bits_per_symbol(trace: ForwardTrace) -> float:
    """Return the mean surprise of the symbols of a text, NaN where none is scored."""
    targets, bits = trace.surprise()
    scored = ~np.isnan(bits)
    symbols = int(trace.tokenizer.symbols[np.asarray(targets, np.int64)[scored]].sum())
    return float(bits[scored].sum()) / max(1, symbols) if scored.any() else math.nan


def add_surprise(page: Page, trace: ForwardTrace, title: str = "") -> None:
    """Add the bits of each token with what was expected in its place, and those of the text."""
    reading = read_text(trace, title)
    if reading is None:
        return
    targets, bits = trace.surprise()
    scored = ~np.isnan(bits)
    symbols = int(trace.tokenizer.symbols[np.asarray(targets)[scored]].sum())
    tokens, total = int(scored.sum()), float(bits[scored].sum())
    facts: list[tuple[str, object]] = [
        ("bits per symbol", total / max(1, symbols)),
        ("bits in total", total),
        ("symbols predicted", symbols),
    ]
    if tokens != symbols:
        facts += [("tokens predicted", tokens), ("bits per token", total / tokens)]
    impossible = int(np.isinf(bits).sum())
    if impossible:
        facts.append(("of probability 0", impossible))
    worst = int(np.nanargmax(bits))
    facts.append(("most surprising", visible(trace.tokenizer.text(targets[worst]))))
    ending = ""
    if math.isnan(bits[0]):
        ending = " The first token has nothing before it to be predicted from."
    elif not trace.continues:
        ending = " <E>, the end of the record, is predicted too."
    page.section(
        "Surprise",
        "The model predicts each token from those before it; the stronger its colour, the less it "
        "was expected. Point at a token, click it or move with the arrow keys to see what was "
        "expected there. One bit is the surprise of a coin toss, ten bits that of a probability of "
        f"1 in 1,024.{ending}",
    )
    page.add(reading)
    page.add(Facts(facts))


def add_next(page: Page, trace: ForwardTrace, top_k: int = 0, top_p: float = 1.0) -> None:
    """Add the distribution of the next token, with sliders that start at these cuts."""
    logits = trace.next_logits()
    after = quote(trace, trace.ids)
    end = "" if trace.continues else " <E> is the end of the record."
    possible = [i for i in range(len(logits)) if i not in set(trace.banned)]
    page.section(
        "Next symbol",
        f"What the model expects after {after}.{end} Sampling draws from these bars: a low "
        "temperature sharpens them, top-K keeps the K most probable and top-P the fewest that "
        f"together reach P.{_count_possible(trace, len(possible))}",
    )
    if not np.isfinite(logits[possible]).any():
        page.add(Text("Nothing may follow: every next token is forbidden here."))
        return
    names, top_k, title = trace.names(possible), min(top_k, len(possible)), f"After {after}"
    page.add(Distribution(names, logits[possible], top_k=top_k, top_p=top_p, title=title))


def _count_possible(trace: ForwardTrace, count: int) -> str:
    """Return a sentence about the tokens of the vocabulary that are never generated."""
    banned = sorted(set(trace.banned))
    if not banned:
        return ""
    names = trace.names(banned)
    listed = ", ".join(names) if len(names) <= 6 else f"{len(names):,} special tokens"
    return (
        f" Of the {trace.model.vocab_size:,} tokens of the vocabulary {count:,} can follow: "
        f"{listed} {'is' if listed in names else 'are'} never generated."
    )


def add_beam_search(page: Page, trace: ForwardTrace, width: int) -> None:
    """Add the tree of a beam search from the prompt."""
    nodes, best = trace.search(width, STEPS)
    half = "" if trace.continues else ", the first half of the text"
    page.section(
        "Beam search",
        f"Continuing {quote(trace, trace.prompt)}{half}. Greedy decoding chooses one token at a "
        f"time; beam search extends the {width} most probable beginnings in parallel and drops the "
        f"rest. It is drawn up to {STEPS} tokens ahead.",
    )
    page.add(beam_tree(trace, nodes, best))


def beam_tree(trace: ForwardTrace, nodes: Sequence[Node], best: Generated | None) -> Component:
    """Return the search as a tree with its prompt as root, and the best sequence marked."""
    if not nodes:
        return Text("The search found nothing: every next token is forbidden here.")
    title = f"Search from {quote(trace, trace.prompt)}"
    return search_tree(trace.tokenizer, trace.prompt, nodes, best, title)


def search_tree(
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    nodes: Sequence[Node],
    best: Generated | None,
    title: str = "",
) -> BeamTree:
    """Return a search as a tree whose root is the end of its prompt."""
    content = [i for i in prompt if i != tokenizer.start]
    shown = tokenizer.decode(content) if content else tokenizer.text(prompt[0])
    if content and len(shown) > 8:
        shown = f"…{shown[-7:]}"
    root: dict[str, Any] = {"id": 0, "parent": None, "step": 0, "score": 0.0}
    tree = [root | {"token": shown, "kept": True, "finished": False}]
    for node in nodes:
        tree.append(
            {
                "id": node.id + 1,
                "parent": 0 if node.parent is None else node.parent + 1,
                "token": tokenizer.text(node.token),
                "score": node.score,
                "kept": node.alive or node.finished,
                "finished": node.finished,
                "step": node.step,
            }
        )
    children = {(node.parent, node.token): node.id for node in nodes}
    at: int | None = None
    for token in best.ids if best else ():
        at = children[at, token]
    return BeamTree(tree, best=0 if at is None else at + 1, title=title)


def add_samples(page: Page, trace: ForwardTrace) -> None:
    """Add sampled continuations with their log-probabilities; records from their start on."""
    prompt = [i for i in trace.prompt if i != trace.tokenizer.start]
    prefix = trace.tokenizer.decode(prompt) if trace.continues else ""
    samples = []
    for sample in trace.samples(SAMPLES, LONGEST):
        # Decoded with the prompt: words have spaces between them, bytes may share a character.
        text = trace.tokenizer.decode([*prompt, *sample.ids]).removeprefix(prefix)
        complete = sample.finished or sample.dead_end
        samples.append((text if complete else f"{text} …", sample.score / math.log(2)))
    page.section(
        "Samples",
        f"{SAMPLES} continuations of {quote(trace, trace.prompt)}, each token drawn at random with "
        "its probability. The number is the log-probability of the tokens drawn, in bits.",
    )
    page.add(Sequences(samples, score_name="log-probability in bits"))


@dataclass(frozen=True, eq=False)
class SourceTarget:
    """Ids without markers: a source, or the patches of an image, and a target to look at instead of
    the model's output, or a `reference` to compare it with.
    """

    source: Sequence[int] | NDArray[Any]
    target: Sequence[int] | None = None
    reference: Sequence[int] | None = None


@dataclass(frozen=True, eq=False)
class BeamResult:
    """The best translations of a beam search, all its candidates, and its width."""

    best: list[Generated]
    nodes: list[Node]
    width: int


def search(translator: Translator, source: Sequence[int] | NDArray[Any], width: int) -> BeamResult:
    """Run the beam search of `regard translate` and record its candidates."""
    trace = Trace()
    beam = Beam(width=width, length_penalty=1.0, n_best=width, trace=trace)
    (best,) = translator.translate_ids([source], beam)
    return BeamResult(best, trace.trees[0], width)


def trace_targets(
    translator: Translator,
    pair: SourceTarget,
    result: BeamResult,
    head: tuple[int, int] | None = None,
) -> dict[str, PairTrace]:
    """Return the targets to look at, by what they are; the first is the one the page is about.
    `head` is the one that aligns.
    """
    output = translator.makes
    targets: dict[str, tuple[list[int], bool]] = {}  # ids, and whether they are complete
    if pair.target is not None:
        targets[f"the {output} given"] = (list(pair.target), True)
    elif result.best and result.best[0].finished:
        targets[f"its {output}"] = (list(result.best[0].ids[:-1]), True)
    else:
        targets[f"its {output}"] = (list(result.best[0].ids) if result.best else [], False)
    if pair.reference is not None:
        targets["the reference"] = (list(pair.reference), True)
    return {
        name: trace_pair(translator, pair.source, ids, complete, head)
        for name, (ids, complete) in targets.items()
    }


def trace_pair(
    translator: Translator,
    source: Any,
    ids: Sequence[int],
    complete: bool,
    head: tuple[int, int] | None = None,
) -> PairTrace:
    """Trace a translator that reads a source, given as ids without markers, and writes a target,
    which may go on unless it is complete; what exceeds its context is cut.
    """
    most = int(translator.model.config.max_len) - 1  # after <S>
    tokenizer = translator.tokenizer
    return PairTrace.of(
        translator.model,
        translator.readable(source),
        tokenizer=tokenizer,
        ids=[tokenizer.start, *ids[:most]],
        continues=not complete or len(ids) > most,
        constrain=translator.forbidden,
        banned=tokenizer.never_produced(translator.model.vocab_size),
        source_tokenizer=translator.source_tokenizer,
        output=translator.makes,
        head=head,
    )


def add_translations(
    page: Page,
    translator: Translator,
    traces: dict[str, PairTrace],
) -> None:
    """Add the source, if it is a text, and its targets with their surprise."""
    first = next(iter(traces.values()))
    decode, source_tokenizer = translator.tokenizer.decode, translator.source_tokenizer
    rows: list[list[object]] = []
    if first.sources:
        rows.append(["source", source_tokenizer.decode(first.source), None])
    for name, trace in traces.items():
        _, bits = trace.surprise()
        rows.append([name, decode(trace.ids), float(bits.mean()) if len(bits) else None])
    page.section(first.output.capitalize(), "Bits per token are the mean surprise of its tokens.")
    columns, align = ["", "", "bits per token"], ["left", "left", "right"]
    page.add(Table(columns, rows, align, highlight=[int(bool(first.sources))]))


def add_translation_search(
    page: Page, translator: Translator, trace: PairTrace, result: BeamResult
) -> None:
    """Add the tree of a beam search, up to the end of the best translation, and its n best."""
    best = result.best[0] if result.best else None
    last = len(best.ids) if best else STEPS
    nodes = [node for node in result.nodes if node.step <= last]
    dropped = ""
    if last > STEPS:
        nodes = [node for node in nodes if node.alive or node.finished]
        dropped = " Candidates that were dropped at once are not drawn."
    page.section(
        "Beam search",
        f"The {result.width} most probable beginnings are extended in parallel and the rest is "
        f"dropped.{dropped} The search ended when nothing could overtake the best {trace.output}; "
        "the tree is drawn up to its end. Point at a node for the log-probability up to it. Beam "
        "search never emits special tokens such as <unk>, so its scores can be higher than the "
        "model's own.",
    )
    page.add(beam_tree(trace, nodes, best))
    listed = [
        (
            translator.tokenizer.decode(one.ids) + ("" if one.finished else " …"),
            one.score / math.log(2),
        )
        for one in result.best
    ]
    if len(listed) > 1:
        title = f"The {len(listed)} best, by log-probability per token in bits"
        page.add(Sequences(listed, title=title, score_name="bits per token"))


def add_details(page: Page, facts: Sequence[tuple[str, object]], title: str = "The model") -> None:
    """Add the facts of a run at the end of a page, folded."""
    if facts:
        page.details(title)
        page.add(Facts(facts))


def summarize(trace: ForwardTrace, facts: Sequence[tuple[str, object]]) -> str:
    """Return how surprising the text is, and for comparison how held-out text is."""
    bits = bits_per_symbol(trace)
    if math.isnan(bits):
        return ""
    held_out = [
        (label.rpartition(", ")[2], value)
        for label, value in facts
        if label.startswith("bits per symbol, ")
    ]
    compared = f"; {held_out[-1][1]} on the {held_out[-1][0]} split" if held_out else ""
    return f"{cell(bits)} bits per symbol on this text{compared}"


def language_page(
    model: LanguageModel,
    tokenizer: Tokenizer,
    ids: list[int],
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    constrain: Constrain | None = None,
    banned: Sequence[int] | None = None,
    beams: int = 4,
    continues: bool,
    warnings: Sequence[str] = (),
) -> Page:
    """Return the page about a model reading `ids`; for the arguments see `ForwardTrace`.

    `banned` tokens are never generated, by default the specials other than the end token.
    `warnings` stand at the top.
    """
    if banned is None:
        banned = tokenizer.never_produced(model.vocab_size)
    trace = ForwardTrace(model, tokenizer, ids, continues, constrain, banned)
    page = Page(title, summarize(trace, facts))
    page.warn(*warnings)
    add_surprise(page, trace)
    add_next(page, trace)
    add_inside(page, trace)
    add_beam_search(page, trace, beams)
    add_samples(page, trace)
    add_details(page, facts)
    return page


MOST_POSITIONS = 512  # that are masked, one after the other
MOST_MASKS = 6  # of a text whose distributions are drawn
MOST_ROWS = 40  # positions in a table
MOST_TOKENS = 24  # rows of the map
MOST_LISTED = 5  # tokens listed for a position


def masked_page(
    model: MaskedLM,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
    warnings: Sequence[str] = (),
) -> Page:
    """Return the page about `ids`: a text between its markers, which may contain masks.

    There must be at least one token besides the markers.
    """
    page = Page(title)
    page.warn(*warnings)
    masks = [i for i, id in enumerate(ids) if id == tokenizer.mask]
    positions = [i for i, id in enumerate(ids) if id not in tokenizer.names][:MOST_POSITIONS]
    names = [MASK if id == tokenizer.mask else tokenizer.text(id) for id in ids]
    if masks:
        logs = predict_masked(model, ids, masks, tokenizer.mask)
        _add_masks(page, logs, masks, tokenizer)
    if positions:
        logs = predict_masked(model, ids, positions, tokenizer.mask)
        _add_surprise(page, logs, positions, ids, names)
        _add_predictions(page, logs, positions, ids, tokenizer)
    tap = Tap(attention_names("*.attention", len(ids)))
    row = torch.tensor([list(ids)])
    with evaluating(model):
        model.vectors(Inputs(row, torch.ones_like(row)).to(device_of(model)), tap=tap)
    activations = {name: x.float().cpu() for name, x in tap.activations.items()}
    add_encoder_attention(page, activations, names, model.config.score)
    add_details(page, facts)
    return page


def _rank_tokens(logs: NDArray[np.float64], tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return all tokens but the markers, the most probable first."""
    order = np.argsort(-logs, kind="stable")
    return order[~np.isin(order, list(tokenizer.names)) & (order < tokenizer.vocab_size)]


def _add_masks(
    page: Page, logs: NDArray[np.float64], masks: Sequence[int], tokenizer: Tokenizer
) -> None:
    shown = min(len(masks), MOST_MASKS)
    cut = f" The first {shown} of {len(masks):,} masks are drawn." if shown < len(masks) else ""
    page.section(
        "Masked tokens",
        "The probability of each token at the masks of the text, given all other tokens, earlier "
        f"and later ones. Several masks are predicted independently.{cut}",
    )
    for row, position in zip(logs[:shown], masks, strict=False):
        order = _rank_tokens(row, tokenizer)
        names = [tokenizer.text(int(i)) for i in order]
        title = f"{MASK} at position {position}"
        page.add(Distribution(names, logits=row[order], title=title))


def _add_surprise(
    page: Page,
    logs: NDArray[np.float64],
    positions: Sequence[int],
    ids: Sequence[int],
    names: Sequence[str],
) -> None:
    targets = np.array([ids[i] for i in positions])
    bits = np.full(len(ids), np.nan)
    bits[list(positions)] = -logs[np.arange(len(positions)), targets] / math.log(2)
    correct, worst = int((logs.argmax(1) == targets).sum()), int(np.nanargmax(bits))
    page.section(
        "Surprise when masked",
        "Each token in turn is masked and predicted from all others; the stronger its colour, the "
        "less it was expected. One bit is the surprise of a coin toss. Markers and unknown tokens "
        "are never predicted.",
    )
    facts = [
        ("bits per token", float(np.nanmean(bits))),
        ("tokens predicted correctly", f"{correct:,} of {len(positions):,}"),
        ("most surprising", f"{visible(names[worst])} at position {worst}"),
    ]
    page.add(Facts(facts))
    page.add(Surprise(names, [("this text", bits.tolist())], title="Bits of each token"))


def _add_predictions(
    page: Page,
    logs: NDArray[np.float64],
    positions: Sequence[int],
    ids: Sequence[int],
    tokenizer: Tokenizer,
) -> None:
    """Draw the most probable tokens of every position as a map and as a table."""
    probabilities = np.exp(logs)
    best = np.argsort(-probabilities.max(0), kind="stable")[:MOST_TOKENS]
    rows = sorted(int(i) for i in best if i < tokenizer.vocab_size)
    page.section(
        "Predicted tokens",
        "The same distributions as a map: tokens down, positions across, outlined at the token of "
        "the text; and the most probable tokens of each position.",
    )
    part = f", the {len(rows)} most probable" if len(rows) < tokenizer.vocab_size else ""
    page.add(
        Heatmap(
            np.clip(probabilities[:, rows].T, 0, 1),
            [tokenizer.text(i) for i in rows],
            [tokenizer.text(ids[i]) for i in positions],
            f"P(token | all other positions){part}",
            scale="weights",
            unit="probability",
            marks=[(rows.index(ids[i]), n) for n, i in enumerate(positions) if ids[i] in rows],
        )
    )
    cells: list[list[object]] = []
    for n, position in enumerate(positions[:MOST_ROWS]):
        listed = ", ".join(
            f"{visible(tokenizer.text(int(i)))} {probabilities[n, i]:.3g}"
            for i in _rank_tokens(logs[n], tokenizer)[:MOST_LISTED]
        )
        token = ids[position]
        probability = float(probabilities[n, token])
        cells.append([position, visible(tokenizer.text(token)), probability, listed])
    cut = f", the first {MOST_ROWS} positions" if len(positions) > MOST_ROWS else ""
    columns = ["position", "token", "its probability", "the most probable"]
    align, title = ["right", "left", "right", "left"], f"Position by position{cut}"
    page.add(Table(columns, cells, align, title=title))
