"""Selection: the best row on validation becomes the run, the others stay beside it."""

import json
import math
import time

import numpy as np
import pytest

import regard
from regard.api import train_both, train_recipe
from regard.data.batching import drawn_order
from regard.data.corpus import reopen
from regard.planning import plan_both, plan_recipe, unlabelled_file
from regard.recipe import build, read
from regard.training import selection
from regard.training.distributed import ALONE
from regard.training.progress import Reporter
from regard.training.selection import (
    Score,
    explain,
    more_time,
    name_cheaper,
    slope_of,
    still_falling,
)


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """A table whose labels follow from one word: linear models learn it, little time is too little
    for a network.
    """
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    rows = ["text\tkind"]
    for i in range(300):
        text = " ".join(random.choice(words, 6))
        rows.append(f"{text} {'yes' if i % 3 else 'no'} {text[:2]}\t{'p' if i % 3 else 'n'}")
    path = tmp_path_factory.mktemp("selection") / "questions.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


def recipe_of(path, **others):
    return plan_recipe(
        [path], data={"input": "text", "target": "kind"}, train={"minutes": 0.05}, **others
    )


@pytest.fixture(scope="module")
def finished(questions, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "TRIAL_CPU", 0.0)
        patch.setattr(selection, "has_gpu", lambda: False)
        return run, train_recipe(recipe_of(questions)[0], run)


@pytest.mark.parametrize(("gpu", "enough"), [(False, 0.7), (True, 3.0)])
def test_networks_have_trials_if_there_is_time_for_them(questions, monkeypatch, gpu, enough):
    monkeypatch.setattr(selection, "has_gpu", lambda: gpu)
    recipe = recipe_of(questions)[0]
    chooser = selection.Selection(None, False, None, 0.0)
    for minutes, count, has in ((enough, 3, True), (enough - 0.01, 3, False), (enough, 1, False)):
        timed = recipe.replace(train={"minutes": minutes})
        assert chooser.has_trials(timed, count) is has


def test_the_best_two_of_three_networks_are_trained_after_their_trials(finished):
    rows = {row["model"]: row for row in finished[1].selection["rows"]}
    trials = [row for name, row in rows.items() if name.endswith("-trial")]
    trials.sort(key=lambda row: (-row["value"], row["loss"]))
    assert len(trials) == 3
    trained = {name for name in ("transformer", "cnn", "lstm") if name in rows}
    assert trained == {row["model"].removesuffix("-trial") for row in trials[:2]}


def test_the_better_one_of_two_networks_is_trained_after_their_trials(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "TRIAL_CPU", 0.0)
    monkeypatch.setattr(selection, "has_gpu", lambda: False)
    lines = [f"{'ab' * (1 + i % 5)}{i % 10}\n" for i in range(400)]
    (tmp_path / "words.txt").write_text("".join(lines))
    recipe, _ = plan_recipe([tmp_path / "words.txt"], train={"minutes": 0.05})
    result = train_recipe(recipe, tmp_path / "run")
    rows = {row["model"]: row["value"] for row in result.selection["rows"]}
    trials = {name.removesuffix("-trial"): rows[name] for name in rows if name.endswith("-trial")}
    assert trials.keys() == {"transformer", "lstm"}
    assert {name for name in trials if name in rows} == {min(trials, key=trials.get)}


def test_a_model_is_chosen_only_if_nothing_is_said_of_it(questions):
    assert recipe_of(questions)[0].model.choose
    assert not recipe_of(questions, model={"name": "lstm"})[0].model.choose
    assert not recipe_of(questions, assignments=["model.dropout=0.5"])[0].model.choose
    assert not recipe_of(questions, assignments=["train.steps=3"])[0].model.choose


def test_the_best_row_on_validation_becomes_the_run(finished):
    run, result = finished
    rows = result.selection["rows"]
    assert result.run == run and rows[0]["model"] == result.selection["best"]
    full = [row["value"] for row in rows if not row["model"].endswith("-trial")]
    assert rows[0]["value"] == max(full) > 0.9 and not rows[0]["model"].endswith("-trial")
    assert build(read(run / "recipe.toml")).model.name == result.selection["best"]
    assert not build(read(run / "recipe.toml")).model.choose
    stored = json.loads((run / "regard.json").read_text())
    assert stored["selection"]["lines"] == result.selection["lines"]
    assert result.selection["lines"][0].startswith(f"kept {rows[0]['model']} (accuracy ")
    predictor = regard.load(run)
    assert predictor.predictions(["w1 yes w2", "w3 no w4"])[0].label == "p"


