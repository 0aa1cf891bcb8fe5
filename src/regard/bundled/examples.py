"""Small data sets for `regard example`: bundled, or made up with a fixed seed.

Each is what a user of regard might have: a list, a table, FASTA files, arrays. Sets that are made
up hide something that a model can find: a motif, a grammar, a season.
"""

from __future__ import annotations

import csv
import gzip
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.bundled import FILMS, NAMES, PHRASES, save_arrays, save_shapes
from regard.bundled.series import save_series
from regard.errors import UsageError, UserError, did_you_mean

SEED = 0


@dataclass(frozen=True, kw_only=True)
class Example:
    """A data set: what it is, where it is from, a command that uses it, how its files are made."""

    about: str
    origin: str
    command: str
    write: Callable[[Path], list[Path]]


EXAMPLES: dict[str, Example] = {}
MADE_UP = "made up, seed 0"


def example(name: str, about: str, command: str, origin: str = MADE_UP) -> Callable[..., Any]:
    """Register the function that writes the files of an example into a folder."""

    def register(write: Callable[[Path], list[Path]]) -> Callable[[Path], list[Path]]:
        EXAMPLES[name] = Example(about=about, origin=origin, command=command, write=write)
        return write

    return register


def _lines(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _table(path: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerows((names, *rows))
    return path


@example(
    "names",
    "26,886 first and last names, one per line; others.txt has 2,000 more",
    "regard train names.txt --minutes 2",
    "US Census Bureau 1990, public domain",
)
def _names(folder: Path) -> list[Path]:
    names = NAMES.read_text(encoding="ascii").split()
    held_out = set(Random(SEED).sample(names, 2000))
    return [
        _lines(folder / "names.txt", (name for name in names if name not in held_out)),
        _lines(folder / "others.txt", (name for name in names if name in held_out)),
        _lines(folder / "rules.txt", ("# no name starts with x or ends with q", "<S> x", "q <E>")),
    ]


PLACES = "Paris Rome Tokyo Lima Oslo Cairo Delhi Quito Berlin Nairobi Ottawa Athens Dublin Seoul"
PEOPLE = "Newton Curie Darwin Mozart Picasso Cleopatra Gandhi Einstein Kepler Homer Ada Turing"
THINGS = (
    "telephone bridge telescope piano steam engine radio compass vaccine bicycle printing press"
)
UNITS = "miles people steps islands bones keys moons rivers letters strings planets lakes"
QUESTIONS: dict[str, Sequence[str]] = {
    "person": (
        "Who invented the {thing} ?",
        "Who was the first visitor of {place} ?",
        "Which scientist lived near {place} ?",
        "Who taught {person} ?",
        "What is the name of the painter of the {thing} in {place} ?",
    ),
    "place": (
        "Where was {person} born ?",
        "Where is the oldest {thing} ?",
        "What city is larger than {place} ?",
        "In which country did {person} build a {thing} ?",
        "What is the capital near {place} ?",
    ),
    "number": (
        "How many {unit} does {place} have ?",
        "How many {unit} are there in a {thing} ?",
        "How old was {person} in {place} ?",
        "How far is {place} from {other} ?",
        "What is the weight of a {thing} ?",
    ),
    "time": (
        "When did {person} leave {place} ?",
        "When was the {thing} invented ?",
        "What year did {person} see {place} ?",
        "In which century was {place} founded ?",
        "How long did {person} work on the {thing} ?",
    ),
}


def _question(random: Random) -> tuple[str, str]:
    kind = random.choice(list(QUESTIONS))
    words = {
        "place": random.choice(PLACES.split()),
        "other": random.choice(PLACES.split()),
        "person": random.choice(PEOPLE.split()),
        "thing": random.choice(THINGS.split()),
        "unit": random.choice(UNITS.split()),
    }
    label = (
        kind if random.random() > 0.03 else random.choice(list(QUESTIONS))
    )  # people make mistakes
    return random.choice(QUESTIONS[kind]).format(**words), label


@example(
    "questions",
    "1,500 questions with the kind of their answer; more.tsv has 3,000 without it, new.txt 5",
    "regard train questions.tsv --target kind --minutes 1",
)
def _questions(folder: Path) -> list[Path]:
    random = Random(SEED)
    rows = [_question(random) for _ in range(1500)]
    more = [[_question(random)[0]] for _ in range(3000)]
    return [
        _table(folder / "questions.tsv", ("question", "kind"), rows),
        _table(folder / "more.tsv", ("question",), more),
        _lines(folder / "new.txt", (_question(random)[0] for _ in range(5))),
    ]


PRODUCTS = "kettle lamp chair toaster backpack headphones blanket bicycle"
OPINIONS: dict[str, Sequence[str]] = {
    "good": (
        "I use my {product} every day and love it .",
        "The {product} is solid , quiet and well made .",
        "It arrived early and works perfectly .",
        "Great value , I would buy this {product} again .",
        "My whole family enjoys it .",
    ),
    "bad": (
        "The {product} broke after two weeks .",
        "It is loud , cheap and not worth the money .",
        "It arrived late and with a scratch .",
        "I returned the {product} and want a refund .",
        "The manual is useless and nobody answers .",
    ),
    "plain": (
        "I bought this {product} in the spring .",
        "The box was blue .",
        "It is about as large as my old {product} .",
        "The price was average .",
    ),
}


def _review(random: Random, number: int) -> tuple[object, ...]:
    """A row of a shop: the text fits the stars; some cells are empty or written another way."""
    product, stars = random.choice(PRODUCTS.split()), random.choice((1, 2, 3, 4, 5, 5))
    kinds = random.choices(("good", "bad", "plain"), (stars, 6 - stars, 2), k=3)
    if stars in (1, 5):
        kinds[0] = "good" if stars == 5 else "bad"
    random.shuffle(kinds)
    text = " ".join(random.choice(OPINIONS[kind]).format(product=product) for kind in kinds)
    date = f"2025-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
    recommended = "yes" if stars + random.gauss(0, 0.6) > 3 else "no"
    returned = "yes" if stars - random.random() < 1.5 else "no"
    written = random.random()
    return (
        number,
        date,
        product,
        text,
        "NA" if written < 0.02 else stars,
        "" if 0.02 < written < 0.05 else recommended,
        "" if 0.05 < written < 0.25 else returned,
    )


@example(
    "reviews",
    "1,200 rows of a shop: date, product, review, stars, and yes or no; some cells are empty",
    "regard train reviews.csv --input review --target recommended --minutes 1",
)
def _reviews(folder: Path) -> list[Path]:
    random = Random(SEED)
    columns = ("id", "date", "product", "review", "stars", "recommended", "returned")
    return [_table(folder / "reviews.csv", columns, (_review(random, i) for i in range(1200)))]


BOXES = ("TTGACA", "TATAAT")  # of promoters of bacteria, 35 and 10 bases before the start


def _bases(random: Random, count: int) -> str:
    return "".join(random.choices("ACGT", (27, 23, 23, 27), k=count))


def _promoter(random: Random) -> str:
    """60 bases with both boxes, each base of which is kept with probability 0.85."""
    boxes = ["".join(x if random.random() < 0.85 else _bases(random, 1) for x in b) for b in BOXES]
    between, before = random.choice((16, 17, 17, 18)), random.randrange(8, 16)
    text = _bases(random, before) + boxes[0] + _bases(random, between) + boxes[1]
    return text + _bases(random, 60 - len(text))


def _fasta(path: Path, records: Iterable[tuple[str, str]]) -> Path:
    return _lines(path, (line for name, letters in records for line in (f">{name}", letters)))


@example(
    "promoters",
    "1,200 DNA sequences of 60 bases, half of them with two planted motifs; new.fa has 20",
    "regard train promoters.fa background.fa --minutes 1",
)
def _promoters(folder: Path) -> list[Path]:
    random = Random(SEED)
    bound = [(f"p{i}", _promoter(random)) for i in range(600)]
    others = [(f"b{i}", _bases(random, 60)) for i in range(600)]
    new = [(f"n{i}", _promoter(random) if i % 2 else _bases(random, 60)) for i in range(20)]
    return [
        _fasta(folder / "promoters.fa", bound),
        _fasta(folder / "background.fa", others),
        _fasta(folder / "new.fa", new),
    ]


WATER_LOVING, WATER_HATING, OTHERS = "KRDENQSTH", "AVLIMFWYC", "GP"


def _helix(random: Random, length: int) -> str:
    """Residues with one side that water attracts, as in helices that pierce membranes."""
    sides = (
        WATER_HATING if math.cos(i * math.radians(100)) > 0.1 else "KKRRKSN" for i in range(length)
    )
    return "".join(random.choice(side if random.random() < 0.9 else OTHERS) for side in sides)


def _coil(random: Random, length: int) -> str:
    return "".join(random.choices(WATER_LOVING + WATER_HATING + OTHERS, k=length))


@example(
    "proteins",
    "800 peptides in FASTA, half of them helices; structure.tsv; new.fasta has 6",
    "regard train proteins.fasta --target class --minutes 1",
)
def _proteins(folder: Path) -> list[Path]:
    random, records, rows = Random(SEED), [], []
    for i in range(800):
        length = random.randrange(15, 40)
        if i % 2:
            letters, structure = _helix(random, length), "H" * length
        else:
            letters, structure = _coil(random, length), "C" * length
        ends = [
            "".join(random.choices(WATER_LOVING + OTHERS, k=random.randrange(3, 9))) for _ in "ab"
        ]
        letters, structure = (
            ends[0] + letters + ends[1],
            ("C" * len(ends[0]) + structure + "C" * len(ends[1])),
        )
        records.append((f"p{i} class={'helix' if i % 2 else 'other'}", letters))
        rows.append((letters, structure))
    new = [(f"n{i}", _helix(random, 30) if i % 2 else _coil(random, 30)) for i in range(6)]
    return [
        _fasta(folder / "proteins.fasta", records),
        _table(folder / "structure.tsv", ("sequence", "structure"), rows),
        _fasta(folder / "new.fasta", new),
    ]


LEFT = ("C", "CC", "CC(C)", "O", "N", "Cl", "F", "N#C", "OC(=O)", "NC(=O)", "CO", "OCC")
RIGHT = ("C", "CC", "C(C)C", "O", "N", "Cl", "F", "C#N", "C(=O)O", "C(=O)N", "OC", "CCO")
RINGS = (
    "c1ccc({})cc1",
    "c1cccc({})c1",
    "C1CCC({})CC1",
    "c1ccc({})nc1",
    "C1CCN({})CC1",
    "C({})C",
    "C(C)({})C",
)
# What each piece adds to the solubility (in logarithms of mol per litre), made up by its nature.
POLAR = {"O": 0.9, "N": 0.8, "n": 0.6, "F": -0.2, "l": -0.7, "#": 0.3, "=": 0.2}


def _molecule(random: Random) -> tuple[str, float, str]:
    left, right, chain = random.choice(LEFT), random.choice(RIGHT), "C" * random.randrange(5)
    ring = random.choice(RINGS)
    right = "C" + right if "N({})" in ring else right
    smiles = left + chain + ring.format(right)
    solubility = 1.0 - 0.45 * smiles.lower().count("c")
    solubility += sum(POLAR.get(letter, 0.0) for letter in smiles) + random.gauss(0, 0.3)
    alarming = ("#" in smiles) + smiles.count("Cl") + ("c1" in smiles and smiles.startswith("N"))
    toxic = "yes" if random.random() < (0.08, 0.75, 0.95, 0.95)[min(3, alarming)] else "no"
    return smiles, round(solubility, 2), toxic


def _atoms(random: Random, number: int) -> tuple[str, str]:
    """A bent molecule in XYZ format, with the energy of its angle and bonds, and its name."""
    angle, bonds = random.uniform(1.4, 2.4), [random.uniform(0.9, 1.3) for _ in "ab"]
    middle, ends = random.choice("ONS"), random.choice("HFC")
    depth = {"O": -76.0, "N": -55.0, "S": -98.0}[middle] + {"H": -0.5, "F": -9.0, "C": -7.0}[ends]
    energy = depth + 2 * (angle - 1.9) ** 2 + sum(6 * (bond - 1.05) ** 2 for bond in bonds)
    turn = random.uniform(0, 2 * math.pi)
    rows = [f"{middle} 0.0000 0.0000 0.0000"]
    for bond, way in zip(bonds, (turn, turn + angle), strict=True):
        rows.append(f"{ends} {bond * math.cos(way):.4f} {bond * math.sin(way):.4f} 0.0000")
    return "\n".join(["3", f"m{number}", *rows]), f"m{number} {energy:.4f}"


@example(
    "molecules",
    "2,000 SMILES with solubility and toxicity; new.smi has 10; molecules.xyz 600 with coordinates",
    "regard train molecules.csv --target solubility --minutes 1",
)
def _molecules(folder: Path) -> list[Path]:
    random = Random(SEED)
    made = {one[0]: one for one in (_molecule(random) for _ in range(6000))}
    rows, new = list(made.values())[:2000], list(made)[2000:2010]
    atoms = [_atoms(random, i) for i in range(600)]
    return [
        _table(folder / "molecules.csv", ("smiles", "solubility", "toxic"), rows),
        _lines(folder / "new.smi", (f"{smiles} new-{i}" for i, smiles in enumerate(new))),
        _lines(folder / "molecules.xyz", (text for text, _ in atoms)),
        _lines(folder / "energies.txt", (energy for _, energy in atoms)),
    ]


@example(
    "digits",
    "1,797 handwritten digits of 8 × 8 pixels; images/ has 40 of them, a folder for each class",
    "regard train digits.npz --minutes 1",
    "UCI, Alpaydin and Kaynak 1998, CC BY 4.0, by way of scikit-learn",
)
def _digits(folder: Path) -> list[Path]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = np.round(images.reshape(-1, 8, 8) / 16 * 255).astype(np.uint8)
    save_arrays(folder / "digits.npz", images=pixels, digit=labels.astype(np.int64))
    for i, (image, label) in enumerate(zip(pixels[:40], labels[:40], strict=True)):
        path = folder / "images" / str(label) / f"{i:02}.pgm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P5 8 8 255\n" + image.tobytes())
    return [folder / "digits.npz", folder / "images"]


COLORS = {
    "red": (220, 50, 40),
    "green": (40, 170, 70),
    "blue": (50, 90, 220),
    "yellow": (235, 200, 40),
}
SIDE = 20


def _mask(shape: str, radius: float, y: NDArray[Any], x: NDArray[Any]) -> NDArray[np.bool_]:
    inside = {
        "circle": x**2 + y**2 <= radius**2,
        "square": np.maximum(abs(x), abs(y)) <= radius * 0.85,
        "triangle": (y >= -radius) & (y <= radius * 0.8) & (abs(x) <= (y + radius) / 1.8),
    }
    chosen: NDArray[np.bool_] = inside[shape]
    return chosen


def _drawing(random: Random) -> tuple[NDArray[np.uint8], str]:
    """Draw two shapes, and say which is left of, or above, the other."""
    image = np.full((SIDE, SIDE, 3), 250, np.uint8)
    in_a_row, words = random.random() < 0.5, []
    for center in (4.8, 14.2):
        color, shape = random.choice(list(COLORS)), random.choice(("circle", "square", "triangle"))
        size, radius = random.choice((("small", 2.6), ("large", 4.4)))
        down, right = (9.5, center) if in_a_row else (center, 9.5)
        y, x = np.mgrid[:SIDE, :SIDE].astype(float)
        shift = [random.uniform(-0.8, 0.8) for _ in "yx"]
        image[_mask(shape, radius, y - down - shift[0], x - right - shift[1])] = COLORS[color]
        words.append(f"a {size} {color} {shape}")
    return image, f"{words[0]} {'left of' if in_a_row else 'above'} {words[1]}"


@example(
    "pictures",
    "1,200 drawings of two shapes, each with a caption; drawings.tsv lists 100 of them as files",
    "regard train pictures.npz --target captions --minutes 2",
)
def _pictures(folder: Path) -> list[Path]:
    random = Random(SEED)
    images, captions = zip(*(_drawing(random) for _ in range(1200)), strict=True)
    (folder / "drawings").mkdir(exist_ok=True)
    rows = [(f"drawings/{i:02}.ppm", caption) for i, caption in enumerate(captions[:100])]
    for (name, _), image in zip(rows, images, strict=False):
        (folder / name).write_bytes(b"P6 %d %d 255\n" % (SIDE, SIDE) + image.tobytes())
    return [
        save_arrays(folder / "pictures.npz", images=np.stack(images), captions=np.array(captions)),
        folder / "drawings",
        _table(folder / "drawings.tsv", ("image", "caption"), rows),
    ]


@example(
    "shapes",
    "800 point clouds of eight solids, rotated at random; parts.npz has a label for every point",
    "regard train shapes.npz --minutes 1",
)
def _shapes(folder: Path) -> list[Path]:
    save_shapes(folder / "shapes.npz", 800, seed=SEED, count=128)
    points = np.random.default_rng(SEED).normal(size=(200, 32, 3)).astype(np.float32)
    parts = (points[..., 2] > 0).astype(np.int64)
    save_arrays(folder / "parts.npz", points=points, part=parts)
    return [folder / "shapes.npz", folder / "parts.npz"]


@example(
    "phrases",
    "11,500 dates, numbers and amounts in English and German, 500 for testing; new.en has 5",
    "regard train train.en train.de --minutes 2",
    "Unicode CLDR, Unicode License v3, by way of babel (BSD)",
)
def _phrases(folder: Path) -> list[Path]:
    rows = gzip.decompress(PHRASES.read_bytes()).decode("utf-8").splitlines()
    Random(SEED).shuffle(rows)
    paths = []
    for name, part in (("train", rows[500:]), ("test", rows[:500])):
        pairs = [row.split("\t") for row in part]
        paths += [
            _lines(folder / f"{name}.{language}", (pair[i] for pair in pairs))
            for i, language in enumerate(("en", "de"))
        ]
    new = [row.split("\t")[0] for row in rows[:5]]
    return [*paths, _lines(folder / "new.en", new)]


ROLES = {
    "royal": ("king", "queen", "prince", "princess"),
    "animal": ("cat", "dog", "horse", "mouse"),
    "place": ("castle", "garden", "village", "harbour"),
    "food": ("bread", "soup", "cheese", "apples"),
    "weather": ("rain", "snow", "wind", "fog"),
}
SENTENCES = (
    "the {royal} rode a {animal} to the {place}",
    "a {animal} slept in the {place} while the {weather} fell",
    "the {royal} ate {food} and gave {food} to the {animal}",
    "there was {weather} over the {place} all day",
    "no {animal} likes {weather} as much as {food}",
    "the {royal} of the {place} had a {animal} and loved {food}",
    "in the {place} the {animal} stole {food} from the {royal}",
    "the {royal} met a {royal} in the {weather}",
)


def _sentence(random: Random) -> str:
    template = random.choice(SENTENCES)
    for role, words in ROLES.items():
        while f"{{{role}}}" in template:
            template = template.replace(f"{{{role}}}", random.choice(words), 1)
    return template


@example(
    "text",
    "5,000 short sentences, one per line; story.txt: running text; pairs.tsv: rated pairs of words",
    "regard train text.txt --model skipgram --minutes 0.5",
)
def _text(folder: Path) -> list[Path]:
    random = Random(SEED)
    sentences = [_sentence(random) for _ in range(5000)]
    story = [
        " ".join(f"{_sentence(random).capitalize()}." for _ in range(random.randrange(3, 8)))
        for _ in range(600)
    ]
    kinds = {word: role for role, words in ROLES.items() for word in words}
    words = list(kinds)
    pairs = [random.sample(words, 2) for _ in range(60)]
    rated = [(a, b, 9 if kinds[a] == kinds[b] else random.choice((1, 2, 3))) for a, b in pairs]
    analogies = [": royal", "king queen prince princess", "prince princess king queen"]
    return [
        _lines(folder / "text.txt", sentences),
        _lines(folder / "story.txt", "\n\n".join(story).split("\n")),
        _lines(folder / "pairs.tsv", ("\t".join(map(str, row)) for row in rated)),
        _lines(folder / "analogies.txt", analogies),
    ]


CITIES = ["oslo", "rome", "lima", "cairo", "delhi", "quito", "berlin", "dublin"]
DAYS = ["monday", "tuesday", "friday", "sunday"]
WEATHER = {
    "rain": ("it rained all morning", "there was rain from dawn on"),
    "snow": ("snow fell on the hills", "it snowed for hours"),
    "wind": ("the wind rose", "a strong wind blew"),
    "fog": ("fog lay over the river", "nobody could see the bridge"),
    "sun": ("the sun shone on the roofs", "there was not one cloud"),
}
WHO = ["king", "queen", "baker", "doctor", "pilot", "farmer", "teacher", "painter"]
WHAT = ["bread", "cheese", "apples", "soup", "honey", "fish", "rice", "nuts"]
WHERE = ["castle", "garden", "harbour", "school", "market", "station", "library", "mill"]
WHEN = ["noon", "dawn", "dusk", "midnight"]
PAIRS = 300  # of summaries, and of answers


def _report(random: Random) -> tuple[str, str]:
    """Return a report of the weather and its summary."""
    city, day, kinds = random.choice(CITIES), random.choice(DAYS), random.sample(list(WEATHER), 2)
    first, then = (random.choice(WEATHER[kind]) for kind in kinds)
    report = f"on {day} in {city} {first} . later {then} ."
    return report, f"{city} : {kinds[0]} , then {kinds[1]}"


def _passage(random: Random) -> tuple[str, str]:
    """Return a passage with a question on it, and the answer, a word of the passage."""
    answers = [random.choice(words) for words in (WHO, WHAT, WHERE, WHEN)]
    who, what, where, when = answers
    questions = "who took it", "what was taken", "where did it go", "when was it"
    number = random.randrange(len(questions))
    passage = f"at {when} the {who} took {what} to the {where} ."
    return f"{passage} {questions[number]} ?", answers[number]


@example(
    "stories",
    "300 weather reports with summaries; answers.tsv: 300 questions on a text; asked.txt has 5",
    "regard train summaries.tsv --input report --target summary --task target --minutes 1",
)
def _stories(folder: Path) -> list[Path]:
    random = Random(SEED)
    reports, passages = dict[str, str](), dict[str, str]()
    while len(reports) < PAIRS:
        reports.update([_report(random)])
    while len(passages) < PAIRS:
        passages.update([_passage(random)])
    new = [_passage(random)[0] for _ in range(5)]
    return [
        _table(folder / "summaries.tsv", ("report", "summary"), reports.items()),
        _table(folder / "answers.tsv", ("question", "answer"), passages.items()),
        _lines(folder / "asked.txt", new),
    ]


@example(
    "films",
    "for the lab: ten films and a line about each; points.csv has 40 noisy points of a curve",
    "regard lab lookup films.tsv --quick",
    "three from a lecture on attention, seven written for regard; points made up, seed 0",
)
def _films(folder: Path) -> list[Path]:
    random, xs = Random(SEED), [i / 4 for i in range(40)]
    points = [(x, round(2 * math.sin(x) + x / 3 + random.gauss(0, 0.4), 3)) for x in xs]
    return [
        Path(shutil.copyfile(FILMS, folder / "films.tsv")),
        _table(folder / "points.csv", ("x", "y"), points),
    ]


def _signal(random: Random, kind: str) -> list[float]:
    period, phase = random.uniform(10, 18), random.uniform(0, 2 * math.pi)
    waves: dict[str, Callable[[int], float]] = {
        "sine": lambda t: math.sin(2 * math.pi * t / period + phase),
        "square": lambda t: math.copysign(0.9, math.sin(2 * math.pi * t / period + phase)),
        "sawtooth": lambda t: 2 * ((t / period + phase) % 1) - 1,
    }
    return [waves[kind](t) + random.gauss(0, 0.25) for t in range(64)]


@example(
    "series",
    "40 weeks of hourly load and temperature, with gaps; signals.csv has 240 labelled recordings",
    "regard train load.csv --target load --horizon 24 --minutes 1",
)
def _series(folder: Path) -> list[Path]:
    random, rows = Random(SEED), []
    for number in range(240):
        kind = ("sine", "square", "sawtooth")[number % 3]
        values = enumerate(_signal(random, kind))
        rows += [(f"r{number}", step, f"{volt:.3f}", kind) for step, volt in values]
    return [
        save_series(folder / "load.csv"),
        _table(folder / "signals.csv", ("recording", "t", "volt", "kind"), rows),
    ]


def write_example(name: str, folder: str | Path = ".", *, force: bool = False) -> list[Path]:
    """Write the files of an example into a folder and return them; `regard example` lists the
    names. A file that is there and differs is an error unless `force`.
    """
    if name not in EXAMPLES:
        raise UsageError(f"unknown example {name!r}; {did_you_mean(name, list(EXAMPLES))}")
    with tempfile.TemporaryDirectory() as temporary:
        made = EXAMPLES[name].write(Path(temporary))
        targets = [Path(folder) / path.name for path in made]
        for path, target in zip(made, targets, strict=True):
            if target.exists() and not force and not same(path, target):
                raise UserError(f"{target} exists and differs: --force replaces it, or give --out")
        Path(folder).mkdir(parents=True, exist_ok=True)
        for path, target in zip(made, targets, strict=True):
            if path.is_dir():
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                shutil.copyfile(path, target)
    return targets


def same(one: Path, other: Path) -> bool:
    """Return whether two files are the same, or every file of a folder is in the other."""
    if one.is_dir():
        return all((other / path.relative_to(one)).exists() for path in one.rglob("*"))
    return other.is_file() and one.read_bytes() == other.read_bytes()
