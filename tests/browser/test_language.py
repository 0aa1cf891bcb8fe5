"""The page about a language model in headless Chromium."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.evaluation.eval_data import shard_of
from regard.look.language_page import language_page
from regard.look.page import AttentionMaps, Heatmap, Page
from regard.look.page.document import visible
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.hidden_markov import HiddenMarkov, HiddenMarkovConfig
from regard.models.mlp import MLP, MLPConfig
from regard.models.ngrams import (
    Bigram,
    CountConfig,
    DirichletNGram,
    DirichletNGramConfig,
    KneserNey,
    KneserNeyConfig,
)
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.tokenizers import Characters, Words

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)> </script><b>bold</b> &amp;"
SHAPE = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}


@pytest.fixture(autouse=True)
def short_samples(monkeypatch):
    monkeypatch.setattr("regard.look.language_page.LONGEST", 13)


def model_of(name, tokenizer):
    torch.manual_seed(0)
    size = tokenizer.vocab_size
    if name == "transformer":
        return Decoder(size, DecoderConfig(**SHAPE, max_len=64)).eval()
    if name == "lstm":
        return LSTMModel(size, RecurrentConfig(n_layers=1, d_model=9)).eval()
    if name == "mlp":
        return MLP(size, MLPConfig(d_model=9, d_embedding=4)).eval()
    if name == "hmm":
        hidden = HiddenMarkov(size, HiddenMarkovConfig(n_states=11))
        hidden.marker.fill_(tokenizer.start)
        return hidden
    counting = {
        "bigram": (Bigram, CountConfig()),
        "map": (DirichletNGram, DirichletNGramConfig(order=4)),
        "kneser-ney": (KneserNey, KneserNeyConfig()),
    }
    family, config = counting[name]
    counted = family(size, config)
    counted.fit(shard_of(["abracadabra"], tokenizer), None, print)
    return counted


def write(path, name, text, tokenizer, **options):
    """The page of a fresh model of this family about a record."""
    ids = [tokenizer.start, *tokenizer.encode(text).tolist()]
    page = language_page(
        model_of(name, tokenizer), tokenizer, ids, title=f"{name} reads {text}", **options
    )
    return page.write(path / "look.html")


SECTIONS = {
    "transformer": ["Attention", "How far back", "What each head does here", "Logit lens"],
    "lstm": ["Hidden state", "Back through time"],
    "mlp": ["Window", "Back through time"],
    "bigram": ["Transition table"],
    "map": ["Priors and posteriors", "Longest n-grams"],
    "kneser-ney": ["Discounts", "Longest n-grams"],
    "hmm": ["Hidden states", "States"],
}


@pytest.mark.parametrize("name", sorted(SECTIONS))
def test_every_family_draws_without_an_error_or_a_request(name, tmp_path, browser_page):
    tokenizer = Characters.train(["abracadabra", "zcz"])
    path = write(tmp_path, name, "abczc", tokenizer, facts=[("model", name)], continues=False)
    page = browser_page.open(path)
    titles = page.locator("h2").all_text_contents()
    assert titles == [
        "Surprise",
        "Next symbol",
        *SECTIONS[name],
        "Beam search",
        "Samples",
        "The model",
    ]
    assert page.locator(".undrawn").count() == 0
    assert page.locator(".reading .letters").all_text_contents() == [*"abczc", "<E>"]
    assert page.locator(".samples li").count() == 10
    assert page.locator(".beam-tree .node").count() > 5
    page.set_viewport_size({"width": 390, "height": 800})
    browser_page.settle()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser_page.errors == []
    assert browser_page.requests == [path.as_uri()]


def test_choosing_a_head_changes_the_large_map(tmp_path, browser_page):
    tokenizer = Characters.train(["abc"])
    page = browser_page.open(write(tmp_path, "transformer", "abcab", tokenizer, continues=False))
    large = page.locator(".attention .detail")
    picture = "canvas => canvas.toDataURL()"
    assert large.locator("h4").text_content() == "layer 1, head 1"
    before = large.locator(".map canvas").last.evaluate(picture)
    page.locator(".attention .thumb").nth(4).click()
    browser_page.settle()
    assert large.locator("h4").text_content() == "layer 2, head 2"
    assert large.locator(".map canvas").last.evaluate(picture) != before
    large.get_by_role("button", name="arcs").click()
    browser_page.settle()
    assert large.locator(".side.queries .token").all_text_contents() == ["<S>", *"abcab"]
    assert browser_page.errors == []


def test_the_sliders_cut_the_next_symbols(tmp_path, browser_page):
    tokenizer = Characters.train(["abc"])
    page = browser_page.open(write(tmp_path, "transformer", "abc", tokenizer, continues=False))
    line = page.locator(".distribution .kept-line")
    assert line.text_content() == "All 4 symbols that may follow."  # a, b, c and <E>
    assert "before" not in page.locator(".distribution .bars").text_content()
    slider = page.locator(".distribution input[data-name=top-K]")
    slider.evaluate("s => { s.value = 0; s.dispatchEvent(new Event('input')); }")
    assert line.text_content().startswith("1 of 4 symbols kept")
    assert page.locator(".distribution .fill.cut").count() == 3
    assert browser_page.errors == []


def test_markup_in_the_text_stays_text(tmp_path, browser_page):
    tokenizer = Words.train([MARKUP])
    path = write(tmp_path, "transformer", MARKUP, tokenizer, continues=False)
    page = browser_page.open(path)
    assert page.locator("h1").text_content() == f"transformer reads {MARKUP}"
    shown = "".join(page.locator(".reading .letters").all_text_contents())
    assert shown.lstrip("·") == MARKUP.replace(" ", "·") + "<E>"  # words carry the space before
    assert page.locator("main img, main b").count() == 0
    assert browser_page.errors == []
    assert browser_page.requests == [path.as_uri()]


def test_moving_over_the_text_shows_what_the_model_expected_there(tmp_path, browser_page):
    tokenizer = Characters.train(["abracadabra", "zcz"])
    model = model_of("kneser-ney", tokenizer)
    ids = [tokenizer.start, *tokenizer.encode("abczc").tolist()]
    page = language_page(model, tokenizer, ids, title="t", continues=False)
    shown = browser_page.open(page.write(tmp_path / "look.html"))
    with torch.no_grad():
        p = model.logits(torch.tensor([ids]))[0].softmax(-1).numpy()
    listed, text = shown.locator(".reading .expected"), shown.locator(".reading .text")

    def rows():
        names = listed.locator(".name").all_text_contents()
        return dict(zip(names, listed.locator(".number").all_text_contents(), strict=True))

    shown.locator(".reading .token").nth(1).hover()
    assert listed.locator("h4").text_content() == "Expected after “a”"
    best = max(range(tokenizer.vocab_size), key=lambda i: p[1, i])
    found = rows()
    assert next(iter(found)) == tokenizer.text(best)
    b = int(tokenizer.encode("b")[0])
    assert found["b"] == f"{100 * p[1, b]:.1f}% ← the text"
    assert f"{100 * p[1, b]:.1f}%" in shown.locator(".tip").text_content()
    shown.mouse.move(1, 1)
    text.focus()
    for _ in range(9):
        shown.keyboard.press("ArrowRight")
    assert listed.locator("h4").text_content() == "Expected after “abczc”"
    shown.keyboard.press("ArrowLeft")
    assert listed.locator("h4").text_content() == "Expected after “abcz”"
    c = int(tokenizer.encode("c")[0])
    rank = 1 + int((p[4] > p[4, c]).sum())
    assert f"number {rank} of {tokenizer.vocab_size}" in shown.locator(".tip").text_content()
    assert browser_page.errors == []


def test_the_text_takes_the_colours_of_the_weights_of_its_token(tmp_path, browser_page):
    weights = np.tril(np.random.default_rng(0).dirichlet(np.ones(60), size=(1, 2, 60)))
    weights /= weights.sum(-1, keepdims=True)
    tokens = list("the quick brown fox jumps over the lazy dog and then sleeps ")
    page = Page("text")
    page.add(AttentionMaps(weights, tokens[:60]))
    shown = browser_page.open(page.write(tmp_path / "text.html"))
    assert shown.get_by_role("button", name="text").get_attribute("aria-pressed") == "true"
    shown.locator(".text-map .token").nth(30).hover()
    words = shown.locator(".text-map .readout").text_content()
    best = int(weights[0, 0, 30].argmax())
    assert words.startswith(
        f"{visible(tokens[30])} (31) looks at: {visible(tokens[best])} ({best + 1})"
    )
    painted = "e => getComputedStyle(e).backgroundColor"
    token = shown.locator(".text-map .token")
    assert token.nth(best).evaluate(painted) != token.nth(40).evaluate(painted)
    shown.get_by_role("button", name="is looked at by").click()
    shown.locator(".text-map .token").nth(3).hover()
    best = int(weights[0, 0, :, 3].argmax())
    assert (
        f"is looked at by: {visible(tokens[best])} ({best + 1})"
        in shown.locator(".text-map .readout").text_content()
    )
    shown.locator(".text-map input").fill("the")
    assert shown.locator(".text-map .found").count() == 9
    shown.locator(".text-map input").press("Enter")
    shown.locator(".text-map input").press("Enter")
    chosen = shown.locator(".text-map .chosen")
    assert chosen.get_attribute("data-i") == str("".join(tokens).index("the", 5))
    shown.locator(".thumb").nth(1).click()  # another head keeps the token
    assert chosen.get_attribute("data-i") == str("".join(tokens).index("the", 5))
    assert browser_page.errors == []


def test_a_part_of_a_large_map_is_enlarged_and_keeps_its_numbers(tmp_path, browser_page):
    values = np.arange(100.0 * 80).reshape(100, 80)
    page = Page("zoom")
    names = [f"r{i}" for i in range(100)], [f"c{i}" for i in range(80)]
    page.add(Heatmap(values, *names, title="Large"))
    shown = browser_page.open(page.write(tmp_path / "zoom.html"))
    canvas, mini = shown.locator(".map canvas"), shown.locator(".minimap")
    assert mini.is_hidden()
    box = canvas.bounding_box()
    shown.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    first = shown.locator(".tip").inner_text().split("\n")
    shown.mouse.down()
    shown.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    last = shown.locator(".tip").inner_text().split("\n")
    shown.mouse.up()
    browser_page.settle()
    assert mini.is_visible()
    shown.mouse.move(1, 1)
    size = canvas.bounding_box()
    shown.mouse.move(size["x"] + size["width"] - 2, size["y"] + size["height"] - 2)
    assert shown.locator(".tip").inner_text().split("\n") == last
    row, column = (int(line.split("r")[-1].split("c")[-1]) for line in first[1:])
    assert float(first[0].replace(",", "")) == pytest.approx(values[row, column], abs=1)
    canvas.focus()
    shown.keyboard.press("ArrowRight")
    before = shown.locator(".tip").inner_text()
    for _ in range(12):
        shown.keyboard.press("-")
    assert mini.is_hidden() and shown.locator(".tip").inner_text() == before
    shown.keyboard.press("+")
    assert mini.is_visible()
    shown.get_by_role("button", name="whole map").click()
    assert mini.is_hidden() and browser_page.errors == []


def test_many_weights_are_stored_in_part_and_say_so(tmp_path, browser_page):
    random = np.random.default_rng(0)
    weights = np.tril(random.dirichlet(np.full(256, 0.05), size=(2, 5, 256)))
    page = Page("many")
    page.add(AttentionMaps(weights, [f"t{i}" for i in range(256)]))
    path = page.write(tmp_path / "many.html")
    assert weights.size > 600_000 and path.stat().st_size < 1_000_000
    data = page.components[0].data()["weights"]
    shown = browser_page.open(path)
    shown.get_by_role("button", name="map").first.click()
    browser_page.settle()
    canvas = shown.locator(".map canvas").first
    canvas.focus()
    shown.keyboard.press("ArrowRight")
    for row, column in ((3, 0), (3, 2), (7, 5)):
        for _ in range(8):
            shown.keyboard.press("ArrowLeft")
            shown.keyboard.press("ArrowUp")
        for _ in range(row):
            shown.keyboard.press("ArrowDown")
        for _ in range(column):
            shown.keyboard.press("ArrowRight")
        words = shown.locator(".tip").inner_text().split("\n")[0]
        value = weights[0, 0, row, column]
        if "at most" in words:
            assert value <= float(words.split("at most ")[1].replace("−", "-")) * 1.1
        else:
            low, high = (
                float(x) for x in words.split(": ")[1].rstrip(")").replace("−", "-").split(" to ")
            )
            assert low - 1e-4 <= value <= high + 1e-4
    assert data["tiles"]["shape"] == [2, 5, 128, 128]
    assert browser_page.errors == []


def test_the_best_path_is_a_straight_line_at_the_top_also_on_a_phone(tmp_path, browser_page):
    tokenizer = Characters.train(["abracadabra"])
    shown = browser_page.open(write(tmp_path, "transformer", "abc", tokenizer, continues=False))
    shown.set_viewport_size({"width": 390, "height": 800})
    browser_page.settle()
    tree = shown.locator(".beam-tree svg[role=tree]")
    boxes = [circle.bounding_box() for circle in tree.locator(".node.best circle").all()]
    heights = [box["y"] + box["height"] / 2 for box in boxes]
    assert len(heights) > 1 and max(heights) - min(heights) < 0.1
    assert heights[0] - tree.bounding_box()["y"] < 40
    assert "bits" in tree.locator(".node").nth(1).get_attribute("aria-label")
