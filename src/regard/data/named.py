"""What is no text, by its name: the pictures or point clouds of a file, or one of them.

What a thing is read as, the tokenizer of a run says, and `told`, what the run knows of its data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.clouds import unlabelled_clouds
from regard.data.pictures import unlabelled
from regard.errors import UserError
from regard.tokens.patches import Patches
from regard.tokens.points import Points
from regard.tokens.tokenizer import Tokenizer

SURFACE = 1024  # points of a mesh, where a run does not say


def things_in(
    path: Path, tokenizer: Patches | Points, told: Mapping[str, Any], *, strict: bool = True
) -> Iterator[tuple[str, Any]]:
    """The pictures or clouds of a file or a folder, each with its place; a damaged one is a
    UserError or, unless `strict`, what is wrong with it.
    """
    if isinstance(tokenizer, Patches):
        side = int(told.get("resize", 0))
        yield from unlabelled([path], tokenizer.channels, side, strict=strict)
    else:
        surface = int(told.get("surface", SURFACE))
        yield from unlabelled_clouds([path], surface, strict=strict)


def opened(
    items: Iterable[Any], tokenizer: Tokenizer, told: Mapping[str, Any], base: Path = Path()
) -> list[Any]:
    """What a model reads: texts as they are or, for a tokenizer of images or point clouds, those
    that paths name; see `thing_named`.
    """
    if not isinstance(tokenizer, Patches | Points):
        return list(items)
    return [
        thing_named(str(one).strip(), tokenizer, told, base)[1]
        if isinstance(one, str | Path)
        else one
        for one in items
    ]


def thing_named(
    name: str, tokenizer: Patches | Points, told: Mapping[str, Any], base: Path = Path()
) -> tuple[str, Any]:
    """A picture or a cloud, after its place, by the path of its file from the folder `base`, or by
    its number in a file of many: digits.npz[12]. UserError where there is none.
    """
    if not name:
        raise UserError("an empty path names no file")
    file, bracket, number = name.rstrip("]").rpartition("[")
    several = bool(bracket) and number.isdigit() and not (base / name).exists()
    path, wanted = (base / file, int(number)) if several else (base / name, 0)
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    found = next(islice(things_in(path, tokenizer, told), wanted, None), None)
    if found is None:
        what = "picture" if isinstance(tokenizer, Patches) else "cloud"
        raise UserError(f"{path}: has no {what} {wanted}")
    return found
