"""The screen Read with every family of models: the surprise, the probabilities and the parts of a
prediction that it shows at fifty places are those of a forward pass in plain PyTorch.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

pytest.importorskip("starlette")
from studio_page import serving

import regard
from regard.layers.embeddings import Inputs
from regard.pipelines import load

pytestmark = pytest.mark.browser
PLACES = 50
SYMBOLS, BASES = "abcde", "ACGT"
SMALL = {"n_layers": 1, "d_model": 16, "max_len": 64, "dropout": 0.0}
HEADS = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8}
TRANSFORMER = {"name": "transformer", **SMALL, **HEADS}
LANGUAGE = {
    "bigram": {"name": "bigram"},
    "kneser-ney": {"name": "kneser-ney"},
    "hmm": {"name": "hmm", "n_states": 4},
    "mlp": {"name": "mlp", "d_model": 16, "max_len": 64},
    "cnn": {"name": "cnn", **SMALL},
    "gru": {"name": "gru", "n_layers": 1, "d_model": 16, "max_len": 64},
    "lstm": {"name": "lstm", "n_layers": 1, "d_model": 16, "max_len": 64},
    "hyena": {"name": "hyena", **SMALL},
    "transformer": TRANSFORMER,
}
STATE = """() => {
    const [all, one] = [s => [...document.querySelectorAll(s)], s => document.querySelector(s)];
    const { bits, added } = one('[data-at]').dataset;
    return { bits: Number(bits), added: Number(added), words: one('[data-at]').textContent,
        p: Object.fromEntries(all('[data-p]').map(e => [e.dataset.token, Number(e.dataset.p)])) };
}"""


def drawn(alphabet, count, seed):
    return "".join(random.Random(seed).choices(alphabet, k=count))


def fit(folder, name, rows, model, **options):
    """Train a run on rows of text, or of a table, for a few steps."""
    if model["name"] in ("bigram", "kneser-ney"):
        train = {}
    else:
        train = {"train": {"steps": 6, "batch_tokens": 512, "lr": 0.01}}
    file = folder / f"{name}{'.tsv' if chr(9) in rows[0] else '.txt'}"
    file.write_text("\n".join(rows) + "\n")
    regard.train(
        file, folder / "runs" / name, model=model, seed=1, progress=False, **train, **options
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of every family that reads text."""
    folder = tmp_path_factory.mktemp("families")
    texts = [drawn(SYMBOLS, 30, i) for i in range(80)]
    genes = [drawn(BASES, 40, i) for i in range(80)]
    for name, model in LANGUAGE.items():
        fit(folder, name, texts, model, task="next", tokenizer="characters")
    fit(folder, "masked", texts, TRANSFORMER, task="masked", tokenizer="characters")
    spoken = [f"{text}\t{text[::-1]}" for text in texts]
    fit(
        folder,
        "translator",
        ["in\tout", *spoken],
        TRANSFORMER,
        input="in",
        target="out",
        task="target",
    )
    words = [" ".join(text) for text in texts]
    for name, model in (("classifier", TRANSFORMER), ("lstm-classifier", LANGUAGE["lstm"])):
        rows = [f"{one}\t{'high' if one.count('a') > 5 else 'low'}" for one in words]
        fit(folder, name, ["text\tkind", *rows], model, target="kind", task="label")
    rows = [f"{gene}\t{'rich' if gene.count('G') > 10 else 'poor'}" for gene in genes]
    fit(
        folder,
        "dna",
        ["sequence\tkind", *rows],
        {"name": "cnn", **SMALL},
        target="kind",
        modality="biology",
    )
    rows = [f"{text}\t{text.count('a') + text.count('b') / 7:.3f}" for text in texts]
    fit(folder, "value", ["text\tvalue", *rows], TRANSFORMER, target="value", task="value")
    rows = [f"{text}\t{''.join('V' if c in 'ae' else 'C' for c in text)}" for text in texts]
    fit(
        folder,
        "positions",
        ["text\twhere", *rows],
        TRANSFORMER,
        target="where",
        task="position-label",
    )
    return folder / "runs"


