"""The page behind `regard look`: one text through the eyes of one language model.

How surprising each symbol was, what could come next and what the decoding settings would cut, what
the model's own machinery did meanwhile, which hypotheses a beam search weighed, and what it says
when it goes on by itself. Nothing on the page is typed in: every number comes from the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from regard.decoding import Generated, Node
from regard.look.forward_trace import ForwardTrace
from regard.look.internals import add_inside
from regard.look.page import (
    BeamTree,
    Component,
    Distribution,
    Facts,
    Page,
    Sequences,
    Surprise,
    Text,
)
from regard.look.page.component import cell, visible
from regard.models.language_model import Constrain, LanguageModel
from regard.tokenizers import Tokenizer

STEPS = 9  # of the beam search that is drawn: as many as a page is wide
SAMPLES, LONGEST = 10, 120  # continuations, and the most tokens of one
QUOTED = 24  # characters of a text that are quoted in a sentence


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
) -> Page:
    """The page about `model` reading `ids` (see `Reading`); `facts` say what the model is.

    `banned` tokens are never produced; left out, they are the specials other than the end token.
    """
    if banned is None:
        banned = tokenizer.never_produced(model.vocab_size)
    reading = ForwardTrace(model, tokenizer, ids, continues, constrain, banned)
    page = Page(title, " · ".join(f"{label} {cell(value)}" for label, value in facts[:3]))
    if facts:
        page.section("The model")
        page.add(Facts(facts))
    add_surprise(page, reading)
    add_next(page, reading)
    add_inside(page, reading)
    add_search(page, reading, beams)
    add_samples(page, reading)
    return page


def quoted(reading: ForwardTrace, ids: Sequence[int]) -> str:
    """The end of a text in quotation marks, or the name of its only token."""
    inside = [i for i in ids if i != reading.tokenizer.start]
    if not inside:
        return reading.tokenizer.text(ids[0])
    text = visible(reading.tokenizer.decode(inside))
    return f"“{text}”" if len(text) <= QUOTED else f"“…{text[-QUOTED:]}”"


def add_surprise(page: Page, reading: ForwardTrace, name: str = "this text") -> None:
    """What each symbol of the text cost, and the text as a whole."""
    targets, bits = reading.surprise()
    scored = ~np.isnan(bits)
    if not scored.any():
        return
    symbols = int(reading.tokenizer.symbols[np.asarray(targets)[scored]].sum())
    tokens, total = int(scored.sum()), float(bits[scored].sum())
    found: list[tuple[str, object]] = [
        ("bits per symbol", total / max(1, symbols)),
        ("nats in total", total * math.log(2)),
        ("symbols predicted", symbols),
    ]
    if tokens != symbols:
        found += [("tokens predicted", tokens), ("bits per token", total / tokens)]
    impossible = int(np.isinf(bits).sum())
    if impossible:
        found.append(("held impossible", impossible))
    worst = int(np.nanargmax(bits))
    found.append(("most surprising", visible(reading.tokenizer.text(targets[worst]))))
    ending = (
        " The first token has nothing before it to be predicted from."
        if math.isnan(bits[0])
        else " <E>, the end of the record, has to be predicted too."
        if not reading.continues
        else ""
    )
    page.section(
        "Surprise",
        "Before each token the model says how probable it is; the stronger its colour, the less "
        "it was expected. One bit is the surprise of a coin toss, ten bits that of a chance of 1 "
        f"in 1,024.{ending}",
    )
    page.add(Facts(found))
    rows = [(name, bits.tolist())]
    page.add(Surprise(reading.names(targets), rows, title="Bits of each token"))


def add_next(page: Page, reading: ForwardTrace, top_k: int = 0, top_p: float = 1.0) -> None:
    """What could come next, and what sampling would keep of it; the sliders begin at these cuts."""
    logits = reading.next_logits()
    over = "" if reading.continues else " The record could also end here: that is <E>."
    page.section(
        "Next symbol",
        f"What the model expects after {quoted(reading, reading.ids)}.{over} Sampling draws from "
        "these bars: a low temperature sharpens them, top-K keeps the K most probable and top-P "
        "the fewest that together reach P.",
    )
    barred = set(reading.banned)
    possible = [i for i in range(len(logits)) if i not in barred]
    if not np.isfinite(logits[possible]).any():
        page.add(Text("Nothing may follow: every next token is forbidden here."))
        return
    names = reading.names(possible)
    title = f"After {quoted(reading, reading.ids)}"
    shown = Distribution(
        names,
        logits=logits[possible],
        top_k=min(top_k, len(names)),
        top_p=top_p,
        title=title,
    )
    page.add(shown)


def add_search(page: Page, reading: ForwardTrace, width: int) -> None:
    """The tree of a beam search from the prompt."""
    nodes, best = reading.search(width, STEPS)
    half = "" if reading.continues else ", the first half of the text"
    page.section(
        "Beam search",
        f"Going on from {quoted(reading, reading.prompt)}{half}. Where greedy decoding settles on "
        f"one token at a time, beam search extends the {width} most probable beginnings side by "
        f"side and drops the rest; it is drawn up to {STEPS} tokens ahead.",
    )
    page.add(beam_tree(reading, nodes, best))


def beam_tree(reading: ForwardTrace, nodes: Sequence[Node], best: Generated | None) -> Component:
    """The search as a tree that grows from its prompt, the best sequence marked."""
    if not nodes:
        return Text("The search found nothing: every next token is forbidden here.")
    root: dict[str, Any] = {"id": 0, "parent": None, "step": 0, "score": 0.0}
    root |= {"token": start_label(reading), "kept": True, "finished": False}
    drawn = [root]
    for node in nodes:
        drawn.append(
            {
                "id": node.id + 1,
                "parent": 0 if node.parent is None else node.parent + 1,
                "token": reading.tokenizer.text(node.token),
                "score": node.score,
                "kept": node.kept or node.finished,
                "finished": node.finished,
                "step": node.step,
            }
        )
    children = {(node.parent, node.token): node.id for node in nodes}
    at: int | None = None
    for token in best.ids if best else ():
        at = children[at, token]
    title = f"Search from {quoted(reading, reading.prompt)}"
    return BeamTree(drawn, best=0 if at is None else at + 1, title=title)


def start_label(reading: ForwardTrace) -> str:
    """The prompt as the tree's root: its end, if it is long."""
    inside = [i for i in reading.prompt if i != reading.tokenizer.start]
    if not inside:
        return reading.tokenizer.text(reading.prompt[0])
    text = reading.tokenizer.decode(inside)
    return text if len(text) <= 8 else f"…{text[-7:]}"


def add_samples(page: Page, reading: ForwardTrace) -> None:
    """Continuations drawn from the model, with their log-probabilities; records from the start."""
    prompt = [i for i in reading.prompt if i != reading.tokenizer.start]
    known = reading.tokenizer.decode(prompt) if reading.continues else ""
    drawn = []
    for one in reading.samples(SAMPLES, LONGEST):
        # Decoded in one piece: words know the space between them, bytes the character they share.
        text = reading.tokenizer.decode([*prompt, *one.ids]).removeprefix(known)
        drawn.append((text if one.finished or one.dead_end else f"{text} …", one.score))
    page.section(
        "Samples",
        f"{SAMPLES} ways to go on from {quoted(reading, reading.prompt)}, every token drawn at "
        "random with its own probability. The number is the natural logarithm of the probability "
        "of all that was drawn.",
    )
    page.add(Sequences(drawn))
