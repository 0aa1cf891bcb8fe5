"""All experiments in one folder: every claim, every page, and those that could not be done."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from regard.errors import UsageError, UserError
from regard.lab import index as module
from regard.lab.index import EXPERIMENTS, Experiment, hang, perform
from regard.lab.result import Claim, Mean, Options, Result, student
from regard.look.page import Lines, Links, Table


def result_of(name):
    return Result(
        title=f"About {name}",
        question="Q?",
        reading=f"How to read {name}.",
        claims=[Claim("one", "s", "m", True), Claim("two", "s", "m", name == "b")],
        tables=[Table(["x"], [["y"]])],
        figures=[Lines([("s", [1.0, 2.0], [0.0, 1.0])], title="figure", dots=["s"])],
    )


@pytest.fixture(scope="module")
def hung(tmp_path_factory):
    def performed(name, options):
        if name == "c":
            raise UserError("needs something")
        return result_of(name)

    with pytest.MonkeyPatch.context() as patch:
        known = {key: Experiment("nowhere", f"asks {key}") for key in "abc"}
        patch.setattr(module, "EXPERIMENTS", known)
        patch.setattr(module, "perform", performed)
        return hang(Options(quick=True), tmp_path_factory.mktemp("hung") / "new")


class Finder(HTMLParser):
    """The links and headings of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.words = [], []

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.links.append(dict(attributes)["href"])

    def handle_data(self, data):
        self.words.append(data)


def test_the_index_has_a_figure_a_reading_and_a_link_for_each_and_all_claims(hung):
    page = Finder()
    page.feed(hung.index.read_text())
    assert {"a.html", "b.html"} <= set(page.links) and "c.html" not in page.links
    text = " ".join(page.words)
    for said in (
        "How to read a.",
        "How to read b.",
        "3 of 4 claims hold",
        "Not tried: needs something",
    ):
        assert said in text
    folder = hung.index.parent
    assert {p.name for p in folder.iterdir()} >= {
        "index.html",
        "a.html",
        "a.svg",
        "a.png",
        "b.html",
    }
    assert all(path.exists() for path in hung.written)


def test_failing_and_untried_claims_are_told_and_set_apart(hung):
    table = hung.claims_table()
    verdicts = [(row[1].partition(":")[0], row[0]) for row in table.rows]
    assert verdicts == [
        ("a", "holds"),
        ("a", "fails"),
        ("b", "holds"),
        ("b", "holds"),
        ("c", "not tried"),
    ]
    assert sorted(table.highlight) == [1, 4]
    document = json.loads(json.dumps(hung.to_json(), allow_nan=False))
    assert [c["holds"] for c in document["claims"]] == [True, False, True, True]
    assert document["not_tried"] == {"c": "needs something"}
    counts = [row[:4] for row in hung.table().rows]
    assert counts == [["a", 1, 1, 0], ["b", 2, 0, 0], ["c", 0, 0, 0]]


def test_all_takes_no_file_and_others_only_where_they_say_so(tmp_path):
    with pytest.raises(UsageError, match="takes no file"):
        hang(Options(file=tmp_path), tmp_path)
    with pytest.raises(
        UsageError, match="experiment 'bayes' takes no file; those that do: kernels"
    ):
        perform("bayes", Options(file=tmp_path))
    assert EXPERIMENTS["heads"].file and not EXPERIMENTS["distance"].file


def test_links_are_plain_file_names():
    assert Links([("a", "a-1.html")]).data() == {"links": [["a", "a-1.html"]]}
    for name in ("../a.html", "https://a", "javascript:x", "a b", ""):
        with pytest.raises(ValueError, match="links must be plain file names"):
            Links([("a", name)])


def test_a_mean_has_the_interval_of_students_t():
    stats = pytest.importorskip("scipy.stats")
    for freedom in (1, 2, 9, 40):
        assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-6)
    values = [1.0, 2.0, 4.0]
    low, high = stats.t.interval(0.95, 2, loc=7 / 3, scale=stats.sem(values))
    assert Mean.of(values).interval == (pytest.approx(low), pytest.approx(high))
    assert str(Mean.of([2.0])) == "2"


def test_dots_name_a_series():
    with pytest.raises(ValueError, match="dots must name a series"):
        Lines([("s", [1.0], [1.0])], dots=["t"])
