"""Motif models on real DNA: labels by cross-validation, and planted JASPAR motifs found again.

Classification. Equal sequences stay in one fold, labels are spread evenly over the folds. Rows:
the position weight matrix (order 0), Bayesian Markov models of orders 1 and 2, and logistic
regressions on counts of k-mers (k = 1 to 4, standardised) and on one-hot positions, both with an
L2 penalty of 0.01 on the mean loss, none tuned. AUROC and average precision (AP) are means over the
labels, each against the rest; 95% intervals resample the distinct sequences.

Discovery. Each motif is drawn, with its counts as probabilities, into 70% of 200 sequences of 200
bases (uniform, or with the composition of E. coli, by turns), anywhere, on either strand. Motifs
are taken at random among those 6 to 20 wide with 6 columns or more of 0.5 bit. One is recovered
when, at the best shift and strand, the aligned columns hold 6 of these, correlate by 0.75 or more
(Pearson, over all aligned probabilities), and the most probable letter of at least 70% of these
agrees. The width is not given.

    python benchmarks/motifs.py [--data DIR] [--json FILE] [--quick]
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.interop.motif_formats import read_motifs
from regard.models.motif_discovery import discover
from regard.models.motifs import DNA, Background, Motif, MotifClassifier

INFORMATIVE, CORRELATION, AGREEMENT, BAR = 0.5, 0.75, 0.7, 0.9
SEQUENCES, LENGTH, PLANTED = 200, 200, 0.7
PUBLISHED = {
    "uci_splice, 1,000 examples": "errors of N / EI / IE: KBANN 4.62 / 7.56 / 8.47, backprop "
    "5.29 / 5.74 / 10.75, nearest neighbour 31.11 / 11.65 / 9.09 % (splice.names, 10-fold)",
    "uci_promoters": "errors of 106: KBANN 4, backprop 8, O'Neill 12, nearest neighbour 13, ID3 19 "
    "(UCI notes, leave-one-out)",
    "cnnprom, E. coli": "CNN: sensitivity 0.90, specificity 0.96, correlation 0.84 "
    "(Umarov & Solovyev 2017, 20% held out)",
    "cnnprom, B. subtilis": "CNN: sensitivity 0.91, specificity 0.95, correlation 0.86 "
    "(Umarov & Solovyev 2017, 20% held out)",
}


@dataclass(frozen=True)
class Labelled:
    """Aligned sequences as digits (N, W), labels 0 to C - 1 (N,), their names, folds to use."""

    name: str
    digits: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]
    folds: int

    @property
    def groups(self) -> np.ndarray:
        """(N,) the same number for equal sequences."""
        return np.unique(self.digits, axis=0, return_inverse=True)[1].ravel()

    def some(self, name: str, chosen: np.ndarray, folds: int) -> Labelled:
        return Labelled(name, self.digits[chosen], self.labels[chosen], self.names, folds)


def read_table(path: Path, name: str, folds: int) -> Labelled:
    """`label, name, sequence` lines."""
    rows = [line.split(",") for line in path.read_text().splitlines() if line.strip()]
    names = tuple(sorted({row[0].strip() for row in rows}))
    labels = np.array([names.index(row[0].strip()) for row in rows])
    return Labelled(
        name, DNA.encode_aligned([row[2].strip() for row in rows]), labels, names, folds
    )


def read_fasta(path: Path) -> list[str]:
    with gzip.open(path, "rt") as file:
        parts = file.read().split(">")[1:]
    return ["".join(part.splitlines()[1:]) for part in parts]


def data_sets(data: Path, quick: bool) -> list[Labelled]:
    splice = read_table(data / "uci_splice" / "splice.data", "uci_splice", 10)
    found = [splice]
    for seed in range(1 if quick else 5):
        chosen = np.random.default_rng(seed).permutation(len(splice.labels))[:1000]
        name = "uci_splice, 1,000 examples"
        found.append(splice.some(f"{name}, draw {seed + 1}", chosen, 10))
    promoters = read_table(data / "uci_promoters" / "promoters.data", "uci_promoters", 106)
    names = ("-", "+")  # the log-odds are those of the last
    flipped = np.array([names.index(promoters.names[i]) for i in promoters.labels])
    found.append(Labelled("uci_promoters", promoters.digits, flipped, names, 106))
    for file, name in (("Ecoli", "E. coli"), ("Bacillus", "B. subtilis")):
        no = read_fasta(data / "cnnprom" / f"{file}_non_prom.fa.gz")
        yes = read_fasta(data / "cnnprom" / f"{file}_prom.fa.gz")
        labels = np.repeat([0, 1], [len(no), len(yes)])
        digits = DNA.encode_aligned(no + yes)
        found.append(Labelled(f"cnnprom, {name}", digits, labels, ("no", "promoter"), 5))
    if quick:
        return [one.some(one.name, np.arange(len(one.labels))[::6], 3) for one in found]
    return found


def folds_of(data: Labelled) -> np.ndarray:
    """(N,) the fold of each: distinct sequences dealt out label by label."""
    groups = data.groups
    _, first = np.unique(groups, return_index=True)
    mixed = np.random.default_rng(0).permutation(len(first))
    order = mixed[np.argsort(data.labels[first][mixed], kind="stable")]
    fold = np.empty(len(first), np.int64)
    fold[order] = np.arange(len(first)) % data.folds
    return fold[groups]


Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def by_motif(order: int) -> Predict:
    def predict(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
        return MotifClassifier(order).fit(train, labels.tolist()).predict_log_proba(test)

    return predict


def by_regression(features: Callable[[np.ndarray], np.ndarray], penalty: float = 0.01) -> Predict:
    """Softmax regression, L2, by L-BFGS to convergence."""

    def predict(train: np.ndarray, labels: np.ndarray, test: np.ndarray) -> np.ndarray:
        x, x_test = features(train), features(test)
        mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-9
        x, x_test = (torch.from_numpy((part - mean) / deviation) for part in (x, x_test))
        y, many = torch.from_numpy(labels), int(labels.max()) + 1
        weight = torch.zeros(x.size(1), many, dtype=torch.float64, requires_grad=True)
        bias = torch.zeros(many, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [weight, bias], max_iter=200, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
        )

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = torch.nn.functional.cross_entropy(x @ weight + bias, y)
            value = value + penalty / 2 * weight.square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        with torch.no_grad():
            return (x_test @ weight + bias).log_softmax(dim=1).numpy()

    return predict


def kmer_counts(digits: np.ndarray) -> np.ndarray:
    """How often each k-mer of 1 to 4 letters occurs; those with unknown letters do not."""
    found = []
    for k in range(1, 5):
        windows = np.lib.stride_tricks.sliding_window_view(digits, k, axis=1)  # (N, P, k)
        codes = np.where((windows < 4).all(axis=2), windows @ 4 ** np.arange(k), 4**k)
        flat = codes + np.arange(len(digits))[:, None] * (4**k + 1)
        counts = np.bincount(flat.ravel(), minlength=len(digits) * (4**k + 1))
        found.append(counts.reshape(len(digits), -1)[:, :-1])
    return np.concatenate(found, axis=1).astype(np.float64)


def one_hot(digits: np.ndarray) -> np.ndarray:
    return np.eye(5)[digits][..., :4].reshape(len(digits), -1)


MODELS: dict[str, Predict] = {
    "PWM": by_motif(0),
    "Markov motif, order 1": by_motif(1),
    "Markov motif, order 2": by_motif(2),
    "k-mers, logistic": by_regression(kmer_counts),
    "positions, logistic": by_regression(one_hot),
}


def ranking(scores: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """AUROC and average precision, ties shared."""
    values, where = np.unique(-scores, return_inverse=True)  # the best first
    hits = np.bincount(where, positive, len(values))
    misses = np.bincount(where, ~positive, len(values))
    above = misses.cumsum() - misses
    area = 1 - (hits * (above + misses / 2)).sum() / (hits.sum() * misses.sum())
    precision = hits.cumsum() / (hits + misses).cumsum()
    return float(area), float((hits * precision).sum() / hits.sum())


def metrics(data: Labelled, logs: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
    """Of the chosen sequences."""
    labels, logs = data.labels[chosen], logs[chosen]
    predicted = logs.argmax(axis=1)
    ranks = []
    for c in range(len(data.names)):
        rest = np.logaddexp.reduce(np.delete(logs, c, axis=1), axis=1)
        ranks.append(ranking(logs[:, c] - rest, labels == c))
    if len(data.names) == 2:
        ranks = ranks[1:]
    found = {
        "accuracy": float((predicted == labels).mean()),
        "auroc": float(np.mean([area for area, _ in ranks])),
        "average_precision": float(np.mean([ap for _, ap in ranks])),
    }
    for c, name in enumerate(data.names):
        found[f"error of {name}"] = float((predicted != labels)[labels == c].mean())
    if len(data.names) == 2:
        found["correlation"] = (
            float(np.corrcoef(predicted, labels)[0, 1]) if predicted.std() else 0.0
        )
    return found


def classify(data: Labelled, resamples: int) -> dict[str, Any]:
    """Every model's figures, out of fold, with intervals."""
    fold, groups = folds_of(data), data.groups
    members = np.split(np.argsort(groups, kind="stable"), np.bincount(groups).cumsum()[:-1])
    rows = {}
    for name, predict in MODELS.items():
        logs = np.zeros((len(data.labels), len(data.names)))
        begin = time.monotonic()
        for held in range(data.folds):
            test = fold == held
            if test.any():
                logs[test] = predict(data.digits[~test], data.labels[~test], data.digits[test])
        seconds = time.monotonic() - begin
        value = metrics(data, logs, np.arange(len(fold)))
        random, drawn = np.random.default_rng(0), []
        for _ in range(resamples):
            picked = random.integers(0, len(members), len(members))
            drawn.append(metrics(data, logs, np.concatenate([members[i] for i in picked])))
        rows[name] = {
            key: {
                "value": value[key],
                "low": float(np.quantile([one[key] for one in drawn], 0.025)),
                "high": float(np.quantile([one[key] for one in drawn], 0.975)),
            }
            for key in value
        } | {"seconds": round(seconds, 2)}
    return {"examples": len(fold), "distinct": len(members), "folds": data.folds, "rows": rows}


