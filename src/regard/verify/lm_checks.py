"""Checks of the numbers a model predicts: paths agree, the future is unseen, all sums to one.

Checks of decoding: one beam is the greedy path, and a wide beam finds all that there is.
"""

from __future__ import annotations

import math
from itertools import cycle, product

import torch
from torch import Tensor, nn

from regard.decoding import Beam, Greedy, generate
from regard.layers.attention import Tap
from regard.models.language_model import IGNORE, LanguageModel
from regard.verify.fixtures import ROWS, TOLERANCE, SequenceFixture
from regard.verify.report import Finding, Gap

CHUNKS = (5, 1, 3, 2)  # widths in which a sequence is fed, over and over
GRADIENTS = 6  # positions whose gradient is taken
CONTEXT = 4  # tokens before the one whose probabilities are added up
SCORING = 1e11  # multiplications that scoring one continuation after the other may take


def fused_is_explicit(subject: SequenceFixture) -> Finding | None:
    """The fused attention kernel against the explicit path, which forms the weights."""
    model, gap = subject.model, Gap()
    if getattr(model.config, "score", "scaled_dot") != "scaled_dot":
        return None  # no other score has a fused kernel
    tap = Tap(["*.attention.weights"])
    explicit = model.logits(subject.ids, tap=tap)
    if not tap.found:
        return None
    gap.add(model.logits(subject.ids), explicit, subject.ids.numel())
    if model.supports_packing:
        ids, segments = subject.packed()
        explicit = model.logits(ids, segments, tap=tap)
        gap.add(model.logits(ids, segments), explicit, ids.numel())
    return gap.finding(subject.tolerance, f" and {len(tap.found)} layers")


def cached_is_uncached(subject: SequenceFixture) -> Finding:
    """Token by token and in chunks, with a state, against whole sequences."""
    model, ids, gap = subject.model, subject.ids, Gap()
    batch, length = ids.shape
    for widths in ((1,), CHUNKS):
        state = model.start(batch, length)
        done = 0
        for width in cycle(widths):
            piece = ids[:, done : done + width]
            done += piece.size(1)
            gap.add(model.extend(piece, None, state).float(), subject.logits[:, done - 1], batch)
            if done == length:
                break
    return gap.finding(subject.tolerance)


def batch_is_single(subject: SequenceFixture) -> Finding:
    """Rows side by side against each row alone."""
    gap = Gap()
    gap.add(subject.model.logits(subject.ids).float(), subject.logits, subject.ids.numel())
    return gap.finding(subject.tolerance, f" of {ROWS} rows")


def padded_is_unpadded(subject: SequenceFixture) -> Finding:
    """Rows filled up, with padding or with anything, and rows packed, against each row alone."""
    model, ids, gap = subject.model, subject.ids, Gap()
    lengths = torch.tensor(subject.prefixes())  # (B,)
    inside = torch.arange(ids.size(1)) < lengths[:, None]  # (B, T)
    for filling in (ids.masked_fill(~inside, subject.pad), ids):
        filled = filling[:, : max(subject.prefixes())]
        expected = subject.logits[:, : filled.size(1)]
        kept = inside[:, : filled.size(1)]
        gap.add(model.logits(filled).float()[kept], expected[kept], int(kept.sum()))
        _extend_ragged(subject, filled, lengths, gap)
    if not model.supports_packing:
        return gap.finding(subject.tolerance)
    packed, segments = subject.packed()
    got = model.logits(packed, segments).float()[:, : int(lengths.sum())]
    gap.add(got, subject.unpacked(subject.logits), got.size(1))
    return gap.finding(subject.tolerance, f", {ROWS} records packed into a row among them")


def _extend_ragged(subject: SequenceFixture, prompts: Tensor, lengths: Tensor, gap: Gap) -> None:
    """Feed prompts of different lengths together, then a ragged chunk, then one token each."""
    ids, rows = subject.ids, torch.arange(ROWS)
    state = subject.model.start(ROWS, ids.size(1))
    seen = lengths
    got = subject.model.extend(prompts, lengths, state)
    gap.add(got.float(), subject.logits[rows, seen - 1], ROWS)
    more = torch.tensor([1, 2, 1][:ROWS])  # the longest row gets the least, so that all fit
    for width, counts in ((2, more), (1, None)):
        if int(seen.max()) + width > ids.size(1):
            return
        piece = ids.gather(1, seen[:, None] + torch.arange(width))  # (B, width)
        got = subject.model.extend(piece, counts, state)
        seen = seen + (width if counts is None else counts)
        gap.add(got.float(), subject.logits[rows, seen - 1], ROWS)


def scores_are_logits(subject: SequenceFixture) -> Finding:
    """The scored log-probabilities against the logits, normalised here."""
    model, ids, gap = subject.model, subject.ids, Gap()
    logs = subject.logits.log_softmax(-1)  # (B, T, V)
    following = ids.roll(-1, dims=1)
    following[:, -1] = IGNORE
    made_up = torch.randint(model.vocab_size, ids.shape, generator=torch.Generator().manual_seed(1))
    for targets in (following, made_up):
        gap.add(model.score(ids, targets).float(), _gathered(logs, targets), ids.numel())
    if model.supports_packing:
        packed, segments = subject.packed()
        logs = model.logits(packed, segments).float().log_softmax(-1)
        targets = packed.roll(-1, dims=1).masked_fill(segments == 0, IGNORE)
        got = model.score(packed, targets, segments).float()
        gap.add(got, _gathered(logs, targets), packed.numel())
    return gap.finding(subject.tolerance)


