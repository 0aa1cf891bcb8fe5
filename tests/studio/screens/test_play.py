"""The screen Play against the library."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import TOKENIZER, bigram, decoder

from regard.data.targets import Targets
from regard.decoding import Beam, Sample, Trace
from regard.errors import UsageError
from regard.models.encoder import MaskedLM, modern_masked
from regard.pipelines.generator import Generator
from regard.pipelines.masked_predictor import MaskedPredictor
from regard.studio.opened import Opened
from regard.studio.screens.play import Play


@pytest.fixture
def play(tmp_path):
    """Returns the screen over one model."""

    def make(pipeline):
        opened = Opened(tmp_path)
        opened.pipeline = lambda name: pipeline
        opened.version = lambda name: (name, ())
        return Play(opened)

    return make


def generator(make=decoder):
    return Generator(make(), TOKENIZER)


@pytest.fixture(scope="module")
def masked():
    """A small random masked language model."""
    torch.manual_seed(0)
    config = replace(modern_masked(1, 16), max_len=16, n_heads=2, n_kv_heads=2, d_head=4)
    model = MaskedLM(TOKENIZER.vocab_size, config).eval()
    return MaskedPredictor(model, TOKENIZER, Targets("masked", ()))


def test_what_can_be_played_is_asked_of_the_pipeline(play, translator, masked):
    assert play(generator()).describe("run")["activities"] == ["sample", "beam"]
    assert play(translator).describe("run")["activities"] == ["translate"]
    assert play(masked).describe("run")["activities"] == ["fill"]
    with pytest.raises(UsageError, match="run cannot fill; it can: translate"):
        play(translator).fill("run", "a<mask>")


@pytest.mark.parametrize("seed", [0, 7])
def test_samples_are_those_of_the_generator_with_the_same_seed(play, seed):
    pipeline = generator()
    answer = play(pipeline).sample(
        "run", "ab", temperature=1.3, top_k=3, top_p=0.9, seed=seed, length=6, count=5
    )
    expected = pipeline.continuations("ab", Sample(1.3, 3, 0.9, seed), copies=5, max_new=6)
    assert [one["text"] for one in answer["samples"]] == [one.text for one in expected]
    scores = [one["score"] for one in answer["samples"]]
    assert scores == pytest.approx([one.score for one in expected], rel=1e-5)
    drawn = [step["tokens"][step["ids"].index(step["chosen"])] for step in answer["steps"][:6]]
    assert drawn == expected[0].tokens


def test_a_chosen_token_stands_after_the_prompt(play):
    pipeline = generator()
    c = int(TOKENIZER.encode("c")[0])
    answer = play(pipeline).sample("run", "ab", chosen=[c], seed=1, length=4, count=2)
    expected = pipeline.continuations("abc", Sample(seed=1), copies=2, max_new=4)
    assert [one["text"] for one in answer["samples"]] == [one.text for one in expected]
    assert answer["prompt"] == "abc" and answer["chosen"] == [c]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"length": 0}, "length must be from 1 to 400, got 0"),
        ({"count": 99}, "count must be from 1 to 16, got 99"),
        ({"temperature": -1.0}, "temperature must be 0"),
        ({"chosen": [999]}, "999"),
    ],
)
def test_values_out_of_range_are_refused(play, arguments, words):
    with pytest.raises(ValueError, match=words):
        play(generator()).sample("run", "ab", **arguments)


def test_the_tree_is_the_trace_of_the_beam(play):
    pipeline, trace = generator(bigram), Trace()
    answer = play(pipeline).beam("run", "a", width=3, length_penalty=0.5, steps=5)
    (best,) = pipeline.generate(["a"], Beam(3, 0.5, 3, trace), max_new=5)
    nodes = answer["tree"]["data"]["nodes"][1:]  # the first is the prompt
    assert len(nodes) == len(trace.trees[0])
    for node, expected in zip(nodes, trace.trees[0], strict=True):
        assert node["token"] == TOKENIZER.text(expected.token) and node["step"] == expected.step
        assert node["score"] == pytest.approx(expected.score, rel=1e-5)
        assert node["parent"] == (0 if expected.parent is None else expected.parent + 1)
        assert node["kept"] == (expected.alive or expected.finished)
    results = [(one["text"], one["score"]) for one in answer["results"]]
    for (text, score), one in zip(results, best, strict=True):
        assert text == "a" + TOKENIZER.decode(one.ids) and score == pytest.approx(
            one.score, rel=1e-5
        )


def test_a_typed_beginning_is_kept_and_so_is_one_of_ids(play, translator):
    screen = play(translator)
    typed = screen.translate("run", "abc", prefix="pon", width=3)
    assert typed["text"].startswith("pon") and typed["prefix"] == "pon"
    assert screen.translate("run", "abc", prefix_ids=typed["prefix_ids"], width=3) == typed
    other = typed["alternatives"][3][1]
    again = screen.translate("run", "abc", prefix_ids=[*typed["ids"][:3], other[0]], width=3)
    assert again["tokens"][:4] == [*typed["tokens"][:3], other[1]]
    assert {one["kind"] for one in typed["figures"]} == {"ribbons", "heatmap"}
    plain = screen.translate("run", "abc")
    (best, *_) = translator.translate("abc", Beam(5, 1.0, 5))
    assert plain["text"] == best.text and plain["results"][0]["text"] == best.text
    with pytest.raises(UsageError, match="type a text to translate"):
        screen.translate("run", "")


def test_masks_are_filled_as_the_library_does(play, masked):
    answer = play(masked).fill("run", "ab<mask>c", candidates=3)
    (mask,) = masked.fill("ab<mask>c", num=3)
    assert answer["masks"] == [mask.to_json()] and mask.position == 3


def test_figures_hold_no_number_that_json_has_not(play):
    answer = play(generator(bigram)).sample("run", "a", length=3, count=1)
    numbers = np.array([p for step in answer["steps"] for p in step["before"]])
    assert np.isfinite(numbers).all() and math.isfinite(answer["samples"][0]["score"])
