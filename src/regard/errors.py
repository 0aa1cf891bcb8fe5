"""Errors a user can cause: one clear line, an exit code, never a traceback."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

MAX_MESSAGE = 400  # characters of a message
MAX_QUOTE = 80  # characters of what a message quotes from a file or a command
# What a terminal obeys, or what reverses or hides text: C0 and C1 controls, marks of direction,
# line separators, lone surrogates and invisible characters.
CONTROLS = re.compile(
    "[\x00-\t\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
LONG_QUOTE = re.compile(rf"(?<!\w)(['\"])((?:(?!\1).){{{MAX_QUOTE + 1},}})\1(?!\w)")


class UserError(ValueError):
    """Something in the user's files or environment is wrong; the message names it and what is
    allowed.
    """

    exit_code = 1

    def __init__(self, message: str = "", *, details: Sequence[str] = ()) -> None:
        """`details` are further lines to print."""
        super().__init__(message)
        self.details = tuple(details)


class UsageError(UserError):
    """The command or recipe itself is wrong: an unknown key, a wrong type, a value out of range."""

    exit_code = 2


def printable(text: str) -> str:
    """Return text with control characters other than line breaks escaped, as in \\x1b."""
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def quoted(value: Any) -> str:
    """Return the repr of a value from outside, cut to 80 characters, for a message."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = MAX_QUOTE
    try:
        return _shorten(short.repr(value), MAX_QUOTE)
    except ValueError:  # integers of thousands of digits have no repr
        return "a number of thousands of digits"


def one_line(message: str) -> str:
    """Return a message for a terminal: one line of at most 400 characters without control
    characters, its quotations cut to 80 characters.
    """
    line = printable(" ".join(message.split("\n")))
    line = LONG_QUOTE.sub(lambda m: f"{m[1]}{_shorten(m[2], MAX_QUOTE)}{m[1]}", line)
    return _shorten(line, MAX_MESSAGE)


def _shorten(text: str, limit: int) -> str:
    """Cut the middle of a text: two thirds of the limit are its beginning, the rest its end."""
    if len(text) <= limit:
        return text
    first = 2 * limit // 3
    return f"{text[:first]}…{text[len(text) - (limit - first - 1) :]}"


def missing_extra(package: str, extra: str) -> UserError:
    """Return the error for an optional package that is not installed, with the command that
    installs it.
    """
    return UserError(f"this needs {package}, which is not installed: pip install 'regard[{extra}]'")


def did_you_mean(word: str, choices: list[str]) -> str:
    """Return a hint that names the closest choice, or all choices if none is close."""
    close = get_close_matches(word, choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(sorted(choices))}"
