"""`regard compare` on labelled records: planted tasks whose winner is known, folds, the page."""

from __future__ import annotations

import json
import random
import time

import numpy as np
import pytest

from regard.cli import run
from regard.data.corpus import prepare
from regard.evaluation.predictions import load_predictions
from regard.planning import plan_recipe
from regard.run import RECIPE
from regard.training import comparison_runs, trainer
from regard.training.launcher import Launcher

SMALL = ["model.n_layers=2", "model.d_model=32", "model.dropout=0", "train.batch_tokens=2048"]


@pytest.fixture(autouse=True)
def here(monkeypatch, capsys):
    """Rows are trained in this process: a fresh one takes longer to start than they to train."""
    trained = []

    def one_run(one, told, launcher):
        trained.append(one.row.name)
        words = ["train", one.run / RECIPE, "--out", one.run, "--resume", "--quiet"]
        assert run([str(word) for word in words]) == 0
        capsys.readouterr()
        (one.run / comparison_runs.MEMORY).write_text('{"peak_memory_bytes": 1}')

    def folds(some, told, launcher):
        trained.append(some[0].row.name)
        assert comparison_runs.main([one.run for one in some]) == 0
        for one in some:
            (one.run / comparison_runs.MEMORY).write_text('{"peak_memory_bytes": 1}')

    monkeypatch.setattr(Launcher, "start", lambda self: None)
    monkeypatch.setattr(comparison_runs, "train", one_run)
    monkeypatch.setattr(comparison_runs, "train_folds", folds)
    return trained


def table(path, rows):
    path.write_text("\n".join(["text\ttold", *("\t".join(row) for row in rows)]) + "\n")
    return path


def compared(capsys, path, out, *words, steps=60):
    options = [word for key in (*SMALL, f"train.steps={steps}") for word in ("--set", key)]
    asked = ["compare", path, "--input", "text", "--target", "told", "--out", out, "--json"]
    assert run([str(word) for word in [*asked, *options, *words]]) == 0
    return json.loads(capsys.readouterr().out)


def test_where_counting_is_all_there_is_counting_wins(tmp_path, capsys):
    """Letters drawn one by one, with other frequencies for each class: what naive Bayes assumes is
    true, and few records tell the frequencies. All the Transformer could learn of order misleads.
    """
    draw, letters, rows = random.Random(0), "abcdefghijklmnopqrstuvwxyz", []
    often = {kind: [draw.choice([1, 2, 4]) for _ in letters] for kind in "pqr"}
    for _ in range(900):
        kind = draw.choice("pqr")
        rows.append(("".join(draw.choices(letters, often[kind], k=20)), kind))
    path = table(tmp_path / "counts.tsv", rows)
    words = ["--models", "majority,naive-bayes,transformer", "--set", "data.test_fraction=0.8"]
    found = compared(capsys, path, tmp_path / "out", *words, steps=20)
    assert found["ranked_by"] == "accuracy" and found["task"] == "label"
    assert found["rows"][0]["model"] == "naive-bayes" and found["rows"][0]["rank"] == 1
    worst = next(row for row in found["rows"] if row["model"] == "transformer")
    assert worst["rank"] > 1
    assert found["verdict"].startswith("Use naive-bayes: accuracy ")
    assert "The transformer is worse by" in found["verdict"]
    assert "s of training" in found["verdict"]
    for row in found["rows"]:  # what the run itself says, and what its kept answers say by hand
        facts = json.loads((tmp_path / "out" / row["model"] / "regard.json").read_text())
        assert row["metrics"]["accuracy"] == pytest.approx(facts["metrics"]["test"]["accuracy"])
        told = load_predictions(tmp_path / "out" / row["model"])
        by_hand = np.mean(told.scores.argmax(1) == told.truths)
        assert row["metrics"]["accuracy"]["value"] == pytest.approx(by_hand)
        assert row["records_per_second"] > 0
    words = ["evaluate", tmp_path / "out" / "transformer", "--json"]
    words += ["--against", tmp_path / "out" / "naive-bayes"]
    assert run([str(word) for word in words]) == 0
    against = json.loads(capsys.readouterr().out)["against"]
    best = found["rows"][0]["metrics"]["accuracy"]["value"]
    gap = worst["metrics"]["accuracy"]["value"] - best
    assert against["verdict"] == "worse"
    assert against["accuracy"]["value"] == pytest.approx(gap)


