"""Motifs planted are found, measured and started from; arguments are checked."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from regard.errors import UsageError, UserError
from regard.models.motif_discovery import Collection, MotifFit
from regard.models.motifs import DNA
from regard.motif import SearchOptions, search
from regard.motif.discovery import find_start, parse_orders, parse_width, recall_at
from regard.motif.networks import NETWORKS
from regard.motif.sequences import read_sequences

TRUTH = ("TTGCAGGACA", "TGTCCTGCAA")


def test_a_planted_motif_is_found_with_its_sites(planted, result):
    first, second = result.rows
    assert (first.order, second.order) == (0, 1)
    motif = first.motif.motif
    assert motif.consensus in TRUTH
    turned = -1 if motif.consensus == TRUTH[1] else 1
    found = {site.sequence: (site.position, site.strand * turned) for site in first.motif.sites}
    right = sum(found.get(i) == place for i, place in planted.starts.items())
    assert right >= 0.95 * len(planted.starts)


def test_the_metrics_are_those_of_scikit_learn(result):
    assert result.held_out == 30
    assert result.truths.sum() == 30 and len(result.truths) == 50
    for row in result.rows:
        roc, precision = (row.estimates[name].value for name in ("auroc", "average_precision"))
        assert roc == pytest.approx(roc_auc_score(result.truths, row.scores))
        assert precision == pytest.approx(average_precision_score(result.truths, row.scores))
        assert roc > 0.85
    gap = result.rows[1].against["auroc"]
    assert gap.value == pytest.approx(
        result.rows[1].estimates["auroc"].value - result.rows[0].estimates["auroc"].value
    )
    assert gap.low <= gap.value <= gap.high
    assert not result.rows[0].against


def test_the_recall_at_is_that_of_the_best_threshold():
    random = np.random.default_rng(0)
    truths, scores = np.repeat([1.0, 0.0], [40, 80]), random.normal(size=120)
    scores[:40] += 1.5
    best = 0.0
    for threshold in scores:
        true, false = (scores[truths == k] >= threshold for k in (1, 0))
        if false.mean() <= 0.1 * (true.mean() + false.mean()):
            best = max(best, true.mean())
    assert recall_at(scores, truths) == pytest.approx(best)


def test_scores_are_log_odds_by_the_definition(result):
    row = result.rows[1]
    motif, share = row.motif.motif, row.motif.share
    texts = (*result.sequences.texts[:4], "ACG")

    data = Collection([DNA.encode(text) for text in texts], motif.background, True)
    scores = MotifFit(data, motif, share).sequence_scores(5)
    for text, score in zip(texts[:4], scores, strict=False):
        ratios = np.exp(slow_scores(motif, text))
        assert score == pytest.approx(np.log(share * ratios.mean() + 1 - share), abs=1e-6)
    assert scores[4] == pytest.approx(np.log(1 - share))  # too short for any window


def slow_scores(motif, text):
    """log P(window | motif) / P(window | background) of all windows of both strands, the background
    with its contexts outside the window, on the forward strand.
    """
    digits, scores = DNA.encode(text), []
    background = motif.background
    logs = []
    for i in range(len(digits)):
        known = min(i, background.order)
        context = sum(int(digits[i - d]) * 4 ** (d - 1) for d in range(1, known + 1))
        logs.append(np.log(background.conditionals[known][context, digits[i]]))
    for i in range(len(digits) - motif.width + 1):
        window, null = digits[i : i + motif.width], sum(logs[i : i + motif.width])
        for strand in (window, DNA.reverse_complement(window)):
            scores.append(motif.log_likelihood(strand[None])[0] - null)
    return np.array(scores)


@pytest.mark.parametrize("start", ["TTGCAGGACA", "ttgcwgsaca", "file"])
def test_a_search_starts_from_a_word_or_a_file(planted, result, tmp_path, start):
    if start == "file":
        from regard.motif.files import write_search

        write_search(result, tmp_path)
        start = str(tmp_path / "motif.jaspar")
    options = SearchOptions(orders=(0,), starts=(start,), minutes=0, both_strands=True)
    (row,) = search(planted.file, options, lambda line: None).rows
    assert row.motif.motif.consensus in TRUTH


def test_starts_that_are_none_are_refused(planted, tmp_path):
    sequences = read_sequences(planted.file, lambda line: None)
    with pytest.raises(UsageError, match="a motif file or a word of two or more of ACGT"):
        find_start("TATA!", sequences)
    (tmp_path / "two.jaspar").write_text(">a\n1\n1\n1\n1\n>b\n1\n1\n1\n1\n")
    with pytest.raises(UsageError, match="has 2 motifs"):
        find_start(str(tmp_path / "two.jaspar"), sequences)
    rows = "\n".join(f"{letter} [ 1 2 ]" for letter in "ACGU")
    (tmp_path / "rna.jaspar").write_text(f">a\n{rows}\n")
    with pytest.raises(UsageError, match="a motif of ACGU, but the sequences are of ACGT"):
        find_start(str(tmp_path / "rna.jaspar"), sequences)


def test_proteins_are_searched_on_their_one_strand(tmp_path):
    random = np.random.default_rng(0)
    letters = np.array(list("ACDEFGHIKLMNPQRSTVWY"))[random.integers(0, 20, (40, 50))]
    for row in letters:
        at = random.integers(0, 43)
        row[at : at + 7] = list("HWKCHPM")
    (tmp_path / "p.fa").write_text("".join(f">p\n{''.join(row)}\n" for row in letters))
    options = SearchOptions(orders=(0, 1), minutes=0, width=(6, 9))
    result = search(tmp_path / "p.fa", options, lambda line: None)
    assert "HWKCHPM" in result.rows[0].motif.motif.consensus
    assert not result.both_strands
    assert "counts of 1-mers kept" in result.negatives


def test_networks_are_rows_of_the_table(planted, monkeypatch):
    class Fake:
        """Finds the motif by its letters."""

        classes = ("background", "motif")

        def predict_proba(self, texts):
            p = np.array([float(any(word in text for word in TRUTH)) for text in texts])
            return np.stack([1 - p, p], axis=1)

    asked = []

    def train(model, positives, negatives, minutes, **options):
        asked.append((model, len(positives.texts), len(negatives.texts), minutes, options))
        return Fake()

    monkeypatch.setattr("regard.motif.discovery.train_network", train)
    options = SearchOptions(orders=(0,), minutes=3, seed=5)
    result = search(planted.file, options, lambda line: None)
    shared = (60, 60, 1.5, {"strands": True, "seed": 5})
    assert asked == [(model, *shared) for model in NETWORKS]
    assert [row.name for row in result.rows[1:]] == list(NETWORKS.values())
    assert all(row.motif is None and row.against for row in result.rows[1:])


def test_options_are_checked(planted, tmp_path):
    assert parse_width("8") == (8, 8) and parse_width("6-20") == (6, 20) and parse_width("") is None
    assert parse_orders("0, 2") == (0, 2)
    for text in ("x", "1", "9-6", "1-2-3", "-4"):
        with pytest.raises(UsageError, match="--width must be"):
            parse_width(text)
    for text in ("", "a", "5", "0,,2", "-1"):
        with pytest.raises(UsageError, match="--orders must be"):
            parse_orders(text)
    for options in ({"orders": ()}, {"n_motifs": 0}, {"minutes": -1.0}, {"seed": -1}):
        with pytest.raises(UsageError, match="must be"):
            SearchOptions(**options)
    (tmp_path / "few.fa").write_text(">a\nACGTACGTACGTACGT\n" * 5)
    with pytest.raises(UserError, match="compares 12 sequences or more, got 5"):
        search(tmp_path / "few.fa", SearchOptions(), lambda line: None)
    with pytest.raises(UserError, match="a background has 12 sequences or more, got 5"):
        search(
            planted.file,
            SearchOptions(background=tmp_path / "few.fa", minutes=0),
            lambda line: None,
        )