def tell(name: str, found: dict[str, Any]) -> None:
    print(
        f"\n{name}: {found['examples']:,} examples, {found['distinct']:,} distinct, "
        f"{found['folds']}-fold"
    )
    for model, row in found["rows"].items():
        cells = []
        for key, short in (("accuracy", "acc"), ("auroc", "AUROC"), ("average_precision", "AP")):
            one = row[key]
            cells.append(f"{short} {one['value']:.4f} [{one['low']:.4f}, {one['high']:.4f}]")
        errors = [(k[9:], v["value"]) for k, v in row.items() if k.startswith("error of ")]
        cells.append("errors " + ", ".join(f"{label} {100 * v:.2f}%" for label, v in errors))
        if "correlation" in row:
            cells.append(f"correlation {row['correlation']['value']:.3f}")
        print(f"  {model:22} {'  '.join(cells)}")
    published = [text for key, text in PUBLISHED.items() if name.startswith(key)]
    print("".join(f"  published: {text}\n" for text in published), end="")


def plant(
    motif: Motif, base: np.ndarray, random: np.random.Generator
) -> tuple[list[str], dict[int, int]]:
    """Random sequences with the motif in some, and where it begins in those."""
    digits = random.choice(4, (SEQUENCES, LENGTH), p=base)
    held = random.permutation(SEQUENCES)[: round(PLANTED * SEQUENCES)]
    sites = motif.sample(len(held), random)
    where = {}
    for n, site in zip(held.tolist(), sites, strict=True):
        at = int(random.integers(0, LENGTH - motif.width + 1))
        turned = random.random() < 0.5
        digits[n, at : at + motif.width] = DNA.reverse_complement(site) if turned else site
        where[n] = at
    return ["".join(DNA.letters[i] for i in row) for row in digits], where


