"""Attention is a weighted mean (`kernels`), and a dictionary that became fuzzy (`lookup`).

Both run `layers.attention.attend` on plain data with one score or another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.bundled import FILMS
from regard.data.formats import SkippedRecords
from regard.errors import UserError
from regard.evaluation.head_scores import entropy_bits
from regard.lab.experiment import (
    ABOVE,
    Claim,
    Mean,
    Options,
    Proportion,
    Result,
    curves,
    generator,
)
from regard.layers.attention import (
    Cosine,
    Gaussian,
    Score,
    attend,
    dot,
    negative_distance,
    negative_log_distance,
    scaled_dot,
)
from regard.layers.positions import sinusoids
from regard.layers.tap import Tap
from regard.look.page import Distribution, Heatmap, Lines, Table
from regard.registry import TABLES
from regard.training.loop import seed_of

Array = NDArray[np.float64]
Points = tuple[Array, Array]

# Deck 003 prints three of its points; A sin(B x + C) passes through them.
PRINTED = ((1.36, 1.79), (3.40, -1.77), (6.05, -2.17))
QUERY = 4.21
AMPLITUDE, NOISE = 2.95883, 0.4  # the amplitude at which the third point lies on it too
NARROWEST, WIDEST, N_BANDWIDTHS = 0.02, 2.0, 25  # in standard deviations of x
D_CODE, RANGE = 16, 8.0  # width of the code of x, and the positions that its range is mapped to
N_SLIDERS = 3  # queries whose results can be made colder or hotter
MIN_POINTS = 12  # of a user's file
EXACT = 1e-5  # fp32: two ways to one number

INVERSE, NEGATIVE, UNIT, TUNED = "1/d", "softmax of −d", "Gaussian, h = 1", "Gaussian, h chosen"
FREE, LEARNED, FULL = "x·x, no parameters", "W_Q and W_K", "W_Q, W_K and W_V"
FIXED = (INVERSE, NEGATIVE, UNIT, FREE)

Errors = Mapping[str, Sequence[float]]  # by kind of weights, one for each draw


def kernel_claims(points: Points, errors: Errors, *, quick: bool = False) -> list[Claim]:
    x, y = points
    grid = np.linspace(x.min(), x.max(), 97) + 1e-3
    distances = np.abs(grid[:, None] - x)  # (T, S)

    def equal(name: str, score: Score, weights: Array) -> Claim:
        """`attend` against the formula in double precision."""
        expected = (weights @ y) / weights.sum(1)
        gap = float(np.abs(smooth(grid, points, score)[0] - expected).max())
        stated = f"attend and Σ w y / Σ w differ by at most {EXACT:g} of the largest |y|"
        return Claim.exact(name, stated, gap / float(np.abs(y).max()), most=EXACT)

    def gains(name: str, other: str, slack: float = 0.0) -> Claim:
        gap = Mean.of(np.subtract(errors[FULL], errors[other]).tolist())
        bound = f"at most {slack:g}" if slack else "below 0"
        stated = f"error of {FULL} less that of {other}: upper end of the 95% interval {bound}"
        return Claim.within(name, stated, gap, most=slack or -ABOVE, may_fall=quick)

    return [
        equal("1/d is attention", negative_log_distance, 1 / distances),
        equal("a Gaussian kernel is attention", gaussian(0.5), np.exp(-2 * distances**2)),
        equal("soft lookup by −d is attention", negative_distance, np.exp(-distances)),
        *(gains(f"learned attention beats {name}", name) for name in FIXED),
        gains(f"... and is no worse than {TUNED}", TUNED, slack=0.05),
        gains("learning the values too gains more", LEARNED),
    ]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the experiment on kernels."""

    draws: int
    points: int = 48  # of each draw, to learn from
    tested: int = 200
    steps: int = 400


LARGE, SMALL = Plan(draws=30), Plan(draws=4, points=32, steps=200)


def wave(x: Array) -> Array:
    a1, a2, _ = (math.asin(abs(y) / AMPLITUDE) for _, y in PRINTED)
    (x1, _), (x2, _), _ = PRINTED
    frequency = (a1 + a2) / (x2 - x1)  # from π - a1 to π + a2
    return AMPLITUDE * np.sin(frequency * (x - x1) + math.pi - a1)


def sample(n: int, random: np.random.Generator) -> Points:
    """Return noisy points of the wave over the lecture's range, in the order of x."""
    x = np.sort(random.uniform(0.5, 7.0, n))
    return x, wave(x) + NOISE * random.standard_normal(n)