def _gathered(logs: Tensor, targets: Tensor) -> Tensor:
    """(B, T) log-probabilities of the targets from (B, T, V); 0 where a target is IGNORE."""
    found = logs.gather(-1, targets.clamp_min(0)[..., None]).squeeze(-1)
    return found.masked_fill(targets == IGNORE, 0.0)


def probabilities_sum_to_one(subject: SequenceFixture) -> Finding:
    """The sum over all tokens, from logits everywhere and from score, token by token, once."""
    model, size = subject.model, subject.model.vocab_size
    totals = subject.logits.double().log_softmax(-1).exp().sum(-1)  # (B, T)
    gap = Gap()
    gap.add(totals, torch.ones_like(totals), totals.numel())
    context = subject.ids[0, :CONTEXT]
    affordable = int(SCORING // (len(context) * max(1, subject.parameters)))
    many = min(size, max(256, affordable))
    probabilities = subject.logits[0, len(context) - 1].double().softmax(-1)  # (V,)
    order = probabilities.argsort(descending=True)
    total = probabilities[order[many:]].sum()
    for first in range(0, many, 1024):
        tokens = order[first : min(first + 1024, many)]
        ids = context.expand(len(tokens), -1)
        targets = torch.full_like(ids, IGNORE)
        targets[:, -1] = tokens
        total = total + model.score(ids, targets)[:, -1].double().exp().sum()
    gap.add(total, torch.ones_like(total), 1)
    how = f"all {size:,}" if many == size else f"the likeliest {many:,} of {size:,}"
    return gap.finding(subject.tolerance, f", {how} tokens scored one by one at one of them")


def causality_by_gradient(subject: SequenceFixture) -> Finding | None:
    """No output depends on a later input: not by gradient, nor when the future is changed."""
    length = subject.ids.size(1)
    if length < 2:
        return None
    gap = Gap()
    for cut in sorted({1, length // 2, length - 1}):
        changed = subject.ids[:1].clone()
        changed[:, cut:] = (changed[:, cut:] + 1) % subject.model.vocab_size
        got = subject.model.logits(changed)[:, :cut].float()
        gap.add(got, subject.logits[:1, :cut], cut)
    held, detail = gap.finding(subject.tolerance, " when the future is changed")
    embedding = getattr(subject.model, "embedding", None)
    if not isinstance(embedding, nn.Embedding):
        return held, detail
    with torch.enable_grad():
        ahead, behind, count = _gradients(subject.model, embedding, subject.ids[:1])
    # a Fourier transform mixes all positions, and they cancel to rounding; elsewhere it is exact
    transforms = "hyena" in getattr(subject.model.config, "kinds", ())
    allowed = TOLERANCE * behind if transforms else 0.0
    told = f"gradient {ahead:.1g} from after t, at least {behind:.1e} up to t, at {count} positions"
    return held and ahead <= allowed and behind > 0, f"{told}; {detail}"


def _gradients(
    model: LanguageModel, embedding: nn.Embedding, ids: Tensor
) -> tuple[float, float, int]:
    """For outputs at t, of how many t: the largest gradient after t; the least of those up to t."""
    inputs: list[Tensor] = []

    def cut_here(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor:
        inputs.append(output.detach().requires_grad_())
        return inputs[-1]

    handle = embedding.register_forward_hook(cut_here)
    try:
        logits = model.logits(ids)[0]  # (T, V)
    finally:
        handle.remove()
    if len(inputs) != 1:
        raise ValueError(f"the model embeds its input {len(inputs)} times, expected once")
    probe = torch.randn(logits.size(-1), generator=torch.Generator().manual_seed(2)).to(logits)
    places = sorted({round(i * (len(logits) - 2) / (GRADIENTS - 1)) for i in range(GRADIENTS)})
    ahead, behind = 0.0, float("inf")
    for t in places:
        (gradient,) = torch.autograd.grad(logits[t], inputs[0], probe, retain_graph=True)
        size = gradient[0].abs().amax(-1).nan_to_num(float("inf"))  # (T,)
        ahead, behind = (
            max(ahead, float(size[t + 1 :].max())),
            min(behind, float(size[: t + 1].max())),
        )
    return ahead, behind, len(places)


GREEDY = 12  # tokens decoded by one beam and greedily
DEEP = 4  # tokens of the sequences that are all tried
LARGE = 100_000_000  # parameters from which fewer sequences are tried

Sequence = tuple[int, ...]


def beam_one_is_greedy(subject: SequenceFixture) -> Finding:
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


def beam_is_brute_force(subject: SequenceFixture) -> Finding | None:
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
    subject: SequenceFixture, prompt: Tensor, few: list[int], deep: int
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
