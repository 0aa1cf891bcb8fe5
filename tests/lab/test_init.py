"""The index of experiments, and all of them in one folder: every claim, every page, and those that
stopped.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from importlib import import_module

import pytest

import regard.lab
from regard.errors import UsageError, UserError
from regard.lab import EXPERIMENTS, PARTS, Experiment, run_all, run_experiment
from regard.lab.experiment import Claim, Options, Result
from regard.lectures import load_deck
from regard.look.page import Lines, Links, Table


def make_result(name):
    return Result(
        title=f"About {name}",
        answer=f"Answer {name}.",
        question="Q?",
        reading=f"How to read {name}.",
        claims=[Claim("one", "s", "m", True), Claim("two", "s", "m", name == "b")],
        tables=[Table(["x"], [["y"]])],
        figures=[Lines([("s", [1.0, 2.0], [0.0, 1.0])], title="figure", dots=["s"])],
    )


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    def run(name, options):
        if name == "c":
            raise UserError("needs something")
        return make_result(name)

    with pytest.MonkeyPatch.context() as patch:
        experiments = {
            key: Experiment(f"question {key}", {"002": (f"Heading {key}",)}) for key in "abc"
        }
        patch.setattr(regard.lab, "EXPERIMENTS", experiments)
        patch.setattr(regard.lab, "run_experiment", run)
        return run_all(Options(quick=True), tmp_path_factory.mktemp("gallery") / "new")


class PageParser(HTMLParser):
    """The links and headings of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.words = [], []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_data(self, data):
        self.words.append(data)


def test_the_index_has_a_figure_a_reading_and_a_link_for_each_and_all_claims(gallery):
    page = PageParser()
    page.feed(gallery.index.read_text())
    assert {"a.html", "b.html"} <= set(page.links) and "c.html" not in page.links
    text = " ".join(page.words)
    assert "How to read a." in text and "How to read b." in text
    assert "3 of 4 claims hold" in text and "Not tried: needs something" in text
    assert "Answer a." in text and text.index("Answer b.") < text.index("How to read a.")
    folder = gallery.index.parent
    assert {p.name for p in folder.iterdir()} >= {
        "index.html",
        "a.html",
        "a-01-figure.svg",
        "a-01-figure.png",
        "b.html",
    }
    assert all(path.exists() for path in gallery.files)


def test_failing_and_untried_claims_are_set_apart_and_not_as_winners(gallery):
    table = gallery.claims_table()
    verdicts = [(row[1].partition(":")[0], row[0]) for row in table.rows]
    assert verdicts == [
        ("a", "holds"),
        ("a", "fails"),
        ("b", "holds"),
        ("b", "holds"),
        ("c", "not tried"),
    ]
    assert sorted(table.warn) == [1, 4] and not table.highlight
    document = json.loads(json.dumps(gallery.to_json(), allow_nan=False))
    assert [c["holds"] for c in document["claims"]] == [True, False, True, True]
    assert document["not_tried"] == {"c": "needs something"}
    counts = [row[:4] for row in gallery.table().rows]
    assert counts == [["a", 1, 1, 0], ["b", 2, 0, 0], ["c", 0, 0, 0]]


def test_a_file_is_refused_where_the_experiment_takes_none(tmp_path):
    with pytest.raises(UsageError, match="takes no file"):
        run_all(Options(file=tmp_path), tmp_path)
    with pytest.raises(
        UsageError, match="experiment 'bayes' takes no file; those that do: kernels"
    ):
        run_experiment("bayes", Options(file=tmp_path))
    assert EXPERIMENTS["heads"].file and not EXPERIMENTS["distance"].file


def test_an_unknown_experiment_is_refused_and_every_known_one_exists():
    with pytest.raises(UsageError, match="unknown experiment 'distanse'; did you mean 'distance'"):
        run_experiment("distanse", Options())
    for name, experiment in EXPERIMENTS.items():
        module = import_module(f"regard.lab.{experiment.module or name}")
        assert callable(getattr(module, name)) and experiment.question.endswith("?"), name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_decks_and_headings_are_those_of_the_companion(name):
    """Seven of the headings that experiments named were in no deck."""
    headings = EXPERIMENTS[name].headings
    assert headings and all(headings.values())
    for deck, titles in headings.items():
        assert set(titles) <= {entry.title for entry in load_deck(deck).headings}
        assert f"{deck} “{titles[0]}”" in EXPERIMENTS[name].lecture


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_page_names_deck_and_heading_before_anything_else_but_its_answer(name, monkeypatch):
    module = import_module(f"regard.lab.{EXPERIMENTS[name].module or name}")
    monkeypatch.setattr(module, name, lambda options: make_result("a"))
    page = PageParser()
    page.feed(run_experiment(name, Options()).page().render())
    text = " ".join(" ".join(page.words).split())
    before, lecture, after = text.partition(EXPERIMENTS[name].lecture)
    assert lecture and "Answer a." in before
    assert "How to read a." in after and "What was stated beforehand" in after


def test_links_are_plain_file_names():
    assert Links([("a", "a-1.html")]).data()["links"] == [["a", "a-1.html"]]
    for name in ("../a.html", "https://a", "javascript:x", "a b", ""):
        with pytest.raises(ValueError, match="links must be plain file names"):
            Links([("a", name)])


def test_all_experiments_store_their_parts_until_the_index_is_written(tmp_path, monkeypatch):
    seen = []

    def run(name, options):
        seen.append(options.part(f"part of {name}", "plan", float, lambda: 1.0))
        assert list((tmp_path / PARTS).glob("*.json"))
        return make_result(name)

    monkeypatch.setattr(regard.lab, "EXPERIMENTS", {"a": Experiment("q?", "002")})
    monkeypatch.setattr(regard.lab, "run_experiment", run)
    run_all(Options(), tmp_path)
    assert seen == [1.0] and not (tmp_path / PARTS).exists()
