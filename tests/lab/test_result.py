"""Claims, intervals, pages, documents and the clock of experiments."""

from __future__ import annotations

import json
import math

import pytest

from regard.errors import UsageError, UserError
from regard.lab import result as module
from regard.lab.index import EXPERIMENTS, perform
from regard.lab.result import Claim, Mean, Options, Result, Share, Work, less, summary
from regard.look.page import Lines, Table
from regard.training.progress import Reporter


def made(**changes):
    given = {
        "title": "T",
        "question": "Q?",
        "reading": "R.",
        "claims": [Claim("one", "at most 1", "0.5", True), Claim("two", "<b>", "2", False)],
        "tables": [Table(["a", "b"], [["x", 1.5], ["y", None]], title="numbers")],
        "figures": [
            Lines([("s", [1.0, 2.0], [0.0, 1.0])], levels={"half": 0.5}, x_ticks=[1.0, 2.0])
        ],
    }
    return Result(**(given | changes))


@pytest.mark.parametrize(("right", "of"), [(0, 7), (7, 7), (3, 7), (250, 500), (999, 1000)])
def test_the_ends_of_an_interval_lie_as_far_from_the_share_as_chance_allows(right, of):
    share = Share(right, of)
    for end in share.interval:  # (p̂ - p)² = z² p (1 - p) / n, unless it is cut at 0 or 1
        gap = abs(share.value - end)
        assert math.isclose(gap, 1.959964 * math.sqrt(end * (1 - end) / of), abs_tol=1e-9)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.95])
def test_intervals_hold_the_truth_about_as_often_as_they_say(p):
    n = 60
    mass = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    inside = [low <= p <= high for low, high in (Share(k, n).interval for k in range(n + 1))]
    assert 0.92 < sum(m for m, held in zip(mass, inside, strict=True) if held) < 0.985


def test_shares_add_up_and_say_themselves():
    assert Share(3, 4) + Share(1, 4) == Share(4, 8)
    assert str(Share(250, 500)) == "0.500 [0.456, 0.544]"
    assert Share(250, 500).percent == "50 [45.6, 54.4]"


