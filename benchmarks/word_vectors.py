"""Word vectors beside gensim: quality on WordSim-353, words a second, the same bits, the same file.

    python benchmarks/word_vectors.py --text train.txt.gz --pairs wordsim353.tsv [--seeds 5]
        [--first 0] [--models skipgram,cbow] [--json FILE]

Both read the same lines with the same settings: 100 numbers, window 5, 5 negatives, min_count 5,
sample 1e-3, 20 passes, 2 threads. Skip-gram has the same learning rate too; CBOW has each program's
own, since gensim's steps are longer than the gradient's (see `tasks/word_vectors.py`). Speed is
that of training alone, raw words by the wall clock, the two in turns in one run. Without gensim
(`PYTHONPATH` may lead to it) only our own figures are given.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import regard
from regard.evaluation.word_similarity import read_word_test
from regard.interop.word2vec_format import export_vec
from regard.planning import plan_recipe
from regard.run import WEIGHTS
from regard.storage import read_tensors

STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262}  # 97.5% quantiles


def ours(name: str, text: Path, seed: int, epochs: int, out: Path) -> float:
    """Train; words a second."""
    sets = [f"model.epochs={epochs}", f"train.seed={seed}", "train.eval_every=1000000000"]
    data = {"format": "lines", "valid_fraction": 0.0, "test_fraction": 0.0}
    recipe, _ = plan_recipe([text], data=data, model={"name": name}, assignments=sets)
    trained = regard.train_recipe(recipe, out)
    words = sum(len(line.split()) for line in text.read_text().splitlines())
    return epochs * words / trained.seconds


def theirs(name: str, text: Path, seed: int, epochs: int, threads: int) -> tuple[Any, float]:
    """Train gensim's; its model and words a second."""
    from gensim.models import Word2Vec

    lines = [words for line in text.read_text().splitlines() if (words := line.split())]
    count = sum(map(len, lines))
    model = Word2Vec(
        vector_size=100, window=5, negative=5, min_count=5, sample=1e-3,
        sg=int(name == "skipgram"), workers=threads, seed=seed,
    )  # fmt: skip
    model.build_vocab(lines)
    began = time.perf_counter()
    model.train(lines, total_examples=len(lines), epochs=epochs)
    return model, epochs * count / (time.perf_counter() - began)


class Foreign:
    """gensim's vectors by their words, found as ours are."""

    def __init__(self, model: Any) -> None:
        self.unit = model.wv.get_normed_vectors()
        self.places = {word: i for i, word in enumerate(model.wv.index_to_key)}
        folded = [(word.casefold(), i) for word, i in self.places.items()]
        self.folded = dict(reversed(folded))  # the most frequent spelling

    def find(self, word: str) -> int | None:
        return self.places.get(word, self.folded.get(word.casefold()))


def correlation(word_vectors: Any, pairs: Path) -> tuple[float, int]:
    """Spearman's correlation of cosines with the scores of a file, and how many pairs it is of."""
    test = read_word_test(pairs)
    assert test is not None
    found = test.run(word_vectors)
    return found.estimates["spearman"].value, found.covered


def interval(values: list[float]) -> dict[str, float | None]:
    """The mean, and Student's 95% interval of it, which one seed alone does not give."""
    mean, n = statistics.fmean(values), len(values)
    if n == 1:
        return {"value": mean, "low": None, "high": None}
    half = STUDENT.get(n - 1, 2.0) * statistics.stdev(values) / math.sqrt(n)
    return {"value": mean, "low": mean - half, "high": mean + half}


def same_file(run: Path, folder: Path, words: list[str]) -> bool:
    """Does gensim load our file, and give the neighbours that we give?"""
    from gensim.models import KeyedVectors

    export_vec(run, folder / "ours.vec")
    loaded = KeyedVectors.load_word2vec_format(str(folder / "ours.vec"))
    word_vectors = regard.load(run)
    assert np.array_equal(loaded.vectors, word_vectors.inputs), "gensim reads other numbers"
    return all(
        [near.word for near in word_vectors.nearest(word, 10)]
        == [other for other, _ in loaded.most_similar(word, topn=10)]
        for word in words
    )


def compare(name: str, text: Path, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures of one model."""
    found: dict[str, list[float]] = {k: [] for k in ("ours", "gensim", "rate", "gensim_rate")}
    result: dict[str, Any] = {"model": name, "seeds": options.seeds, "epochs": options.epochs}
    for seed in range(options.first, options.first + options.seeds):
        run = folder / f"{name}-{seed}"
        found["rate"].append(ours(name, text, seed, options.epochs, run))
        value, result["covered"] = correlation(regard.load(run), options.pairs)
        found["ours"].append(value)
        if options.gensim:
            model, rate = theirs(name, text, seed, options.epochs, options.threads)
            found["gensim_rate"].append(rate)
            found["gensim"].append(correlation(Foreign(model), options.pairs)[0])
        values_line = ", ".join(
            f"{key} {values[-1]:,.4g}" for key, values in found.items() if values
        )
        print(f"{name}, seed {seed}: {values_line}", flush=True)
    again = folder / f"{name}-again"
    ours(name, text, options.first, options.epochs, again)
    begun = folder / f"{name}-{options.first}"
    one, other = (read_tensors(r / WEIGHTS) for r in (begun, again))
    result["same_bits"] = all(torch.equal(one[k], other[k]) for k in one)
    result |= {k: v for k, v in found.items() if v}
    if options.gensim:
        gaps = [a - b for a, b in zip(found["ours"], found["gensim"], strict=True)]
        result["spearman_minus_gensim"] = interval(gaps)
        rates = zip(found["rate"], found["gensim_rate"], strict=True)
        result["rate_ratio"] = statistics.median(a / b for a, b in rates)
        words = regard.load(again).words[100:1100:50]
        result["same_neighbours"] = same_file(again, folder, words)
    return result


def lines_of(path: Path) -> str:
    """The lines of a file that are not blank."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return "".join(line for line in file if line.strip())


def main() -> None:
    """Compare both models; what came out is printed and, with --json, written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="one sentence a line, or .gz")
    parser.add_argument("--pairs", type=Path, required=True, help="word, word, score")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", default="skipgram,cbow")
    parser.add_argument("--without-gensim", dest="gensim", action="store_false")
    parser.add_argument("--quick", action="store_true", help="one seed, one pass")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    options = parser.parse_args()
    if options.quick:
        options.seeds = options.epochs = 1
    torch.set_num_threads(options.threads)
    found = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "text.txt").write_text(lines_of(options.text), encoding="utf-8")
        for name in options.models.split(","):
            found.append(compare(name, folder / "text.txt", options, folder))
            print(json.dumps(found[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