@pytest.fixture(scope="module")
def tab(chromium, runs):
    """A tab with a studio over these runs; nothing may go wrong in it."""
    with serving(runs) as sessions:
        context = chromium.new_context(viewport={"width": 1300, "height": 900})
        page, errors = context.new_page(), []
        page.on("console", lambda m: m.type == "error" and errors.append(m.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(sessions.link())
        page.wait_for_selector("nav")
        page.root = page.url.partition("#")[0]
        yield page
        context.close()
    assert errors == []


def read(tab, run, text, target=""):
    """Open a text with a run, and put the caret before it."""
    tab.goto(f"{tab.root}#/read?run={run}&text={text}&target={target}")
    tab.wait_for_selector(f".editor .box:has-text('{(target or text)[:20]}')")
    tab.wait_for_selector(".readout[data-at]:not([data-at=''])")
    tab.click(".editor .box")
    tab.keyboard.press("Control+Home")


def places(tab, count, parts):
    """Yield what the page says at each place, once these parts of it answer for the place."""
    for at in range(count):
        for _ in range(4):  # a space may be before a word
            if tab.get_attribute("[data-at]", "data-at") == str(at):
                break
            tab.keyboard.press("ArrowRight")
            tab.wait_for_timeout(5)
        tab.wait_for_selector(f"[data-at='{at}']")
        for part in parts:
            tab.wait_for_selector(f"{part}[data-of='{at}']:not(.busy)")
        yield at, tab.evaluate(STATE)


def check_probabilities(tab, logits, ids, names):
    """Check bits and probabilities at all places against those of logits (N, V) in their place."""
    logs = logits.double().log_softmax(-1).numpy()
    tab.wait_for_selector(".reading-text:not(.reads)")
    for at, shown in places(tab, len(ids), [".expected-list"]):
        assert shown["bits"] == pytest.approx(logs[at, ids[at]] / -math.log(2), abs=1e-4)
        assert len(shown["p"]) == min(20, len(names))
        for name, p in shown["p"].items():
            assert p == pytest.approx(math.exp(logs[at, names.index(name)]), abs=1e-4)


def named(tokenizer):
    return [tokenizer.text(i) for i in range(tokenizer.vocab_size)]


OFTEN = ("lstm",)  # the others by `make slow`
SELDOM = [pytest.param(name, marks=pytest.mark.slow) for name in LANGUAGE if name not in OFTEN]


@pytest.mark.parametrize("name", [*OFTEN, *SELDOM])
def test_a_language_model(name, tab, runs):
    pipeline, text = load(runs / name), drawn(SYMBOLS, PLACES, 99)
    tokenizer = pipeline.tokenizer
    ids = [tokenizer.start, *tokenizer.encode(text).tolist()]
    with torch.inference_mode():
        logits = pipeline.model.eval().logits(torch.tensor([ids]))[0]
    read(tab, name, text)
    check_probabilities(tab, logits, ids[1:], named(tokenizer))


def test_a_masked_language_model(tab, runs):
    pipeline, text = load(runs / "masked"), drawn(SYMBOLS, PLACES, 98)
    tokenizer = pipeline.tokenizer
    ids = torch.tensor([tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.end])
    rows, at = ids.repeat(PLACES, 1), torch.arange(PLACES)
    rows[at, at + 1] = tokenizer.mask  # each alone
    with torch.inference_mode():
        logits = pipeline.model.eval()(Inputs(rows, torch.ones_like(rows)))[at, at + 1]
    read(tab, "masked", text)
    check_probabilities(tab, logits, ids[1:-1].tolist(), named(tokenizer))


def test_a_translator(tab, runs):
    pipeline = load(runs / "translator")
    source, target = drawn(SYMBOLS, 40, 97), drawn(SYMBOLS, PLACES, 96)
    tokenizer, model = pipeline.tokenizer, pipeline.model.eval()
    ids = [tokenizer.start, *tokenizer.encode(target).tolist()]
    end = pipeline.source_tokenizer.end
    row = torch.tensor([[*pipeline.source_tokenizer.encode(source).tolist(), end]])
    with torch.inference_mode():
        conditioned = model.condition(Inputs(row, torch.ones_like(row)))
        logits = conditioned.logits(torch.tensor([ids]))[0]
    read(tab, "translator", source, target)
    check_probabilities(tab, logits, ids[1:], named(tokenizer))


def attributed(model, ids, pick):
    """Return the scores of a sequence, and the gradient of one of them times each embedding."""
    kept = []
    embedding = next(one for one in model.modules() if isinstance(one, torch.nn.Embedding))

    def keep(module, inputs, rows):
        kept.append(rows.detach().requires_grad_())
        return kept[0]

    hook = embedding.register_forward_hook(keep)
    scores = model.eval().predict(Inputs(ids, torch.ones_like(ids)))[0]
    hook.remove()
    pick(scores).backward()
    return scores.detach(), (kept[0].grad * kept[0]).sum(-1)[0].detach().numpy()


def likeliest(scores):
    """Return the highest score, compared with the mean of all."""
    return scores.max() - scores.mean()


PREDICTIONS = {
    "classifier": " ".join(drawn(SYMBOLS, PLACES, 95)),
    "lstm-classifier": " ".join(drawn(SYMBOLS, PLACES, 94)),
    "dna": drawn(BASES, PLACES, 93),
    "value": drawn(SYMBOLS, PLACES, 92),
}


def with_markers(tokenizer, text):
    return torch.tensor([[tokenizer.start, *tokenizer.encode(text).tolist(), tokenizer.end]])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("lstm-classifier", "value") else ())
        for name in PREDICTIONS
    ],
)
def test_what_each_token_adds_to_a_prediction(name, tab, runs):
    pipeline, text = load(runs / name), PREDICTIONS[name]
    ids, classes = with_markers(pipeline.tokenizer, text), pipeline.targets.classes
    pick = likeliest if classes else torch.sum
    scores, added = attributed(pipeline.model, ids, pick)
    read(tab, name, text)
    tab.wait_for_selector("[data-added]:not([data-added=''])")
    for at, shown in places(tab, PLACES, []):
        assert shown["added"] == pytest.approx(added[at + 1], abs=1e-4)
        number = shown["words"].partition(": ")[2].partition(",")[0].replace("−", "-")
        assert float(number) == pytest.approx(added[at + 1], rel=0.05)  # its first digits
    if not classes:
        headline = tab.text_content("[data-kind=answer] strong, .component.answer strong")
        assert float(headline.replace("−", "-")) == pytest.approx(float(scores), rel=0.01)
        return
    options = tab.evaluate(
        "[...document.querySelectorAll('.answer .options .name')].map(e =>"
        " [e.firstChild.textContent, e.nextSibling.firstChild.style.width])"
    )
    expected = dict(zip(classes[0], scores.softmax(-1).tolist(), strict=True))
    assert {name: float(width[:-1]) / 100 for name, width in options} == pytest.approx(
        expected, abs=1e-4
    )


