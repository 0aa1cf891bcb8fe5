"""The parts of pipelines: what a page shows of a model, and the input that it starts with."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.data.inputs import quiet
from regard.errors import UserError
from regard.live.parts import LivePart, assets
from regard.look.internals import read_given
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor

SHOWN = 24  # tokens of running text that a page starts with,
SHOWN_CHARACTERS = 200  # or characters, of a file


def writing_part(pipeline: Generator, text: str) -> LivePart:
    """Return the screen of a text that is read as it is typed: surprise, what follows, samples."""
    tokenizer, model = pipeline.tokenizer, pipeline.model
    note = ""
    if pipeline.forbidden is not None:
        note = "This run forbids some transitions; the page shows the model without that rule."
    config = {
        "start": given(text, running=pipeline.text) or example(pipeline),
        "begin": pipeline.beginning,
        "end": tokenizer.end,
        "banned": [i for i in tokenizer.never_produced(model.vocab_size) if i < model.vocab_size],
        "continues": pipeline.text,
        "note": note,
    }
    return LivePart("writing", config, assets("writing"))


def given(text: str, *, running: bool = False) -> str:
    """Return the text, or the beginning of the file that it names."""
    return read_given(text, running=running, most=SHOWN_CHARACTERS, log=quiet)


def example(pipeline: Generator) -> str:
    """Return a held-out text to start with; none if the run holds no data."""
    try:
        return pipeline.example(SHOWN)
    except UserError:
        return ""


def prediction_part(pipeline: Predictor, text: str) -> LivePart:
    """Return the screen of a text or a drawing, and of the probabilities of its classes."""
    output, tokenizer = pipeline.model.output, pipeline.tokenizer
    if output.positional or output.scaled:
        raise UserError(
            "live pages predict a class or labels of a whole input, and this model "
            f"{'labels positions' if output.positional else 'predicts values'}; regard look "
            "without --live shows it"
        )
    if len(pipeline.reader.inputs) > 1:
        raise UserError("live pages read one input, and this model pairs of texts")
    before, after = tokenizer.markers
    note = ""
    if pipeline.views is not None:
        note = (
            "regard predict averages over the views of an input, such as the strands of DNA; the "
            "page reads it as it stands."
        )
    config = {
        "start": started(pipeline, text),
        "classes": list(
            pipeline.targets.names if output.multilabel else pipeline.targets.classes[0]
        ),
        "link": "sigmoid" if output.multilabel else "softmax",
        "begin": [tokenizer.start] * before,
        "finish": [tokenizer.end] * after,
        "most": tokenizer.content_limit(int(pipeline.model.config.max_len)),
        "note": note,
    }
    return LivePart("prediction", config, assets("prediction"))


def started(pipeline: Predictor, text: str) -> Any:
    """Return the text, or the pixels of the image that it names; without it a held-out record, or
    nothing if the run holds no data.
    """
    tokenizer = pipeline.tokenizer
    if text:
        text = given(text) if tokenizer.reads_text else text
        (item,) = pipeline.modality.open_all([text], tokenizer)
    else:
        try:
            item = tokenizer.decode_record(pipeline.held_out()[1].record(0))
        except UserError:
            return ""
    return item.ravel().tolist() if isinstance(item, np.ndarray) else item
