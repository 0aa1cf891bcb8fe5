"""The base class of featurizers: images and point clouds become tokens that are numbers.

A token of text is one of V ids; a token of a featurizer is V numbers: where it is, and what is
there. A record is `<S>`, which is zeros, and the tokens. Shards, batches and training only know
that tokens are V numbers each.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from regard.tokenizers.tokenizer import SPECIALS, Document, Ids, Tokenizer, read_json


class Featurizer(Tokenizer):
    """Maps an item that is no text to tokens of `vocab_size` numbers.

    It is saved as Hugging Face's preprocessor_config.json.
    """

    file: ClassVar[str] = "preprocessor_config.json"
    markers: ClassVar[tuple[int, int]] = (1, 0)
    cuttable: ClassVar[bool] = False
    reads_text: ClassVar[bool] = False

    def __init__(self, width: int, dtype: type[Any]) -> None:
        """`width` is V, the numbers of a token; call it after the settings are set."""
        super().__init__([b""] * len(SPECIALS))
        self.raw = [json.dumps(self.document(), sort_keys=True).encode()]  # compared by `equals`
        self.vocab_size, self.dtype = width, np.dtype(dtype)

    @abstractmethod
    def document(self) -> Document:
        """Return the contents of preprocessor_config.json."""

    @abstractmethod
    def sample_items(self, count: int) -> list[Any]:
        """Return made-up items of different sizes."""

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.document(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the featurizer of a preprocessor_config.json; UserError if it is damaged."""
        return cls.from_document(read_json(path)[1], str(path))

    def text(self, id: int) -> str:
        return f"{id}"

    def content(self, record: Ids) -> Ids:
        return record  # encoding adds `<S>` itself

    def record_round_trip(self, record: Ids) -> bool:
        return bool(np.array_equal(self.encode(self.decode_record(record)), record))

    def sample_records(self, lengths: Sequence[int]) -> list[Ids]:
        return [self.encode(item) for item in self.sample_items(len(lengths))]
