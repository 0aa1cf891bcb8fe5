"""From a labelled file to answers, by the command line: each task trains, measures, answers."""

import json
import random

import pytest

from regard.cli import run

SMALL = ["--set", "model.n_layers=1", "--set", "model.d_model=32", "--set", "train.lr=0.02"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of random letters: which of a and b is more frequent, whether c and d occur, the
    share of a, and of each letter whether it is a vowel.
    """
    folder, draw = tmp_path_factory.mktemp("labelled"), random.Random(0)
    rows = ["text\tmore\thas_c\thas_d\tshare\tvowels"]
    for _ in range(240):
        text = "".join(draw.choices("aabbcde", k=draw.randint(6, 14)))
        more = "a" if text.count("a") > text.count("b") else "b"
        vowels = "".join("V" if c in "ae" else "C" for c in text)
        gap = "" if draw.random() < 0.1 else str(int("d" in text))
        share = text.count("a") / len(text)
        rows.append(f"{text}\t{more}\t{int('c' in text)}\t{gap}\t{share:.4f}\t{vowels}")
    path = folder / "letters.tsv"
    path.write_text("\n".join(rows) + "\n")
    return folder, path


def said(capsys, *words):
    code = run([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def trained(capsys, files, name, target, steps=60, *more):
    folder, path = files
    out = folder / name
    neural = (*SMALL, "--set", f"train.steps={steps}", "--set", "train.batch_tokens=1024")
    code, printed, errors = said(
        capsys, "train", path, "--input", "text", "--target", target, "--out", out,
        "--json", "--quiet", *(neural if steps else ()), *more,
    )  # fmt: skip
    assert code == 0, errors
    return out, json.loads(printed)


def test_a_label_is_learned_and_told(capsys, files):
    out, document = trained(capsys, files, "label", "more")
    figures = document["metrics"]["test"]
    assert figures["accuracy"]["value"] > 0.8
    texts = files[0] / "texts.txt"
    texts.write_text("aaaaabaa\nbbbabbbb\n\nbabbbbbe\n")
    code, printed, _ = said(capsys, "predict", out, texts)
    assert code == 0
    assert [line.split("\t")[0] for line in printed.splitlines()] == ["a", "b", "", "b"]
    code, printed, _ = said(capsys, "predict", out, texts, "--json")
    records = json.loads(printed)["predictions"]
    assert records[0]["prediction"] == "a" and set(records[0]["probabilities"]) == {"a", "b"}
    assert sum(records[0]["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    code, printed, _ = said(capsys, "evaluate", out, "--json")
    assert code == 0
    again = json.loads(printed)
    assert again["metrics"]["accuracy"] == figures["accuracy"]
    code, printed, _ = said(
        capsys, "evaluate", out, files[1], "--input", "text", "--target", "more", "--against", out
    )
    assert code == 0 and "240 records" in printed and "no difference" in printed


def test_other_verbs_say_what_this_run_is_for(capsys, files):
    out, _ = trained(capsys, files, "refused", "more", 2)
    for words in (["generate", out], ["translate", out], ["score", out, files[1]]):
        code, _, errors = said(capsys, *words)
        assert code == 1 and "task label" in errors and "regard predict" in errors


def check_intervals(capsys, out, table):
    """Of all records, which are like those of validation, nine in ten lie in their intervals."""
    code, printed, log = said(capsys, "predict", out, table, "--json")
    document = json.loads(printed)
    assert code == 0 and document["level"] == 0.9 and "intervals hold 90% of true values" in log
    truths = [float(line.split("\t")[4]) for line in table.read_text().splitlines()[1:]]
    rows = [(one["low"]["share"], one["high"]["share"]) for one in document["predictions"]]
    inside = sum(low <= truth <= high for (low, high), truth in zip(rows, truths, strict=True))
    assert 0.8 < inside / len(truths) < 0.99
    line = said(capsys, "predict", out, table)[1].splitlines()[0]
    value = document["predictions"][0]["prediction"]["share"]
    assert line.startswith(f"share={value:.6g} [{rows[0][0]:.6g}, {rows[0][1]:.6g}]\t")


def test_labels_values_and_positions(capsys, files):
    out, document = trained(capsys, files, "labels", "has_c,has_d")
    assert document["metrics"]["test"]["auroc_mean"]["value"] > 0.8
    out, document = trained(capsys, files, "value", "share", 90)
    assert document["metrics"]["test"]["pearson"]["value"] > 0.7
    check_intervals(capsys, out, files[1])
    out, document = trained(capsys, files, "positions", "vowels", 90)
    assert document["metrics"]["test"]["accuracy"]["value"] > 0.95
    text = files[0] / "one.txt"
    text.write_text("abcde\n")
    code, printed, _ = said(capsys, "predict", out, text)
    assert code == 0 and printed.split("\t")[0] == "VCCCV"
    code, printed, _ = said(capsys, "predict", out, text, "--json")
    (record,) = json.loads(printed)["predictions"]
    assert record["prediction"] == "VCCCV" and len(record["positions"]) == 5
    assert all(0.5 < score <= 1 for score in record["positions"])
    mean = sum(record["positions"]) / 5
    assert record["probabilities"]["mean"] == pytest.approx(mean) and "words" not in record
    label, each, *_ = said(capsys, "predict", out, text, "--scores")[1].split("\t")
    assert label == "VCCCV"
    assert [float(one) for one in each.split()] == pytest.approx(record["positions"], abs=1e-3)


def test_figures_of_a_class_name_it_and_data_positive_chooses_it(capsys, files):
    out, document = trained(capsys, files, "named", "more", 0, "--model", "naive-bayes")
    rows = [line.split("\t")[1] for line in files[1].read_text().splitlines()[1:]]
    rarer = min("ab", key=rows.count)
    figures = document["metrics"]["test"]
    for name in ("f1", "precision", "recall", "average_precision"):
        assert figures[name]["class"] == rarer
    assert not any("class" in figures[name] for name in ("f1_macro", "accuracy", "auroc"))
    assert f"| f1 ({rarer}) |" in (out / "README.md").read_text()
    code, printed, _ = said(capsys, "evaluate", out)
    assert code == 0 and f"average precision ({rarer})" in printed
    other = "ab".replace(rarer, "")
    told = ("--model", "naive-bayes", "--set", f"data.positive={other}")
    figures = trained(capsys, files, "other", "more", 0, *told)[1]["metrics"]["test"]
    assert figures["f1"]["class"] == other
    code, _, errors = said(
        capsys, "train", files[1], "--input", "text", "--target", "has_c", "--out", files[0] / "n",
        "--model", "naive-bayes", "--set", "data.positive=7",
    )  # fmt: skip
    assert code == 2 and "data.positive = '7' is no class; the classes are 0, 1" in errors


def test_several_targets_have_a_figure_each(capsys, files, tmp_path):
    lines = [line.split("\t") for line in files[1].read_text().splitlines()]
    path = tmp_path / "two.tsv"
    rows = [(text, share, str(1000 * len(text))) for text, *_, share, _ in lines[1:]]
    path.write_text("\n".join(map("\t".join, [("text", "share", "mass"), *rows])) + "\n")
    out, document = trained(capsys, (tmp_path, path), "two", "share,mass", 0, "--model", "ridge")
    figures = document["metrics"]["test"]
    assert "rmse" not in figures
    targets = json.loads((out / "regard.json").read_text())["data"]["targets"]
    each = [figures["targets"][name]["rmse"]["value"] for name in ("share", "mass")]
    shares = [error / scale for error, scale in zip(each, targets["deviations"], strict=True)]
    assert figures["rmse_standardized_mean"]["value"] == pytest.approx(sum(shares) / 2)
    code, printed, _ = said(capsys, "evaluate", out, "--json")
    assert json.loads(printed)["metrics"]["targets"] == figures["targets"]
    code, printed, _ = said(capsys, "evaluate", out)
    assert "rmse standardized mean" in printed and "test, by target" in printed
    out, document = trained(capsys, files, "both", "has_c,has_d", 0, "--model", "logistic")
    figures = document["metrics"]["test"]
    aurocs = [figures["targets"][name]["auroc"]["value"] for name in ("has_c", "has_d")]
    assert figures["auroc_mean"]["value"] == pytest.approx(sum(aurocs) / 2)
    code, printed, _ = said(capsys, "look", out, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert code == 0 and "AUROC, test, has_c" in page


def test_vectors_of_texts_and_of_their_tokens(capsys, files, tmp_path):
    import numpy as np

    out, _ = trained(capsys, files, "embedded", "more", 2)
    text = tmp_path / "texts.txt"
    text.write_text("abab\nbcd\n")
    code, printed, _ = said(capsys, "embed", out, text)
    rows = [line.split("\t") for line in printed.splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [("1", ""), ("2", "")]  # ids and notes
    table = [[float(x) for x in row[1:-1]] for row in rows]
    assert code == 0 and np.shape(table) == (2, 32)
    code, _, _ = said(capsys, "embed", out, text, "--out", tmp_path / "v.npy")
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), table, rtol=1e-4, atol=1e-6)
    code, printed, _ = said(capsys, "embed", out, text, "--positions")
    lines = [line.split("\t") for line in printed.splitlines()]
    assert [line[:2] for line in lines] == [[str(a), str(b)] for a, n in ((1, 4), (2, 3))
                                           for b in range(1, n + 1)]  # fmt: skip
    whole = np.array([[float(x) for x in line[2:]] for line in lines[:4]])
    assert whole.shape == (4, 32)


def test_a_resumed_run_ends_where_an_unbroken_one_does(capsys, files):
    from safetensors.numpy import load_file

    whole, _ = trained(capsys, files, "whole", "share", 8, "--set", "train.checkpoint_every=4")
    parts, _ = trained(capsys, files, "parts", "share", 8, "--set", "train.checkpoint_every=4")
    for path in (parts / "checkpoints").iterdir():
        if path.name.endswith("8"):
            for file in path.iterdir():
                file.unlink()
            path.rmdir()
    code, _, errors = said(capsys, "train", files[1], "--out", parts, "--resume", "--quiet")
    assert code == 0, errors
    one, two = (load_file(run / "model.safetensors") for run in (whole, parts))
    assert set(one) == set(two) and all((one[name] == two[name]).all() for name in one)
