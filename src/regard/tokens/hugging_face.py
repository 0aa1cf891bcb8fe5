"""The one door to the `tokenizers` library, whose failures come out as UserErrors.

Encoding a batch runs on all cores. A process that forks afterwards may see the library warn about
TOKENIZERS_PARALLELISM; it is harmless, and the variable is the user's to set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tokenizers

from regard.errors import UserError
from regard.tokens.tokenizer import Ids

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
