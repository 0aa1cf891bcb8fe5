"""What `regard.load` returns for a translator: order, empty and long texts, scores, streams."""

import dataclasses
import math

import pytest
import torch

from regard import run
from regard.api import load
from regard.decoding import Beam, Greedy, Sample
from regard.decoding.engine import translate
from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.ngrams import Bigram, CountConfig
from regard.pipelines.translator import Translator
from regard.registry import TOKENIZERS
from regard.storage import write_tensors
from regard.tokenizers import SOURCE_TOKENIZER

TEXTS = ["abc", "", "hg fe", "a", "  ", "ponm.", "abc", "b" * 15]


def spoken(found):
    """The tokens of all translations."""
    return [[one.tokens for one in several] for several in found]


def test_texts_keep_their_order_and_are_translated_as_their_ids_are(translator):
    found = translator.translate(TEXTS, Greedy(), batch_size=3)
    assert [several[0].input for several in found] == TEXTS
    tokenizer = translator.tokenizer
    for text, (one,) in zip(TEXTS, found, strict=True):
        if not text.strip():
            continue
        source = [*tokenizer.encode(text).tolist(), tokenizer.end]
        options = {"start": tokenizer.start, "end": tokenizer.end, "banned": [0, 1, 3]}
        ((alone,),) = translate(translator.model, [source], Greedy(), **options)
        assert one.tokens == [tokenizer.text(i) for i in alone.ids]
        assert one.text == tokenizer.decode(alone.ids)
        assert one.score == pytest.approx(alone.score, abs=1e-4)
        assert one.finished == (one.tokens[-1] == "<E>")
        assert not {"<pad>", "<S>", "<unk>"} & set(one.tokens)


def test_an_empty_text_has_an_empty_translation_and_no_model_is_asked(translator, monkeypatch):
    monkeypatch.setattr(translator.model, "condition", None)
    for (found,) in translator.translate(["", " \t"]):
        assert (found.text, found.tokens, found.score, found.finished) == ("", [], 0.0, True)
    assert translator.translate([]) == []


def test_a_text_that_is_too_long_is_cut_and_says_so(translator):
    long = "abcdefgh" * 5  # 40 tokens; 15 and <E> are read
    (cut,), (short,) = translator.translate([long, long[:15]], Greedy())
    assert (cut.cut, short.cut) == (25, 0)
    assert cut.tokens == short.tokens and cut.input == long


def test_by_default_it_is_a_beam_ranked_by_the_average(translator):
    found = translator.translate(["abc", "dd"])
    asked = translator.translate(["abc", "dd"], Beam(width=5, length_penalty=1.0, n_best=1))
    assert spoken(found) == spoken(asked)
    for several in translator.translate(["abc"], Beam(5, 1.0, 5)):
        scores = [one.score for one in several if one.finished]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(one.tokens) for one in several}) == 5


def test_parts_are_translated_as_the_whole(translator):
    for strategy in (Greedy(), Sample(seed=2)):
        parts = []
        for some in (TEXTS[:3], [], TEXTS[3:4], TEXTS[4:]):
            parts += translator.translate(some, strategy, first=len(parts))
        assert spoken(parts) == spoken(translator.translate(TEXTS, strategy))


@torch.no_grad()
def test_a_target_costs_what_the_model_says_of_each_token(translator):
    pairs = [("abc", "cab"), ("hg fe.", ""), ("a", "ponm")]
    tokenizer = translator.tokenizer
    measured = translator.losses(translator.pairs(*map(list, zip(*pairs, strict=True))))
    for number, ((source, target), scored) in enumerate(
        zip(pairs, translator.score(pairs), strict=True)
    ):
        ids = torch.tensor([[*tokenizer.encode(source).tolist(), tokenizer.end]])
        heard = translator.model.condition(Inputs(ids, torch.ones_like(ids)))
        said = [*tokenizer.encode(target).tolist(), tokenizer.end]
        logs = heard.logits(torch.tensor([[tokenizer.start, *said[:-1]]])).log_softmax(-1)[0]
        expected = [float(logs[t, i]) for t, i in enumerate(said)]
        assert scored.log_probs == pytest.approx(expected, abs=1e-4)
        assert scored.tokens == [*target, "<E>"]
        assert measured.nats[number] == pytest.approx(-sum(expected), abs=1e-3)
    assert translator.score([]) == []


def stored(folder, model, tokenizer, name="transformer"):
    run.write_config(folder, name, model)
    write_tensors(folder / run.WEIGHTS, run.weights(model))
    tokenizer.save(folder / "tokenizer.json")
    return folder


def test_a_run_folder_gives_the_same_translator(translator, tmp_path):
    folder = stored(tmp_path, translator.model, translator.tokenizer)
    found = load(folder)
    assert isinstance(found, Translator) and found.source_tokenizer.raw == found.tokenizer.raw
    assert spoken(found.translate(TEXTS)) == spoken(translator.translate(TEXTS))
    refused = r"is of task target .*`regard generate` does not apply to it: use `regard translate"
    with pytest.raises(UserError, match=refused):
        load(folder, verb="generate")
    rough = load(folder, int8=True).translate(TEXTS, Greedy())
    assert [several[0].input for several in rough] == TEXTS


def test_sources_may_have_words_of_their_own(translator, tmp_path):
    words = TOKENIZERS["words"].train(["uno dos tres cuatro cinco"])
    config = dataclasses.replace(translator.model.config, source_vocab=words.vocab_size)
    torch.manual_seed(3)
    model = EncoderDecoder(translator.tokenizer.vocab_size, config).eval()
    folder = stored(tmp_path, model, translator.tokenizer)
    with pytest.raises(UserError, match=r"source_tokenizer\.json: no such file"):
        load(folder)
    translator.tokenizer.save(folder / SOURCE_TOKENIZER)
    with pytest.raises(UserError, match=r"source_tokenizer\.json has 22 tokens, config\.json says"):
        load(folder)
    words.save(folder / SOURCE_TOKENIZER)
    found = load(folder)
    assert found.source_tokenizer.encode("dos").tolist() == words.encode("dos").tolist()
    (one,), (two,) = found.translate(["uno", "cinco tres"], Greedy(), max_new=4)
    assert len(one.tokens) <= 4 and set(one.text) | set(two.text) <= set("abcdefghij klmnop.")
    assert math.isfinite(found.score([("dos", "abc")])[0].total)


def test_a_run_that_does_not_translate_is_told_apart(tmp_path):
    tokenizer = TOKENIZERS["characters"].train(["ab"])
    stored(tmp_path, Bigram(tokenizer.vocab_size, CountConfig()), tokenizer, "bigram")
    refused = r"is of task next .*`regard translate` does not apply to it: use `regard generate"
    with pytest.raises(UserError, match=refused):
        load(tmp_path, verb="translate")
