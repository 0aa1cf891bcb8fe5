"""The page of `regard look` about a model that fills in masked tokens: what it would put at every
position if that alone were hidden, how surprising the token there is, and where its heads look.

The sum of these surprises is the pseudo-log-likelihood of Salazar et al. 2020 (arXiv:1910.14659).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.decoding.engine import device_of, evaluating
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look.internals import MOST_WEIGHTS, beside, named, panel
from regard.look.page import Distribution, Facts, Heatmap, Page, Surprise, Table
from regard.look.page.component import cell, visible
from regard.models.encoder import MaskedLM
from regard.tokenizers import Tokenizer

MASK = "<mask>"  # in a text: fill this in
WRITTEN = re.compile(re.escape(MASK) + r"|\[MASK\]")
BATCH_TOKENS = 1 << 14  # positions read at once
MOST_POSITIONS = 512  # that are hidden, one after the other
MOST_FILLED = 6  # masks of a text whose distributions are drawn
MOST_ROWS = 40  # positions in a table
MOST_TOKENS = 24  # rows of the map
TOLD = 5  # tokens listed for a position


def ids_of(text: str, tokenizer: Tokenizer) -> list[int]:
    """The ids of a text with its markers; `<mask>` or `[MASK]` in it is one token to fill in, and
    has the space before it where tokens have that.
    """
    before, prepended = spaces_of(tokenizer)
    first, *rest = WRITTEN.split(text)
    pieces = [first, *(piece.removeprefix(" ") if prepended else piece for piece in rest)]
    if before:
        pieces[:-1] = [piece.removesuffix(" ") for piece in pieces[:-1]]
    ids: list[int] = []
    for piece in pieces:
        ids += [tokenizer.mask, *(tokenizer.encode(piece).tolist() if piece else [])]
    return [tokenizer.start, *ids[1:], tokenizer.end]


def spaces_of(tokenizer: Tokenizer) -> tuple[bool, bool]:
    """Have tokens the space before a word, and does encoding put one before a text?"""
    for id, raw in enumerate(tokenizer.raw):
        word = raw.decode("utf-8", "replace").removeprefix(" ")
        if raw.startswith(b" ") and word.strip() and id not in tokenizer.names:
            return True, tokenizer.encode(word).tolist() == [id]
    return False, False


@torch.inference_mode()
def filled_at(
    model: MaskedLM, ids: Sequence[int], places: Sequence[int], mask: int
) -> NDArray[np.float64]:
    """(N, V) log P of every token at each of N places, hidden one at a time."""
    row, found = torch.tensor(list(ids)), []
    each = max(1, BATCH_TOKENS // len(ids))
    with evaluating(model):
        for first in range(0, len(places), each):
            part = torch.tensor(list(places[first : first + each]))
            rows = row.repeat(len(part), 1)  # (B, T)
            rows[torch.arange(len(part)), part] = mask
            source = Inputs(rows, torch.ones_like(rows)).to(device_of(model))
            at = torch.arange(len(part)) * len(ids) + part
            logs = model(source, at=at.to(device_of(model))).double().log_softmax(-1)
            found.append(logs.cpu().numpy())
    return np.concatenate(found)


def masked_page(
    model: MaskedLM,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    *,
    title: str,
    facts: Sequence[tuple[str, object]] = (),
) -> Page:
    """The page about a model filling in `ids`: markers, a text, and masks that are in it already.

    There must be at least one token beside the markers.
    """
    page = Page(title, " · ".join(f"{label} {cell(value)}" for label, value in facts[:3]))
    if facts:
        page.section("The model")
        page.add(Facts(facts))
    asked = [i for i, id in enumerate(ids) if id == tokenizer.mask]
    plain = [i for i, id in enumerate(ids) if id not in tokenizer.names][:MOST_POSITIONS]
    names = [MASK if id == tokenizer.mask else tokenizer.text(id) for id in ids]
    if asked:
        add_masks(page, filled_at(model, ids, asked, tokenizer.mask), asked, tokenizer)
    if plain:
        logs = filled_at(model, ids, plain, tokenizer.mask)
        add_surprise(page, logs, plain, ids, names)
        add_filled(page, logs, plain, ids, tokenizer)
    add_attention(page, model, ids, names)
    return page


def offered(logs: NDArray[np.float64], tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The tokens that can be filled in, the likeliest first: no markers."""
    order = np.argsort(-logs, kind="stable")
    return order[~np.isin(order, list(tokenizer.names)) & (order < tokenizer.vocab_size)]


