"""What a linear model of n-grams weighs: its largest coefficients, and exactly what each n-gram of
a text adds to an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.layers.source import Source
from regard.models.linear import GramAssessor
from regard.tokens import Tokenizer

from .attribution import centred
from .page import Bars, Page, Table

MOST_BARS = 12  # n-grams of a text
MOST_GRAMS = 6  # of each answer, for it and against it
MOST_OUTPUTS = 12


def spelt(code: int, vocab_size: int, tokenizer: Tokenizer) -> str:
    """The n-gram that a code stands for: see `models.bags.grams`."""
    number, second = divmod(code, 2)
    tokens = []
    while number:
        number, digit = divmod(number, vocab_size + 1)
        tokens.append(tokenizer.text(digit - 1))
    return "".join(reversed(tokens)).strip() + (" (second text)" if second else "")


def of_grams(model: GramAssessor, source: Source, output: int) -> tuple[Tensor, Tensor]:
    """The n-grams of one sequence that the model knows, by number, and what each adds to an output:
    (N,) both. With the bias they sum to it.
    """
    bags = model.bags(source)
    weights = centred(model.task, model.coefficients)[bags.columns, output]
    return bags.columns, bags.values * weights


def add_sum(
    page: Page,
    model: GramAssessor,
    tokenizer: Tokenizer,
    source: Source,
    outputs: Sequence[int],
    names: Sequence[str],
) -> None:
    """What the n-grams of a text add to these outputs."""
    page.section(
        "What the answer rests on",
        "The score of an answer is a sum over the n-grams of the text, and a bias: this is exact. "
        "<S> and <E> are the ends of the text.",
    )
    shown = []
    for output in outputs:
        columns, added = of_grams(model, source, output)
        order = added.abs().argsort(descending=True, stable=True)[:MOST_BARS].tolist()
        grams = [spelt(int(model.codes[columns[i]]), model.vocab_size, tokenizer) for i in order]
        bias = float(centred(model.task, model.bias)[output])
        shown.append(
            Bars(
                grams,
                [float(added[i]) for i in order],
                title=f"The n-grams that count most for {names[output]}",
                unit=f"{len(added):,} n-grams add {float(added.sum()):.3g}, the bias {bias:.3g}",
            )
        )
    page.add(*shown)


def add_coefficients(
    page: Page, model: GramAssessor, tokenizer: Tokenizer, names: Sequence[str]
) -> None:
    """The n-grams with the largest coefficients, for and against each answer."""
    weights = centred(model.task, model.coefficients)  # (F, O)
    if not len(weights):
        return
    page.section(
        "Largest coefficients",
        f"Of {len(weights):,} n-grams, those that speak most for an answer and most against it, "
        "each with its coefficient.",
    )

    def told(column: Tensor) -> str:
        top = torch.topk(column, min(MOST_GRAMS, len(column)))
        pairs = [(int(model.codes[i]), float(column[i])) for i in top.indices.tolist()]
        return ", ".join(
            f"{spelt(code, model.vocab_size, tokenizer)} ({value:+.2g})"
            for code, value in pairs
            if value > 0
        )

    rows = [
        [name, told(column), told(-column).replace("(+", "(−")]
        for name, column in list(zip(names, weights.T, strict=True))[:MOST_OUTPUTS]
    ]
    page.add(Table(["", "for it", "against it"], rows))