def test_where_order_is_all_there_is_a_sequence_model_wins(tmp_path, capsys, here):
    """Which of `a` and `b` comes first, each once in a record, mostly too far apart for n-grams."""
    draw, rows = random.Random(1), []
    for _ in range(500):
        letters = draw.choices("cdefg", k=14)
        letters.insert(draw.randint(0, 14), "a")
        letters.insert(draw.randint(0, 15), "b")
        rows.append(("".join(letters), min("ab", key=letters.index)))
    path = table(tmp_path / "order.tsv", rows)
    words = ["--models", "naive-bayes,lstm", "--set", "data.test_fraction=0.3"]
    words += ["--set", "model.n_layers=1"]
    found = compared(capsys, path, tmp_path / "out", *words)
    best, other = found["rows"]
    assert (best["model"], best["rank"], other["rank"]) == ("lstm", 1, 2)
    assert best["metrics"]["accuracy"]["value"] > 0.95
    assert found["verdict"].startswith("Use lstm: accuracy ")
    assert "naive-bayes, the next, is worse by" in found["verdict"]
    page = (tmp_path / "out" / "compare.html").read_text()
    for words_on_it in ("The best row: lstm", "Reliability", "predicted ones across"):
        assert words_on_it in page
    assert "| 1. | lstm |" in (tmp_path / "out" / "compare.md").read_text()
    assert here == ["naive-bayes", "lstm"]
    compared(capsys, path, tmp_path / "out", *words)
    assert here == ["naive-bayes", "lstm"]  # all of it was done


def test_folds_test_every_record_once_and_rows_in_pairs(tmp_path, capsys, here):
    draw = random.Random(2)
    texts = sorted({"".join(draw.choices("abcd", k=draw.randint(3, 9))) for _ in range(70)})
    rows = [(text, "more" if text.count("a") > 1 else "less") for text in texts]
    out, path = tmp_path / "out", table(tmp_path / "folds.tsv", rows)
    words = ["--models", "majority,naive-bayes", "--folds", "3", "--seeds", "2"]
    found = compared(capsys, path, out, *words)
    assert found["folds"] == 3 and found["records"] == len(rows)
    assert here == ["majority", "naive-bayes", "majority-seed1", "naive-bayes-seed1"]
    for row in found["rows"]:
        parts = [load_predictions(out / row["model"] / f"fold-{fold:03d}") for fold in range(3)]
        assert sum(len(part.truths) for part in parts) == len(rows)
        right = np.concatenate([part.scores.argmax(1) == part.truths for part in parts])
        assert row["metrics"]["accuracy"]["value"] == pytest.approx(right.mean())
        each = [float(np.mean(part.scores.argmax(1) == part.truths)) for part in parts]
        assert row["folds"]["sd"] == pytest.approx(np.std(each, ddof=1))
        assert row["seeds"] == 2 and len(row["runs"]) == 6
    told = (out / "compare.md").read_text()
    assert f"{len(rows)} records, 3 folds" in told and "over folds" in told


def test_the_folds_of_a_row_take_the_steps_of_the_first(tmp_path, capsys, monkeypatch):
    asked = []

    class Pace:
        per_step = 0.1

        def cost(self, steps):
            return 1.0

        def steps_within(self, clock, done=0):
            return asked.append(clock.left) or 5

        def observed(self, steps, validation):
            return self

        def measurable(self, clock):
            return 1e9

    monkeypatch.setattr(trainer, "measure", lambda trainer, seconds: Pace())
    rows = [("".join(random.Random(i).choices("abcd", k=6)), "pq"[i % 2]) for i in range(40)]
    path = table(tmp_path / "steps.tsv", rows)
    words = ["--models", "transformer", "--folds", "3", "--minutes", "3"]
    compared(capsys, path, tmp_path / "out", *words, steps=0)
    assert 50 < asked[0] < 60  # a third of three minutes, less the start
    for run_folder in sorted((tmp_path / "out" / "transformer").iterdir()):
        assert "steps = 5\n" in (run_folder / RECIPE).read_text()


def test_folds_are_trained_in_one_process_of_their_own(tmp_path, capsys, monkeypatch):
    monkeypatch.undo()
    rows = [("".join(random.Random(i).choices("abcd", k=6)), "pq"[i % 2]) for i in range(30)]
    path, told = table(tmp_path / "apart.tsv", rows), []
    data = {"input": "text", "target": "told", "folds": 2}
    recipe, _ = plan_recipe([path], data=data, model={"name": "majority"})
    prepare(recipe, tmp_path, told.append)
    told.clear()
    made = [comparison_runs.comparison_run(recipe, tmp_path, fold=fold) for fold in range(2)]
    with Launcher() as launcher:
        comparison_runs.train_all(
            made,
            time.monotonic() + 60,
            tmp_path,
            lambda one, state: told.append((one.fold, state)),
            launcher,
        )
    assert told[0] == (0, "training") and told[-1] == (1, "done") and all(one.done for one in made)
    assert (
        json.loads((made[1].run / comparison_runs.MEMORY).read_text())["peak_memory_bytes"]
        > 1 << 20
    )
    (made[1].run / "regard.json").unlink()
    (made[1].run / RECIPE).write_text("[nothing]\n")
    assert comparison_runs.main([one.run for one in made]) == 2
    assert "unknown key 'nothing'" in capsys.readouterr().err


