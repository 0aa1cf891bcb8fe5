"""The functions of the library, on files and on data in memory."""

from __future__ import annotations

import dataclasses
import shutil

import numpy as np
import pytest
import torch

import regard
from regard.data.in_memory import SOURCE
from regard.decoding import Greedy, Sample
from regard.errors import UsageError, UserError
from regard.run import Run
from regard.verify import verify

TEXTS = [f"{word} thing {i % 7}" for i in range(60) for word in ("good", "bad")]
KINDS = ["plus", "minus"] * 60
FAST = {"model": "logistic", "progress": False}  # fitted at once


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"review": TEXTS, "kind": KINDS})
    out = tmp_path_factory.mktemp("runs") / "kind"
    return regard.train(frame, out, target="kind", tokenizer="words", **FAST)


def test_a_frame_becomes_a_run_with_a_model_and_metrics(result):
    assert result.run.name == "kind" and result.outcome == "done"
    metric = result.metrics["accuracy"]
    assert metric.value == 1.0 and metric.low <= metric.value <= metric.high
    assert result.metrics is result.splits["test"] and "valid" in result.splits
    with pytest.raises(KeyError, match="no metric 'acuracy'; did you mean 'accuracy'"):
        result.metrics["acuracy"]
    run = Run(result.run)
    assert run.recipe.data.target == "kind" and run.recipe.input.tokenizer == "words"
    assert run.data["reading"]["inputs"] == ["review"]


def test_predictions_are_arrays_as_scikit_learn_has_them(result):
    pandas = pytest.importorskip("pandas")
    model = result.model
    frame = pandas.DataFrame({"kind": ["?", "?"], "review": ["good", "bad"]})
    expected = np.array(["plus", "minus"])
    for items in (["good", "bad"], frame, frame["review"], np.array(["good", "bad"])):
        np.testing.assert_array_equal(model.predict(items), expected)
    assert model.predict("good") == "plus" and model.predict(["good", " "]).tolist() == [
        "plus",
        None,
    ]
    assert model.classes.tolist() == ["minus", "plus"]
    probabilities = model.predict_proba(["good", "", "bad"])
    assert probabilities.shape == (3, 2) and np.isnan(probabilities[1]).all()
    np.testing.assert_allclose(probabilities[[0, 2]].sum(1), 1)
    full = model.predictions(["good", ""])
    assert full[0].label == "plus" and full[1].label == ""
    np.testing.assert_allclose(list(full[0].scores.values()), probabilities[0])
    for missing in (None, float("nan")):
        with pytest.raises(TypeError, match=r"items\[1\] must be a str"):
            model.predict(["good", missing])


def test_a_run_of_data_in_memory_is_evaluated_verified_and_rebuilt(result, tmp_path):
    assert regard.evaluate(result.run).metrics["accuracy"] == result.metrics["accuracy"]
    given = regard.evaluate(result.run, TEXTS[:10], y=KINDS[:10])
    assert given.metrics["accuracy"].value == 1.0 and given.document["records"] == 10
    assert all(check.ok is not False for check in verify(result.run).checks)
    run = tmp_path / "copy"
    shutil.copytree(result.run, run)
    shutil.rmtree(run / "data")
    again = regard.evaluate(run)
    assert again.metrics == result.metrics and (run / "data").exists()
    source = result.run / SOURCE / "train.jsonl"
    text = source.read_text()
    source.write_text(text.replace("good", "great", 1))
    shutil.rmtree(run / "data")
    with pytest.raises(UserError, match="its sources have changed since it was trained"):
        regard.evaluate(run)
    source.write_text(text)


def test_a_finished_run_is_resumed_with_the_same_data_alone(result):
    same = {"review": TEXTS, "kind": KINDS}
    again = regard.train(same, result.run, target="kind", resume=True, **FAST)
    assert again.metrics == result.metrics
    other = {"review": TEXTS[:-2], "kind": KINDS[:-2]}
    with pytest.raises(UserError, match="the data differ from those that"):
        regard.train(other, result.run, target="kind", resume=True, **FAST)
    with pytest.raises(UserError, match=r"exists and is not empty: go on with it \(--resume\)"):
        regard.train(same, result.run, target="kind", **FAST)


