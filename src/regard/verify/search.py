"""Checks of decoding: one beam is the greedy path, and a wide beam finds all that there is."""

from __future__ import annotations

import math
from itertools import product

import torch
from torch import Tensor

from regard.decode import Beam, Greedy, generate
from regard.models.language_model import IGNORE
from regard.verify.report import Finding
from regard.verify.subject import Subject

GREEDY = 12  # tokens decoded by one beam and greedily
DEEP = 4  # tokens of the sequences that are all tried
LARGE = 100_000_000  # parameters from which fewer sequences are tried

Sequence = tuple[int, ...]


def beam_one_is_greedy(subject: Subject) -> Finding:
    """A beam of width 1 and greedy decoding: the same tokens, at the same log-probabilities.

    Where two tokens are equally probable, either is right, and the paths part.
    """
    half = max(1, subject.max_len // 2)
    lengths = [min(n, half) for n in subject.prefixes()]
    prompts = [row[:n].tolist() for row, n in zip(subject.ids, lengths, strict=True)]
    new = max(1, min(GREEDY, subject.max_len - max(lengths) + 1))
    found = [
        generate(subject.model, prompts, way, max_new=new, end=subject.end, pad=subject.pad)
        for way in (Greedy(), Beam(width=1))
    ]
    tokens, ties, worst = 0, 0, 0.0
    for number, ((greedy,), (beam,)) in enumerate(zip(*found, strict=True)):
        steps = zip(greedy.ids, greedy.log_probs, beam.ids, beam.log_probs, strict=False)
        for step, (one, one_log, other, other_log) in enumerate(steps):
            if one != other and abs(one_log - other_log) > subject.tolerance:
                return False, f"prompt {number}, token {step}: greedy takes {one}, a beam {other}"
            worst = max(worst, abs(one_log - other_log))
            if one != other:
                ties += 1
                break
            tokens += 1
        else:
            if len(greedy.ids) != len(beam.ids):
                return False, f"prompt {number}: greedy stops at {len(greedy.ids)}, a beam does not"
    parted = f", {ties} parted at a tie" * bool(ties)
    allowed = f"(allowed {subject.tolerance:.1e} at the scale of the logits)"
    detail = f"max difference {worst:.1e} over {tokens} equal tokens after {len(prompts)} prompts"
    return worst <= subject.tolerance, f"{detail}{parted} {allowed}"


def beam_is_brute_force(subject: Subject) -> Finding | None:
    """A beam wide enough for all, over a few tokens, against scoring every sequence of them."""
    prompt = subject.ids[0, : max(1, min(3, subject.max_len - DEEP + 1))]
    deep = min(DEEP, subject.max_len - len(prompt) + 1)
    likely = subject.logits[0, len(prompt) - 1].argsort(descending=True, stable=True).tolist()
    few = [t for t in likely if t != subject.end][: 2 if subject.parameters > LARGE else 3]
    if not few:
        return None
    expected = _exhaustive(subject, prompt, few, deep)
    width = sum(len(few) ** n for n in range(deep)) + len(few) ** deep  # every sequence there is
    banned = sorted(set(range(subject.model.vocab_size)) - {*few, subject.end})

    def search(n_best: int) -> dict[Sequence, float]:
        (found,) = generate(
            subject.model, [prompt.tolist()], Beam(width=width, n_best=n_best),
            max_new=deep, end=subject.end, pad=subject.pad, banned=banned,
        )  # fmt: skip
        return {tuple(one.ids): one.score for one in found if not one.dead_end}

    every, allowed = search(width), deep * subject.tolerance
    if every.keys() != expected.keys():
        odd = min(every.keys() ^ expected.keys(), key=len)
        return False, f"{list(odd)} is found by one of beam and brute force only"
    worst = max((abs(every[ids] - expected[ids]) for ids in expected), default=0.0)
    ended = [ids for ids in expected if ids[-1] == subject.end] or list(expected)
    best = max((expected[ids] for ids in ended), default=0.0)
    for ids in search(1):
        worst = max(worst, best - expected.get(ids, -math.inf))
    detail = f"max difference {worst:.1e} over {len(expected)} sequences of up to {deep} tokens"
    return worst <= allowed, f"{detail} (allowed {allowed:.1e} at the scale of the logits)"


def _exhaustive(
    subject: Subject, prompt: Tensor, few: list[int], deep: int
) -> dict[Sequence, float]:
    """The log-probability, by `score`, of every possible sequence that ends or is cut off."""
    sequences: list[Sequence] = list(product(few, repeat=deep))
    for n in range(deep):
        sequences += [(*body, subject.end) for body in product(few, repeat=n)]
    allowed = torch.zeros(subject.model.vocab_size, dtype=torch.bool)
    allowed[[*few, subject.end]] = True

    def constrain(logits: Tensor, previous: Tensor) -> Tensor:
        return logits.masked_fill(~allowed, -math.inf)

    first = len(prompt) - 1
    ids = prompt.repeat(len(sequences), 1)  # (N, P)
    ids = torch.nn.functional.pad(ids, (0, deep - 1), value=subject.pad)  # (N, P + deep - 1)
    targets = torch.full_like(ids, IGNORE)
    for row, sequence in enumerate(sequences):
        targets[row, first : first + len(sequence)] = torch.tensor(sequence)
        ids[row, first + 1 : first + len(sequence)] = targets[
            row, first : first + len(sequence) - 1
        ]
    totals = subject.model.score(ids, targets, constrain=constrain).double().sum(1).tolist()
    # After a dead end nothing is possible, and what is impossible no beam should find.
    return {s: t for s, t in zip(sequences, totals, strict=True) if math.isfinite(t)}
