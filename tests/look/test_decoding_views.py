"""The next symbol, beam search and samples: their numbers against those of the models."""

from __future__ import annotations

import math

import pytest
import torch

from regard.evaluation.eval_data import shard_of
from regard.look import decoding_views
from regard.look.decoding_views import add_beam_search, add_next, add_samples
from regard.look.internals import ForwardTrace
from regard.look.page import BeamTree, Distribution, Page, Sequences
from regard.models.counts import Bigram, CountConfig
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.tokenizers import Characters, Words

RECORDS = ["abba", "cab", "bac", "abc", "baab"]
TOKENIZER = Characters.train(RECORDS)
BANNED = [0, 1, 3]


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


def section(add, *arguments, **options):
    """The page that one function fills."""
    page = Page("section")
    add(page, *arguments, **options)
    return page


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


@pytest.mark.parametrize("preset", sorted(Decoder.PRESETS))
def test_the_next_symbol_is_that_of_the_logits_without_banned_tokens(preset):
    torch.manual_seed(1)
    model = Decoder(TOKENIZER.vocab_size, Decoder.PRESETS[preset](2, 32)).eval()
    ids = record("cab")
    trace = ForwardTrace(model, TOKENIZER, ids, False, banned=BANNED)
    (shown,) = of(section(add_next, trace), Distribution)
    with torch.no_grad():
        logits = model.logits(torch.tensor([ids]))[0, -1].double()
    banned = [TOKENIZER.pad, TOKENIZER.start, TOKENIZER.unk]
    logits[banned] = -math.inf
    expected = logits.softmax(-1)
    left = [i for i in range(TOKENIZER.vocab_size) if i not in banned]
    assert list(shown.tokens) == [TOKENIZER.text(i) for i in left]
    assert shown.cut()[1] == pytest.approx(expected[left].numpy(), abs=1e-5)


def exhaustive(model, prompt, steps, banned):
    """The most probable sequence that ends within so many steps, by trying every one."""
    best = (-math.inf, [])
    stack = [([], 0.0)]
    while stack:
        prefix, score = stack.pop()
        with torch.no_grad():
            logits = model.logits(torch.tensor([[*prompt, *prefix]]))[0, -1]
        logits[banned] = -math.inf
        logs = logits.log_softmax(-1)
        for token in range(model.vocab_size):
            total = score + logs[token].item()
            if token == TOKENIZER.end:
                best = max(best, (total, [*prefix, token]))
            elif total > best[0] and len(prefix) + 1 < steps:
                stack.append(([*prefix, token], total))
    return best


def test_the_marked_path_is_the_best_sequence_and_its_score_the_sum():
    model, ids = bigram(), record("bacc")
    trace = ForwardTrace(model, TOKENIZER, ids, False, banned=BANNED)
    assert trace.prompt == record("ba")
    score, expected = exhaustive(model, trace.prompt, 4, BANNED)
    (tree,) = of(section(add_beam_search, trace, 7), BeamTree)
    nodes = {node["id"]: node for node in tree.nodes}
    path = [nodes[i] for i in tree.best_path()]
    assert [node["token"] for node in path] == ["ba", *map(TOKENIZER.text, expected)]
    assert path[-1]["finished"]
    assert path[-1]["score"] == pytest.approx(score, abs=1e-5)


def test_every_node_of_the_tree_hangs_on_the_prompt_and_falls_in_score():
    trace = ForwardTrace(decoder(), TOKENIZER, record("abba"), False, banned=BANNED)
    (tree,) = of(section(add_beam_search, trace, 3), BeamTree)
    nodes = {node["id"]: node for node in tree.nodes}
    assert [n["token"] for n in tree.nodes if n["parent"] is None] == ["ab"]
    for node in tree.nodes[1:]:
        parent = nodes[node["parent"]]
        assert parent["step"] == node["step"] - 1 and parent["kept"] and not parent["finished"]
        assert node["score"] <= parent["score"] + 1e-6
    kept = [n["step"] for n in tree.nodes if n["kept"] and not n["finished"]]
    assert max(kept.count(step) for step in kept) == 3


def test_samples_repeat_the_prompt_and_carry_their_own_log_probability():
    model, ids = lstm(), record("abba")
    trace = ForwardTrace(model, TOKENIZER, ids, False, banned=BANNED)
    (shown,) = of(section(add_samples, trace), Sequences)
    samples = trace.samples(10, 13)
    assert len(shown.samples) == 10
    assert len({text for text, _ in shown.samples}) > 1
    for (text, score), one in zip(shown.samples, samples, strict=True):
        assert text.removesuffix(" …") == "ab" + TOKENIZER.decode(one.ids)
        with torch.no_grad():
            logits = model.logits(torch.tensor([[*record("ab"), *one.ids]]))[0, 2:-1]
        logits[:, [0, 1, 3]] = -math.inf
        logs = logits.log_softmax(-1).gather(1, torch.tensor(one.ids)[:, None])
        assert score == pytest.approx(logs.sum().item(), abs=1e-3)


@pytest.mark.parametrize("continues", [False, True])
def test_words_of_a_sample_stand_apart_from_those_of_the_prompt(continues):
    tokenizer = Words.train(["to be or not to be"])
    ids = record("to be or not", tokenizer)
    trace = ForwardTrace(lstm(tokenizer.vocab_size), tokenizer, ids, continues, banned=BANNED)
    page = section(add_samples, trace)
    texts = [text.removesuffix(" …") for text, _ in of(page, Sequences)[0].samples]
    assert all(text.startswith("" if continues else "to be") for text in texts)
    assert {word for text in texts for word in text.split()} == {"to", "be", "or", "not"}
