"""Records under a key of JSON objects, one object a line (JSON Lines)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.data.formats import UTF8, Tally, decoded_lines, head
from regard.data.tables import SAMPLE, USUAL, Batch, listed, two_needed
from regard.errors import UsageError


@dataclass(frozen=True)
class Objects:
    """JSON Lines: an object with texts under `names` on every line, or a string if only one is.

    What lies under the names after the first `texts` may be a number or a truth value too, and null
    or missing is empty.
    """

    names: tuple[str, ...]
    why: str
    encoding: str = UTF8
    texts: int = 2

    def batches(self, path: Path, tally: Tally) -> Iterator[Batch]:
        """The texts, in order, empty ones too; lines that are no such objects go to `tally`."""
        for block in decoded_lines(path, self.encoding):
            texts: list[list[str]] = [[] for _ in self.names]
            lines: list[int] = []
            for i, raw in enumerate(block.texts):
                line = block.first + i
                if i in block.bad:
                    tally.damaged(block.bad[i])
                    continue
                if not raw.strip():
                    tally.blank += 1
                    continue
                try:
                    found = self._texts(raw)
                except ValueError as error:
                    tally.damaged(f"{path}:{line}: {error}")
                    continue
                for column, text in zip(texts, found, strict=True):
                    column.append(text)
                lines.append(line)
            yield texts, lines

    def _texts(self, raw: str) -> list[str]:
        value = _parse(raw)
        if isinstance(value, str) and len(self.names) == 1:
            value = {self.names[0]: value}
        if not isinstance(value, dict):
            keys = " and ".join(map(repr, self.names))
            raise ValueError(f"expected text under {keys}, got {type(value).__name__}")
        found = [self._text(raw, value, key) for key in self.names[: self.texts]]
        return found + [_cell(raw, value.get(key), key) for key in self.names[self.texts :]]

    def _text(self, raw: str, values: dict[str, object], key: str) -> str:
        if key not in values:
            raise ValueError(f"no key {key!r}; it has {listed(list(values)) or 'none'}")
        if not isinstance(values[key], str):
            raise ValueError(f"expected text under {key!r}, got {type(values[key]).__name__}")
        return _cell(raw, values[key], key)


def _cell(raw: str, value: object, key: str) -> str:
    """A value as a table would write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected a text or a number under {key!r}, got {type(value).__name__}")
    if isinstance(value, str) and "\\u" in raw:
        _refuse_surrogates(value)
    return str(value)


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise ValueError(f"{half} is half of a pair, which is no character") from None


def _parse(raw: str) -> object:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    except ValueError:  # Python converts no whole number of more than 4,300 digits
        raise ValueError("not JSON that can be read: a number has thousands of digits") from None


def objects(path: Path, keys: Sequence[str], *, texts: int = 2, encoding: str = UTF8) -> Objects:
    """Decide under which keys the texts lie in JSON Lines like the file at `path`.

    An only key may be "" to choose it, and so may the first where not all are of texts.
    """
    if all(keys):
        found = f"text under {' and '.join(map(repr, keys))}"
        return Objects(tuple(keys), found, encoding, texts)
    samples, strings = _sampled(path, encoding)
    named = _named(samples)
    if len(keys) > 1 and (len(keys) <= texts or not all(keys[1:])):
        raise two_needed(path, "KEY", named)
    if not samples:
        return Objects(("text",), "a string a line" if strings else "text under 'text'", encoding)
    usual = [key for key in named if key.lower() in USUAL and key not in keys]
    strings_at = [
        key
        for key in named
        if key not in keys and any(isinstance(sample.get(key), str) for sample in samples)
    ]
    for only in (usual, strings_at):
        if len(only) == 1:
            why = f"text under {only[0]!r}"
            return Objects((only[0], *keys[1:]), why, encoding, texts)
    raise UsageError(
        f"{path}: which key holds the text? say --input KEY (data.input); it has {listed(named)}"
    )


def keys_in(path: Path, encoding: str = UTF8) -> list[str]:
    """The keys of the first objects in JSON Lines, each once."""
    return _named(_sampled(path, encoding)[0])


def _sampled(path: Path, encoding: str) -> tuple[list[dict[str, object]], int]:
    """The first objects in JSON Lines, and how many strings stand among them."""
    samples: list[dict[str, object]] = []
    strings = 0
    for raw in islice(head(path, encoding)[0].split("\n"), SAMPLE):
        try:
            value = _parse(raw)
        except ValueError:
            continue
        strings += isinstance(value, str)
        if isinstance(value, dict):
            samples.append(value)
    return samples, strings


def _named(samples: list[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for sample in samples for key in sample))
