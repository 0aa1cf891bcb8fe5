"""What a user of scikit-learn does with labelled texts or sequences in a minute.

n-grams weighted by tf-idf, one-hot letters where all have one length; linear models, naive Bayes
and trees, each with a few settings; the best on validation. Used by defaults.py.
"""

from __future__ import annotations

import csv
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import LinearSVC

SHARE = 0.15  # held out for validation, and for the test where there is none
STRENGTHS = (0.1, 0.3, 1, 3, 10, 30)


def read(path: str | Path) -> list[tuple[str, str]]:
    """Return texts and labels of a table that label_sets.py wrote."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        next(rows)
        return [(text, label) for text, label in rows]


def split(words: Sequence[str], folder: Path) -> dict[str, Path]:
    """Write the parts of a set to files; equal texts are in one part."""
    rows = read(words[0])
    parts = {"test": read(words[words.index("--test") + 1])} if "--test" in words else {}
    texts = sorted({text for text, _ in rows})
    random.Random(0).shuffle(texts)
    count = round(SHARE * len(texts))
    held_out = {"valid": set(texts[:count])}
    if not parts:
        held_out["test"] = set(texts[count : 2 * count])
    parts |= {name: [row for row in rows if row[0] in part] for name, part in held_out.items()}
    taken = set().union(*held_out.values())
    parts["train"] = [row for row in rows if row[0] not in taken]
    for name, part in parts.items():
        with open(folder / f"split-{name}.tsv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t").writerows([("text", "label"), *part])
    return {name: folder / f"split-{name}.tsv" for name in parts}


def candidates(texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield models, the cheap ones first."""
    prose = np.mean([" " in text for text in texts]) > 0.5
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    inside = TfidfVectorizer(analyzer="char_wb" if prose else "char", ngram_range=(1, 5))
    features = make_union(words, inside) if prose else inside
    for strength in STRENGTHS:
        yield (
            f"logistic C={strength}",
            make_pipeline(features, LogisticRegression(C=strength, max_iter=300)),
        )
        yield f"svm C={strength}", make_pipeline(features, LinearSVC(C=strength))
    for alpha in (0.1, 0.3, 1.0):
        yield f"naive Bayes alpha={alpha}", make_pipeline(features, ComplementNB(alpha=alpha))
    if len({len(text) for text in texts}) == 1:
        for strength in (0.03, 0.1, 0.3, 1):
            yield (
                f"one-hot logistic C={strength}",
                OneHot(LogisticRegression(C=strength, max_iter=300)),
            )
        yield "one-hot forest", OneHot(RandomForestClassifier(500, n_jobs=-1, random_state=0))
        yield "one-hot boosting", OneHot(HistGradientBoostingClassifier(random_state=0))


class OneHot:
    """A classifier of one-hot letters."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)

    def fit(self, texts: Sequence[str], labels: Sequence[str]) -> OneHot:
        self.model.fit(self.encoder.fit_transform([list(text) for text in texts]), labels)
        return self

    def predict(self, texts: Sequence[str]) -> Any:
        return self.model.predict(self.encoder.transform([list(text) for text in texts]))


def fit(paths: dict[str, Path], seconds: float) -> dict[str, Any]:
    """Return the best model on validation, its test accuracy, and the 95% interval of that."""
    data = {
        name: tuple(zip(*read(path), strict=True)) for name, path in paths.items()
    }  # texts, labels
    end, best, done = time.monotonic() + seconds, (-1.0, "", None), 0
    for name, model in candidates(data["train"][0]):
        if time.monotonic() > end:
            break
        model.fit(*data["train"])
        accuracy = float(np.mean(model.predict(data["valid"][0]) == np.array(data["valid"][1])))
        best, done = max(best, (accuracy, name, model), key=lambda one: one[0]), done + 1
    right = best[2].predict(data["test"][0]) == np.array(data["test"][1])
    draws = np.random.default_rng(0).choice(right, (1000, len(right))).mean(1)
    interval = [float(end) for end in np.quantile(draws, (0.025, 0.975))]
    return {"model": best[1], "accuracy": float(right.mean()), "interval": interval, "tried": done}
