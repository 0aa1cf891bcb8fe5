"""regard show: the card and the curves of a run, and the table of a comparison."""

import json
import shutil

import pytest

from regard.cli.show import BARS, WIDTH, bars


def test_a_run_is_shown_with_its_metrics_and_curves(cli, transformer, tmp_path):
    run = tmp_path / "runs" / "letters"
    shutil.copytree(transformer, run)
    found = cli("show", "runs/letters")
    assert found.code == 0 and found.err == ""
    lines = found.out.splitlines()
    assert lines[0] == "runs/letters: transformer, task next, trained on words.txt"
    metadata = json.loads((run / "regard.json").read_text())
    assert f"{metadata['parameters']:,} parameters · 30 steps" in lines[1]
    value = metadata["metrics"]["test"]["bits_per_symbol"]["value"]
    (row,) = [line for line in lines if line.startswith("bits per symbol  ")]
    assert f"{value:.4f} [" in row
    for title in ("training", "validation", "learning rate", "gradient norm"):
        (curve,) = [line for line in lines if line.startswith(title)]
        assert len(curve) <= 80 and curve[len("learning rate ")] in BARS
    assert lines[-1].startswith("next: regard generate runs/letters")
    document = cli("show", "runs/letters", "--json").document
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [[e["step"], e["value"]] for e in events if e["event"] == "train"]
    assert document["curves"]["training"] == trained
    assert document["metrics"] == metadata["metrics"]


def test_a_run_that_is_not_finished_says_how_to_go_on(cli, transformer, tmp_path):
    shutil.copytree(transformer, tmp_path / "run")
    (tmp_path / "run" / "regard.json").unlink()
    found = cli("show", "run")
    assert found.code == 0
    assert "not finished: `regard train run --resume` goes on with it" in found.out


def test_what_is_no_run_is_refused(cli, tmp_path):
    assert "no such folder" in cli("show").err  # runs/latest
    assert "neither a run nor a comparison" in cli("show", tmp_path).err


@pytest.mark.parametrize("count", [2, WIDTH, 5 * WIDTH + 3])
def test_a_curve_that_falls_falls_from_the_highest_bar_to_the_lowest(count):
    line = bars([1 / (1 + i) for i in range(count)]).rstrip()
    assert len(line) == min(count, WIDTH) and line[0] == BARS[-1] and line[-1] == BARS[0]
    heights = [BARS.index(bar) for bar in line]
    assert heights == sorted(heights, reverse=True)
    assert set(bars([3.0] * count).rstrip()) == {BARS[0]}
