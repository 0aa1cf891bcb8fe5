"""Tests of word vectors: files recognised by their lines, and metrics against scipy and by hand."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from regard.errors import UserError
from regard.evaluation.word_similarity import (
    AnalogyTest,
    SimilarityTest,
    WordLosses,
    read_word_test,
    run_word_tests,
)


class Table:
    """Random vectors of words, the most frequent first."""

    def __init__(self, words, seed=0):
        self.words = list(words)
        vectors = np.random.default_rng(seed).normal(size=(len(self.words), 5)).astype(np.float32)
        self.unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def __len__(self):
        return len(self.words)

    def find(self, word):
        return self.words.index(word) if word in self.words else None

    def nearest_rows(self, vectors, n, without, first):
        scores = vectors @ self.unit[:first].T
        for row, left_out in zip(scores, without, strict=True):
            row[list(left_out)] = -np.inf
        return np.argsort(-scores, axis=1)[:, :n].tolist()


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_files_are_recognised_by_their_lines(tmp_path):
    pairs = write(tmp_path / "pairs", "# scores", "one\ttwo\tscore", "a\tb\t1.5", "a c 2")
    analogies = write(tmp_path / "analogies", ": capitals", "a b c d", ": others", "b a d c")
    text = write(tmp_path / "text", "a text of words", "and another")
    assert read_word_test(pairs) == SimilarityTest("pairs", [("a", "b", 1.5), ("a", "c", 2.0)])
    expected = AnalogyTest("analogies", [("a", "b", "c", "d"), ("b", "a", "d", "c")])
    assert read_word_test(analogies) == expected
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\xff")
    assert read_word_test(text) is None and read_word_test(binary) is None
    with pytest.raises(UserError, match="cannot read"):
        read_word_test(tmp_path / "missing")
    broken = write(tmp_path / "broken", *["a b 1"] * 20, "a b")
    with pytest.raises(UserError, match="broken, line 21: expected two words and a number"):
        read_word_test(broken)
    with pytest.raises(UserError, match="line 2: expected four words"):
        read_word_test(write(tmp_path / "three", ": section", "a b c"))


def test_similarity_is_the_rank_correlation_of_the_pairs_with_vectors(tmp_path):
    table = Table("abcdefgh")
    words = [("a", "b"), ("c", "d"), ("a", "h"), ("e", "g"), ("b", "f"), ("a", "z")]
    lines = [f"{one} {two} {score}" for score, (one, two) in enumerate(words)]
    text = write(tmp_path / "text", "some words")
    (result,), texts = run_word_tests(table, [write(tmp_path / "pairs", *lines), text])
    cosines = [table.unit[table.find(a)] @ table.unit[table.find(b)] for a, b in words[:5]]
    assert result.metrics()["spearman"].value == pytest.approx(spearmanr(cosines, range(5))[0])
    assert (result.covered, result.total) == (5, 6) and texts == [text]
    assert result.to_json()["file"] == "pairs"
    with pytest.raises(UserError, match="1 of 1 pairs have vectors; at least 5"):
        SimilarityTest("few", [("a", "b", 1.0)]).run(table)


def test_analogies_are_completed_by_the_nearest_word():
    table = Table("abcdefgh")
    table.unit[3] = table.unit[1] - table.unit[0] + table.unit[2]
    table.unit[3] /= np.linalg.norm(table.unit[3])
    analogies = [("a", "b", "c", "d"), ("a", "b", "c", "e"), ("a", "b", "c", "z")]
    result = AnalogyTest("some", analogies).run(table)
    assert result.estimates["accuracy"].value == 0.5 and (result.covered, result.total) == (2, 3)
    with pytest.raises(UserError, match="none of 1 analogies"):
        AnalogyTest("none", analogies[2:]).run(table)


def test_the_loss_is_a_mean_over_predictions():
    report = WordLosses(np.array([[4.0, 2.0], [2.0, 4.0]]), "data")
    metric = report.metrics()["loss"]
    assert (metric.value, metric.low, metric.high) == (1.0, 0.5, 2.0) and report.ranked_by == "loss"
    nothing = WordLosses(np.zeros((3, 2)), "data").metrics()["loss"]
    assert str(nothing) == "undefined (no word has another one near it)"
