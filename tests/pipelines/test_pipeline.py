"""What all pipelines share: files or held-out records are measured, and two runs are compared."""

from __future__ import annotations

import json

import pytest

from regard.api import load, plan, train
from regard.errors import UserError
from regard.models.counts import Bigram, CountConfig
from regard.pipelines.generator import Generator
from regard.pipelines.pipeline import EvaluationRequest
from regard.registry import TOKENIZERS
from regard.run import Run

NAMES = [a + b + c for a in "abc" for b in "deo" for c in ("xa", "yo", "z")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "names.txt").write_text("\n".join(NAMES * 4) + "\n")
    for name in ("unigram", "bigram"):
        recipe, _ = plan(
            folder / "names.txt",
            data={"format": "lines", "test_fraction": 0.3},
            output={"tokenizer": "characters"},
            model={"name": name},
        )
        train(recipe, folder / name)
    rows = [f"{name},{'o' in name}" for name in NAMES * 4]
    (folder / "labelled.csv").write_text("text,y\n" + "\n".join(rows) + "\n")
    recipe, _ = plan(
        folder / "labelled.csv",
        data={"target": "y", "test_fraction": 0.3},
        input={"tokenizer": "characters"},
        model={"name": "naive-bayes"},
    )
    train(recipe, folder / "classifier")
    return folder


def test_a_run_is_measured_on_what_it_held_out_or_on_given_files(runs, tmp_path):
    pipeline = load(runs / "bigram")
    name, shard = pipeline.held_out()
    found = pipeline.evaluate(EvaluationRequest())
    (report,) = [found.reports[key] for key in found.reports if key == name]
    assert name == "test" and report.records == shard.records
    assert found.document["metrics"].keys() >= {"bits_per_symbol"}
    assert json.loads(json.dumps(found.document, allow_nan=False)) == found.document
    texts = [pipeline.tokenizer.decode(shard.record(i)) for i in range(shard.records)]
    (tmp_path / "given.txt").write_text("\n".join(texts) + "\n")
    given = pipeline.evaluate(EvaluationRequest(files=[tmp_path / "given.txt"]))
    (again,) = given.reports.values()
    assert again.metrics()["bits_per_symbol"].value == report.metrics()["bits_per_symbol"].value


def test_unknown_symbols_are_counted_logged_or_refused(runs, tmp_path):
    (tmp_path / "given.txt").write_text("adxa\naQQ\n")
    found = load(runs / "unigram").evaluate(EvaluationRequest(files=[tmp_path / "given.txt"]))
    assert found.document["unknown"] == 2 and "2 unknown to the tokenizer" in found.lines[0]
    (tmp_path / "given.csv").write_text("text,y\nadxa,False\naQQ,True\n")
    classifier, log, files = load(runs / "classifier"), [], [tmp_path / "given.csv"]
    classifier.evaluate(EvaluationRequest(files=files, log=log.append))
    assert any("1 of 2 records has unknown symbols" in line for line in log)
    with pytest.raises(UserError, match="1 of 2 records have notes"):
        classifier.evaluate(EvaluationRequest(files=files, strict=True))


def test_two_runs_are_compared_in_pairs(runs):
    request = EvaluationRequest()
    one, other = (load(runs / name).evaluate(request) for name in ("unigram", "bigram"))
    one.against(other, "bigram")
    assert any("against bigram: " in line for line in one.lines)
    assert one.document["against"]["run"] == "bigram" and one.document["against"]["verdict"]


def test_a_pipeline_of_parts_has_no_run():
    tokenizer = TOKENIZERS["characters"].train(["abc"])
    pipeline = Generator(Bigram(tokenizer.vocab_size, CountConfig()), tokenizer)
    assert pipeline.run is None and pipeline.data == {} and pipeline.modality.name == "text"
    assert pipeline.source_tokenizer is tokenizer
    with pytest.raises(UserError, match="belongs to no run"):
        pipeline.held_out()


def test_files_are_read_as_the_run_was(runs):
    pipeline = load(runs / "bigram")
    assert isinstance(pipeline.run, Run) and pipeline.reader.format == "lines"
    assert pipeline.data["splits"]["test"]["records"] > 0
