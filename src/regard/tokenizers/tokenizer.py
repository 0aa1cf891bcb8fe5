"""When two texts are the same record: what a tokenizer reads alike, and what names one thing.

Copies, splits and leaks go by the canonical form of a text, so that a record does not count as new
because it is spelled in another way. Every tokenizer class knows its form before anything is
learned (`Tokenizer.canonical`); `data.canonical` adds what the other settings say.

What every discrete tokenizer is: text in, ids out, and back, with a file other tools can open.

A tokenizer is saved as a Hugging Face `tokenizer.json` that the `tokenizers` library opens and that
encodes the same there. The four specials stand first in the vocabulary but are no "added tokens",
so no text can reach them: a literal `<S>` in a text stays three characters, in every kind.

The one door to the `tokenizers` library, whose failures come out as UserErrors.

Encoding a batch runs on all cores. A process that forks afterwards may see the library warn about
TOKENIZERS_PARALLELISM; it is harmless, and the variable is the user's to set.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self
from unicodedata import normalize

import numpy as np
import tokenizers

from regard.errors import UsageError, UserError
from regard.storage import Malformed, parse, read_source

Spelling = Callable[[str], str]


@dataclass(frozen=True)
class Canonical:
    """The form in which texts are compared; `spelling` is applied to texts in Unicode's NFC."""

    spelling: Spelling | None = None  # None: nothing but NFC
    ignores: tuple[str, ...] = ()  # without regard to what texts are compared
    note: str = ""  # what was not compared, and why
    slow: bool = False  # does a text take a good part of a millisecond?

    def of(self, text: str) -> str:
        """The canonical form of one text."""
        if not text.isascii():
            text = normalize("NFC", text)
        return self.spelling(text) if self.spelling else text

    def all(self, texts: Sequence[str]) -> Sequence[str]:
        """The canonical forms of some texts."""
        if self.spelling is None and all(map(str.isascii, texts)):
            return texts
        return [self.of(text) for text in texts]

    def then(self, spelling: Spelling, *ignores: str) -> Canonical:
        """This form, spelled in one more way."""
        before = self.spelling
        both = spelling if before is None else lambda text: spelling(before(text))
        return Canonical(both, (*self.ignores, *ignores), self.note, self.slow)


PLAIN = Canonical()


def without_regard(ignores: Sequence[str]) -> str:
    """How texts were compared, in words to stand behind a count; nothing where as they are."""
    return f" (compared without regard to {', '.join(ignores)})" if ignores else ""


def molecules() -> Canonical:
    """SMILES by the molecule that they name, as RDKit writes it; without RDKit as they are."""
    try:
        from rdkit import Chem
    except ImportError:
        return Canonical(
            note="spellings of one molecule were not compared: RDKit is not installed "
            "(pip install 'regard[chem]')"
        )
    from rdkit.rdBase import BlockLogs

    @cache  # data is read several times
    def spelled(text: str) -> str:
        with BlockLogs():  # what is no molecule is compared as it is
            molecule = Chem.MolFromSmiles(text)
        return text if molecule is None else str(Chem.MolToSmiles(molecule))

    return Canonical(spelled, ("the spelling of SMILES",), slow=True)


PAD, START, END, UNK = range(4)
SPECIALS = ("<pad>", "<S>", "<E>", "<unk>")  # in the order of their ids
NAMES = MappingProxyType(dict(enumerate(SPECIALS)))
MAX_FILE_BYTES = 256 << 20  # the largest published vocabularies take about 35 MB
CONTINUATION = bytes(range(0x80, 0xC0))  # UTF-8 bytes that begin no character (RFC 3629, section 3)

Ids = np.ndarray[Any, np.dtype[Any]]
Document = dict[str, Any]