def test_labels_of_positions(tab, runs):
    pipeline, text = load(runs / "positions"), drawn(SYMBOLS, PLACES, 91)
    ids = with_markers(pipeline.tokenizer, text)
    with torch.inference_mode():
        scores = pipeline.model.eval().predict(Inputs(ids, torch.ones_like(ids)))[0]
    expected = scores.double().softmax(-1).numpy()[1:-1]
    read(tab, "positions", text)
    (names,) = pipeline.targets.classes
    tab.wait_for_selector("[data-p]")
    for at, shown in places(tab, PLACES, []):
        np.testing.assert_allclose([shown["p"][one] for one in names], expected[at], atol=1e-4)
        assert f": {names[expected[at].argmax()]}" in shown["words"]


def test_a_word_that_is_not_known_is_named_and_the_answer_stands_below_the_text(tab):
    read(tab, "classifier", "a zzz b")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_selector("[data-at='1']")
    assert tab.text_content(".readout").startswith("“·zzz”, read as <unk> (2): ")
    answer = tab.locator(".answer")
    assert answer.locator("p").all_text_contents() == [
        "3 tokens; the model reads up to 62.",
        "Not in the vocabulary, in ⟨brackets⟩: zzz.",
    ]
    boxes = [answer.locator(one).first.bounding_box() for one in (".head", "p", ".options")]
    assert [box["y"] for box in boxes] == sorted(box["y"] for box in boxes)
    assert boxes[2]["width"] > 300 and not answer.locator(".picture").is_visible()
