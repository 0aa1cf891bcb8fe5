"""Data in memory as files: the frames, arrays, data sets and lists that `regard.train` takes.

Rows of texts and numbers are written as JSON Lines, items that are arrays as .npz, and images of
Pillow as PNG with a table of their paths. A run of data in memory is then resumed, evaluated and
verified like any other. Packages of frames are not imported: the class of an object names its own.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.formats import split_member
from regard.errors import UserError, quoted
from regard.registry import MODALITIES
from regard.storage import atomic_write

SOURCE = "source"  # the folder of a run that has data given in memory
TEXT, SECOND, ITEMS, TARGET = "text", "second", "items", "target"  # columns without a name
STEP, VALUE = "step", "value"  # columns of one series
SPLITS_OF_SETS = {"train": "train", "validation": "valid", "valid": "valid", "test": "test"}

Columns = dict[str, Any]  # by name a list of cells, or an array whose first axis is the rows


@dataclass(frozen=True, kw_only=True)
class MemoryTable:
    """Columns of one length, and those that are read and predicted; "" leaves that open."""

    columns: Columns
    input: str = ""
    target: str = ""

    @property
    def items(self) -> str:
        """The column whose items are arrays, "" if all hold texts and numbers."""
        names = [name for name, cells in self.columns.items() if axes(cells) > 1]
        if len(names) > 1:
            raise UserError(f"several columns hold arrays, {' and '.join(names)}: keep one of them")
        return names[0] if names else ""


@dataclass(frozen=True, kw_only=True)
class StoredData:
    """The files of data in memory, by split, and how they are read."""

    folder: Path
    files: dict[str, str]
    input: str = ""
    target: str = ""
    modality: str = ""

    @property
    def paths(self) -> list[Path]:
        """The files of the training split."""
        return [self.folder / self.files["train"]]

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the recipe's table [data]."""
        others = {
            split: [str((self.folder / name).resolve())]
            for split, name in self.files.items()
            if split != "train"
        }
        columns = {"input": self.input or None, "target": self.target or None}
        return columns | others


# What is given: paths or data


def paths_of(source: Any) -> list[Path] | None:
    """Return the paths that a source is, or None if it holds the data themselves.

    A list of str is one of paths if its first element exists as a file, else one of texts.
    """
    if isinstance(source, str | Path):
        return [Path(source)]
    if not isinstance(source, list | tuple) or not source:
        return None
    first = source[0]
    if not all(isinstance(one, str | Path) for one in source):
        return None
    is_file = isinstance(first, Path) or (len(first) < 4096 and exists(first))
    return [Path(one) for one in source] if is_file else None


def exists(name: str) -> bool:
    """Return whether a text is the path of a file, a folder or a member of an archive."""
    try:
        return bool(name) and split_member(Path(name))[0].exists()
    except (OSError, ValueError):  # too long, or with a zero byte
        return False


def splits_of(source: Any) -> dict[str, Any]:
    """Return the parts of a dictionary of data sets by split, or the source as training data."""
    is_dictionary = isinstance(source, Mapping) and "train" in source
    if not is_dictionary or frame_columns(source["train"]) is None:
        return {"train": source}
    return {SPLITS_OF_SETS[name]: part for name, part in source.items() if name in SPLITS_OF_SETS}


# Sources as columns


def read_table(source: Any, y: Any = None) -> MemoryTable:
    """Return the columns of a source, with those of the targets `y` if they are given."""
    table = _read_source(source, labelled=y is not None)
    if not table.columns or not length_of(table.columns):
        raise UserError("there are no records in the data")
    if y is None:
        return table
    names = list(table.columns)
    targets = target_columns(y, length_of(table.columns))
    columns = {name: cells for name, cells in table.columns.items() if name not in targets}
    few = [name for name in names if name not in targets]
    inputs = table.input or (",".join(few) if len(few) <= 2 else "")
    return MemoryTable(columns=columns | targets, input=inputs, target=",".join(targets))


def _read_source(source: Any, *, labelled: bool) -> MemoryTable:
    if (columns := frame_columns(source)) is not None:
        return MemoryTable(columns={name: column(cells) for name, cells in columns.items()})
    if isinstance(source, Mapping):
        return MemoryTable(columns={str(name): column(cells) for name, cells in source.items()})
    if hasattr(source, "__array__"):
        return _array_table(to_array(source), labelled=labelled)
    indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if indexed and not isinstance(source, Sequence):  # a torch Dataset has no end for `iter`
        return _item_table([source[i] for i in range(len(source))], labelled=labelled)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return _item_table(list(source), labelled=labelled)
    raise TypeError(
        "data must be a path, a frame, an array, a data set, or a list of records, got "
        f"{type(source).__name__} {quoted(source)}"
    )


