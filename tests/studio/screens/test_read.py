"""The actions of the screen Read: what they answer is what the pipelines say."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.errors import UsageError, UserError
from regard.evaluation.eval_data import shard_of
from regard.layers.tap import Edit, Tap
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.studio.screens.read import Read
from regard.studio.wire import decode, encode
from regard.tokenizers import Characters
from regard.training.film import Film

TEXTS = ["abba", "cab", "bac<", "abc", "baab"]
TOKENIZER = Characters.train(TEXTS)
HEADS = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "dropout": 0.0}


class HeldOutGenerator(Generator):
    """A generator with held-out records."""

    def held_out(self, run=None):
        return "test", shard_of(TEXTS, self.tokenizer, kind="text" if self.text else "records")


def generator(**options):
    torch.manual_seed(0)
    config = dataclasses.replace(modern(2, 16), max_len=32, **HEADS, **options)
    return HeldOutGenerator(Decoder(TOKENIZER.vocab_size, config).eval(), TOKENIZER)


@pytest.fixture
def screen(tmp_path):
    """The screen over pipelines in memory."""
    torch.set_num_threads(1)
    text = generator()
    text.__dict__["text"] = True
    targets = Targets("label", ("kind",), (("high", "low"),))
    config = dataclasses.replace(
        EncoderModel.PRESETS["modern"](1, 16), max_len=12, task="label", n_outputs=2, **HEADS
    )
    classifier = Predictor(EncoderModel(TOKENIZER.vocab_size, config).eval(), TOKENIZER, targets)
    pipelines = {"names": generator(), "text": text, "kinds": classifier}
    results = {}

    def cached(key, make):
        if key not in results:
            results[key] = make()
        return results[key]

    opened = SimpleNamespace(pipeline=pipelines.__getitem__, cached=cached)
    opened.run, opened.version = lambda name: tmp_path / name, lambda name: name
    return Read(opened)


def test_a_run_says_what_it_reads_and_begins_with_a_familiar_record(screen):
    about = screen.open("names")
    assert about["reads"] == ["text"] and about["expects"]
    assert about["records"] == 5 and about["split"] == "test"
    assert about["text"] in TEXTS
    assert [layer["title"] for layer in about["layers"]] == ["layer 1", "layer 2"]
    steps = [screen.open(name)["step"] for name in ("names", "text", "kinds")]
    assert steps == [1, 0, 2]  # <S> predicts the first token, nothing does, it reads itself
    assert screen.open("kinds")["text"] == ""  # no data, no example
    json.dumps(about)


def test_records_are_numbered_and_running_text_is_one_of_them(screen):
    assert screen.record("names", 3) == {"number": 3, "text": "abc", "second": ""}
    assert screen.record("text", 0)["text"] == "abba"
    with pytest.raises(UserError, match="number must be from 0 to 4, got 5"):
        screen.record("names", 5)
    with pytest.raises(UserError, match="no held-out data"):
        screen.record("kinds", 0)


def test_bits_travel_as_arrays_and_are_those_of_score(screen):
    answer = decode(encode(screen.read("names", "abba")))
    log_probs = screen.opened.pipeline("names").score("abba")[1]
    np.testing.assert_allclose(answer["bits"], np.array(log_probs) / -math.log(2), atol=1e-4)
    assert answer["names"] == ["a", "b", "b", "a", "<E>"]
    assert answer["starts"].tolist() == [0, 1, 2, 3, 4]
    assert answer["ends"].tolist() == [1, 2, 3, 4, 4]
    part = screen.read("names", "abba", start=1, stop=3)
    assert (part["first"], part["names"], part["count"]) == (1, ["b", "b"], 5)


def test_places_are_those_of_javascript(screen):
    answer = screen.read("names", "a🧀b")
    assert list(zip(answer["starts"], answer["ends"], strict=True)) == [
        (0, 1),
        (1, 3),
        (3, 4),
        (4, 4),
    ]


def test_expected_tokens_can_be_inserted(screen):
    answer = screen.expect("names", "ab", 2)
    assert len(answer["tokens"]) == min(20, TOKENIZER.vocab_size)
    inserts = dict(zip(answer["tokens"], answer["inserts"], strict=True))
    assert inserts["a"] == "a" and inserts["<E>"] == ""
    assert (
        answer["remaining"] == TOKENIZER.vocab_size - 3
    )  # all but the markers that are never drawn
    assert screen.expect("names", "ab", 2, top_k=1)["remaining"] == 1
    with pytest.raises(UsageError, match="top_p must be above 0"):
        screen.expect("names", "ab", 2, top_p=0.0)
    assert screen.expect("text", "ab", 0)["tokens"] is None


def test_weights_of_a_position_and_their_tokens(screen):
    layer = "block.1.attention"
    answer = screen.attend("names", "abca", 2, layer=layer, head=1)
    tap = Tap([f"{layer}.weights"])
    pipeline = screen.opened.pipeline("names")
    pipeline.model.logits(torch.tensor([pipeline.prompt_ids("abca")]), tap=tap)
    row = tap.activations[f"{layer}.weights"][0, 1, 2].numpy()
    np.testing.assert_allclose(answer["weights"], row, atol=1e-6)
    assert answer["names"] == ["<S>", *"abca"] and answer["names_row"] == "c"
    assert screen.attend("text", "abca", 4)["names_row"] == ""  # no token: what follows the text
    mean = screen.attend("names", "abca", 2, layer=layer)["weights"]
    assert mean == pytest.approx(
        tap.activations[f"{layer}.weights"][0, :, 2].mean(0).numpy(), abs=1e-6
    )
    tile = screen.tile("names", "abca", 2, level=0, row=0, column=0, layer=layer, head=1)
    np.testing.assert_allclose(tile["greatest"][2], row, atol=1e-6)
    with pytest.raises(UsageError, match="level must be"):
        screen.tile("names", "abca", 2, level=3, row=0, column=0, layer=layer)


def test_effects_are_those_of_one_head_off_at_a_time(screen):
    pipeline, at = screen.opened.pipeline("names"), 3
    answer = screen.effects("names", "abcab", at)
    row, target = torch.tensor([pipeline.prompt_ids("abc")]), int(TOKENIZER.encode("a")[0])
    with torch.no_grad():
        whole = pipeline.model.logits(row)[0, -1].log_softmax(-1)[target]
        for layer in range(2):
            for head in range(2):
                edit = Edit.zero(f"block.{layer}.attention.heads", (slice(None), head))
                logits = pipeline.model.logits(row, tap=Tap(edits=[edit]))[0, -1]
                change = (logits.log_softmax(-1)[target] - whole) / math.log(2)
                effects = answer["effects"][f"block.{layer}.attention"]
                assert effects[head] == pytest.approx(float(change), abs=1e-5)


def test_the_lens_ends_with_what_the_model_expects(screen):
    rows = screen.lens("names", "abcab", 3)["rows"]
    assert [row["layer"] for row in rows] == ["embedding", "layer 1", "layer 2"]
    expected = screen.expect("names", "abcab", 3)
    (name, p), *_ = rows[-1]["outputs"]
    assert (name, p) == (expected["tokens"][0], pytest.approx(expected["probabilities"][0]))
    assert rows[-1]["bits"] == pytest.approx(
        float(screen.read("names", "abcab")["bits"][3]), abs=1e-4
    )


def test_patching_the_last_vector_restores_everything(screen):
    figure = screen.patch("names", "abcab", 3, "bacab")["figure"]
    shares = np.array(figure["data"]["values"]["list"]).reshape(figure["data"]["values"]["shape"])
    assert shares.shape == (2, 4)  # two blocks; <S> and three tokens
    assert shares[-1, -1] == pytest.approx(1, abs=1e-4)
    assert shares[-1, :-1] == pytest.approx(0, abs=1e-4)
    with pytest.raises(UserError, match="equally many tokens"):
        screen.patch("names", "abcab", 3, "b")


def test_a_film_is_that_of_the_run(screen, tmp_path):
    assert screen.film("names") == screen.film_map("names") == {"steps": None}
    (tmp_path / "names").mkdir()
    logs = torch.randn(3, 2, 4, 5).log_softmax(-1)
    film = Film(
        steps=torch.tensor([10, 20, 30]),
        records=torch.arange(2),
        ids=torch.tensor([[1, 4, 5, 2], [1, 4, 2, -1]], dtype=torch.int32),
        top_ids=torch.randint(0, 7, (3, 2, 4, 5), dtype=torch.int16),
        top_logs=logs,
        normalizers=torch.zeros(3, 2, 4),
        points=torch.zeros(3, 2, 2),
    )
    film.write(tmp_path / "names" / "film.safetensors")
    answer = decode(encode(screen.film("names", 1)))
    assert answer["steps"] == [10, 20, 30] and answer["records"] == 2
    assert answer["tokens"] == ["<S>", TOKENIZER.text(4), "<E>"]
    np.testing.assert_allclose(answer["logs"], logs[:, 1], atol=1e-6)
    np.testing.assert_array_equal(answer["top"], film.top_ids[:, 1])
    assert answer["truths"] == [4, 2, -1]  # what follows each token
    with pytest.raises(UserError, match="number must be from 0 to 1, got 2"):
        screen.film("names", 2)
    whole = decode(encode(screen.film_map("names")))
    assert whole["names"] == [TOKENIZER.text(4) + TOKENIZER.text(5), TOKENIZER.text(4)]
    assert whole["columns"]["tokens"]["values"].tolist() == [2, 1]
    assert whole["expected"] is None and whole["layers"] == []  # it predicts at each position


def test_a_classifier_answers_as_a_whole(screen):
    answer = screen.summary("kinds", "abba")
    kinds = [figure["kind"] for figure in answer["figures"]]
    assert kinds == ["answer"]
    assert answer["added"]["values"].shape == (4,)
    assert screen.expect("kinds", "abba", 1)["tokens"] is None
    assert "bits" not in screen.read("kinds", "abba")
    assert screen.summary("kinds", "")["figures"] == []


def test_heads_that_are_off_are_named_by_their_layer(screen):
    off = screen.read("names", "abba", off=["block.0.attention:0"])
    assert not np.allclose(off["bits"], screen.read("names", "abba")["bits"])
    with pytest.raises(UsageError, match="LAYER:HEAD"):
        screen.read("names", "abba", off=["<b>:0"])
