"""The page about a language model: any text and model make a page."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from small_models import TOKENIZER, bigram, decoder, lstm, record

from regard.decoding import ForbiddenTransitions
from regard.evaluation.masked_tokens import encode_masked, predict_masked
from regard.layers.embeddings import Inputs
from regard.look.internals import ForwardTrace
from regard.look.language_page import (
    add_beam_search,
    add_next,
    add_samples,
    language_page,
    masked_page,
)
from regard.look.page import (
    AttentionMaps,
    BeamTree,
    Distribution,
    Facts,
    Heatmap,
    Page,
    Reading,
    Sequences,
    Surprise,
    Table,
    Text,
)
from regard.models.decoder import Decoder
from regard.models.encoder import MaskedLM, modern_masked
from regard.registry import TOKENIZERS
from regard.tokenizers import BPE, Bytes, Characters, Words

BANNED = [0, 1, 3]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short samples, and one thread: models this small only wait for a second."""
    monkeypatch.setattr("regard.look.language_page.LONGEST", 13)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
        assert score == pytest.approx(logs.sum().item() / math.log(2), abs=1e-3)


@pytest.mark.parametrize("continues", [False, True])
def test_words_of_a_sample_stand_apart_from_those_of_the_prompt(continues):
    tokenizer = Words.train(["to be or not to be"])
    ids = record("to be or not", tokenizer)
    trace = ForwardTrace(lstm(tokenizer.vocab_size), tokenizer, ids, continues, banned=BANNED)
    page = section(add_samples, trace)
    texts = [text.removesuffix(" …") for text, _ in of(page, Sequences)[0].samples]
    assert all(text.startswith("" if continues else "to be") for text in texts)
    assert {word for text in texts for word in text.split()} == {"to", "be", "or", "not"}


def view(model, ids, tokenizer=TOKENIZER, **options):
    options = {"title": "a view", "continues": False} | options
    return language_page(model, tokenizer, ids, **options)


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
    assert facts["bits in total"] == pytest.approx(bits.sum())
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
        (surprise,) = of(page, Reading)
        end = [] if continues else ["<E>"]
        assert list(surprise.tokens) == [
            *map(tokenizer.text, tokenizer.encode(text).tolist()),
            *end,
        ]
        assert len(documents(page)) == page.render().count("data-kind=")
        assert "<b>" not in page.render().split("<main>")[1].split("<footer>")[0]


def test_a_lone_start_token_is_enough():
    page = view(decoder(), [TOKENIZER.start])
    (surprise,) = of(page, Reading)
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


@pytest.fixture
def model():
    torch.manual_seed(0)
    tokenizer = Characters.train(["abcde"])
    config = dataclasses.replace(
        modern_masked(2, 16), n_heads=2, n_kv_heads=2, d_head=4, max_len=12
    )
    made = MaskedLM(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        made.encoder.embedding.weight *= 5  # so that it has opinions
    return made, tokenizer


def alone(model, ids):
    """(T, V) probabilities of one row, by the plain call."""
    row = torch.tensor([ids])
    with torch.no_grad():
        return model(Inputs(row, torch.ones_like(row)))[0].double().softmax(-1).numpy()


def test_every_token_is_hidden_by_itself(model):
    """`look` refused runs of the task masked."""
    made, tokenizer = model
    ids = encode_masked("badceXa", tokenizer)
    page = masked_page(made, tokenizer, ids, title="")
    (surprise,) = of(page, Surprise)
    assert list(surprise.tokens) == ["<S>", *"badce", "<unk>", "a", "<E>"]
    (map_,), (table,) = of(page, Heatmap), of(page, Table)
    assert list(map_.columns) == list("badcea")
    ((_, bits),) = surprise.rows
    shown = iter(zip(map_.array().T, table.rows, strict=True))
    for place, id in enumerate(ids):
        if id in tokenizer.names:
            assert math.isnan(bits[place])  # markers and unknown tokens are never asked for
            continue
        hidden = [*ids[:place], tokenizer.mask, *ids[place + 1 :]]
        likely = alone(made, hidden)[place]
        assert bits[place] == pytest.approx(-np.log2(likely[id]), abs=1e-4)
        column, (at, token, probability, listed) = next(shown)
        rows = [tokenizer.encode(t)[0] if len(t) == 1 else None for t in map_.rows]
        for row, token_id in enumerate(rows):
            if token_id is not None:
                assert column[row] == pytest.approx(likely[token_id], abs=1e-5)
        assert (at, token) == (place, tokenizer.text(id))
        assert probability == pytest.approx(likely[id], abs=1e-5)
        letters = sorted("abcde", key=lambda c: -likely[tokenizer.encode(c)[0]])
        assert [one.split()[0] for one in listed.split(", ")] == letters
    (weights,) = of(page, AttentionMaps)
    assert weights.array().shape == (2, 2, len(ids), len(ids))


def test_masks_in_a_text_are_filled_in(model):
    made, tokenizer = model
    ids = encode_masked("ba<mask>c[MASK]", tokenizer)
    b, a, c = (int(i) for i in tokenizer.encode("bac"))
    mask = tokenizer.mask
    assert ids == [tokenizer.start, b, a, mask, c, mask, tokenizer.end]
    page = masked_page(made, tokenizer, ids, title="")
    likely = alone(made, ids)
    for place, shown in zip((3, 5), of(page, Distribution), strict=True):
        assert sorted(shown.tokens) == list("abcde")  # no markers
        found = np.exp(np.asarray(shown.logits))
        wanted = [likely[place, tokenizer.encode(token)[0]] for token in shown.tokens]
        assert found == pytest.approx(wanted, abs=1e-5)
        assert list(found) == sorted(found, reverse=True)
    assert "&lt;mask&gt; at position 3" in page.render()


def test_a_text_of_masks_alone_has_nothing_to_be_surprised_at(model):
    made, tokenizer = model
    page = masked_page(made, tokenizer, encode_masked("<mask>", tokenizer), title="")
    assert len(of(page, Distribution)) == 1 and not of(page, Surprise)


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_a_mask_has_the_space_before_a_word_where_tokens_have_it(kind):
    tokenizer = TOKENIZERS[kind].train(["the cat sat on a mat"] * 50)
    whole = tokenizer.encode("the cat sat").tolist()
    assert len(whole) == 3
    for place, text in enumerate(["<mask> cat sat", "the <mask> sat", "the cat <mask>"]):
        wanted = [*whole[:place], tokenizer.mask, *whole[place + 1 :]]
        assert encode_masked(text, tokenizer)[1:-1] == wanted
    assert encode_masked("the cat sat", tokenizer)[1:-1] == whole


def test_many_positions_are_hidden_in_parts(model, monkeypatch):
    made, tokenizer = model
    ids = encode_masked("abcdeabcde", tokenizer)
    places = list(range(1, 11))
    whole = predict_masked(made, ids, places, tokenizer.mask)
    monkeypatch.setattr("regard.evaluation.masked_tokens.BATCH_TOKENS", 25)  # two at once
    assert predict_masked(made, ids, places, tokenizer.mask) == pytest.approx(whole, abs=1e-5)
