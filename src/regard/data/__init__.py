"""From files to batches: readers, splits, inspection, order, shards, batching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Progress(Protocol):
    """Shows how far an activity is; called repeatedly while it goes on."""

    def __call__(
        self,
        activity: str,
        done: float,
        total: float = 0,
        items: str = "records",
        detail: str = "",
    ) -> None:
        """Show that `done` of `total` items are done (0: their number is not known); items may also
        be "bytes" or "seconds".
        """


def no_progress(
    activity: str, done: float, total: float = 0, items: str = "records", detail: str = ""
) -> None:
    """Show nothing."""


@dataclass(frozen=True, kw_only=True)
class Roles:
    """The fields of an example: an item to read, a text to predict token by token, labels."""

    input: bool = False  # the recipe has a table [input]
    output: bool = False  # the recipe has a table [output]
    labels: bool = False  # targets from columns, headers, or the names of files and folders
    labels_optional: bool = False  # read labelled data as labelled tasks do, without the labels

    @property
    def encoded(self) -> tuple[str, ...]:
        """The tables of the fields that a tokenizer or featurizer encodes."""
        return tuple(name for name in ("input", "output") if getattr(self, name))

    @property
    def paired(self) -> bool:
        """Whether an example has a source and a text to predict from it."""
        return self.input and self.output