def test_one_left_out_at_a_time(tmp_path, capsys):
    """Nearly balanced labels are the classic trap: the majority of the others is always wrong."""
    texts = [f"{'ab'[i % 2]}{'cdef'[i // 2]}" for i in range(8)]
    path = table(tmp_path / "left.tsv", [(text, text[0]) for text in texts])
    words = ["--models", "majority,naive-bayes", "--folds", "-1", "--set", "data.valid_fraction=0"]
    found = compared(capsys, path, tmp_path / "out", *words)
    assert found["folds"] == found["records"] == 8
    metrics = {row["model"]: row["metrics"]["accuracy"]["value"] for row in found["rows"]}
    assert metrics == {"majority": 0.0, "naive-bayes": 1.0}
    assert all("folds" not in row for row in found["rows"])  # of one record each: no spread
    for fold in range(8):
        told = load_predictions(tmp_path / "out" / "majority" / f"fold-{fold:03d}")
        assert told.records == 1


@pytest.mark.parametrize(
    ("target", "leading", "drawn"),
    [("share", "rmse", "share, predicted"), ("has_c,has_d", "auroc_mean", "AUROC of each label"),
     ("vowels", "accuracy", "predicted ones across")],
)  # fmt: skip
def test_every_task_is_ranked_by_what_leads_it(tmp_path, capsys, target, leading, drawn):
    draw, lines = random.Random(3), ["text\thas_c\thas_d\tshare\tvowels"]
    for _ in range(120):
        text = "".join(draw.choices("aabbcde", k=draw.randint(6, 12)))
        vowels = "".join("V" if c in "ae" else "C" for c in text)
        share = text.count("a") / len(text)
        lines.append(f"{text}\t{int('c' in text)}\t{int('d' in text)}\t{share:.4f}\t{vowels}")
    (tmp_path / "letters.tsv").write_text("\n".join(lines) + "\n")
    asked = ["compare", tmp_path / "letters.tsv", "--input", "text", "--target", target, "--json"]
    baseline = "mean" if target == "share" else "majority"
    asked += ["--models", f"{baseline},transformer", "--out", tmp_path / "out", "--folds", "2"]
    options = [word for key in (*SMALL, "train.steps=12") for word in ("--set", key)]
    assert run([str(word) for word in [*asked, *options]]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ranked_by"] == leading and len(found["rows"]) == 2
    assert found["rows"][0]["metrics"][leading]["low"] is not None
    assert drawn in (tmp_path / "out" / "compare.html").read_text()


def test_what_cannot_be_asked_together_is_refused(tmp_path, capsys):
    path = table(tmp_path / "x.tsv", [("abc", "p"), ("bcd", "q")] * 20)
    asked = ["compare", str(path), "--input", "text", "--target", "told", "--out", str(tmp_path)]
    assert run([*asked, "--folds", "3", "--scaling"]) == 2
    assert "--scaling and --folds" in capsys.readouterr().err
    words = tmp_path / "words.txt"
    words.write_text("abc\nbcd\n" * 20)
    assert run(["compare", str(words), "--folds", "3", "--out", str(tmp_path / "y")]) == 2
    assert "data.folds is for labelled records" in capsys.readouterr().err


def test_columns_name_the_class_and_there_is_a_figure_of_each_target(tmp_path, capsys):
    rng, rows = random.Random(8), []
    for i in range(160):
        text = "".join(rng.choices("abcd", k=8))
        rows.append((text, "[b]rare" if i % 5 == 0 else "c|d", str(i / 100), str(1000 * i)))
    (tmp_path / "t.tsv").write_text(
        "\n".join(map("\t".join, [("text", "kind", "p", "q"), *rows])) + "\n"
    )
    asked = ["compare", str(tmp_path / "t.tsv"), "--input", "text"]
    out = tmp_path / "classes"
    asked_of_classes = [*asked, "--models", "majority", "--target", "kind"]
    assert run([*asked_of_classes, "--out", str(out), "--quiet"]) == 0
    assert "F1 ([b]rare)" in capsys.readouterr().out  # as it is written, and no markup
    assert "| F1 ([b]rare) |" in (out / "compare.md").read_text()
    document = json.loads((out / "compare.json").read_text())
    assert document["rows"][0]["metrics"]["recall"]["class"] == "[b]rare"
    out = tmp_path / "values"
    assert run([*asked, "--models", "mean", "--target", "p,q", "--out", str(out), "--quiet"]) == 0
    printed, page = capsys.readouterr().out, (out / "compare.html").read_text()
    assert "mean standardized RMSE [95%]" in printed and "RMSE (p)" in printed
    assert "RMSE (q)" in page and "| RMSE (q) |" in (out / "compare.md").read_text()
    found = json.loads((out / "compare.json").read_text())["rows"][0]["metrics"]
    assert found["targets"]["q"]["rmse"]["value"] > 100 * found["targets"]["p"]["rmse"]["value"]
    assert 0.5 < found["rmse_standardized_mean"]["value"] < 2  # that of the mean is about one
