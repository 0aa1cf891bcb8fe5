"""The lectures' own worked examples, with the numbers on their slides.

Where a slide prints a result, the claim is that it comes out here; where it prints the input alone,
the claim is that two ways to compute it agree: by hand, and by the package's layer. What is printed
is quoted in this file, with the number of its deck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from regard.bundled import NAMES
from regard.lab.experiment import (
    Claim,
    LabProgress,
    Mean,
    Options,
    Proportion,
    Result,
    generator,
    make_shard,
)
from regard.lab.kernels import PRINTED, QUERY, Dictionary, gaussian, smooth
from regard.layers.attention import AttentionContext, SelfAttention, attend, dot, negative_distance
from regard.layers.feedforward import FeedForward
from regard.layers.masks import Causal
from regard.layers.norms import make_norm
from regard.layers.positions import Binary, sinusoids
from regard.layers.tap import Tap
from regard.look.page import Component, Heatmap, Lines, MaskMap, Scatter, Table
from regard.models.ngrams import Bigram, CountConfig
from regard.tokenizers.text import Words
from regard.training.loop import seed_of

Array = NDArray[np.float64]

EXACT = 1e-5  # fp32: two ways to one number
D_MODEL = 32
START, END = "<S>", "<E>"


class Part(NamedTuple):
    """One slide: its claims, its figures with a sentence each, and its tables."""

    claims: Sequence[Claim]
    figures: Mapping[str, Component] = {}
    tables: Sequence[Component] = ()


def equal(name: str, stated: str, gap: float) -> Claim:
    return Claim.exact(name, f"{stated}, to {EXACT:g}", gap, most=EXACT)


def agree(name: str, stated: str, measured: object, printed: object) -> Claim:
    """Return the claim that what is computed equals what a slide prints."""
    return Claim(name, stated, str(measured), measured == printed)


# 002, six steps for bigrams

# Printed by SampleNames(15), and by SampleNames(15, False) without <S> in the name.
SAMPLES = "keesa ann ja jon nma malynojana sall daha drvah lzaxi tyunusthun jorrwro ja asoow s"
RANDOM = "mtkgy xlmusadjfdzxadaotd bblupnibtqmyl kybs rznjgpmlo rxodh jvswmzw jzpcfnpcg"
N_SAMPLES, MOST = 15, 60  # names, and letters of a name


def read_names() -> list[str]:
    return NAMES.read_text(encoding="ascii").split()


def count_pairs(names: Sequence[str]) -> tuple[list[str], Array]:
    """Steps 1 and 2: number the letters, and count how often each follows each, (V, V)."""
    letters = [START, *sorted(set("".join(names))), END]
    numbers = {letter: i for i, letter in enumerate(letters)}
    counts = np.zeros((len(letters), len(letters)))
    for name in names:
        for before, after in pairwise([START, *name, END]):
            counts[numbers[before], numbers[after]] += 1
    return letters, counts


def sample_name(p: Array, letters: Sequence[str], random: np.random.Generator) -> str:
    """Steps 4 to 6: begin at <S>, draw letter by letter, stop at <E>."""
    name, now = "", letters.index(START)
    while len(name) < MOST:
        now = int(np.argmax(random.multinomial(1, p[now])))
        if letters[now] == END:
            break
        name += letters[now]
    return name


def bits_per_letter(name: str, p: Array, letters: Sequence[str]) -> float:
    ids = [letters.index(letter) for letter in (START, *name, END)]
    return float(-np.mean([np.log2(p[a, b]) for a, b in pairwise(ids)]))


def bigram_table(names: Sequence[str], letters: Sequence[str]) -> Array:
    """Return P(next | letter) (V, V) of the package's bigram, fitted to the same names."""
    numbers = {letter: i for i, letter in enumerate(letters)}
    rows = [np.array([numbers[letter] for letter in (START, *name, END)]) for name in names]
    model = Bigram(len(letters), CountConfig())
    model.fit(make_shard(rows, len(letters)), None, lambda text: None)
    return model.logits(torch.arange(len(letters))[:, None])[:, 0].double().exp().numpy()


