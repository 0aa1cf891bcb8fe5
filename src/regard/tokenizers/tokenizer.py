"""The base classes of tokenizers and featurizers, and the `tokenizer.json` files of tokenizers.

A tokenizer maps text to ids and back. It is saved as a Hugging Face `tokenizer.json` that the
`tokenizers` library opens and that encodes the same there. The four special tokens come first in
the vocabulary but are no "added tokens", so no text can produce them: a literal `<S>` in a text
stays three characters.

Encoding a batch with the `tokenizers` library uses all cores. A process that forks afterwards may
see the library's warning about TOKENIZERS_PARALLELISM; it is harmless.

A featurizer turns images and point clouds into tokens that are numbers. A token of text is one of V
ids; a token of a featurizer is V numbers: where it is, and what is there. A record is `<S>`, which
is zeros, and the tokens. Shards, batches and training only know that tokens are V numbers each.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self
from unicodedata import normalize

import numpy as np
import tokenizers

from regard.errors import UsageError, UserError
from regard.notebook import html_table
from regard.storage import Malformed, parse, read_bytes

PAD, START, END, UNK = range(4)
SPECIALS = ("<pad>", "<S>", "<E>", "<unk>")  # in the order of their ids
NAMES = MappingProxyType(dict(enumerate(SPECIALS)))
MAX_FILE_BYTES = 256 << 20  # the largest published vocabularies take about 35 MB
SHOWN_TOKENS = 40  # in a notebook
BATCH_CHARACTERS = 1 << 22  # text given to the library at once: bounds the memory of its results
CONTINUATION = bytes(range(0x80, 0xC0))  # UTF-8 bytes that begin no character (RFC 3629, section 3)

Ids = np.ndarray[Any, np.dtype[Any]]
Document = dict[str, Any]
Spelling = Callable[[str], str]

WORD_LEVEL: Document = {"type": "WordLevel", "unk_token": "<unk>"}
FUSE: Document = {"type": "Fuse"}


@dataclass(frozen=True)
class Canonical:
    """The form in which texts are compared for copies, splits and leaks.

    A record is not new because it is spelled in another way. `spelling` is applied to texts in
    Unicode's NFC.
    """

    spelling: Spelling | None = None  # None: NFC only
    ignores: tuple[str, ...] = ()  # the differences that do not count
    note: str = ""  # what was not compared, and why
    slow: bool = False  # a text takes a large part of a millisecond

    def of(self, text: str) -> str:
        if not text.isascii():
            text = normalize("NFC", text)
        return self.spelling(text) if self.spelling else text

    def all(self, texts: Sequence[str]) -> Sequence[str]:
        if self.spelling is None and all(map(str.isascii, texts)):
            return texts
        return [self.of(text) for text in texts]

    def then(self, spelling: Spelling, *ignores: str) -> Canonical:
        """Return this form followed by another spelling."""
        first = self.spelling
        both = spelling if first is None else lambda text: spelling(first(text))
        return Canonical(both, (*self.ignores, *ignores), self.note, self.slow)


PLAIN = Canonical()


def without_regard(ignores: Sequence[str]) -> str:
    """Return how texts were compared, as a clause that follows a count; "" if as they are."""
    return f" (compared without regard to {', '.join(ignores)})" if ignores else ""


class Tokenizer(ABC):
    """Maps text to ids of a fixed vocabulary and back.

    `decode(encode(text)) == normalize(text)` unless the text has unknown symbols; most tokenizers
    normalize nothing. A stored record is the encoded text between the markers `<S>` and `<E>`.
    Methods that featurizers (images, point clouds) override say "item" where it may be no text.
    """

    name: ClassVar[str]  # in recipes: input.tokenizer or output.tokenizer
    modality: ClassVar[str] = "text"
    options: ClassVar[Mapping[str, Any]] = {}  # keyword arguments of its `train`, with the defaults
    words: ClassVar[tuple[str, str]] = ("text", "texts")  # one item, several items
    item: ClassVar[str] = "a str"  # the type of an item, for error messages
    file: ClassVar[str] = "tokenizer.json"
    markers: ClassVar[tuple[int, int]] = (1, 1)  # positions before and after an item in a record
    cuttable: ClassVar[bool] = True  # a record longer than the model's context may be cut
    reads_text: ClassVar[bool] = True  # items are texts; other items are given by their paths
    padded_vocab: ClassVar[bool] = False  # models may have more outputs than there are tokens
    prefix: ClassVar[str] = ""  # what encoding puts before every text and decoding removes
    learns_from: ClassVar[float] = math.inf  # characters that are enough to train on

    def __init__(
        self,
        raw: Sequence[bytes],
        names: Mapping[int, str] = NAMES,
        *,
        pad: int = PAD,
        start: int = START,
        end: int = END,
        unk: int = UNK,
    ) -> None:
        """`raw` are the UTF-8 bytes each id decodes to; `names` is how specials are displayed."""
        self.pad, self.start, self.end, self.unk = pad, start, end, unk
        self.vocab_size = len(raw)
        self.dtype: np.dtype[Any] = np.min_scalar_type(max(self.vocab_size - 1, 0))
        self.names = dict(names)
        self.raw = list(raw)
        self.byte_counts = np.array([len(token) for token in raw], dtype=np.int64)  # (V,)
        self.symbols = np.array([self.count_symbols(t) for t in raw], dtype=np.int64)  # (V,)
        specials = list(self.names)
        self.byte_counts[specials] = self.symbols[specials] = 0
        self.symbols[[end, unk]] = 1  # the end is predicted; an unknown stands for one symbol

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size:,} tokens)"

    def _repr_html_(self) -> str:
        tokens = [self.text(id) for id in range(min(self.vocab_size, SHOWN_TOKENS))]
        more = " …" * (self.vocab_size > SHOWN_TOKENS)
        return html_table(
            ("", ""), [("first tokens", f"{'  '.join(tokens)}{more}")], title=repr(self)
        )

    # Training, encoding, decoding, saving

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[Any], size: int = 0) -> Self:
        """Learn a vocabulary of at most `size` tokens, specials included, in one pass over `texts`.

        Size 0 is the class's default. The same texts in the same order give the same vocabulary.
        """

    @abstractmethod
    def encode_batch(self, texts: Sequence[Any]) -> tuple[Ids, Ids]:
        """Return the ids of all texts in a row, of type `dtype`, and the (R,) lengths of the texts.

        Adds no `<S>` or `<E>`. A lone surrogate, which no UTF-8 file can hold, is a UserError that
        names its position.
        """

    @abstractmethod
    def save(self, path: str | Path) -> None:
        """Write the tokenizer's file at `path`."""

    def document(self) -> Document | None:
        """Return the contents of its file; None if it is someone else's, saved as it is."""
        return None

    @classmethod
    def recognises(cls, document: Document) -> bool:
        """Return whether a file with these contents was written by this class."""
        return False

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """Return the tokenizer of a recognised document; `name` is the file, for error messages."""
        raise NotImplementedError

    def encode(self, text: Any) -> Ids:
        """Return the (T,) ids of one text, without `<S>` or `<E>`."""
        return self.encode_batch([text])[0]

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Return the text of (T,) ids: no specials but `<unk>`; invalid UTF-8 becomes U+FFFD."""
        raw = map(self.raw.__getitem__, self.check_ids(ids))
        return b"".join(raw).decode("utf-8", "replace")

    def text(self, id: int) -> str:
        """Return how one token is displayed; bytes that are no character appear as `\\xe2`."""
        (id,) = self.check_ids([id])
        return self.names.get(id) or self.raw[id].decode("utf-8", "backslashreplace")

    def check_ids(self, ids: Sequence[int] | Ids) -> list[int]:
        """Return (T,) ids as a list; UserError if they are not one row of ids of the vocabulary."""
        array = np.asarray(ids)
        if array.size == 0:
            return []
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise UserError(
                f"ids must be one row of integers, got shape {array.shape} of {array.dtype}"
            )
        for id in (int(array.min()), int(array.max())):
            if not 0 <= id < self.vocab_size:
                raise UserError(f"ids must be from 0 to {self.vocab_size - 1}, got {id}")
        numbers: list[int] = array.tolist()
        return numbers

    def equals(self, other: Tokenizer) -> bool:
        """Return whether both give the same tokens for every item."""
        return type(self) is type(other) and self.raw == other.raw

    @property
    def window(self) -> tuple[int, int, int] | None:
        """Steps that a model reads and predicts of a series, and of how many channels."""
        return None

    def with_start(self, start: int) -> Tokenizer:
        """Return the tokenizer with another id for `<S>`; ValueError if its ids are fixed."""
        raise ValueError(f"{self.name} start with {self.start}")

    # What models need to know

    @property
    def model_config(self) -> dict[str, Any]:
        """Fields of a model's configuration that the tokenizer determines, besides vocab_size."""
        return {}

    @property
    def mask(self) -> int:
        """The id in place of a token to be filled in: `<pad>`, since padding is never attended to
        and no text produces it.
        """
        return self.pad

    @property
    def beginning(self) -> list[int]:
        """The ids before a text that a model continues: `<S>`."""
        return [self.start]

    @property
    def standard_symbols(self) -> list[str]:
        """The symbols of usual texts: those that variants are made of; of bases and amino acids
        without ambiguity codes and gaps.
        """
        texts = [self.text(i) for i in range(self.vocab_size) if i not in self.names]
        return sorted(text for text in texts if len(text) == 1 and text.isalpha())

    def never_produced(self, vocab_size: int) -> list[int]:
        """Return the ids that a model of `vocab_size` outputs must not generate: `<pad>`, `<S>`,
        `<unk>`, and the rows without a token of models that round their vocabulary up.
        """
        markers = {self.pad, self.start, self.unk} - {self.end}
        return sorted(markers | set(range(self.vocab_size, vocab_size)))

    def fits(self, vocab_size: int) -> bool:
        """Return whether a model with `vocab_size` outputs can have this tokenizer."""
        unused = vocab_size - self.vocab_size
        return unused == 0 or (unused > 0 and self.padded_vocab)

    def content_limit(self, max_len: int) -> int | None:
        """Return how many tokens of an item fit into a context of `max_len`; None if items are
        never cut.
        """
        return max_len - sum(self.markers) if self.cuttable else None

    # Symbols and words of a text

    @staticmethod
    def count_symbols(token: bytes) -> int:
        """Return how many characters begin in these bytes: parts of a character add up to one."""
        return len(token.translate(None, CONTINUATION))

    def normalize(self, text: str) -> str:
        """Return the text as it is read: what decoding gives if nothing is unknown."""
        return text

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        """Return how texts are compared before training; `options` are those of `train`.

        Texts of one form are one record to every tokenizer of this class.
        """
        return PLAIN

    def count_substitutions(self, texts: Sequence[str]) -> Counter[str]:
        """Count the symbols that are read as others, under names such as "a as A"."""
        return Counter()

    def count_unknown(self, text: str) -> Counter[str]:
        """Count the symbols of a text that become `<unk>`, if the class can tell them."""
        return Counter()

    def word_spans(self, text: str) -> list[tuple[int, int, int]] | None:
        """Return the words of a text as (start, end, number of the first token), the first two in
        characters; None if tokens are symbols rather than parts of words.
        """
        return None

    def problems(self, texts: Sequence[str]) -> list[str]:
        """Return what is wrong with each text, such as a SMILES that is no molecule; "" if nothing
        is, or nothing can be known.
        """
        return [""] * len(texts)

    def cut(self, text: str) -> int:
        """Return the last position where running text can be cut without changing a token, 0 if
        there is none: here, between a word and the space after it.
        """
        position = text.rfind(" ")
        while position > 0 and text[position - 1].isspace():  # whitespace runs stay together
            position = text.rfind(" ", 0, position)
        return max(position, 0)

    def spell_for_library(self, text: str) -> str:
        """Return the text in the spelling for which the `tokenizers` library gives the same ids."""
        return text

    @property
    def export_warnings(self) -> list[str]:
        """What the saved file cannot do in the `tokenizers` library."""
        return []

    # Items and stored records

    def reads(self, value: object) -> bool:
        """Return whether a value is one item: a text, or for featurizers also a path."""
        return isinstance(value, str)

    def reads_alone(self, value: object) -> bool:
        """Return whether a value that stands in no list is one item, rather than several."""
        return self.reads(value)

    def check_pipe(self) -> None:
        """Raise a UsageError if items cannot be read from standard input."""
        if not self.reads_text:
            raise UsageError(
                f"name a file or a folder of {self.words[1]}; they are not read from a pipe"
            )

    def content(self, record: Ids) -> Ids:
        """Return what encoding gave of a stored record: the record without the added markers."""
        return record[1:-1]

    def decode_record(self, record: Ids) -> Any:
        """Return a stored record as an item that encodes to the same record."""
        return self.decode(self.content(record))

    def round_trip(self, item: Any) -> bool:
        """Return whether an item comes back from its tokens; True if parts of it are unknown."""
        ids = self.encode(item)
        return self.unk in ids or self.decode(ids) == self.normalize(item)

    def record_round_trip(self, record: Ids) -> bool:
        """Return whether a stored record is what its decoded item encodes to; True if parts of it
        are unknown.
        """
        content = self.content(record)
        return self.unk in content or bool(
            np.array_equal(self.encode(self.decode_record(record)), content)
        )

    def sample_records(self, lengths: Sequence[int]) -> list[Ids]:
        """Return made-up records of these lengths, markers included, to check a model with.

        Those of featurizers have lengths of their own.
        """
        random = np.random.default_rng(0)
        records = [random.integers(0, self.vocab_size, length) for length in lengths]
        for record in records:
            record[0], record[-1] = self.start, self.end
        return records

    def permuted_items(self, count: int, random: np.random.Generator) -> list[tuple[Any, Any, Ids]]:
        """Return made-up items, each with an equal one whose parts are in another order, and that
        order; empty if order matters.
        """
        return []