def likeness(truth: Motif, found: Motif) -> tuple[float, int, float]:
    """Correlation of the best alignment, informative columns in it, and agreeing letters there.
    Alignments with 6 informative columns come before those with fewer.
    """
    true, bits = truth.probabilities, truth.information()
    best = (False, -1.0, 0, 0.0)
    for other in (found.probabilities, found.probabilities[::-1, ::-1]):  # A and T, C and G swap
        for shift in range(1 - len(other), len(true)):
            low, high = max(0, shift), min(len(true), shift + len(other))
            ours, theirs = true[low:high], other[low - shift : high - shift]
            strong = bits[low:high] >= INFORMATIVE
            if high - low < 2 or not strong.any() or not theirs.std():
                continue
            r = float(np.corrcoef(ours.ravel(), theirs.ravel())[0, 1])
            same = float((ours.argmax(1) == theirs.argmax(1))[strong].mean())
            best = max(best, (bool(strong.sum() >= 6), r, int(strong.sum()), same))
    return best[1:]


def rediscover(data: Path, many: int) -> dict[str, Any]:
    """Plant and look for each motif."""
    matrices = read_motifs(data / "jaspar" / "jaspar2024_core.transfac.gz")
    motifs = {f"{one.name} {one.alternate}": one.motif for one in matrices}
    fit = [
        name
        for name, m in motifs.items()
        if 6 <= m.width <= 20 and (m.information() >= INFORMATIVE).sum() >= 6
    ]
    random = np.random.default_rng(0)
    chosen = [fit[i] for i in np.sort(random.permutation(len(fit))[:many])]
    genome = data / "ecoli_k12" / "GCF_000005845.2_ASM584v2_genomic.fna.gz"
    coli = Background.fit([read_fasta(genome)[0][:200_000]], both_strands=True).frequencies
    rows = []
    for i, name in enumerate(chosen):
        motif = motifs[name]
        sequences, where = plant(motif, coli if i % 2 else np.full(4, 0.25), random)
        begin = time.monotonic()
        found = discover(sequences)[0]
        seconds = time.monotonic() - begin
        r, columns, same = likeness(motif, found.motif)
        near = sum(
            abs(site.position - where[site.sequence]) < motif.width / 2
            for site in found.sites
            if site.sequence in where
        )
        rows.append(
            {
                "motif": name,
                "width": motif.width,
                "bits": round(float(motif.information().sum()), 2),
                "consensus": motif.consensus,
                "found": found.motif.consensus,
                "correlation": round(r, 3),
                "informative_columns": columns,
                "agreement": round(same, 3),
                "score": round(found.score, 1),
                "sites_found": near / len(where),
                "seconds": round(seconds, 2),
                "recovered": r >= CORRELATION and columns >= 6 and same >= AGREEMENT,
            }
        )
    share = float(np.mean([row["recovered"] for row in rows]))
    return {"eligible": len(fit), "of": len(motifs), "recovered": share, "bar": BAR, "rows": rows}


