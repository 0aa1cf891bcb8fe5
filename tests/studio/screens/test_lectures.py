"""The screen Lab and lectures: the experiments and headings that the commands list."""

import pytest

from regard.lab import EXPERIMENTS
from regard.lectures import DECKS, load_deck
from regard.studio.jobs import Jobs


def test_all_experiments_are_listed_with_their_pages(studio):
    (studio.opened.root / "lab").mkdir(exist_ok=True)
    (studio.opened.root / "lab" / "distance.html").write_text("<!doctype html>")
    rows = {row["name"]: row for row in studio.call("lectures", "experiments")["experiments"]}
    assert list(rows) == list(EXPERIMENTS)
    assert rows["distance"]["page"] == "lab/distance.html"
    assert studio.request("GET", "/pages/lab/distance.html")[0] == 200
    assert rows["svm"]["page"] == ""


def test_an_experiment_is_a_command(studio, monkeypatch):
    started = []

    def start(self, words, screen, run=""):
        started.append(list(words))
        raise ValueError

    monkeypatch.setattr(Jobs, "start", start)
    studio.request("POST", "/api/lectures/run", {"name": "distance"})
    studio.request(
        "POST", "/api/lectures/run", {"name": "kernels", "file": "names.txt", "quick": False}
    )
    studio.request(
        "POST", "/api/lectures/type_commands", {"deck": "002", "heading": "positional encoding"}
    )
    assert started[:2] == [
        ["lab", "distance", "--quick", "--out", "runs/lab"],
        ["lab", "kernels", "names.txt", "--out", "runs/lab"],
    ]
    assert started[2][:2] == ["lecture", "002"] and started[2][3] == "--run"
    for name in ("", "nothing", "--help", "all"):
        studio.refused("lectures", "run", name=name)
    studio.refused("lectures", "run", name="kernels", file="/etc/passwd")
    assert len(started) == 3


@pytest.mark.parametrize("number", DECKS)
def test_headings_are_those_of_the_companion(studio, number):
    deck = load_deck(number)
    shown = {one["number"]: one for one in studio.call("lectures", "decks")["decks"]}[number]
    assert shown["headings"] == [entry.title for entry in deck.headings]
    entry = deck.headings[len(deck.headings) // 2]
    assert studio.call("lectures", "heading", deck=number, heading=entry.title) == entry.to_json(
        deck
    )


def test_unknown_headings_are_refused(studio):
    assert studio.refused("lectures", "heading", deck="009", heading="x")
    assert studio.refused("lectures", "heading", deck="002", heading="no such heading at all")
