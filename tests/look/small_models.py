"""Small language models of five records, which tests of several pages use."""

from __future__ import annotations

import torch

from regard.evaluation.eval_data import shard_of
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.ngrams import Bigram, CountConfig
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.tokenizers import Characters

RECORDS = ["abba", "cab", "bac", "abc", "baab"]


TOKENIZER = Characters.train(RECORDS)


def decoder(vocab_size=TOKENIZER.vocab_size, **options):
    torch.manual_seed(0)
    shape = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}
    return Decoder(vocab_size, DecoderConfig(**shape | {"max_len": 11} | options)).eval()


def lstm(vocab_size=TOKENIZER.vocab_size, **options):
    torch.manual_seed(0)
    return LSTMModel(vocab_size, RecurrentConfig(**{"n_layers": 2, "d_model": 7} | options)).eval()


def bigram(tokenizer=TOKENIZER, records=RECORDS):
    model = Bigram(tokenizer.vocab_size, CountConfig())
    model.fit(shard_of(records, tokenizer), None, print)
    return model


def record(text, tokenizer=TOKENIZER):
    return [tokenizer.start, *tokenizer.encode(text).tolist()]
