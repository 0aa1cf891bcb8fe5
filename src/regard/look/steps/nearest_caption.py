"""Steps through the captioner that repeats the caption of the nearest training image."""

from __future__ import annotations

from typing import Any, cast

import torch

from regard.layers.embeddings import Inputs
from regard.look.steps.counting import order_steps
from regard.look.steps.operations import Apply, Combine, SquaredDistance
from regard.look.steps.outputs import sampling_steps, vocabulary
from regard.look.steps.subject import StepSubject, register_steps
from regard.models.nearest_caption import NearestCaptioner

NEAREST = 5  # training images that are shown


@register_steps(NearestCaptioner)
def nearest_steps(subject: StepSubject) -> None:
    """Compare an image with those of training, and repeat a word of the nearest one's caption."""
    model, source = cast(NearestCaptioner, subject.model), subject.tensors["source"]
    ids, words, tokenizer = subject.tensors["ids"], vocabulary(subject), subject.pipeline.tokenizer
    t = subject.start(subject.token_names(ids))
    inputs = Inputs(source, torch.ones(source.shape[:2], dtype=torch.int64))
    pixels = model.pixels(inputs)[0]
    squares = ((model.images.double() - pixels.double()) ** 2).sum(1)
    first = int(model.nearest(inputs)[0])
    order = squares.argsort(stable=True).tolist()
    order = [first, *(i for i in order[:NEAREST] if i != first)][:NEAREST]
    rows = [[word for word in model.captions[i].tolist() if word != tokenizer.end] for i in order]
    captions = [tokenizer.decode(row) for row in rows]
    with t.level("Nearest image") as inner:
        x = inner.given("Pixels", pixels, shown=True, formula="bytes, resized to those of training")
        images = inner.given("training images", model.images[order].float(), rows=captions)
        count = len(model.images)
        formula = f"|x − image|², of the nearest of {count:,} training images: the least wins"
        inner.step("Distances", SquaredDistance(), x, images, formula=formula, columns=captions)
    with t.level("Bigram") as inner:
        p = order_steps(inner, model.bigram, ids, words, t.position)
    caption = model.captions[first]
    word = int(caption[min(t.position, len(caption) - 1)])
    sure = float(model.config.sure)
    repeated = torch.zeros(len(words), dtype=torch.float64)
    repeated[word] = 1
    columns: dict[str, Any] = {"columns": words}
    with t.level("Output") as inner:
        formula = "1 for the word at this place of the caption of the nearest image"
        one = inner.given("Repeated word", repeated, shown=True, formula=formula, **columns)
        how = Combine((sure, 1 - sure), ("sure", "1 − sure"))
        formula = f"sure · repeated + (1 − sure) · bigram, sure = {sure:g}"
        x = inner.step("Probabilities", how, one, p, formula=formula, **columns)
        known: dict[str, Any] = {"measured": subject.output[0, t.position], "formula": "zᵢ = ln pᵢ"}
        logits = inner.step("Logits", Apply("log"), x, **known, **columns)
    sampling_steps(t, logits, words)
