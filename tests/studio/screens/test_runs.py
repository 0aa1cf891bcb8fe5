"""The screen Runs shows what `regard runs`, `regard show` and `regard rm` print."""

import json
import subprocess
import sys

import pytest
from studio_server import MARKUP

from regard.run_folders import card, find
from regard.studio.screens.runs import draw_curves, is_live


def test_the_table_is_that_of_regard_runs(studio):
    entries = find(studio.opened.root)
    found = studio.call("runs", "table")
    assert [row["path"] for row in found["runs"]] == [str(one.path) for one in entries]
    for row, one in zip(found["runs"], entries, strict=True):
        assert one.to_json().items() <= row.items()
    assert not found["live"]  # all are finished


def test_the_card_holds_the_document_of_regard_show(studio):
    folder = studio.opened.root / "labels"
    found = studio.call("runs", "card", run="labels")
    expected = {key: value for key, value in card(folder).items() if key != "curves"}
    assert found["document"] == json.loads(json.dumps(expected))
    assert found["rows"][0][0] == "accuracy"
    verbs = [command.split()[1] for command in found["commands"]]
    assert verbs == ["predict", "evaluate", "look", "embed", "verify"]
    assert found["lines"][-1].startswith("not for regard export: ")


def test_commands_of_a_card_are_typed_as_they_stand(studio):
    """The name of a run may hold blanks and signs that a shell obeys."""
    commands = studio.call("runs", "card", run=MARKUP)["commands"]
    assert commands
    for command in commands:
        words = subprocess.run(
            [
                sys.executable,
                "-c",
                "import shlex, sys; print(len(shlex.split(sys.argv[1])))",
                command,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"'{studio.opened.root / MARKUP}'" in command
        assert int(words.stdout) <= 6


def test_curves_of_one_metric_share_a_figure(studio):
    runs = studio.opened.root
    for name, metric in (("c1", "loss"), ("c2", "loss"), ("c3", "accuracy")):
        (runs / name / "data").mkdir(parents=True)
        (runs / name / "recipe.toml").write_text("")
        rows = [
            {"event": "valid", "step": i, "seconds": 1.0 * i, "metric": metric, "value": i / 7}
            for i in range(5)
        ]
        (runs / name / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    tried = runs / "c1" / "candidates" / "lstm"
    tried.mkdir(parents=True)
    (tried / "metrics.jsonl").write_bytes((runs / "c2" / "metrics.jsonl").read_bytes())
    found = studio.call("runs", "curves", runs=["c1", "c2", "c3", "names"])["figures"]
    assert [[s["name"] for s in one["data"]["series"]] for one in found] == [
        ["c1", "c1: lstm", "c2"],
        ["c3"],
    ]
    assert found[0]["data"]["series"][0]["y"] == [round(i / 7, 6) for i in range(5)]
    assert all(is_live(one) for one in find(runs) if one.path.name in ("c1", "c2", "c3"))
    assert "one of validation" not in studio.refused("runs", "curves", runs=[], curve="x")


def test_long_curves_are_thinned_and_end_where_they_end():
    from regard.run_folders import Measurement

    for count in (1, 1999, 2000, 2001, 4001, 9999):
        points = [Measurement(float(i), float(i), i, "loss", "") for i in range(count)]
        lines = draw_curves([("a", points)], "training")[0].series
        _, steps, _ = lines[0][:3]
        assert len(steps) <= 2001
        assert (steps[0], steps[-1]) == (0, count - 1)
        assert len(set(steps)) == len(steps)


def test_only_runs_are_removed(studio):
    (studio.opened.root / "old" / "data").mkdir(parents=True)
    (studio.opened.root / "old" / "recipe.toml").write_text("")
    assert studio.call("runs", "remove", run="old") == {"removed": "old"}
    assert not (studio.opened.root / "old").exists()
    for name in ("old", "", ".", "..", "../names.txt", "names/data"):
        studio.refused("runs", "remove", run=name)
    assert (studio.opened.root / "names" / "data").is_dir()


@pytest.mark.parametrize("damage", ["{", "[]", '{"metrics": 3}'])
def test_a_damaged_run_is_a_row_that_says_so(studio, damage):
    folder = studio.opened.root / "damaged"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "recipe.toml").write_text("")
    (folder / "regard.json").write_text(damage)
    rows = {row["name"]: row for row in studio.call("runs", "table")["runs"]}
    assert rows["damaged"]["metric"] is None
    assert studio.refused("runs", "card", run="damaged")
