"""Pictures with captions: pairs whose sources are pictures, and whose targets are texts.

They stand where pictures with labels stand: in a table of paths and captions, in a `.npz` file, or
in two files of arrays. A picture may have several captions, a record each; copies, sides and leaks
go by the pixels, so that all of them are on one side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import ClassVar

from regard.data.labelled import Examples
from regard.data.pairs import Pairs
from regard.data.picture_files import SUFFIXES, suffix
from regard.data.pictures import Pictures, Shown, unlabelled
from regard.errors import UsageError, UserError
from regard.tokens.patches import Image


@dataclass(frozen=True, slots=True)
class Told(Shown):
    """Some captions, in `texts`, and the picture that each tells, in `sources`."""


class Captions(Pictures):
    """Files of pictures and captions as pairs."""

    called: ClassVar[str] = "captions"

    def _settle(self) -> None:
        if len(self.asked.inputs) > 1 or len(self.asked.targets) > 1:
            raise UsageError("captions need one column of pictures and one of texts")
        if suffix(self.files[0]) in SUFFIXES:
            raise UsageError(
                f"{self.paths[0]}: pictures without captions; give a table of both, with "
                "--input for the column of paths and --target for that of the captions"
            )
        super()._settle()

    def examples(self) -> Iterator[Examples]:
        """See Labelled."""
        for chunk in super().examples():
            assert isinstance(chunk, Shown)
            if len(chunk.targets[0]) != 1:
                raise UserError(f"{chunk.path}: a picture has one caption, got an array of more")
            yield Told(
                chunk.path,
                [cells[0] for cells in chunk.targets],
                chunk.lines,
                chunk.texts,
                targets=chunk.targets,
                asides=chunk.asides,
                names=chunk.names,
                digests=chunk.digests,
            )


def paths_in_pairs(pairs: Pairs) -> bool:
    """Are the sources of pairs paths to pictures?"""
    first = next(iter(pairs.records()), None)
    return first is not None and first.sources[0].lower().endswith(SUFFIXES)


def picture_named(name: str, channels: int, side: int = 0, base: Path = Path()) -> Image:
    """A picture by the path of its file, from the folder `base`, or by its number in a file of
    many: digits.npz[12]. UserError where there is none.
    """
    file, bracket, number = name.rstrip("]").rpartition("[")
    several = bool(bracket) and number.isdigit() and not (base / name).exists()
    path, wanted = (base / file, int(number)) if several else (base / name, 0)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    found = next(islice(unlabelled([path], channels, side), wanted, None), None)
    if found is None:
        raise UserError(f"{path}: has no picture {wanted}")
    return found[1]
