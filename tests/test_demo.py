"""The demonstration, on a short list and with a few steps: table, samples, report."""

from __future__ import annotations

import contextlib
import io
import itertools

import numpy as np
import pytest

from regard.bundled import NAMES
from regard.data.corpus import reopen
from regard.demo import SAMPLES, demo, free_folder
from regard.look.page import Lines, Page
from regard.look.report import add_posterior, transitions
from regard.train.progress import Reporter

TINY = ["model.size=1", "train.steps=2", "train.batch_tokens=256", "data.test_fraction=0.2"]
MODELS = ["uniform", "bigram", "map", "transformer"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder of a tiny demonstration and what it printed; the folder asked for is taken."""
    folder = tmp_path_factory.mktemp("demo")
    names = folder / "names.txt"
    names.write_text("".join(NAMES.read_text().splitlines(keepends=True)[::300]))
    taken = folder / "runs"
    taken.mkdir()
    (taken / "mine.txt").write_text("not to be touched")
    quiet = Reporter(quiet=True)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        made = demo(taken, 1.0, names=names, models=MODELS, assignments=TINY, reporter=quiet)
    return taken, made, out.getvalue()


def test_the_table_has_a_row_for_each_model_and_a_verdict(shown):
    _, _, text = shown
    for name in MODELS:
        assert any(name in line.split()[1:2] for line in text.splitlines() if line[:1].isdigit())
    assert "Use " in text or "cannot be told apart" in text


def test_several_models_offer_samples_without_markers(shown):
    _, _, text = shown
    for name in MODELS:
        line = next(line for line in text.splitlines() if line.startswith(f"  {name}"))
        assert len(line.split()) <= SAMPLES + 1 and "<" not in line


def test_a_folder_that_is_taken_is_left_alone_and_the_next_number_used(shown):
    taken, made, text = shown
    assert made == taken.with_name("runs-2")
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert free_folder(taken) == taken.with_name("runs-3")
    assert str(made) in text


def test_the_report_holds_every_picture(shown):
    _, made, text = shown
    page = (made / "report.html").read_text(encoding="utf-8")
    assert str(made / "report.html") in text
    for section in ("The table", "Surprise", "Made up", "Counting", "Bayes", "Lengths"):
        assert f">{section}<" in page, section
    for section in ("Attention", "Mask and reach", "Next symbol"):
        assert f">{section}<" in page, section


def test_transitions_are_counted_within_records_only(shown):
    corpus = reopen(shown[1])
    counts = transitions(corpus.train, corpus.tokenizer.vocab_size, corpus.train.records)
    slow = np.zeros_like(counts)
    for i in range(corpus.train.records):
        record = corpus.train.record(i)
        for a, b in itertools.pairwise(record):
            slow[a, b] += 1
    assert (counts == slow).all()


def test_the_posterior_is_that_of_a_flat_prior_and_the_counts(shown):
    corpus, page = reopen(shown[1]), Page("x")
    add_posterior(page, corpus.train, corpus.tokenizer)
    chart = page.components[0]
    assert isinstance(chart, Lines)
    (name, _, means), (low, high) = chart.series[0], next(iter(chart.bands.values()))
    tokenizer, shard = corpus.tokenizer, corpus.train
    counts = transitions(shard, tokenizer.vocab_size, shard.records)
    names = [tokenizer.text(i) for i in range(tokenizer.vocab_size)]
    after, before = (names.index(part) for part in name[2:-1].split(" | "))
    seen, all_ = counts[before, after], counts[before].sum()
    assert means[-1] == pytest.approx((1 + seen) / (tokenizer.vocab_size + all_))
    assert all(a <= m <= b for a, m, b in zip(low, means, high, strict=True))