def test_an_error_leaves_no_folder_behind(tmp_path):
    for wrong in ({"target": "kin"}, {"target": "kind", "model": "logistc"}):
        with pytest.raises(UserError):
            regard.train({"t": TEXTS, "kind": KINDS}, tmp_path / "a" / "b", progress=False, **wrong)
        assert not list(tmp_path.iterdir())


def test_numbers_come_back_as_numbers(tmp_path):
    y = np.array([3, 7] * 60)
    run = tmp_path / "numbers"
    model = regard.train(TEXTS, run, y=y, **FAST, valid=(TEXTS[:8], y[:8])).model
    np.testing.assert_array_equal(model.predict(TEXTS), y)
    value = regard.train(
        TEXTS, tmp_path / "value", y=y * 1.5, task="value", **FAST | {"model": "ridge"}
    ).model
    assert value.predict(TEXTS).dtype == float and value.predict(TEXTS[0]) == pytest.approx(
        4.5, abs=1
    )
    with pytest.raises(UserError, match="predicts values, which have no probabilities"):
        value.predict_proba(TEXTS)
    several = regard.train(TEXTS, tmp_path / "labels", y=np.eye(2, dtype=int)[y // 5], **FAST)
    assert several.task == "labels"
    np.testing.assert_array_equal(several.model.predict(TEXTS[:2]), [[1, 0], [0, 1]])
    assert several.model.predict_proba(TEXTS[:2]).shape == (2, 2)


def test_images_series_and_tensors_are_predicted_as_they_were_given(tmp_path):
    random = np.random.default_rng(0)
    y = np.arange(80) % 2
    images = random.random((80, 8, 8)) * (0.3 + 0.7 * y[:, None, None])
    model = regard.train(images, tmp_path / "images", y=y, **FAST).model
    np.testing.assert_array_equal(model.predict(images), y)
    assert model.predict(images[1]) == 1 and model.predict(images[1:2]).tolist() == [1]
    tensors = torch.from_numpy(images)[:, None]  # (N, 1, height, width)
    np.testing.assert_array_equal(model.predict(list(tensors.numpy())), y)
    np.testing.assert_array_equal(model.predict(tensors), y)
    waves = np.sin(np.arange(30) * np.where(y, 0.3, 0.9)[:, None]) + random.random((80, 30)) / 9
    model = regard.train(waves, tmp_path / "series", y=y, **FAST).model
    np.testing.assert_array_equal(model.predict(waves), y)
    assert model.predict(waves[3]) == 1 and model.predict(waves[3:4]).shape == (1,)


def test_a_series_is_forecast_from_an_array_or_a_frame(tmp_path):
    pandas = pytest.importorskip("pandas")
    wave = 10 + np.sin(np.arange(300) * np.pi / 12)
    fast = {"model": "ridge", "horizon": 6, "lookback": 24, "progress": False}
    model = regard.train(wave, tmp_path / "array", **fast).model
    expected = 10 + np.sin(np.arange(300, 306) * np.pi / 12)
    np.testing.assert_allclose(model.predict(), expected, atol=1e-2)
    np.testing.assert_allclose(model.predict(wave[:276]), expected, atol=1e-2)  # 24 steps: a period
    index = pandas.date_range("2024-01-01", periods=300, freq="h")
    frame = pandas.DataFrame({"load": wave}, index=index)
    (forecast,) = regard.train(frame, tmp_path / "frame", target="load", **fast).model.predictions()
    assert forecast.times[0] == "2024-01-13 12:00" and forecast.columns == ("load",)
    assert "2024-01-13 12:00" in repr(forecast) and "2024-01-13 17:00" in forecast._repr_html_()


def test_texts_make_a_language_model_whose_samples_differ_from_call_to_call(tmp_path):
    words = [a + b + c for a in "abcd" for b in "eiou" for c in "lmnr"]
    trained = regard.train(words, tmp_path / "run", model="bigram", task="next", progress=False)
    generator = regard.load(trained.run, kind=regard.Generator)
    drawn = {tuple(c.text for c in generator.continuations(copies=8)) for _ in range(6)}
    assert len(drawn) == 6  # of 64 words, eight times: the same ones are not drawn twice
    same = [generator.generate([""] * 8, Sample(seed=1)) for _ in range(2)]
    assert same[0] == same[1]
    assert generator.continuations("ab", Greedy(), max_new=1)[0].text.startswith("ab")
    with pytest.raises(UserError, match="it is loaded as a Generator, not a Predictor"):
        regard.load(trained.run, kind=regard.Predictor)


def test_a_comparison_of_data_in_memory_names_its_best_run(tmp_path, rows_here):
    pairs = list(zip(TEXTS, KINDS, strict=True))
    names = ["majority", "naive-bayes"]
    compared = regard.compare(pairs, tmp_path / "c", models=names, minutes=0.2, progress=False)
    assert [row.model for row in compared.comparison.rows] == names[::-1]
    assert compared.model.predict(["good"]).tolist() == ["plus"]
    assert compared.run == tmp_path / "c" / "naive-bayes"
    assert "1. naive-bayes" in repr(compared) and "naive-bayes</td>" in compared._repr_html_()
    again = regard.compare(pairs, tmp_path / "c", models=names, minutes=0.2, progress=False)
    assert again.comparison.rows[0].main_metric == compared.comparison.rows[0].main_metric


def test_what_is_shown_is_short_and_names_what_it_is(result):
    shown = {
        "TrainResult": result,
        "Predictor": result.model,
        "Words(": result.model.tokenizer,
        "Evaluation of test": regard.evaluate(result.run),
    }
    for name, one in shown.items():
        assert name in repr(one) and len(repr(one)) < 200 and "object at" not in repr(one)
        assert one._repr_html_().startswith("<div>")
    assert "accuracy 1.0000 [1.0000, 1.0000]" in repr(result)
    assert repr(result.metrics["accuracy"]) == "1.0000 [1.0000, 1.0000]"
    assert '<td style="text-align:left">accuracy</td>' in result.metrics._repr_html_()
    ended = dataclasses.replace(result, steps=7, outcome="early", splits={})
    assert "stopped early, 7 steps" in repr(ended) and "nothing was held out" in repr(ended)


def test_models_are_exported_and_imported_and_pages_are_written(result, tmp_path):
    page = regard.look_at(result.run, "good thing")
    assert page.write(tmp_path / "look.html").read_text().startswith("<!doctype html>")
    with pytest.raises(UsageError, match="unknown format 'gguf'; choose one of hf, vec"):
        regard.export(result.run, tmp_path / "out", to="gguf")
    text = tmp_path / "text.vec"
    text.write_text("2 3\none 1 0 0\ntwo 0 1 0.5\n")
    assert regard.import_model(text, tmp_path / "vectors")["words"] == 2
    vectors = regard.load(tmp_path / "vectors", kind=regard.WordVectors)
    assert vectors.similarity("one", "one") == pytest.approx(1)
    assert regard.export(tmp_path / "vectors", tmp_path / "again.vec", to="vec")["words"] == 2


def test_a_recipe_that_is_planned_is_what_is_trained(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{a}{b}\n" for a in "abcdefgh" for b in "xyzuvw"))
    recipe, lines = regard.plan(path, model="bigram", data={"test_fraction": 0.2})
    assert recipe.data.test_fraction == 0.2 and any("bigram" in line for line in lines)
    first = regard.train_recipe(recipe, tmp_path / "one")
    more = {"model": "bigram", "data": {"test_fraction": 0.2}, "progress": False}
    second = regard.train(path, tmp_path / "two", **more)
    assert first.metrics == second.metrics


def test_examples_are_written_where_they_are_wanted(tmp_path):
    (path,) = regard.example("molecules", tmp_path / "new")[:1]
    assert path.parent == tmp_path / "new" and path.stat().st_size > 1000
    with pytest.raises(UsageError, match="unknown example 'molecule'; did you mean 'molecules'"):
        regard.example("molecule", tmp_path)
