"""One thing or a list of them: texts, prompts and paths, in every call of the library."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.api import compare, load, plan, train_recipe
from regard.data.targets import Targets
from regard.decoding import ForbiddenTransitions, Greedy
from regard.errors import UsageError, UserError
from regard.layers.int8 import Int8Linear
from regard.models import vision
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel
from regard.models.ngrams import Bigram, CountConfig
from regard.models.word2vec import SkipGram, Vocabulary, Word2VecConfig
from regard.pipelines import (
    EvaluationRequest,
    is_path,
    load_forbidden,
    load_run_tokenizer,
    one_or_many,
)
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.pipelines.word_vectors import WordVectors
from regard.planning import plan_recipe
from regard.registry import TOKENIZERS
from regard.run import FORBIDDEN, WEIGHTS, Run, weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import TOKENIZER, Patches, Words

CLASSES = ("high", "low", "middle")


@pytest.fixture(scope="module")
def generator():
    tokenizer = TOKENIZERS["characters"].train(["abcdef"])
    torch.manual_seed(1)
    shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "max_len": 32}
    model = Decoder(tokenizer.vocab_size, dataclasses.replace(modern(1, 16), **shape))
    return Generator(model.eval(), tokenizer)


@pytest.fixture(scope="module")
def predictor():
    tokenizer = TOKENIZERS["characters"].train(["abcdef"])
    torch.manual_seed(2)
    shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "n_outputs": 3, "max_len": 32}
    preset = next(iter(EncoderModel.PRESETS.values()))
    model = EncoderModel(tokenizer.vocab_size, dataclasses.replace(preset(1, 16), **shape))
    return Predictor(model.eval(), tokenizer, Targets("label", ("kind",), (CLASSES,)))


@pytest.fixture(scope="module")
def word_vectors():
    tokenizer = Words([" one", " two"])
    model = SkipGram(tokenizer.vocab_size, Word2VecConfig(d_model=3, n_words=2))
    model.set_vocabulary(Vocabulary(np.array([-1, -1, -1, -1, 0, 1]), np.array([2, 1])))
    return WordVectors(model, tokenizer)


def test_items_and_whether_there_was_one():
    assert one_or_many("x", "ab") == (["ab"], True)
    assert one_or_many("x", ["ab", ""]) == (["ab", ""], False)
    assert one_or_many("x", (t for t in "ab")) == (["a", "b"], False)
    assert one_or_many("x", []) == ([], False)
    assert one_or_many("x", Path("a"), is_path) == ([Path("a")], True)
    assert one_or_many("x", np.array(["a", "b"])) == (["a", "b"], False)


@pytest.mark.parametrize("value", [None, 3, 1.5, b"ab", {"a": 1}, {"a"}, Path("a")])
def test_what_is_no_list_of_texts_is_named(value):
    message = rf"^texts must be a str or a list of them, got {type(value).__name__} "
    with pytest.raises(TypeError, match=message):
        one_or_many("texts", value)


def test_a_wrong_item_is_named_and_quoted_short():
    with pytest.raises(TypeError, match=r"^texts\[1\] must be a str, got NoneType None$"):
        one_or_many("texts", ["a", None])
    with pytest.raises(TypeError) as error:
        one_or_many("texts", [["a\x1b" * 500]])
    assert len(str(error.value)) < 160 and "\x1b" not in str(error.value)


def test_one_prompt_has_its_sequences_and_several_a_list_each(generator):
    (first,), (second,) = generator.generate(["ab", "c"], Greedy(), max_new=5)
    assert generator.generate("ab", Greedy(), max_new=5) == [first]
    assert generator.generate(["ab"], Greedy(), max_new=5) == [[first]]
    assert second.ids != first.ids and generator.generate([], Greedy()) == []
    (said,) = generator.continuations("ab", Greedy(), max_new=5)
    assert said.text == "ab" + generator.tokenizer.decode(first.ids)


def test_one_text_has_its_score_and_several_a_list(generator):
    (tokens, logs), _ = generator.score(["abc", "d"])
    assert tokens == ["a", "b", "c", "<E>"]
    one = generator.score("abc")
    assert one[0] == tokens and one[1] == pytest.approx(logs, abs=1e-5)
    assert generator.score([]) == []


def test_one_text_has_its_answer_and_vector_and_several_a_list(predictor, word_vectors):
    several = predictor.predictions(["abc", "d", ""])
    assert [answer.text for answer in several] == ["abc", "d", ""]
    one = predictor.predictions("abc")
    assert one.label == several[0].label and one.scores == pytest.approx(several[0].scores)
    assert predictor.predictions([]) == [] and predictor.embed([]) == []
    np.testing.assert_allclose(predictor.embed("abc"), predictor.embed(["abc"])[0], atol=1e-6)
    assert (
        word_vectors.embed("one two").shape == (3,) and len(word_vectors.embed(["one", "two"])) == 2
    )
    with pytest.raises(ValueError, match=r"seconds must be as many as items, got 1 and 2"):
        predictor.predictions(["a", "b"], ["c"])


def test_one_text_has_its_translations_and_several_a_list_each(translator):
    (first,), _ = translator.translate(["abc", "de"], Greedy())
    assert translator.translate("abc", Greedy())[0].text == first.text
    one, (again,) = translator.score(("abc", "cab")), translator.score([("abc", "cab")])
    assert one.tokens == again.tokens == ["c", "a", "b", "<E>"]
    for pairs in (["ab", "cd"], "ab", ("ab", 3), [("a", "b"), ("c", None)]):
        with pytest.raises(TypeError, match=r"^pairs.* must be a tuple \(source, target\)"):
            translator.score(pairs)


@pytest.mark.parametrize("texts", [["a", None], ["a", 3], None, 7, ["a", Path("b")]])
def test_what_is_no_text_is_refused_by_name(generator, predictor, word_vectors, translator, texts):
    for call in (generator.score, word_vectors.embed):
        with pytest.raises(TypeError, match=r"^texts(\[1\])? must be a str"):
            call(texts)
    for call in (predictor.predict, predictor.predictions, predictor.embed):
        with pytest.raises(TypeError, match=r"^items(\[1\])? must be a str"):
            call(texts)
    with pytest.raises(TypeError, match=r"^texts(\[1\])? must be a str"):
        translator.translate(texts)
    with pytest.raises(TypeError, match=r"^prompts(\[1\])? must be a str"):
        generator.generate(texts)


def test_images_are_named_by_their_paths_or_given(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 255, (2, 8, 8, 1)).astype(np.uint8)
    image.fromarray(pixels[0, :, :, 0]).save(tmp_path / "a.png")
    tokenizer = Patches.train(list(pixels), patch=4)
    config = dataclasses.replace(vision.modern(1, 16), n_outputs=3, **tokenizer.model_config)
    model = vision.VisionTransformer(tokenizer.vocab_size, config).eval()
    predictor = Predictor(model, tokenizer, Targets("label", ("kind",), (CLASSES,)))
    given = predictor.predictions(pixels)
    assert len(given) == 2
    for one in (pixels[0], tmp_path / "a.png", str(tmp_path / "a.png")):
        assert predictor.predictions(one).scores == pytest.approx(given[0].scores)
    both = predictor.embed([tmp_path / "a.png", pixels[1]])
    assert predictor.embed(tmp_path / "a.png").shape == both[0].shape
    with pytest.raises(TypeError, match=r"^items\[0\] must be an image"):
        predictor.predictions([None])
    with pytest.raises(UserError, match="an empty path names no file"):
        predictor.embed([""])


def test_a_plan_takes_one_path_or_several(tmp_path, monkeypatch):
    (tmp_path / "names.txt").write_text("".join(f"{a}{b}na\n" for a in "abcdef" for b in "aeiou"))
    monkeypatch.chdir(tmp_path)
    several, _ = plan(["names.txt"], train={"steps": 3})
    for source in ("names.txt", Path("names.txt"), tmp_path / "names.txt", (Path("names.txt"),)):
        assert plan(source, train={"steps": 3})[0] == several
    for source in (["names.txt", None], 3, ["anna", "otto"]):
        with pytest.raises(TypeError, match=r"^plan reads files: source must be a path"):
            plan(source)


def test_a_pretrained_tokenizer_needs_the_run_it_is_of(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("anna\notto\n" * 20)
    with pytest.raises(UserError, match=r"output.tokenizer = 'pretrained'.*train.init_from=RUN"):
        plan(path, tokenizer="pretrained")


def test_compare_takes_one_path_and_one_model(tmp_path, monkeypatch, rows_here):
    (tmp_path / "names.txt").write_text("".join(f"{a}{b}na\n" for a in "abcdef" for b in "aeiou"))
    monkeypatch.chdir(tmp_path)
    found = compare(Path("names.txt"), models="kneser-ney", minutes=0.1)
    assert [row.model for row in found.comparison.rows] == ["kneser-ney"]
    assert found.folder == Path("runs") / "names-compare"


def test_every_kind_of_pipeline_has_a_public_name():
    for name in ("Generator", "Translator", "Predictor", "WordVectors", "Forecaster"):
        assert getattr(regard, name).__name__ == name


NAMES = [a + b + c for a in "abc" for b in "deo" for c in ("xa", "yo", "z")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "names.txt").write_text("\n".join(NAMES * 4) + "\n")
    for name in ("unigram", "bigram"):
        recipe, _ = plan_recipe(
            [folder / "names.txt"],
            data={"format": "lines", "test_fraction": 0.3},
            output={"tokenizer": "characters"},
            model={"name": name},
        )
        train_recipe(recipe, folder / name)
    rows = [f"{name},{'o' in name}" for name in NAMES * 4]
    (folder / "labelled.csv").write_text("text,y\n" + "\n".join(rows) + "\n")
    recipe, _ = plan_recipe(
        [folder / "labelled.csv"],
        data={"target": "y", "test_fraction": 0.3},
        input={"tokenizer": "characters"},
        model={"name": "naive-bayes"},
    )
    train_recipe(recipe, folder / "classifier")
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


LETTERS = TOKENIZERS["characters"].train(["abcdef"])


@pytest.fixture
def run(tmp_path):
    def run(model, name):
        write_config(tmp_path, name, model)
        write_tensors(tmp_path / WEIGHTS, weights(model))
        LETTERS.save(tmp_path / TOKENIZER)
        return tmp_path

    return run


def test_a_run_is_opened_as_the_pipeline_of_its_task(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    for source in (folder, str(folder), Run.open(folder)):
        pipeline = load(source)
        assert isinstance(pipeline, Generator) and pipeline.run.path == folder
        assert pipeline.tokenizer.equals(LETTERS)
    assert isinstance(load(folder, verb="generate"), Generator)


def test_a_command_that_does_not_apply_names_those_that_do(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    for verb in ("translate", "predict", "embed"):
        with pytest.raises(UserError) as caught:
            load(folder, verb=verb)
        message = str(caught.value)
        assert f"{folder} is of task next (language modelling)" in message
        assert f"`regard {verb}` does not apply to it: use `regard generate {folder}`" in message


def test_linear_layers_are_stored_in_int8_if_asked(run):
    folder = run(Decoder(LETTERS.vocab_size, modern(1, 32)), "transformer")
    small, exact = load(folder, int8=True), load(folder)
    assert any(isinstance(module, Int8Linear) for module in small.model.modules())
    assert not any(isinstance(module, Int8Linear) for module in exact.model.modules())
    (_, rough), (_, fine) = small.score("abc"), exact.score("abc")
    assert rough == pytest.approx(fine, abs=0.2)


def test_language_models_do_not_predict_together(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    with pytest.raises(UsageError, match="is of task next"):
        load(folder, folder)


def test_files_that_do_not_fit_the_model_are_named(run):
    folder = run(Bigram(LETTERS.vocab_size, CountConfig()), "bigram")
    size = LETTERS.vocab_size
    assert load_forbidden(Run.open(folder), size) is None
    ForbiddenTransitions.from_pairs([(4, 5)], size + 1).save(folder / FORBIDDEN)
    with pytest.raises(UserError, match=f"is for {size + 1} tokens, not {size}"):
        load(folder)
    with pytest.raises(UserError, match=rf"tokenizer\.json has {size} tokens, config\.json says 7"):
        load_run_tokenizer(Run.open(folder), TOKENIZER, 7)
    with pytest.raises(UserError, match="nowhere"):
        load(folder / "nowhere")


@pytest.mark.parametrize("name", ["bigram", "classifier"])
def test_held_out_records_are_prepared_by_number(name, runs):
    pipeline = load(runs / name)
    shard = pipeline.held_out()[1]
    for number in range(shard.records):
        found = pipeline.prepare(record=number).tensors["ids"][0].tolist()
        assert found == shard.record(number).tolist()[: len(found)] and len(found) > 2
    with pytest.raises(
        UsageError, match=f"record must be from 0 to {shard.records - 1}, .* got 99"
    ):
        pipeline.prepare(record=99)