def names_part(seed: int) -> Part:
    names, random = read_names(), generator(seed)
    letters, counts = count_pairs(names)
    totals = counts.sum(1, keepdims=True)
    p = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)  # step 3
    uniform = np.full_like(p, 1 / len(letters))
    drawn = [sample_name(p, letters, random) for _ in range(N_SAMPLES)]
    at_random = [sample_name(uniform, letters, random) for _ in range(N_SAMPLES)]
    possible = (counts + 1) / (totals + len(letters))  # no pair has probability 0
    gap = np.abs(p[:-1] - bigram_table(names, letters)[:-1]).max()

    def cost(rows: Sequence[str]) -> Mean:
        return Mean.of([bits_per_letter(row, possible, letters) for row in rows if row])

    kept = [row.replace(START, "") for row in at_random]
    claims = [
        agree("002: the alphabet of names", "26 letters and <S>, <E>: 28", len(letters), 28),
        equal("002: six steps give our bigram", "its table and this one are equal", float(gap)),
        Claim.exact(
            "002: SampleNames(15) sounds more like names than random letters",
            "the deck's printed names cost at least one bit per letter less than its random ones",
            cost(RANDOM.split()).value - cost(SAMPLES.split()).value,
            "{:.2f} bits less",
            least=1,
        ),
    ]
    rows = list(zip(drawn, kept, strict=True))
    costs = [["drawn here", str(cost(drawn)), str(cost(kept))]]
    printed = (str(cost(text.split())) for text in (SAMPLES, RANDOM))
    costs.append(["printed in the deck", *printed])
    shown = [letter.strip("<>") if len(letter) > 1 else letter for letter in letters]
    title = "Counts of pairs of letters in names: a letter down, the next across"
    return Part(
        claims,
        {
            "Each row is a letter, each column the letter after it; a row divided by its sum is "
            "what the next letter is drawn from.": Heatmap(
                counts, shown, shown, title=title, scale="logarithmic", unit="times"
            )
        },
        [
            Table(["SampleNames(15)", "SampleNames(15, False)"], rows, title="New names"),
            Table(["bits per letter", "from counts", "random"], costs, title="What names cost"),
        ],
    )


# 002 and 003, weighted means


def smoothing_part() -> Part:
    """The deck's lines of NumPy, with its names, beside the layer; and the query 4.21 of 003."""
    x = np.linspace(0, 6, 25)
    y, at, sigma = np.sin(x), np.linspace(0.5, 5.5, 11), 0.5
    V, L = x[:, None], at[:, None]  # names as in the deck
    D = np.tile(V, (1, len(L))) - np.tile(L.transpose(), (len(V), 1))
    W = np.exp(-(D**2) / sigma)
    W = W / np.sum(W + 1e-16, axis=0)
    ours = smooth(at, (x, y), gaussian((sigma / 2) ** 0.5))[0]
    gap = float(np.abs(np.dot(W.transpose(), y) - ours).max())

    keys, values = np.array(PRINTED).T
    weights = np.exp(-np.abs(QUERY - keys))
    weights /= weights.sum()
    by_layer, layer_weights = smooth(np.array([QUERY]), (keys, values), negative_distance)
    expected = float(weights @ values)
    rows = [
        [f"({a:.2f}, {b:.2f})", float(-abs(QUERY - a)), float(w), float(v)]
        for (a, b), w, v in zip(PRINTED, weights, layer_weights[0], strict=True)
    ]
    rows.append([f"prediction at {QUERY}", None, expected, float(by_layer[0])])
    columns = ["point", "f, negative distance", "weight by hand", "weight by attend"]
    title = "Nadaraya–Watson on the printed points, without those behind the ellipsis"
    return Part(
        [
            equal("002: the smoothing code is attention", "both means are equal", gap),
            equal("003: the prediction at 4.21", "both are equal", abs(expected - by_layer[0])),
        ],
        tables=[Table(columns, rows, title=title)],
    )


# 003, the convex combination

MIXTURE = ((0.6, 0.1, 0.3), (0.3, 0.5, 0.2), (0.2, 0.1, 0.7))  # A
WORDS = ((2.0, 1.0), (-0.5, 2.0), (-1.0, -0.5))  # V: I, am, Sam
I_AM_SAM = ("I", "am", "Sam")