def gaussian(h: float) -> Score:
    score = Gaussian(1, 1).requires_grad_(False)
    score.log_bandwidth.fill_(math.log(h))
    return score


def as_heads(values: Array) -> Tensor:
    """Return values (N,) as attention takes them, (1, 1, N, 1)."""
    return torch.from_numpy(np.asarray(values, dtype=np.float32))[None, None, :, None]


def smooth(
    queries: Array, points: Points, score: Score, *, leave_one_out: bool = False
) -> tuple[Array, Array]:
    """Return what attention predicts at the queries (T,), and its weights (T, S) on the points; if
    queries are the points, each may be predicted from all others.
    """
    tap, (x, y), bias = Tap(["weights"]), points, torch.zeros(len(queries), len(points[0]))
    if leave_one_out:
        bias.fill_diagonal_(-torch.inf)
    y_hat = attend(as_heads(queries), as_heads(x), as_heads(y), bias=bias, score=score, tap=tap)
    return y_hat[0, 0, :, 0].double().numpy(), tap.activations["weights"][0, 0].double().numpy()


class Attention(nn.Module):
    """Attention over tokens (code of x, y): queries and keys of the codes, values of both.

    Without parameters a score is the dot product of two codes and a value is y. The code is a
    sinusoid of x (Vaswani et al. 2017, section 3.5), so that x·x is a kernel of the distance.
    """

    def __init__(self, points: Points, *, learned: bool, valued: bool) -> None:
        super().__init__()
        x, y = points
        self.points, self.learned, self.valued = points, learned, valued
        self.low, self.scale = float(x.min()), RANGE / float(x.max() - x.min())
        self.center = float(y.mean())
        eye = torch.eye(D_CODE) * D_CODE**0.25  # at first scaled dot = dot: no parameters
        self.query, self.key = (nn.Parameter(eye.clone()) for _ in range(2))  # W_Q, W_K (K, K)
        self.value = nn.Parameter(torch.zeros(D_CODE))  # W_V: what a code adds to y
        self.keep = nn.Parameter(torch.ones(()))

    def code(self, x: Array) -> Tensor:
        """(N,) to (N, K)."""
        return sinusoids(torch.from_numpy((x - self.low) * self.scale), D_CODE, base=100.0)

    def forward(
        self, queries: Array, *, leave_one_out: bool = False, tap: Tap | None = None
    ) -> Tensor:
        k, q = self.code(self.points[0]), self.code(queries)
        v = as_heads(self.points[1] - self.center)
        if self.valued:
            v = self.keep * v + (k @ self.value)[None, None, :, None]
        bias = torch.zeros(len(q), len(k))
        if leave_one_out:
            bias.fill_diagonal_(-torch.inf)
        if self.learned:
            q, k = q @ self.query, k @ self.key
        score = scaled_dot if self.learned else dot
        y = attend(q[None, None], k[None, None], v, bias=bias, score=score, tap=tap)
        return y[0, 0, :, 0] + self.center


