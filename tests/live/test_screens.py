"""What a page shows of a pipeline: its input to start with, its classes, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from regard.data.targets import Targets
from regard.errors import UserError
from regard.live.parts import live_part
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel
from regard.models.encoder import modern as modern_encoder
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abc"])


def predictor(task, targets, outputs):
    config = dataclasses.replace(modern_encoder(1, 32), task=task, n_outputs=outputs, max_len=9)
    return Predictor(EncoderModel(TOKENIZER.vocab_size, config), TOKENIZER, targets)


def test_a_language_model_starts_with_the_text_and_never_draws_markers():
    pipeline = Generator(Decoder(TOKENIZER.vocab_size, modern(1, 32)), TOKENIZER)
    config = live_part(pipeline, "cab").config
    assert (config["start"], config["begin"]) == ("cab", [TOKENIZER.start])
    assert config["banned"] == [TOKENIZER.pad, TOKENIZER.start, TOKENIZER.unk]
    assert live_part(pipeline, "").config["start"] == ""  # it holds no data to choose from


def test_a_classifier_names_its_classes_and_how_much_it_reads():
    part = live_part(predictor("label", Targets("label", ("y",), (("no", "yes"),)), 2), "ab")
    assert (part.config["classes"], part.config["link"]) == (["no", "yes"], "softmax")
    assert part.config["most"] == 7  # with <S> and <E>, nine


def test_several_labels_are_each_present_or_absent():
    classes = (("0", "1"), ("0", "1"))
    part = live_part(predictor("labels", Targets("labels", ("red", "blue"), classes), 2), "ab")
    assert (part.config["classes"], part.config["link"]) == (["red", "blue"], "sigmoid")


@pytest.mark.parametrize(
    ("task", "what"), [("value", "predicts values"), ("position-label", "labels positions")]
)
def test_values_and_labels_of_positions_are_refused(task, what):
    targets = Targets(task, ("y",), (("a", "b"),))
    with pytest.raises(UserError, match=f"this model {what}; regard look without --live"):
        live_part(predictor(task, targets, 2), "ab")
