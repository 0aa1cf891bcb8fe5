"""Discrete tokenizers: characters, bytes, words, byte-pair encoding, and other people's."""

from regard.tokens.bpe import BPE
from regard.tokens.bytes_ import Bytes
from regard.tokens.characters import Characters
from regard.tokens.loading import KINDS, load
from regard.tokens.pretrained import Pretrained
from regard.tokens.tokenizer import Tokenizer
from regard.tokens.words import Words

__all__ = ["BPE", "KINDS", "Bytes", "Characters", "Pretrained", "Tokenizer", "Words", "load"]
