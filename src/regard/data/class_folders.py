"""Class folders: a folder, or a zip archive, that holds a folder of text files for every class.

scikit-learn's `load_files` and many published sets are laid out so: `pos/*.txt`, `neg/*.txt`. The
folders may lie deeper, as long as only one path leads down to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from regard.data.archives import Archives, is_archive, list_files, split_member
from regard.data.formats import LINE_LIMIT, UTF8, SkippedRecords, decoded_text, too_long
from regard.data.tables import Batch
from regard.errors import UsageError, UserError

NOT_TEXT = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"),
    *(".npy", ".npz", ".zip", ".tar", ".pdf", ".py", ".xyz", ".ply", ".off", ".bin"),
)
# Folders with these names hold splits of a data set, not classes.
SPLIT_FOLDERS = {"train", "training", "valid", "validation", "val", "dev", "test", "eval"}


def class_folders(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return the text files in class folders, each with its class; none where `paths` are laid out
    in another way.
    """
    if len(paths) > 1:
        if not all(path.is_dir() for path in paths):
            return []
        labelled = [(file, path.resolve().name) for path in paths for file in texts_in(path)]
        return labelled if len({name for _, name in labelled}) == len(paths) else []
    (root,) = paths
    if not root.is_dir() and not is_archive(root):
        return []
    files = [
        (file, Path(split_member(file)[1] or file.relative_to(root)).parts)
        for file in texts_in(root)
    ]
    depth = 0
    while files and all(len(parts) > depth + 2 for _, parts in files):
        if len({parts[depth] for _, parts in files}) > 1:
            break
        depth += 1
    if not files or any(len(parts) < depth + 2 for _, parts in files):
        return []  # there are texts outside the folders
    names = sorted({parts[depth] for _, parts in files})
    if splits := [name for name in names if name.lower() in SPLIT_FOLDERS]:
        raise _splits_error(root, splits)
    return [(file, parts[depth]) for file, parts in files] if len(names) > 1 else []


def texts_in(path: Path) -> list[Path]:
    """Return the text files in a folder or a zip archive, sorted; for a file, the file itself."""
    return list_files(path, _is_text) if path.is_dir() or is_archive(path) else [path]


def _is_text(name: str) -> bool:
    suffix = Path(name.removesuffix(".gz")).suffix.lower()
    return not name.startswith(("README", "LICENSE")) and suffix not in NOT_TEXT


def _splits_error(root: Path, names: Sequence[str]) -> UsageError:
    if is_archive(root):
        return UsageError(f"{root}: holds the parts {', '.join(names)}: unpack it first")
    first, *others = sorted(names, key=lambda name: not name.lower().startswith("train"))
    flags = "".join(
        f" --{'test' if name.lower() in ('test', 'eval') else 'valid'} {root / name}"
        for name in others
    )
    return UsageError(f"{root}: holds the parts {', '.join(names)}; give {root / first}{flags}")


@dataclass(frozen=True)
class WholeFiles:
    """The layout of files of which each is one record."""

    has_columns: ClassVar[bool] = False

    encoding: str = UTF8
    names: tuple[str, ...] = ("1",)
    why: str = "one file is one record; --set data.per_line=true makes each line one"
    archives: Archives = field(default_factory=Archives)

    def batches(self, path: Path, skipped: SkippedRecords) -> Iterator[Batch]:
        parts: list[str] = []
        try:
            for part in decoded_text(path, self.encoding, self.archives.open):
                parts.append(part)
                if sum(map(len, parts)) > LINE_LIMIT:
                    raise too_long(path, 1)
        except UserError as error:
            skipped.damaged(str(error))
        else:
            yield [["".join(parts)]], [1]
