"""Word vectors on the command line: train, evaluate, embed, export, import, look, mistakes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import regard.cli

pytest.importorskip("numba")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small run, its text and files of questions."""
    place = tmp_path_factory.mktemp("vectors")
    lines = [f"the {a} sees the {b}" for a in ("cat", "dog", "cow") for b in ("man", "king", "sun")]
    (place / "text.txt").write_text("\n".join(lines * 12) + "\n")
    sets = ["--set=model.d_model=6", "--set=model.epochs=2", "--set=model.min_count=1", "--quiet"]
    for name in ("cbow", "skipgram"):
        words = ["train", place / "text.txt", "--model", name, "--out", place / name, *sets]
        assert regard.cli.run([str(word) for word in words]) == 0
    pairs = ["# pairs", "cat\tdog\t9", "Cat\tsun\t1", "man\tking\t8", "cow\tdog\t7", "sun\tcow\t2"]
    (place / "pairs.tsv").write_text("\n".join([*pairs, "zebra\tcat\t3"]) + "\n")
    (place / "fours.txt").write_text(": any\ncat dog man king\ncat dog zebra king\n")
    return place


def test_held_out_text_and_files_of_questions_are_measured(cli, place):
    found = cli("evaluate", place / "cbow", "--json").document
    assert found["task"] == "vectors" and found["metrics"]["loss"]["low"] > 0
    assert found["split"] == "test" and found["tests"] == []
    asked = (place / "pairs.tsv", place / "fours.txt", place / "text.txt")
    found = cli("evaluate", place / "cbow", *asked, "--json").document
    pairs, fours = found["tests"]
    assert (pairs["covered"], pairs["total"]) == (5, 6) and found["split"] == "given"
    assert (fours["covered"], fours["total"]) == (1, 2)
    assert -1 <= pairs["metrics"]["spearman"]["value"] <= 1
    assert fours["metrics"]["accuracy"]["value"] in (0, 1)
    shown = cli("evaluate", place / "cbow", asked[0], "--against", place / "skipgram")
    assert "pairs.tsv: 5 of 6 have vectors" in shown.out and "against" in shown.out


def test_lines_have_the_mean_of_their_words(cli, place, tmp_path):
    (tmp_path / "lines.txt").write_text("the cat\nzebra\n")
    done = cli("embed", place / "cbow", tmp_path / "lines.txt", "--out", tmp_path / "out.npy")
    assert done.code == 0
    found, words = np.load(tmp_path / "out.npy"), regard.load(place / "cbow")
    np.testing.assert_allclose(found[0], (words["the"] + words["cat"]) / 2, atol=1e-6)
    assert not found[1].any()


def test_vectors_leave_as_text_come_back_and_are_looked_at(cli, place, tmp_path):
    done = cli("export", place / "cbow", "out.vec", "--to", "vec")
    assert f"{len(regard.load(place / 'cbow')):,} words" in done.out
    assert cli("import", "out.vec", "--out", "back").code == 0
    assert regard.load("back").words == regard.load(place / "cbow").words
    assert cli("look", "back", "cat", "--out", "page.html").code == 0
    assert "projector" in (tmp_path / "page.html").read_text()
    assert "no loss to measure" in cli("evaluate", "back", place / "text.txt").err
    assert json.loads(cli("verify", "back", "--json").out)["ok"] is True


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["generate", "cbow"], "cbow is of task vectors (word vectors)"),
        (["predict", "cbow", "text.txt"], "task vectors"),
        (["evaluate", "cbow", "pairs.tsv", "--against", "text.txt"], "text.txt is a file"),
        (["look", "cbow", "zebra"], "no vector for 'zebra'"),
        (["export", "cbow", "out"], "use --to vec"),
        (["export", "cbow", "out", "--to", "docx"], "choose one of hf, vec"),
        (["train", "text.txt", "--model", "cbow", "--set=model.windows=3"], "'window'"),
        (
            ["train", "text.txt", "--model", "cbow", "--task", "next"],
            "cbow does not support language modelling",
        ),
        (["compare", "text.txt", "--models", "cbow"], "cbow"),
    ],
)
def test_mistakes_are_one_line(cli, place, monkeypatch, words, told):
    monkeypatch.chdir(place)
    done = cli(*words)
    assert done.code in (1, 2) and told in done.err and len(done.err.splitlines()) == 1
