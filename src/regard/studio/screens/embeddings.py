"""*Embeddings*: vectors of records, words or tokens as points of a plane or of space, coloured by
any column, with the nearest of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.errors import UsageError, UserError, did_you_mean
from regard.studio.screens import Screen, action, check_range, register_screen
from regard.studio.wire import column_json

if TYPE_CHECKING:
    from regard.pipelines.vector_sets import VectorSet

MOST_NEIGHBOURS = 100
LONGEST_NAME = 300  # characters


@register_screen("embeddings", title="Embeddings")
class Embeddings(Screen):
    """The vectors of a run."""

    @action
    def sets(self, run: str) -> dict[str, Any]:
        """Return which vectors a run has, and how they can be laid out."""
        from regard.look.vector_map import LAYOUTS, MOST_VECTORS

        pipeline = self.opened.pipeline(run)
        return {
            "run": run,
            "sets": list(pipeline.vector_sets),
            "layouts": list(LAYOUTS),
            "most": MOST_VECTORS,
        }

    @action
    def points(
        self,
        run: str,
        vectors: str = "",
        layout: str = "",
        dimensions: int = 2,
        most: int = 2000,
    ) -> dict[str, Any]:
        """Return at most so many vectors as points, their names and columns."""
        from regard.look.vector_map import LAYOUTS, lay_out

        layout = layout or LAYOUTS[0]
        name, vector_set = self._vectors(run, vectors, most)
        make = lambda: lay_out(vector_set.vectors, layout, dimensions)  # noqa: E731
        laid = self.opened.cached(
            ("layout", self.opened.version(run), name, most, layout, dimensions), make
        )
        return {
            "run": run,
            "of": name,
            "layout": layout,
            "dimensions": dimensions,
            "most": most,
            "points": laid.points,
            "axes": list(laid.axes),
            "note": laid.note,
            "names": [text[:LONGEST_NAME] for text in vector_set.names],
            "width": int(vector_set.vectors.shape[1]),
            "records": None if vector_set.records is None else vector_set.records.astype(np.int32),
            "columns": {
                key: column_json(cells) for key, cells in self._columns(run, vector_set).items()
            },
        }

    @action
    def neighbours(
        self, run: str, index: int, vectors: str = "", most: int = 2000, count: int = 12
    ) -> dict[str, Any]:
        """Return the vectors nearest to one by the cosine, among all that are drawn."""
        from regard.look.page.document import number
        from regard.look.vector_map import nearest_vectors, unit_vectors

        _, vector_set = self._vectors(run, vectors, most)
        check_range("index", index, 0, len(vector_set.names) - 1)
        check_range("count", count, 1, MOST_NEIGHBOURS)
        nearest = nearest_vectors(unit_vectors(vector_set.vectors), index, count)
        return {"index": index, "neighbours": [[i, number(cosine)] for i, cosine in nearest]}

    def _vectors(self, run: str, vectors: str, most: int) -> tuple[str, VectorSet]:
        """Return a set of vectors and its name."""
        from regard.look.vector_map import MOST_VECTORS

        check_range("most", most, 5, MOST_VECTORS)
        sets = self.opened.pipeline(run).vector_sets
        if not sets:
            raise UserError(
                f"{run} has no vectors to draw: its model has neither a vector for each record nor "
                "a table of token embeddings"
            )
        name = vectors or next(iter(sets))
        if name not in sets:
            raise UsageError(f"{run} has no vectors of {name}; {did_you_mean(name, list(sets))}")

        key = ("vectors", self.opened.version(run), name, most)
        return name, self.opened.cached(key, lambda: sets[name](most))

    def _columns(self, run: str, vector_set: VectorSet) -> dict[str, Sequence[Any]]:
        """Return the columns of points: of records, those of the table of errors too."""
        from regard.look.record_table import colour_columns, record_table

        columns: dict[str, Sequence[Any]] = dict(vector_set.columns)
        if vector_set.records is None:
            return columns
        pipeline = self.opened.pipeline(run)
        errors = self.opened.cached(
            ("errors", self.opened.version(run)), lambda: record_table(pipeline)
        )
        rows = {int(n): i for i, n in enumerate(errors.numbers)}
        indices = [rows.get(int(n)) for n in vector_set.records]
        if any(i is None for i in indices):
            return columns  # more records are drawn than were evaluated
        return columns | {
            name: [cells[i] for i in indices if i is not None]
            for name, cells in colour_columns(errors).items()
        }
