"""What tests of several folders look at: a small translator of letters."""

from __future__ import annotations

import dataclasses

import pytest


@pytest.fixture
def translator(letters):
    """A small translator of letters; so small that a second thread is only waited for."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield letters
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def letters():
    """A random translator that looks hard at its source and is sure of what it says."""
    import torch

    from regard.models.encoder_decoder import EncoderDecoder, modern
    from regard.pipelines.translator import Translator as Interpreter
    from regard.registry import TOKENIZERS

    tokenizer = TOKENIZERS["characters"].train(["abcdefghij klmnop."])
    torch.manual_seed(1)
    config = dataclasses.replace(modern(2, 32), n_heads=2, n_kv_heads=2, d_head=8, dropout=0.0)
    config = dataclasses.replace(config, tied=False, max_len=16)
    model = EncoderDecoder(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        model.head.weight *= 5
        for block in model.decoder.blocks:
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return Interpreter(model, tokenizer)