def test_a_page_holds_question_figure_claims_and_tables_and_no_markup_of_theirs(tmp_path):
    written = made().write(tmp_path / "new", "exp", Reporter(quiet=True))
    assert [path.name for path in written] == ["exp.html", "exp.svg", "exp.png"]
    page = written[0].read_text()
    for word in ("Q?", "R.", "1 of 2 claims hold", "fails", "&lt;b&gt;", "numbers"):
        assert word in page
    assert "<b>" not in page and "<script src" not in page
    assert "half" in written[1].read_text() or written[1].stat().st_size > 1000
    assert written[2].read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_a_page_and_a_word(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    written = made().write(tmp_path, "exp", Reporter(quiet=True))
    assert [path.name for path in written] == ["exp.html"]
    assert "regard[plots]" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file"):
        made().write(tmp_path / "file", "exp", Reporter(quiet=True))


def test_a_document_has_claims_figures_and_tables():
    document = made().to_json([])
    assert json.loads(json.dumps(document, allow_nan=False)) == {
        "claims": [
            {
                "name": "one",
                "stated": "at most 1",
                "measured": "0.5",
                "holds": True,
                "interval": None,
            },
            {"name": "two", "stated": "<b>", "measured": "2", "holds": False, "interval": None},
        ],
        "figures": [],
        "tables": [{"title": "numbers", "columns": ["a", "b"], "rows": [["x", "1.5"], ["y", "–"]]}],
    }


def test_the_clock_tells_what_is_left_once_it_can(monkeypatch):
    now, said = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    reporter = Reporter(quiet=True)
    monkeypatch.setattr(reporter, "say", said.append)
    work = Work(reporter, 100.0)
    for seconds, units in ((3.0, 1.0), (6.0, 1.0), (20.0, 23.0), (22.0, 25.0), (40.0, 25.0)):
        now[0] = seconds
        work.add("a", units)
    assert said == ["a · 2% · ETA …", "a · 25% · ETA 1:00", "a · 75% · ETA 0:13"]


def test_an_unknown_experiment_is_refused_and_every_known_one_can_be_found():
    with pytest.raises(UsageError, match="unknown experiment 'distanse'; did you mean 'distance'"):
        perform("distanse", Options())
    from importlib import import_module

    for name, experiment in EXPERIMENTS.items():
        place, _, attribute = experiment.place.partition(":")
        assert callable(getattr(import_module(place), attribute)) and experiment.line, name


def test_every_figure_may_have_its_reading_and_none_is_left_over():
    two = [*made().figures, *made().figures]
    page = made(figures=two, readings=["The other one."]).page().render()
    assert page.count("The other one.") == 2  # once for readers, once for the script
    with pytest.raises(ValueError, match="readings must have one entry per figure but one"):
        made(readings=["too many"])


@pytest.mark.parametrize(
    ("interval", "holds"),
    [
        ((0.3, 0.4), True),
        ((0.2, 0.5), True),  # the ends belong to it
        ((0.0, 0.1), False),
        ((0.6, 0.9), False),
        ((0.1, 0.3), None),  # some of it
        ((0.1, 0.9), None),
        ((-math.inf, math.inf), None),
        ((math.nan, math.nan), None),
    ],
)
def test_the_interval_decides(interval, holds):
    """A figure from a small experiment was taken at its word, and the claim failed."""
    claim = Claim.within("name", "stated", "figure", interval, least=0.2, most=0.5)
    assert claim.holds is holds
    words = {True: "holds", False: "fails", None: "too small to tell"}
    assert claim.verdict == words[holds]


def test_a_brief_training_refutes_nothing_that_a_longer_one_may_reach():
    low = {"interval": (0.4, 0.5), "least": 0.95}
    assert Claim.within("n", "s", "0.45", **low).holds is False
    brief = Claim.within("n", "s", "0.45", **low, may_rise=True)
    assert brief.holds is None and brief.interval == (0.4, math.inf)
    assert brief.measured == "0.45; the quick form is too brief to refute it"
    reached = Claim.within("n", "s", "0.97", (0.96, 0.98), least=0.95, may_rise=True)
    assert reached.holds is True and reached.measured == "0.97"
    assert Claim.within("n", "s", "3", (2, 4), most=1, may_rise=True).holds is False
    assert Claim.within("n", "s", "3", (2, 4), most=1, may_fall=True).holds is None
    one = Claim.within("n", "s", "3", Mean.of([3.0]).interval, most=1)
    assert one.holds is None and one.measured == "3; a single measurement has no interval"


def test_claims_that_cannot_be_told_are_neither_held_nor_failed(tmp_path):
    open_ = Claim.within("three", "s", "3", (2, 4), most=3)
    result = made(claims=[*made().claims, open_])
    assert summary(result.claims) == "1 of 3 claims hold, 1 fails, 1 too small to tell"
    table = result.claims_table()
    assert [row[0] for row in table.rows] == ["holds", "fails", "too small to tell"]
    assert sorted(table.highlight) == [1]
    claims = result.to_json([])["claims"]
    assert [claim["holds"] for claim in claims] == [True, False, None]
    assert claims[2]["interval"] == [2, 4]
    assert json.dumps(made(claims=[Claim("a", "s", "m", None, (0.5, math.inf))]).to_json([]))
    assert "1 of 3 claims hold, 1 fails, 1 too small to tell" in result.page().render()


@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.9, 0.6), (0.9, 0.85)])
def test_the_interval_of_a_difference_holds_it_about_as_often_as_it_says(p, q):
    n = 40
    mass = [[math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(n + 1)] for x in (p, q)]
    inside = 0.0
    for i in range(n + 1):
        for j in range(n + 1):
            low, high = less(Share(i, n), Share(j, n))
            inside += mass[0][i] * mass[1][j] * (low <= p - q <= high)
    assert 0.92 < inside < 0.99
