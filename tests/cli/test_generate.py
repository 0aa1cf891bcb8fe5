"""`regard generate --int8` and `regard.load(run, int8=True)`."""

import pytest

import regard
from regard.layers.int8 import Int8Linear

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=32", "--set=train.batch_tokens=256"]


@pytest.mark.parametrize("model", ["transformer", "lstm"])
def test_generate_in_int8_says_much_the_same(cli, words, model):
    options = ["--model", model, "--set=train.steps=20", *SMALL]
    assert cli("train", words, *options, "--out", "run").code == 0
    asked = ["generate", "run", "--prompt", "a", "--strategy", "beam", "--num", "3", "--json"]
    exact = cli(*asked).document["sequences"]
    rough = cli(*asked, "--int8").document["sequences"]
    assert [one["score"] for one in rough] == pytest.approx(
        [one["score"] for one in exact], rel=0.05
    )
    assert rough != exact


def test_load_takes_int8(cli, words, tmp_path):
    assert cli("train", words, "--set=train.steps=2", *SMALL, "--out", "run").code == 0
    assert isinstance(regard.load(tmp_path / "run", int8=True).model.head, Int8Linear)
    assert not isinstance(regard.load(tmp_path / "run").model.head, Int8Linear)


def test_a_model_that_counts_has_nothing_to_round(cli, words):
    assert cli("train", words, "--model", "bigram", "--out", "run").code == 0
    found = cli("generate", "run", "--int8")
    assert found.code == 2
    assert "no linear layers" in found.err and found.err.count("\n") <= 2
