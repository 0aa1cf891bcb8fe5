"""The check of what only translators have: a source is read the same beside others as alone."""

from __future__ import annotations

import torch

from regard.layers.source import Source
from regard.models.translator import Translator
from regard.verify.report import Finding, Gap
from regard.verify.subject import Subject


def sources_together_are_alone(subject: Subject) -> Finding | None:
    """Sources of different lengths side by side, padded, and packed into one row, each against
    itself alone.
    """
    model, source, gap = subject.whole, subject.source, Gap()
    if not isinstance(model, Translator) or source is None:
        return None
    whole = source.ids[0]
    lengths = sorted({max(1, len(whole) // n) for n in (3, 2, 1)}, reverse=True)
    alone = [whole[:n] for n in lengths]
    rows = len(alone)
    targets = subject.ids[:1].expand(rows, -1)  # the same, so that only sources make a difference
    expected = torch.cat(
        [model.given(of(one)).logits(targets[:1]).float() for one in alone]
    )  # (rows, T, V)
    width = lengths[0]
    ids = torch.stack(
        [torch.cat((one, whole.new_full((width - len(one),), subject.pad))) for one in alone]
    )
    inside = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    gap.add(model.given(Source(ids, inside)).logits(targets).float(), expected, targets.numel())
    if model.packs:
        numbers = torch.arange(1, rows + 1)
        row = Source(torch.cat(alone)[None], numbers.repeat_interleave(torch.tensor(lengths))[None])
        segments = numbers.repeat_interleave(targets.size(1))[None]
        packed = model.given(row).logits(targets.reshape(1, -1), segments).float()
        gap.add(packed.view_as(expected), expected, targets.numel())
    return gap.finding(subject.tolerance, f" of {rows} sources")


def of(ids: torch.Tensor) -> Source:
    """One source."""
    return Source(ids[None], torch.ones_like(ids)[None])
