"""The screen *Read*: a text as a model reads it, and what happens when its parts are off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from regard.data.shards import Shard
from regard.errors import UsageError, UserError
from regard.look.activation_search import ActivationSearch
from regard.studio.excitations import activations_json, matches_json
from regard.studio.film_views import map_json, record_json, split_of
from regard.studio.jobs import command_line, file_word
from regard.studio.pipeline_reading import open_reader, reader_of
from regard.studio.reading import ALL_LAYERS, Cut, Given, Reader, RecentResults, Tokens
from regard.studio.records import HeldOut
from regard.studio.screens import Screen, action, check_range, figure, register_screen
from regard.training.film import FILM, Film

if TYPE_CHECKING:
    from regard.studio.opened import Opened

MOST_MATCHES = 50
SEARCH = "search"  # the screen of its jobs
MODELS = 4  # whose readers are kept
EXAMPLE = 128  # tokens of running text that are shown first


class ReadingScreen(Screen):
    """A screen that reads texts, with the models that were used last."""

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self.readers: RecentResults[tuple[Any, Reader | None]] = RecentResults(MODELS)
        self.held_out: RecentResults[HeldOut] = RecentResults(MODELS)

    def find_reader(self, run: str) -> Reader | None:
        """Return what reads texts with a run; None if it reads something else."""
        pipeline = self.opened.pipeline(run)
        return self.readers.get(id(pipeline), lambda: (pipeline, open_reader(pipeline)))[1]

    def reader(self, run: str) -> Reader:
        reader = self.find_reader(run)
        if reader is None:
            raise UserError(f"{run} reads no texts token by token")
        return reader

    def records(self, run: str) -> HeldOut:
        """Return the held-out records of a run."""
        pipeline = self.opened.pipeline(run)
        return self.held_out.get(id(pipeline), lambda: HeldOut(pipeline))


@register_screen("read", title="Read")
class Read(ReadingScreen):
    """One text, or one held-out record, as a model reads it."""

    @action
    def open(self, run: str) -> dict[str, Any]:
        """Return what can be read with a run, and a first text."""
        reader, records = self.find_reader(run), self.records(run)
        entry = {"run": run, "records": records.count, "split": records.split, "reads": None}
        entry["film"] = (self.opened.run(run) / FILM).exists()
        if reader is None:
            return entry | {"records": records.count if records.has_pages else 0}
        text, second = self.example(reader, records)
        return entry | {
            "reads": [reader.first, *([reader.second] if reader.second else [])],
            "text": text,
            "second": second,
            "window": reader.window,
            "layers": [layer.to_json() for layer in reader.layers],
            "averages": reader.averages,
            "expects": reader.expects,
            "causal": reader.causal,
            "measures": reader.measures,
            "step": reader.step(Given(text, second)),
            "size": int(reader.model.vocab_size),
        }

    def example(self, reader: Reader, records: HeldOut) -> tuple[str, str]:
        try:
            return reader.example(EXAMPLE) or records.text(0)
        except (UserError, IndexError):
            return "", ""  # an imported model has no data

    @action
    def record(self, run: str, number: int) -> dict[str, Any]:
        """Return a held-out record as text, numbered from 0."""
        records = self.records(run)
        text, second = records.text(number)
        return {"number": number, "text": text, "second": second}

    @action
    def read(
        self,
        run: str,
        text: str,
        second: str = "",
        start: int = 0,
        stop: int = -1,
        off: list[str] | None = None,
    ) -> dict[str, Any]:
        """Return the tokens of a part of a text, characters `start` to `stop` in 16-bit units (-1:
        its end), with their surprise; where it is long, of as many as one answer holds.
        """
        reader, what = self.reader(run), given(text, second, off)
        tokens = reader.tokens(what)
        end = int(tokens.spans[-1, 1]) if len(tokens.ids) else 0
        first, last = tokens.within(start, end if stop < 0 else stop)
        last = min(last, first + reader.at_once)
        answer = tokens_json(tokens, first, last) | {"count": len(tokens.ids)}
        scores = reader.scores(what, first, last)
        if scores is not None:
            answer |= {"bits": scores.bits, "ranks": scores.ranks.astype(np.int32)}
        return answer

    @action
    def summary(
        self, run: str, text: str, second: str = "", off: list[str] | None = None
    ) -> dict[str, Any]:
        """Return what a model says of a text as a whole: its answer, the classes of positions, what
        each token adds, the source of a pair, and notes.
        """
        reader, what = self.reader(run), given(text, second, off)
        answer: dict[str, Any] = {"notes": reader.notes(what)}
        answer["figures"] = [figure(component) for component in reader.answer(what)]
        source = reader.source_tokens(what)
        if source is not None:
            answer["source"] = tokens_json(source, 0, len(source.ids))
        added = reader.added(what) if text else None
        if added is not None:
            answer["added"] = {"name": added[0], "values": added[1]}
        classes = reader.classes(what) if text else None
        if classes is not None:
            answer["classes"] = {"names": classes[0], "probabilities": classes[1]}
        return answer

    @action
    def expect(
        self,
        run: str,
        text: str,
        at: int,
        second: str = "",
        off: list[str] | None = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
    ) -> dict[str, Any]:
        """Return the most probable tokens at a position, and what sampling leaves of them."""
        reader, what = self.reader(run), given(text, second, off)
        try:
            cut = Cut(temperature, top_k, top_p)
            expected = reader.expected(what, at, cut)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if expected is None:
            return {"at": at, "tokens": None}
        raw = [reader.tokenizer.raw[i] for i in expected.ids]
        return {
            "at": at,
            "tokens": expected.names,
            "ids": expected.ids,
            "inserts": [token.decode("utf-8", "replace") for token in raw],
            "logits": expected.logits,
            "probabilities": expected.probabilities,
            "after": expected.after,
            "remaining": expected.remaining,
            "size": expected.size,
        }

    @action
    def attend(
        self,
        run: str,
        text: str,
        at: int,
        second: str = "",
        off: list[str] | None = None,
        layer: str = ALL_LAYERS,
        head: int = -1,
    ) -> dict[str, Any]:
        """Return where a head, or all heads on average (-1), look from a position."""
        reader, what = self.reader(run), given(text, second, off)
        attention = reader.attention(what, at, layer)
        if attention is None:
            return {"weights": None}
        pyramid = reader.pyramid(what, at, layer, head)
        assert pyramid is not None
        rows, columns = pyramid.shape
        weights = attention.weights
        row = weights.mean(0) if head < 0 else weights[head]
        names = reader.columns(what, attention)
        shown = reader.tokens(what)
        cursor = max(0, min(at, len(shown.ids)))  # after the last token: what follows the text
        return {
            "at": at,
            "names": names,
            "predicts": reader.causal,
            "names_row": (shown.names(cursor, cursor + 1) or [""])[0],
            "weights": row[attention.frame.row],
            "heads": weights[:, attention.frame.row],
            "row": attention.frame.row,
            "first": attention.first,
            "first_row": attention.frame.first,
            "source": attention.source,
            "shape": [rows, columns],
            "levels": pyramid.levels,
        }

    @action
    def effects(
        self, run: str, text: str, at: int, second: str = "", off: list[str] | None = None
    ) -> dict[str, Any]:
        """Return what each head is worth for the token at a position, by layer."""
        effects = self.reader(run).effects(given(text, second, off), at)
        return {"at": at, "effects": effects}

    @action
    def lens(self, run: str, text: str, at: int, second: str = "") -> dict[str, Any]:
        """Return what would be expected at a position after each block."""
        try:
            rows = self.reader(run).lens(given(text, second, None), at)
        except UserError as error:
            return {"at": at, "rows": [], "note": str(error)}
        keys = ("layer", "outputs", "bits")
        return {"at": at, "rows": [dict(zip(keys, row, strict=True)) for row in rows], "note": ""}

    @action
    def patch(self, run: str, text: str, at: int, other: str, second: str = "") -> dict[str, Any]:
        """Return which vectors of another text restore what it makes of the token at a position."""
        heatmap = self.reader(run).patch(given(text, second, None), at, other)
        return {"figure": None if heatmap is None else figure(heatmap)}

    @action
    def film(self, run: str, number: int = 0) -> dict[str, Any]:
        """Return the film of training of one of its records; where there is none, no steps."""
        film = self.find_film(run)
        if film is None:
            return {"steps": None}
        reader = self.film_reader(run)
        return record_json(film, reader, self.filmed_split(run, reader), number)

    @action
    def film_map(self, run: str) -> dict[str, Any]:
        """Return the records of the film as points, and what its heads do, at each step."""
        film = self.find_film(run)
        if film is None:
            return {"steps": None}
        reader = self.film_reader(run)
        return map_json(film, reader, self.filmed_split(run, reader))

    def find_film(self, run: str) -> Film | None:
        """Return the film of a run, also of one that is still training."""
        path = self.opened.run(run) / FILM
        if not path.exists():
            return None
        key = ("film", run, path.stat().st_mtime_ns)
        return self.opened.cached(key, lambda: Film.read(path))

    def film_reader(self, run: str) -> Reader:
        """Return what says what the film of a run is about, which may be items other than texts."""
        return self.find_reader(run) or reader_of(self.opened.pipeline(run)) or self.reader(run)

    def filmed_split(self, run: str, reader: Reader) -> Shard | None:
        """Return the records that the film of a run numbers."""
        key = ("filmed", self.opened.version(run))
        return self.opened.cached(key, lambda: split_of(reader))

    @action
    def activations(self, run: str) -> dict[str, Any]:
        """Return the activations whose units can be searched; a note where there are none."""
        pipeline = self.opened.pipeline(run)
        key = ("activations", self.opened.version(run))
        try:
            rows = self.opened.cached(key, lambda: activations_json(pipeline))
        except UserError as error:
            return {"activations": [], "note": str(error)}
        return {"activations": rows, "note": ""}

    @action
    def excite(self, run: str, activation: str, unit: int, count: int = 10) -> dict[str, Any]:
        """Return the records of the training data that excite a unit most; None where their index
        is missing, which the command of `search` builds.
        """
        check_range("count", count, 1, MOST_MATCHES)
        of = {
            "of": f"{activation}:{unit}",
            "command": command_line(self.search_words(run, activation, unit)),
        }
        search = ActivationSearch(self.opened.pipeline(run), activation)
        if not search.path.exists():
            return of | {"records": None}
        key = ("index", self.opened.version(run), activation, search.path.stat().st_mtime_ns)
        index = self.opened.cached(key, search.stored)
        if index is None:
            return of | {"records": None}
        return of | matches_json(index, self.reader(run), unit, count)

    @action
    def search(self, run: str, activation: str, unit: int) -> dict[str, Any]:
        """Start the command that builds the index of an activation and prints these records."""
        ActivationSearch(self.opened.pipeline(run), activation)  # the name is one
        words = self.search_words(run, activation, unit)
        return self.opened.jobs.start(words, SEARCH).to_json()

    def search_words(self, run: str, activation: str, unit: int) -> list[str]:
        folder = file_word(str(self.opened.from_data(self.opened.run(run).path)))
        return ["look", folder, "--excites", f"{activation}:{unit}"]

    @action
    def tile(
        self,
        run: str,
        text: str,
        at: int,
        level: int,
        row: int,
        column: int,
        second: str = "",
        off: list[str] | None = None,
        layer: str = ALL_LAYERS,
        head: int = -1,
    ) -> dict[str, Any]:
        """Return a tile of the map of a head: the greatest and the mean weights of its cells."""
        pyramid = self.reader(run).pyramid(given(text, second, off), at, layer, head)
        if pyramid is None:
            return {"greatest": None}
        try:
            greatest, mean = pyramid.tile(level, row, column)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return {"greatest": np.ascontiguousarray(greatest), "mean": np.ascontiguousarray(mean)}

    @action
    def page(self, run: str, number: int = 0) -> dict[str, Any]:
        """Return the sections of the look page of a record that is no text."""
        return self.records(run).page(number)


def given(text: str, second: str, off: list[str] | None) -> Given:
    return Given(text, second, tuple(sorted(off or ())))


def tokens_json(tokens: Tokens, first: int, last: int) -> dict[str, Any]:
    """Return tokens with their places in the text."""
    spans = tokens.spans[first:last].astype(np.int32)
    return {
        "first": first,
        "names": tokens.names(first, last),
        "starts": np.ascontiguousarray(spans[:, 0]),
        "ends": np.ascontiguousarray(spans[:, 1]),
    }
