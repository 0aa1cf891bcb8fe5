"""Views of classifiers that count or are linear: weight matrices with sequence logos (`pwm`),
transition tables (`markov`), coefficients of n-grams and of windows of tokens, and exactly what
each token or n-gram of a text adds to a score.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.layers.embeddings import Inputs
from regard.look.attribution import center, subtract_mean
from regard.look.counting_views import ngram_ids
from regard.look.internals import register_evidence, register_view
from regard.look.logo import motif_logo
from regard.look.page import Bars, Contributions, Facts, Heatmap, Logo, Page, Table, Text
from regard.look.page.component import visible
from regard.look.page_inputs import PredictionContext
from regard.look.unit_motifs import find_alphabet
from regard.models.class_counts import ClassMarkov, PWMClassifier, log_likelihoods
from regard.models.linear import NGramModel, WindowLogistic
from regard.models.motifs import PositionWeightMatrix
from regard.models.ngram_features import decode_ngram, list_ngrams
from regard.tokenizers import Tokenizer

MOST_CLASSES = 6  # whose tables are drawn
MOST_POSITIONS = 300  # of a weight matrix
LOGO_WIDTH = 50  # positions of one logo
LEAST_PROBABLE = 0.01  # a token that is less probable everywhere is not drawn
MOST_TOKENS = 32  # rows of a weight matrix, columns of a transition table
MOST_CONTEXTS = 64  # rows of a transition table
MOST_BARS = 12  # n-grams of a text that are drawn
MOST_ROWS = 60  # n-grams of a text that are listed
MOST_NGRAMS = 10  # of each output, for it and against it
MOST_OUTPUTS = 12


def _add_token_sum(
    page: Page, context: PredictionContext, added: Tensor, tokens: Sequence[str], terms: str
) -> None:
    """Draw each score as the sum of a bias and of what the tokens add, (T, C).

    Both are logarithms of probabilities. Minus their means over the classes, they give the same
    probabilities of the classes.
    """
    page.section(
        "What the prediction rests on",
        f"The score of a class is a sum over the tokens of the text, {terms}, plus the logarithm "
        "of the frequency of the class, each minus the mean over the classes: this is exact. "
        "Positive values support the class.",
    )
    model: Any = context.model
    added, bias = subtract_mean(added), subtract_mean(model.bias)
    rows = [(f"for {context.outputs[k]}", added[:, k].tolist()) for k in context.explained]
    page.add(Contributions(tokens, rows, title="What each token adds to the score", unit="nats"))
    for k in context.explained:
        total, constant = float(added[:, k].sum()), float(bias[k])
        facts = [("tokens add", total), ("bias", constant), ("score", total + constant)]
        page.add(Facts(facts, title=f"The score of {context.outputs[k]}"))
    _add_cut_note(page, context)


def _add_cut_note(page: Page, context: PredictionContext) -> None:
    if context.cut_note:
        page.add(Text(context.cut_note))


def _add_class_note(page: Page, names: Sequence[str]) -> None:
    if len(names) > MOST_CLASSES:
        page.add(Text(f"The first {MOST_CLASSES} of {len(names):,} classes are drawn."))


@register_evidence(PWMClassifier)
def add_pwm_sum(page: Page, context: PredictionContext, model: PWMClassifier) -> None:
    ids = context.source.ids[0, 1:-1]  # (W,)
    added = model.logs[torch.arange(len(ids)), ids]  # (W, C)
    tokens = [context.tokenizer.text(i) for i in ids.tolist()]
    _add_token_sum(page, context, added, tokens, "log P(token at its position | class)")


@register_view(PWMClassifier)
def add_weight_matrices(page: Page, context: PredictionContext, model: PWMClassifier) -> None:
    """Draw the weight matrix of every class, and its sequence logo where tokens are letters."""
    tokenizer, names = context.tokenizer, context.outputs
    count = len(model.logs)
    shown = min(count, MOST_POSITIONS)
    cut = f" The first {shown:,} of {count:,} positions are drawn." if shown < count else ""
    logs = model.logs[:shown].numpy()  # (W, V, C)
    ids = _frequent_tokens(np.exp(logs).max(axis=(0, 2)), tokenizer)
    page.section(
        "Weight matrices",
        "All that this model knows: the probability of each token at each position, for each "
        "class. The map shows what a token adds to the score of the class, its log-probability "
        "minus the mean over the classes; the logo shows the information of each position of a "
        f"class.{cut}",
    )
    weights = logs - logs.mean(axis=2, keepdims=True)
    tokens, positions = [tokenizer.text(i) for i in ids], [str(j + 1) for j in range(shown)]
    classes = list(enumerate(names))[:MOST_CLASSES]
    for k, name in classes:
        if k or len(names) != 2:  # the matrices of two classes have opposite signs
            values, title = weights[:, ids, k].T, f"Weight matrix of {name}"
            page.add(Heatmap(values, tokens, positions, title, scale="diverging", unit="nats"))
    motifs = [_as_motif(np.exp(logs[:, ids, k]), ids, tokenizer) for k, _ in classes]
    tallest = max(float(motif.information().max()) if motif else 0.0 for motif in motifs)
    for (_, name), motif in zip(classes, motifs, strict=True):
        if motif is not None:
            page.add(*_logos(motif, f"Sequence logo of {name}", tallest))
    _add_class_note(page, names)


def _frequent_tokens(largest: NDArray[np.float64], tokenizer: Tokenizer) -> list[int]:
    """Return the tokens worth a row, in order, given the largest probability (V,) of each."""
    best = np.argsort(-largest, kind="stable")[:MOST_TOKENS]
    return sorted(int(i) for i in best if largest[i] >= LEAST_PROBABLE and i != tokenizer.start)


def _as_motif(
    probabilities: NDArray[np.float64], ids: Sequence[int], tokenizer: Tokenizer
) -> PositionWeightMatrix | None:
    """Return the motif of probabilities (W, A), without unknown letters such as N; None if tokens
    are words.
    """
    texts = [tokenizer.text(i) for i in ids]
    alphabet = find_alphabet(set(texts))
    if alphabet is None:
        return None
    letters = np.zeros((len(probabilities), alphabet.size))
    for i, text in enumerate(texts):
        digit = int(alphabet.encode(text)[0])
        if digit < alphabet.size:
            letters[:, digit] += probabilities[:, i]
    letters /= np.maximum(letters.sum(1, keepdims=True), 1e-300)
    return PositionWeightMatrix.of_counts(letters, alphabet, pseudocount=0)


def _logos(motif: PositionWeightMatrix, title: str, tallest: float) -> Iterator[Logo]:
    """Yield a sequence logo in parts that can be read, on an axis that fits the tallest stack."""
    possible = math.log2(motif.alphabet.size)
    most = min(possible, max(0.02, 1.1 * tallest))
    for first in range(0, motif.width, LOGO_WIDTH):
        rows = motif.probabilities[first : first + LOGO_WIDTH]
        part = PositionWeightMatrix.of_counts(rows, motif.alphabet, pseudocount=0)
        bits = float(part.information().sum())
        note = (
            f"positions {first + 1} to {first + len(rows)}, {bits:.2g} bits in all; a position can "
            f"have {possible:.3g}"
        )
        yield motif_logo(part, title, first=first + 1, note=note, most=most)


@register_evidence(ClassMarkov)
def add_markov_sum(page: Page, context: PredictionContext, model: ClassMarkov) -> None:
    source = context.source
    added = log_likelihoods(model.chains, source.ids, source.segments)[0]  # (T - 1, C)
    length = model.config.order - 1
    before = f"the {length} tokens before it" if length > 1 else "the token before it"
    terms = f"log P(token | {before}, class)" if length else "log P(token | class)"
    _add_token_sum(page, context, added, context.tokens[1:], terms)


@register_view(ClassMarkov)
def add_transition_tables(page: Page, context: PredictionContext, model: ClassMarkov) -> None:
    """Draw the transition table of every class, and where the classes differ."""
    tokenizer, names = context.tokenizer, context.outputs
    contexts, complete = _frequent_contexts(model)
    length = model.config.order - 1
    logs = torch.stack([_next_logs(chain, contexts) for chain in model.chains])  # (C, N, V)
    columns = _frequent_tokens(logs.exp().numpy().max(axis=(0, 1)), tokenizer)
    rows = ["".join(map(tokenizer.text, ids)).strip() or "any" for ids in contexts]
    part = f" Rows are the {len(rows)} contexts most frequent in training." * (not complete)
    page.section(
        "Transition tables",
        f"A Markov chain for every class: the probability of each token (across) after the "
        f"{length} before it (down). <S> is the beginning of a record, <E> its end.{part}"
        if length
        else "The chosen model has no context: the probability of each token in each class.",
    )
    tokens = [tokenizer.text(i) for i in columns]
    logs = logs[..., columns]
    probabilities, weights = logs.exp().numpy(), (logs.double() - logs.double().mean(0)).numpy()
    weights[~np.isfinite(weights)] = np.nan  # what can never follow is hatched
    tables, differences = [], []
    for k, name in list(enumerate(names))[:MOST_CLASSES]:
        values, title = probabilities[k], f"P(next | before), {name}"
        tables.append(Heatmap(values, rows, tokens, title, scale="weights", unit="probability"))
        if k or len(names) != 2:  # the differences of two classes have opposite signs
            values, title = weights[k], f"What a transition adds to the score of {name}"
            heatmap = Heatmap(values, rows, tokens, title, scale="diverging", unit="nats")
            differences.append(heatmap)
    tables += differences
    for i in range(0, len(tables), 3):
        page.add(*tables[i : i + 3])
    _add_class_note(page, names)


def _frequent_contexts(model: ClassMarkov) -> tuple[list[list[int]], bool]:
    """Return the most frequent contexts, each as long as a chain reads back, and whether these are
    all that occur in training.
    """
    length = model.config.order - 1
    if not length:
        return [[]], True
    counts: Counter[tuple[int, ...]] = Counter()
    complete = True
    for chain in model.chains:
        table: Any = chain.table
        low, high = table.borders()[length - 1 : length + 1]
        totals = table.totals(table.counts)[low:high]  # (N,) of the class
        complete &= int((totals > 0).sum()) <= MOST_CONTEXTS
        for i in totals.argsort(descending=True, stable=True)[:MOST_CONTEXTS].tolist():
            if totals[i]:
                counts[tuple(ngram_ids(table, low + i))] += int(totals[i])
    most = [list(ids) for ids, _ in counts.most_common(MOST_CONTEXTS)]
    return sorted(most), complete and len(counts) <= MOST_CONTEXTS


def _next_logs(chain: Any, contexts: Sequence[Sequence[int]]) -> Tensor:
    """Return (N, V): log P of every token after each of N contexts of one length."""
    ids = torch.tensor([list(context) for context in contexts], dtype=torch.int64)
    nodes = [node[:, -1] for node in chain.table.contexts(ids)] if ids.size(1) else []
    logs: Tensor = chain.log_rows(nodes, len(contexts))
    return logs


@register_view(WindowLogistic)
def add_window_coefficients(page: Page, context: PredictionContext, model: WindowLogistic) -> None:
    """Draw the coefficient of every token at every distance, for each class."""
    names = context.outputs
    table = center(model, model.coefficients).view(-1, model.vocab_size, len(names)).numpy()
    largest = np.abs(table).max(axis=(0, 2))  # of (W, V, O)
    best = np.argsort(-largest, kind="stable")[:MOST_TOKENS]
    ids = sorted(int(i) for i in best if largest[i] > 0)
    if not ids:
        return
    page.section(
        "Coefficients",
        "The score of a class at a position is a sum over the tokens around it, one coefficient "
        "for each token (down) at each distance (across; 0 is the position itself), plus a bias: "
        "this is exact.",
    )
    half, bias = len(table) // 2, center(model, model.bias).tolist()
    tokens = [context.tokenizer.text(i) for i in ids]
    distances = [f"{j - half:+d}" if j != half else "0" for j in range(len(table))]
    for k, name in list(enumerate(names))[:MOST_CLASSES]:
        title, unit = f"Coefficients of {name}", f"logits; bias {bias[k]:.3g}"
        values = table[:, ids, k].T
        page.add(Heatmap(values, tokens, distances, title, scale="diverging", unit=unit))
    _add_class_note(page, names)


def ngram_name(code: int, model: NGramModel, tokenizer: Tokenizer) -> str:
    """Return how an n-gram is displayed: `TATA`, or `TATA at 12` if the model distinguishes
    positions. The first token of a text is at 1.
    """
    ids, second, position = decode_ngram(code, model.vocab_size, model.config.n_positions)
    start, end = model.markers.tolist()
    first, last = len(ids) > 1 and ids[0] == start, len(ids) > 1 and ids[-1] == end
    name = written(ids[first : len(ids) - last], tokenizer)
    name = first * tokenizer.text(start) + name + last * tokenizer.text(end)
    if position is not None and not first:  # what follows `<S>` is at the beginning anyway
        name += f" at {position}"
    return name + (" (second text)" if second else "")


def written(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Return tokens as text with visible spaces at its ends; overlapping tokens are separated."""
    if not ids:
        return ""
    texts = [tokenizer.text(i) for i in ids]
    text = tokenizer.decode(list(ids))
    if text.strip() != "".join(texts).strip():
        return " ".join(texts)
    return text if text and text == text.strip() and text.isprintable() else visible(text)