class NativeTokenizer(Tokenizer):
    """A tokenizer whose tokenizer.json we write: the specials, then its tokens."""

    layout: Document  # the file without what was learned: a file is recognised by it

    def __init__(
        self, tokens: Sequence[str], raw: Sequence[bytes] | None = None, unk: bytes = b"<unk>"
    ) -> None:
        """`tokens` get the ids after the specials; they decode to `raw`, by default themselves."""
        self.tokens = tuple(tokens)
        content = [token.encode() for token in tokens] if raw is None else raw
        super().__init__([b"", b"", b"", unk, *content])

    def check_fixed_size(self, size: int) -> None:
        """Refuse a size other than the tokenizer's; 0 is the default."""
        if size not in (0, self.vocab_size):
            raise UsageError(
                f"vocab_size must be {self.vocab_size} for these {self.name}, or 0 for the "
                f"default; got {size}"
            )

    @property
    def learned(self) -> Document:
        """Fields of the file's model that training sets, besides the vocabulary."""
        return {}

    @classmethod
    def from_tokens(cls, tokens: list[str], model: Document) -> Self:
        """Return the tokenizer of the `tokens` after the specials and the file's `model`.

        A UserError says what is wrong with them.
        """
        raise NotImplementedError

    def document(self) -> Document:
        return fill(self.layout, self.tokens, **self.learned)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(self.document(), ensure_ascii=False), encoding="utf-8")

    @classmethod
    def recognises(cls, document: Document) -> bool:
        return remove_learned(document) == cls.layout

    @classmethod
    def from_document(cls, document: Document, name: str) -> Self:
        try:
            return cls.from_tokens(learned_tokens(document), document["model"])
        except UserError as error:
            raise UserError(f"{name}: damaged: {error}") from error


