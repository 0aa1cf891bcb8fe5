"""Tiny runs of each task and modality whose texts, labels, columns and files hold markup."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import regard

IMAGE = "<img/src='x'/onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
QUOTED = "\"'><svg/onload=alert(3)>"
LINK = "javascript:alert(4)"
NAME = "\"'><img src=x onerror=alert(5)>"  # of files and folders, which cannot hold a slash
MARKUP = (IMAGE, SCRIPT, QUOTED, LINK)
WORDS = ("one", "two", "three", *MARKUP)
SMALL = {"n_layers": 1, "d_model": 16, "dropout": 0.0}
TRANSFORMER = {"name": "transformer", **SMALL, "n_heads": 2, "n_kv_heads": 2, "d_head": 8}
STEPS = {"steps": 4, "batch_tokens": 400}
RECORDS = 120

Run = Callable[[Path], Path]
RUNS: dict[str, Run] = {}


def hostile_run(make: Run) -> Run:
    """Register a function that trains a run in a folder; its name is the run's."""
    RUNS[make.__name__] = make
    return make


def draw(choices: Sequence[Any], count: int, seed: int = 0) -> list[Any]:
    return random.Random(seed).choices(choices, k=count)


def text(seed: int, count: int = 5) -> str:
    return " ".join(draw(WORDS, count, seed))