def mixture_part() -> Part:
    weights, v = torch.tensor(MIXTURE)[None, None], torch.tensor(WORDS)
    y = attend(weights, weights, v[None, None], score=lambda q, k: q.log())[0, 0]
    first, second, third = v
    printed = torch.stack([a * first + b * second + c * third for a, b, c in MIXTURE])
    points = torch.cat([v, y]).double().numpy()
    sums = [" + ".join(f"{w}·{n}" for w, n in zip(row, I_AM_SAM, strict=True)) for row in MIXTURE]
    figure = Scatter(
        points,
        texts=[*I_AM_SAM, *sums],
        groups=["values"] * 3 + ["outputs"] * 3,
        marks=dict(enumerate(I_AM_SAM)),
        x_label="first coordinate",
        y_label="second coordinate",
        title="I, am, Sam, and three mixtures of them",
    )
    gap = float((y - printed).abs().max())
    reading = "Every output lies in the triangle of the three values."
    rows = [[text, *map(float, row)] for text, row in zip(sums, y, strict=True)]
    table = Table(["output", "first", "second"], rows, title="A V, with the deck's matrices")
    return Part(
        [equal("003: A V = 0.6·I + 0.1·am + 0.3·Sam", "rows", gap)], {reading: figure}, [table]
    )


# 002, one verse in four languages

VERSE = {
    "English": ("Let there be light.", 4),
    "German": ("Es werde Licht.", 3),
    "Latin": ("Fiat lux.", 2),
    "Hebrew": ("yehi, or", 2),
}


def verse_part() -> Part:
    tokenizer = Words.train([text for text, _ in VERSE.values()])
    counts = {name: len(tokenizer.encode(text)) for name, (text, _) in VERSE.items()}
    printed = {name: n for name, (_, n) in VERSE.items()}
    source = counts["English"]
    rows: list[list[object]] = []
    for name, (text, _) in VERSE.items():
        q, k = (torch.randn(1, 1, n, D_MODEL) for n in (counts[name], source))
        tap = Tap(["weights"])
        attend(q, k, k, tap=tap)
        shape = " × ".join(map(str, tap.activations["weights"].shape[2:]))
        rows.append([name, text, counts[name], shape])
    stated = ", ".join(f"{name} {n}" for name, n in printed.items())
    columns = ["", "verse", "tokens N", "weights of cross-attention to English, N(D) × N(E)"]
    table = Table(columns, rows, title="One verse in four languages")
    measured = ", ".join(f"{name} {n}" for name, n in counts.items())
    return Part([Claim("002: tokens of a verse", stated, measured, counts == printed)], {}, [table])


# 002, the causal mask and the binary code

TRIANGLE = tuple(tuple(int(key <= query) for key in range(6)) for query in range(6))
CODES = {  # position: bits 7 to 0
    1: "00000001",
    2: "00000010",
    3: "00000011",
    4: "00000100",
    5: "00000101",
    6: "00000110",
    7: "00000111",
    8: "00001000",
    9: "00001001",
    10: "00001010",
    11: "00001011",
    12: "00001100",
    13: "00001101",
    14: "00001110",
    15: "00001111",
    16: "00010000",
}
FREQUENCIES = (1 / 2, 1 / 4, 1 / 8)  # of bits 0, 1, 2


def code_part() -> Part:
    mask = Causal().tensor(1, 6, 6, torch.device("cpu"))[0, 0]
    scheme = Binary(8, 256)
    bits = (scheme.add(torch.zeros(1, 256, 8), range(256))[0] > 0).int()  # (S, 8), bit 0 first
    codes = {p: "".join(str(int(bit)) for bit in bits[p].flip(0)) for p in CODES}
    spectra = torch.fft.rfft(bits[:, :3].double() - 0.5, dim=0).abs()
    frequencies = tuple(int(k) / 256 for k in spectra.argmax(0))
    names = [str(i + 1) for i in range(6)]
    n_equal = sum(code == CODES[p] for p, code in codes.items())
    reading = "Row t is what token t may attend to: itself and earlier tokens."
    return Part(
        [
            agree("002: the causal mask", "the printed 6 × 6 triangle", *as_rows(mask, TRIANGLE)),
            agree("002: binary codes of 1 to 16", "all 16 as printed", n_equal, len(CODES)),
            agree("002: bits are frequencies", "1/2, 1/4, 1/8", frequencies, FREQUENCIES),
        ],
        {reading: MaskMap(mask.numpy(), names, title="The causal mask of six tokens")},
    )


