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


def human_size(n_bytes: float) -> str:
    """Return a number of bytes in the largest unit of which there is one."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    power = min(len(units) - 1, max(0, (len(f"{n_bytes:.0f}") - 1) // 3))
    value = n_bytes / 1000**power
    return f"{value:.{1 if power and value < 10 else 0}f} {units[power]}"


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


# Words of other programs, and of people, for ours: commands, options and keys of recipes.
SYNONYMS = {
    "classify": "predict",
    "infer": "predict",
    "sample": "generate",
    "complete": "generate",
    "eval": "evaluate",
    "test": "evaluate",
    "measure": "evaluate",
    "fit": "train",
    "finetune": "train",
    "benchmark": "compare",
    "explain": "look",
    "visualize": "look",
    "check": "verify",
    "inspect": "data",
    "encode": "embed",
    "vectors": "embed",
    "perplexity": "score",
    "save": "export",
    "convert": "export",
    "list": "runs",
    "ls": "runs",
    "info": "show",
    "delete": "rm",
    "remove": "rm",
    "consensus": "mbr",
    "--with": "--ensemble",
    "--label": "--target",
    "--column": "--input",
    "--time": "--minutes",
    "--output": "--out",
    "learning_rate": "lr",
    "epochs": "steps",
    "max_steps": "steps",
    "batch_size": "batch_tokens",
    "hidden_size": "d_model",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "max_length": "max_len",
    "context": "max_len",
    "random_state": "seed",
}


def closest(word: str, choices: Sequence[str]) -> str:
    """Return the choice that a word most likely stands for, or ""."""
    meant = SYNONYMS.get(word, SYNONYMS.get(word.replace("-", "_"), ""))
    if meant in choices:
        return meant
    return next(iter(get_close_matches(word, choices, n=1, cutoff=0.6)), "")


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """Return a hint that names the closest choice, or all choices if none is close."""
    close = closest(word, choices)
    return f"did you mean {close!r}?" if close else f"choose one of {', '.join(sorted(choices))}"
