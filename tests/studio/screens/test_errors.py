"""The screen Errors: filters, pages and slices against plain Python, over the records of a run."""

from __future__ import annotations

import csv
import io
import math
import queue
import re
import threading
import time

import pytest

import regard
from regard.errors import UsageError
from regard.studio.opened import Opened
from regard.studio.screens.errors import ErrorList

MARKUP = "<img src=x onerror=alert(1)>"
WORDS = ["sun", "rain", "snow", "wind", "hail", "fog"]
TEXTS = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS]
ROWS = [  # every seventh label is wrong
    (text, "warm" if ("sun" in text) != (i % 7 == 0) else MARKUP, ("north", "south")[i // 4 % 2])
    for i, text in enumerate(TEXTS)
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a classifier of a table, a bigram and a regression."""
    folder = tmp_path_factory.mktemp("errors")
    table, names, sizes = (folder / name for name in ("weather.csv", "names.txt", "sizes.csv"))
    lines = ["text,label,place", *(",".join(row) for row in ROWS)]
    table.write_text("\n".join(lines) + "\n")
    names.write_text("\n".join(text.replace(" ", "") for text in TEXTS) + "\n")
    sizes.write_text("text,size\n" + "".join(f"{row[0]},{len(row[0])}\n" for row in ROWS))
    options = {"progress": False}
    regard.train(table, folder / "runs/labels", target="label", model="naive-bayes", **options)
    regard.train(names, folder / "runs/names", model="bigram", **options)
    regard.train(
        sizes, folder / "runs/sizes", target="size", task="value", model="ridge", **options
    )
    return folder / "runs"


@pytest.fixture(scope="module")
def screen(runs):
    return ErrorList(Opened(runs))


def everything(screen, run, **arguments):
    """Return all records, page by page."""
    rows, total = [], 1
    while len(rows) < total:
        page = screen.records(run, arguments, first=len(rows), count=7)
        rows, total = rows + page["rows"], page["total"]
        if not page["rows"]:
            break
    return rows


def test_records_are_those_of_the_split_with_their_predictions(screen, runs):
    rows = everything(screen, "labels", sort="number", descending=False)
    pipeline = regard.load(runs / "labels")
    split, shard = pipeline.held_out()
    texts = {row[0]: row for row in ROWS}
    assert [row["number"] for row in rows] == list(range(shard.records))
    probabilities = pipeline.predict_proba([row["text"] for row in rows])
    for row, p in zip(rows, probabilities, strict=True):
        _, label, place = texts[row["text"]]
        assert row["truth"] == label and row["columns"] == {"place": place}
        assert row["prediction"] == pipeline.classes[p.argmax()]
        assert row["confidence"] == pytest.approx(p.max(), abs=1e-4)
        assert row["correct"] == (row["truth"] == row["prediction"])
    summary = screen.summary("labels")
    assert summary["split"] == split and summary["records"] == shard.records
    assert summary["columns"] == {"place": ["north", "south"]}
    mean = sum(row["correct"] for row in rows) / len(rows)
    assert summary["mean"] == pytest.approx(mean, abs=1e-5)


def test_each_cell_of_the_confusion_matrix_opens_its_records(screen):
    confusion = screen.summary("labels")["confusion"]
    assert set(confusion["classes"]) <= {"warm", MARKUP}
    for r, truth in enumerate(confusion["classes"]):
        for c, prediction in enumerate(confusion["classes"]):
            page = screen.records("labels", {"truth": truth, "prediction": prediction}, count=100)
            assert page["total"] == confusion["counts"][r][c]
            cells = {(row["truth"], row["prediction"]) for row in page["rows"]}
            assert cells <= {(truth, prediction)}


@pytest.mark.parametrize(
    ("query", "fits"),
    [
        ({"text": "SUN"}, lambda row: "sun" in row["text"]),
        ({"text": "/^(sun|fog) /"}, lambda row: re.match("(sun|fog) ", row["text"])),
        ({"correct": "wrong"}, lambda row: row["correct"] == 0),
        ({"correct": "right"}, lambda row: row["correct"] == 1),
        ({"column": "place", "value": "north"}, lambda row: row["columns"]["place"] == "north"),
        ({"shortest": 3, "longest": 3}, lambda row: row["tokens"] == 3),
        ({"text": "nothing has this"}, lambda row: False),
    ],
)
def test_filters_are_those_of_plain_python(screen, query, fits):
    rows = everything(screen, "labels", sort="number", descending=False)
    found = everything(screen, "labels", sort="number", descending=False, **query)
    assert [row["number"] for row in found] == [row["number"] for row in rows if fits(row)]


def test_records_are_sorted_either_way(screen):
    for sort in ("loss", "confidence", "tokens"):
        values = [row[sort] for row in everything(screen, "labels", sort=sort)]
        assert values == sorted(values, reverse=True)
        values = [row[sort] for row in everything(screen, "labels", sort=sort, descending=False)]
        assert values == sorted(values)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"text": "/(/"}, "is no regular expression"),
        ({"correct": "maybe"}, "correct must be right, wrong or empty, got 'maybe'"),
        ({"sort": "colour"}, "sort must be one of loss, confidence, tokens, number"),
        ({"column": "id", "value": "3"}, "the records have no column 'id'"),
        ({"colour": "red"}, "unknown argument colour"),
        ({"shortest": "3"}, "argument shortest"),
    ],
)
def test_wrong_queries_are_refused(screen, query, words):
    with pytest.raises(UsageError, match=words):
        screen.records("labels", query)
    with pytest.raises(UsageError, match="count must be from 1 to 100, got 1000"):
        screen.records("labels", count=1000)


def test_losses_of_classes_are_in_bits(screen):
    """A loss is minus the binary logarithm of what the model gives the true class."""
    rows = everything(screen, "labels")
    pipeline = regard.load(screen.opened.root / "labels")
    probabilities = pipeline.predict_proba([row["text"] for row in rows])
    for row, p in zip(rows, probabilities, strict=True):
        true = p[list(pipeline.classes).index(row["truth"])]
        assert row["loss"] == pytest.approx(-math.log2(true), abs=1e-4)
    assert screen.summary("labels")["loss"] == "loss in bits"
    assert screen.summary("names")["loss"] == "loss in bits per token"
    assert screen.summary("sizes")["loss"] == "absolute error"


def test_an_endless_pattern_is_stopped(runs, screen, tmp_path):
    """(a+)+$ tries 2^n ways to divide n letters; other requests are answered meanwhile."""
    texts = [f"{i} {'a' * 60 + 'b' if i % 2 else 'aaa'}" for i in range(200)]
    table = tmp_path / "endless.csv"
    table.write_text(
        "text,label\n" + "".join(f"{t},{'xy'[i // 2 % 2]}\n" for i, t in enumerate(texts))
    )
    options = {"target": "label", "model": "majority", "progress": False}
    regard.train(table, runs / "endless", **options)
    screen.table("endless")
    answers = queue.Queue()

    def search():
        try:
            answers.put(screen.records("endless", {"text": "/(a+)+$/"}))
        except UsageError as error:
            answers.put(str(error))

    began = time.monotonic()
    thread = threading.Thread(target=search)
    thread.start()
    others = 0
    while thread.is_alive():
        screen.records("labels", {"text": "sun"})
        others += 1
        time.sleep(0.02)
    assert time.monotonic() - began < 10 and others > 10  # two seconds and a busy machine
    message = answers.get_nowait()
    assert message.startswith("'/(a+)+$/' takes more than 2 seconds on these records: ")
    found = screen.records("endless", {"text": r"/^\d+ (aa)+a$/"})
    assert found["rows"] and {row["text"].split()[1] for row in found["rows"]} == {"aaa"}


def test_slices_count_the_records_that_plain_python_counts(screen):
    rows = everything(screen, "labels")
    slices = {
        (one["group"], one["name"]): one for one in screen.slices("labels", ["sun"])["slices"]
    }
    for (group, name), fits in {
        ("place", "north"): lambda row: row["columns"]["place"] == "north",
        ("true label", MARKUP): lambda row: row["truth"] == MARKUP,
        ("word", "with “sun”"): lambda row: "sun" in row["text"].split(),
    }.items():
        mine = [row["correct"] for row in rows if fits(row)]
        one = slices[group, name]
        assert one["count"] == len(mine)
        assert one["mean"] == pytest.approx(sum(mine) / len(mine), abs=1e-5)


def test_the_most_surprising_records_of_a_language_model_come_first(screen, runs):
    rows = everything(screen, "names")
    pipeline = regard.load(runs / "names")
    scores = [sum(pipeline.score(row["text"])[1]) / (len(row["text"]) + 1) for row in rows]
    losses = [row["loss"] for row in rows if row["loss"] != "inf"]
    assert losses == sorted(losses, reverse=True) and len(rows) > 1
    for row, score in zip(rows, scores, strict=True):
        if row["loss"] != "inf":
            assert row["loss"] == pytest.approx(-score / 0.693147, rel=1e-3)
    assert screen.summary("names")["confusion"] is None


def test_values_have_residuals_and_their_worst_records(screen):
    summary = screen.summary("sizes")
    assert summary["score"] == "absolute error" and not summary["more_is_better"]
    titles = [one["data"]["title"] for one in summary["figures"]]
    assert "size: residuals" in titles and summary["confusion"] is None
    rows = everything(screen, "sizes")
    for row in rows:
        error = abs(float(row["truth"]) - float(row["prediction"]))
        assert row["loss"] == pytest.approx(error, abs=0.01)
    residuals = next(
        one["data"] for one in summary["figures"] if "residuals" in one["data"]["title"]
    )
    assert max(map(abs, residuals["y"])) == pytest.approx(rows[0]["loss"], abs=1e-3)


def test_records_are_exported_with_all_their_columns(screen):
    text = screen.export("labels", {"correct": "wrong"})["text"]
    rows = list(csv.DictReader(io.StringIO(text)))
    wrong = everything(screen, "labels", correct="wrong")
    assert [int(row["record"]) - 1 for row in rows] == [row["number"] for row in wrong]
    assert rows[0].keys() >= {
        "text",
        "truth",
        "prediction",
        "confidence",
        "place",
        "tokens",
        "loss in bits",
    }
