"""Damage: bytes, JSON and TOML documents changed by chance, always in the same way for one seed."""

import copy
import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any

HUGE = b"9" * 10_000
PIECES = (
    b"\x00", b"\xff" * 8, b"\x1b[2J\x1b]0;x\x07", "\u202e\u2066x".encode(), "\x9b31m".encode(),
    b"\xed\xa0\x80", b"\xef\xbb\xbf", b"NaN", b"-Infinity", b"1e999", HUGE, b"-1", b"0", b"1e-400",
    b"[" * 3000, b'{"a":' * 3000, b'"', b"'", b"\\ud800", b"\\", b"\r", b"\n" * 50, b",", b"\t",
    b">", b"x" * 100_000, "é".encode("latin-1"), "𝔘".encode(), b"../../etc/passwd", b"%s%n",
    b"0x" + b"f" * 5000, b"inf", b"true", b"null", b"{}", b"[]", b"\xf0\x9f",
)  # fmt: skip
WORDS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**299, 0.5, -0.0, 1e308, 1e-320, "", "x", "\x00",
    "\x1b[31m", "\u202e", "x" * 5000, [], {}, [[]], {"": {}}, [1, "a", None], "NaN", "../..", "1",
)  # fmt: skip
# What JSON's writer would not write: put in as text.
RAW = (
    "NaN", "-Infinity", "1e999", "9" * 10_000, "-" + "9" * 4000, r'"\ud800"', r'"\udfff\ud800"',
    "[" * 5000 + "]" * 5000, '{"a":' * 900 + "1" + "}" * 900, '{"a": 1, "a": 2}', r'"\u0000"',
)  # fmt: skip
MARK = "@@here@@"
TOML = (
    "nan", "inf", "-inf", "9" * 10_000, "0x" + "f" * 5000, "9223372036854775808", "-1", "0", "1e99",
    '""', '"\\u202e"', '"x"', "[]", "{}", "{ a = 1 }", "[[1], ['a']]", "true", "1979-05-27",
    "'" + "y" * 3000 + "'",
    "[" * 3000, "'''a\nb'''", "1_0", "07:32:00", '["a", 1, 2.5]', '"\\u0000"',
)  # fmt: skip


def damaged_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes with one to three kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(WAYS)(rng, data)
    return data


def flip(rng: random.Random, data: bytes) -> bytes:
    """Some bits."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 4, 64))):
        if found:
            found[_place(rng, found)] ^= 1 << rng.randrange(8)
    return bytes(found)


def cut(rng: random.Random, data: bytes) -> bytes:
    """The beginning alone."""
    return data[: rng.choice((0, 1, rng.randrange(len(data) + 1), max(0, len(data) - 1)))]


def drop(rng: random.Random, data: bytes) -> bytes:
    """A slice left out."""
    at = _place(rng, data)
    return data[:at] + data[at + rng.choice((1, 4, 50, len(data) // 3)) :]


def repeat(rng: random.Random, data: bytes) -> bytes:
    """A slice twice, or many times."""
    at = _place(rng, data)
    size = rng.choice((1, 8, 100))
    return data[:at] + data[at : at + size] * rng.choice((2, 3, 300)) + data[at:]


def insert(rng: random.Random, data: bytes) -> bytes:
    """Something that readers stumble over."""
    at, piece = _place(rng, data), rng.choice(PIECES)
    return data[:at] + piece + data[at + rng.choice((0, len(piece))) :]


def lie(rng: random.Random, data: bytes) -> bytes:
    """A number of a header."""
    size = rng.choice((1, 2, 4, 8))
    at = rng.randrange(max(1, min(len(data), rng.choice((16, 64, len(data) or 1)))))
    word = (rng.choice(WORDS) & (256**size - 1)).to_bytes(size, rng.choice(("little", "big")))
    return data[:at] + word + data[at + size :]


def renumber(rng: random.Random, data: bytes) -> bytes:
    """A number that is written out."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", data[:200_000]))
    if not found:
        return insert(rng, data)
    one = rng.choice(found)
    other = (b"0", b"-1", b"1e999", b"NaN", b"1e30", HUGE, b"4294967296", b"99999999999", b"1.5.5")
    return data[: one.start()] + rng.choice(other) + data[one.end() :]


