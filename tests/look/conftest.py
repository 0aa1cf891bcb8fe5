"""The command, run in this process, small predictors, and one that has learned a planted motif."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from regard import cli
from regard.data.targets import Targets
from regard.layers.embeddings import Inputs
from regard.look.prediction_page import prediction_page
from regard.models.convolution import ConvolutionalClassifier
from regard.models.encoder import EncoderModel
from regard.pipelines.predictor import Predictor
from regard.registry import TOKENIZERS

MOTIF = "TATAAT"
TEXTS = ["acca", "bab", "cabb", "abcabc", "b", "ccc", "bacab", "aabbcc", "cb", "abba", "ca", "bca"]
TARGETS = {
    "label": Targets("label", ("kind",), (("high", "low", "middle"),)),
    "labels": Targets("labels", ("has_a", "has_b"), (("0", "1"), ("0", "1"))),
    "value": Targets("value", ("share",)),
    "position-label": Targets("position-label", ("where",), (("X", "Y", "Z"),)),
}


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def look():
    """Run `regard look ARGUMENTS`."""
    if not cli.app.registered_commands:  # all of them: other tests in this process find them filled
        cli._fill()
    return lambda *arguments: CliRunner().invoke(cli.app, ["look", *map(str, arguments)])


def planted(count, random):
    """Random DNA, TATAAT somewhere in every other sequence, and where it is."""
    texts, starts = [], []
    for i in range(count):
        text = "".join(random.choice(list("ACGT"), 30))
        at = int(random.integers(0, 25))
        if i % 2:
            text = text[:at] + MOTIF + text[at + 6 :]
        texts.append(text)
        starts.append(at)
    return texts, starts


@pytest.fixture(scope="session")
def motif_filters():
    """Filters trained on a planted motif, and held-out records with its positions."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    tokenizer = TOKENIZERS["nucleotides"].train(["ACGT"])
    config = dataclasses.replace(ConvolutionalClassifier.PRESETS["motifs"](1, 32), n_outputs=2)
    model = ConvolutionalClassifier(tokenizer.vocab_size, dataclasses.replace(config, max_len=32))
    predictor = Predictor(model, tokenizer, Targets("label", ("motif",), (("no", "yes"),)))
    texts, _ = planted(800, random)
    shard = predictor.shard(texts)
    ids = torch.from_numpy(np.asarray(shard.ids).astype(np.int64)).view(800, 32)
    truths = torch.arange(800) % 2
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(150):
        rows = torch.arange(step * 64, step * 64 + 64) * 7 % 800
        scores = model(Inputs(ids[rows], torch.ones_like(ids[rows])))
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, truths[rows]).backward()
        optimizer.step()
    torch.set_num_threads(threads)
    return predictor, *planted(120, random)


@pytest.fixture(scope="session")
def make_predictor():
    """Makes a small random predictor of a task."""

    def make(task="label", family=EncoderModel, texts=TEXTS, kind="characters", **options):
        torch.manual_seed(0)
        tokenizer, targets = TOKENIZERS[kind].train(texts), TARGETS[task]
        shape = {"task": task, "n_outputs": targets.n_outputs, "max_len": 12, "dropout": 0.1}
        if family is EncoderModel:
            shape |= {"n_heads": 2, "n_kv_heads": 2, "d_head": 4}
        preset = next(iter(family.PRESETS.values()))
        config = dataclasses.replace(preset(2, 16), **shape | options)
        model = family(tokenizer.vocab_size, config).eval()
        with torch.no_grad():
            model.head.weight *= 4
        return Predictor(model, tokenizer, targets)

    return make


@pytest.fixture(scope="session")
def held_out():
    """Returns texts with made-up targets, one of them unknown, as the test split."""

    def label(predictor, texts=TEXTS):
        shard, random = predictor.shard(texts), np.random.default_rng(0)
        kind, shape = predictor.targets.kind, shard.targets.shape
        if not kind.categorical:
            values = random.normal(size=shape).astype(np.float32)
            values[0] = np.nan
        else:
            classes = len(predictor.targets.classes[0])
            values = random.integers(0, classes, shape).astype(shard.targets.dtype)
            if kind.aligned:
                values[shard.offsets[:-1]] = values[shard.offsets[1:] - 1] = -1  # the markers
            values[0] = -1
        return "test", dataclasses.replace(shard, targets=values)

    return label


@pytest.fixture(scope="session")
def view(held_out):
    """Returns the page of a predictor about a text and held-out records."""

    def page(predictor, text="cabba", **options):
        options = {"held_out": held_out(predictor)} | options
        return prediction_page(predictor, text, title="a view", **options)

    return page
