"""One thing or a list of them: texts, prompts and paths, in every call of the library."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.api import compare, continuations, plan
from regard.arguments import is_path, one_or_many
from regard.data.targets import Targets
from regard.decoding import Greedy
from regard.errors import UserError
from regard.models import vision
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel
from regard.models.word2vec import SkipGram, Vocabulary, Word2VecConfig
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.pipelines.word_vectors import WordVectors
from regard.registry import TOKENIZERS
from regard.tokenizers import Patches, Words

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
    (said,) = continuations(generator, "ab", Greedy(), max_new=5)
    assert said.text == "ab" + generator.tokenizer.decode(first.ids)


def test_one_text_has_its_score_and_several_a_list(generator):
    (tokens, logs), _ = generator.score(["abc", "d"])
    assert tokens == ["a", "b", "c", "<E>"]
    one = generator.score("abc")
    assert one[0] == tokens and one[1] == pytest.approx(logs, abs=1e-5)
    assert generator.score([]) == []


def test_one_text_has_its_answer_and_vector_and_several_a_list(predictor, word_vectors):
    several = predictor.predict(["abc", "d", ""])
    assert [answer.text for answer in several] == ["abc", "d", ""]
    one = predictor.predict("abc")
    assert one.label == several[0].label and one.scores == pytest.approx(several[0].scores)
    assert predictor.predict([]) == [] and predictor.embed([]) == []
    np.testing.assert_allclose(predictor.embed("abc"), predictor.embed(["abc"])[0], atol=1e-6)
    assert (
        word_vectors.embed("one two").shape == (3,) and len(word_vectors.embed(["one", "two"])) == 2
    )
    with pytest.raises(ValueError, match=r"seconds must be as many as texts, got 1 and 2"):
        predictor.predict(["a", "b"], ["c"])


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
    for call in (generator.score, predictor.predict, predictor.embed, word_vectors.embed):
        with pytest.raises(TypeError, match=r"^texts(\[1\])? must be a str"):
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
    given = predictor.predict(pixels)
    assert len(given) == 2
    for one in (pixels[0], tmp_path / "a.png", str(tmp_path / "a.png")):
        assert predictor.predict(one).scores == pytest.approx(given[0].scores)
    both = predictor.embed([tmp_path / "a.png", pixels[1]])
    assert predictor.embed(tmp_path / "a.png").shape == both[0].shape
    with pytest.raises(TypeError, match=r"^texts\[0\] must be an image"):
        predictor.predict([None])
    with pytest.raises(UserError, match="an empty path names no file"):
        predictor.embed([""])


def test_a_plan_takes_one_path_or_several(tmp_path, monkeypatch):
    (tmp_path / "names.txt").write_text("".join(f"{a}{b}na\n" for a in "abcdef" for b in "aeiou"))
    monkeypatch.chdir(tmp_path)
    several, _ = plan(["names.txt"], assignments=["train.steps=3"])
    for source in ("names.txt", Path("names.txt"), tmp_path / "names.txt", (Path("names.txt"),)):
        assert plan(source, assignments="train.steps=3")[0] == several
    for call in (plan, compare):
        with pytest.raises(TypeError, match=r"^source\[1\] must be a str or Path, got NoneType"):
            call(["names.txt", None])
        with pytest.raises(TypeError, match=r"^source must be a str or Path or a list of them"):
            call(3)


def test_a_pretrained_tokenizer_needs_the_run_it_is_of(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("anna\notto\n" * 20)
    with pytest.raises(UserError, match=r"output.tokenizer = 'pretrained'.*train.init_from=RUN"):
        plan(path, assignments="output.tokenizer=pretrained")


def test_compare_takes_one_path_and_one_model(tmp_path, monkeypatch):
    (tmp_path / "names.txt").write_text("".join(f"{a}{b}na\n" for a in "abcdef" for b in "aeiou"))
    monkeypatch.chdir(tmp_path)
    found = compare(Path("names.txt"), models="kneser-ney", minutes=0.1)
    assert [row.model for row in found.comparison.rows] == ["kneser-ney"]
    assert found.folder == Path("runs") / "names-compare"


def test_every_kind_of_pipeline_has_a_public_name():
    for name in ("Generator", "Translator", "Predictor", "WordVectors"):
        assert getattr(regard, name).__name__ == name