def frame_columns(source: Any) -> Columns | None:
    """Return the columns of a frame or a series of a package that is known, else None."""
    packages = {cls.__module__.partition(".")[0] for cls in type(source).__mro__}
    for package, read in FRAMES.items():
        if package in packages:
            return read(source)
    return None


def _pandas(source: Any) -> Columns | None:
    """An index with a name, or of times, is a column."""
    if not hasattr(source, "index") or not hasattr(source, "iloc"):
        return None
    frame = source.to_frame(source.name or TEXT) if source.ndim == 1 else source
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise UserError(f"two columns are called {repeated!r}; rename one of them")
    index, columns = frame.index, {str(name): frame[name].tolist() for name in frame.columns}
    dates = hasattr(index, "to_period") or hasattr(index, "to_timestamp")
    if dates or index.name is not None:
        columns = {str(index.name or "time"): [str(cell) for cell in index], **columns}
    return columns


def _polars(source: Any) -> Columns | None:
    frame = source.collect() if hasattr(source, "collect") else source
    frame = frame.to_frame() if hasattr(frame, "to_frame") else frame
    return {one.name or TEXT: one.to_list() for one in frame.get_columns()}


def _pyarrow(source: Any) -> Columns | None:
    columns: Columns | None = source.to_pydict() if hasattr(source, "to_pydict") else None
    return columns


def _hugging_face(source: Any) -> Columns | None:
    """Numbers of classes become the names of the classes."""
    names = getattr(source, "column_names", None)
    if not isinstance(names, list):
        return None
    columns = {name: list(source[name]) for name in names}
    for name, feature in (source.features or {}).items():
        if hasattr(feature, "int2str"):
            columns[name] = [
                None if cell is None or cell < 0 else feature.int2str(cell)
                for cell in columns[name]
            ]
    return columns


FRAMES: dict[str, Callable[[Any], Columns | None]] = {
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _pyarrow,
    "datasets": _hugging_face,
}


def _array_table(array: Any, *, labelled: bool) -> MemoryTable:
    """Return numbers without targets as one series whose rows are steps, else each row as an item;
    texts are records.
    """
    if array.dtype.kind not in "biuf":
        return _item_table(array.tolist(), labelled=labelled)
    if labelled and array.ndim < 2:
        raise UserError(f"an array of items has two axes or more, got the shape {array.shape}")
    if labelled or array.ndim > 2:
        return MemoryTable(columns={ITEMS: array}, input=ITEMS)
    steps = array.reshape(len(array), -1)
    names = [VALUE] if array.ndim == 1 else [f"{VALUE}{i + 1}" for i in range(steps.shape[1])]
    values = dict(zip(names, steps.T, strict=True))
    return MemoryTable(columns={STEP: list(range(len(array))), **values})


def _item_table(items: Sequence[Any], *, labelled: bool) -> MemoryTable:
    """Return records, each a text, an item, a dictionary, or a tuple of inputs and a target."""
    if not items:
        return MemoryTable(columns={})
    first = items[0]
    if isinstance(first, Mapping):
        names = list(dict.fromkeys(str(name) for one in items for name in one))
        return MemoryTable(
            columns={name: column([one.get(name) for one in items]) for name in names}
        )
    if isinstance(first, tuple | list) and not is_numbers(first):
        return _tuple_table(items, labelled=labelled)
    if isinstance(first, int | float) and not isinstance(first, bool):
        return _array_table(np.asarray(items, float), labelled=labelled)
    name = ITEMS if is_item(first) else TEXT
    return MemoryTable(columns={name: column(items)}, input=name)


