"""Checks of what only translators have: a source is read and translated beside others as alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from regard.decoding import Beam, Generated, Greedy, Strategy
from regard.decoding.seq2seq import translate
from regard.layers.embeddings import Inputs
from regard.models.seq2seq import Seq2SeqModel
from regard.verify.fixtures import SequenceFixture
from regard.verify.report import Finding, Gap

SOURCES, TOKENS = 12, 12  # sources that are translated, and the most tokens of a translation
WAYS = (Greedy(), Beam(width=4, length_penalty=1.0, n_best=4))


def sources_together_are_alone(subject: SequenceFixture) -> Finding | None:
    """Sources of different lengths side by side, padded, and packed into one row, each against
    itself alone.
    """
    model, source, gap = subject.whole, subject.source, Gap()
    if not isinstance(model, Seq2SeqModel) or source is None:
        return None
    whole = source.ids[0]
    lengths = sorted({max(1, len(whole) // n) for n in (3, 2, 1)}, reverse=True)
    alone = [whole[:n] for n in lengths]
    rows = len(alone)
    targets = subject.ids[:1].expand(rows, -1)  # the same, so that only sources make a difference
    expected = torch.cat(
        [model.condition(of(one)).logits(targets[:1]).float() for one in alone]
    )  # (rows, T, V)
    width = lengths[0]
    ids = torch.stack(
        [
            torch.cat((one, whole.new_full((width - len(one), *one.shape[1:]), subject.pad)))
            for one in alone
        ]
    )
    inside = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    gap.add(model.condition(Inputs(ids, inside)).logits(targets).float(), expected, targets.numel())
    if model.supports_packing:
        numbers = torch.arange(1, rows + 1)
        row = Inputs(torch.cat(alone)[None], numbers.repeat_interleave(torch.tensor(lengths))[None])
        segments = numbers.repeat_interleave(targets.size(1))[None]
        packed = model.condition(row).logits(targets.reshape(1, -1), segments).float()
        gap.add(packed.view_as(expected), expected, targets.numel())
    return gap.finding(subject.tolerance, f" of {rows} sources")


def translated_together_is_alone(subject: SequenceFixture) -> Finding | None:
    """Sources translated side by side, with all that decoding remembers, against each alone, and
    against log-probabilities computed whole, with nothing remembered.

    Where two translations are equally probable, either is right.
    """
    model, source, gap = subject.whole, subject.source, Gap()
    if not isinstance(model, Seq2SeqModel) or source is None:
        return None
    whole, ties = source.ids[0], 0
    sources = [whole.roll(n)[: 1 + len(whole) * (n % 3 + 1) // 4].tolist() for n in range(SOURCES)]
    banned = subject.tokenizer.never_produced(model.vocab_size) if subject.tokenizer else []
    start = int(subject.ids[0, 0])

    def translated(some: list[list[int]], way: Strategy) -> list[list[Generated]]:
        return translate(
            model, some, way, start=start, end=subject.end, pad=subject.pad, banned=banned,
            max_new=min(TOKENS, subject.max_len),
        )  # fmt: skip

    for way in WAYS:
        for number, several in enumerate(translated(sources, way)):
            ((alone, *_),), first = translated([sources[number]], way), several[0]
            if alone.ids != first.ids:
                if abs(alone.score - first.score) > subject.tolerance * len(alone.ids):
                    return False, f"source {number}: alone {alone.ids}, together {first.ids}, {way}"
                ties += 1
            for one in several:
                logs, ids = afresh(model, sources[number], one, start, banned)  # (T, V), (T,)
                told = torch.tensor(one.log_probs)
                gap.add(told, logs.gather(1, ids[:, None]).squeeze(1), len(ids))
                if isinstance(way, Greedy):  # the most probable each time, without a cache too
                    gap.add(told, logs.amax(1), 0)
    what = f", {SOURCES} sources by greedy search and by beams as if alone"
    return gap.finding(subject.tolerance, what + f" but for {ties} ties" * bool(ties))


def afresh(
    model: Seq2SeqModel, source: list[int], made: Generated, start: int, banned: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """(T, V) log-probabilities at each token of a translation, all at once, and its tokens (T,)."""
    ids = torch.tensor([start, *made.ids])
    logits = model.condition(of(torch.tensor(source))).logits(ids[None, :-1])[0].float()  # (T, V)
    logits[:, list(banned)] = -math.inf
    return logits.log_softmax(-1), ids[1:]


def of(ids: torch.Tensor) -> Inputs:
    """One source."""
    return Inputs(ids[None], torch.ones(1, len(ids), dtype=torch.int64))
