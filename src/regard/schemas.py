"""What the JSON files of a run folder hold, as types that `documents` checks them against.

Only the keys that are read somewhere are listed; a file may have more.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Required

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from regard.storage import validated

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


class Checkpoint(TypedDict):
    """checkpoint.json: the checksums of its files, the state of training, and its own checksum."""

    step: Count
    checksums: dict[str, str]
    state: dict[str, Any]
    seal: str


class Event(TypedDict):
    """A line of metrics.jsonl."""

    event: str
    seconds: NotRequired[Seconds]
    nats_per_symbol: NotRequired[float | None]


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