def test_the_other_rows_load_and_have_the_scores_that_were_compared(finished):
    run, result = finished
    others = {path.name for path in (run / "candidates").iterdir() if path.is_dir()}
    assert others == {row["model"] for row in result.selection["rows"][1:]} and len(others) > 3
    for row in result.selection["rows"][1:]:
        folder = run / "candidates" / row["model"]
        facts = json.loads((folder / "regard.json").read_text())
        assert facts["metrics"]["valid"]["accuracy"]["value"] == row["value"]
        assert regard.load(folder).predict(["w1 w2 w3 w4 w5 w6 yes w1"])


def test_a_run_stopped_between_two_rows_makes_the_same_choice(finished, questions, tmp_path):
    """Stopped once before the third row, and once while files are moved."""
    calls, fit, replace = [], selection.Session.fit, selection.os.replace

    def stop_before_the_third(self, recipe):
        calls.append(recipe.model.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return fit(self, recipe)

    def stop_at_the_weights(source, target):
        if str(source).endswith("regard.json") and "candidates" in str(source):
            raise KeyboardInterrupt
        return replace(source, target)

    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection.Session, "fit", stop_before_the_third)
        with pytest.raises(KeyboardInterrupt):
            train_recipe(recipe_of(questions)[0], run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection.os, "replace", stop_at_the_weights)
        with pytest.raises(KeyboardInterrupt):
            train_recipe(build(read(run / "recipe.toml")), run, resume=True)
    trained = json.loads((run / "candidates" / "selection.json").read_text())
    assert trained["best"] and build(read(run / "recipe.toml")).model.choose
    result = train_recipe(build(read(run / "recipe.toml")), run, resume=True)
    assert result.selection["best"] == trained["best"] == finished[1].selection["best"]
    assert build(read(run / "recipe.toml")).model.name == trained["best"]
    assert json.loads((run / "regard.json").read_text())["selection"] == result.selection
    assert calls[:2] == [row["model"] for row in trained["rows"][:2]]


def score(model, value, *, seconds=1.0, low=0.0, high=0.0, lower=False, slope=0.0, loss=0.0):
    falling = slope > 0
    return Score(model, "accuracy", value, low, high, lower, loss, seconds, falling, slope)


def test_the_loss_decides_between_equal_accuracies():
    scores = [score("a", 0.9, loss=0.4), score("b", 0.9, loss=0.3), score("c", 0.8)]
    assert min(scores, key=lambda one: one.key).model == "b"
    assert min([score("a", 2.0, lower=True), score("b", 3.0, lower=True)], key=lambda s: s.key)


def test_the_line_names_the_best_rows_and_a_network_that_still_improves():
    others = [score("b", 0.85), score("c", 0.8), score("d", 0.7), score("net", 0.56, slope=0.2)]
    line = explain(score("a", 0.9), others)
    assert line == (
        "kept a (accuracy 0.9 on validation; b 0.85 after 1 s; c 0.8 after 1 s; net 0.56 after 1 s)"
    )


def test_a_cheaper_row_within_the_interval_is_named_with_its_time():
    best = score("net", 0.943, low=0.9, high=0.97, seconds=12)
    (line,) = name_cheaper(best, [score("pwm", 0.906, seconds=0.1), score("x", 0.89, seconds=0.1)])
    assert (
        line
        == "pwm (0.906) is within the interval of net [0.9, 0.97] and took 0.1 s instead of 12.0 s"
    )
    assert name_cheaper(best, [score("slow", 0.94, seconds=11)]) == []


def test_more_time_is_advised_by_the_power_law_of_the_error():
    """The error halves whenever the time doubles: an error four times as large needs 4 times."""
    trial, full = score("net-trial", 0.2, seconds=2.0), score("net", 0.8, seconds=8.0)
    slope = slope_of(full, trial)
    assert math.isclose(slope, 0.5)
    network = score("net", 0.6, slope=slope)
    assert "about 4 times the --minutes" in more_time(network, score("svm", 0.9))
    assert "still improving" in more_time(network, network)
    assert more_time(score("net", 0.6), score("svm", 0.9)) == ""
    assert more_time(score("net", 0.6, slope=0.011), score("svm", 0.999)) == ""
    assert more_time(score("net-trial", 0.6, slope=0.5), score("svm", 0.9)) == ""
    assert more_time(score("net", 1.0), score("svm", 1.0)) == ""  # nothing is left to improve
    assert slope_of(full, None) == slope_of(trial, full) == 0.0


@pytest.mark.parametrize(
    ("losses", "falling"),
    [([3.0, 2.5, 2.2, 2.1], True), ([3.0, 2.0, 2.1, 2.2], False), ([2.0] * 9, False), ([], False)],
)
def test_a_curve_with_its_minimum_at_the_end_is_still_falling(losses, falling, tmp_path):
    lines = [
        json.dumps({"event": "valid", "step": t, "seconds": t, "value": loss})
        for t, loss in enumerate(losses, 1)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert still_falling(tmp_path) is falling
    assert not still_falling(tmp_path / "none")
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"event": "anneal", "step": 9, "best_step": 1, "seconds": 9}) + "\n")
    assert not still_falling(tmp_path)  # it overfitted: more time would not help