# The contents of tokenizer.json


def layout(
    model: Document,
    pattern: str = "",
    *,
    pre_tokenizer: Document | None = None,
    decoder: Document = FUSE,
    normalizer: Document | None = None,
) -> Document:
    """Return a tokenizer.json without its vocabulary, with the keys the `tokenizers` library
    writes. The regular expression `pattern` is what texts are first split into.
    """
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": split(pattern) if pattern else pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def split(pattern: str) -> Document:
    """Return the pre-tokenizer that makes each match of a regular expression a piece."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def fill(layout: Document, tokens: Sequence[str], **learned: Any) -> Document:
    """Return the layout with the specials, then `tokens`, as its vocabulary."""
    vocab = {token: id for id, token in enumerate([*SPECIALS, *tokens])}
    return {**layout, "model": {**layout["model"], "vocab": vocab, **learned}}


def remove_learned(document: Document) -> Document:
    learned = ("vocab", "merges")
    model = {key: value for key, value in document.get("model", {}).items() if key not in learned}
    return {**document, "model": model}


def learned_tokens(document: Document) -> list[str]:
    """Return the tokens after the specials, by id; UserError if the vocabulary is damaged."""
    vocab = document["model"]["vocab"]
    if not isinstance(vocab, dict) or not all(type(id) is int for id in vocab.values()):
        raise UserError("model.vocab must map tokens to whole numbers")
    tokens = sorted(vocab, key=vocab.__getitem__)
    if [vocab[token] for token in tokens] != list(range(len(tokens))):
        raise UserError("the ids in model.vocab must be 0, 1, 2, … without gaps")
    if tuple(tokens[: len(SPECIALS)]) != SPECIALS:
        raise UserError(f"model.vocab must begin with {' '.join(SPECIALS)}")
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError as error:
        raise UserError("model.vocab has a lone surrogate") from error
    return tokens[len(SPECIALS) :]


def read_json(path: str | Path) -> tuple[bytes, Document]:
    """Return the bytes of a JSON file and the object in it; huge, damaged, absent: UserError."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    source = read_bytes(path, MAX_FILE_BYTES)
    try:
        document = parse(source)
    except Malformed as error:
        what = "damaged" if error.key else "not a JSON file that can be read"
        raise UserError(f"{path}: {what}: {error}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: must hold a JSON object, got {type(document).__name__}")
    return source, document