def table(folder: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a table into a file whose name is markup, too."""
    path = folder / f"{NAME}.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def train(
    folder: Path, source: Path | list[Path], model: Any = TRANSFORMER, **options: Any
) -> Path:
    """Train a run whose folder's name is markup."""
    fits = isinstance(model, str)
    out = folder.parent / "runs" / f"{folder.name}{NAME}"
    options["data"] = {"test_fraction": 0.25} | options.get("data", {})
    train = {} if fits else {"train": STEPS | options.pop("train", {})}
    regard.train(source, out, model=model, seed=1, progress=False, **train, **options)
    return out


def lines(folder: Path) -> Path:
    path = folder / f"{NAME}.txt"
    path.write_text("\n".join(text(i) for i in range(RECORDS)) + "\n")
    return path


@hostile_run
def counts(folder: Path) -> Path:
    return train(folder, lines(folder), "bigram", task="next", tokenizer="words")


@hostile_run
def language(folder: Path) -> Path:
    return train(folder, lines(folder), task="next", tokenizer="words")


@hostile_run
def masked(folder: Path) -> Path:
    return train(folder, lines(folder), task="masked", tokenizer="words")


@hostile_run
def vectors(folder: Path) -> Path:
    path = folder / f"{NAME}.txt"
    path.write_text("\n".join(text(i, 12) for i in range(RECORDS)) + "\n")
    return train(
        folder,
        path,
        {"name": "skipgram", "d_model": 8},
        task="vectors",
        tokenizer="words",
        data={"format": "lines"},
    )


@hostile_run
def label(folder: Path) -> Path:
    rows = [(text(i), draw([SCRIPT, QUOTED, "plain"], 1, i)[0]) for i in range(RECORDS)]
    return train(folder, table(folder, ["text", IMAGE], rows), target=IMAGE, task="label")


@hostile_run
def fitted(folder: Path) -> Path:
    rows = [(text(i), draw([SCRIPT, QUOTED, "plain"], 1, i)[0]) for i in range(RECORDS)]
    path = table(folder, ["text", IMAGE], rows)
    return train(folder, path, "logistic", target=IMAGE, task="label")


@hostile_run
def labels(folder: Path) -> Path:
    rows = [(text(i), i % 2, i // 2 % 2) for i in range(RECORDS)]
    path = table(folder, ["text", IMAGE, LINK], rows)
    return train(folder, path, target=[IMAGE, LINK], task="labels")


@hostile_run
def value(folder: Path) -> Path:
    rows = [(text(i), f"{i % 7 + 0.5}") for i in range(RECORDS)]
    return train(folder, table(folder, ["text", QUOTED], rows), target=QUOTED, task="value")


@hostile_run
def position_label(folder: Path) -> Path:
    rows = [(one := "".join(draw("<a>&", 12, i)), one.replace("a", "'")) for i in range(RECORDS)]
    path = table(folder, ["text", SCRIPT], rows)
    return train(folder, path, input="text", target=SCRIPT, task="position-label")


@hostile_run
def target(folder: Path) -> Path:
    rows = [(text(i), text(i)[::-1]) for i in range(RECORDS)]
    path = table(folder, [IMAGE, SCRIPT], rows)
    return train(folder, path, input=IMAGE, target=SCRIPT, task="target", tokenizer="words")


@hostile_run
def dna(folder: Path) -> Path:
    records = [("".join(draw("ACGT", 20, i)), i % 2) for i in range(RECORDS)]
    files = []
    for kind in (0, 1):
        path = folder / f"{kind}{NAME}.fa"
        chosen = [(i, one) for i, (one, k) in enumerate(records) if k == kind]
        path.write_text("".join(f">{IMAGE}{i}\n{one}\n" for i, one in chosen))
        files.append(path)
    return train(folder, files, task="label")


@hostile_run
def molecules(folder: Path) -> Path:
    rows = [("".join(draw(["C", "O", "N", "C(=O)"], 6, i)) + "C", i % 5) for i in range(RECORDS)]
    path = table(folder, ["smiles", QUOTED], rows)
    return train(folder, path, target=QUOTED, task="value", modality="chemistry")


def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (RECORDS, 8, 8, 3), dtype=np.uint8)


@hostile_run
def images(folder: Path) -> Path:
    path, kinds = folder / f"{NAME}.npz", np.array(draw([SCRIPT, IMAGE], RECORDS))
    np.savez(path, images=pictures(), kinds=kinds)
    return train(folder, path, patch=4, task="label")


@hostile_run
def digits(folder: Path) -> Path:
    path, kinds = folder / f"{NAME}.npz", np.array(draw([SCRIPT, IMAGE], RECORDS))
    np.savez(path, images=pictures()[..., 0], kinds=kinds)
    return train(folder, path, patch=4, task="label")


@hostile_run
def captions(folder: Path) -> Path:
    path, words = folder / f"{NAME}.npz", np.array([text(i, 3) for i in range(RECORDS)])
    np.savez(path, images=pictures(), captions=words)
    model = TRANSFORMER | {"n_encoder_layers": 1}
    return train(folder, path, model, patch=4, task="target", target="captions", tokenizer="words")


@hostile_run
def matching(folder: Path) -> Path:
    path, words = folder / f"{NAME}.npz", np.array([text(i, 3) for i in range(RECORDS)])
    np.savez(path, images=pictures(), captions=words)
    model = TRANSFORMER | {"n_encoder_layers": 1}
    options = {"task": "contrastive", "target": "captions", "tokenizer": "words"}
    return train(folder, path, model, patch=4, **options)


@hostile_run
def points(folder: Path) -> Path:
    clouds = np.random.default_rng(0).normal(size=(RECORDS, 12, 3)).astype(np.float32)
    path, kinds = folder / f"{NAME}.npz", np.array(draw([SCRIPT, IMAGE], RECORDS))
    np.savez(path, points=clouds.reshape(-1, 3), lengths=np.full(RECORDS, 12), kind=kinds)
    return train(folder, path, task="label", n_groups=4, group_size=4)


@hostile_run
def series(folder: Path) -> Path:
    values = np.random.default_rng(0).normal(size=(RECORDS, 24)).round(3)
    kinds = draw([SCRIPT, IMAGE], RECORDS)
    rows = [[*row, kind] for row, kind in zip(values.tolist(), kinds, strict=True)]
    path = table(folder, [*map(str, range(24)), "kind"], rows)
    return train(folder, path, task="label", target="kind", modality="time-series")


@hostile_run
def forecast(folder: Path) -> Path:
    times = np.datetime64("2024-01-01T00", "h") + np.arange(400, dtype="m8[h]")
    wave = np.sin(np.arange(400) / 4)
    rows = [(str(t), f"{x:.3f}", f"{3 * x:.3f}") for t, x in zip(times, wave, strict=True)]
    path = table(folder, ["time", IMAGE, LINK], rows)
    options = {"task": "forecast", "horizon": 6, "lookback": 24}
    return train(folder, path, **options)


@hostile_run
def compared(folder: Path) -> Path:
    """Language models compared on the same lines."""
    out = folder.parent / "runs" / f"{folder.name}{NAME}"
    models = ["bigram", "transformer"]
    options = {"task": "next", "tokenizers": ["words"], "train": STEPS, "progress": False}
    return regard.compare(lines(folder), out, models=models, model=SMALL, **options).folder


@hostile_run
def compared_labels(folder: Path) -> Path:
    rows = [(text(i), draw([SCRIPT, QUOTED], 1, i)[0]) for i in range(RECORDS)]
    path, out = (
        table(folder, ["text", IMAGE], rows),
        folder.parent / "runs" / f"{folder.name}{NAME}",
    )
    options = {"task": "label", "target": IMAGE, "train": STEPS, "progress": False}
    models = ["majority", "logistic", "transformer"]
    return regard.compare(path, out, models=models, model=SMALL, **options).folder