def test_a_network_that_improves_is_told_to_need_time_though_its_slope_is_unknown():
    network = Score("net", "accuracy", 0.6, 0.0, 0.0, False, 0.0, 1.0, True)
    assert more_time(network, score("svm", 0.9)) == (
        "net was still improving: more --minutes will help it"
    )


@pytest.fixture(scope="module")
def unlabelled(tmp_path_factory):
    """Rows of which one in four has a label."""
    random = np.random.default_rng(0)
    words = [f"w{i}" for i in range(40)]
    rows = ["text\tkind"]
    for i in range(400):
        text = " ".join(random.choice(words, 6))
        rows.append(f"{text} {'yes' if i % 3 else 'no'}\t{'pn'[i % 3 == 0] if i % 4 == 0 else ''}")
    path = tmp_path_factory.mktemp("unlabelled") / "questions.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


def test_rows_without_a_target_are_trained_on_first_and_the_gain_is_told(unlabelled, tmp_path):
    """The held-out rows of the two stages are the same, though the first reads all rows."""
    said = []
    recipe, _ = plan_recipe([unlabelled], train={"minutes": 0.1})
    assert unlabelled_file(recipe, said.append) == unlabelled
    assert said[0].startswith("300 of 400 rows have no 'kind'")
    run = tmp_path / "run"
    first, recipe, _ = plan_both([unlabelled], unlabelled, run, train={"minutes": 0.1})
    assert recipe.train.lr < first.train.lr and recipe.model.choose == ("transformer",)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "TRIAL_CPU", 0.0)
        patch.setattr(selection, "has_gpu", lambda: False)
        began, reporter = time.monotonic(), Reporter(quiet=True)
        shared = {"resume": False, "reporter": reporter, "began": began, "world": ALONE}
        result = train_both(first, recipe, run, **shared)
    rows = {row["model"] for row in result.selection["rows"]}
    assert {"transformer-pretrained-trial", "transformer-trial", "logistic"} <= rows
    assert any(line.startswith("pre-training: accuracy ") for line in result.selection["lines"])
    inner, outer = reopen(run / "pretrained"), reopen(run)
    assert inner.train.records > 2 * outer.train.records

    def texts(corpus, split):
        shard = corpus.split(split)
        return {corpus.tokenizer.decode(shard.record(i)) for i in range(shard.records)}

    for split in ("valid", "test"):
        assert texts(outer, split) <= texts(inner, split)


def test_a_table_with_few_unlabelled_rows_is_not_trained_twice(questions):
    recipe = recipe_of(questions)[0]
    assert unlabelled_file(recipe, print) is None


def test_a_finished_run_that_is_resumed_keeps_its_model_and_its_selection(finished):
    """Fitted again in the seconds of its share, a linear model became another one."""
    run, result = finished
    before = (run / "model.safetensors").read_bytes()
    again = train_recipe(build(read(run / "recipe.toml")), run, resume=True)
    assert (run / "model.safetensors").read_bytes() == before
    assert again.selection == result.selection and again.parameters == result.parameters
    assert json.loads((run / "regard.json").read_text())["selection"] == result.selection


def test_a_translator_is_chosen_by_what_ranks_translators(tmp_path):
    """By its translations of held-out pairs, not by the bits of the references."""
    sacrebleu = pytest.importorskip("sacrebleu")
    pairs = [(f"{d} {m}", f"am {d} . {m.upper()}") for d in range(1, 31) for m in "abcdefghij"]
    random = np.random.default_rng(1)
    random.shuffle(pairs)
    paths = [tmp_path / "train.en", tmp_path / "train.de"]
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side))
    recipe, _ = plan_recipe(paths, train={"minutes": 0.1})
    run = tmp_path / "run"
    result = train_recipe(recipe, run)
    rows = {row["model"]: row for row in result.selection["rows"]}
    assert {row["metric"] for row in rows.values()} == {"bleu"}
    best = max(rows.values(), key=lambda row: (row["value"], -row["loss"]))
    assert result.selection["best"] == best["model"]
    translator = regard.load(run)
    valid = reopen(run).valid
    drawn = drawn_order(valid, 0)[:200]
    sources = [translator.source_tokenizer.decode(valid.source.record(i)[1:-1]) for i in drawn]
    references = [translator.tokenizer.decode(valid.record(i)[1:-1]) for i in drawn]
    made = [str(found[0].text) for found in translator.translate(sources)]
    score = sacrebleu.corpus_bleu(made, [references], force=True).score
    assert best["value"] == pytest.approx(score, abs=1e-6)
