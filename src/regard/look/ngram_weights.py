"""What a linear model of n-grams weighs: its largest coefficients, and exactly what each n-gram of
a text adds to an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.layers.embeddings import Inputs
from regard.look.attribution import centred
from regard.look.page import Bars, Page, Table
from regard.look.page.component import visible
from regard.models.linear import NGramModel
from regard.models.ngram_features import ngram, ngrams_of
from regard.tokenizers import Tokenizer

MOST_BARS = 12  # n-grams of a text that are drawn
MOST_ROWS = 60  # n-grams of a text that are listed
MOST_GRAMS = 10  # of each answer, for it and against it
MOST_OUTPUTS = 12


def spelt(code: int, model: NGramModel, tokenizer: Tokenizer) -> str:
    """The n-gram that a code of this model stands for, as it is displayed: `TATA`, or `TATA at 12`
    where the model tells places apart. The first token of a text is at 1.
    """
    ids, second, place = ngram(code, model.vocab_size, model.config.spread)
    start, end = model.markers.tolist()
    begins, ends = len(ids) > 1 and ids[0] == start, len(ids) > 1 and ids[-1] == end
    name = written(ids[begins : len(ids) - ends], tokenizer)
    name = begins * tokenizer.text(start) + name + ends * tokenizer.text(end)
    if place is not None and not begins:  # what follows `<S>` is at the beginning anyway
        name += f" at {place}"
    return name + (" (second text)" if second else "")


def written(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Tokens as text, spaces at the ends made visible; tokens that overlap are written apart."""
    if not ids:
        return ""
    texts = [tokenizer.text(i) for i in ids]
    text = tokenizer.decode(list(ids))
    if text.strip() != "".join(texts).strip():
        return " ".join(texts)
    return text if text and text == text.strip() and text.isprintable() else visible(text)


def of_grams(model: NGramModel, source: Inputs, output: int) -> tuple[Tensor, Tensor]:
    """The n-grams of one sequence that the model knows, by number, and what each adds to an output:
    (N,) both. With the bias they sum to it.
    """
    bags = model.bags(source)
    weights = centred(model.task, model.coefficients)[bags.columns, output]
    return bags.columns, bags.values * weights


def unknown(model: NGramModel, source: Inputs) -> int:
    """How many different n-grams of one sequence the model has no coefficient for."""
    start, end = model.markers.tolist()
    spread = model.config.spread
    _, codes = ngrams_of(source, model.config.order, model.vocab_size, start, end, spread)
    return len(torch.unique(codes)) - len(model.bags(source).columns)


def add_sum(
    page: Page,
    model: NGramModel,
    tokenizer: Tokenizer,
    source: Inputs,
    outputs: Sequence[int],
    names: Sequence[str],
) -> None:
    """What the n-grams of a text add to these outputs."""
    placed = (
        " “TA at 12” is an n-gram that begins at token 12 of the text, the first being 1: all "
        "training records have one length, and the model weighs an n-gram by its place."
        if model.config.spread > 1
        else ""
    )
    known = f", each less the mean over the {len(names)} classes" if model.task == "label" else ""
    page.section(
        "What the answer rests on",
        "The score of an answer is a sum over the n-grams of the text, each value × weight, plus a "
        f"bias{known}: this is exact. <S> and <E> are the ends of the text.{placed}",
    )
    missing = unknown(model, source)
    for output in outputs:
        columns, added = of_grams(model, source, output)
        order = added.abs().argsort(descending=True, stable=True).tolist()
        bias = float(centred(model.task, model.bias)[output])
        spoken = [spelt(int(model.codes[columns[i]]), model, tokenizer) for i in order[:MOST_ROWS]]
        unit = f"{len(added):,} n-grams add {float(added.sum()):.3g}, the bias {bias:.3g}"
        if missing:
            unit += f"; {missing:,} others are not in the training records and add nothing"
        if order:
            page.add(
                Bars(
                    spoken[:MOST_BARS],
                    [float(added[i]) for i in order[:MOST_BARS]],
                    title=f"The n-grams that count most for {names[output]}",
                    unit=unit,
                )
            )
        page.add(listed(model, source, output, spoken, order, f"The score of {names[output]}"))


def listed(
    model: NGramModel,
    source: Inputs,
    output: int,
    spoken: Sequence[str],
    order: Sequence[int],
    title: str,
) -> Table:
    """The sum that an output is, term by term: the first terms in this order by their names."""
    values = model.bags(source).values
    columns, added = of_grams(model, source, output)
    weights = centred(model.task, model.coefficients)[columns, output]
    rows: list[list[object]] = [
        [name, float(values[i]), float(weights[i]), float(added[i])]
        for name, i in zip(spoken, order, strict=False)
    ]
    rest = float(added[list(order[len(rows) :])].sum())
    if len(order) > len(rows):
        rows.append([f"{len(order) - len(rows):,} other n-grams", None, None, rest])
    bias = float(centred(model.task, model.bias)[output])
    rows += [["bias", None, None, bias], ["score", None, None, float(added.sum()) + bias]]
    return Table(
        ["n-gram", "value", "weight", "value × weight"],
        rows,
        align=["left", "right", "right", "right"],
        highlight=[len(rows) - 1],
        title=title,
    )


def add_coefficients(
    page: Page, model: NGramModel, tokenizer: Tokenizer, names: Sequence[str]
) -> None:
    """The n-grams with the largest coefficients, for and against each answer."""
    weights = centred(model.task, model.coefficients)  # (F, O)
    if not len(weights):
        return
    placed = ", each at its place in the record" if model.config.spread > 1 else ""
    page.section(
        "Largest coefficients",
        f"Of {len(weights):,} n-grams{placed}, those that speak most for an answer and most "
        "against it, each with its coefficient.",
    )

    def told(column: Tensor) -> str:
        top = torch.topk(column, min(MOST_GRAMS, len(column)))
        pairs = [(int(model.codes[i]), float(column[i])) for i in top.indices.tolist()]
        return ", ".join(
            f"{spelt(code, model, tokenizer)} ({value:+.2g})" for code, value in pairs if value > 0
        )

    rows = [
        [name, told(column), told(-column).replace("(+", "(−")]
        for name, column in list(zip(names, weights.T, strict=True))[:MOST_OUTPUTS]
    ]
    page.add(Table(["", "for it", "against it"], rows))
