"""The screen *Lab and lectures*: experiments to run and watch, and what each heading means here."""

from __future__ import annotations

from typing import Any

from regard.errors import UsageError, quoted
from regard.studio.jobs import file_word
from regard.studio.screens import Screen, action, register_screen

FOLDER = "lab"  # of the pages, among the runs


@register_screen("lectures", title="Lab and lectures")
class Lectures(Screen):
    """The experiments of `regard lab` and the headings of `regard lecture`."""

    @action
    def experiments(self) -> dict[str, Any]:
        """Return the experiments, each with the page that an earlier run of it wrote."""
        from regard.lab import EXPERIMENTS

        rows = [
            {
                "name": name,
                "question": one.question,
                "lecture": one.lecture,
                "file": one.file,
                "page": self.page(name),
            }
            for name, one in EXPERIMENTS.items()
        ]
        return {"experiments": rows}

    def page(self, name: str) -> str:
        """Return the name of the page of an experiment, or "" if there is none."""
        page = f"{FOLDER}/{name}.html"
        return page if (self.opened.root / page).is_file() else ""

    @action
    def run(self, name: str, quick: bool = True, file: str = "") -> dict[str, Any]:
        """Start an experiment."""
        from regard.lab import EXPERIMENTS

        if name not in EXPERIMENTS:
            raise UsageError(f"no experiment {quoted(name)}; there are {', '.join(EXPERIMENTS)}")
        words = ["lab", name, *([file_word(str(self.opened.data(file)))] if file else [])]
        out = self.opened.from_data(self.opened.root / FOLDER)
        words += ["--quick"] * quick + ["--out", str(out)]
        return self.opened.jobs.start(words, self.name).to_json() | {
            "page": f"{FOLDER}/{name}.html"
        }

    @action
    def decks(self) -> dict[str, Any]:
        """Return the lectures and their headings."""
        from regard.lectures import DECKS, load_deck

        decks = [load_deck(number) for number in DECKS]
        return {
            "decks": [
                {
                    "number": deck.number,
                    "title": deck.title,
                    "headings": [entry.title for entry in deck.headings],
                }
                for deck in decks
            ]
        }

    @action
    def heading(self, deck: str, heading: str) -> dict[str, Any]:
        """Return what a heading means here: `regard lecture DECK HEADING --json`."""
        from regard.lectures import load_deck

        lecture = load_deck(deck)
        return lecture.find(heading).to_json(lecture)

    @action
    def type_commands(self, deck: str, heading: str) -> dict[str, Any]:
        """Start the commands of a heading in the folder of data, as `regard lecture --run` does."""
        from regard.lectures import load_deck

        entry = load_deck(deck).find(heading)
        if not entry.command:
            raise UsageError(f"{entry.title} has no command: {entry.reason}")
        return self.opened.jobs.start(["lecture", deck, entry.title, "--run"], self.name).to_json()
