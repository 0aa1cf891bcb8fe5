"""The page of `regard look` about a masked language model: what it predicts at every position if
that alone is masked, how surprising the token there is, and the attention of its heads.

The sum of these surprises is the pseudo-log-likelihood of Salazar et al. 2020 (arXiv:1910.14659).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.decoding.engine import device_of, evaluating
from regard.layers.attention import Tap
from regard.layers.embeddings import Inputs
from regard.look.internals import add_encoder_attention, attention_names
from regard.look.page import Distribution, Facts, Heatmap, Page, Surprise, Table
from regard.look.page.component import visible
from regard.models.encoder import MaskedLM
from regard.tokenizers import Tokenizer

MASK = "<mask>"  # in a text: predict this token
MASKS = re.compile(re.escape(MASK) + r"|\[MASK\]")
BATCH_TOKENS = 1 << 14  # positions read at once
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
) -> Page:
    """Return the page about `ids`: a text between its markers, which may contain masks.

    There must be at least one token besides the markers.
    """
    page = Page.about(title, facts)
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
    return page


def encode_masked(text: str, tokenizer: Tokenizer) -> list[int]:
    """Return the ids of a text with its markers; each `<mask>` or `[MASK]` in it is one token,
    including the space before it if tokens include that.
    """
    spaced, prepended = _token_spaces(tokenizer)
    first, *rest = MASKS.split(text)
    pieces = [first, *(piece.removeprefix(" ") if prepended else piece for piece in rest)]
    if spaced:
        pieces[:-1] = [piece.removesuffix(" ") for piece in pieces[:-1]]
    ids: list[int] = []
    for piece in pieces:
        ids += [tokenizer.mask, *(tokenizer.encode(piece).tolist() if piece else [])]
    return [tokenizer.start, *ids[1:], tokenizer.end]


def _token_spaces(tokenizer: Tokenizer) -> tuple[bool, bool]:
    """Return whether tokens include the space before a word, and whether encoding puts one before a
    text.
    """
    for id, raw in enumerate(tokenizer.raw):
        word = raw.decode("utf-8", "replace").removeprefix(" ")
        if raw.startswith(b" ") and word.strip() and id not in tokenizer.names:
            return True, tokenizer.encode(word).tolist() == [id]
    return False, False


@torch.inference_mode()
def predict_masked(
    model: MaskedLM, ids: Sequence[int], positions: Sequence[int], mask: int
) -> NDArray[np.float64]:
    """Return (N, V): log P of every token at each of N positions, masked one at a time."""
    row, parts = torch.tensor(list(ids)), []
    with evaluating(model):
        for part in torch.tensor(list(positions)).split(max(1, BATCH_TOKENS // len(ids))):
            rows = row.repeat(len(part), 1)  # (B, T)
            rows[torch.arange(len(part)), part] = mask
            source = Inputs(rows, torch.ones_like(rows)).to(device_of(model))
            flat = (torch.arange(len(part)) * len(ids) + part).to(device_of(model))
            logs = model(source, positions=flat).double().log_softmax(-1)
            parts.append(logs.cpu().numpy())
    return np.concatenate(parts)


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
