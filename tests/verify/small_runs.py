"""Small run folders to verify, and what a report says of them."""

import dataclasses

import torch

from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder_decoder import EncoderDecoder, modern
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters

LETTERS = "abcdefg"
SIZES = {"n_layers": 2, "d_model": 24, "n_heads": 6, "n_kv_heads": 3, "d_head": 4, "d_ff": 40}


def save(folder, name, model, tokenizer=None):
    """A run folder of a model with random weights, without recipe and data."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights(model))
    (tokenizer or Characters(LETTERS)).save(folder / "tokenizer.json")
    return folder


def decoder(folder, vocab_size=11, **options):
    torch.manual_seed(5)
    model = Decoder(vocab_size, DecoderConfig(**{**SIZES, "max_len": 20, **options}))
    return save(folder, "transformer", model)


def lstm(folder):
    torch.manual_seed(6)
    config = RecurrentConfig(n_layers=2, d_model=9, max_len=17)
    return save(folder, "lstm", LSTMModel(11, config))


def translator(folder):
    torch.manual_seed(7)
    config = dataclasses.replace(modern(2, 24), n_heads=2, n_kv_heads=2, d_head=8, max_len=20)
    model = EncoderDecoder(11, dataclasses.replace(config, dropout=0.0, tied=False))
    with torch.no_grad():
        for block in model.decoder.blocks:  # so that targets depend on the source
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return save(folder, "transformer", model)


def names(report):
    return {check.name for check in report.checks}


def failed(report):
    return {check.name for check in report.checks if not check.ok}


def detail(report, name):
    (text,) = (check.detail for check in report.checks if check.name == name)
    return text


def wrap(monkeypatch, owner, name, change):
    """Replace a method by `change(its result, self, its arguments...)`."""
    original = getattr(owner, name)

    def changed(self, *arguments, **options):
        return change(original(self, *arguments, **options), self, *arguments)

    monkeypatch.setattr(owner, name, changed)