class Tokenizer(ABC):
    """Text to ids of a fixed vocabulary and back: `decode(encode(text)) == normal(text)`, which is
    the text itself in most kinds, unless something in it is unknown.
    """

    kind: ClassVar[str]  # the name in recipes: tokens.kind
    learns_from: ClassVar[float] = math.inf  # characters that are enough to train on
    prefix: ClassVar[str] = ""  # what encoding puts before every text and decoding takes away
    file: ClassVar[str] = "tokenizer.json"  # what it is saved as
    item: ClassVar[str] = "a str"  # what it reads, in words

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

    @property
    def decides(self) -> dict[str, Any]:
        """What a model's configuration has from here, beside the vocabulary: nothing."""
        return {}

    def reads(self, value: object) -> bool:
        """Is this one thing that it reads: a text, and of images or point clouds also a path?"""
        return isinstance(value, str)

    def content(self, record: Ids) -> Ids:
        """A record of a shard without its markers: what encoding gave."""
        return record[1:-1]

    def read_back(self, record: Ids) -> Any:
        """What a record of a shard was made of."""
        return self.decode(self.content(record))

    @property
    def mask(self) -> int:
        """What stands for a token that is to be filled in: `<pad>`, which nothing else reads, since
        padding itself is never looked at.
        """
        return self.pad

    @staticmethod
    def count_symbols(token: bytes) -> int:
        """Characters that begin in these UTF-8 bytes: the parts of a cut one add up to one."""
        return len(token.translate(None, CONTINUATION))

    @classmethod
    @abstractmethod
    def train(cls, texts: Iterable[str], size: int = 0) -> Self:
        """Learn a vocabulary of at most `size` tokens, specials included, in one pass over `texts`.

        Size 0 is this kind's default. The same texts in the same order give the same vocabulary.
        """

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """The ids of all texts in a row, of type `dtype`, and the (R,) number of ids of each.

        Adds no `<S>` or `<E>`. A lone surrogate, which no UTF-8 file can hold, is a UserError that
        names its position.
        """

    @abstractmethod
    def save(self, path: str | Path) -> None:
        """Write tokenizer.json at `path`."""

    def encode(self, text: str) -> Ids:
        """(T,) ids of one text, without `<S>` or `<E>`: see encode_batch."""
        return self.encode_batch([text])[0]

    def normal(self, text: str) -> str:
        """The text as it is read: what decoding gives back where nothing is unknown."""
        return text

    @classmethod
    def canonical(cls, **options: Any) -> Canonical:
        """How texts are compared before anything is learned: those of one form are one record to
        every tokenizer of this kind. `options` are those of `train`.
        """
        return PLAIN

    def changed(self, texts: Sequence[str]) -> Counter[str]:
        """How often each symbol occurs that is read as another, in words: "a as A"."""
        return Counter()

    def unknown(self, text: str) -> Counter[str]:
        """How often each symbol of the text occurs that becomes `<unk>`, where this can be told."""
        return Counter()

    @property
    def beginning(self) -> list[int]:
        """What stands before a text that a model continues: `<S>`."""
        return [self.start]

    def word_spans(self, text: str) -> list[tuple[int, int, int]] | None:
        """The words of a text, in order, as (start, end, number of its first token), the first two
        counting characters; None where tokens are symbols rather than parts of words.
        """
        return None

    def problems(self, texts: Sequence[str]) -> list[str]:
        """What is wrong with each text as one of what this kind is for, such as a molecule that is
        none; "" where nothing is, or nothing can be known.
        """
        return [""] * len(texts)

    def spelt(self, text: str) -> str:
        """The text as the `tokenizers` library must be given it for the same ids."""
        return text

    def cut(self, text: str) -> int:
        """The last place to cut running text at without changing a token; 0 where none is seen.

        Here, between a word and the space after it.
        """
        at = text.rfind(" ")
        while at > 0 and text[at - 1].isspace():  # a run of white space stays whole
            at = text.rfind(" ", 0, at)
        return max(at, 0)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of (T,) ids: no specials but `<unk>`; invalid UTF-8 becomes U+FFFD."""
        raw = map(self.raw.__getitem__, self.checked(ids))
        return b"".join(raw).decode("utf-8", "replace")

    def text(self, id: int) -> str:
        """How one token is displayed; bytes that are no character alone appear as `\\xe2`."""
        (id,) = self.checked([id])
        return self.names.get(id) or self.raw[id].decode("utf-8", "backslashreplace")

    def never_produced(self, vocab_size: int) -> list[int]:
        """What a model of `vocab_size` outputs must not say: `<pad>`, `<S>`, `<unk>`, and rows that
        stand for no token, which published models have where they round their vocabulary up.
        """
        markers = {self.pad, self.start, self.unk} - {self.end}
        return sorted(markers | set(range(self.vocab_size, vocab_size)))

    def checked(self, ids: Sequence[int] | Ids) -> list[int]:
        """(T,) ids as whole numbers; any other shape or type, or an id that is none: UserError."""
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


class OwnTokenizer(Tokenizer):
    """A kind whose tokenizer.json we write ourselves, the specials being its first tokens."""

    layout: ClassVar[Document]  # the file without what was learned: by this it is recognised

    @abstractmethod
    def document(self) -> Document:
        """The contents of tokenizer.json."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: Document, name: str) -> Self:
        """The tokenizer of a document of this layout; `name` is the file to blame for damage."""

    def save(self, path: str | Path) -> None:
        """See Tokenizer."""
        Path(path).write_text(json.dumps(self.document(), ensure_ascii=False), encoding="utf-8")

    @classmethod
    def recognises(cls, document: Document) -> bool:
        """Was this document written by this kind of tokenizer?"""
        return without_learned(document) in cls.layouts()

    @classmethod
    def layouts(cls) -> list[Document]:
        """The layouts that files of this kind may have: one, unless it has options."""
        return [cls.layout]


