"""The search for motifs, and the table of the models that recognise sequences by them.

A third of the sequences is held out. Motifs are found in the others, refined at every order, and
ranked by how well they tell held-out sequences from the background: as many sequences shuffled with
all counts of 3-mers kept (of letters, in proteins), or a file. A CNN and attention are trained on
the same sequences. The motifs that are drawn and written are then fitted to all sequences.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import UsageError, UserError
from regard.evaluation import Metric, to_document
from regard.evaluation.bootstrap import BootstrapEstimate
from regard.evaluation.classification import classification_report
from regard.interop.motif_formats import read_motifs
from regard.models.motif_discovery import (
    SHARP,
    Collection,
    DiscoveredMotif,
    MotifFit,
    discover,
    fit_background,
    refit,
)
from regard.models.motifs import (
    Background,
    Floats,
    Motif,
    PositionWeightMatrix,
)
from regard.motif.networks import BACKGROUND, MOTIF, NETWORKS, score_texts, train_network
from regard.motif.sequences import Log, MotifSequences, read_sequences

FEWEST = 12  # sequences: a third of fewer measures nothing
FDR = 0.1
MOST_ORDER = 4
METRICS = ("auroc", "average_precision")
IUPAC = {  # Cornish-Bowden 1985, Nucleic Acids Research 13:3021
    **{"R": "AG", "Y": "CT", "S": "CG", "W": "AT", "K": "GT", "M": "AC"},
    **{"B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT"},
}


def parse_width(text: str) -> tuple[int, int] | None:
    """Return the range of a width such as 8 or 6-20; None of an empty text."""
    if not text:
        return None
    ends = text.split("-")
    if len(ends) > 2 or not all(end.strip().isdecimal() for end in ends):
        raise UsageError(f"--width must be a number or a range such as 6-20, got {text!r}")
    low, high = int(ends[0]), int(ends[-1])
    if not 2 <= low <= high:
        raise UsageError(f"--width must be 2 or more, or a range from small to large, got {text!r}")
    return low, high


def parse_orders(text: str) -> tuple[int, ...]:
    """Return the orders of a list such as 0,2."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) <= MOST_ORDER for word in words):
        raise UsageError(f"--orders must be a list of 0 to {MOST_ORDER} such as 0,2, got {text!r}")
    return tuple(map(int, words))


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What to search. `width` is a range, by default 6 to 20 or that of the starting point;
    `starts` are motif files and words such as TATAAT; without minutes there are no networks.
    """

    width: tuple[int, int] | None = None
    orders: tuple[int, ...] = (0, 2)
    n_motifs: int = 1
    both_strands: bool = True
    background: Path | None = None
    starts: tuple[str, ...] = ()
    minutes: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.orders or not all(0 <= order <= MOST_ORDER for order in self.orders):
            raise UsageError(f"orders must be from 0 to {MOST_ORDER}, got {self.orders}")
        if self.n_motifs < 1:
            raise UsageError(f"the number of motifs must be 1 or more, got {self.n_motifs}")
        if not self.minutes >= 0:
            raise UsageError(f"minutes must be 0 or more, got {self.minutes}")
        if self.seed < 0:
            raise UsageError(f"seed must be 0 or more, got {self.seed}")


@dataclass(frozen=True, eq=False)
class MotifRow:
    """A model of the table, with its scores of the held-out sequences, those with a motif first.
    Of a motif: its number, its order, and the model fitted to all sequences.
    """

    name: str
    scores: Floats
    estimates: dict[str, BootstrapEstimate]
    recall: float  # of the held-out sequences, at a false discovery rate of FDR
    seconds: float
    against: dict[str, Metric]  # differences to the first motif's weight matrix
    number: int = 0
    order: int = -1
    motif: DiscoveredMotif | None = None

    @property
    def information(self) -> float | None:
        """The information of the motif in bits, given the letters before each position."""
        motif = self.motif
        return float(motif.motif.conditional_information().sum()) if motif else None

    def cells(self) -> list[object]:
        """Return the row of the table."""
        motif, bits = self.motif, self.information
        return [
            self.name,
            *(str(self.estimates[name].metric()) for name in METRICS),
            str(self.against["auroc"]) if self.against else "",
            f"{self.recall:.0%}",
            len(motif.sites) if motif else None,
            None if bits is None else round(bits, 1),
            f"{self.seconds:.1f} s",
        ]

    def to_json(self) -> dict[str, Any]:
        motif, bits = self.motif, self.information
        document: dict[str, Any] = {
            "model": self.name,
            "metrics": to_document({name: self.estimates[name].metric() for name in METRICS}),
            "minus_order_0": to_document(self.against),
            f"recall_at_fdr_{FDR:g}": self.recall,
            "seconds": round(self.seconds, 3),
        }
        if motif is not None:
            document |= {
                "motif": self.number,
                "order": self.order,
                "consensus": motif.motif.consensus,
                "width": motif.motif.width,
                "sites": len(motif.sites),
                "share": motif.share,
                "information_bits": bits,
            }
        return document


COLUMNS = [
    *("model", "AUROC [95%]", "avg. precision [95%]", "AUROC, less order 0's"),
    *(f"recall at FDR {FDR:.0%}", "sites", "bits", "fitted in"),
]


@dataclass(frozen=True, eq=False)
class MotifResult:
    """The table, the sequences, and which of them were held out."""

    rows: tuple[MotifRow, ...]
    sequences: MotifSequences
    negatives: str  # what they are
    truths: Floats  # (N,) of the held-out scores: 1 with a motif, 0 without
    both_strands: bool
    seconds: float

    @property
    def motifs(self) -> list[list[MotifRow]]:
        """The rows of each motif, by order."""
        numbers = sorted({row.number for row in self.rows if row.motif})
        return [[row for row in self.rows if row.number == n and row.motif] for n in numbers]

    @property
    def verdict(self) -> list[str]:
        """A sentence about each motif, and one about the networks."""
        sentences = []
        for rows in self.motifs:
            best = max(rows, key=lambda row: row.estimates["auroc"].value)
            assert best.motif is not None and rows[0].motif is not None
            word, metric = rows[0].motif.motif.consensus, best.estimates["auroc"].metric()
            known = f"motif {best.number}, {word}, in {rows[0].motif.share:.0%} of the sequences"
            if metric.low <= 0.5:
                sentences.append(
                    f"{known}: it may be noise, since even order {best.order} is not surely better "
                    f"than chance on held-out sequences, AUROC {metric}"
                )
            else:
                sentences.append(f"{known}: AUROC {metric} at order {best.order}, the best order")
        gains = [(row.name, row.against["auroc"]) for row in self.rows if not row.motif]
        sentences += [
            f"{name} recognises the sequences better than motif 1's weight matrix, by {gain} AUROC"
            for name, gain in gains
            if gain.low > 0
        ]
        return sentences

    @cached_property
    def held_out(self) -> int:
        """The number of held-out sequences."""
        return int(self.truths.sum())

    def table(self) -> tuple[list[str], list[list[object]]]:
        return COLUMNS, [row.cells() for row in self.rows]

    def text_table(self) -> tuple[list[str], list[list[str]]]:
        """Return the table as text."""
        columns, rows = self.table()
        return columns, [["" if cell is None else str(cell) for cell in row] for row in rows]

    def to_json(self) -> dict[str, Any]:
        s = self.sequences
        return {
            "file": s.file,
            "sequences": len(s.texts),
            "letters": s.letters,
            "alphabet": s.alphabet.letters,
            "held_out": self.held_out,
            "negatives": self.negatives,
            "seconds": round(self.seconds, 3),
            "rows": [row.to_json() for row in self.rows],
            "verdict": self.verdict,
        }


@dataclass(frozen=True, eq=False)
class SearchData:
    """Sequences with a motif and without, as training and held-out parts, and their background."""

    train: MotifSequences
    test: MotifSequences
    train_negatives: MotifSequences
    test_negatives: MotifSequences
    background: Background
    both_strands: bool

    @property
    def truths(self) -> Floats:
        return np.repeat([1.0, 0.0], [len(self.test.texts), len(self.test_negatives.texts)])

    def score(self, model: DiscoveredMotif) -> Floats:
        """Return the scores of the held-out sequences, then of those without a motif."""
        digits = [*self.test.digits, *self.test_negatives.digits]
        data = Collection(digits, self.background, self.both_strands)
        return MotifFit(data, model.motif, model.share).sequence_scores(len(digits))


def search(path: Path, options: SearchOptions, log: Log) -> MotifResult:
    """Find motifs in the sequences of a file, and measure them."""
    began = time.monotonic()
    sequences = read_sequences(path, log)
    if len(sequences.texts) < FEWEST:
        raise UserError(
            f"{path}: a search compares {FEWEST} sequences or more, got {len(sequences.texts)}; "
            "--scan locates a known motif in any number of them"
        )
    starts = [find_start(start, sequences) for start in options.starts]
    data, negatives = split(sequences, options, log)
    both = data.both_strands
    log(
        f"{path}: {len(sequences.texts):,} sequences, {sequences.letters:,} letters, "
        f"{len(data.test.texts):,} held out; searching {'both strands' if both else 'one strand'}"
    )
    everything = Collection(sequences.digits, data.background, both)
    rows: list[MotifRow] = []
    for number, (start, seconds) in enumerate(find_motifs(data, starts, options), 1):
        began_fit, orders = time.monotonic(), sorted({0, *options.orders})
        training = Collection(data.train.digits, data.background, both)
        models = refit(training, start.motif, orders)
        seconds += (time.monotonic() - began_fit) / len(orders)
        finals = refit(everything, start.motif, orders)
        for order, model, final in zip(orders, models, finals, strict=True):
            name = f"motif {number}, order {order}" + " (PWM)" * (order == 0)
            facts: dict[str, Any] = {"number": number, "order": order, "motif": final}
            rows.append(make_row(name, data.score(model), data, seconds, rows, **facts))
    if not rows:
        raise UserError(f"{path}: no word is more frequent than its letters explain: no motif")
    rows += network_rows(data, options, rows, log)
    seconds = time.monotonic() - began
    return MotifResult(tuple(rows), sequences, negatives, data.truths, both, seconds)


def split(sequences: MotifSequences, options: SearchOptions, log: Log) -> tuple[SearchData, str]:
    """Return the training and held-out parts, and what the sequences without a motif are."""
    random = np.random.default_rng(options.seed)
    both = options.both_strands and sequences.has_strands
    train, test = (sequences.subset(part) for part in sequences.hold_out(random))
    if options.background is None:
        what = f"the sequences shuffled, counts of {sequences.shuffled_k}-mers kept"
        without = train.shuffled(random), test.shuffled(random)
        same = sum(a == b for a, b in zip(test.texts, without[1].texts, strict=True))
        if same:
            log(f"{same:,} held-out sequences have no other order with the same k-mers")
        background = fit_background(sequences.digits, sequences.alphabet, both)
    else:
        what = str(options.background)
        negatives = read_sequences(options.background, log, sequences.alphabet)
        if len(negatives.texts) < FEWEST:
            raise UserError(
                f"{what}: a background has {FEWEST} sequences or more, got {len(negatives.texts)}"
            )
        parts = negatives.hold_out(random)
        without = negatives.subset(parts[0]), negatives.subset(parts[1])
        background = fit_background(negatives.digits, sequences.alphabet, both)
    return SearchData(train, test, *without, background, both), what


def find_start(text: str, sequences: MotifSequences) -> Motif:
    """Return a motif of a word such as TATAAT, in which W is A or T, or of a file with one."""
    alphabet = sequences.alphabet
    if Path(text).is_file():
        motifs = read_motifs(text)
        if len(motifs) > 1:
            names = ", ".join(one.name for one in motifs[:5])
            raise UsageError(f"{text}: has {len(motifs)} motifs ({names}, …); give a file with one")
        motif = motifs[0].motif
        if motif.alphabet.letters != alphabet.letters:
            raise UsageError(
                f"{text}: a motif of {motif.alphabet.letters}, but the sequences are of "
                f"{alphabet.letters}"
            )
        return PositionWeightMatrix.of_counts(motif.probabilities + 0.01, alphabet, pseudocount=0)
    codes = {letter: letter for letter in alphabet.letters} | {"X": alphabet.letters}
    if alphabet.complement:
        swap = str.maketrans("T", alphabet.letters[-1])
        codes |= {code: letters.translate(swap) for code, letters in IUPAC.items()}
    word = text.upper()
    if len(word) < 2 or not set(word) <= codes.keys():
        raise UsageError(
            f"--seed-motif must be a motif file or a word of two or more of {''.join(codes)}, got "
            f"{text!r}"
        )
    allowed = np.array([[letter in codes[c] for letter in alphabet.letters] for c in word], float)
    columns = SHARP * allowed / allowed.sum(axis=1, keepdims=True) + (1 - SHARP) / alphabet.size
    return PositionWeightMatrix.of_counts(columns, alphabet, pseudocount=0.0)


def find_motifs(
    data: SearchData, starts: Sequence[Motif], options: SearchOptions
) -> list[tuple[DiscoveredMotif, float]]:
    """Return the motifs of order 0 in the training part, and the seconds that each took."""
    shared: dict[str, Any] = {
        "revcomp": data.both_strands,
        "seed": options.seed,
        "background": data.background,
        "alphabet": data.train.alphabet,
    }
    began, motifs = time.monotonic(), list[DiscoveredMotif]()
    for start in starts:
        width = options.width or (start.width, start.width)
        start = PositionWeightMatrix.of_counts(
            start.probabilities, pseudocount=0, alphabet=start.alphabet, background=data.background
        )
        motifs += discover(data.train.texts, width, start=start, **shared)
    if not starts:
        width = options.width or (6, 20)
        motifs = discover(data.train.texts, width, n_motifs=options.n_motifs, **shared)
    seconds = (time.monotonic() - began) / max(1, len(motifs))
    return [(motif, seconds) for motif in motifs if motif.sites]


def make_row(
    name: str,
    scores: Floats,
    data: SearchData,
    seconds: float,
    before: Sequence[MotifRow],
    **motif: Any,
) -> MotifRow:
    """Return a row; the first one is what the others are compared with."""
    truths = data.truths.astype(np.int64)
    logits = np.stack([np.zeros(len(scores)), scores], axis=1)
    report = classification_report(logits, truths, names=(BACKGROUND, MOTIF))
    estimates = {metric: report.estimates[metric] for metric in METRICS}
    against = {
        metric: estimates[metric].minus(before[0].estimates[metric])
        for metric in METRICS * bool(before)
    }
    recall = recall_at(scores, data.truths)
    return MotifRow(name, scores, estimates, recall, seconds, against, **motif)


def recall_at(scores: Floats, truths: Floats, rate: float = FDR) -> float:
    """Return the greatest share of the sequences with a motif above a threshold at which at most
    `rate` of those above are without one, as if there were as many of either.
    """
    thresholds = np.unique(scores)
    positive, negative = np.sort(scores[truths == 1]), np.sort(scores[truths == 0])
    true = 1 - np.searchsorted(positive, thresholds) / len(positive)
    false = 1 - np.searchsorted(negative, thresholds) / len(negative)
    allowed = false <= rate * (true + false)
    return float(true[allowed].max(initial=0.0))


def network_rows(
    data: SearchData, options: SearchOptions, before: Sequence[MotifRow], log: Log
) -> list[MotifRow]:
    """Return the rows of the networks, which share the minutes."""
    rows, minutes = [], options.minutes / len(NETWORKS)
    for model, name in NETWORKS.items() if minutes else ():
        log(f"training, to compare with: {name}, {minutes:.2g} minutes")
        start = time.monotonic()
        predictor = train_network(
            model,
            data.train,
            data.train_negatives,
            minutes,
            strands=data.both_strands,
            seed=options.seed,
        )
        scores = score_texts(predictor, (*data.test.texts, *data.test_negatives.texts))
        rows.append(make_row(name, scores, data, time.monotonic() - start, before))
    return rows
