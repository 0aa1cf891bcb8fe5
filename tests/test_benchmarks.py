"""Benchmarks run, report what their documentation promises, and recover known exponents."""

import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.api import load, train_recipe
from regard.evaluation.translation import measure_translation
from regard.planning import plan_recipe

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def scaling():
    spec = importlib.util.spec_from_file_location("benchmark_scaling", BENCHMARKS / "scaling.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENBLAS_NUM_THREADS", "1")  # which the script would set for good
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module


def run(name, *words, folder):
    """Return what `python benchmarks/NAME --quick` prints and writes."""
    path = folder / "result.json"
    command = [sys.executable, BENCHMARKS / name, "--quick", "--json", path, *words]
    # one thread: two would wait for each other while other tests run
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(path.read_text())


@pytest.mark.slow
def test_training_beside_hugging_face(tmp_path):
    pytest.importorskip("transformers")
    printed, found = run("cpu_train.py", "--data", tmp_path, folder=tmp_path)
    assert {"threads", "torch", "rounds", "rows"} <= set(found)
    assert [row["name"] for row in found["rows"]] == ["tiny", "small"]
    for row in found["rows"]:
        rates = row["tokens_per_second"]
        assert set(rates) == {"ours", "Hugging Face", "ours, muon"}
        assert min(rates.values()) > 0
        assert row["loss_difference"] <= 1e-4
        for name, (low, high) in row["ratio_middle_half"].items():
            assert 0 < low <= row["ratio"][name] <= high
        assert row["case"]["peer"] in printed


@pytest.mark.slow
def test_decoding_with_a_hyena(tmp_path):
    printed, found = run("hyena_decode.py", folder=tmp_path)
    assert found["difference"] < 1e-4
    assert found["ratio"] == pytest.approx(found["seconds"]["sum"] / found["seconds"]["ours"])
    rows = found["growth"]["ours"]
    assert [row["n"] for row in rows] == [128, 256, 512] and rows[0]["growth"] == 1
    assert "tokens/s" in printed


@pytest.mark.slow
def test_long_sequences_on_a_device(tmp_path):
    every = "real,strided,fused,paired,monarch"
    command = [BENCHMARKS / "gpu_hyena.py", "--device", "cpu", "--tiny", "--convolutions", every]
    done = subprocess.run(
        [sys.executable, *command, "--json", tmp_path / "result.json"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "result.json").read_text())
    assert all(gap < 1e-5 for gap in found["agreement"].values())
    assert set(found["agreement"]) == set(every.split(","))
    assert {len(points) for points in found["layers"]["rows"].values()} == {3}
    for row in found["operators"].values():
        fit = row["exponents"]["time"]
        assert fit["low"] <= fit["value"] <= fit["high"]
    assert found["window"]["ratio"] > 0 and "overtakes attention" in done.stdout


