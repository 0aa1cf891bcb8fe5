"""One token per UTF-8 byte: nothing to learn, nothing unknown, any language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

import numpy as np

from regard.errors import UsageError, UserError
from regard.tokens.byte_alphabet import ALPHABET
from regard.tokens.tokenizer import (
    SPECIALS,
    Document,
    Ids,
    OwnTokenizer,
    filled,
    layout,
    learned_tokens,
    surrogate_error,
)

# What byte-level BPE files have in common: tokens spelt in the byte alphabet.
BYTE_LEVEL_MODEL: Document = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
BYTE_LEVEL: Document = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


class Bytes(OwnTokenizer):
    """Byte b of the UTF-8 text is token 4 + b."""

    kind: ClassVar[str] = "bytes"
    layout: ClassVar[Document] = layout(
        model=BYTE_LEVEL_MODEL,
        pre_tokenizer={**BYTE_LEVEL, "use_regex": False},
        decoder={**BYTE_LEVEL, "use_regex": False},
    )

    def __init__(self) -> None:
        super().__init__([b"", b"", b"", b"<unk>", *(bytes([byte]) for byte in range(256))])

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """There is nothing to learn: `texts` are not read, and `size` is what it is."""
        whole = len(SPECIALS) + 256
        if size not in (0, whole):
            raise UsageError(
                f"tokens.size must be {whole} for bytes, or 0 for the default; got {size}"
            )
        return cls()

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        try:
            parts = [text.encode() for text in texts]
        except UnicodeEncodeError as error:
            raise surrogate_error(texts) from error
        lengths = np.array([len(part) for part in parts], dtype=np.int64)  # (R,)
        flat = np.frombuffer(b"".join(parts), dtype=np.uint8)
        return np.add(flat, len(SPECIALS), dtype=self.dtype), lengths

    def cut(self, text: str) -> int:
        """Anywhere."""
        return len(text)

    def document(self) -> Document:
        """See Tokenizer."""
        return filled(self.layout, ALPHABET, merges=[])

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """See Tokenizer."""
        if (
            learned_tokens(document, name) != list(ALPHABET)
            or document["model"].get("merges") != []
        ):
            raise UserError(
                f"{name}: damaged: a bytes vocabulary is the 256 bytes in order, unmerged"
            )
        return cls()
