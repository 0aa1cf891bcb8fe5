"""Opening a tokenizer.json, whoever wrote it."""

from __future__ import annotations

from pathlib import Path

from regard.tokens.bpe import BPE
from regard.tokens.bytes_ import Bytes
from regard.tokens.characters import Characters
from regard.tokens.pretrained import Pretrained
from regard.tokens.tokenizer import OwnTokenizer, Tokenizer, read_document
from regard.tokens.words import Words

# The kinds that can be trained, by their name in recipes.
KINDS: dict[str, type[OwnTokenizer]] = {kind.kind: kind for kind in (Characters, Bytes, Words, BPE)}


def load(path: str | Path) -> Tokenizer:
    """The tokenizer saved at `path`: one of ours, known by its structure, or else a Pretrained one.

    A foreign file needs its tokenizer_config.json beside it. A damaged, unknown or huge file is a
    UserError.
    """
    document = read_document(path)[1]
    for kind in KINDS.values():
        if kind.recognises(document):
            return kind.from_document(document, str(path))
    return Pretrained.from_file(path)