def layout(
    model: Document,
    pre_tokenizer: Document | None,
    decoder: Document,
    normalizer: Document | None = None,
) -> Document:
    """A tokenizer.json without its vocabulary, with the keys the `tokenizers` library writes."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": model,
    }


def without_learned(document: Document) -> Document:
    """The layout of a document."""
    learned = ("vocab", "merges")
    model = {key: value for key, value in document["model"].items() if key not in learned}
    return {**document, "model": model}


def filled(layout: Document, tokens: Sequence[str], **learned: Any) -> Document:
    """The layout with the specials, then `tokens`, as its vocabulary."""
    vocab = {token: id for id, token in enumerate([*SPECIALS, *tokens])}
    return {**layout, "model": {**layout["model"], "vocab": vocab, **learned}}


def learned_tokens(document: Document, name: str) -> list[str]:
    """The tokens after the specials, by id, once the vocabulary is known to be sound."""
    vocab = document["model"]["vocab"]
    if not isinstance(vocab, dict) or not all(type(id) is int for id in vocab.values()):
        raise UserError(f"{name}: damaged: model.vocab must map tokens to whole numbers")
    tokens = sorted(vocab, key=vocab.__getitem__)
    if [vocab[token] for token in tokens] != list(range(len(tokens))):
        raise UserError(f"{name}: damaged: the ids in model.vocab must be 0, 1, 2, … without gaps")
    if tuple(tokens[: len(SPECIALS)]) != SPECIALS:
        raise UserError(f"{name}: damaged: model.vocab must begin with {' '.join(SPECIALS)}")
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{name}: damaged: model.vocab has a lone surrogate") from error
    return tokens[len(SPECIALS) :]


def read_json(path: str | Path) -> tuple[bytes, Document]:
    """The bytes of a JSON file and the object they hold; huge, damaged, absent: UserError."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    source = read_source(path, MAX_FILE_BYTES)
    try:
        document = parse(source)
    except Malformed as error:
        what = "damaged" if error.key else "not a JSON file that can be read"
        raise UserError(f"{path}: {what}: {error}") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: must hold a JSON object, got {type(document).__name__}")
    return source, document


