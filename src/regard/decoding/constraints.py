"""Forbidden transitions: which token may never follow which, as a sparse V × V relation.

The relation comes from a file, from pairs of ids, or from data (pairs that never occur). The loss
and every decoding strategy apply it to logits before they are normalized. In a large vocabulary
nearly all pairs never occur, so a relation may list what it allows instead of what it forbids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import UserError
from regard.tokenizers.tokenizer import Tokenizer

DENSE = 4096  # vocabularies up to this size have a V × V table: 16 MB of booleans
CHUNK = 1 << 22  # transitions processed at once

Array = np.ndarray[Any, np.dtype[Any]]


class ForbiddenTransitions:
    """A relation on V tokens, callable as the constraint of a loss or of decoding.

    Row a lists next[start[a] : start[a + 1]], ascending and without repeats: the tokens forbidden
    after a or, for a `complement`, the only ones allowed. It is immutable.
    """

    def __init__(self, start: Tensor, next: Tensor, *, complement: bool = False) -> None:
        self.vocab_size = len(start) - 1
        codes = _check_rows(start, next, self.vocab_size)
        self.start, self.next, self.complement = start, next, complement
        self._codes = codes  # (nnz,) a · V + b of every listed pair, ascending
        self._degree = int((start[1:] - start[:-1]).max())  # of the longest row
        self._on: dict[torch.device, tuple[Tensor, ...]] = {}  # the tables of each device

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[tuple[int, int]] | Array, vocab_size: int
    ) -> ForbiddenTransitions:
        """Forbid each (a, b): b never follows a."""
        listed = pairs if isinstance(pairs, np.ndarray) else list(pairs)
        table = np.asarray(listed, dtype=np.int64).reshape(-1, 2)
        if table.size and not (table.min() >= 0 and table.max() < vocab_size):
            pair = table[((table < 0) | (table >= vocab_size)).any(1)][0].tolist()
            raise ValueError(f"pairs holds {tuple(pair)}; ids go from 0 to {vocab_size - 1}")
        return cls._from_codes(np.unique(table[:, 0] * vocab_size + table[:, 1]), vocab_size)

    @classmethod
    def from_file(cls, path: Path | str, tokenizer: Tokenizer) -> ForbiddenTransitions:
        r"""Read one forbidden transition per line: two tokens with a TAB or one space between.

        A token is text that the tokenizer maps to exactly one, the name of a special (`<S>`), or
        how the tokenizer displays it; `*` is every token. Lines that start with `#` are comments;
        the tokens `#` and `*` themselves are written `\#` and `\*`.
        """
        size, find_id = tokenizer.vocab_size, _TokenFinder(tokenizer)
        every = np.arange(size, dtype=np.int64)
        codes = []
        for location, line in _lines(Path(path)):
            words = line.split("\t" if "\t" in line else " ")
            if len(words) != 2 or not all(words):
                raise UserError(
                    f"{location}: expected two tokens with a TAB or one space between, got {line!r}"
                )
            if words == ["*", "*"]:
                raise UserError(f"{location}: '* *' would forbid every transition")
            before, after = (every if w == "*" else np.array([find_id(w, location)]) for w in words)
            codes.append((before * size + after).astype(np.int64))
        return cls._from_codes(np.unique(np.concatenate(codes or [every[:0]])), size)

    @classmethod
    def unseen(
        cls, arrays: Iterable[Array], vocab_size: int, *, start: int, end: int
    ) -> ForbiddenTransitions:
        """Forbid every transition that does not occur in the data.

        The arrays are parts of one stream of ids with the markers `<S>` and `<E>`; a record may
        continue in the next part. From `<E>` to the next record's `<S>` is no transition. After
        `<E>` nothing is predicted, so nothing is forbidden.
        """
        flags = np.zeros(vocab_size**2 if vocab_size <= DENSE else 0, dtype=bool)
        codes = last = np.zeros(0, dtype=np.int64)
        for array in arrays:
            for at in range(0, len(array), CHUNK):
                ids = np.concatenate([last, array[at : at + CHUNK].astype(np.int64)])
                inside = ~((ids[:-1] == end) & (ids[1:] == start))
                pairs = ids[:-1][inside] * vocab_size + ids[1:][inside]
                if len(flags):
                    flags[pairs] = True
                else:
                    codes = np.union1d(codes, pairs)
                last = ids[-1:]
        if len(flags):
            codes = np.flatnonzero(flags)
        if start != end:
            codes = np.union1d(codes, end * vocab_size + np.arange(vocab_size, dtype=np.int64))
        return cls._from_codes(codes, vocab_size, complement=True)

    @classmethod
    def _from_codes(
        cls, codes: Array, vocab_size: int, *, complement: bool = False
    ) -> ForbiddenTransitions:
        borders = np.searchsorted(codes, np.arange(vocab_size + 1, dtype=np.int64) * vocab_size)
        start, next = torch.from_numpy(borders), torch.from_numpy(codes % vocab_size)
        return cls(start, next, complement=complement)

    def __call__(self, logits: Tensor, previous: Tensor) -> Tensor:
        """Return (N, V) logits with -inf for tokens that may not follow previous (N,)."""
        return logits.masked_fill(self.forbidden_after(previous), -math.inf)

    def forbidden_after(self, previous: Tensor) -> Tensor:
        """Return (N, V), True where a token may not follow previous (N,)."""
        tables = self._tables(previous.device)
        if len(tables) == 1:
            return tables[0][previous]
        start, next = tables
        first, count = start[previous], start[previous + 1] - start[previous]  # (N,)
        step = torch.arange(self._degree, device=previous.device)  # (degree,)
        inside = step < count[:, None]  # (N, degree): padded to the longest row, so no host sync
        listed = next[(first[:, None] + step).clamp(max=max(0, len(next) - 1))]
        listed = listed.masked_fill(~inside, self.vocab_size)  # padding has its own column
        marked = torch.zeros(
            len(previous), self.vocab_size + 1, dtype=torch.bool, device=previous.device
        )
        marked.scatter_(1, listed, True)
        return marked[:, :-1] ^ self.complement  # (N, V)

    def _tables(self, device: torch.device) -> tuple[Tensor, ...]:
        """Return the dense table (V, V), or the sparse rows, on a device."""
        tables = self._on.get(device)
        if tables is None:
            size = self.vocab_size
            if size <= DENSE:
                dense = np.full(size**2, self.complement)
                dense[self._codes] = not self.complement
                tables = (torch.from_numpy(dense.reshape(size, size)).to(device),)
            else:
                next = self.next if len(self.next) else self.next.new_zeros(1)
                tables = (self.start.to(device), next.to(device))
            # threads that come here together all take the first, which captured steps may refer to
            tables = self._on.setdefault(device, tables)
        return tables

    def __or__(self, other: ForbiddenTransitions) -> ForbiddenTransitions:
        """Return the relation that forbids what either forbids."""
        if self.vocab_size != other.vocab_size:
            raise ValueError(
                f"relations on {self.vocab_size} and {other.vocab_size} tokens do not combine"
            )
        a, b = (self, other) if self.complement else (other, self)
        if not a.complement:
            return self._from_codes(np.union1d(a._codes, b._codes), self.vocab_size)
        keep = np.isin(a._codes, b._codes, assume_unique=True, invert=not b.complement)
        return self._from_codes(a._codes[keep], self.vocab_size, complement=True)

    def forbids(self, previous: Array, following: Array) -> Array:
        """Return booleans (P,), True where following[i] may not follow previous[i]."""
        codes = previous.astype(np.int64) * self.vocab_size + following.astype(np.int64)
        if not len(self._codes):
            return np.full(len(codes), self.complement)
        at = np.searchsorted(self._codes, codes).clip(max=len(self._codes) - 1)
        listed: Array = self._codes[at] == codes
        return listed ^ self.complement

    def violations(self, ids: Array, offsets: Array | Sequence[int]) -> list[int]:
        """Return the numbers of the records with a forbidden transition.

        Record r is ids[offsets[r] : offsets[r + 1]], with its markers.
        """
        borders = np.asarray(offsets, dtype=np.int64)
        records: list[Array] = [np.zeros(0, dtype=np.int64)]
        for at in range(0, len(ids) - 1, CHUNK):
            chunk = np.asarray(ids[at : at + CHUNK + 1])
            first = at + np.flatnonzero(self.forbids(chunk[:-1], chunk[1:]))  # of the two tokens
            record = np.searchsorted(borders, first, side="right") - 1
            inside = first + 1 < borders[np.minimum(record + 1, len(borders) - 1)]
            records.append(record[inside])
        return [int(record) for record in np.unique(np.concatenate(records))]

    def save(self, path: Path | str) -> None:
        """Write the relation as a safetensors file."""
        metadata = {"format": "pt", "lists": "allowed" if self.complement else "forbidden"}
        save_file({"start": self.start, "next": self.next}, path, metadata)

    @classmethod
    def load(cls, path: Path | str) -> ForbiddenTransitions:
        """Read what `save` wrote; raise UserError for a damaged file."""
        try:
            with safe_open(path, "pt") as file:
                lists = (file.metadata() or {}).get("lists")
                if lists not in ("allowed", "forbidden") or set(file.keys()) != {"start", "next"}:
                    raise ValueError("it has no forbidden transitions")
                start, next = file.get_tensor("start"), file.get_tensor("next")
            return cls(start, next, complement=lists == "allowed")
        except (OSError, SafetensorError, ValueError) as error:
            raise UserError(f"{path}: cannot read forbidden transitions: {error}") from error


def _check_rows(start: Tensor, next: Tensor, size: int) -> Array:
    """Return the codes a · V + b of the rows; raise ValueError where these are malformed."""
    if start.dtype != torch.int64 or next.dtype != torch.int64 or start.dim() != 1 or size < 1:
        raise ValueError("start must be (V + 1,) and next (nnz,), both int64")
    degree = start[1:] - start[:-1]
    if start[0] != 0 or start[-1] != len(next) or bool((degree < 0).any()) or next.dim() != 1:
        raise ValueError(f"start must ascend from 0 to the length of next, {len(next)}")
    if len(next) and not 0 <= int(next.min()) <= int(next.max()) < size:
        raise ValueError(f"next must hold ids from 0 to {size - 1}")
    codes = torch.repeat_interleave(torch.arange(size), degree) * size + next
    if bool((codes[1:] <= codes[:-1]).any()):
        raise ValueError("each row of next must ascend, without repeats")
    array: Array = codes.numpy()
    return array


def _lines(path: Path) -> Iterable[tuple[str, str]]:
    """Yield (file:line, text) of every line that is neither empty nor a comment."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read forbidden transitions: {error}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.removesuffix("\r")
        if line and not line.startswith("#"):
            yield f"{path}:{number}", line


class _TokenFinder:
    """Finds the id of a token as files of transitions write it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.known = {
            "<S>": tokenizer.start,
            "<E>": tokenizer.end,
            "<pad>": tokenizer.pad,
            "<unk>": tokenizer.unk,
        }
        self.displayed: dict[str, int] | None = None

    def __call__(self, word: str, location: str) -> int:
        if word not in self.known:
            self.known[word] = self._find(word, location)
        return self.known[word]

    def _find(self, word: str, location: str) -> int:
        text = word[1:] if word in (r"\#", r"\*") else word
        ids = [int(i) for i in self.tokenizer.encode(text)]
        if len(ids) == 1 and ids[0] != self.tokenizer.unk:
            return ids[0]
        if self.displayed is None:
            every = range(self.tokenizer.vocab_size)
            self.displayed = {self.tokenizer.text(i): i for i in every}
        if text in self.displayed:
            return self.displayed[text]
        tokens = " ".join(repr(self.tokenizer.text(i)) for i in ids)
        raise UserError(
            f"{location}: {word!r} is not one token of this vocabulary, but {tokens or 'none'}"
        )
