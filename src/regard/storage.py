"""Files on disk: JSON read within limits and checked against a schema, atomic writes, tensors.

A schema is a TypedDict, or any other type that pydantic's `TypeAdapter` knows. Whatever is wrong
with a document is one line that names the file and the key: a wrong type, a missing or repeated
key, NaN, a number of thousands of digits, half of a surrogate pair, deep nesting.

Files are written under a temporary name, flushed to disk and renamed, so that a reader sees the old
file or the new one and never a part of either.

What the JSON files of a run folder hold, as types that they are checked against.

Only the keys that are read somewhere are listed; a file may have more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Required

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from regard.errors import UserError, quoted

if TYPE_CHECKING:
    from torch import Tensor

MAX_BYTES = 64 << 20  # of a document
MAX_DEPTH = 64  # levels of nesting
MAX_CONTAINERS = 4 << 20  # objects and lists in a document
MAX_KEY = 40  # characters of a key that messages show
MAX_DIGITS = 300  # of a whole number; any such number has a float
MAX_INT = 1 << 63  # whole numbers in our own documents are below, as in TOML
SURROGATES = re.compile(rb"\\u[dD][89a-fA-F]")  # escapes of surrogates, which must come in pairs
DIGEST = "regard.blake2b"  # key in a safetensors file's metadata: the digest of all its tensors

Key = tuple[str | int, ...]


class Malformed(ValueError):
    """What is wrong with a document, and under which key."""

    def __init__(self, problem: str, key: Key = ()) -> None:
        super().__init__(f"{dotted(key)}: {problem}" if key else problem)
        self.key = key


def dotted(key: Key) -> str:
    """Return a key as messages show it: data.splits.train, or weights[3]."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part[:MAX_KEY]}" for part in key]
    return "".join(parts).removeprefix(".")


def file_size(path: Path) -> int:
    """Return the size of a regular file; a device or a pipe, which may not end, is a UserError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is not a regular file")
    return status.st_size


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a document of at most `limit` bytes."""
    try:
        if file_size(path) > limit:
            raise UserError(f"{path}: too large: at most {limit >> 20} MB are allowed")
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # a zero character in its name
        raise UserError(f"cannot read {path}: {error}") from None


def parse(source: bytes | str, *, max_int: int = 0) -> Any:
    """Return the contents of a JSON document; Malformed if it is none, or beyond the limits."""
    raw = source.encode(errors="surrogatepass") if isinstance(source, str) else source
    if raw.count(b"[") + raw.count(b"{") > MAX_CONTAINERS:
        raise Malformed(f"more than {MAX_CONTAINERS:,} objects and lists")
    not_finite: list[str] = []  # `check_values` finds their keys

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            not_finite.append(text)
        return value

    def integer(digits: str) -> int | float:
        return int(digits) if len(digits) <= MAX_DIGITS else number("inf")

    try:
        value = json.loads(
            raw.decode("utf-8-sig"),
            object_pairs_hook=_unique_keys,
            parse_int=integer,
            parse_float=number,
            parse_constant=number,
        )
    except UnicodeDecodeError as error:
        raise Malformed(f"it is not JSON: byte {error.start:,} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Malformed(
            f"it is not JSON: {error.msg}, line {error.lineno:,} column {error.colno:,}"
        ) from None
    except RecursionError:
        raise Malformed(f"nested deeper than {MAX_DEPTH} levels") from None
    leaves = bool(not_finite) or SURROGATES.search(raw) is not None
    check_values(value, leaves=leaves, max_int=max_int)
    return value


def read_json(path: Path, schema: Any = Any, *, limit: int = MAX_BYTES) -> Any:
    """Return the contents of one of our JSON files, checked against a schema; or a UserError."""
    source = read_bytes(path, limit)
    try:
        return validated(parse(source, max_int=MAX_INT), schema)
    except Malformed as error:
        raise UserError(f"{path} is damaged: {error}") from None


def check_schema(path: Path, value: Any, schema: Any) -> None:
    """Raise a UserError that names the file if its contents do not match the schema."""
    try:
        validated(value, schema)
    except Malformed as error:
        raise UserError(f"{path} is damaged: {error}") from None