def fit(points: Points, steps: int, *, valued: bool, seed: int) -> Attention:
    """Train attention to predict each point from all others, by least squares."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Attention(points, learned=True, valued=valued)
        trained = [model.query, model.key, *([model.value, model.keep] if valued else [])]
        optimizer = torch.optim.AdamW(trained, lr=0.02, weight_decay=0.05)
        target = torch.from_numpy(points[1]).float()
        for _ in range(steps):
            optimizer.zero_grad()
            (model(points[0], leave_one_out=True) - target).square().mean().backward()
            optimizer.step()
    return model.requires_grad_(False).eval()


def rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


def bandwidth_errors(points: Points) -> dict[float, float]:
    deviation = float(points[0].std())
    bandwidths = np.geomspace(NARROWEST * deviation, WIDEST * deviation, N_BANDWIDTHS).tolist()
    return {
        h: rms(smooth(points[0], points, gaussian(h), leave_one_out=True)[0] - points[1])
        for h in bandwidths
    }


def choose_bandwidth(points: Points) -> float:
    errors = bandwidth_errors(points)
    return min(errors, key=lambda h: errors[h])


Predict = Callable[[Array], Array]


def predictors(points: Points, steps: int, seed: int) -> dict[str, Predict]:
    """Return every way to predict y from the same points."""

    def fixed(score: Score) -> Predict:
        return lambda x: smooth(x, points, score)[0]

    def attention(model: Attention) -> Predict:
        return lambda x: model(x).detach().double().numpy()

    return {
        INVERSE: fixed(negative_log_distance),
        NEGATIVE: fixed(negative_distance),
        UNIT: fixed(gaussian(1.0)),
        FREE: attention(Attention(points, learned=False, valued=False)),
        TUNED: fixed(gaussian(choose_bandwidth(points))),
        LEARNED: attention(fit(points, steps, valued=False, seed=seed)),
        FULL: attention(fit(points, steps, valued=True, seed=seed)),
    }


def kernels(options: Options) -> Result:
    """Is attention a weighted mean, and does learning its weights gain over assuming them?

    Lecture 14 (002) interpolates between points by w = 1/d and smooths with a Gaussian kernel; deck
    003 takes the softmax of the negative distance (Nadaraya 1964, Watson 1964) and asks for the
    value at 4.21. Each is attention with another score: queries and keys are x, values are y. Then
    what is fixed becomes learned: parameter-free attention x·x on a sinusoidal code of x, W_Q and
    W_K on it, and W_V as well.

    The lecture prints three points and an ellipsis; the others are sampled around a wave through
    these three, with normal noise. Each draw has new points to train and to test on; a user's
    points are split anew instead, a fifth for testing. The Gaussian's bandwidth is chosen, and W_Q,
    W_K and W_V are learned, by leave-one-out squares on the training points alone. Learned
    attention starts as x·x, so that its parameters are the only advantage it has.
    """
    plan = SMALL if options.quick else LARGE
    user_points = None if options.file is None else read_points(options.file)
    progress = options.progress(plan.draws)
    errors: dict[str, list[float]] = {}
    for i in range(plan.draws):
        measured = options.part(
            f"kernels {options.seed} {i}",
            plan,
            dict[str, float],
            partial(draw_errors, user_points, plan, options.seed, i),
        )
        for name, error in measured.items():
            errors.setdefault(name, []).append(error)
        progress.add("kernels", 1)
    return kernel_report(user_points or lecture_points(options.seed), errors, plan, options)


def draw_errors(user_points: Points | None, plan: Plan, seed: int, i: int) -> dict[str, float]:
    """Return the error of each kind of weights on the test points of one draw."""
    train, test = draw(user_points, plan, generator(seed, i))
    fitted = predictors(train, plan.steps, seed_of(seed, i))
    return {name: float(rms(predict(test[0]) - test[1])) for name, predict in fitted.items()}


def draw(
    user_points: Points | None, plan: Plan, random: np.random.Generator
) -> tuple[Points, Points]:
    """Return points to train and to test on: fresh ones, or parts of the user's."""
    if user_points is None:
        return sample(plan.points, random), sample(plan.tested, random)
    x, y = user_points
    order = random.permutation(len(x))
    n_test = max(2, len(order) // 5)
    test, train = np.sort(order[:n_test]), np.sort(order[n_test:])
    return (x[train], y[train]), (x[test], y[test])


def lecture_points(seed: int) -> Points:
    """Return the lecture's three points and enough samples of the wave for a figure."""
    points = np.concatenate([np.stack(sample(21, generator(seed)), axis=1), PRINTED])
    points = points[np.argsort(points[:, 0])]
    return points[:, 0], points[:, 1]


def kernel_report(points: Points, errors: Errors, plan: Plan, options: Options) -> Result:
    x, y = points
    predict = predictors(points, plan.steps, seed_of(options.seed))
    query = QUERY if x[0] <= QUERY <= x[-1] else float(np.median(x))
    rows = [
        [name, str(Mean.of(row)), float(predict[name](np.array([query]))[0])]
        for name, row in errors.items()
    ]
    columns = ["weights", "error on test points, RMS", f"prediction at {query:.4g}"]
    grid = np.linspace(x.min(), x.max(), 160)
    series = [("points", x.tolist(), y.tolist())]
    series += [(name, grid.tolist(), function(grid).tolist()) for name, function in predict.items()]
    by_bandwidth = bandwidth_errors(points)
    assumed = min(FIXED, key=lambda name: Mean.of(errors[name]).value)
    return Result(
        title="Attention is a weighted mean",
        answer=(
            f"Yes. With learned weights it errs by {Mean.of(errors[FULL])} on test points, with "
            f"the best that are assumed ({assumed}) by {Mean.of(errors[assumed])}, and with a "
            f"Gaussian of chosen width by {Mean.of(errors[TUNED])}."
        ),
        question=kernels.__doc__ or "",
        reading=(
            "Each curve is a weighted mean of the points, with weights that fall with distance in "
            "different ways; the better the weights, the nearer the curve lies to the true wave."
        ),
        readings=[
            "Too narrow a kernel copies the noise, too wide a one smooths everything away: the "
            "least error lies between.",
            "Each row shows how one point distributes its attention over all points, dark where "
            "much: a fixed kernel attends to its neighbourhood.",
            "The same after learning: attention goes where it helps, which need not be near.",
        ],
        claims=kernel_claims(points, errors, quick=options.quick),
        tables=[Table(columns, rows, title=f"Mean of {plan.draws} draws with 95% intervals")],
        figures=[
            Lines(
                series,
                x_label="x",
                y_label="y",
                title="Weighted means of the same points",
                dots=["points"],
            ),
            curves(
                list(by_bandwidth),
                {"Gaussian": list(by_bandwidth.values())},
                "Bandwidth of the Gaussian kernel",
                ("bandwidth h, in units of x", "leave-one-out error, RMS"),
                log="x",
                levels={"the best": min(by_bandwidth.values())},
            ),
            *kernel_maps(points, plan, options.seed),
        ],
    )


def kernel_maps(points: Points, plan: Plan, seed: int) -> list[Heatmap]:
    x, tap = points[0], Tap(["weights"])
    fit(points, plan.steps, valued=True, seed=seed_of(seed))(x, tap=tap)
    matrices = {
        TUNED: smooth(x, points, gaussian(choose_bandwidth(points)))[1],
        FULL: tap.activations["weights"][0, 0].numpy(),
    }
    names = [f"{value:.3g}" for value in x]
    return [
        Heatmap(
            weights,
            names,
            names,
            title=f"Weights: {name}, queries down, keys across",
            scale="weights",
            unit="weight",
        )
        for name, weights in matrices.items()
    ]


# Lookup

COLD, HOT, N_TEMPERATURES = 1e-3, 1e3, 37
MAX_MISSPELLED = 4000  # queries: every letter of every key left out, if that is no more
MAX_KEYS = 2000  # the weights of all of them on all of them are formed
N_SHOWN = 24  # keys on a map
SURE, EVEN, RIGHT = 0.99, 0.01, 0.9  # tolerances of the claims


class Dictionary:
    """Texts as keys with their values, looked up by attention."""

    def __init__(self, keys: Sequence[str], values: Sequence[str]) -> None:
        self.keys, self.values = list(keys), list(values)
        triples = sorted({triple for key in keys for triple in letter_triples(key)})
        self.index = {triple: i for i, triple in enumerate(triples)}
        self.codes = self.encode(keys)

    def encode(self, texts: Sequence[str]) -> Tensor:
        """(N,) texts to (1, 1, N, K) counts of the keys' letter triples, and one for all others."""
        counts = np.zeros((len(texts), len(self.index) + 1), dtype=np.float32)
        for row, text in zip(counts, texts, strict=True):
            for triple, n in Counter(letter_triples(text)).items():
                row[self.index.get(triple, len(self.index))] += n
        return torch.from_numpy(counts)[None, None]

    def numbers(self) -> Array | None:
        """Return the values as numbers; None if some are not."""
        try:
            numbers = np.array([float(value) for value in self.values])
        except ValueError:
            return None
        return numbers if np.isfinite(numbers).all() else None

    def look_up(self, queries: Sequence[str] | Tensor, temperature: float) -> Tensor:
        """Return the share (T, S) of each value in the result of each query, a text or its code."""
        q = queries if isinstance(queries, Tensor) else self.encode(queries)
        v = torch.eye(len(self.keys))[None, None]  # one-hot, so that the result shows its weights
        return attend(q, self.codes, v, score=cosine(temperature))[0, 0].double()


def letter_triples(text: str) -> list[str]:
    """Return every three letters in a row, with a blank at either end."""
    padded = f" {text.lower()} "
    return [padded[i : i + 3] for i in range(max(1, len(padded) - 2))]


def cosine(temperature: float) -> Cosine:
    score = Cosine(1, 1).requires_grad_(False)
    score.log_sharpness.fill_(-float(np.log(temperature)))
    return score


def misspell(keys: Sequence[str], random: np.random.Generator) -> list[str]:
    """Return each key with one letter left out at random."""
    positions = [int(random.integers(len(key))) for key in keys]
    return [key[:i] + key[i + 1 :] for key, i in zip(keys, positions, strict=True)]


def lookup_answer(dictionary: Dictionary, misspelled: Sequence[str]) -> str:
    found = dictionary.look_up(misspelled, COLD).argmax(1).tolist()
    n_right = sum(i == k for i, k in enumerate(found))
    n_known = sum(query in set(dictionary.keys) for query in misspelled)
    return (
        "Yes: when cold it returns the value of the key that is asked for, when hot the mean of "
        f"all. Of {len(found)} keys with a letter missing it finds {n_right}, a dict {n_known}."
    )


def lookup_claims(
    dictionary: Dictionary, exact: Sequence[Tensor], misspelled: Sequence[str]
) -> list[Claim]:
    keys = dictionary.keys
    entropies = np.array([mean_entropy(weights) for weights in exact])
    queries = [(k, key[:i] + key[i + 1 :]) for k, key in enumerate(keys) for i in range(len(key))]
    if len(queries) > MAX_MISSPELLED:
        queries = list(enumerate(misspelled))
    results = dictionary.look_up([query for _, query in queries], COLD).argmax(1).tolist()
    n_right = sum(result == k for result, (k, _) in zip(results, queries, strict=True))
    share = Proportion(n_right, len(queries))
    n_known = sum(query in set(keys) for _, query in queries)
    return [
        Claim.exact(
            "cold attention is a dictionary",
            f"at temperature {COLD:g} every key returns its own value with weight at least {SURE}",
            float(exact[0].diag().min()),
            "{:.6f}, the least",
            least=SURE,
        ),
        Claim.exact(
            "hot attention is a plain mean",
            f"at temperature {HOT:g} every weight is within {EVEN:.0%} of 1/{len(keys)}",
            float((exact[-1] * len(keys) - 1).abs().max()),
            "{:.2%}, the farthest",
            most=EVEN,
        ),
        Claim.exact(
            "it becomes fuzzier as the temperature rises",
            "the entropy of the weights never falls by more than 1e-6 bits",
            max(0.0, float(-np.diff(entropies).min())),
            "{:.1e}, the largest fall",
            most=1e-6,
        ),
        Claim.within(
            "attention finds what a dictionary misses",
            f"the right value for at least {RIGHT:.0%} of keys with a letter missing",
            share,
            f"{share}; a dict finds {n_known} of {len(queries)}",
            least=RIGHT,
        ),
    ]


def mean_entropy(weights: Tensor) -> float:
    return float(entropy_bits(weights).mean())


def lookup(options: Options) -> Result:
    """Is attention a dictionary that became fuzzy?

    A dictionary returns the value of the key that equals the query, or an error. Decks 000 to 004
    introduce attention as a soft hash table, a library, a film archive: a query is compared with
    every key and returns the mean of the values, weighted by a softmax of the comparison over a
    temperature. Is the one a limit of the other, and what is gained by not going there?

    A key is encoded by the counts of its letter triples; a score is the cosine of two such codes,
    divided by the temperature; values are one-hot, so that the result shows the share of each.
    Misspelled queries are keys with one letter missing at random.
    """
    dictionary = read_dictionary(options.file or FILMS)
    misspelled = misspell(dictionary.keys, np.random.default_rng(options.seed))
    temperatures, codes = np.geomspace(COLD, HOT, N_TEMPERATURES), dictionary.encode(misspelled)
    exact = [dictionary.look_up(dictionary.codes, float(t)) for t in temperatures]
    fuzzy = [dictionary.look_up(codes, float(t)) for t in temperatures]
    return Result(
        title="A dictionary that becomes fuzzy",
        answer=lookup_answer(dictionary, misspelled),
        question=lookup.__doc__ or "",
        reading=(
            "From left to right the temperature rises: on the left a query returns the value of "
            "its own key alone, as a dictionary does; on the right a mean of all values, whatever "
            "the query; attention lies in between."
        ),
        readings=[
            "The higher the line, the more values are mixed into a result: one on the left, all "
            "of them on the right.",
            "Each row is the result for one key: dark on the diagonal is its own value, dark "
            "elsewhere are values of similar keys.",
        ],
        claims=lookup_claims(dictionary, exact, misspelled),
        tables=[misspelled_table(dictionary, misspelled)],
        figures=[*temperature_curves(temperatures, exact, fuzzy), key_map(dictionary)],
        panels=[slider(dictionary, query) for query in misspelled[:N_SLIDERS]],
    )


def temperature_curves(
    temperatures: Array, exact: Sequence[Tensor], fuzzy: Sequence[Tensor]
) -> list[Lines]:
    rows = {"queries that are keys": exact, "misspelled queries": fuzzy}
    shares = {name: [float(w.diag().mean()) for w in row] for name, row in rows.items()}
    n = len(exact[0])
    return [
        curves(
            temperatures,
            shares,
            "From a dictionary to a mean",
            ("temperature", "share of the right value in the result"),
            log="x",
            levels={"all equal": 1 / n},
        ),
        curves(
            temperatures,
            {"queries that are keys": [mean_entropy(weights) for weights in exact]},
            "How many values are mixed into a result",
            ("temperature", "entropy of the weights, bits"),
            log="x",
            levels={"all of them": float(np.log2(n))},
        ),
    ]


def key_map(dictionary: Dictionary) -> Heatmap:
    names = [value[:24] for value in dictionary.values[:N_SHOWN]]
    return Heatmap(
        dictionary.look_up(dictionary.keys, 0.2)[:N_SHOWN, :N_SHOWN].numpy(),
        names,
        names,
        title="Weights at temperature 0.2: queries that are keys down, keys across",
        scale="weights",
        unit="weight",
    )


def misspelled_table(dictionary: Dictionary, misspelled: Sequence[str]) -> Table:
    shares, best = dictionary.look_up(misspelled, 0.05).max(1)
    exact = dict(zip(dictionary.keys, dictionary.values, strict=True))
    rows = [
        [query, exact.get(query, "KeyError"), dictionary.values[int(best[i])], float(shares[i])]
        for i, query in enumerate(misspelled[:8])
    ]
    columns = ["query, one letter missing", "dict", "attention at 0.05", "its share"]
    numbers = dictionary.numbers()
    if numbers is not None:  # then a result need not be one of the values
        weights = dictionary.look_up(misspelled[: len(rows)], 0.05)
        means = (weights @ torch.from_numpy(numbers)).tolist()
        rows = [[*row, mean] for row, mean in zip(rows, means, strict=True)]
        columns.append("weighted mean of the values")
    return Table(columns, rows, title="Misspelled queries")


def slider(dictionary: Dictionary, query: str) -> Distribution:
    scores = cosine(1.0)(dictionary.encode([query]), dictionary.codes)[0, 0, 0].numpy()
    title = f"The result for {query!r}: temperature 1 here is 0.1 above"
    return Distribution(list(dictionary.values), logits=scores / 0.1, title=title)


# Users' files


def read_columns(path: Path, names: tuple[str, str]) -> list[tuple[int, str, str]]:
    """Return the line number and both columns of each row: those of these names where the header
    has both, else the first two.
    """
    if not path.is_file():
        raise UserError(f"no file at {path}")
    format = "tsv" if path.suffix.lower() == ".tsv" else "csv"
    fields = {field.lower(): field for field in TABLES[format].columns(path, named=False)}
    if len(fields) < 2:
        raise UserError(f"{path}:1: one column, two are needed ({names[0]} and {names[1]})")
    columns = [fields[name] for name in names if name in fields]
    layout = TABLES[format].layout(path, columns if len(columns) == 2 else ["1", "2"])
    batches = layout.batches(path, SkippedRecords(strict=True))
    return [row for (a, b), lines in batches for row in zip(lines, a, b, strict=True)]


def read_points(path: Path) -> Points:
    """Return x and y (N,) in the order of x."""
    points = []
    for line, *cells in read_columns(path, ("x", "y")):
        for cell in cells:
            try:
                value = float(cell)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise UserError(f"{path}:{line}: x and y must be numbers, got {cell[:40]!r}")
            points.append(value)
    if len(points) < 2 * MIN_POINTS:
        raise UserError(f"{path}: {len(points) // 2} points, at least {MIN_POINTS} are needed")
    x, y = np.array(points).reshape(-1, 2).T
    if x.min() == x.max():
        raise UserError(f"{path}: every x is {x[0]:g}; there is nothing to interpolate")
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def read_dictionary(path: Path) -> Dictionary:
    """Return the keys and values of a table; each key must occur once."""
    rows = read_columns(path, ("key", "value"))
    first: dict[str, int] = {}
    for line, key, _ in rows:
        if first.setdefault(key, line) != line:
            other = first[key]
            raise UserError(f"{path}:{line}: the key {key[:40]!r} is on line {other} already")
    if not 2 <= len(rows) <= MAX_KEYS:
        raise UserError(f"{path}: {len(rows)} keys; from 2 to {MAX_KEYS:,} can be looked up")
    return Dictionary([key for _, key, _ in rows], [value for *_, value in rows])
