"""The screen *Data*: the report of `regard data` on files or on what a run was trained on, and a
browser of its records by label, split and text, with pictures of items that have some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from regard.errors import UserError
from regard.recipe import SPLITS
from regard.studio.jobs import command_line, file_word, option_words
from regard.studio.opened import Cache, Opened
from regard.studio.screens import Screen, action, check_range, figure, register_screen

if TYPE_CHECKING:
    from regard.data.sources import SourceChunk
    from regard.look.page.records import Picture
    from regard.recipe import DataRecipe, Recipe

MOST_RECORDS = 50_000  # that are kept for browsing
PER_PAGE = 24
MOST_LABELS = 100
WIDTH = 2000  # characters of a record that are shown


@dataclass(frozen=True)
class Record:
    """A record of a data set: its number, its texts, its label, its split and where it stands."""

    number: int
    text: str
    source: str
    labels: tuple[str, ...]
    split: str
    location: str

    def contains(self, part: str) -> bool:
        """Return whether its texts contain a part, in lower case; or its place, without texts."""
        texts = (self.text, self.source) if self.text or self.source else (self.location,)
        return any(part in text.casefold() for text in texts)

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
        listed = self.listed(files, run, input, target, task)
        records = listed.records
        part = text.casefold()
        matching = [one for one in records if one.contains(part)]
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
            "pictures": listed.modality.has_pictures,
            "noun": listed.modality.words[0],
        }

    @action
    def pictures(
        self,
        numbers: list[int],
        files: list[str],
        run: str = "",
        input: str = "",
        target: str = "",
        task: str = "",
    ) -> dict[str, Any]:
        """Return how the records of these numbers are drawn small."""
        from regard.look.page import ItemPicture

        listed = self.listed(files, run, input, target, task)
        check_range("numbers", len(numbers), 0, PER_PAGE)
        for number in numbers:
            check_range("number", number, 0, len(listed.records) - 1)
        pictures = self.opened.cached(
            ("pictures", listed.key, tuple(numbers)), lambda: listed.pictures(numbers)
        )
        figures = [figure(ItemPicture(picture)) for picture in pictures]
        return {"pictures": dict(zip(map(str, numbers), figures, strict=True))}

    def listed(
        self, files: Sequence[str], run: str, input: str, target: str, task: str
    ) -> RecordBrowser:
        """Return the records of files or of a run, read once."""
        recipe = self.recipe(files, run, input, target)
        key = ("records", run, recipe, task, stamps([Path(path) for path in recipe.train]))
        records: RecordBrowser = self.browsed.get(
            key, lambda: RecordBrowser(self.complete(recipe, run, task), key)
        )
        return records

    def complete(self, recipe: DataRecipe, run: str, task: str) -> Recipe:
        """Return the complete recipe of a run or, for files, the one that training would have."""
        from regard.planning import plan_recipe

        if run:
            return self.opened.run(run).recipe
        columns = {"input": recipe.input, "target": recipe.target}
        return plan_recipe(recipe.train, data=columns, task={"name": task})[0]


class RecordBrowser:
    """The first records of a recipe, in order; `key` tells it from other lists. Of items that are
    no texts only the places are kept: those that are drawn are read again.
    """

    def __init__(self, recipe: Recipe, key: Hashable) -> None:
        from regard.data.sources import DataSource

        self.key = key
        self.reading = Lock()  # passes over the files follow one another
        self.source = DataSource.of(recipe)
        self.modality = self.source.modality
        first = enumerate(islice(self.places(), MOST_RECORDS))
        self.records = [self.record(number, chunk, i) for number, (chunk, i) in first]

    def places(self) -> Iterator[tuple[SourceChunk, int]]:
        """Yield the chunk of each record and its place there."""
        for chunk in self.source.chunks():
            yield from ((chunk, i) for i in range(len(chunk.texts)))

    def record(self, number: int, chunk: SourceChunk, i: int) -> Record:
        """Return a record of a chunk. Items that are no texts are named by their place; the targets
        of pairs are texts, not labels.
        """
        location = chunk.place(i) if chunk.place else ""
        labelled = bool(chunk.targets) and not self.source.paired
        return Record(
            number=number,
            text=shown(chunk.texts[i]),
            source=shown(chunk.sources[i]) if chunk.sources else "",
            labels=tuple(chunk.targets[i]) if labelled else (),
            split=(*SPLITS, "unused")[chunk.split],
            location=location.rpartition("/")[2],
        )

    def pictures(self, numbers: Sequence[int]) -> list[Picture]:
        """Return how records are drawn."""
        items = self.items(numbers)
        return [self.modality.picture(items[number]) for number in numbers]

    def items(self, numbers: Sequence[int]) -> dict[int, Any]:
        """Return what a model reads of records, by their numbers."""
        if self.modality.reads_text:
            records = [self.records[number] for number in numbers]
            return {one.number: one.source if self.source.paired else one.text for one in records}
        with self.reading:
            places = enumerate(islice(self.places(), max(numbers, default=-1) + 1))
            return {
                number: (chunk.sources if self.source.paired else chunk.texts)[i]
                for number, (chunk, i) in places
                if number in numbers
            }


def shown(item: Any) -> str:
    """Return a text; of anything else nothing, since its place names it."""
    return item if isinstance(item, str) else ""


def stamps(paths: Sequence[Path]) -> tuple[int, ...]:
    """Return when files were changed last; 0 for those that are gone."""
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