def as_rows(mask: Tensor, printed: Sequence[Sequence[int]]) -> tuple[str, str]:
    rows = ["".join(str(int(cell)) for cell in row) for row in mask]
    return " ".join(rows), " ".join("".join(map(str, row)) for row in printed)


# 004, order and norm

DINOSAUR = ("Man", "eats", "small", "dinosaur")


def order_part() -> Part:
    """Outputs of one layer for every order of four words, sorted back."""
    layer, words, context = SelfAttention(D_MODEL, 4), torch.randn(4, D_MODEL), AttentionContext()
    p = sinusoids(torch.arange(4), D_MODEL)
    gaps: dict[bool, float] = {}
    for positions in (False, True):
        first = layer((words + p * positions)[None], context)[0]
        largest = 0.0
        for order in permutations(range(4)):
            at = list(order)
            y = layer((words[at] + p * positions)[None], context)[0]
            largest = max(largest, float((y - first[at]).abs().max() / first.abs().max()))
        gaps[positions] = largest
    sentence = " ".join(DINOSAUR)
    return Part(
        [
            equal(
                f"004: {sentence}, in any order", "words' outputs without positions", gaps[False]
            ),
            Claim.exact(
                "004: with positions order matters",
                "outputs of a word differ by at least 5% of the largest",
                gaps[True],
                "{:.0%}",
                least=0.05,
            ),
        ]
    )


def norm_part() -> Part:
    """Mean and deviation over the H numbers of one position, by hand and by the layer."""
    a = torch.tensor([[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]])  # mean 5, deviation 2
    mu = float(a.mean())
    sigma = float(((a - mu) ** 2).mean().sqrt())
    by_hand, layer = (a - mu) / sigma, make_norm("layer", 8, 1e-12, True)(a)
    rows = [[f"a_{i + 1}", *map(float, row)] for i, row in enumerate(torch.cat([a, layer]).T)]
    title = f"LayerNorm of one position: μ = {mu:g}, σ = {sigma:g}"
    gap = float((layer - by_hand).abs().max())
    return Part(
        [
            agree("004: μ and σ of eight numbers", "5 and 2", (mu, sigma), (5.0, 2.0)),
            equal("004: LayerNorm by hand and by the layer", "both are equal", gap),
        ],
        tables=[Table(["", "before", "after"], rows, title=title)],
    )


# 003, the library

SHELF = {
    "Speech and Language Processing, Jurafsky and Martin": "NLP",
    "Foundations of Statistical Natural Language Processing, Manning and Schütze": "NLP, older",
    "Martin Chuzzlewit, Dickens": "a novel",
    "Deep Learning, Goodfellow, Bengio and Courville": "networks",
    "Pattern Recognition and Machine Learning, Bishop": "statistics",
    "Protein measurement with the folin phenol reagent, Lowry": "chemistry",
}
AUTHORS, TEMPERATURE = "jurafsky martin", 0.1


FILMS = {
    "Thrilling horror science fiction movie, plays in space in a distant future": "Alien",
    "Entertaining science fiction movie, plays in space in a distant past": "Star Wars",
    "Boring love story, plays on a ship in the past": "Titanic",
}
WISH, FUZZY = "Boring love story, plays in space.", 0.2


