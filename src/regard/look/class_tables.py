"""What is inside the classifiers that count: the weight matrix of every class with its sequence
logo (`pwm`), or its table of transitions (`markov`), and exactly what each token of a text adds; of
labels at positions, the coefficients around them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.layers.embeddings import Inputs
from regard.look.attribution import centred
from regard.look.counting_views import spelt
from regard.look.logo import panel
from regard.look.page import Contributions, Facts, Heatmap, Logo, Page, Text
from regard.look.unit_motifs import alphabet_of
from regard.models.class_counts import ClassMarkov, PWMClassifier, likelihoods
from regard.models.dirichlet_ngram import DirichletNGram
from regard.models.linear import WindowLogistic
from regard.models.motifs import PositionWeightMatrix
from regard.tokenizers import Tokenizer

MOST_CLASSES = 6  # whose tables are drawn
MOST_POSITIONS = 300  # of a weight matrix
STRETCH = 50  # positions of one logo
LEAST = 0.01  # a token that is nowhere as probable as this is not drawn
MOST_TOKENS = 32  # rows of a weight matrix, columns of a table of transitions
MOST_CONTEXTS = 64  # rows of a table of transitions


def add_tokens(
    page: Page,
    added: Tensor,
    bias: Tensor,
    tokens: Sequence[str],
    chosen: Sequence[int],
    names: Sequence[str],
    what: str,
) -> None:
    """The score of each answer as the sum that it is: `added` (T, C) by the tokens, and a bias.

    Both are logarithms of probabilities; less their means over the classes they say the same of
    which class it is.
    """
    page.section(
        "What the answer rests on",
        f"The score of a class is a sum over the tokens of the text, {what}, plus the logarithm of "
        "how frequent the class is, each less the mean over the classes: this is exact. What "
        "speaks for the class is above zero.",
    )
    added, bias = centred("label", added), centred("label", bias)
    rows = [(f"for {names[k]}", added[:, k].tolist()) for k in chosen]
    page.add(Contributions(tokens, rows, title="What each token adds to the score", unit="nats"))
    for k in chosen:
        whole = float(added[:, k].sum())
        page.add(
            Facts(
                [
                    ("tokens add", whole),
                    ("bias", float(bias[k])),
                    ("score", whole + float(bias[k])),
                ],
                title=f"The score of {names[k]}",
            )
        )


def add_matched(
    page: Page,
    model: PWMClassifier,
    tokenizer: Tokenizer,
    source: Inputs,
    chosen: Sequence[int],
    names: Sequence[str],
) -> None:
    """What each position of a text adds under the weight matrices."""
    ids = source.ids[0, 1:-1]  # (W,)
    added = model.logs[torch.arange(len(ids)), ids]  # (W, C)
    tokens = [tokenizer.text(i) for i in ids.tolist()]
    what = "log P(token at its position | class)"
    add_tokens(page, added, model.bias, tokens, chosen, names, what)


def add_matrices(
    page: Page, model: PWMClassifier, tokenizer: Tokenizer, names: Sequence[str]
) -> None:
    """The weight matrix of every class, and its sequence logo where tokens are letters."""
    count = len(model.logs)
    shown, cut = min(count, MOST_POSITIONS), ""
    if shown < count:
        cut = f" Of {count:,} positions the first {shown:,} are drawn."
    logs = model.logs[:shown].numpy()  # (W, V, C)
    ids = frequent(np.exp(logs).max(axis=(0, 2)), tokenizer)
    page.section(
        "Weight matrices",
        "All that this model knows: how probable each token is at each position, class by class. "
        "The map shows what a token there adds to the score of the class, its log-probability less "
        f"the mean over the classes; the logo how much a position of the class says at all.{cut}",
    )
    weights = logs - logs.mean(axis=2, keepdims=True)
    mirrored = len(names) == 2  # the matrix of the other class has the opposite signs
    for k, name in list(enumerate(names))[:MOST_CLASSES]:
        if not (mirrored and k == 0):
            page.add(
                Heatmap(
                    weights[:, ids, k].T,
                    [tokenizer.text(i) for i in ids],
                    [str(j + 1) for j in range(shown)],
                    title=f"Weight matrix of {name}",
                    scale="diverging",
                    unit="nats",
                )
            )
    found = [
        (name, motif)
        for k, name in list(enumerate(names))[:MOST_CLASSES]
        if (motif := motif_of(np.exp(logs[:, ids, k]), ids, tokenizer)) is not None
    ]
    tallest = max((float(motif.information().max()) for _, motif in found), default=0.0)
    for name, motif in found:
        page.add(*logos(motif, f"Sequence logo of {name}", tallest))
    tell_rest(page, names)


def add_windows(
    page: Page, model: WindowLogistic, tokenizer: Tokenizer, names: Sequence[str]
) -> None:
    """The coefficient of every token at every distance, class by class."""
    weights = centred(model.task, model.coefficients)  # (W V, O)
    table = weights.view(-1, model.vocab_size, len(names)).numpy()  # (W, V, O)
    largest = np.abs(table).max(axis=(0, 2))
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
    half = len(table) // 2
    for k, name in list(enumerate(names))[:MOST_CLASSES]:
        page.add(
            Heatmap(
                table[:, ids, k].T,
                [tokenizer.text(i) for i in ids],
                [f"{j - half:+d}" if j != half else "0" for j in range(len(table))],
                title=f"Coefficients of {name}",
                scale="diverging",
                unit=f"logits; bias {float(centred(model.task, model.bias)[k]):.3g}",
            )
        )
    tell_rest(page, names)


def tell_rest(page: Page, names: Sequence[str]) -> None:
    """Say where only the first classes are drawn."""
    if len(names) > MOST_CLASSES:
        page.add(Text(f"Drawn are the first {MOST_CLASSES} of {len(names):,} classes."))


def frequent(likeliest: NDArray[np.float64], tokenizer: Tokenizer) -> list[int]:
    """The tokens that are worth a row: those that are probable (V,) anywhere, in their order."""
    best = np.argsort(-likeliest, kind="stable")[:MOST_TOKENS]
    return sorted(int(i) for i in best if likeliest[i] >= LEAST and i != tokenizer.start)


def motif_of(
    probabilities: NDArray[np.float64], ids: Sequence[int], tokenizer: Tokenizer
) -> PositionWeightMatrix | None:
    """Probabilities (W, A) of letters as a motif; None of words. Unknown letters, such as N, are
    left out.
    """
    texts = [tokenizer.text(i) for i in ids]
    alphabet = alphabet_of(set(texts))
    if alphabet is None:
        return None
    found = np.zeros((len(probabilities), alphabet.size))
    for i, text in enumerate(texts):
        digit = int(alphabet.encode(text)[0])
        if digit < alphabet.size:
            found[:, digit] += probabilities[:, i]
    found /= np.maximum(found.sum(1, keepdims=True), 1e-300)
    return PositionWeightMatrix.of_counts(found, alphabet, pseudocount=0)


def logos(motif: PositionWeightMatrix, title: str, tallest: float) -> Iterator[Logo]:
    """A sequence logo in pieces that can be read, on an axis that fits the `tallest` stack."""
    possible = math.log2(motif.alphabet.size)
    most = min(possible, max(0.02, 1.1 * tallest))
    for first in range(0, motif.width, STRETCH):
        part = motif.probabilities[first : first + STRETCH]
        piece = PositionWeightMatrix.of_counts(part, motif.alphabet, pseudocount=0)
        bits = float(piece.information().sum())
        note = (
            f"positions {first + 1} to {first + len(part)}, {bits:.2g} bits in all; a position can "
            f"have {possible:.3g}"
        )
        yield panel(piece, title, first=first + 1, note=note, most=most)


def add_followed(
    page: Page,
    model: ClassMarkov,
    tokenizer: Tokenizer,
    source: Inputs,
    chosen: Sequence[int],
    names: Sequence[str],
) -> None:
    """What each token of a text adds under the chains."""
    added = likelihoods(model.chains, source.ids, source.segments)[0]  # (T - 1, C)
    tokens = [tokenizer.text(i) for i in source.ids[0, 1:].tolist()]
    back = model.config.order - 1
    before = f"the {back} tokens before it" if back > 1 else "the token before it"
    what = f"log P(token | {before}, class)" if back else "log P(token | class)"
    add_tokens(page, added, model.bias, tokens, chosen, names, what)


def add_chains(page: Page, model: ClassMarkov, tokenizer: Tokenizer, names: Sequence[str]) -> None:
    """The transition table of every class, and where the classes differ."""
    contexts, whole = contexts_of(model)
    back = model.config.order - 1
    table = torch.stack([following(chain, contexts) for chain in chains_of(model)])  # (C, N, V)
    probable = table.exp().numpy()
    columns = frequent(probable.max(axis=(0, 1)), tokenizer)
    rows = ["".join(tokenizer.text(i) for i in context).strip() or "any" for context in contexts]
    part = (
        "" if whole else f" Rows are the {len(rows)} contexts that are most frequent in training."
    )
    page.section(
        "Transition tables",
        f"A chain for every class: how probable each token (across) is after the {back} before it "
        f"(down). <S> is the beginning of a record, <E> its end.{part}"
        if back
        else "The model has chosen not to look back: how probable each token is in each class.",
    )
    shown = [tokenizer.text(i) for i in columns]
    tables = [
        Heatmap(
            probable[k][:, columns],
            rows,
            shown,
            title=f"P(next | before), {name}",
            scale="weights",
            unit="probability",
        )
        for k, name in list(enumerate(names))[:MOST_CLASSES]
    ]
    tables += differences(table[..., columns].numpy(), rows, shown, names)
    for i in range(0, len(tables), 3):
        page.add(*tables[i : i + 3])
    tell_rest(page, names)


def differences(
    logs: NDArray[np.float32], rows: Sequence[str], columns: Sequence[str], names: Sequence[str]
) -> list[Heatmap]:
    """What a transition (C, N, V) adds to the score of a class; of two classes the last one's,
    since the other's has the opposite signs.
    """
    weights = logs.astype(np.float64)
    weights -= weights.mean(axis=0)
    weights[~np.isfinite(weights)] = np.nan  # what can never follow is hatched
    return [
        Heatmap(
            weights[k],
            rows,
            columns,
            title=f"What a transition adds to the score of {name}",
            scale="diverging",
            unit="nats",
        )
        for k, name in list(enumerate(names))[:MOST_CLASSES]
        if k or len(names) != 2
    ]


def chains_of(model: ClassMarkov) -> list[DirichletNGram]:
    """The chains, of one class after the other."""
    return [chain for chain in model.chains if isinstance(chain, DirichletNGram)]


def contexts_of(model: ClassMarkov) -> tuple[list[list[int]], bool]:
    """The contexts to show, each as long as a chain reads back, and whether these are all that
    occur in training: else the most frequent.
    """
    back = model.config.order - 1
    if not back:
        return [[]], True
    seen: Counter[tuple[int, ...]] = Counter()
    whole = True
    for chain in chains_of(model):
        totals, first = seen_by(chain, back)
        whole &= int((totals > 0).sum()) <= MOST_CONTEXTS
        for at in totals.argsort(descending=True, stable=True)[:MOST_CONTEXTS].tolist():
            if totals[at]:
                seen[tuple(spelt(chain.table, first + at))] += int(totals[at])
    kept = [list(context) for context, _ in seen.most_common(MOST_CONTEXTS)]
    return sorted(kept), whole and len(seen) <= MOST_CONTEXTS


def seen_by(chain: DirichletNGram, back: int) -> tuple[Tensor, int]:
    """How often each context of so many tokens was seen in a class (N,), and the first's node."""
    low, high = chain.table.borders()[back - 1 : back + 1]
    return chain.table.totals(chain.table.counts)[low:high], low


def following(chain: DirichletNGram, contexts: Sequence[Sequence[int]]) -> Tensor:
    """(N, V) log P of every token after each of N contexts of one length."""
    ids = torch.tensor([list(context) for context in contexts], dtype=torch.int64)
    nodes = [node[:, -1] for node in chain.table.contexts(ids)] if ids.size(1) else []
    return chain.log_rows(nodes, len(contexts))
