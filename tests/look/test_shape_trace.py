"""Shapes of all tensors: letters against sizes, the attention of each family, and no trace left."""

import re

import torch
from torch import nn

from regard.layers.embeddings import Inputs
from regard.look.shape_trace import Recorder, trace_shapes
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder import EncoderConfig, EncoderModel
from regard.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig
from regard.models.ngrams import Bigram
from regard.models.recurrent import LSTMModel
from regard.pipelines import PreparedInput

# Every size is different, so that a wrong letter fails.
SHAPE = {"n_layers": 2, "d_model": 48, "n_heads": 6, "d_head": 8, "d_ff": 68, "max_len": 40}


class Reader:
    """A pipeline that reads fixed tensors."""

    def __init__(self, model, tensors, run):
        self.model, self.prepared = model, PreparedInput(tensors, run)

    def prepare(self, item, target):
        return self.prepared


def value_of(letters, sizes):
    """Return the size that an axis in letters stands for."""
    product = 1
    text = letters.replace("(H+2G)", str(sizes.get("H", 0) + 2 * sizes.get("G", 0)) + "·")
    for factor in re.findall(r"[A-Z]|\d+", text):
        product *= sizes[factor] if factor.isalpha() else int(factor)
    return product


def check(trace):
    """Every axis is its letters' size, and the legend has every letter."""
    for row in trace.rows:
        assert [value_of(x, trace.sizes) for x in row.letters] == list(row.shape), row
    shown = {letter for row in trace.rows for x in row.letters for letter in re.findall("[A-Z]", x)}
    assert set(trace.used) == shown
    assert len(trace.table().rows) == len(trace.rows)


def letters_of(trace, end):
    return ["".join(row.letters) for row in trace.rows if row.name.endswith(end)]


def test_a_decoder_with_grouped_heads():
    model = Decoder(23, DecoderConfig(**SHAPE, n_kv_heads=3, feedforward="swiglu")).eval()
    ids = torch.randint(0, 23, (1, 9))
    trace = trace_shapes(Reader(model, {"ids": ids}, lambda tap: model.logits(ids, tap=tap)))
    check(trace)
    assert trace.sizes["G"] == 3 and trace.sizes["T"] == 9
    assert letters_of(trace, ".attention.weights") == ["BHTT"] * 2
    assert (
        letters_of(trace, "attention.q") == ["BHTK"] * 2 and letters_of(trace, ".k") == ["BGTK"] * 2
    )
    assert letters_of(trace, "gate_up") == ["BT2F"] * 2
    assert trace.rows[0].shape == (1, 9) and trace.rows[-1].letters == ("B", "T", "V")
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    page = trace.page("Shapes").render()
    assert "query positions" in page and "(B, H, T, T)" in page


def test_an_encoder_decoder_has_source_and_target_positions():
    config = EncoderDecoderConfig(**SHAPE, n_kv_heads=6, n_encoder_layers=1)
    model = EncoderDecoder(23, config).eval()
    source, ids = torch.randint(0, 23, (1, 13)), torch.randint(0, 23, (1, 7))
    conditioned = model.condition(Inputs(source, torch.ones_like(source)))

    def run(tap):
        conditioned.set_source(Inputs(source, torch.ones_like(source)), tap=tap)
        return conditioned.logits(ids, tap=tap)

    trace = trace_shapes(Reader(model, {"source": source, "ids": ids}, run))
    check(trace)
    assert letters_of(trace, "cross.weights") == ["BHTS"] * 2
    weights = letters_of(trace, "attention.weights")
    assert weights == ["BHSS", "BHTT", "BHTT"]
    assert letters_of(trace, "cross.kv") == ["BS2D"] * 2


def test_a_classifier_ends_in_its_outputs_and_counts_in_their_logits():
    config = EncoderConfig(**SHAPE, n_kv_heads=6, task="label", n_outputs=4)
    model = EncoderModel(23, config).eval()
    ids = torch.randint(0, 23, (1, 8))
    source = Inputs(ids, torch.ones_like(ids))
    trace = trace_shapes(Reader(model, {"ids": ids}, lambda tap: model.predict(source, tap=tap)))
    check(trace)
    assert trace.rows[-1].letters == ("B", "O") and trace.rows[-1].name == "head"
    bigram = Bigram(23, Bigram.Config())
    trace = trace_shapes(Reader(bigram, {"ids": ids}, lambda tap: bigram.logits(ids, tap=tap)))
    check(trace)
    assert ["".join(row.letters) for row in trace.rows] == ["BT", "BTV"]


def test_a_recurrent_model_and_a_size_without_a_letter():
    model = LSTMModel(23, LSTMModel.Config(d_model=48, n_layers=1, max_len=40)).eval()
    ids = torch.randint(0, 23, (1, 8))
    trace = trace_shapes(Reader(model, {"ids": ids}, lambda tap: model.logits(ids, tap=tap)))
    check(trace)
    assert "BTD" in letters_of(trace, "cells.cells")
    recorder = Recorder(nn.Linear(3, 4))
    recorder.add("x", "test", (2, 77), ["B", "D"])
    assert recorder.trace.rows[0].letters == ("2", "77")  # a letter of another size gives way