def read_document(path: str | Path) -> tuple[bytes, Document]:
    """The bytes and contents of a tokenizer.json, whoever wrote it, once its keys are checked."""
    source, document = read_json(path)
    model = document.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
        raise UserError(f"{path}: not a tokenizer.json: it has no model with a vocab")
    if not isinstance(document.get("added_tokens", []), list):
        raise UserError(f"{path}: not a tokenizer.json: added_tokens must be a list")
    return source, document


def check_size(kind: str, size: int, least: int) -> None:
    """Refuse a vocabulary too small to hold what this kind must have."""
    if size != 0 and size < least:
        raise UsageError(
            f"tokens.size must be at least {least} for {kind}, or 0 for the default; got {size}"
        )


def check_unicode(texts: Sequence[str], first: int = 0) -> None:
    """Refuse texts that no UTF-8 file can hold; errors number them from `first`."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError as error:
        raise surrogate_error(texts, first) from error


def surrogate_error(texts: Sequence[str], first: int = 0) -> UserError:
    """The error that names the first lone surrogate in `texts`, numbered from `first`."""
    for number, text in enumerate(texts, start=first):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = f"text {number}, " if first + len(texts) > 1 else ""
            found = f"U+{ord(text[error.start]):04X}"
            return UserError(
                f"{where}position {error.start}: {found} is a lone surrogate, which is no "
                "character and cannot be saved as UTF-8; replace it by U+FFFD"
            )
    raise AssertionError("no text has a lone surrogate")


BATCH_CHARACTERS = 1 << 22  # text handed over at once; bounds the memory its results take


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Turn whatever the library raises into a one-line UserError naming the file."""
    try:
        yield
    except (UserError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of the Rust code is not an Exception
        message = " ".join(str(error).split())
        raise UserError(f"{name}: the tokenizers library refuses it: {message[:300]}") from error


def open_tokenizer(source: str, name: str) -> tokenizers.Tokenizer:
    """The library's tokenizer from the text of a tokenizer.json, neither truncating nor padding."""
    with blaming(name):
        tokenizer = tokenizers.Tokenizer.from_str(source)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # a special written out in a text stays text
    return tokenizer


def encode_all(
    tokenizer: tokenizers.Tokenizer,
    texts: Sequence[str],
    dtype: np.dtype[Any],
    name: str = "tokenizer.json",
) -> tuple[Ids, Ids]:
    """Flat ids and the (R,) number of ids of each text, which must be valid Unicode."""
    ids: list[Ids] = [np.empty(0, dtype)]
    lengths: list[int] = []
    for batch in _batches(texts):
        with blaming(name):
            encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        parts = [encoding.ids for encoding in encodings]
        ids.extend(np.array(part, dtype) for part in parts)
        lengths.extend(map(len, parts))
    return np.concatenate(ids), np.array(lengths, dtype=np.int64)


def words_of(
    tokenizer: tokenizers.Tokenizer, text: str, name: str = "tokenizer.json"
) -> list[tuple[int, int, int]]:
    """The words of a text as (start, end, number of the first token); see Tokenizer.word_spans.

    Words are what the library cuts a text into before it looks for tokens, and never go on past a
    space.
    """
    with blaming(name):
        encoding = tokenizer.encode(text, add_special_tokens=False)
    found: list[tuple[int, int, int]] = []
    before: int | None = None
    for token, (word, (start, end)) in enumerate(
        zip(encoding.word_ids, encoding.offsets, strict=True)
    ):
        inside = text[start:end]
        start += len(inside) - len(inside.lstrip())  # some tokens begin with their space
        end = start + len(inside.strip())
        if start >= end:
            continue
        if found and word == before and not any(map(str.isspace, text[found[-1][1] : start])):
            found[-1] = (found[-1][0], max(end, found[-1][1]), found[-1][2])
        else:
            found.append((start, end, token))
        before = word
    return found


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    held = 0
    for text in texts:
        batch.append(text)
        held += len(text)
        if held >= BATCH_CHARACTERS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
