"""The page about a language model: any text and model make a page."""

from __future__ import annotations

import json
import math

import pytest
import torch

from regard.decoding import ForbiddenTransitions
from regard.evaluation.eval_data import shard_of
from regard.look import decoding_views
from regard.look.internals import ForwardTrace
from regard.look.language_page import language_page
from regard.look.page import Distribution, Facts, Sequences, Surprise, Text
from regard.models.counts import Bigram, CountConfig
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.tokenizers import BPE, Bytes, Characters, Words

RECORDS = ["abba", "cab", "bac", "abc", "baab"]
TOKENIZER = Characters.train(RECORDS)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short samples, and one thread: models this small only wait for a second."""
    monkeypatch.setattr(decoding_views, "LONGEST", 13)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def decoder(vocab_size=TOKENIZER.vocab_size, **options):
    torch.manual_seed(0)
    shape = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}
    return Decoder(vocab_size, DecoderConfig(**shape | {"max_len": 11} | options)).eval()


def lstm(vocab_size=TOKENIZER.vocab_size, **options):
    torch.manual_seed(0)
    return LSTMModel(vocab_size, RecurrentConfig(**{"n_layers": 2, "d_model": 7} | options)).eval()


def bigram(tokenizer=TOKENIZER, records=RECORDS):
    model = Bigram(tokenizer.vocab_size, CountConfig())
    model.fit(shard_of(records, tokenizer), None, print)
    return model


def record(text, tokenizer=TOKENIZER):
    return [tokenizer.start, *tokenizer.encode(text).tolist()]


def view(model, ids, tokenizer=TOKENIZER, **options):
    options = {"title": "a view", "continues": False} | options
    return language_page(model, tokenizer, ids, **options)


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def documents(page):
    """What the page's scripts receive; Infinity and NaN, which JSON does not know, are refused."""

    def refuse(name):
        raise AssertionError(f"{name} in the JSON")

    parts = page.render().split('<script type="application/json">')[1:]
    return [json.loads(part.split("</script>")[0], parse_constant=refuse) for part in parts]


def by_label(facts):
    return dict(facts.facts)


def test_bits_per_symbol_divide_by_characters_whatever_the_tokenizer():
    tokenizer = BPE.train(["abab abab ab"] * 20, 262)
    ids = record("abababab", tokenizer)
    assert len(ids) < 8  # pairs were merged
    model = decoder(tokenizer.vocab_size)
    page = view(model, ids, tokenizer)
    facts = by_label(of(page, Facts)[0])
    _, bits = ForwardTrace(model, tokenizer, ids, continues=False).surprise()
    assert facts["symbols predicted"] == 9  # eight letters and the end
    assert facts["bits per symbol"] == pytest.approx(bits.sum() / 9)
    assert facts["nats in total"] == pytest.approx(bits.sum() * math.log(2))
    assert facts["tokens predicted"] == len(ids)


def test_an_impossible_symbol_is_infinite_and_the_json_stays_json():
    page = view(bigram(), record("cc"))  # never counted
    facts = by_label(of(page, Facts)[0])
    assert facts["of probability 0"] == 1  # c after c
    assert facts["bits per symbol"] == math.inf
    assert any("inf" in str(document) for document in documents(page))


def test_forbidden_transitions_hold_everywhere_on_the_page():
    a, b, c = TOKENIZER.encode("abc").tolist()
    forbidden = ForbiddenTransitions.from_pairs([(b, x) for x in (a, b, c)], TOKENIZER.vocab_size)
    page = view(lstm(), record("ab"), constrain=forbidden)
    (shown,) = of(page, Distribution)
    kept = {t for t, p in zip(shown.tokens, shown.cut()[1], strict=True) if p > 0}
    assert kept == {"<E>"}
    for text, _ in of(page, Sequences)[0].samples:
        assert "b" not in text.removesuffix(" …")[:-1]  # only the end may follow it


def test_a_dead_end_is_said_in_words():
    (a,) = TOKENIZER.encode("a").tolist()
    size = TOKENIZER.vocab_size
    everything = ForbiddenTransitions.from_pairs([(a, x) for x in range(size)], size)
    page = view(lstm(), record("a"), constrain=everything, continues=True)
    assert [text.text.split(":")[0] for text in of(page, Text)] == [
        "Nothing may follow",
        "The search found nothing",
    ]
    assert documents(page)


@pytest.mark.parametrize("kind", [Bytes, BPE, Words, Characters])
@pytest.mark.parametrize("continues", [False, True])
def test_any_tokens_make_a_page_of_plain_json(kind, continues):
    text = "a <b>né</b>\n中\u202e"
    tokenizer = kind.train([text] * 3)
    for model in (
        decoder(tokenizer.vocab_size, max_len=40),
        lstm(tokenizer.vocab_size, max_len=40),
        bigram(tokenizer, [text]),
    ):
        ids = record(text, tokenizer)[int(continues) :]
        page = view(model, ids, tokenizer, continues=continues, beams=2)
        (surprise,) = of(page, Surprise)
        end = [] if continues else ["<E>"]
        assert list(surprise.tokens) == [
            *map(tokenizer.text, tokenizer.encode(text).tolist()),
            *end,
        ]
        assert len(documents(page)) == len(page.components)
        assert "<b>" not in page.render().split("<main>")[1].split("<footer>")[0]


def test_a_lone_start_token_is_enough():
    page = view(decoder(), [TOKENIZER.start])
    (surprise,) = of(page, Surprise)
    assert list(surprise.tokens) == ["<E>"]
    assert documents(view(lstm(), [TOKENIZER.start], continues=True))


def test_looking_leaves_a_model_in_training_as_it_was():
    model = decoder(dropout=0.5).train()
    ids = record("abba")
    bits = [ForwardTrace(model, TOKENIZER, ids, False).surprise()[1] for _ in range(2)]
    assert (bits[0] == bits[1]).all()  # dropout was off
    view(model, ids)
    assert model.training


def test_ids_that_do_not_fit_are_refused_by_name():
    with pytest.raises(ValueError, match=r"max_len = 11 tokens, got 12"):
        view(decoder(), record("abcabcabcab"))
    with pytest.raises(ValueError, match=r"ids must be from 0 to 6, got 9"):
        view(decoder(), [1, 9])
