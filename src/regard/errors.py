"""Errors a user can cause: one clear line, an exit code, never a traceback."""

from __future__ import annotations


class UserError(ValueError):
    """Something in the user's files or environment is wrong; the message names it and what is
    allowed.
    """

    exit_code = 1


class UsageError(UserError):
    """The command or recipe itself is wrong: an unknown key, a wrong type, a value out of range."""

    exit_code = 2


def missing_extra(package: str, extra: str) -> UserError:
    """The answer to an optional package that is not installed: the one line that installs it."""
    return UserError(f"this needs {package}, which is not installed: pip install 'regard[{extra}]'")


def did_you_mean(word: str, choices: list[str]) -> str:
    """A hint naming the closest choice, or all of them when none is close."""
    from difflib import get_close_matches

    close = get_close_matches(word, choices, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(sorted(choices))}"
