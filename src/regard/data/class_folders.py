"""Folders of classes: a folder, or a zip archive, that holds a folder for every class.

scikit-learn's `load_files` and many published sets lay texts out so: `pos/*.txt`, `neg/*.txt`. The
folders may lie deeper, as long as there is one way down to them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.data.archives import Archives, is_archive, members
from regard.data.formats import LINE_LIMIT, UTF8, SkippedRecords, blocks, invalid_utf8, too_long
from regard.data.image_files import ARRAYS, SUFFIXES
from regard.data.tables import Batch
from regard.errors import UsageError, UserError

OTHERS = (*SUFFIXES, *ARRAYS, ".zip", ".tar", ".pdf", ".py", ".xyz", ".ply", ".off", ".bin")
# Folders of these names hold parts of a set, not classes.
SPLITS = {"train", "training", "valid", "validation", "val", "dev", "test", "eval"}


def class_folders(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """The files of texts below folders of classes, and the class of each; nothing where the paths
    are not laid out so.
    """
    if len(paths) > 1:
        if not all(path.is_dir() for path in paths):
            return []
        found = [(file, path.resolve().name) for path in paths for file in _texts_below(path)]
        return found if len({name for _, name in found}) == len(paths) else []
    (root,) = paths
    if root.is_dir():
        files = [(file, file.relative_to(root).parts) for file in _texts_below(root)]
    elif is_archive(root):
        files = [(Path(f"{root}:{name}"), tuple(name.split("/"))) for name in _texts_in(root)]
    else:
        return []
    depth = 0
    while files and all(len(parts) > depth + 2 for _, parts in files):  # one way down
        if len({parts[depth] for _, parts in files}) > 1:
            break
        depth += 1
    if not files or any(len(parts) < depth + 2 for _, parts in files):
        return []  # texts beside the folders: no folders of classes
    names = sorted({parts[depth] for _, parts in files})
    if splits := [name for name in names if name.lower() in SPLITS]:
        _refuse_splits(root, splits)
    return [(file, parts[depth]) for file, parts in files] if len(names) > 1 else []


def texts_in(path: Path) -> list[Path]:
    """The files of texts below a folder or in a zip archive, sorted; a file is itself."""
    if path.is_dir():
        return _texts_below(path)
    return [Path(f"{path}:{name}") for name in _texts_in(path)] if is_archive(path) else [path]


def _refuse_splits(root: Path, names: Sequence[str]) -> None:
    if is_archive(root):
        raise UsageError(f"{root}: holds the parts {', '.join(names)}: unpack it first")
    first, *others = sorted(names, key=lambda name: not name.lower().startswith("train"))
    flags = "".join(
        f" --{'test' if name.lower() in ('test', 'eval') else 'valid'} {root / name}"
        for name in others
    )
    raise UsageError(f"{root}: holds the parts {', '.join(names)}; give {root / first}{flags}")


def _is_text(name: str) -> bool:
    ending = os.path.splitext(name.removesuffix(".gz"))[1].lower()
    return not name.startswith((".", "__", "README", "LICENSE")) and ending not in OTHERS


def _texts_below(folder: Path) -> list[Path]:
    found = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        found += [Path(where, name) for name in names if _is_text(name)]
    return sorted(found)


def _texts_in(archive: Path) -> list[str]:
    found = [name.split("/") for name in members(archive)]
    hidden = (".", "__")
    return [
        "/".join(parts)
        for parts in found
        if _is_text(parts[-1]) and not any(part.startswith(hidden) for part in parts[:-1])
    ]


@dataclass(frozen=True)
class WholeFiles:
    """How to read files of which each is one record."""

    encoding: str = UTF8
    names: tuple[str, ...] = ("1",)
    why: str = "one file is one record; --set data.per_line=true makes each line one"
    archives: Archives = field(default_factory=Archives)

    def batches(self, path: Path, tally: SkippedRecords) -> Iterator[Batch]:
        """The text of a file, its line breaks kept; a damaged one goes to `tally`."""
        size, parts = 0, []
        try:
            for block in blocks(path, self.encoding, self.archives.open):
                size += len(block)
                if size > LINE_LIMIT:
                    raise too_long(path, 1)
                parts.append(block)
        except UserError as error:
            tally.damaged(str(error))
            return
        data = b"".join(parts)
        try:
            yield [[data.decode().replace("\r\n", "\n")]], [1]
        except UnicodeDecodeError as error:
            before = data[: error.start]
            offset = error.start - before.rfind(b"\n") - 1
            line = before.count(b"\n") + 1
            tally.damaged(invalid_utf8(path, line, offset, data[error.start]))