def tell_discovery(found: dict[str, Any]) -> None:
    rows = found["rows"]
    print(f"\ndiscovery: {len(rows)} of {found['eligible']:,} eligible JASPAR motifs, planted")
    for row in rows:
        if not row["recovered"]:
            print(
                f"  FAILED {row['motif']} ({row['bits']} bits): {row['consensus']} → "
                f"{row['found']}, correlation {row['correlation']}, {row['informative_columns']} "
                f"columns, agreement {row['agreement']}"
            )
    seconds = sorted(row["seconds"] for row in rows)
    sites = 100 * np.median([row["sites_found"] for row in rows])
    verdict = "holds" if found["recovered"] >= BAR else "BROKEN"
    print(
        f"  recovered {100 * found['recovered']:.1f}% (bar {100 * BAR:.0f}%: {verdict}); planted "
        f"sites found, median {sites:.0f}%; seconds a search, median "
        f"{np.median(seconds):.1f}, longest {seconds[-1]:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="a sixth of the data, 2 motifs")
    args = parser.parse_args()
    dna, results = args.data / "dna", {}
    for data in data_sets(dna, args.quick):
        results[data.name] = classify(data, 20 if args.quick else 300)
        tell(data.name, results[data.name])
    results["discovery"] = rediscover(dna, 2 if args.quick else 30)
    tell_discovery(results["discovery"])
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
