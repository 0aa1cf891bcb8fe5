"""The demonstration, on a short list and with a few steps: table, samples, report."""

from __future__ import annotations

import contextlib
import io
import itertools

import numpy as np
import pytest

from regard import registry
from regard.bundled import NAMES
from regard.data.batching import Order
from regard.demos import (
    LADDER,
    NAMES_TRANSFORMER,
    SAMPLES,
    SEED,
    add_counts,
    add_lengths,
    add_posterior,
    count_arriving,
    count_transitions,
    demo,
    free_folder,
)
from regard.evaluation.eval_data import shard_of
from regard.look.page import Heatmap, Lines, Page
from regard.run import Run
from regard.tokenizers import Characters
from regard.training.progress import Reporter

RECORDS = ["anna", "ben", "bea", "nan", "abe", "ann", "ebba", "bab"] * 5
TOKENIZER = Characters.train(RECORDS)
SHARD = shard_of(RECORDS, TOKENIZER)


def test_transitions_are_counted_within_records_only():
    counts = count_transitions(SHARD, TOKENIZER.vocab_size)
    slow = np.zeros_like(counts)
    for i in range(SHARD.records):
        for a, b in itertools.pairwise(SHARD.record(i)):
            slow[a, b] += 1
    assert (counts == slow).all()


def test_the_posterior_is_that_of_a_flat_prior_and_the_records_so_far():
    page = Page("x")
    add_posterior(page, SHARD, TOKENIZER)
    chart = page.components[0]
    assert isinstance(chart, Lines)
    (name, records_seen, means), (low, high) = chart.series[0], next(iter(chart.bands.values()))
    tokenizer, shard = TOKENIZER, SHARD
    names = [tokenizer.text(i) for i in range(tokenizer.vocab_size)]
    after, before = (names.index(part) for part in name[2:-1].split(" | "))
    order = Order(shard.records, SEED)(np.arange(shard.records))
    assert records_seen[-1] == shard.records
    for records, mean in zip(records_seen, means, strict=True):
        pairs = [p for i in order[: int(records)] for p in itertools.pairwise(shard.record(i))]
        n, total = pairs.count((before, after)), sum(a == before for a, _ in pairs)
        assert mean == pytest.approx((1 + n) / (tokenizer.vocab_size - 1 + total))
    assert all(a <= m <= b for a, m, b in zip(low, means, high, strict=True))


def test_records_do_not_arrive_as_a_sorted_file_has_them():
    """The first tenth of a sorted list is all of one letter, and says nothing of the others."""
    records = ["ab"] * 500 + ["ba"] * 500
    tokenizer = Characters.train(records)
    shard = shard_of(records, tokenizer)
    a, b = tokenizer.encode("ab").tolist()
    hits, all_ = count_arriving(shard, tokenizer.start, a)
    assert (all_ == np.arange(1, 1001)).all()
    assert hits[-1] == 500 and 30 < hits[99] < 70
    ended, out = count_arriving(shard, b, tokenizer.end)
    assert (ended == hits).all() and (out == all_).all()  # b ends what a begins


def test_lengths_beyond_those_held_out_are_counted_and_not_drawn():
    page = Page("x")
    add_lengths(page, [2, 3, 3, 4], {"babbling": [3, 50, 50, 2]})
    chart, table = page.components
    assert [list(ys) for _, _, ys in chart.series] == [
        [0, 0, 0.25, 0.5, 0.25],
        [0, 0, 0.25, 0.25, 0],
    ]
    assert [list(row) for row in table.rows] == [
        ["held out", 3, "2 to 3", "0.0%"],
        ["babbling", 3, "2 to 50", "50.0%"],
    ]


def test_counts_are_drawn_with_the_markers():
    page = Page("x")
    add_counts(page, SHARD, TOKENIZER)
    (heatmap,) = page.components
    assert isinstance(heatmap, Heatmap) and heatmap.rows[0] == "<S>" and "<E>" in heatmap.columns
    assert heatmap.array().sum() == sum(len(record) + 1 for record in RECORDS)


TINY = ["model.size=1", "train.steps=2", "train.batch_tokens=256", "data.test_fraction=0.2"]
MODELS = ["uniform", "bigram", "map", "transformer"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory, rows_here):
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


def test_the_models_are_in_the_order_of_the_registry(shown):
    assert list(LADDER) == [name for name in registry.MODELS.names("next") if name in LADDER]
    assert LADDER[0] == "uniform" and LADDER[-1] == "transformer"
    config = Run(shown[1] / "transformer").description.config
    assert {key: getattr(config, key) for key in NAMES_TRANSFORMER} == NAMES_TRANSFORMER


def test_a_folder_that_is_taken_is_left_alone_and_the_next_number_used(shown):
    taken, made, text = shown
    assert made == taken.with_name("runs-2")
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert free_folder(taken) == taken.with_name("runs-3")
    assert str(made) in text


def test_the_report_has_every_section(shown):
    _, made, text = shown
    page = (made / "report.html").read_text(encoding="utf-8")
    assert str(made / "report.html") in text
    for section in ("The table", "Surprise", "Samples", "Counting", "Bayes", "Lengths"):
        assert f">{section}<" in page, section
    for section in ("Attention", "How far back", "Next symbol"):
        assert f">{section}<" in page, section


@pytest.mark.slow
def test_digits_have_a_table_wrong_answers_and_a_page(tmp_path, capsys):
    from regard.demos import demo_digits

    tiny = ["model.size=1", "train.steps=2", "train.batch_tokens=256"]
    models = ["majority", "transformer"]
    made = demo_digits(
        tmp_path / "runs", 0.1, models=models, assignments=tiny, reporter=Reporter(quiet=True)
    )
    text = capsys.readouterr().out
    assert "majority" in text and "read as" in text and "held-out records" in text
    assert 'data-kind="image-maps"' in (made / "look.html").read_text()
    assert (made / "digits.npz").exists() and (made / "compare.html").exists()


def test_images_in_characters_are_as_bright_as_their_pixels():
    from regard.demos import images_as_text

    lines = images_as_text([np.array([[0, 255], [128, 0]], np.uint8)] * 2, ["one", "two"])
    assert [line.split() for line in lines] == [["one", "two"], ["@@"] * 2, ["=="] * 2]
    assert images_as_text([], []) == []


@pytest.mark.slow
def test_shapes_have_a_table_what_is_mistaken_and_a_page(tmp_path, capsys):
    from regard.demos import demo_shapes

    tiny = ["model.size=1", "train.steps=2", "train.batch_tokens=256"]
    made = demo_shapes(
        tmp_path / "runs", 0.1, models=["majority", "transformer"], assignments=tiny, records=160,
        reporter=Reporter(quiet=True),
    )  # fmt: skip
    text = capsys.readouterr().out
    assert "majority" in text and "held-out records" in text and "predicted as" in text
    assert 'data-kind="point-maps"' in (made / "look.html").read_text()
    assert (made / "shapes.npz").exists() and (made / "compare.html").exists()
