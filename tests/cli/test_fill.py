"""regard fill."""

from __future__ import annotations

import json

from regard.cli import run

SEQUENCE = "MKDEMKFGLIDEFGMKLILIDEMK"


def test_it_fills_in_what_it_has_seen(masked_proteins, capsys):
    text = "[MASK]K" + SEQUENCE[2:9] + "<mask>" + SEQUENCE[10:]
    assert run(["fill", str(masked_proteins), text, "--num", "2", "--json"]) == 0
    masks = json.loads(capsys.readouterr().out)["masks"]
    assert [mask["position"] for mask in masks] == [1, 10]
    best, second = masks[0]["candidates"]
    assert best["token"] == "M" and best["probability"] > second["probability"] > 0
    assert run(["fill", str(masked_proteins), text]) == 0
    assert capsys.readouterr().out.startswith(f"1\t{best['probability']:.4f}\tM\n")


def test_runs_of_other_tasks_name_the_command_that_trains_one(contrastive_run, capsys):
    assert run(["fill", str(contrastive_run), "a [MASK]"]) == 1
    assert "`regard train FILE --task masked` makes a run for it" in capsys.readouterr().err
