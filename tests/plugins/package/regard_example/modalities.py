"""A modality: .steps files, in which each line is a step and an empty line ends a walk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from regard.data.sources import ReadRequest
from regard.data.text_files import Chunk, FileSet
from regard.modalities.text import Text, TextConfig


@dataclass(frozen=True, kw_only=True)
class StepsConfig(TextConfig):
    """How walks become ids."""

    name: str = "steps"
    borrows: ClassVar[tuple[str, ...]] = ("text",)


class StepFiles(FileSet):
    """Walks, one a record: the first letters of their steps."""

    format, why = "steps", "by the names of the files"

    def __init__(self, files: Sequence[Path], strict: bool) -> None:
        super().__init__(files, "auto", strict)

    def records(self) -> Iterator[Chunk]:
        for path in self.files:
            walks = path.read_text().strip().split("\n\n")
            texts = ["".join(step[0] for step in walk.splitlines()) for walk in walks]
            yield Chunk(path, texts, range(1, len(texts) + 1))


class Steps(Text):
    """Walks of steps."""

    name = "steps"
    words = ("walk", "walks")
    Config: ClassVar[type] = StepsConfig

    @classmethod
    def recognize(cls, files: Sequence[Path]) -> bool:
        return bool(files) and all(file.suffix == ".steps" for file in files)

    def read(self, request: ReadRequest) -> FileSet:
        return StepFiles(request.files, request.strict)
