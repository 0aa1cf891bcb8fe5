"""A tokenizer somebody else trained: any tokenizer.json, kept byte for byte.

Which of its tokens begin, end and pad a record is not said in tokenizer.json but beside it, in
tokenizer_config.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import tokenizers

from regard.errors import UsageError, UserError
from regard.tokenizers.characters import token_bytes
from regard.tokenizers.tokenizer import (
    Document,
    Ids,
    Tokenizer,
    blaming,
    check_unicode,
    encode_all,
    open_tokenizer,
    read_document,
    read_json,
    words_of,
)

CONFIG = "tokenizer_config.json"
MAX_VOCAB = 1 << 22  # sixteen times the largest published vocabularies
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # how vocabularies with byte fallback spell a byte
ROLES = {"start": "bos_token", "end": "eos_token", "pad": "pad_token", "unk": "unk_token"}
# What begins and ends a record: decoders name the first token, encoders such as BERT the second.
STARTS, ENDS = ("bos_token", "cls_token"), ("eos_token", "sep_token")


class Pretrained(Tokenizer):
    """Wraps a foreign tokenizer.json; ids are its own, and several specials may share one.

    Specials written out in a text stay text, but for Unigram vocabularies that list them as pieces.
    """

    kind: ClassVar[str] = "pretrained"

    def __init__(
        self,
        source: bytes,
        *,
        start: int | str,
        end: int | str,
        pad: int | str | None = None,
        unk: int | str | None = None,
        config: Document | None = None,
        name: str = "tokenizer.json",
    ) -> None:
        """`source` is the file's contents, `name` its name in errors.

        A special is an id or a token of that vocabulary; pad and unk fall back to end.
        `config` is the tokenizer_config.json to save beside it; without it, one is made that names
        the four specials.
        """
        self.source, self.name = source, name
        with blaming(name):
            text = source.decode("utf-8")
            document = json.loads(text)
        self._model = open_tokenizer(text, name)
        spelt = _spelt(self._model, name)
        given = {"end": end, "start": start, "pad": pad, "unk": unk}
        ids = {
            role: _special(role, end if token is None else token, spelt, name)
            for role, token in given.items()
        }
        with blaming(name):
            raw = _raw(self._model, document, spelt)
        added = self._model.get_added_tokens_decoder()
        names = {id: token.content for id, token in added.items() if token.special}
        names |= {id: spelt[id] for id in ids.values()}
        super().__init__(raw, names, **ids)
        self.config = config or {ROLES[role]: spelt[id] for role, id in ids.items()}
        self._silent = names.keys() - {self.unk} | {self.start, self.end, self.pad}  # leave no text

    @property
    def mask(self) -> int:
        """Its own mask, where it has one; see Tokenizer."""
        own = _named(self.config, ("mask_token",), Path(self.name))
        found = None if own is None else self._model.token_to_id(own)
        return self.pad if found is None else found

    @property
    def beginning(self) -> list[int]:
        """What its own post-processor puts before a text: `<s>` in Llama's, nothing in Qwen's."""
        encoding = self._model.encode("a")
        inside = encoding.special_tokens_mask.index(0) if 0 in encoding.special_tokens_mask else 0
        found: list[int] = encoding.ids[:inside]
        return found

    @classmethod
    def from_folder(cls, folder: str | Path) -> Self:
        """The tokenizer of a Hugging Face folder: see from_file."""
        return cls.from_file(Path(folder) / "tokenizer.json")

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """A foreign tokenizer.json with its tokenizer_config.json beside it."""
        source = read_document(path)[0]
        beside = Path(path).with_name(CONFIG)
        if not beside.is_file():
            raise UserError(
                f"{path}: not written by regard, and there is no {CONFIG} beside it to say which "
                "tokens begin and end a record (bos_token, eos_token)"
            )
        config = read_json(beside)[1]
        end = _named(config, ENDS, beside)
        if end is None:
            raise UserError(f"{beside}: must name the token that ends a record, eos_token")
        return cls(
            source,
            start=_named(config, STARTS, beside) or end,
            end=end,
            pad=_named(config, ("pad_token",), beside),
            unk=_named(config, ("unk_token",), beside),
            config=config,
            name=str(path),
        )

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """A pretrained tokenizer is taken as it is: always a UsageError."""
        raise UsageError(
            "tokens.kind pretrained cannot be trained; choose another, such as characters or bpe"
        )

    def normalized(self, text: str) -> str:
        """A text as its normalizer leaves it, in lower case for example, before it is cut."""
        with blaming(self.name):
            normalizer = self._model.normalizer
            return text if normalizer is None else str(normalizer.normalize_str(text))

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """See Tokenizer."""
        check_unicode(texts)
        return encode_all(self._model, texts, self.dtype, self.name)

    def word_spans(self, text: str) -> list[tuple[int, int, int]]:
        """See Tokenizer."""
        return words_of(self._model, text, self.name)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """See Tokenizer; spaces between words are put back as the foreign tokenizer does it."""
        kept = [id for id in self.checked(ids) if id not in self._silent]
        with blaming(self.name):
            text: str = self._model.decode(kept, skip_special_tokens=False)
        return text

    def save(self, path: str | Path) -> None:
        """Write the original file at `path`, and beside it the tokenizer_config.json it needs."""
        Path(path).write_bytes(self.source)
        config = json.dumps(self.config, ensure_ascii=False, indent=2)
        Path(path).with_name(CONFIG).write_text(config + "\n", encoding="utf-8")


def _spelt(model: tokenizers.Tokenizer, name: str) -> list[str]:
    """Each id's token as the file spells it; "" for the ids that a file may skip."""
    vocab = model.get_vocab(with_added_tokens=True)
    size = max(vocab.values(), default=-1) + 1
    if not 0 < size <= MAX_VOCAB:
        raise UserError(f"{name}: ids must be from 0 to {MAX_VOCAB - 1}, got up to {size - 1}")
    spelt = [""] * size
    for token, id in vocab.items():
        spelt[id] = token
    return spelt