def weigh(items: Mapping[str, str], query: str, temperature: float) -> dict[str, float]:
    """Return the weight of each value of a soft dictionary for a query, the largest first."""
    weights = Dictionary(list(items), list(items.values())).look_up([query], temperature)[0]
    pairs = zip(items.values(), weights.tolist(), strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def lookup_part() -> Part:
    """A search in a library (003), and a film that does not exist (002)."""
    shelf, films = weigh(SHELF, AUTHORS, TEMPERATURE), weigh(FILMS, WISH, FUZZY)
    titanic = weigh(FILMS, list(FILMS)[2], FUZZY)
    books = {about: book for book, about in SHELF.items()}
    claims = [
        agree("003: a search for jurafsky and martin", "NLP, their book", next(iter(shelf)), "NLP"),
        agree("002: a query that is a key", "its own film first", next(iter(titanic)), "Titanic"),
        Claim.exact(
            "002: a boring love story in space",
            "most of Titanic, and at least a tenth of each film in space",
            min(films.values()) * (next(iter(films)) == "Titanic"),
            "{:.2f}, the least",
            least=0.1,
        ),
    ]
    tables = [
        Table(
            ["book", "weight"],
            [[books[about], weight] for about, weight in shelf.items()],
            title=f"A search for “{AUTHORS}”: a weight for every book",
        ),
        Table(["film", "weight"], list(films.items()), title=f"“{WISH}”: a mixture of films"),
    ]
    return Part(claims, tables=tables)


# 002, windows of CBOW

SPEECH = "The competent services have not included them in the agenda"
SIDE = 3  # words on either side
WINDOWS = {
    "have": "The competent services not included them",
    "not": "competent services have included them in",
    "included": "services have not them in the",
}


def windows_part() -> Part:
    words = SPEECH.split()
    windows = {
        word: " ".join(words[max(0, i - SIDE) : i] + words[i + 1 : i + 1 + SIDE])
        for i, word in enumerate(words)
        if word in WINDOWS
    }
    table = Table(["target", "context window"], list(windows.items()), title="Windows of CBOW")
    claim = agree("002: windows of CBOW", "the printed words", windows == WINDOWS, True)
    return Part([claim], tables=[table])


# 001, the grid of keys and queries

GRID = ("a", "fluffy", "blue", "creature", "roamed", "the", "verdant", "forest")
ADJECTIVES = {"fluffy": "creature", "blue": "creature", "verdant": "forest"}


def grid_part() -> Part:
    """Queries of nouns ask for adjectives in front of them, which keys of adjectives answer."""
    nouns = sorted(set(ADJECTIVES.values()))
    q, k = torch.zeros(1, 1, len(GRID), len(nouns)), torch.zeros(1, 1, len(GRID), len(nouns))
    for i, word in enumerate(GRID):
        if word in nouns:
            q[0, 0, i, nouns.index(word)] = 3
        if word in ADJECTIVES:
            k[0, 0, i, nouns.index(ADJECTIVES[word])] = 3
    products = dot(k, q)[0, 0]  # (keys, queries), as on the slide
    pairs = {(GRID[i], GRID[j]) for i, j in products.nonzero().tolist()}
    figure = Heatmap(
        products.numpy(),
        [f"{word} K" for word in GRID],
        [f"{word} Q" for word in GRID],
        title="K · Q: keys down, queries across, as on the slide",
        unit="product",
    )
    reading = (
        "Set by hand, as the slide draws them: queries of nouns match the keys of the adjectives "
        "before them. A look page has the products of a trained model."
    )
    claim = agree(
        "001: creature asks for fluffy and blue, forest for verdant",
        "these products are large, and no other",
        pairs == set(ADJECTIVES.items()),
        True,
    )
    return Part([claim], {reading: figure})


# 000 and 004, steps

SENTENCE = "The cat, who belongs to my mother, is on the table"
N_LAYERS = 3


def count_steps(n: int, recurrent: bool) -> Array:
    """Return how many steps must be made before each state (layers, n) is there: one more than the
    last of those it is computed from.
    """
    steps = np.zeros((N_LAYERS + 1, n))
    for layer in range(1, N_LAYERS + 1):
        for t in range(n):
            before = steps[layer, t - 1] if recurrent and t else 0
            below = steps[layer - 1, t] if recurrent else steps[layer - 1].max()
            steps[layer, t] = 1 + max(before, below)
    return steps[:0:-1]


def steps_part() -> Part:
    words = SENTENCE.replace(",", "").split()
    n = len(words)
    distance = np.abs(np.arange(n)[:, None] - np.arange(n))
    cat, verb = words.index("cat"), words.index("is")
    maps = {name: count_steps(n, name == "recurrence") for name in ("recurrence", "attention")}
    layers = [f"layer {i}" for i in range(N_LAYERS, 0, -1)]
    figures: dict[str, Component] = {
        f"The number of steps after which each state of {name} can be computed.": Heatmap(
            steps, layers, words, title=f"Steps before each state: {name}", unit="steps"
        )
        for name, steps in maps.items()
    }
    distances = np.stack([distance[cat], np.minimum(distance[cat], 1)])
    figures["In a recurrence cat meets a word after all words between; in attention at once."] = (
        Heatmap(
            distances,
            ["recurrence", "attention"],
            words,
            title="Interaction distance: steps from cat to every other word",
            unit="steps",
        )
    )
    last = {name: int(steps.max()) for name, steps in maps.items()}
    claims = [
        agree("000: from cat to is", "6 words back", int(distance[cat, verb]), 6),
        agree(
            "004: steps of a recurrence grow with the length",
            f"n + layers − 1 = {n + N_LAYERS - 1}; of attention, layers = {N_LAYERS}",
            (last["recurrence"], last["attention"]),
            (n + N_LAYERS - 1, N_LAYERS),
        ),
    ]
    return Part(claims, figures)


# 004, the ranking

ARENA = {  # score, above, below, printed rank
    "ChatGPT-4o-latest (2024-08-08)": (1316, 4, 3, 1),
    "Gemini-1.5-Pro-Exp-0827": (1300, 4, 4, 2),
    "Grok-2-08-13": (1294, 4, 4, 2),
    "GPT-4o-2024-05-13": (1285, 3, 2, 4),
    "GPT-4o-mini-2024-07-18": (1274, 4, 4, 5),
    "Claude 3.5 Sonnet": (1270, 3, 3, 5),
    "Gemini-1.5-Flash-Exp-0827": (1268, 5, 4, 5),
    "Grok-2-Mini-08-13": (1267, 4, 4, 5),
    "Meta-Llama-3.1-405b-Instruct": (1266, 4, 4, 5),
}


def rank_by_bound(low: Sequence[float], high: Sequence[float]) -> list[int]:
    """Return 1 plus the number of rows whose interval lies above that of a row."""
    return [1 + sum(other > top for other in low) for top in high]


def arena_part() -> Part:
    names, rows = list(ARENA), list(ARENA.values())
    low, high = [s - down for s, _, down, _ in rows], [s + up for s, up, _, _ in rows]
    ranks, printed = rank_by_bound(low, high), [rank for *_, rank in rows]
    x = list(range(1, len(rows) + 1))
    figure = Lines(
        [("score", x, [score for score, *_ in rows])],
        bands={"score": (low, high)},
        x_label="model, in the order of the slide",
        y_label="score",
        title="Scores with 95% intervals",
        dots=["score"],
    )
    cells = [
        [rank, name, score, f"+{up}/-{down}"]
        for rank, name, (score, up, down, _) in zip(ranks, names, rows, strict=True)
    ]
    reading = "A rank is one more than the number of intervals above: five of nine are fifth."
    table = Table(["rank (UB)", "model", "score", "95% interval"], cells, title="The ranking")
    claim = agree("004: ranks follow from intervals", "the printed ranks", ranks, printed)
    return Part([claim], {reading: figure}, [table])


# 004, it

ANIMALS, PLACES = ("animal", "child", "horse", "dog"), ("street", "river", "bridge", "road")
STATES, SIZES = ("tired", "afraid", "hungry"), ("wide", "long", "wet")
FRAME = "the {} did not cross the {} because it was too {}"
FIXED = tuple(dict.fromkeys(word for word in FRAME.split() if word != "{}"))
VOCABULARY = (*FIXED, *ANIMALS, *PLACES, *STATES, *SIZES)
EXAMPLE = FRAME.format("animal", "street", "tired").split()
HEADS, STEPS, BATCH, TESTED, RIGHT = 4, 300, 64, 500, 0.95
IT = EXAMPLE.index("it")


class Reader(nn.Module):
    """One layer of attention, of which the vector of `it` alone is read: what does it refer to?"""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(VOCABULARY), D_MODEL)
        self.attention = SelfAttention(D_MODEL, HEADS)
        self.feedforward = FeedForward(D_MODEL, 2 * D_MODEL, activation="relu", bias=True)
        self.out = nn.Linear(D_MODEL, len(ANIMALS) + len(PLACES))

    def forward(self, ids: Tensor, tap: Tap | None = None) -> Tensor:
        """(B, T) to logits (B, nouns)."""
        x = self.embedding(ids) + sinusoids(torch.arange(ids.size(1)), D_MODEL)
        y = self.attention(x, AttentionContext(), None, tap)[:, IT]  # (B, D)
        return self.out(self.feedforward(y))  # type: ignore[no-any-return]


