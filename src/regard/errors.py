"""Errors a user can cause: one clear line, an exit code, never a traceback."""

from __future__ import annotations

import re
import reprlib
from typing import Any

LONGEST = 400  # characters of a message
QUOTED = 80  # characters of what it quotes from a file or a command
# What a terminal obeys, or what turns or hides text: C0 and C1 controls, marks of direction, line
# separators, halves of surrogate pairs and invisible characters.
ODD = re.compile(
    "[\x00-\t\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
QUOTE = re.compile(rf"(?<!\w)(['\"])((?:(?!\1).){{{QUOTED + 1},}})\1(?!\w)")


class UserError(ValueError):
    """Something in the user's files or environment is wrong; the message names it and what is
    allowed.
    """

    exit_code = 1


class UsageError(UserError):
    """The command or recipe itself is wrong: an unknown key, a wrong type, a value out of range."""

    exit_code = 2


def printable(text: str) -> str:
    """Text with control characters other than line breaks written out, as \\x1b."""
    return ODD.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def quoted(value: Any) -> str:
    """A value from outside as a message shows it: its repr, cut to 80 characters."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = QUOTED
    try:
        return _cut(short.repr(value), QUOTED)
    except ValueError:  # whole numbers of thousands of digits have no repr
        return "a number of thousands of digits"


def one_line(message: str) -> str:
    """A message for a terminal: one line without control characters, what it quotes cut to 80
    characters and the whole, in its middle, to 400.
    """
    line = printable(" ".join(message.split("\n")))
    line = QUOTE.sub(lambda found: f"{found[1]}{_cut(found[2], QUOTED)}{found[1]}", line)
    return _cut(line, LONGEST)


def _cut(text: str, most: int) -> str:
    """At most so many characters: two thirds of them from the beginning, the rest from the end."""
    if len(text) <= most:
        return text
    first = 2 * most // 3
    return f"{text[:first]}…{text[len(text) - (most - first - 1) :]}"


def missing_extra(package: str, extra: str) -> UserError:
    """The answer to an optional package that is not installed: the one line that installs it."""
    return UserError(f"this needs {package}, which is not installed: pip install 'regard[{extra}]'")


def did_you_mean(word: str, choices: list[str]) -> str:
    """A hint naming the closest choice, or all of them when none is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(sorted(choices))}"