def read_lines(path: Path, schema: Any = Any) -> Iterator[Any]:
    """Yield the documents of a JSON Lines file; the last line may be incomplete."""
    source = read_bytes(path)
    for number, line in enumerate(source.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield validated(parse(line), schema)
        except Malformed as error:
            if number == source.count(b"\n") + 1:  # it does not end in a line break
                return
            raise UserError(f"{path}:{number} is damaged: {error}") from None


def check_values(value: Any, *, leaves: bool = True, max_int: int = 0, zeros: bool = True) -> None:
    """Raise Malformed for deep nesting, for integers of `max_int` or more (0: no limit) and, with
    `leaves`, for halves of surrogate pairs, numbers that are not finite, and, without `zeros`, for
    text with the zero character, which no path can have.
    """
    stack: list[tuple[Key, Any]] = [((), value)]
    while stack:
        key, item = stack.pop()
        if isinstance(item, dict | list):
            if len(key) >= MAX_DEPTH:
                raise Malformed(f"nested deeper than {MAX_DEPTH} levels", key[:3])
            for name, each in item.items() if isinstance(item, dict) else enumerate(item):
                if isinstance(name, str) and leaves:
                    _check_text(name, key, zeros)
                if leaves or max_int or isinstance(each, dict | list):
                    stack.append(((*key, name), each))
        elif isinstance(item, str) and leaves:
            _check_text(item, key, zeros)
        elif isinstance(item, float) and not math.isfinite(item):
            raise Malformed(f"must be a finite number of at most {MAX_DIGITS} digits", key)
        elif max_int and isinstance(item, int) and abs(item) >= max_int:
            raise Malformed(f"must be below 2^63, got {quoted(item)}", key)


def _check_text(text: str, key: Key, zeros: bool) -> None:
    if not zeros and "\0" in text:
        raise Malformed("holds a zero character", key)
    if match := re.search("[\ud800-\udfff]", text):
        half = f"\\u{ord(match[0]):04x}"
        raise Malformed(f"{half} is half of a pair, which is no character", key)


def validated(value: Any, schema: Any) -> Any:
    """Return the value if it matches the schema, else raise Malformed; nothing is converted."""
    if schema is Any:
        return value
    try:
        adapter(schema).validate_python(value, strict=True)
    except ValidationError as error:
        raise Malformed(*first_problem(error)) from None
    return value


@cache
def adapter(schema: Any) -> TypeAdapter[Any]:
    """Return the pydantic validator of a type."""
    return TypeAdapter(schema)


def first_problem(error: ValidationError) -> tuple[str, Key]:
    """Return the first problem that pydantic found, in words, and its key."""
    first = error.errors(include_url=False)[0]
    key: Key = tuple(first["loc"])
    if first["type"] == "missing":
        return "is missing", key
    message = first["msg"].removeprefix("Value error, ")
    if not key or first["type"] == "value_error":
        return message, key
    return f"{message[:1].lower()}{message[1:]}, got {quoted(first['input'])}", key


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                raise Malformed("the key occurs twice", (key,))
            keys.add(key)
    return result


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a temporary path to write to; on success it is flushed and renamed to `path`.

    A full disk or a missing permission is a UserError that names the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # `sweep` removes leftovers
    try:
        temporary.touch()
        mode = stat.S_IMODE(temporary.stat().st_mode)  # the umask's; some writers ignore it
        yield temporary
        os.chmod(temporary, mode)
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while writing."""
    for pattern in (".*.tmp", ".*.part"):
        for leftover in folder.glob(pattern):
            if not leftover.is_dir():
                leftover.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; NaN and Infinity, which JSON does not have, are refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file atomically; its bytes depend on the tensors alone.

    The metadata is the digest of the tensors, unless the caller gives other metadata.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    stored = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    if metadata is None:
        metadata = {DIGEST: digest(stored)}
    with atomic_write(path) as temporary:
        try:
            save_file(stored, temporary, metadata)
        except SafetensorError as error:
            raise OSError(str(error)) from error


def digest(tensors: dict[str, Tensor]) -> str:
    """Return blake2b over names, types, shapes and bytes of CPU tensors."""
    import torch

    total = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        # a tensor with one element may have any stride and still count as contiguous
        flat = tensor.contiguous().as_strided((tensor.numel(),), (1,))
        total.update(flat.view(torch.uint8).numpy().data)
    return total.hexdigest()


def read_tensors(path: Path, expected: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Read a safetensors file; with `expected`, names, shapes and types must match before data is
    read. If the file carries a digest, its tensors must match it.
    """
    from safetensors import SafetensorError, safe_open

    try:
        file_size(path)
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            if expected is not None:
                check_names(path, set(names), set(expected))
                for name in names:
                    _check_shape(path, name, file.get_slice(name), expected[name])
            tensors = {name: file.get_tensor(name) for name in names}
            stored_digest = (file.metadata() or {}).get(DIGEST)
        if stored_digest is not None and stored_digest != digest(tensors):
            raise UserError(f"{path} is damaged: its checksum differs")
        return tensors
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(
            f"{path.parent} has no {path.name}: not a run folder, or an unfinished one"
        ) from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def count_tensors(path: Path) -> int:
    """Return how many tensors the header of a safetensors file lists."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return len(file.keys())
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def check_names(path: Path, names: set[str], expected: set[str]) -> None:
    """Raise a UserError if tensors are missing or unknown."""
    for difference, what in ((expected - names, "lacks"), (names - expected, "has unknown")):
        if difference:
            shown = ", ".join(sorted(difference)[:3]) + (" …" if len(difference) > 3 else "")
            raise UserError(f"{path} {what} {shown} ({len(difference)} in all)")


def _check_shape(path: Path, name: str, part: Any, want: Tensor) -> None:
    shape = tuple(part.get_shape())
    if shape != tuple(want.shape):
        raise UserError(f"{path}: {name} has shape {shape}, expected {tuple(want.shape)}")
    dtype = str(part.get_dtype())
    if (dtype in ("F16", "BF16", "F32", "F64")) != want.is_floating_point():
        raise UserError(f"{path}: {name} has type {dtype}, expected {want.dtype}")


Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]


class Config(TypedDict):
    """config.json: the task and the family of a model, and its configuration."""

    task: NotRequired[str]
    family: str
    reads: NotRequired[str]
    vocab_size: Annotated[int, Field(gt=0, lt=1 << 24)]
    config: dict[str, Any]
    defined_in: NotRequired[dict[str, str]]  # modules of other packages, by key


class StoredIntervals(TypedDict):
    """intervals.json: how far from its prediction a true value lies at most, at a level."""

    level: Annotated[float, Field(gt=0, lt=1)]
    records: Count  # of the validation split, by which it is known
    reach: dict[str, Annotated[float, Field(ge=0)]]  # of each target, in its unit


class StoredSplit(TypedDict):
    """How much a part of the data holds."""

    records: Count
    tokens: Count
    symbols: Count
    bytes: Count


class StoredSplits(TypedDict):
    """The three parts of the data."""

    train: StoredSplit
    valid: StoredSplit
    test: StoredSplit


class StoredTargets(TypedDict):
    """What is to be predicted: the task, the names of the targets and the classes of each."""

    task: str
    names: list[str]
    classes: list[list[str]]
    positive: NotRequired[list[str]]
    deviations: NotRequired[list[float]]


class StoredReading(TypedDict):
    """How the training files were read: see `data.inputs.InputReader`."""

    inputs: list[str]
    targets: list[str]
    classes: list[str]
    labels: str
    pattern: str
    encoding: str
    missing: list[str]
    per_line: bool
    strip: bool
    files: dict[str, str]


class Data(TypedDict, total=False):
    """What a run knows of its data."""

    format: str
    reading: StoredReading
    fingerprints: dict[str, str]
    paired: bool
    targets: StoredTargets
    input: dict[str, Any]
    augment: dict[str, Any]
    views: Annotated[int, Field(ge=1, le=1000)]
    ratio: Annotated[float, Field(gt=0, le=1e6)]
    longest: Annotated[int, Field(ge=0, le=1 << 24)]


class StoredMetric(TypedDict, total=False):
    """A metric with its interval; null where it is infinite."""

    value: Required[float | None]
    low: float
    high: float
    impossible: Count


def fitting_metrics(found: dict[str, Any]) -> dict[str, Any]:
    """Metrics by name and, under `targets`, those of each of several targets; or a ValueError."""
    validated(
        {name: one for name, one in found.items() if name != "targets"}, dict[str, StoredMetric]
    )
    validated(found.get("targets", {}), dict[str, dict[str, StoredMetric]])
    return found


class Alignment(TypedDict):
    """How well each head of each layer aligns."""

    per_head: list[list[Share]]
    links: Count


class RunMetadata(TypedDict, total=False):
    """regard.json: what a run is and how it was measured."""

    outcome: str
    steps: Count
    parameters: Count
    train_seconds: Seconds
    symbols_per_second: Seconds | None
    epochs: Seconds | None
    device: str
    imported_from: str
    data: Data
    metrics: dict[str, Annotated[dict[str, Any], AfterValidator(fitting_metrics)]]
    measured: dict[str, Share]
    reductions: list[str]
    alignment: Alignment
    selection: dict[str, Any]


class StoredSelection(TypedDict):
    """candidates/selection.json: the best row, "" until it is known, and the rows that are done."""

    best: str
    rows: list[dict[str, Any]]


class TrainedData(Data):
    """The data of a run that was trained here."""

    splits: Required[StoredSplits]


class TrainedFacts(TypedDict):
    """regard.json of a run that was trained here and has ended."""

    outcome: str
    parameters: Count
    train_seconds: Seconds
    symbols_per_second: NotRequired[Seconds | None]
    epochs: NotRequired[Seconds | None]
    device: NotRequired[str]
    data: TrainedData


class Manifest(TypedDict):
    """manifest.json of tokenised data: what it was made of, and what it holds."""

    key: dict[str, Any]
    facts: TrainedData


class PartialFiles(TypedDict):
    """How many bytes of each file of a writer are complete."""

    sizes: dict[str, Count]


class PartialData(TypedDict):
    """partial.json of data that is being encoded: what it is made of, and how far its files are."""

    key: dict[str, Any]
    chunks: Count
    writers: list[PartialFiles]


class Checkpoint(TypedDict):
    """checkpoint.json: the checksums of its files, the state of training, and its own checksum."""

    step: Count
    checksums: dict[str, str]
    state: dict[str, Any]
    seal: str


class Event(TypedDict):
    """A line of metrics.jsonl."""

    event: str
    step: NotRequired[Count]
    metric: NotRequired[str]  # such as log_loss
    unit: NotRequired[str]
    value: NotRequired[float | None]  # of the metric; null where it is infinite
    seconds: NotRequired[Seconds]


class StoredRow(TypedDict):
    """A row of compare.json: a model and its metrics."""

    model: str
    metrics: dict[str, dict[str, Any]]
    runs: NotRequired[list[str]]  # as they were named where the comparison ran


class StoredComparison(TypedDict):
    """compare.json: the rows of a comparison, the best first, and the metric that ranks them."""

    task: str
    split: str
    ranked_by: str
    rows: Annotated[list[StoredRow], Field(min_length=1)]
    verdict: str


class StoredTranslation(TypedDict):
    """A held-out sentence, and what the model made of it."""

    source: str
    reference: str
    translation: str


class StoredTranslations(TypedDict):
    """translations.json: what a run made of held-out sentences, and how long it took."""

    sentences: list[StoredTranslation]
    seconds: Seconds


class StoredMemory(TypedDict):
    """memory.json: what the process of a row took at its peak."""

    peak_memory_bytes: Count


class ShardFile(TypedDict):
    """STEM.json: the sizes, counts and checksums of a shard."""

    format: Literal[1]
    dtype: Literal["uint8", "uint16", "uint32", "int32", "int64", "float32"]
    kind: Literal["records", "text"]
    vocab_size: Count
    records: Count
    tokens: Count
    symbols: Count
    bytes: Count
    width: NotRequired[Count]
    ids_blake2b: str
    offsets_blake2b: str
