"""The actions of the screen Compare, against the surprise of the pipelines."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from regard.errors import UserError
from regard.evaluation.eval_data import shard_of
from regard.models.ngrams import Bigram, CountConfig, Unigram
from regard.pipelines.generator import Generator
from regard.storage import write_json
from regard.studio.screens.compare import Compare
from regard.tokenizers import Characters

TEXTS = ["abba", "cab", "bac", "abc", "baab"]
TOKENIZER = Characters.train(TEXTS)
METRIC = {"value": 2.0, "low": 1.9, "high": 2.1}
ROW = {"parameters": 9, "train_seconds": 1.5, "symbols_per_second": 10.0, "peak_memory_bytes": 1}


def counted(cls):
    model = cls(TOKENIZER.vocab_size, CountConfig())
    model.fit(shard_of(TEXTS, TOKENIZER), None, print)
    return Generator(model, TOKENIZER)


@pytest.fixture
def screen(tmp_path):
    """The screen over two models in memory and a comparison of them on disk."""
    rows = [
        ROW
        | {
            "model": name,
            "rank": rank,
            "runs": [f"both/{name}"],
            "metrics": {"bits_per_symbol": METRIC},
        }
        for rank, name in enumerate(("bigram", "unigram"), start=1)
    ]
    folder = tmp_path / "both"
    for name in ("bigram", "unigram"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").touch()
    document = {
        "split": "test",
        "symbols": 9,
        "records": 5,
        "task": "next",
        "verdict": "Use <b>bigram</b>.",
    }
    write_json(
        folder / "compare.json",
        document | {"ranked_by": "bits_per_symbol", "rows": rows, "scaling": {}},
    )
    pipelines = {"both/bigram": counted(Bigram), "both/unigram": counted(Unigram)}
    pipelines |= {"bigram": pipelines["both/bigram"], "unigram": pipelines["both/unigram"]}

    def run(name):
        if name not in pipelines:
            raise UserError(f"no run {name}")
        return name

    opened = SimpleNamespace(
        pipeline=pipelines.__getitem__,
        cached=lambda key, make: make(),
        folder=lambda name: tmp_path / name,
        name=lambda path: path.relative_to(tmp_path).as_posix(),
        run=run,
    )
    return Compare(opened)


def bits(screen, run, text):
    return np.array(screen.opened.pipeline(run).score(text)[1]) / -math.log(2)


def test_the_difference_is_that_of_the_surprises(screen):
    answer = screen.difference("bigram", "abc", "unigram", "abc")
    (strip,) = answer["figures"]
    gaps = strip["data"]["rows"][0]["bits"]
    expected = bits(screen, "unigram", "abc") - bits(screen, "bigram", "abc")
    np.testing.assert_allclose(gaps, expected, atol=1e-4)
    assert screen.difference("bigram", "abc", "bigram", "ab")["figures"] == []  # other tokens


def test_a_side_shows_the_surprise_of_one_model(screen):
    (figure,) = screen.side("bigram", "abc")["figures"]
    np.testing.assert_allclose(
        figure["data"]["rows"][0]["bits"], bits(screen, "bigram", "abc"), atol=1e-4
    )


def test_the_rows_of_a_comparison_have_their_table_and_strips(screen):
    assert screen.about("both")["comparison"]
    answer = screen.rows("both")
    verdict, table, intervals = answer["figures"]
    assert verdict["data"]["paragraphs"] == ["Use <b>bigram</b>."]
    assert table["data"]["rows"][0][:3] == ["1", "bigram", "2 [1.9, 2.1]"]
    assert intervals["data"]["labels"] == ["bigram", "unigram"]
    assert answer["rows"] == [("bigram", "both/bigram"), ("unigram", "both/unigram")]
    assert answer["scores"]
    strip, sums = screen.strips("both", "abc")["figures"]
    for row in strip["data"]["rows"]:
        np.testing.assert_allclose(row["bits"], bits(screen, row["name"], "abc"), atol=1e-4)
    assert float(sums["data"]["rows"][0][1]) == pytest.approx(
        min(bits(screen, run, "abc").sum() for run in ("bigram", "unigram")), abs=1e-2
    )


def test_a_run_is_no_comparison(screen, tmp_path):
    (tmp_path / "one").mkdir()
    assert not screen.about("one")["comparison"]
    with pytest.raises(UserError, match="one is one run"):
        screen.rows("one")
