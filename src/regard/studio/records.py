"""The held-out records of a run, to be looked at one by one."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from regard.data.shards import Shard
from regard.errors import UserError
from regard.look.page import Page
from regard.look.records import Records
from regard.pipelines import Pipeline
from regard.registry import TASKS
from regard.studio.reading import RecentResults
from regard.tasks import LookRequest, Task

PAGES = 16  # that are kept
PART = 50_000  # tokens of a document of running text that are read as one record


class HeldOut:
    """The held-out records of a run, numbered from 0; running text is cut into parts."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.pages: RecentResults[dict[str, Any]] = RecentResults(PAGES)

    @cached_property
    def shard(self) -> tuple[str, Shard] | None:
        """The name of the split and its records; None where the run holds no data."""
        try:
            return self.pipeline.held_out()
        except UserError:
            return None

    @property
    def split(self) -> str:
        return self.shard[0] if self.shard else ""

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """The first and the last (exclusive) token of each record, markers left out."""
        if self.shard is None:
            return []
        shard = self.shard[1]
        if not shard.is_text:
            return []
        return [
            (start, min(int(last) - 1, start + PART))
            for first, last in zip(shard.offsets[:-1], shard.offsets[1:], strict=True)
            for start in range(int(first) + 1, int(last) - 1, PART)
        ]

    @property
    def count(self) -> int:
        if self.shard is None:
            return 0
        return len(self.spans) or self.shard[1].records // self.shard[1].views

    def text(self, number: int) -> tuple[str, str]:
        """Return a record as a text and, of a pair, its second text."""
        shard = self.held_out(number)
        tokenizer = self.pipeline.tokenizer
        if self.spans:
            ids = np.asarray(shard.ids[slice(*self.spans[number])])
            return tokenizer.decode(ids), ""
        text = self.original(number) or str(tokenizer.decode_record(self.row(shard, number)))
        if shard.source is None:
            return text, ""
        source = self.pipeline.source_tokenizer.decode_record(self.row(shard.source, number))
        return str(source), text

    def held_out(self, number: int) -> Shard:
        if self.shard is None:
            raise UserError(f"{self.pipeline.run} holds no held-out data: type a text")
        if not 0 <= number < self.count:
            raise UserError(f"number must be from 0 to {self.count - 1:,}, got {number:,}")
        return self.shard[1]

    def row(self, shard: Shard, number: int) -> Any:
        assert self.shard is not None
        return shard.record(number * self.shard[1].views)

    @cached_property
    def originals(self) -> Records | None:
        """The records with the texts that they were read from, of labelled ones."""
        labelled = self.shard is not None and self.shard[1].targets is not None
        labelled = labelled and self.shard is not None and self.shard[1].source is None
        if self.shard is None or not labelled or not self.pipeline.tokenizer.reads_text:
            return None
        return Records(self.pipeline, *self.shard)  # type: ignore[arg-type]

    def original(self, number: int) -> str:
        """Return the text of a labelled record as it is in the file; "" where that is gone."""
        return self.originals.originals.get(number, "") if self.originals else ""

    def page(self, number: int) -> dict[str, Any]:
        """Return the look page of a record that is no text; a task that has no records shows what
        it has.
        """
        return self.pages.get(number, lambda: self.draw(number).to_json())

    def draw(self, number: int) -> Page:
        run, record = self.pipeline.run, number if self.has_pages else None
        assert run is not None
        page: Page = self.task().page(run, LookRequest(record=record, log=lambda line: None))
        return page

    @property
    def task(self) -> type[Task]:
        run = self.pipeline.run
        assert run is not None
        task: type[Task] = TASKS[run.description.task]
        return task

    @property
    def has_pages(self) -> bool:
        """Whether there is a page about each record."""
        return self.task.shows_records and self.count > 0