def _tuple_table(items: Sequence[Any], *, labelled: bool) -> MemoryTable:
    """Return (input, target), (text, second text, target) or, with `labelled`, (text, second)."""
    width = len(items[0])
    for number, one in enumerate(items):
        if not isinstance(one, tuple | list) or len(one) != width:
            raise TypeError(
                f"record {number} must be a tuple of {width} as the first is, got {quoted(one)}"
            )
    if not 2 <= width + labelled <= 3:
        raise TypeError(
            f"a record is (input, target) or (text, second text, target), got {quoted(items[0])}"
        )
    parts = [list(part) for part in zip(*items, strict=True)]
    name = ITEMS if is_item(parts[0][0]) else TEXT
    names = [name, SECOND][: width + labelled - 1]
    target = "" if labelled else TARGET
    columns = zip([*names, *filter(None, [target])], map(column, parts), strict=True)
    return MemoryTable(columns=dict(columns), input=",".join(names), target=target)


def target_columns(y: Any, records: int) -> Columns:
    """Return the columns of targets, one for each record."""
    columns = frame_columns(y)
    if columns is None:
        array = to_array(y) if hasattr(y, "__array__") else y
        rows = list(array)
        if rows and isinstance(rows[0], list | tuple | np.ndarray):
            parts = zip(*rows, strict=True)
            columns = {f"{TARGET}{i + 1}": list(part) for i, part in enumerate(parts)}
        else:
            columns = {TARGET: rows}
    elif list(columns) == [TEXT]:  # a series without a name
        columns = {TARGET: columns[TEXT]}
    if length_of(columns) != records:
        raise ValueError(
            f"y must have a target for each record, got {length_of(columns)} and {records}"
        )
    return columns


def length_of(columns: Columns) -> int:
    """Return the number of rows."""
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must have one length, got {lengths}")
    return next(iter(lengths.values()), 0)


def column(cells: Any) -> Any:
    """Return cells as a list or, items that are arrays, as one array; series of different lengths
    are filled with NaN.
    """
    cells = cells if isinstance(cells, np.ndarray) else list(cells)
    if not len(cells) or not is_item(cells[0]) or is_image(cells[0]) or axes(cells) > 1:
        return cells
    arrays = [to_array(cell) for cell in cells]
    shapes = {array.shape for array in arrays}
    if len(shapes) == 1:
        return np.stack(arrays)
    if len({shape[1:] for shape in shapes}) > 1 or arrays[0].ndim > 2:
        listed = ", ".join(map(str, sorted(shapes)[:3]))
        raise UserError(f"items must have one shape, got {listed}")
    padded = np.full((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), np.nan)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def axes(cells: Any) -> int:
    """Return the number of axes of an array or tensor; 1 of anything else."""
    return int(getattr(cells, "ndim", 1))