def add_masks(
    page: Page, logs: NDArray[np.float64], asked: Sequence[int], tokenizer: Tokenizer
) -> None:
    """What the model puts at the masks of the text."""
    shown = min(len(asked), MOST_FILLED)
    cut = f" Of {len(asked):,} masks the first {shown} are drawn." if shown < len(asked) else ""
    page.section(
        "Filled in",
        "How probable the model finds each token at the masks of the text, having read all of the "
        f"rest, what comes after too. Several masks are filled in independently.{cut}",
    )
    for row, place in zip(logs[:shown], asked, strict=False):
        order = offered(row, tokenizer)
        page.add(
            Distribution(
                [tokenizer.text(int(i)) for i in order],
                logits=row[order],
                title=f"{MASK} at position {place}",
            )
        )


def add_surprise(
    page: Page,
    logs: NDArray[np.float64],
    plain: Sequence[int],
    ids: Sequence[int],
    names: Sequence[str],
) -> None:
    """The bits of each token when it alone is hidden."""
    truths = np.array([ids[i] for i in plain])
    bits = np.full(len(ids), np.nan)
    bits[list(plain)] = -logs[np.arange(len(plain)), truths] / math.log(2)
    right = int((logs.argmax(1) == truths).sum())
    worst = int(np.nanargmax(bits))
    page.section(
        "Surprise when masked",
        "Each token in turn is hidden and filled in from all the others; the stronger its colour, "
        "the less it was expected. One bit is the surprise of a coin toss. Markers and unknown "
        "tokens are never asked for.",
    )
    page.add(
        Facts(
            [
                ("bits per token", float(np.nanmean(bits))),
                ("tokens filled in right", f"{right:,} of {len(plain):,}"),
                ("most surprising", f"{visible(names[worst])} at position {worst}"),
            ]
        )
    )
    page.add(Surprise(names, [("this text", bits.tolist())], title="Bits of each token"))


def add_filled(
    page: Page,
    logs: NDArray[np.float64],
    plain: Sequence[int],
    ids: Sequence[int],
    tokenizer: Tokenizer,
) -> None:
    """What the model would put at every position: a map of the likeliest tokens, and a table."""
    probable = np.exp(logs)
    best = np.argsort(-probable.max(0), kind="stable")[:MOST_TOKENS]
    rows = sorted(int(i) for i in best if i < tokenizer.vocab_size)
    page.section(
        "What would be put there",
        "The same distributions as a map: tokens down, positions across, outlined where the token "
        "itself stands; and the likeliest tokens of each position.",
    )
    marks = [(rows.index(ids[i]), n) for n, i in enumerate(plain) if ids[i] in rows]
    page.add(
        Heatmap(
            np.clip(probable[:, rows].T, 0, 1),
            [tokenizer.text(i) for i in rows],
            [tokenizer.text(ids[i]) for i in plain],
            title=f"P(token | all other positions){part_of(len(rows), tokenizer)}",
            scale="weights",
            unit="probability",
            marks=marks,
        )
    )
    listed: list[list[object]] = []
    for n, place in enumerate(plain[:MOST_ROWS]):
        order = offered(logs[n], tokenizer)[:TOLD]
        told = ", ".join(
            f"{visible(tokenizer.text(int(i)))} {probable[n, i]:.3g}" for i in order.tolist()
        )
        own = ids[place]
        listed.append([place, visible(tokenizer.text(own)), float(probable[n, own]), told])
    cut = f", the first {MOST_ROWS} positions" if len(plain) > MOST_ROWS else ""
    page.add(
        Table(
            ["position", "token", "its probability", "the likeliest"],
            listed,
            align=["right", "left", "right", "left"],
            title=f"Position by position{cut}",
        )
    )


def part_of(rows: int, tokenizer: Tokenizer) -> str:
    """That a map has only the likeliest tokens, where it has."""
    return f", the {rows} likeliest tokens" if rows < tokenizer.vocab_size else ""


def add_attention(page: Page, model: MaskedLM, ids: Sequence[int], names: Sequence[str]) -> None:
    """Every head of every layer on the text as it is given."""
    tap = Tap(named("*.attention", len(ids)))
    row = torch.tensor([list(ids)])
    with evaluating(model):
        model.vectors(Inputs(row, torch.ones_like(row)).to(device_of(model)), tap=tap)
    found: dict[str, Tensor] = {name: x.float().cpu() for name, x in tap.found.items()}
    if not found or len(ids) ** 2 > MOST_WEIGHTS:
        return
    page.section(
        "Attention",
        "Every token looks at all of them, those after it too; a row shows how a head shares its "
        "attention out, and sums to 1. Choose a small map to see that head large, as a map or as "
        f"arcs.{beside(found)}",
    )
    page.add(panel(found, names, names, model.config.score, title="Attention"))
