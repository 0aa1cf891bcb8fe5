"""The companion of the lectures: for each heading of five decks an idea, a command and a class.

The texts are the TOML files of this folder: the headings of each deck in order (`000` to `004`),
the concepts they refer to, the figures and systems that the decks name, what they state wrongly,
and `setup`: the data sets and runs that commands need first.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from regard.errors import UsageError, did_you_mean

FOLDER = Path(__file__).parent
DECKS = ("000", "001", "002", "003", "004")
ERRATA_COMMAND = "regard lab errata --quick --out lab"


@dataclass(frozen=True, kw_only=True)
class CommandStep:
    """A command; `makes` is the file or folder that it writes once, `after` the step it needs."""

    command: str
    makes: str = ""
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class LectureEntry:
    """A heading, a concept, a figure or a system, and what shows it.

    `after` names the step that the command needs, `shows` says what to look at, `code` is the
    dotted path of what implements it, `tests` the file of its test, `live` the name of a page of
    the gallery, `left` what is left out. An entry without a command has a `reason`.
    """

    title: str
    idea: str = ""
    concept: str = ""
    erratum: str = ""
    after: str = ""
    command: str = ""
    shows: str = ""
    code: str = ""
    live: str = ""
    tests: str = ""
    left: str = ""
    reason: str = ""

    @property
    def steps(self) -> list[CommandStep]:
        """What to type in an empty folder: the steps that the command needs, and the command."""
        if not self.command:
            return []
        words = self.command.split()
        trains = words[1] == "train" and "--out" in words
        makes = words[words.index("--out") + 1] if trains else ""
        return [*_chain(self.after), CommandStep(command=self.command, makes=makes)]

    @property
    def commands(self) -> list[str]:
        return [step.command for step in self.steps]

    @property
    def source(self) -> str:
        """The file of `code` within src/."""
        parts = self.code.split(".")
        while parts:
            path = FOLDER.parents[1].joinpath(*parts)
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    return file.relative_to(FOLDER.parents[1]).as_posix()
            parts.pop()
        raise ValueError(f"code must be a dotted path of regard, got {self.code!r}")

    def to_json(self, deck: Deck) -> dict[str, Any]:
        """Return the document of `regard lecture --json` on a heading of a deck."""
        erratum = load_errata()[self.erratum].right if self.erratum else ""
        return {
            "lecture": deck.number,
            "heading": self.title,
            "idea": self.idea,
            "correction": plain(erratum),
            "commands": self.commands,
            "shows": plain(self.shows),
            "class": self.code,
            "file": f"src/{self.source}" if self.code else "",
            "left_out": plain(self.left),
            "reason": self.reason,
        }


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """What a deck states, what is right, and the reference; `shown` if `regard lab errata`
    measures it, or another command.
    """

    deck: str
    says: str
    right: str
    reference: str
    measured: bool = False
    command: str = ""

    @property
    def commands(self) -> list[str]:
        return [
            *([ERRATA_COMMAND] if self.measured else []),
            *([self.command] * bool(self.command)),
        ]


@dataclass(frozen=True, kw_only=True)
class Deck:
    """The headings of a deck, in order."""

    number: str
    title: str
    headings: Sequence[LectureEntry]

    def find(self, text: str) -> LectureEntry:
        """Return the heading with this title, or the only one that has all of these words."""
        return find(text, self.headings, f"in lecture {self.number}")


def load_table(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def load_steps() -> Mapping[str, CommandStep]:
    return {name: CommandStep(**table) for name, table in load_table("setup").items()}


def _chain(name: str) -> Iterator[CommandStep]:
    if name:
        step = load_steps()[name]
        yield from _chain(step.after)
        yield step


@cache
def load_concepts() -> Mapping[str, LectureEntry]:
    """Return the concepts by number, as A1."""
    return {number: LectureEntry(**table) for number, table in load_table("concepts").items()}


@cache
def load_errata() -> Mapping[str, Erratum]:
    """Return the corrections by number, as E1."""
    return {number: Erratum(**table) for number, table in load_table("errata").items()}


def load_entries(name: str) -> list[LectureEntry]:
    """Return the entries of `plots`, `systems` or of a deck; what they lack is their concept's."""
    return [_complete(LectureEntry(**table)) for table in load_table(name)["entries"]]


def _complete(entry: LectureEntry) -> LectureEntry:
    """Return an entry with the command, the figure and the class of its concept, unless it has its
    own.
    """
    if not entry.concept:
        return entry
    concept = load_concepts()[entry.concept]
    names = ["code"] if entry.command else ["after", "command", "shows", "code", "live", "reason"]
    lacking = {name: getattr(concept, name) for name in names if not getattr(entry, name)}
    return replace(entry, **lacking)


@cache
def load_deck(number: str) -> Deck:
    """Return a deck by its number, as 002 or 2."""
    number = number.zfill(len(DECKS[0]))
    if number not in DECKS:
        raise UsageError(f"unknown lecture {number!r}; {did_you_mean(number, list(DECKS))}")
    return Deck(number=number, title=load_table(number)["title"], headings=load_entries(number))


def find(text: str, entries: Sequence[LectureEntry], where: str) -> LectureEntry:
    """Return the entry with this title, or the only one with these words in this order, or in any,
    or else in its idea; case and punctuation do not count.
    """
    wanted = simplify(text)
    titles = {simplify(entry.title): entry for entry in reversed(entries)}
    if wanted in titles:
        return titles[wanted]
    matches = search(text, entries)
    in_order = [entry for entry in matches if f" {wanted}" in f" {simplify(entry.title)}"]
    for candidates in (in_order, matches):
        if len(candidates) == 1:
            return candidates[0]
    if matches:
        names = ", ".join(repr(entry.title) for entry in matches)
        raise UsageError(f"{len(matches)} headings {where} have {text!r}; choose one of {names}")
    close = get_close_matches(wanted, list(titles), n=1)
    hint = f"did you mean {titles[close[0]].title!r}?" if close else "without one all are listed"
    raise UsageError(f"no heading {where} has {text!r}; {hint}")


def search(text: str, entries: Sequence[LectureEntry]) -> list[LectureEntry]:
    """Return the entries whose title has all words of a text, or words that begin like them; if
    none has, those whose title and idea have them.
    """
    words = simplify(text).split()
    titles = [entry.title for entry in entries]
    for texts in (titles, [f"{entry.title} {entry.idea}" for entry in entries]):
        matches = [
            entry
            for entry, of in zip(entries, texts, strict=True)
            if words and all(f" {word}" in f" {simplify(of)}" for word in words)
        ]
        if matches:
            return matches
    return []


def simplify(text: str) -> str:
    """Return the words of a text in lower case, without punctuation."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def plain(text: str) -> str:
    """Return Markdown without links and code marks, for a terminal."""
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("`", "")
