"""Tokenizers that others trained: any tokenizer.json, saved again byte for byte.

The file next to it, tokenizer_config.json, names the tokens that begin, end and pad a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import tokenizers

from regard.errors import UsageError, UserError
from regard.tokenizers.text import token_bytes
from regard.tokenizers.tokenizer import (
    Document,
    Ids,
    Tokenizer,
    check_unicode,
    encode_all,
    find_words,
    library_errors,
    open_tokenizer,
    read_document,
    read_json,
)

CONFIG = "tokenizer_config.json"
MAX_VOCAB = 1 << 22  # sixteen times the largest published vocabularies
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # how vocabularies with byte fallback spell a byte
ROLES = {"start": "bos_token", "end": "eos_token", "pad": "pad_token", "unk": "unk_token"}
# What begins and ends a record: decoders name the first token, encoders such as BERT the second.
STARTS, ENDS = ("bos_token", "cls_token"), ("eos_token", "sep_token")


class Pretrained(Tokenizer):
    """Wraps a foreign tokenizer.json with its ids; several specials may share one.

    Literal specials in a text stay text, except for Unigram vocabularies that list them as pieces.
    """

    name = "pretrained"
    padded_vocab = True  # published models round their vocabulary up

    def __init__(
        self,
        source: bytes,
        *,
        start: int | str,
        end: int | str,
        pad: int | str | None = None,
        unk: int | str | None = None,
        config: Document | None = None,
        path: str = "tokenizer.json",
    ) -> None:
        """`source` is the file's contents, `path` its name in error messages.

        A special is an id or a token of that vocabulary; pad and unk fall back to end. `config` is
        the tokenizer_config.json to save with it; the default names the four specials.
        """
        self.source, self.path = source, path
        with library_errors(path):
            text = source.decode("utf-8")
            document = json.loads(text)
        self._model = open_tokenizer(text, path)
        tokens = _tokens(self._model, path)
        specials = {"end": end, "start": start, "pad": pad, "unk": unk}
        ids = {
            role: _special_id(role, end if token is None else token, tokens, path)
            for role, token in specials.items()
        }
        with library_errors(path):
            raw = _raw(self._model, document, tokens)
        added = self._model.get_added_tokens_decoder()
        names = {id: token.content for id, token in added.items() if token.special}
        names |= {id: tokens[id] for id in ids.values()}
        super().__init__(raw, names, **ids)
        self.config = config or {ROLES[role]: tokens[id] for role, id in ids.items()}
        # ids that leave no text
        self._silent = names.keys() - {self.unk} | {self.start, self.end, self.pad}

    def with_start(self, start: int) -> Pretrained:
        """Return the same tokenizer with another id for `<S>`: the token that starts a target,
        often `pad`, has no key in tokenizer_config.json.
        """
        other = Pretrained(
            self.source, start=start, end=self.end, pad=self.pad, unk=self.unk, path=self.path
        )
        other.config = {**self.config, **other.config}
        return other

    @property
    def mask(self) -> int:
        """The tokenizer's mask token, or `<pad>` if it has none."""
        token = _first_role(self.config, ("mask_token",), self.path)
        id = None if token is None else self._model.token_to_id(token)
        return self.pad if id is None else id

    @property
    def beginning(self) -> list[int]:
        """What its post-processor puts before a text: `<s>` in Llama's, nothing in Qwen's."""
        encoding = self._model.encode("a")
        length = encoding.special_tokens_mask.index(0) if 0 in encoding.special_tokens_mask else 0
        ids: list[int] = encoding.ids[:length]
        return ids

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """Return the tokenizer of a tokenizer.json and the tokenizer_config.json next to it."""
        source = read_document(path)[0]
        config_path = Path(path).with_name(CONFIG)
        if not config_path.is_file():
            raise UserError(
                f"{path}: not written by regard, and there is no {CONFIG} beside it to say which "
                "tokens begin and end a record (bos_token, eos_token)"
            )
        config = read_json(config_path)[1]
        end = _first_role(config, ENDS, config_path)
        if end is None:
            raise UserError(f"{config_path}: must name the token that ends a record, eos_token")
        return cls(
            source,
            start=_first_role(config, STARTS, config_path) or end,
            end=end,
            pad=_first_role(config, ("pad_token",), config_path),
            unk=_first_role(config, ("unk_token",), config_path),
            config=config,
            path=str(path),
        )

    @classmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Raise a UsageError: a pretrained tokenizer is used as it is."""
        raise UsageError(
            "tokenizer pretrained cannot be trained; choose another, such as characters or bpe"
        )

    def apply_normalizer(self, text: str) -> str:
        """Return a text as its normalizer leaves it, in lower case for example."""
        with library_errors(self.path):
            normalizer = self._model.normalizer
            return text if normalizer is None else str(normalizer.normalize_str(text))

    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        check_unicode(texts)
        return encode_all(self._model, texts, self.dtype, self.path)

    def word_spans(self, text: str) -> list[tuple[int, int, int]]:
        return find_words(self._model, text, self.path)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Return the text of (T,) ids, with the spaces that the foreign decoder puts in."""
        visible = [id for id in self.check_ids(ids) if id not in self._silent]
        with library_errors(self.path):
            text: str = self._model.decode(visible, skip_special_tokens=False)
        return text

    def round_trip(self, item: str) -> bool:
        """Return whether a text, normalized once by encoding and decoding it, then comes back."""
        ids = self.encode(item)
        if self.unk != self.end and self.unk in ids:
            return True
        text = self.decode(ids)
        return text == item or self.decode(self.encode(text)) == text

    def save(self, path: str | Path) -> None:
        """Write the original file at `path`, and tokenizer_config.json next to it."""
        Path(path).write_bytes(self.source)
        config = json.dumps(self.config, ensure_ascii=False, indent=2)
        Path(path).with_name(CONFIG).write_text(config + "\n", encoding="utf-8")