def to_array(value: Any) -> Any:
    """Return an array or a tensor, wherever that is, as a NumPy array."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def is_image(cell: Any) -> bool:
    """Return whether a cell is an image of Pillow."""
    return hasattr(cell, "getbands") and hasattr(cell, "save")


def is_numbers(cell: Any) -> bool:
    """Return whether a cell is a list of numbers."""
    numbers = int | float | np.number
    return isinstance(cell, list | tuple) and bool(cell) and isinstance(cell[0], numbers)


def is_item(cell: Any) -> bool:
    """Return whether a cell is an item of numbers: an image, an array or a list of numbers."""
    return is_image(cell) or is_numbers(cell) or (hasattr(cell, "__array__") and axes(cell) > 0)


def input_columns(items: Any, names: Sequence[str]) -> list[Any]:
    """Return the columns of a frame that a model reads, which has them under `names`; a series, or
    items that are no frame, as they are.
    """
    columns = frame_columns(items)
    if columns is None:
        return [to_array(items) if hasattr(items, "detach") else items]
    is_frame = hasattr(items, "columns") or hasattr(items, "column_names")
    if not is_frame or len(columns) == 1:
        return [next(reversed(columns.values()))]
    wanted = [name for name in names if name] or list(columns)[:1]
    for name in wanted:
        if name not in columns:
            raise UserError(f"the model reads column {name!r}; there are {', '.join(columns)}")
    return [columns[name] for name in wanted]


# Columns as files


@contextmanager
def stored(
    parts: Mapping[str, MemoryTable], folder: Path, *, modality: str = "", resume: bool = False
) -> Iterator[StoredData]:
    """Write tables by split to FOLDER/source, and yield how they are stored; after an error, the
    files are removed. A run that is resumed must have the same data.
    """
    target = folder / SOURCE
    if resume and target.exists():
        with tempfile.TemporaryDirectory() as other:
            written = write_tables(parts, Path(other), modality)
            if not same_files(written.folder, target):
                raise UserError(f"the data differ from those that {folder} was trained on")
        yield replace(written, folder=target)
        return
    created = [path for path in (target, *target.parents) if not path.exists()]
    try:
        target.mkdir(parents=True, exist_ok=True)
        yield write_tables(parts, target, modality)
    except BaseException:
        shutil.rmtree(created[-1] if created else target, ignore_errors=True)
        raise


def same_files(one: Path, other: Path) -> bool:
    """Return whether two folders have the same files."""
    names, others = (
        sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        for folder in (one, other)
    )
    same = ((one / name).read_bytes() == (other / name).read_bytes() for name in names)
    return names == others and all(same)


def write_tables(parts: Mapping[str, MemoryTable], folder: Path, modality: str = "") -> StoredData:
    """Write tables by split into a folder; `modality` is that of items that are arrays."""
    train = parts["train"]
    input, target, items = train.input, train.target, train.items
    if items:
        input = input or items
        modality = modality or modality_of(train.columns[items])
        target = TARGET if "," in target else target
        files = {split: write_arrays(table, folder, split) for split, table in parts.items()}
    else:
        files = {split: write_rows(table, folder, split) for split, table in parts.items()}
    return StoredData(folder=folder, files=files, input=input, target=target, modality=modality)


def modality_of(items: Any) -> str:
    """Return the modality that items of this number of axes are of by default."""
    for name in MODALITIES:
        if items.ndim in MODALITIES[name].array_axes:
            return name
    shapes = ", ".join(
        f"{MODALITIES[name].words[1]} of {' or '.join(map(str, MODALITIES[name].array_axes))}"
        for name in MODALITIES
        if MODALITIES[name].array_axes
    )
    raise UserError(f"an array of {items.ndim} axes holds no items that are known; {shapes} do")


def write_arrays(table: MemoryTable, folder: Path, name: str) -> str:
    """Write items and their targets as NAME.npz; several targets are one array."""
    arrays = {key: _as_array(key, cells) for key, cells in table.columns.items()}
    targets = table.target.split(",")
    if len(targets) > 1:
        arrays[TARGET] = np.stack([arrays.pop(key) for key in targets], axis=1)
    with atomic_write(folder / f"{name}.npz") as path, path.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return f"{name}.npz"


def _as_array(name: str, cells: Any) -> Any:
    """Return a column as an array without Python objects; what is missing is NaN or ""."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        return cells
    values = [to_cell(cell, name, row) for row, cell in enumerate(cells)]
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    return np.array([math.nan if value is None else value for value in values])


def write_rows(table: MemoryTable, folder: Path, name: str) -> str:
    """Write a table as NAME.jsonl, and images of it into the folder NAME."""
    columns = {
        key: _save_images(cells, folder, name) if len(cells) and is_image(cells[0]) else cells
        for key, cells in table.columns.items()
    }
    with atomic_write(folder / f"{name}.jsonl") as path, path.open("w", encoding="ascii") as file:
        for row, cells in enumerate(zip(*columns.values(), strict=True)):
            values = {
                key: to_cell(cell, key, row) for key, cell in zip(columns, cells, strict=True)
            }
            file.write(json.dumps(values) + "\n")
    return f"{name}.jsonl"


def _save_images(images: Sequence[Any], folder: Path, name: str) -> list[str | None]:
    """Write images as PNG; return their paths from the folder, None for those that are missing."""
    (folder / name).mkdir(exist_ok=True)
    paths: list[str | None] = []
    for number, image in enumerate(images):
        paths.append(None if image is None else f"{name}/{number:06}.png")
        if image is not None:
            image.save(folder / name / f"{number:06}.png")
    return paths


def to_cell(value: Any, column: str, row: int) -> str | int | float | None:
    """Return a cell as JSON has it: None, NaN and the like are missing, truth values are 0 and 1,
    and whole numbers have no decimal point, so that a class has one spelling.
    """
    if hasattr(value, "item") and not axes(value):
        value = value.item()  # a scalar of NumPy or torch
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if not math.isfinite(value):
            return str(value)
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, str | int):
        return value
    if hasattr(value, "isoformat") or type(value).__name__ == "Decimal":
        return str(value)
    raise TypeError(
        f"column {column!r}, row {row}: a cell is a text or a number, got "
        f"{type(value).__name__} {quoted(value)}"
    )
