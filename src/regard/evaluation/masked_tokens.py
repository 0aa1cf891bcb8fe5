"""What a masked language model gives to the tokens of a text, masked: probabilities,
pseudo-log-likelihoods and the effects of variants.

The pseudo-log-likelihood of a text is the sum of the log-probabilities of its tokens, each masked
alone (Salazar et al. 2020, arXiv:1910.14659). The effect of a variant such as A12G is the
log-probability of the new tokens minus that of the old ones, while all places that it changes are
masked together (masked marginals: Meier et al. 2021, doi:10.1101/2021.07.09.450648).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batching import pieces
from regard.decoding.engine import device_of, evaluating
from regard.errors import UsageError
from regard.evaluation.language_modeling import ScoredRecord
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.encoder import MaskedLM
from regard.tokenizers import Tokenizer

MASK = "<mask>"  # in a text: predict this token
MASKS = re.compile(re.escape(MASK) + r"|\[MASK\]")
BATCH_TOKENS = 1 << 14  # positions read at once
SUBSTITUTION = re.compile(r"([A-Za-z*-])(\d+)([A-Za-z*-])")
ALL = "all"  # in place of variants: every single one

Floats = NDArray[np.float64]


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


def predict_masked(
    model: MaskedLM,
    ids: Sequence[int],
    positions: Sequence[int],
    mask: int,
    *,
    tap: Tap | None = None,
) -> Floats:
    """Return (N, V): log P of every token at each of N positions, masked one at a time."""
    return np.concatenate(predict_together(model, ids, [[p] for p in positions], mask, tap=tap))


@torch.inference_mode()
def predict_together(
    model: MaskedLM,
    ids: Sequence[int],
    groups: Sequence[Sequence[int]],
    mask: int,
    *,
    tap: Tap | None = None,
) -> list[Floats]:
    """Return log P of every token at the positions of each group, masked together: (n, V) each."""
    row, parts = torch.tensor(list(ids)), list[Floats]()
    at_once = max(1, BATCH_TOKENS // len(ids))
    with evaluating(model):
        for first in range(0, len(groups), at_once):
            chosen = groups[first : first + at_once]
            counts = [len(group) for group in chosen]
            at = np.repeat(np.arange(len(chosen)), counts)
            columns = np.concatenate([np.asarray(group, np.int64) for group in chosen])
            rows = row.repeat(len(chosen), 1)  # (B, T)
            rows[at, columns] = mask
            source = Inputs(rows, torch.ones_like(rows)).to(device_of(model))
            flat = torch.from_numpy(at * len(ids) + columns).to(device_of(model))
            logs = model(source, positions=flat, tap=tap).double().log_softmax(-1).cpu().numpy()
            parts += np.split(logs, np.cumsum(counts)[:-1])
    return parts


def pseudo_log_likelihood(model: MaskedLM, text: str, tokenizer: Tokenizer) -> ScoredRecord:
    """Return the log-probability of each token of a text, masked alone; markers and unknown symbols
    have none. A text beyond the context is read in pieces of equal lengths, as in training.
    """
    ids = [tokenizer.start, *map(int, tokenizer.encode(text)), tokenizer.end]
    offsets, tokens, logs = np.array([0, len(ids)]), list[str](), list[float]()
    for start, length in zip(*pieces(offsets, int(model.config.max_len)), strict=True):
        piece = ids[start : start + length]
        positions = [i for i, id in enumerate(piece) if id not in tokenizer.names]
        if positions:
            rows = predict_masked(model, piece, positions, tokenizer.mask)
            logs += rows[np.arange(len(positions)), [piece[i] for i in positions]].tolist()
            tokens += [tokenizer.text(piece[i]) for i in positions]
    return ScoredRecord(text, tokens, logs)


@dataclass(frozen=True)
class Substitution:
    """A symbol in place of another one, at a position that is counted from 1."""

    before: str
    position: int
    after: str

    def __str__(self) -> str:
        return f"{self.before}{self.position}{self.after}"


Variant = tuple[Substitution, ...]  # that occur together


def parse_variants(text: str) -> list[Variant]:
    """Return variants that are separated by commas or spaces; the substitutions of one are joined
    by a colon or a slash: A12G,M1V:K3R.
    """
    variants = []
    for word in re.split(r"[,;\s]+", text.strip()):
        parts = [SUBSTITUTION.fullmatch(part) for part in re.split("[:/]", word)]
        substitutions = [Substitution(m[1], int(m[2]), m[3]) for m in parts if m]
        if len(substitutions) < len(parts):
            raise UsageError(
                f"variant {word!r}: a substitution is written as A12G: the symbol that is there, "
                "its position from 1 and the new one; several that occur together as A12G:M1V"
            )
        positions = [one.position for one in substitutions]
        if len(set(positions)) < len(positions):
            raise UsageError(f"variant {word!r} changes one position twice")
        variants.append(tuple(substitutions))
    return variants


def all_substitutions(text: str, tokenizer: Tokenizer) -> list[Variant]:
    """Return every substitution of one symbol of a text by another one."""
    return [
        (Substitution(before, position, after),)
        for position, before in enumerate(text, start=1)
        for after in tokenizer.standard_symbols
        if after.upper() != before.upper()
    ]


def score_variants(
    model: MaskedLM, text: str, variants: Sequence[Variant], tokenizer: Tokenizer
) -> list[float]:
    """Return the effect of each variant of a text: above 0, the model prefers it."""
    content = [int(i) for i in tokenizer.encode(text)]
    if len(content) != len(text):
        raise UsageError(
            "variants name single symbols, but the tokens of this run have several: train it with "
            "--tokenizer residues, nucleotides or characters"
        )
    checked = [_ids_of(variant, text, content, tokenizer) for variant in variants]
    ids, most = [tokenizer.start, *content, tokenizer.end], int(model.config.max_len)
    by_group: dict[tuple[int, ...], Floats] = {}
    for first, groups in _windows({positions for positions, _, _ in checked}, len(ids), most):
        inside = [[position - first for position in group] for group in groups]
        part = predict_together(model, ids[first : first + most], inside, tokenizer.mask)
        by_group |= dict(zip(groups, part, strict=True))
    scores = []
    for positions, old, new in checked:
        rows = by_group[positions]
        each = np.arange(len(positions))
        scores.append(float((rows[each, new] - rows[each, old]).sum()))
    return scores


def _ids_of(
    variant: Variant, text: str, content: Sequence[int], tokenizer: Tokenizer
) -> tuple[tuple[int, ...], list[int], list[int]]:
    """Return the positions of a variant, `<S>` being 0, and the ids before and after it."""
    name = ":".join(map(str, variant))
    old, new = list[int](), list[int]()
    for one in variant:
        if not 1 <= one.position <= len(text):
            raise UsageError(f"variant {name}: there are {len(text):,} positions, from 1")
        present = text[one.position - 1]
        if present.upper() != one.before.upper():
            raise UsageError(f"variant {name}: position {one.position} is {present}")
        encoded = [int(i) for i in tokenizer.encode(one.after)]
        if len(encoded) != 1 or encoded[0] in tokenizer.names:
            raise UsageError(f"variant {name}: {one.after!r} is no symbol of the vocabulary")
        old.append(content[one.position - 1])
        new.append(encoded[0])
    return tuple(one.position for one in variant), old, new


def _windows(
    groups: set[tuple[int, ...]], length: int, most: int
) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Return the starts of windows of at most `most` of `length` ids, and the groups of positions
    that are in their middle.
    """
    by_start: dict[int, list[tuple[int, ...]]] = {}
    for group in sorted(groups):
        low, high = min(group), max(group)
        if high - low >= most:
            raise UsageError(
                f"positions {low} and {high} change together, but the model reads {most} tokens"
            )
        start = min(max(0, (low + high + 1 - most) // 2), max(0, length - most))
        by_start.setdefault(start, []).append(group)
    return list(by_start.items())
