"""Checks of models that generate: all ways to a probability agree, the future is not used, decoding
finds what brute force finds.

A translator is checked as the language model that it is for one source; the last two checks prove
that several sources do not disturb each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle, product

import torch
from torch import Tensor, nn

from regard.decoding import Beam, Generated, Greedy, Strategy, generate
from regard.decoding.engine import translate
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.language_model import IGNORE, LanguageModel
from regard.models.seq2seq import Seq2SeqModel
from regard.verify.fixtures import ROWS, TOLERANCE, Finding, Gap, LMFixture, Seq2SeqFixture, single

CHUNKS = (5, 1, 3, 2)  # widths in which a sequence is fed, over and over
N_GRADIENTS = 6  # positions whose gradient is taken
CONTEXT = 4  # tokens before the one whose probabilities are added up
MAX_PRODUCTS = 1e11  # multiplications that scoring one continuation after the other may take


def fused_is_explicit(fixture: LMFixture) -> Finding | None:
    """The fused attention kernel gives the logits of the explicit path, which forms the weights."""
    model, ids, gap = fixture.lm, fixture.ids, Gap()
    if getattr(model.config, "score", "scaled_dot") != "scaled_dot":
        return None  # no other score has a fused kernel
    tap = Tap(["*.attention.weights"])
    explicit = model.logits(ids, tap=tap)
    if not tap.activations:
        return None
    gap.add(model.logits(ids), explicit, ids.numel())
    if model.supports_packing:
        ids, segments = fixture.pack()
        explicit = model.logits(ids, segments, tap=tap)
        gap.add(model.logits(ids, segments), explicit, ids.numel())
    return gap.finding(fixture.tolerance, f" and {len(tap.activations)} layers")


def cached_is_uncached(fixture: LMFixture) -> Finding:
    """Decoding with a state, token by token or in chunks, gives the logits of whole sequences."""
    model, ids, gap = fixture.lm, fixture.ids, Gap()
    batch, length = ids.shape
    for widths in ((1,), CHUNKS):
        state = model.init_state(batch, length)
        done = 0
        for width in cycle(widths):
            piece = ids[:, done : done + width]
            done += piece.size(1)
            gap.add(model.step(piece, None, state).float(), fixture.outputs[:, done - 1], batch)
            if done == length:
                break
    return gap.finding(fixture.tolerance)


def batch_is_single(fixture: LMFixture) -> Finding:
    """A row gives the same logits in a batch as by itself."""
    gap = Gap()
    gap.add(fixture.lm.logits(fixture.ids).float(), fixture.outputs, fixture.ids.numel())
    return gap.finding(fixture.tolerance, f" of {ROWS} rows")


def padded_is_unpadded(fixture: LMFixture) -> Finding:
    """Padding, whatever it holds, and records packed into one row change no logits."""
    model, ids, gap = fixture.lm, fixture.ids, Gap()
    lengths = torch.tensor(fixture.prefixes)  # (B,)
    width = max(fixture.prefixes)
    inside = torch.arange(width) < lengths[:, None]  # (B, width)
    for padded in (ids[:, :width].masked_fill(~inside, fixture.pad), ids[:, :width]):
        expected = fixture.outputs[:, :width]
        gap.add(model.logits(padded).float()[inside], expected[inside], int(inside.sum()))
        _step_ragged(fixture, padded, lengths, gap)
    if not model.supports_packing:
        return gap.finding(fixture.tolerance)
    packed, segments = fixture.pack()
    logits = model.logits(packed, segments).float()[:, : int(lengths.sum())]
    gap.add(logits, fixture.pack_values(fixture.outputs), logits.size(1))
    return gap.finding(fixture.tolerance, f", {ROWS} records packed into a row among them")


def _step_ragged(fixture: LMFixture, prompts: Tensor, lengths: Tensor, gap: Gap) -> None:
    """Feed prompts of different lengths at once, then a ragged chunk, then one token each."""
    model, ids, rows = fixture.lm, fixture.ids, torch.arange(ROWS)
    state = model.init_state(ROWS, ids.size(1))
    logits = model.step(prompts, lengths, state)
    gap.add(logits.float(), fixture.outputs[rows, lengths - 1], ROWS)
    counts = torch.tensor([1, 2, 1][:ROWS])  # the longest row gets the least, so that all fit
    for width, new in ((2, counts), (1, None)):
        if int(lengths.max()) + width > ids.size(1):
            return
        piece = ids.gather(1, lengths[:, None] + torch.arange(width))  # (B, width)
        logits = model.step(piece, new, state)
        lengths = lengths + (width if new is None else new)
        gap.add(logits.float(), fixture.outputs[rows, lengths - 1], ROWS)


def scores_are_logits(fixture: LMFixture) -> Finding:
    """`score` gives the log-softmax of the logits."""
    model, ids, gap = fixture.lm, fixture.ids, Gap()
    log_probs = fixture.outputs.log_softmax(-1)  # (B, T, V)
    following = ids.roll(-1, dims=1)
    following[:, -1] = IGNORE
    generator = torch.Generator().manual_seed(1)
    for targets in (following, torch.randint(model.vocab_size, ids.shape, generator=generator)):
        gap.add(model.score(ids, targets).float(), _gather(log_probs, targets), ids.numel())
    if model.supports_packing:
        packed, segments = fixture.pack()
        log_probs = model.logits(packed, segments).float().log_softmax(-1)
        targets = packed.roll(-1, dims=1).masked_fill(segments == 0, IGNORE)
        scores = model.score(packed, targets, segments).float()
        gap.add(scores, _gather(log_probs, targets), packed.numel())
    return gap.finding(fixture.tolerance)


def _gather(log_probs: Tensor, targets: Tensor) -> Tensor:
    """Return (B, T) log-probabilities of targets from (B, T, V); 0 where a target is IGNORE."""
    chosen = log_probs.gather(-1, targets.clamp_min(0)[..., None]).squeeze(-1)
    return chosen.masked_fill(targets == IGNORE, 0.0)


def probabilities_sum_to_one(fixture: LMFixture) -> Finding:
    """Probabilities sum to one: by logits at every position, by `score` of each token at one."""
    model, size = fixture.lm, fixture.lm.vocab_size
    totals = fixture.outputs.double().log_softmax(-1).exp().sum(-1)  # (B, T)
    gap = Gap()
    gap.add(totals, torch.ones_like(totals), totals.numel())
    context = fixture.ids[0, :CONTEXT]
    affordable = int(MAX_PRODUCTS // (len(context) * max(1, fixture.n_parameters)))
    n_scored = min(size, max(256, affordable))
    probabilities = fixture.outputs[0, len(context) - 1].double().softmax(-1)  # (V,)
    order = probabilities.argsort(descending=True)
    total = probabilities[order[n_scored:]].sum()
    for tokens in order[:n_scored].split(1024):
        ids = context.expand(len(tokens), -1)
        targets = torch.full_like(ids, IGNORE)
        targets[:, -1] = tokens
        total = total + model.score(ids, targets)[:, -1].double().exp().sum()
    gap.add(total, torch.ones_like(total), 1)
    scored = f"all {size:,}" if n_scored == size else f"the likeliest {n_scored:,} of {size:,}"
    return gap.finding(fixture.tolerance, f", {scored} tokens scored one by one at one of them")


def causality_by_gradient(fixture: LMFixture) -> Finding | None:
    """No output depends on a later input: not by gradient, nor when the future is changed."""
    model, ids, gap = fixture.lm, fixture.ids[:1], Gap()
    length = ids.size(1)
    if length < 2:
        return None
    for cut in sorted({1, length // 2, length - 1}):
        changed = ids.clone()
        changed[:, cut:] = (changed[:, cut:] + 1) % model.vocab_size
        gap.add(model.logits(changed)[:, :cut].float(), fixture.outputs[:1, :cut], cut)
    ok, detail = gap.finding(fixture.tolerance, " when the future is changed")
    embedding = getattr(model, "embedding", None)
    if not isinstance(embedding, nn.Embedding):
        return ok, detail
    with torch.enable_grad():
        future, past, count = _gradients(model, embedding, ids)
    allowed = 0.0 if model.exactly_causal else TOLERANCE * past
    gradients = f"gradient {future:.1g} from after t, at least {past:.1e} up to t"
    return ok and future <= allowed and past > 0, f"{gradients}, at {count} positions; {detail}"


def _gradients(
    model: LanguageModel, embedding: nn.Embedding, ids: Tensor
) -> tuple[float, float, int]:
    """Return the largest gradient of an output with respect to a later input, the smallest of the
    largest with respect to an input up to it, and how many outputs were tried.
    """
    inputs: list[Tensor] = []

    def cut_graph(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        inputs.append(output.detach().requires_grad_())
        return inputs[-1]

    handle = embedding.register_forward_hook(cut_graph)
    try:
        logits = model.logits(ids)[0]  # (T, V)
    finally:
        handle.remove()
    if len(inputs) != 1:
        raise ValueError(f"the model embeds its input {len(inputs)} times, expected once")
    probe = torch.randn(logits.size(-1), generator=torch.Generator().manual_seed(2)).to(logits)
    last = len(logits) - 2
    positions = sorted({round(i * last / (N_GRADIENTS - 1)) for i in range(N_GRADIENTS)})
    future, past = 0.0, float("inf")
    for t in positions:
        (gradient,) = torch.autograd.grad(logits[t], inputs[0], probe, retain_graph=True)
        size = gradient[0].abs().amax(-1).nan_to_num(float("inf"))  # (T,)
        future = max(future, float(size[t + 1 :].max()))
        past = min(past, float(size[: t + 1].max()))
    return future, past, len(positions)


# Decoding

GREEDY_TOKENS = 12  # decoded by one beam and greedily
DEPTH = 4  # tokens of the sequences that are all tried
LARGE = 100_000_000  # parameters from which fewer sequences are tried

TokenIds = tuple[int, ...]


def beam_one_is_greedy(fixture: LMFixture) -> Finding:
    """A beam of width 1 gives the tokens and log-probabilities of greedy decoding.

    If two tokens are equally probable, either is right, and the paths part.
    """
    half = max(1, fixture.max_len // 2)
    lengths = [min(n, half) for n in fixture.prefixes]
    prompts = [row[:n].tolist() for row, n in zip(fixture.ids, lengths, strict=True)]
    max_new = max(1, min(GREEDY_TOKENS, fixture.max_len - max(lengths) + 1))
    outputs = [
        generate(fixture.lm, prompts, strategy, max_new=max_new, end=fixture.end, pad=fixture.pad)
        for strategy in (Greedy(), Beam(width=1))
    ]
    tokens, ties, worst = 0, 0, 0.0
    for number, ((greedy,), (beam,)) in enumerate(zip(*outputs, strict=True)):
        steps = zip(greedy.ids, greedy.log_probs, beam.ids, beam.log_probs, strict=False)
        for step, (token, log_prob, beam_token, beam_log_prob) in enumerate(steps):
            difference = abs(log_prob - beam_log_prob)
            if token != beam_token and difference > fixture.tolerance:
                choices = f"greedy takes {token}, a beam {beam_token}"
                return False, f"prompt {number}, token {step}: {choices}"
            worst = max(worst, difference)
            if token != beam_token:
                ties += 1
                break
            tokens += 1
        else:
            if len(greedy.ids) != len(beam.ids):
                return False, f"prompt {number}: greedy stops at {len(greedy.ids)}, a beam does not"
    parted = f", {ties} parted at a tie" * bool(ties)
    allowed = f"(allowed {fixture.tolerance:.1e} at the scale of the logits)"
    detail = f"max difference {worst:.1e} over {tokens} equal tokens after {len(prompts)} prompts"
    return worst <= fixture.tolerance, f"{detail}{parted} {allowed}"


def beam_is_brute_force(fixture: LMFixture) -> Finding | None:
    """A beam that is wide enough finds every sequence of a few tokens, with the score that `score`
    gives it, and ranks the best first.
    """
    prompt = fixture.ids[0, : max(1, min(3, fixture.max_len - DEPTH + 1))]
    depth = min(DEPTH, fixture.max_len - len(prompt) + 1)
    order = fixture.outputs[0, len(prompt) - 1].argsort(descending=True, stable=True).tolist()
    n_tokens = 2 if fixture.n_parameters > LARGE else 3
    tokens = [token for token in order if token != fixture.end][:n_tokens]
    if not tokens:
        return None
    expected = _score_all(fixture, prompt, tokens, depth)
    width = sum(len(tokens) ** n for n in range(depth + 1))  # all sequences
    banned = sorted(set(range(fixture.lm.vocab_size)) - {*tokens, fixture.end})

    def search(n_best: int) -> dict[TokenIds, float]:
        (beams,) = generate(
            fixture.lm,
            [prompt.tolist()],
            Beam(width=width, n_best=n_best),
            max_new=depth,
            end=fixture.end,
            pad=fixture.pad,
            banned=banned,
        )
        return {tuple(beam.ids): beam.score for beam in beams if not beam.dead_end}

    scores, allowed = search(width), depth * fixture.tolerance
    if scores.keys() != expected.keys():
        different = min(scores.keys() ^ expected.keys(), key=len)
        return False, f"{list(different)} is found by one of beam and brute force only"
    worst = max((abs(scores[ids] - expected[ids]) for ids in expected), default=0.0)
    ended = [ids for ids in expected if ids[-1] == fixture.end] or list(expected)
    best = max((expected[ids] for ids in ended), default=0.0)
    for ids in search(1):
        worst = max(worst, best - expected.get(ids, -math.inf))
    detail = f"max difference {worst:.1e} over {len(expected)} sequences of up to {depth} tokens"
    return worst <= allowed, f"{detail} (allowed {allowed:.1e} at the scale of the logits)"


def _score_all(
    fixture: LMFixture, prompt: Tensor, tokens: list[int], depth: int
) -> dict[TokenIds, float]:
    """Return the log-probability, by `score`, of every sequence that ends or is cut off."""
    sequences: list[TokenIds] = list(product(tokens, repeat=depth))
    for n in range(depth):
        sequences += [(*body, fixture.end) for body in product(tokens, repeat=n)]
    allowed = torch.zeros(fixture.lm.vocab_size, dtype=torch.bool)
    allowed[[*tokens, fixture.end]] = True

    def constrain(logits: Tensor, previous: Tensor) -> Tensor:
        return logits.masked_fill(~allowed, -math.inf)

    first = len(prompt) - 1
    ids = prompt.repeat(len(sequences), 1)  # (N, P)
    ids = nn.functional.pad(ids, (0, depth - 1), value=fixture.pad)  # (N, P + depth - 1)
    targets = torch.full_like(ids, IGNORE)
    for row, sequence in enumerate(sequences):
        targets[row, first : first + len(sequence)] = torch.tensor(sequence)
        ids[row, first + 1 : first + len(sequence)] = torch.tensor(sequence[:-1])
    totals = fixture.lm.score(ids, targets, constrain=constrain).double().sum(1).tolist()
    # After a dead end nothing is possible, and no beam should find what is impossible.
    return {s: t for s, t in zip(sequences, totals, strict=True) if math.isfinite(t)}


# Several sources

N_SOURCES, MAX_NEW = 12, 12  # sources that are translated, and the most tokens of a translation
STRATEGIES: tuple[Strategy, ...] = (Greedy(), Beam(width=4, length_penalty=1.0, n_best=4))


def sources_together_are_alone(fixture: Seq2SeqFixture) -> Finding:
    """A source gives the same logits padded in a batch, and packed into a row, as by itself."""
    model, source, gap = fixture.model, fixture.source.ids[0], Gap()
    lengths = sorted({max(1, len(source) // n) for n in (3, 2, 1)}, reverse=True)
    sources = [source[:n] for n in lengths]
    targets = fixture.ids[:1].expand(len(sources), -1)  # equal, so that only sources differ
    expected = torch.cat(
        [model.condition(single(ids)).logits(targets[:1]).float() for ids in sources]
    )  # (R, T, V)
    padded = source.new_full((len(sources), lengths[0], *source.shape[1:]), fixture.pad)
    for row, ids in enumerate(sources):
        padded[row, : len(ids)] = ids
    segments = (torch.arange(lengths[0]) < torch.tensor(lengths)[:, None]).long()
    logits = model.condition(Inputs(padded, segments)).logits(targets).float()
    gap.add(logits, expected, targets.numel())
    if model.supports_packing:
        numbers = torch.arange(1, len(sources) + 1)
        segments = numbers.repeat_interleave(torch.tensor(lengths))[None]
        packed = model.condition(Inputs(torch.cat(sources)[None], segments))
        segments = numbers.repeat_interleave(targets.size(1))[None]
        logits = packed.logits(targets.reshape(1, -1), segments).float()
        gap.add(logits.view_as(expected), expected, targets.numel())
    return gap.finding(fixture.tolerance, f" of {len(sources)} sources")


def translated_together_is_alone(fixture: Seq2SeqFixture) -> Finding:
    """A source has the same translation in a batch as by itself, with the log-probabilities of a
    computation without a cache.

    If two translations are equally probable, either is right.
    """
    model, source, gap, ties = fixture.model, fixture.source.ids[0], Gap(), 0
    sources = [
        source.roll(n, 0)[: 1 + len(source) * (n % 3 + 1) // 4].tolist() for n in range(N_SOURCES)
    ]
    banned = fixture.tokenizer.never_produced(model.vocab_size) if fixture.tokenizer else []
    start = int(fixture.ids[0, 0])

    def search(batch: list[list[int]], strategy: Strategy) -> list[list[Generated]]:
        return translate(
            model,
            batch,
            strategy,
            start=start,
            end=fixture.end,
            pad=fixture.pad,
            banned=banned,
            max_new=min(MAX_NEW, fixture.max_len),
        )

    for strategy in STRATEGIES:
        for number, translations in enumerate(search(sources, strategy)):
            ((alone, *_),), best = search([sources[number]], strategy), translations[0]
            if alone.ids != best.ids:
                if abs(alone.score - best.score) > fixture.tolerance * len(alone.ids):
                    both = f"alone {alone.ids}, together {best.ids}"
                    return False, f"source {number}: {both}, {strategy}"
                ties += 1
            for translation in translations:
                log_probs, ids = _score_uncached(model, sources[number], translation, start, banned)
                got = torch.tensor(translation.log_probs)
                gap.add(got, log_probs.gather(1, ids[:, None]).squeeze(1), len(ids))
                if strategy is STRATEGIES[0]:  # greedy takes the most probable, without a cache too
                    gap.add(got, log_probs.amax(1), 0)
    note = f", {N_SOURCES} sources by greedy search and by beams as if alone"
    return gap.finding(fixture.tolerance, note + f" but for {ties} ties" * bool(ties))


def _score_uncached(
    model: Seq2SeqModel,
    source: list[int],
    translation: Generated,
    start: int,
    banned: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Return (T, V) log-probabilities at all tokens of a translation at once, and its tokens."""
    ids = torch.tensor([start, *translation.ids])
    logits = model.condition(single(torch.tensor(source))).logits(ids[None, :-1])[0].float()
    logits[:, list(banned)] = -math.inf
    return logits.log_softmax(-1), ids[1:]