def _raw(model: tokenizers.Tokenizer, document: Document, spelt: Sequence[str]) -> list[bytes]:
    """The UTF-8 bytes each token stands for in the middle of a text."""
    added = model.get_added_tokens_decoder()
    if _has_byte_level(document.get("decoder")):
        return [
            (None if id in added else token_bytes(token)) or token.encode()
            for id, token in enumerate(spelt)
        ]
    # Many decoders drop the space before the first token: take what repeating a token adds.
    known = [id for id, token in enumerate(spelt) if token]
    alone = model.decode_batch([[id] for id in known], skip_special_tokens=False)
    twice = model.decode_batch([[id, id] for id in known], skip_special_tokens=False)
    raw = [b""] * len(spelt)
    for id, one, two in zip(known, alone, twice, strict=True):
        byte = BYTE_TOKEN.fullmatch(spelt[id]) if document["model"].get("byte_fallback") else None
        raw[id] = bytes.fromhex(byte[1]) if byte else two[len(one) :].encode()
    return raw


def _has_byte_level(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    return part.get("type") == "ByteLevel" or any(map(_has_byte_level, part.get("decoders", [])))


def _special(role: str, token: int | str, spelt: Sequence[str], name: str) -> int:
    """The id of a special given as an id or as a token."""
    if isinstance(token, int) and 0 <= token < len(spelt):
        return token
    if isinstance(token, str) and token in spelt:
        return spelt.index(token)
    raise UserError(
        f"{name}: the {role} token must be in the vocabulary (ids 0 to {len(spelt) - 1}), "
        f"got {token!r}"
    )


def _named(config: Document, roles: Sequence[str], path: Path) -> str | None:
    """The token that fills the first of these roles that tokenizer_config.json fills, if any."""
    for role in roles:
        token = config.get(role)
        if isinstance(token, dict):
            token = token.get("content")
        if token is None:
            continue
        if not isinstance(token, str) or not token:
            raise UserError(f"{path}: {role} must be a token, got {token!r}")
        return token
    return None