@pytest.mark.slow
def test_translation_beside_its_peers(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("ctranslate2")
    printed, found = run("cpu_translate.py", "--data", tmp_path, folder=tmp_path)
    assert [row["row"] for row in found["rows"]] == ["decode, vaswani", "decode, modern", "train"]
    for row in found["rows"]:
        assert min(row["tokens_per_second"].values()) > 0
        assert row["row"] in printed
    post, pre, trained = found["rows"]
    ours, peer, other = "ours", "Hugging Face", "CTranslate2"
    assert post["same_as_ours"][peer] == pre["same_as_ours"][other] == 3  # sources
    assert post["different_translations"] > 1, "equal translations would prove little"
    assert f"{ours} / {peer}" in post["ratios"] and f"{ours} / {other}" in pre["ratios"]
    assert f"{ours}, int8 / {other}, int8" in pre["ratios"]
    assert trained["loss_difference"] <= 1e-4


@pytest.mark.slow
def test_growth_is_measured(tmp_path):
    printed, found = run("scaling.py", "--device", "cpu", folder=tmp_path)
    assert {"device", "threads", "torch", "repeats", "holds", "rows"} <= set(found)
    names = [row["name"] for row in found["rows"]]
    assert names == ["training", "decoding, 1 row", "decoding, 2 rows", "memory"]
    for row in found["rows"]:
        assert len(row["sizes"]) == len(row["costs"]) >= 4
        assert row["exponent"]["low"] <= row["exponent"]["value"] <= row["exponent"]["high"]
        assert {"bar", "holds", "surely", "last_doubling", "exponent_of_growth"} <= set(row)
        assert row["name"] in printed
    # memory is counted, not timed: even this small it is exact, and linear
    assert found["rows"][-1]["exponent_of_growth"]["value"] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("planted", [0.5, 1.0, 1.7])
def test_the_fit_recovers_a_planted_exponent(scaling, planted):
    sizes = [64, 128, 256, 512, 1024]
    fit = scaling.exponent(sizes, [3e-4 * n**planted for n in sizes])
    assert fit.value == pytest.approx(planted, abs=1e-9)
    assert fit.high - fit.low == pytest.approx(0, abs=1e-6)


def test_the_interval_covers_a_planted_exponent_as_often_as_it_says(scaling):
    source, sizes, planted, trials = random.Random(0), [2**i for i in range(6)], 1.2, 1000
    covered = 0
    for _ in range(trials):
        costs = [n**planted * 2.718281828 ** source.gauss(0, 0.1) for n in sizes]
        fit = scaling.exponent(sizes, costs)
        covered += fit.low <= planted <= fit.high
    assert 0.93 <= covered / trials <= 0.97  # 0.95, give or take three standard errors


@pytest.mark.parametrize("planted", [0.9, 1.0, 2.0])
def test_growth_is_fitted_whatever_the_constant(scaling, planted):
    sizes = [64, 128, 256, 512, 1024]
    costs = [1e6 + 5 * n**planted for n in sizes]
    assert scaling.growth(sizes, costs).value == pytest.approx(planted, abs=1e-6)
    assert scaling.exponent(sizes, costs).value < planted  # which the constant hides
    assert scaling.growth(sizes, [1.0, 2.0, 2.0, 4.0, 8.0]) is None


def test_a_row_above_its_bar_is_reported_as_broken(scaling):
    sizes = (100, 200, 400, 800)
    within = scaling.Row("x", "seconds", sizes, tuple(float(n) for n in sizes), 1.1)
    broken = scaling.Row("x", "seconds", sizes, tuple(float(n) ** 1.5 for n in sizes), 1.1)
    assert (within.holds, within.surely, broken.holds) == (True, True, False)
    assert "BROKEN" in scaling.format_row(broken)
    assert "BROKEN" not in scaling.format_row(within)


def test_what_cannot_be_fitted_is_refused(scaling):
    with pytest.raises(ValueError, match="three pairs or more, got 2"):
        scaling.exponent([1, 2], [1, 2])
    with pytest.raises(ValueError, match="must be positive"):
        scaling.exponent([1, 2, 4], [1, 0, 4])
    with pytest.raises(ValueError, match="twice the one before"):
        scaling.growth([1, 2, 3], [1, 2, 3])


def test_peak_bytes_counts_what_is_held_at_once(scaling):
    import torch

    def action():
        a = torch.empty(1000, dtype=torch.uint8)
        del a
        return torch.empty(3000, dtype=torch.uint8), torch.empty(2000, dtype=torch.uint8)

    assert scaling.peak_bytes(action, "cpu") == 5000


@pytest.mark.slow
def test_vit_on_whatever_is_there(tmp_path):
    printed, found = run("gpu_vit.py", folder=tmp_path)
    assert found["rows"]["regard"]["images_per_second"] > 0
    assert "images/s" in printed


@pytest.fixture(scope="module")
def captions():
    spec = importlib.util.spec_from_file_location("benchmark_captions", BENCHMARKS / "captions.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look their module up
        spec.loader.exec_module(module)
    return module


def test_nothing_that_is_held_out_chooses_settings(captions, tmp_path):
    """Folds never test what the recipe holds out; fifths test every group once."""
    groups = np.array([f"group {i // 3}" for i in range(153)])
    images = np.zeros((153, 4, 4, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(153)
    images[150] = images[3]  # a copy joins two groups
    np.savez(tmp_path / "all.npz", images=images, captions=groups, group=groups)

    def held_out_groups(fifths=False, folds=0):
        options = argparse.Namespace(fifths=fifths, folds=folds)
        splits = []
        for number, (path, keys) in enumerate(captions.parts_of(tmp_path / "all.npz", options)):
            sets = ["task.name=target", "data.group=group", "data.valid_fraction=0"]
            sets += ["data.input=images", "data.target=captions", "model.name=nearest"]
            sets += ["output.tokenizer=bytes", *keys]
            run = tmp_path / f"{fifths}-{folds}-{number}"
            train_recipe(plan_recipe([path], assignments=["data.test_fraction=0", *sets])[0], run)
            translator = load(run)
            shard = translator.held_out()[1]
            decode = translator.tokenizer.decode
            splits.append({decode(shard.record(i)[1:-1]) for i in range(shard.records)})
        return splits

    (recipe_split,) = held_out_groups()
    assert 5 < len(recipe_split) < 16
    assert ("group 1" in recipe_split) == ("group 50" in recipe_split)
    folds, fifths = held_out_groups(folds=3), held_out_groups(fifths=True)
    assert fifths[0] == recipe_split and len(fifths) == 5 and len(folds) == 3
    others = set(groups.tolist()) - recipe_split
    assert sorted(g for split in folds for g in split) == sorted(others)
    assert sorted(g for split in fifths for g in split) == sorted(set(groups.tolist()))


def test_with_one_neighbor_its_caption_is_taken(captions, tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (60, 4, 4, 3), np.uint8)
    texts = np.array(["a red cat", "a red cap", "a blue dog"] * 20)
    np.savez(tmp_path / "all.npz", images=images, captions=texts)
    sets = ["task.name=target", "data.valid_fraction=0", "data.test_fraction=0.3"]
    sets += ["data.input=images", "data.target=captions", "model.name=nearest"]
    recipe, _ = plan_recipe([tmp_path / "all.npz"], assignments=[*sets, "output.tokenizer=bytes"])
    train_recipe(recipe, tmp_path / "run")
    translator = load(tmp_path / "run")
    shard = translator.held_out()[1]
    expected = [one.translation for one in measure_translation(translator, shard).sentences]
    monkeypatch.setattr(captions, "N_NEIGHBORS", 1)
    sentences = captions.neighbor_captions(translator.model, translator, shard)
    assert [one.translation for one in sentences] == expected and len(set(expected)) == 3
    monkeypatch.setattr(captions, "N_NEIGHBORS", 40)  # all; two captions are similar
    sentences = captions.neighbor_captions(translator.model, translator, shard)
    assert {one.translation for one in sentences} <= {"a red cat", "a red cap"}
    assert all(one.reference in texts for one in sentences)


def test_genders_and_tones_of_an_emoji_are_one_group(captions):
    same = [
        ("1F3C3", "1F3C3-200D-2640-FE0F", "1F3C3-200D-2642-FE0F-200D-27A1-FE0F"),  # runners
        ("1F468-200D-1F33E", "1F469-1F3FD-200D-1F33E", "1F9D1-200D-1F33E"),  # farmers
        ("1F46A", "1F468-200D-1F469-200D-1F466", "1F9D1-200D-1F9D2"),  # families
        ("1F46B", "1F46D", "1F9D1-200D-1F91D-200D-1F9D1"),  # holding hands
    ]
    groups = [{captions.group_of(code) for code in codes} for codes in same]
    assert [len(group) for group in groups] == [1, 1, 1, 1]
    others = {captions.group_of(code) for code in ("1F436", "1F431", "1F1E9-1F1EA", "1F3FB")}
    assert len(set.union(*groups, others)) == 8
    document = [
        {"name": "WAVING  HAND SIGN", "unified": "1F44B", "sheet_x": 1, "sheet_y": 2}
        | {"has_img_google": True, "skin_variations": {"1F3FB": {"sheet_x": 1, "sheet_y": 3}}}
    ]
    document[0]["skin_variations"]["1F3FB"]["has_img_google"] = True
    found = list(captions.entries(document))
    assert found == [
        ("waving hand sign", "1F44B", False, 1, 2),
        ("waving hand sign", "1F44B", True, 1, 3),
    ]


def load_script(name, patch):
    """Import a script of benchmarks, which imports others that lie next to it."""
    patch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_the_parts_of_the_peer_share_no_text(tmp_path, monkeypatch):
    peer = load_script("sklearn_peer", monkeypatch)
    rows = [f"text {i % 150} end\t{'ab'[i % 2]}" for i in range(200)]
    (tmp_path / "all.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    paths = peer.split([str(tmp_path / "all.tsv")], tmp_path)
    parts = {name: peer.read(path) for name, path in paths.items()}
    texts = {name: {text for text, _ in part} for name, part in parts.items()}
    assert sum(map(len, parts.values())) == 200 and sum(map(len, texts.values())) == 150
    assert len(texts["valid"]) == len(texts["test"]) == round(0.15 * 150)
    result = peer.fit(paths, 5.0)
    low, high = result["interval"]
    assert 0 <= low <= result["accuracy"] <= high <= 1 and result["tried"] > 0


def test_settings_are_drawn_once_for_all(monkeypatch):
    script = load_script("defaults", monkeypatch)
    case = script.CASES["trec"]
    settings = script.draw(case, "trec", 10)
    assert settings == script.draw(case, "trec", 10) and len(settings) == 10
    assert settings != script.draw(case, "mr", 10)
    for words in settings:
        values = dict(word.split("=") for word in words if "=" in word)
        assert set(values) == set(script.RANGES) and words[1] in case.networks
