"""Pictures with captions: pairs whose sources are pictures, and whose targets are texts.

They stand where pictures with labels stand: in a table of paths and captions, in a `.npz` file, or
in two files of arrays. A picture may have several captions, a record each; copies, sides and leaks
go by the pixels, so that all of them are on one side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from regard.data.image_files import SUFFIXES, suffix
from regard.data.images import ImageFiles
from regard.data.labelled import ColumnSelection, LabelledChunk
from regard.data.media import MediaChunk
from regard.data.pairs import Pairs
from regard.errors import UsageError, UserError


@dataclass(frozen=True, slots=True)
class CaptionedChunk(MediaChunk):
    """Some captions, in `texts`, and the picture that each tells, in `sources`."""


class Captions(ImageFiles):
    """Files of pictures and captions as pairs."""

    called: ClassVar[str] = "captions"

    def __init__(
        self, paths: Sequence[Path], asked: ColumnSelection, *, strict: bool = False, side: int = 0
    ) -> None:
        if len(asked.inputs) > 1 or len(asked.targets) > 1:
            raise UsageError("captions need one column of pictures and one of texts")
        super().__init__(paths, asked, strict=strict, side=side)

    def settle(self) -> str:
        """See Collected."""
        if suffix(self.files[0]) in SUFFIXES:
            raise UsageError(
                f"{self.paths[0]}: pictures without captions; give a table of both, with "
                "--input for the column of paths and --target for that of the captions"
            )
        return super().settle()

    def examples(self) -> Iterator[LabelledChunk]:
        """See Labelled."""
        for chunk in super().examples():
            assert isinstance(chunk, MediaChunk)
            if len(chunk.targets[0]) != 1:
                raise UserError(f"{chunk.path}: a picture has one caption, got an array of more")
            yield CaptionedChunk(
                chunk.path,
                [cells[0] for cells in chunk.targets],
                chunk.lines,
                chunk.texts,
                targets=chunk.targets,
                asides=chunk.asides,
                names=chunk.names,
                digests=chunk.digests,
            )


def paths_in_pairs(pairs: Pairs, endings: tuple[str, ...]) -> bool:
    """Are the sources of pairs paths to such files?"""
    first = next(iter(pairs.records()), None)
    return first is not None and first.sources[0].lower().endswith(endings)
