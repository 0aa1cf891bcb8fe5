"""The page of `regard look`: its numbers against the models' own, at its edges too."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from regard.decoding import ForbiddenTransitions
from regard.evaluation.eval_data import shard_of
from regard.look import counting_views, internals, language_page
from regard.look.forward_trace import ForwardTrace
from regard.look.page import (
    AttentionMaps,
    BeamTree,
    Distribution,
    Facts,
    Heatmap,
    Lines,
    MaskMap,
    Page,
    Sequences,
    Surprise,
    Table,
    Text,
)
from regard.models.counts import Bigram, CountConfig
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.recurrent import LSTMConfig, LSTMModel
from regard.tokenizers import BPE, Bytes, Characters, Words

RECORDS = ["abba", "cab", "bac", "abc", "baab"]
TOKENIZER = Characters.train(RECORDS)
PRESETS = sorted(Decoder.PRESETS)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short samples, and one thread: models this small only wait for a second."""
    monkeypatch.setattr(language_page, "LONGEST", 13)
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
    return LSTMModel(vocab_size, LSTMConfig(**{"n_layers": 2, "d_model": 7} | options)).eval()


def bigram(tokenizer=TOKENIZER, records=RECORDS):
    model = Bigram(tokenizer.vocab_size, CountConfig())
    model.fit(shard_of(records, tokenizer), None, print)
    return model


def record(text, tokenizer=TOKENIZER):
    return [tokenizer.start, *tokenizer.encode(text).tolist()]


def view(model, ids, tokenizer=TOKENIZER, **options):
    options = {"title": "a view", "continues": False} | options
    return language_page.language_page(model, tokenizer, ids, **options)


def inner(model, ids, **options):
    """The sections about what happens inside, alone."""
    page = Page("inside")
    internals.add_inside(
        page, ForwardTrace(model, TOKENIZER, ids, **{"continues": False} | options)
    )
    return page


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


@pytest.mark.parametrize("model", [decoder(), lstm(), bigram()], ids=["decoder", "lstm", "bigram"])
def test_the_bits_of_a_record_are_those_of_the_logits_and_include_its_end(model):
    ids = record("abba")
    targets, bits = ForwardTrace(model, TOKENIZER, ids, continues=False).surprise()
    assert targets == [*ids[1:], TOKENIZER.end]
    with torch.no_grad():
        logs = model.logits(torch.tensor([ids])).log_softmax(-1)[0]
    expected = [-logs[t, target].item() / math.log(2) for t, target in enumerate(targets)]
    assert bits == pytest.approx(expected, abs=1e-5)


def test_running_text_is_not_charged_for_its_first_token_nor_for_an_end():
    ids = record("abba")[1:]
    targets, bits = ForwardTrace(lstm(), TOKENIZER, ids, continues=True).surprise()
    assert targets == ids
    assert math.isnan(bits[0])
    assert np.isfinite(bits[1:]).all()


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


