"""Classical rows by the command line: each trains, measures and answers, and takes its own keys."""

import json
import random

import pytest

from regard.cli import run


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Eight letters each: whether `ab` occurs, whether c does, how many a, and vowels."""
    path, draw = tmp_path_factory.mktemp("rows") / "letters.tsv", random.Random(0)
    lines = ["text\tkind\thas_c\thas_ab\tcount\tvowels"]
    for _ in range(150):
        text = "".join(draw.choices("abcde", k=8))
        kind = "yes" if "ab" in text else "no"
        vowels = "".join("V" if c in "ae" else "C" for c in text)
        flags = f"{int('c' in text)}\t{int('ab' in text)}"
        lines.append(f"{text}\t{kind}\t{flags}\t{text.count('a') + 0.5}\t{vowels}")
    path.write_text("\n".join(lines) + "\n")
    return path


def said(capsys, *words):
    code = run([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("model", "target"),
    [
        ("majority", "kind"),
        ("naive-bayes", "kind"),
        ("nb-svm", "kind"),
        ("logistic", "kind"),
        ("svm", "has_c,has_ab"),
        ("pwm", "kind"),
        ("markov", "kind"),
        ("ridge", "count"),
        ("logistic", "vowels"),
    ],
)
def test_a_row_trains_measures_and_answers(capsys, table, tmp_path, model, target):
    out = tmp_path / "run"
    options = ["--set", "model.order=2"] if model in ("nb-svm", "svm") else []
    code, printed, errors = said(
        capsys, "train", table, "--input", "text", "--target", target, "--model", model,
        "--out", out, *options, "--json", "--quiet",
    )  # fmt: skip
    assert code == 0, errors
    first = json.loads(printed)["metrics"]["test"]
    code, printed, _ = said(capsys, "evaluate", out, "--json")
    assert code == 0
    again = json.loads(printed)["metrics"]
    name = "rmse" if target == "count" else "accuracy_mean" if "," in target else "accuracy"
    assert again[name] == first[name]
    if target == "count":
        assert first[name]["value"] < 0.2
    if target == "vowels":
        assert first[name]["value"] == 1
    texts = tmp_path / "texts.txt"
    texts.write_text("abcdeabc\n\ncccdddee\n")
    code, printed, errors = said(capsys, "predict", out, texts, "--json")
    assert code == 0, errors
    records = json.loads(printed)["predictions"]
    assert len(records) == 3 and records[0]["prediction"]
    if target == "vowels":
        assert records[2]["prediction"] == "CCCCCCVV"


def test_keys_of_other_families_are_refused(capsys, table, tmp_path):
    words = ["train", table, "--input", "text", "--target", "kind", "--out", tmp_path / "no"]
    code, _, errors = said(capsys, *words, "--model", "majority", "--set", "model.n_layers=2")
    assert code == 2 and "model.n_layers" in errors
    code, _, errors = said(capsys, *words, "--model", "naive-bayes", "--set", "model.order=40")
    assert code == 2 and "order must be from 0" in errors
    code, _, errors = said(capsys, *words, "--model", "ridges")
    assert code == 2 and "unknown model 'ridges'" in errors


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_a_model_of_another_task_is_named_as_such_and_not_as_unknown(capsys, table, tmp_path, verb):
    words = [verb, table, "--input", "text", "--target", "kind,vowels", "--out", tmp_path / "no"]
    asked = ["--model" if verb == "train" else "--models", "naive-bayes"]
    code, _, errors = said(capsys, *words, *asked, "--task", "labels")
    assert code == 2 and "naive-bayes does not support several labels at once" in errors
    assert "logistic" in errors and "unknown" not in errors
    asked[1] = "nave-bayes"
    code, _, errors = said(capsys, *words, *asked, "--task", "labels")
    assert code == 2 and "unknown model 'nave-bayes'" in errors