def _tokens(model: tokenizers.Tokenizer, path: str) -> list[str]:
    """Return each id's token as the file spells it; "" for ids that the file skips."""
    vocab = model.get_vocab(with_added_tokens=True)
    size = max(vocab.values(), default=-1) + 1
    if not 0 < size <= MAX_VOCAB:
        raise UserError(f"{path}: ids must be from 0 to {MAX_VOCAB - 1}, got up to {size - 1}")
    tokens = [""] * size
    for token, id in vocab.items():
        tokens[id] = token
    return tokens


def _raw(model: tokenizers.Tokenizer, document: Document, tokens: Sequence[str]) -> list[bytes]:
    """Return the UTF-8 bytes each token stands for in the middle of a text."""
    added = model.get_added_tokens_decoder()
    if _has_byte_level(document.get("decoder")):
        return [
            (None if id in added else token_bytes(token)) or token.encode()
            for id, token in enumerate(tokens)
        ]
    # Many decoders drop the space before the first token: take what repeating a token adds.
    known = [id for id, token in enumerate(tokens) if token]
    once = model.decode_batch([[id] for id in known], skip_special_tokens=False)
    twice = model.decode_batch([[id, id] for id in known], skip_special_tokens=False)
    raw = [b""] * len(tokens)
    for id, one, two in zip(known, once, twice, strict=True):
        byte = BYTE_TOKEN.fullmatch(tokens[id]) if document["model"].get("byte_fallback") else None
        raw[id] = bytes.fromhex(byte[1]) if byte else two[len(one) :].encode()
    return raw


def _has_byte_level(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    return part.get("type") == "ByteLevel" or any(map(_has_byte_level, part.get("decoders", [])))


def _special_id(role: str, token: int | str, tokens: Sequence[str], path: str) -> int:
    if isinstance(token, int) and 0 <= token < len(tokens):
        return token
    if isinstance(token, str) and token in tokens:
        return tokens.index(token)
    raise UserError(
        f"{path}: the {role} token must be in the vocabulary (ids 0 to {len(tokens) - 1}), "
        f"got {token!r}"
    )


def _first_role(config: Document, roles: Sequence[str], path: str | Path) -> str | None:
    """Return the token of the first of these roles that tokenizer_config.json fills, if any."""
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
