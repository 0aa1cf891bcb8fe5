"""Attention is a dictionary that became fuzzy: the temperature says how much.

Decks 000 to 004 introduce attention as a soft hash table, a library, a film archive: a query is
compared with every key and returns the mean of the values, weighted by how well the keys fit. Here
keys are texts, compared by the cosine of their counts of letter triples; `layers.attention.attend`
weighs them, and as the temperature goes to 0 it becomes the `dict` that programmers know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.bundled import FILMS
from regard.errors import UserError
from regard.lab.inputs import two_columns
from regard.lab.result import Claim, Options, Result, Share
from regard.layers.attention import Cosine, attend
from regard.look.page import Distribution, Heatmap, Lines, Table, Text

COLD, HOT, STEPS = 1e-3, 1e3, 37  # temperatures
MOST_CUT = 4000  # misspelt keys that are tried: every letter of every key, if that is no more
MOST = 2000  # keys: the weights of all of them on all of them are formed
SHOWN = 24  # of them on a map
SURE, EVEN, FOUND = 0.99, 0.01, 0.9  # tolerances of the claims


class Archive:
    """Keys with their values; a key is met once."""

    def __init__(self, keys: Sequence[str], values: Sequence[str]) -> None:
        self.keys, self.values = list(keys), list(values)
        grams = sorted({gram for key in keys for gram in triples(key)})
        self.place = {gram: i for i, gram in enumerate(grams)}
        self.known = self.codes(keys)

    def codes(self, texts: Sequence[str]) -> Tensor:
        """(N,) texts to (1, 1, N, K) counts of the keys' letter triples, and one for all others."""
        made = np.zeros((len(texts), len(self.place) + 1), dtype=np.float32)
        for row, text in zip(made, texts, strict=True):
            for gram, many in Counter(triples(text)).items():
                row[self.place.get(gram, len(self.place))] += many
        return torch.from_numpy(made)[None, None]

    def look_up(self, queries: Sequence[str] | Tensor, temperature: float) -> NDArray[np.float64]:
        """(T, S): how much of each value is in the answer to each query, a text or its code."""
        q = queries if isinstance(queries, Tensor) else self.codes(queries)
        v = torch.eye(len(self.keys))[None, None]  # each value marked by a place of its own
        answer = attend(q, self.known, v, score=cosine(temperature))
        return np.asarray(answer[0, 0].double().numpy())


def triples(text: str) -> list[str]:
    """Every three letters in a row, with a blank at either end."""
    padded = f" {text.lower()} "
    return [padded[i : i + 3] for i in range(max(1, len(padded) - 2))]


def cosine(temperature: float) -> Cosine:
    """cos(q, k) / temperature."""
    score = Cosine(1, 1).requires_grad_(False)
    score.log_sharpness.fill_(-float(np.log(temperature)))
    return score


def opened(options: Options) -> Archive:
    """The user's keys and values, or the lecture's films."""
    path = options.file or FILMS
    keys, values, lines = two_columns(path, ("key", "value"))
    seen: dict[str, int] = {}
    for key, line in zip(keys, lines, strict=True):
        if key in seen:
            raise UserError(
                f"{path}:{line}: the key {key[:40]!r} is there already, on line {seen[key]}"
            )
        seen[key] = line
    if not 2 <= len(keys) <= MOST:
        raise UserError(f"{path}: {len(keys)} keys; from 2 to {MOST:,} can be looked up")
    return Archive(keys, values)


def misspelt(keys: Sequence[str], random: np.random.Generator) -> list[str]:
    """Each key with one letter missing, somewhere."""
    cuts = [int(random.integers(len(key))) for key in keys]
    return [key[:i] + key[i + 1 :] for key, i in zip(keys, cuts, strict=True)]


def lookup(options: Options) -> Result:
    """The experiment, on the user's dictionary or on the lecture's."""
    archive = opened(options)
    random = np.random.default_rng(options.seed)
    wrong = misspelt(archive.keys, random)
    temperatures = np.geomspace(COLD, HOT, STEPS)
    coded = archive.codes(wrong)
    exact = [archive.look_up(archive.known, float(t)) for t in temperatures]
    fuzzy = [archive.look_up(coded, float(t)) for t in temperatures]
    return Result(
        title="A dictionary that becomes fuzzy",
        question=QUESTION,
        reading=(
            "From left to right the temperature rises: on the left a query returns the value of "
            "its own key alone, as a dictionary does; on the right a mean of all values, "
            "whatever was asked; attention lives in between."
        ),
        readings=[
            "The higher the line, the more values there are in an answer: one on the left, all "
            "of them on the right.",
            "Each row is the answer to one key: dark on the diagonal is its own value, and what "
            "is dark beside it belongs to keys that are like it.",
        ],
        claims=claims(archive, exact, wrong, temperatures),
        tables=[examples(archive, wrong)],
        figures=[own(temperatures, exact, fuzzy), spread(temperatures, exact), field(archive)],
        panels=[slider(archive, wrong), Text(MADE)],
    )


