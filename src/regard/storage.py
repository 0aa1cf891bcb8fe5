"""JSON documents from outside: read within limits, then checked against a schema.

A schema is a TypedDict, or any other type that pydantic's `TypeAdapter` knows, of what the file
stands for. Whatever is wrong is one line that names the file and the key: a wrong type, a missing
or repeated key, NaN, a number of thousands of digits, half of a surrogate pair, deep nesting.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from regard.errors import UserError, quoted

MOST = 64 << 20  # bytes of a document
DEEPEST = 64  # levels of nesting
CONTAINERS = 4 << 20  # objects and lists of a document
QUOTE = 40  # characters of a part of a key
DIGITS = 300  # of a whole number; any such number has a float
WHOLE = 1 << 63  # whole numbers of our own documents are below, as those of TOML are
HALVES = re.compile(rb"\\u[dD][89a-fA-F]")  # escapes of surrogates, which must come in pairs

Key = tuple[str | int, ...]


class Malformed(ValueError):
    """What is wrong with a document, and under which key."""

    def __init__(self, problem: str, key: Key = ()) -> None:
        super().__init__(f"{dotted(key)}: {problem}" if key else problem)
        self.key = key


def dotted(key: Key) -> str:
    """A key as messages have it: data.sides.train, or weights[3]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part[:QUOTE]}" for part in key]
    return "".join(parts).removeprefix(".")


def regular(path: Path) -> int:
    """The size of a regular file; a device or a pipe, which may never end, is a UserError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is not a regular file")
    return status.st_size


def read_source(path: Path, most: int = MOST) -> bytes:
    """The bytes of a document of at most `most`."""
    try:
        if regular(path) > most:
            raise UserError(f"{path}: too large: at most {most >> 20} MB are allowed")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a zero character in its name
        raise UserError(f"cannot read {path}: {error}") from None


def parse(source: bytes | str, *, largest: int = 0) -> Any:
    """The contents of a JSON document; Malformed where it is none, or beyond the limits: see
    `examine`.
    """
    raw = source.encode(errors="surrogatepass") if isinstance(source, str) else source
    if raw.count(b"[") + raw.count(b"{") > CONTAINERS:
        raise Malformed(f"more than {CONTAINERS:,} objects and lists")
    odd: list[str] = []  # numbers that are none: `examine` finds their key

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            odd.append(text)
        return value

    def whole(digits: str) -> int | float:
        return int(digits) if len(digits) <= DIGITS else number("inf")

    try:
        value = json.loads(
            raw.decode("utf-8-sig"),
            object_pairs_hook=_once,
            parse_int=whole,
            parse_float=number,
            parse_constant=number,
        )
    except UnicodeDecodeError as error:
        raise Malformed(f"it is not JSON: byte {error.start:,} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Malformed(
            f"it is not JSON: {error.msg}, line {error.lineno:,} column {error.colno:,}"
        ) from None
    except RecursionError:
        raise Malformed(f"nested deeper than {DEEPEST} levels") from None
    examine(value, leaves=bool(odd) or HALVES.search(raw) is not None, largest=largest)
    return value


def read_json(path: Path, schema: Any = Any, *, most: int = MOST) -> Any:
    """The contents of a JSON file of ours, checked against a schema; or a UserError."""
    source = read_source(path, most)
    try:
        value = parse(source, largest=WHOLE)
    except Malformed as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return checked(path, value, schema)


def checked(path: Path, value: Any, schema: Any) -> Any:
    """The contents of a file, if they are as the schema has them; or a UserError."""
    try:
        return matching(value, schema)
    except Malformed as error:
        raise UserError(f"{path} is damaged: {error}") from None


def read_lines(path: Path, schema: Any = Any) -> Iterator[Any]:
    """The documents of a file of JSON lines; the last line may still be in the making."""
    source = read_source(path)
    for number, line in enumerate(source.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield matching(parse(line), schema)
        except Malformed as error:
            if number == source.count(b"\n") + 1:  # without its end
                return
            raise UserError(f"{path}:{number} is damaged: {error}") from None


def examine(value: Any, *, leaves: bool = True, largest: int = 0, zeros: bool = True) -> None:
    """Refuse deep nesting and, among the leaves, halves of surrogate pairs and numbers that are not
    finite, or whole and not below `largest`, where there is a limit; without `zeros`, texts with
    the character that no path can have.
    """
    left: list[tuple[Key, Any]] = [((), value)]
    while left:
        key, one = left.pop()
        if isinstance(one, dict | list):
            if len(key) >= DEEPEST:
                raise Malformed(f"nested deeper than {DEEPEST} levels", key[:3])
            for name, each in one.items() if isinstance(one, dict) else enumerate(one):
                if isinstance(name, str) and leaves:
                    _check_text(name, key, zeros)
                if leaves or largest or isinstance(each, dict | list):
                    left.append(((*key, name), each))
        elif isinstance(one, str) and leaves:
            _check_text(one, key, zeros)
        elif isinstance(one, float) and not math.isfinite(one):
            raise Malformed(f"must be a finite number of at most {DIGITS} digits", key)
        elif largest and isinstance(one, int) and abs(one) >= largest:
            raise Malformed(f"must be below 2^63, got {quoted(one)}", key)


def _check_text(text: str, key: Key, zeros: bool) -> None:
    if not zeros and "\0" in text:
        raise Malformed("holds a zero character", key)
    if found := re.search("[\ud800-\udfff]", text):
        half = f"\\u{ord(found[0]):04x}"
        raise Malformed(f"{half} is half of a pair, which is no character", key)


def matching(value: Any, schema: Any) -> Any:
    """The value, if it is as the schema has it; types are taken as they are, never converted."""
    if schema is Any:
        return value
    try:
        adapter(schema).validate_python(value, strict=True)
    except ValidationError as error:
        raise Malformed(*described(error)) from None
    return value


@cache
def adapter(schema: Any) -> TypeAdapter[Any]:
    """What checks values against a type."""
    return TypeAdapter(schema)


def described(error: ValidationError) -> tuple[str, Key]:
    """The first problem that pydantic found, in words, and under which key."""
    first = error.errors(include_url=False)[0]
    key: Key = tuple(first["loc"])
    if first["type"] == "missing":
        return "is missing", key
    message = first["msg"].removeprefix("Value error, ")
    if not key or first["type"] == "value_error":
        return message, key
    return f"{message[:1].lower()}{message[1:]}, got {quoted(first['input'])}", key


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose keys must differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise Malformed("the key occurs twice", (key,))
            seen.add(key)
    return found