def ngram_terms(model: NGramModel, source: Inputs, output: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the n-grams of one sequence that the model knows, by index, with their values and
    weights: (N,) each. The sum of value × weight and the bias is the output.
    """
    row = model.features(source)
    index = torch.from_numpy(row.indices.astype(np.int64))
    weights = center(model, model.coefficients)[index, output]
    return index, torch.from_numpy(row.data), weights


def _count_unknown(model: NGramModel, source: Inputs, known: int) -> int:
    """Return how many different n-grams of one sequence have no coefficient."""
    start, end = model.markers.tolist()
    config = model.config
    _, codes = list_ngrams(source, config.order, model.vocab_size, start, end, config.n_positions)
    return len(torch.unique(codes)) - known


@register_evidence(NGramModel)
def add_ngram_sum(page: Page, context: PredictionContext, model: NGramModel) -> None:
    """Draw and list what the n-grams of a text add to the scores."""
    names = context.outputs
    positions = (
        " “TA at 12” is an n-gram that begins at token 12 of the text, the first being 1: all "
        "training records have one length, and the model has a weight for each position."
        if model.config.n_positions > 1
        else ""
    )
    single = context.predictor.targets.kind.single
    mean = f", each minus the mean over the {len(names)} classes" if single else ""
    page.section(
        "What the prediction rests on",
        "A score is a sum over the n-grams of the text, each value × weight, plus a bias"
        f"{mean}: this is exact. <S> and <E> are the ends of the text.{positions}",
    )
    for output in context.explained:
        index, values, weights = ngram_terms(model, context.source, output)
        added, bias = values * weights, float(center(model, model.bias)[output])
        order = added.abs().argsort(descending=True, stable=True).tolist()
        labels = [
            ngram_name(int(model.codes[index[i]]), model, context.tokenizer)
            for i in order[:MOST_ROWS]
        ]
        unit = f"{len(added):,} n-grams add {float(added.sum()):.3g}, the bias {bias:.3g}"
        if unknown := _count_unknown(model, context.source, len(index)):
            unit += f"; {unknown:,} others are not in the training records and add nothing"
        if order:
            title = f"The n-grams with the largest terms for {names[output]}"
            terms = [float(added[i]) for i in order[:MOST_BARS]]
            page.add(Bars(labels[:MOST_BARS], terms, title=title, unit=unit))
        rows: list[list[object]] = [
            [label, float(values[i]), float(weights[i]), float(added[i])]
            for label, i in zip(labels, order, strict=False)
        ]
        if len(order) > MOST_ROWS:
            rest = order[MOST_ROWS:]
            rows.append([f"{len(rest):,} other n-grams", None, None, float(added[rest].sum())])
        rows += [["bias", None, None, bias], ["score", None, None, float(added.sum()) + bias]]
        columns = ["n-gram", "value", "weight", "value × weight"]
        title, last = f"The score of {names[output]}", [len(rows) - 1]
        page.add(Table(columns, rows, ["left", *["right"] * 3], highlight=last, title=title))
    _add_cut_note(page, context)


@register_view(NGramModel)
def add_coefficients(page: Page, context: PredictionContext, model: NGramModel) -> None:
    """List the n-grams with the largest coefficients, for and against each output."""
    weights = center(model, model.coefficients)  # (F, O)
    if not len(weights):
        return
    positions = ", each at its position in the record" if model.config.n_positions > 1 else ""
    page.section(
        "Largest coefficients",
        f"Of {len(weights):,} n-grams{positions}, those with the largest coefficients for and "
        "against each output.",
    )

    def largest(column: Tensor, sign: str) -> str:
        top = torch.topk(column, min(MOST_NGRAMS, len(column)))
        return ", ".join(
            f"{ngram_name(int(model.codes[i]), model, context.tokenizer)} ({sign}{value:.2g})"
            for value, i in zip(*map(Tensor.tolist, top), strict=True)
            if value > 0
        )

    rows = [
        [name, largest(column, "+"), largest(-column, "−")]
        for name, column in list(zip(context.outputs, weights.T, strict=True))[:MOST_OUTPUTS]
    ]
    page.add(Table(["", "for it", "against it"], rows))