QUESTION = (
    "A dictionary returns the value of the key that equals the query, or an error. Attention "
    "compares the query with every key and returns a mean of all values, weighted by a softmax of "
    "the comparison over a temperature. Is the one a limit of the other, and what is gained by "
    "not going there?"
)
MADE = (
    "How it is made. A key is the counts of its letter triples; a score is the cosine of two such "
    "counts, divided by the temperature; a value is marked by a one in a place of its own, so that "
    "the answer says how much of each value is in it. All of it is the model's own attention. "
    "Misspelt queries are keys with one letter missing, at a place drawn at random."
)


def own(
    temperatures: NDArray[np.float64],
    exact: list[NDArray[np.float64]],
    fuzzy: list[NDArray[np.float64]],
) -> Lines:
    """The weight of the right value."""
    xs = temperatures.tolist()
    series = [
        ("queries that are keys", xs, [float(np.diag(w).mean()) for w in exact]),
        ("misspelt queries", xs, [float(np.diag(w).mean()) for w in fuzzy]),
    ]
    return Lines(
        series,
        x_label="temperature",
        y_label="share of the right value in the answer",
        title="From a dictionary to a mean",
        log_x=True,
        levels={"all alike": 1 / len(exact[0])},
    )


def entropy(weights: NDArray[np.float64]) -> float:
    """Of the rows, in bits, on average."""
    logs = np.log2(np.where(weights > 0, weights, 1.0))
    return float(-(weights * logs).sum(1).mean())


def spread(temperatures: NDArray[np.float64], exact: list[NDArray[np.float64]]) -> Lines:
    """How many values an answer is made of, in bits."""
    return Lines(
        [("queries that are keys", temperatures.tolist(), [entropy(w) for w in exact])],
        x_label="temperature",
        y_label="entropy of the weights, bits",
        title="How many values there are in an answer",
        log_x=True,
        levels={"all of them": float(np.log2(len(exact[0])))},
    )


def field(archive: Archive) -> Heatmap:
    """Who is weighed by whom, at a temperature in between."""
    names = [value[:24] for value in archive.values[:SHOWN]]
    weights = archive.look_up(archive.keys, 0.2)[:SHOWN, :SHOWN]
    return Heatmap(
        weights,
        names,
        names,
        title="Weights at temperature 0.2: queries that are keys down, keys across",
        scale="weights",
        unit="weight",
    )


def examples(archive: Archive, wrong: Sequence[str]) -> Table:
    """What a dictionary and attention answer to misspelt queries."""
    weights = archive.look_up(wrong, 0.05)
    rows: list[list[object]] = []
    exact = dict(zip(archive.keys, archive.values, strict=True))
    for i in range(min(8, len(wrong))):
        best = int(weights[i].argmax())
        rows.append(
            [
                wrong[i],
                exact.get(wrong[i], "KeyError"),
                archive.values[best],
                float(weights[i, best]),
            ]
        )
    columns = ["query, one letter missing", "dict", "attention at 0.05", "its share"]
    return Table(columns, rows, title="Misspelt queries")


def slider(archive: Archive, wrong: Sequence[str]) -> Distribution:
    """The answer to one query at any temperature."""
    scores = cosine(1.0)(archive.codes(wrong[:1]), archive.codes(archive.keys))[0, 0, 0].numpy()
    return Distribution(
        list(archive.values),
        logits=scores / 0.1,
        title=f"The answer to {wrong[0]!r}: temperature 1 here is 0.1 above",
    )


def claims(
    archive: Archive,
    exact: list[NDArray[np.float64]],
    wrong: Sequence[str],
    temperatures: NDArray[np.float64],
) -> list[Claim]:
    """Both limits, what is between them, and what that is good for."""
    many = len(archive.keys)
    least = float(np.diag(exact[0]).min())
    off = float(np.abs(exact[-1] * many - 1).max())
    entropies = np.array([entropy(w) for w in exact])
    drop = max(0.0, float(-np.diff(entropies).min()))
    cut = [
        (k, key[:i] + key[i + 1 :]) for k, key in enumerate(archive.keys) for i in range(len(key))
    ]
    if len(cut) > MOST_CUT:
        cut = list(enumerate(wrong))
    found = archive.look_up([query for _, query in cut], COLD).argmax(1)
    share = Share(int((found == np.array([k for k, _ in cut])).sum()), len(cut))
    known = sum(query in set(archive.keys) for _, query in cut)
    return [
        Claim(
            "cold attention is a dictionary",
            f"at temperature {COLD:g} every key returns its own value with weight at least {SURE}",
            f"{least:.6f}, the least",
            least >= SURE,
        ),
        Claim(
            "hot attention is a plain mean",
            f"at temperature {HOT:g} every weight is within {EVEN:.0%} of 1/{many}",
            f"{off:.2%}, the farthest",
            off <= EVEN,
        ),
        Claim(
            "it becomes fuzzier as the temperature rises",
            "the entropy of the weights never falls by more than 1e-6 bits",
            f"{drop:.1e}, the largest fall",
            drop <= 1e-6,
        ),
        Claim.within(
            "attention finds what a dictionary misses",
            f"the right value for at least {FOUND:.0%} of keys with a letter missing",
            f"{share}; a dict finds {known} of {len(cut)}",
            share.interval,
            least=FOUND,
        ),
    ]
