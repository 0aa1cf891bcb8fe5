"""Linear rows of labels beside plain scikit-learn: seconds of the processor, quality on test data.

Sequences of 250 bases, some with a motif, are generated; with `--data DIR`, TREC and the MR reviews
are read, too. A row of regard chooses its n-grams, weights and penalty on held-out records, and
fits; scikit-learn counts 1- to 5-grams of characters (1- to 3-grams of words), weighted by tf-idf,
and fits LIBLINEAR once with its defaults. `--labels 12` also repeats sequences with so many labels.

    python benchmarks/linear_rows.py [--data DIR] [--records 10000] [--labels 12]
        [--rows naive-bayes,nb-svm,logistic,svm] [--json FILE]
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from label_sets import SETS

ROWS = "naive-bayes,nb-svm,logistic,svm"
LENGTH, MOTIF = 250, "TGACTCAGCA"


def write_bases(path: Path, n_records: int, n_labels: int) -> list[str]:
    """Write sequences, half of them with a mutated motif for each label; return arguments."""
    random = np.random.default_rng(0)
    names = [f"y{n}" for n in range(n_labels)]
    motifs = ["".join(random.permutation(list(MOTIF))) for _ in names]
    lines = ["\t".join(["bases", *names])]
    for _ in range(n_records):
        bases, present = random.choice(list("ACGT"), LENGTH), random.random(n_labels) < 0.5
        for motif, one in zip(motifs, present, strict=True):
            if one:
                mutated = [
                    b if random.random() > 0.1 else random.choice(list("ACGT")) for b in motif
                ]
                start = random.integers(LENGTH - len(motif))
                bases[start : start + len(motif)] = mutated
        lines.append("\t".join(["".join(bases), *(str(int(one)) for one in present)]))
    path.write_text("\n".join(lines) + "\n")
    return [str(path), "--input", "bases", "--target", ",".join(names)]


def read_split(corpus: Any, split: str) -> tuple[list[str], np.ndarray]:
    """Return the texts and targets of a split."""
    shard = corpus.split(split)
    parts = np.split(np.asarray(shard.ids), np.asarray(shard.offsets)[1:-1])
    return [corpus.tokenizer.decode(ids) for ids in parts], np.asarray(shard.targets)


def measure_sklearn(corpus: Any, by_word: bool) -> tuple[float, float]:
    """Return the seconds and the accuracy of LIBLINEAR on n-grams."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    (texts, y), (test_texts, test_y) = read_split(corpus, "train"), read_split(corpus, "test")
    started = time.process_time()
    kind = {"analyzer": "word", "ngram_range": (1, 3)}
    vectorizer = TfidfVectorizer(
        **(kind if by_word else {"analyzer": "char", "ngram_range": (1, 5)})
    )
    machine = OneVsRestClassifier(LogisticRegression(solver="liblinear"))
    machine.fit(vectorizer.fit_transform(texts), y)
    seconds = time.process_time() - started
    return seconds, float((machine.predict(vectorizer.transform(test_texts)) == test_y).mean())


def measure_row(name: str, words: Sequence[str], run: Path) -> tuple[float, float, Any]:
    """Return the seconds and the accuracy of a row, and its data."""
    import regard.cli
    from regard.data.corpus import reopen
    from regard.models.supervised import TunedModel
    from regard.run import Run

    seconds, fit = [0.0], TunedModel.fit

    def timed(self: Any, *given: Any) -> None:
        started = time.process_time()
        fit(self, *given)
        seconds[0] = time.process_time() - started

    TunedModel.fit = timed  # type: ignore[method-assign]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as log:
            code = regard.cli.run(["train", *words, "--model", name, "--out", str(run), "--quiet"])
    finally:
        TunedModel.fit = fit  # type: ignore[method-assign]
    if code:
        raise RuntimeError(log.getvalue())
    metrics = Run(run).metadata["metrics"]["test"]
    key = "accuracy" if "accuracy" in metrics else "accuracy_mean"
    return seconds[0], metrics[key]["value"], reopen(run)


def main() -> None:
    """Measure all sets and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--labels", type=int, default=0)
    parser.add_argument("--rows", default=ROWS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        sets = {"bases": write_bases(at / "bases.tsv", args.records, 1)}
        if args.labels:
            sets["labels"] = write_bases(at / "labels.tsv", args.records, args.labels)
        for name in ("trec", "mr") if args.data else ():
            (at / name).mkdir()
            sets[name] = SETS[name].prepare(args.data, at / name)
        for name, words in sets.items():
            corpus = None
            for row in args.rows.split(","):
                if name == "labels" and row in ("naive-bayes", "nb-svm"):
                    continue  # of one label
                seconds, accuracy, corpus = measure_row(row, words, at / f"{name}-{row}")
                results.append((name, row, seconds, accuracy))
                print(f"{name:8} {row:14} {seconds:7.1f} s  accuracy {accuracy:.4f}", flush=True)
            seconds, accuracy = measure_sklearn(corpus, name in ("trec", "mr"))
            results.append((name, "scikit-learn", seconds, accuracy))
            print(
                f"{name:8} {'scikit-learn':14} {seconds:7.1f} s  accuracy {accuracy:.4f}",
                flush=True,
            )
    if args.json:
        keys = ("set", "row", "seconds", "accuracy")
        args.json.write_text(json.dumps([dict(zip(keys, one, strict=True)) for one in results]))


if __name__ == "__main__":
    main()