def recode(rng: random.Random, data: bytes) -> bytes:
    """Another encoding, or packing."""
    text = data.decode("utf-8", "replace")
    how = rng.randrange(6)
    if how == 0:
        return text.encode("utf-16")
    if how == 1:
        return text.encode("utf-32-le", "replace")
    if how == 2:
        return text.replace("a", "é").encode("latin-1", "replace")
    if how == 3:
        return b"\xef\xbb\xbf" + data
    packed = gzip.compress(data)
    return packed if how == 4 else packed[: rng.randrange(len(packed))]


def shuffle(rng: random.Random, data: bytes) -> bytes:
    """Lines in another order."""
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    flip, flip, cut, drop, repeat, insert, insert, lie, lie, renumber, renumber, recode, shuffle,
)  # fmt: skip


def _place(rng: random.Random, data: bytes | bytearray) -> int:
    """A place in the data, every other time near its beginning."""
    most = len(data) if rng.random() < 0.5 else min(len(data), 64)
    return rng.randrange(max(1, most))


def damaged_json(rng: random.Random, source: bytes) -> bytes:
    """A JSON document with a wrong value, key or type; now and then with damaged bytes."""
    if rng.random() < 0.2:
        return damaged_bytes(rng, source)
    document = json.loads(source)
    places = list(_places(document, ()))
    raw = ""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.choice(places)
        document = copy.deepcopy(document)
        try:
            document, raw = _changed(rng, document, place, raw)
        except (LookupError, TypeError):  # gone with a change before
            continue
    text = json.dumps(document)
    if raw:
        text = text.replace(f'"{MARK}"', raw)
    return text.encode("utf-8", "surrogatepass")


def damaged_lines(rng: random.Random, source: bytes) -> bytes:
    """JSON lines, one of which is damaged."""
    lines = source.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = damaged_json(rng, lines[at]) if lines[at].strip() else b"{"
    return b"\n".join(lines) + b"\n" * rng.randrange(2)


def _places(value: Any, here: tuple[Any, ...]) -> Any:
    """Where the values of a document lie; of long lists and tables, some."""
    yield here
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in list(pairs)[:40]:
            yield from _places(each, (*here, key))


def _changed(
    rng: random.Random, document: Any, place: tuple[Any, ...], raw: str
) -> tuple[Any, str]:
    new = copy.deepcopy(rng.choice(VALUES))
    how = rng.randrange(6)
    if how == 0 and not raw:
        new, raw = MARK, rng.choice(RAW)
    if not place:
        return new, raw
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    last = place[-1]
    if how == 1:
        del inner[last]
    elif how == 2 and isinstance(inner, dict):
        inner[rng.choice(("", "x", str(last) + "\u202e", "x" * 500, str(last).upper()))] = (
            inner.pop(last)
        )
    elif how == 3:
        inner[last] = [inner[last]] * rng.choice((1, 2, 1000))
    else:
        inner[last] = new
    return document, raw


def damaged_toml(rng: random.Random, source: bytes) -> bytes:
    """A recipe with a wrong value, key or table."""
    if rng.random() < 0.2:
        return damaged_bytes(rng, source)
    lines = source.decode().splitlines()
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines))
        key, equals, _ = lines[at].partition(" = ")
        how = rng.randrange(5)
        if equals and how < 3:
            lines[at] = f"{key} = {rng.choice(TOML)}"
        elif how == 3:
            lines.insert(at, lines[rng.randrange(len(lines))])
        else:
            del lines[at]
        lines = lines or [""]
    return "\n".join(lines).encode()
