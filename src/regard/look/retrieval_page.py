"""The page of a contrastive model: which texts match which sources, and what it finds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.shards import Shard
from regard.decoding.engine import evaluating
from regard.evaluation.retrieval import (
    CUTOFFS,
    EmbeddedPairs,
    RetrievalResult,
    found_within,
)
from regard.look.internals import quote, require_held_out, run_facts
from regard.look.page import Component, Heatmap, ImageMaps, Lines, Page, Table
from regard.look.prediction_page import register_error_plots
from regard.look.projection import spread
from regard.look.records import displayable
from regard.pipelines.matcher import Matcher

MATRIX = 24  # pairs whose products are drawn
EXAMPLES = 4  # queries of each direction
FOUND = 8  # candidates of a query
LONGEST = 60  # characters of a name


def retrieval_page(matcher: Matcher, query: str) -> Page:
    """Return the page of a run: its held-out pairs, and what it finds for a text or a file."""
    run = matcher.run
    assert run is not None
    split, shard = require_held_out(matcher, "text")
    with evaluating(matcher.model):
        pairs = HeldOutPairs(matcher, shard)
        title = f"{run.name}: {quote(query)}" if query else f"{run.name} matches pairs"
        page = Page.about(title, run_facts(run, matcher.model, matcher.tokenizer))
        if query:
            add_query(page, pairs, query, split)
        add_matrix(page, pairs, split)
        add_examples(page, pairs, split)
    return page


class HeldOutPairs:
    """The different sources and texts of a shard, their vectors, and how they are drawn."""

    def __init__(self, matcher: Matcher, shard: Shard) -> None:
        assert shard.source is not None
        self.matcher, self.shard = matcher, shard
        self.embedded = EmbeddedPairs.of(matcher.model, shard, matcher.tokenizer)
        self.products = self.embedded.products  # (I, J)
        pairs, first = self.embedded.pairs, self.embedded.first
        self.source_at, self.text_at = dict[int, int](), dict[int, int]()  # a record of each
        for (source, text), record in zip(pairs.tolist(), first.tolist(), strict=True):
            self.source_at.setdefault(source, record)
            self.text_at.setdefault(text, record)
        self.right = np.zeros(self.products.shape, bool)
        self.right[pairs[:, 0], pairs[:, 1]] = True

    def text(self, number: int) -> str:
        """Return a text, which may be cut."""
        return shorten(
            self.matcher.tokenizer.decode_record(self.shard.record(self.text_at[number]))
        )

    def source(self, number: int) -> Any:
        """Return a source: an image or a text."""
        assert self.shard.source is not None
        record = self.shard.source.record(self.source_at[number])
        return self.matcher.source_tokenizer.decode_record(record)

    def source_name(self, number: int) -> str:
        """Return the name of a source: a text by itself, anything else by its text."""
        if self.matcher.source_tokenizer.reads_text:
            return shorten(self.source(number))
        return self.text(int(np.flatnonzero(self.right[number])[0]))

    @property
    def words(self) -> tuple[str, str]:
        """A source, and several, in words."""
        words: tuple[str, str] = self.matcher.source_tokenizer.words
        return words if not self.matcher.source_tokenizer.reads_text else ("source", "sources")


def shorten(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def add_query(page: Page, pairs: HeldOutPairs, query: str, split: str) -> None:
    """Draw what is found for a text or for a file."""
    matcher = pairs.matcher
    is_source = (
        matcher.source_tokenizer.reads_text or Path(query.rpartition("[")[0] or query).exists()
    )
    page.section(
        f"Found for {quote(query)}",
        f"The best of all held-out {'texts' if is_source else pairs.words[1]} ({split} split), by "
        "the cosine of the angle between the vectors.",
    )
    if is_source:
        scores = pairs.embedded.texts @ matcher.embed(query)
        add_texts(page, pairs, scores, np.zeros(len(scores), bool))
    else:
        add_sources(page, pairs, pairs.embedded.sources @ matcher.embed_texts(query), "")


def add_matrix(page: Page, pairs: HeldOutPairs, split: str) -> None:
    """Draw the products of some sources and texts."""
    chosen = spread(len(pairs.embedded.pairs), MATRIX)
    sources = np.unique(pairs.embedded.pairs[chosen, 0])
    texts = [int(np.flatnonzero(pairs.right[i])[0]) for i in sources]
    texts = list(dict.fromkeys(texts))
    marks = [
        (row, column)
        for row, i in enumerate(sources.tolist())
        for column, j in enumerate(texts)
        if pairs.right[i, j]
    ]
    page.section(
        "How well each matches each",
        f"Rows are {pairs.words[1]} of the {split} split, columns their texts; the colour is the "
        "cosine of the angle between both vectors. Outlined cells belong together: a perfect model "
        "has its largest values there.",
    )
    page.add(
        Heatmap(
            pairs.products[sources][:, texts],
            [pairs.source_name(int(i)) for i in sources],
            [pairs.text(j) for j in texts],
            title="Cosines of pairs",
            scale="diverging",
            marks=marks,
        )
    )


def add_examples(page: Page, pairs: HeldOutPairs, split: str) -> None:
    """Draw what is found for some held-out texts and sources, and how often that is right."""
    of_texts = found_within(pairs.products.T, pairs.right.T)[:, 0]
    page.section(
        f"{pairs.words[1].capitalize()} for texts",
        f"For some texts of the {split} split, the best {pairs.words[1]}. The first is right "
        f"for {of_texts.mean():.1%} of {len(of_texts):,} texts.",
    )
    for j in spread(len(of_texts), EXAMPLES).tolist():
        add_sources(page, pairs, pairs.products[:, j], pairs.text(j), pairs.right[:, j])
    of_sources = found_within(pairs.products, pairs.right)[:, 0]
    page.section(
        f"Texts for {pairs.words[1]}",
        f"For some {pairs.words[1]}, the best texts. The first is right for "
        f"{of_sources.mean():.1%} of {len(of_sources):,} {pairs.words[1]}.",
    )
    for i in spread(len(of_sources), EXAMPLES).tolist():
        add_texts(page, pairs, pairs.products[i], pairs.right[i], i)


def add_sources(
    page: Page,
    pairs: HeldOutPairs,
    scores: NDArray[Any],
    query: str,
    right: NDArray[np.bool_] | None = None,
) -> None:
    """Draw the best sources of a query, with their scores."""
    best = np.argsort(-scores, kind="stable")[:FOUND].tolist()
    hits = [rank for rank, i in enumerate(best) if right is not None and right[i]]
    rows = [(rank, pairs.source_name(i), float(scores[i])) for rank, i in enumerate(best, 1)]
    title = quote(query) if query else "Best matches"
    if not pairs.matcher.source_tokenizer.reads_text:
        page.add(image_strip([pairs.source(i) for i in best], scores[best], title))
        title = ""
    name = f"{pairs.words[0]}, by its text" if hits or query else pairs.words[0]
    page.add(Table(("rank", name, "cosine"), rows, highlight=hits, title=title))


def add_texts(
    page: Page,
    pairs: HeldOutPairs,
    scores: NDArray[Any],
    right: NDArray[np.bool_],
    source: int | None = None,
) -> None:
    """Draw a source, and its best texts with their scores."""
    best = np.argsort(-scores, kind="stable")[:FOUND].tolist()
    hits = [rank for rank, j in enumerate(best) if right[j]]
    rows = [(rank, pairs.text(j), float(scores[j])) for rank, j in enumerate(best, 1)]
    title = "" if source is None else pairs.source_name(source)
    if source is not None and not pairs.matcher.source_tokenizer.reads_text:
        page.add(image_strip([pairs.source(source)], scores[best[:1]], title))
        title = ""
    page.add(Table(("rank", "text", "cosine"), rows, highlight=hits, title=title))


def image_strip(images: Sequence[Any], scores: NDArray[Any], title: str) -> ImageMaps:
    """Draw images side by side, each coloured by its score where the map is laid over it."""
    height, width = (max(image.shape[i] for image in images) for i in range(2))
    cells = []
    for image in images:
        pixels = displayable(image)
        cell = np.full((height, width, pixels.shape[2]), 255, np.uint8)
        cell[: pixels.shape[0], : pixels.shape[1]] = pixels
        cells.append(cell)
    blank = FOUND - len(cells)  # so that all images are of one size
    cells += [np.full_like(cells[0], 255)] * blank
    return ImageMaps(
        maps=np.pad(scores, (0, blank))[None, None],
        names=["cosine"],
        title=title,
        unit="cosine",
        scale="diverging",
        pixels=np.concatenate(cells, axis=1),
        grid=(1, FOUND),
    )


@register_error_plots(RetrievalResult, "Recall is the share of queries with a right answer.")
def plot_recall(
    predictions: Any, targets: Any, report: RetrievalResult, records: Any
) -> list[list[Component]]:
    """Draw the recall in both directions, beside that of chance."""
    metrics, cutoffs = report.metrics(), [float(k) for k in CUTOFFS]
    series, bands = [("chance", cutoffs, report.chance.tolist())], {}
    for answer, query in (("text", "source"), ("source", "text")):
        curve = [metrics[f"{answer}_recall_{k}"] for k in CUTOFFS]
        name = f"{answer}s of a {query}"
        series.append((name, cutoffs, [metric.value for metric in curve]))
        bands[name] = [metric.low for metric in curve], [metric.high for metric in curve]
    title, labels = "Recall by the number of answers", ("answers", "recall")
    lines = Lines(series, *labels, title=title, log_x=True, bands=bands, x_ticks=cutoffs)
    return [[lines]]
