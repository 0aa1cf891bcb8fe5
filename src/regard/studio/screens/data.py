"""The screen *Data*: the report of `regard data` on files or on what a run was trained on, and a
browser of its records by label, split and text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UserError
from regard.recipe import SPLITS
from regard.studio.jobs import command_line, file_word, option_words
from regard.studio.opened import Cache, Opened
from regard.studio.screens import Screen, action, register_screen

if TYPE_CHECKING:
    from regard.recipe import DataRecipe, Recipe

MOST_RECORDS = 50_000  # that are kept for browsing
PER_PAGE = 50
MOST_LABELS = 100
WIDTH = 2000  # characters of a record that are shown


@dataclass(frozen=True)
class Record:
    """A record of a data set: its texts, its label, its split and where it stands."""

    text: str
    source: str
    labels: tuple[str, ...]
    split: str
    location: str

    def to_json(self) -> dict[str, Any]:
        """Return the record, cut where it is very long."""
        short = replace(self, text=self.text[:WIDTH], source=self.source[:WIDTH])
        return asdict(short) | {"cut": max(len(self.text), len(self.source)) > WIDTH}


@register_screen("data", title="Data")
class DataScreen(Screen):
    """What is in data files."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.browsed = Cache(2)  # lists of records are large

    @action
    def report(
        self,
        files: list[str],
        run: str = "",
        input: str = "",
        target: str = "",
        task: str = "",
    ) -> dict[str, Any]:
        """Return the page of `regard data` on files, or on the training files of a run."""
        from regard.look.data_page import data_page

        recipe = self.recipe(files, run, input, target)
        paths = [Path(path) for path in recipe.train]
        key = ("report", run, recipe, task, stamps(paths))
        report = self.opened.cached(key, lambda: self.inspect(recipe, run, task))
        page = data_page(report, [path.name for path in paths]).to_json()
        return {"page": page, "command": self.command(recipe, task)}

    def inspect(self, recipe: DataRecipe, run: str, task: str) -> Any:
        """Return the report on the data of a recipe; a run has decided its task already."""
        from regard.inspection import inspect_data, report_on

        if not run:
            return inspect_data(recipe, task)
        name = self.opened.run(run).recipe.task.name
        return report_on(recipe, name, "as the run was trained", ())

    def recipe(self, files: Sequence[str], run: str, input: str, target: str) -> DataRecipe:
        """Return what is to be read; raise a UserError if a file of it is out of reach."""
        from regard.recipe import DataRecipe

        if run:
            recipe: DataRecipe = self.opened.run(run).recipe.data
            for path in (*recipe.train, *recipe.valid, *recipe.test, recipe.labels):
                if path:
                    self.opened.data(path)
            return recipe
        if not files:
            raise UserError("name a file, or choose a run")
        paths = [str((self.opened.data_folder / self.opened.data(one)).resolve()) for one in files]
        self.opened.check_columns(input, target)
        return DataRecipe(train=tuple(paths), input=input, target=target)

    def command(self, recipe: DataRecipe, task: str) -> str:
        """Return the command that prints the same."""
        files = [str(self.opened.from_data(Path(path))) for path in recipe.train]
        options = {"--input": recipe.input, "--target": recipe.target, "--task": task}
        return command_line(["data", *map(file_word, files), *option_words(options)])

    @action
    def records(
        self,
        files: list[str],
        run: str = "",
        input: str = "",
        target: str = "",
        task: str = "",
        label: str = "",
        split: str = "",
        text: str = "",
        first: int = 0,
    ) -> dict[str, Any]:
        """Return a page of the records that have a label, are of a split and contain a text; and
        how many records each label and each split has among those that match the other filters.
        """
        recipe = self.recipe(files, run, input, target)
        key = ("records", run, recipe, task, stamps([Path(path) for path in recipe.train]))
        records = self.browsed.get(key, lambda: self.read(recipe, run, task))
        part = text.casefold()
        matching = [
            one for one in records if part in one.text.casefold() or part in one.source.casefold()
        ]
        labelled = [one for one in matching if not label or label in one.labels]
        chosen = [one for one in labelled if not split or split == one.split]
        of_split = [one for one in matching if not split or split == one.split]
        labels = Counter(label for one in of_split for label in one.labels)
        first = max(0, first)
        return {
            "records": [one.to_json() for one in chosen[first : first + PER_PAGE]],
            "found": len(chosen),
            "all": len(records),
            "first": first,
            "per_page": PER_PAGE,
            "labels": [[name, count] for name, count in labels.most_common(MOST_LABELS)],
            "splits": list(Counter(one.split for one in labelled).items()),
            "cut": len(records) >= MOST_RECORDS,
        }

    def read(self, recipe: DataRecipe, run: str, task: str) -> list[Record]:
        """Return the records of a recipe, in order, with the splits that training would have."""
        from itertools import islice

        from regard.planning import plan_recipe

        if run:
            complete: Recipe = self.opened.run(run).recipe
        else:
            columns = {"input": recipe.input, "target": recipe.target}
            complete, _ = plan_recipe(recipe.train, data=columns, task={"name": task})
        return list(islice(records_of(complete), MOST_RECORDS))


def records_of(recipe: Recipe) -> Iterator[Record]:
    """Yield the records of a complete recipe. Items that are no texts are named by their place."""
    from regard.data.sources import DataSource

    source = DataSource.of(recipe)
    for chunk in source.chunks():
        split = (*SPLITS, "unused")[chunk.split]
        for i, item in enumerate(chunk.texts):
            location = chunk.place(i) if chunk.place else ""
            other = chunk.sources[i] if chunk.sources else ""
            yield Record(
                shown(item),
                shown(other),
                tuple(chunk.targets[i]) if chunk.targets else (),
                split,
                location.rpartition("/")[2],
            )


def shown(item: Any) -> str:
    """Return a text; of anything else nothing, since its place names it."""
    return item if isinstance(item, str) else ""


def stamps(paths: Sequence[Path]) -> tuple[int, ...]:
    """Return when files were changed last; 0 for those that are gone."""
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