def encode_words(words: Sequence[str]) -> list[int]:
    return [VOCABULARY.index(word) for word in words]


def draw_sentences(n: int, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Return ids (n, T) of sentences, and which noun `it` refers to (n,)."""
    animal, place = random.integers(len(ANIMALS), size=n), random.integers(len(PLACES), size=n)
    adjective = random.integers(len(STATES) + len(SIZES), size=n)
    rows = [
        encode_words(FRAME.format(ANIMALS[a], PLACES[p], (*STATES, *SIZES)[j]).split())
        for a, p, j in zip(animal, place, adjective, strict=True)
    ]
    nouns = np.where(adjective < len(STATES), animal, len(ANIMALS) + place)
    return torch.tensor(rows), torch.from_numpy(nouns)


def train_reader(seed: int) -> tuple[Proportion, Array]:
    """Return how often a reader is right, and the weights of `it` (heads, T) in the example."""
    random = generator(seed)
    torch.manual_seed(seed_of(seed))
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(STEPS):
        ids, nouns = draw_sentences(BATCH, random)
        optimizer.zero_grad()
        F.cross_entropy(model(ids), nouns).backward()
        optimizer.step()
    tap = Tap(["weights"])
    with torch.no_grad():
        ids, nouns = draw_sentences(TESTED, random)
        n_right = int((model(ids).argmax(1) == nouns).sum())
        model(torch.tensor([encode_words(EXAMPLE)]), tap)
    return Proportion(n_right, TESTED), tap.activations["weights"][0, :, IT].double().numpy()


def it_part(seeds: Sequence[int], progress: LabProgress) -> Part:
    right, maps = Proportion(0, 0), list[Array]()
    for seed in seeds:
        proportion, weights = train_reader(seed)
        right, maps = right + proportion, [*maps, weights]
        progress.add("it", 1)
    words = [{EXAMPLE[i] for i in weights.argmax(1)} for weights in maps]
    fewest = min(map(len, words))
    figure = Heatmap(
        maps[int(np.argmax([len(w & {"animal", "tired"}) for w in words]))],
        [f"head {i + 1}" for i in range(HEADS)],
        EXAMPLE,
        title="What “it” attends to, head by head",
        scale="weights",
        unit="weight",
    )
    reading = (
        "Each row is a head: where the word it attends to. Of the trained models, one whose heads "
        "attend to animal and to tired, if there is any."
    )
    return Part(
        [
            Claim.within(
                "004: it refers to the animal if it was tired",
                f"found in at least {RIGHT:.0%} of sentences, by what it attends to",
                right,
                least=RIGHT,
            ),
            Claim.exact(
                "004: heads look at different things",
                "the heads of every model attend to at least two different words most",
                fewest,
                "{:.0f}, the fewest",
                least=2,
            ),
        ],
        {reading: figure},
    )


def slides(options: Options) -> Result:
    """Do the lectures' worked examples give the numbers on their slides?

    Names from six steps of counting, smoothing and the query 4.21, the mixtures of I, am and Sam,
    one verse in four languages, the causal triangle, binary codes, four words in any order,
    searches in a library and among films, windows of CBOW, the grid of keys and queries, steps of
    recurrence and attention, a ranking, and what “it” refers to. Each claim begins with the number
    of its deck.
    """
    seeds = options.seeds(2 if options.quick else 8)
    progress = options.progress(len(seeds))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of(options.seed))
        with torch.no_grad():
            parts = [
                names_part(options.seed),
                steps_part(),
                smoothing_part(),
                mixture_part(),
                verse_part(),
                code_part(),
                order_part(),
                norm_part(),
                lookup_part(),
                windows_part(),
                grid_part(),
                arena_part(),
            ]
        parts.append(it_part(seeds, progress))
    figures = {text: figure for part in parts for text, figure in part.figures.items()}
    claims = [claim for part in parts for claim in part.claims]
    first, *others = figures
    return Result(
        title="The numbers on the slides",
        answer=answer(claims),
        question=slides.__doc__ or "",
        reading=first,
        readings=others,
        claims=claims,
        tables=[t for part in parts for t in part.tables if isinstance(t, Table)],
        figures=list(figures.values()),
    )


def answer(claims: Sequence[Claim]) -> str:
    """Say whether the numbers of the slides come out."""
    wrong = [claim.name for claim in claims if claim.holds is False]
    if not wrong:
        return f"Yes: all {len(claims)} worked examples give the numbers on their slides."
    return f"Not all: {', '.join(wrong)} of {len(claims)} worked examples differ."