def read_document(path: str | Path) -> tuple[bytes, Document]:
    """Return the bytes and contents of a tokenizer.json, whoever wrote it, with checked keys."""
    source, document = read_json(path)
    model = document.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise UserError(f"{path}: not a tokenizer.json: it has no model with a vocab")
    if not isinstance(document.get("added_tokens", []), list):
        raise UserError(f"{path}: not a tokenizer.json: added_tokens must be a list")
    return source, document


# Checks of arguments


def check_size(name: str, size: int, least: int) -> None:
    """Refuse a vocabulary too small for the tokens that this tokenizer must have."""
    if size != 0 and size < least:
        raise UsageError(
            f"vocab_size must be at least {least} for {name}, or 0 for the default; got {size}"
        )


def check_unicode(texts: Sequence[str], first: int = 0) -> None:
    """Refuse texts with a lone surrogate; error messages number the texts from `first`."""
    for number, text in enumerate(texts, start=first):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = f"text {number}, " if first + len(texts) > 1 else ""
            raise UserError(
                f"{where}position {error.start}: U+{ord(text[error.start]):04X} is a lone "
                "surrogate, which is no character and cannot be saved as UTF-8; replace it by "
                "U+FFFD"
            ) from error


def check_each(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts, refusing those with a lone surrogate."""
    for number, text in enumerate(texts):
        check_unicode([text], number)
        yield text


# The `tokenizers` library


@contextmanager
def library_errors(name: str) -> Iterator[None]:
    """Turn whatever the library raises into a one-line UserError that names the file."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of the Rust code is not an Exception
        message = " ".join(str(error).split())
        raise UserError(f"{name}: the tokenizers library refuses it: {message[:300]}") from error


def open_tokenizer(source: str, name: str) -> tokenizers.Tokenizer:
    """Return the library's tokenizer of a tokenizer.json; it neither truncates nor pads."""
    with library_errors(name):
        tokenizer = tokenizers.Tokenizer.from_str(source)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a literal special in a text stays text
    return tokenizer


def encode_all(
    tokenizer: tokenizers.Tokenizer,
    texts: Sequence[str],
    dtype: np.dtype[Any],
    name: str = "tokenizer.json",
) -> tuple[Ids, Ids]:
    """Return flat ids and the (R,) number of ids of each text, which must be valid Unicode."""
    ids: list[Ids] = [np.empty(0, dtype)]
    lengths: list[int] = []
    for batch in _batches(texts):
        with library_errors(name):
            encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        parts = [encoding.ids for encoding in encodings]
        ids.extend(np.array(part, dtype) for part in parts)
        lengths.extend(map(len, parts))
    return np.concatenate(ids), np.array(lengths, dtype=np.int64)


def find_words(
    tokenizer: tokenizers.Tokenizer, text: str, name: str = "tokenizer.json"
) -> list[tuple[int, int, int]]:
    """Return the words of a text as Tokenizer.word_spans does.

    Words are the pieces the library splits a text into before it looks for tokens, and end at a
    space.
    """
    with library_errors(name):
        encoding = tokenizer.encode(text, add_special_tokens=False)
    spans: list[tuple[int, int, int]] = []
    previous: int | None = None
    for token, (word, (start, end)) in enumerate(
        zip(encoding.word_ids, encoding.offsets, strict=True)
    ):
        content = text[start:end]
        start += len(content) - len(content.lstrip())  # some tokens begin with their space
        end = start + len(content.strip())
        if start >= end:
            continue
        if spans and word == previous and not any(map(str.isspace, text[spans[-1][1] : start])):
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]), spans[-1][2])
        else:
            spans.append((start, end, token))
        previous = word
    return spans


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size:,} numbers a token)"

    def _repr_html_(self) -> str:
        rows = ((key, json.dumps(value)[:80]) for key, value in self.document().items())
        return html_table(("", ""), rows, title=repr(self))

    def text(self, id: int) -> str:
        return f"{id}"

    def content(self, record: Ids) -> Ids:
        return record  # encoding adds `<S>` itself

    def record_round_trip(self, record: Ids) -> bool:
        return bool(np.array_equal(self.encode(self.decode_record(record)), record))

    def sample_records(self, lengths: Sequence[int]) -> list[Ids]:
        return [self.encode(item) for item in self.sample_items(len(lengths))]