@pytest.mark.parametrize("preset", PRESETS)
def test_the_next_symbol_is_that_of_the_logits_without_banned_tokens(preset):
    torch.manual_seed(1)
    model = Decoder(TOKENIZER.vocab_size, Decoder.PRESETS[preset](2, 32)).eval()
    ids = record("cab")
    page = Page("next")
    language_page.add_next(page, ForwardTrace(model, TOKENIZER, ids, False, banned=[0, 1, 3]))
    (shown,) = of(page, Distribution)
    with torch.no_grad():
        logits = model.logits(torch.tensor([ids]))[0, -1].double()
    banned = [TOKENIZER.pad, TOKENIZER.start, TOKENIZER.unk]
    logits[banned] = -math.inf
    expected = logits.softmax(-1)
    left = [i for i in range(TOKENIZER.vocab_size) if i not in banned]
    assert list(shown.tokens) == [TOKENIZER.text(i) for i in left]
    assert shown.cut()[1] == pytest.approx(expected[left].numpy(), abs=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_attention_is_causal_and_sums_to_one(preset):
    torch.manual_seed(2)
    model = Decoder(TOKENIZER.vocab_size, Decoder.PRESETS[preset](3, 64)).eval()
    ids = record("abcab")
    (shown,) = of(inner(model, ids), AttentionMaps)
    weights = shown.array()
    assert weights.shape == (3, 2, 6, 6)
    assert list(shown.tokens) == ["<S>", *"abcab"]
    assert weights.sum(-1) == pytest.approx(np.ones((3, 2, 6)), abs=1e-5)
    assert np.triu(weights, k=1).max() == 0


def test_a_window_shows_in_the_mask_and_in_the_weights():
    page = inner(decoder(window=2), record("abbacab"))
    (mask,) = of(page, MaskMap)
    expected = np.array([[0 <= t - s < 2 for s in range(8)] for t in range(8)])
    assert (np.asarray(mask.mask) == expected).all()
    (attention,) = of(page, AttentionMaps)
    assert (attention.array()[:, :, ~expected] == 0).all()


def test_the_distance_looked_back_is_the_mean_over_queries():
    weights = torch.zeros(1, 2, 4, 4)
    weights[0, 0, range(4), range(4)] = 1  # the first head looks at itself,
    weights[0, 1, :, 0] = 1  # the second at the beginning
    assert internals.distances(weights).tolist() == [[0.0, 1.5]]


def test_a_long_text_keeps_the_first_positions_of_attention_unchanged(monkeypatch):
    whole = of(inner(decoder(), record("abbacabb")), AttentionMaps)[0].array()
    monkeypatch.setattr(internals, "MOST_WEIGHTS", 6 * 5 * 5)
    page = inner(decoder(), record("abbacabb"))
    part = of(page, AttentionMaps)[0].array()
    assert part.shape == (2, 3, 5, 5)
    assert part == pytest.approx(whole[:, :, :5, :5], abs=1e-6)
    assert "first 5 of 9 tokens" in page.render()


def test_the_hidden_state_is_the_state_the_model_carries():
    model, ids = lstm(), record("cabb")
    page = inner(model, ids)
    (shown,) = of(page, Heatmap)
    state = model.start(1, 5)
    carried = []
    with torch.no_grad():
        for i in ids:
            model.extend(torch.tensor([[i]]), None, state)
            carried.append(state.layers[0].vectors[0][-1, 0].numpy())
    assert shown.array() == pytest.approx(np.array(carried), abs=1e-6)  # a row per token
    (lines,) = of(page, Lines)
    steps = np.diff(np.array([np.zeros(7), *carried]), axis=0)
    assert lines.series[0][2] == pytest.approx(np.linalg.norm(steps, axis=1), abs=1e-6)


def test_a_text_longer_than_the_state_is_wide_runs_from_left_to_right():
    (shown,) = of(inner(lstm(), record("abbacabba")), Heatmap)
    assert shown.array().shape == (7, 10)
    assert list(shown.columns) == ["<S>", *"abbacabba"]


def test_the_transition_table_is_counted_by_hand():
    page = inner(bigram(), record("abba"))
    (table,) = of(page, Heatmap)
    pairs = [p for r in RECORDS for p in zip(["<S>", *r], [*r, "<E>"], strict=True)]
    assert list(table.rows) == ["<S>", "a", "b", "c"]
    assert list(table.columns) == ["<E>", "a", "b", "c"]
    for i, previous in enumerate(table.rows):
        total = sum(a == previous for a, _ in pairs)
        expected = [pairs.count((previous, following)) / total for following in table.columns]
        assert table.array()[i] == pytest.approx(expected, abs=1e-6)
    facts = by_label(of(page, Facts)[-1])
    assert facts["transitions counted"] == len(pairs)
    assert facts["different pairs seen"] == len(set(pairs))
    (chain,) = of(page, Table)
    steps = [["<S>", "a"], ["a", "b"], ["b", "b"], ["b", "a"], ["a", "<E>"]]
    assert [row[:2] for row in chain.rows] == steps
    assert chain.rows[1][2:4] == [pairs.count(("a", "b")), sum(a == "a" for a, _ in pairs)]


def test_a_large_alphabet_shows_the_rows_of_the_text(monkeypatch):
    monkeypatch.setattr(counting_views, "MOST_SYMBOLS", 5)
    (table,) = of(inner(bigram(), record("cab")), Heatmap)
    assert list(table.rows) == ["<S>", "c", "a", "b"]
    assert table.array().sum(1) == pytest.approx(np.ones(4), abs=1e-6)


def test_an_impossible_symbol_is_infinite_and_the_json_stays_json():
    page = view(bigram(), record("cc"))  # never counted
    facts = by_label(of(page, Facts)[0])
    assert facts["held impossible"] == 1  # c after c
    assert facts["bits per symbol"] == math.inf
    assert any("inf" in str(document) for document in documents(page))


def exhaustive(model, prompt, steps, banned):
    """The most probable sequence that ends within so many steps, by trying every one."""
    best = (-math.inf, [])
    stack = [([], 0.0)]
    while stack:
        said, score = stack.pop()
        with torch.no_grad():
            logits = model.logits(torch.tensor([[*prompt, *said]]))[0, -1]
        logits[banned] = -math.inf
        logs = logits.log_softmax(-1)
        for token in range(model.vocab_size):
            total = score + logs[token].item()
            if token == TOKENIZER.end:
                best = max(best, (total, [*said, token]))
            elif total > best[0] and len(said) + 1 < steps:
                stack.append(([*said, token], total))
    return best


def test_the_marked_path_is_the_best_sequence_and_its_score_the_sum():
    model, ids = bigram(), record("bacc")
    reading = ForwardTrace(model, TOKENIZER, ids, False, banned=[0, 1, 3])
    assert reading.prompt == record("ba")
    score, expected = exhaustive(model, reading.prompt, 4, [0, 1, 3])
    (tree,) = of(view(model, ids, beams=7), BeamTree)
    nodes = {node["id"]: node for node in tree.nodes}
    path = [nodes[i] for i in tree.best_path()]
    assert [node["token"] for node in path] == ["ba", *map(TOKENIZER.text, expected)]
    assert path[-1]["finished"]
    assert path[-1]["score"] == pytest.approx(score, abs=1e-5)


def test_every_node_of_the_tree_hangs_on_the_prompt_and_falls_in_score():
    (tree,) = of(view(decoder(), record("abba"), beams=3), BeamTree)
    nodes = {node["id"]: node for node in tree.nodes}
    assert [n["token"] for n in tree.nodes if n["parent"] is None] == ["ab"]
    for node in tree.nodes[1:]:
        parent = nodes[node["parent"]]
        assert parent["step"] == node["step"] - 1 and parent["kept"] and not parent["finished"]
        assert node["score"] <= parent["score"] + 1e-6
    kept = [n["step"] for n in tree.nodes if n["kept"] and not n["finished"]]
    assert max(kept.count(step) for step in kept) == 3


def test_a_stretch_goes_on_from_its_end_and_a_record_from_its_middle():
    ids = record("abcab")
    assert ForwardTrace(lstm(), TOKENIZER, ids, True).prompt == ids
    assert ForwardTrace(lstm(), TOKENIZER, ids, False).prompt == ids[:3]
    assert ForwardTrace(lstm(), TOKENIZER, ids[:1], False).prompt == ids[:1]


def test_samples_repeat_the_prompt_and_carry_their_own_log_probability():
    model, ids = lstm(), record("abba")
    (shown,) = of(view(model, ids), Sequences)
    drawn = ForwardTrace(model, TOKENIZER, ids, False, banned=[0, 1, 3]).samples(10, 13)
    assert len(shown.samples) == 10
    assert len({text for text, _ in shown.samples}) > 1
    for (text, score), one in zip(shown.samples, drawn, strict=True):
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
    page = Page("samples")
    reading = ForwardTrace(lstm(tokenizer.vocab_size), tokenizer, ids, continues, banned=[0, 1, 3])
    language_page.add_samples(page, reading)
    texts = [text.removesuffix(" …") for text, _ in of(page, Sequences)[0].samples]
    assert all(text.startswith("" if continues else "to be") for text in texts)
    assert {word for text in texts for word in text.split()} == {"to", "be", "or", "not"}


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
