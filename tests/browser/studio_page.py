"""A studio that serves small runs on loopback from a thread, for tests in Chromium."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from regard.api import train, train_recipe
from regard.planning import plan_recipe
from regard.studio.gate import Sessions
from regard.studio.opened import Opened
from regard.studio.server import Studio, bind

MARKUP = "<img src=x onerror=alert(1)>"
NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "sechs"}
SMALL = ["model.n_layers=1", "model.d_model=32", "model.dropout=0", "train.batch_tokens=400"]


@contextlib.contextmanager
def serving(runs: Path) -> Iterator[Sessions]:
    """Serve a folder of runs; `link()` of what is yielded opens it."""
    listener = bind(0)
    listener.listen()
    sessions = Sessions(listener.getsockname()[1])
    app: Any = Studio(Opened(runs), sessions).app()
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield sessions
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def make_runs(folder: Path) -> Path:
    """Train a bigram of names, a classifier and a translator, with markup in texts and labels;
    return the folder of runs.
    """
    draw = random.Random(0)
    words = [*NUMBERS, MARKUP]
    names, table = folder / "names.txt", folder / "table.csv"
    names.write_text("\n".join(a + b for a in NUMBERS for b in [*NUMBERS, "<b>x</b>"]) + "\n")
    rows = [draw.choices(words, k=3) for _ in range(150)]
    labels = [MARKUP if (MARKUP in row) != (i % 9 == 0) else "plain" for i, row in enumerate(rows)]
    lines = [f"{' '.join(row)},{label}" for row, label in zip(rows, labels, strict=True)]
    table.write_text("\n".join(["text,label", *lines]) + "\n")
    pairs = [draw.choices(list(NUMBERS), k=2) for _ in range(120)]
    (folder / "pairs.en").write_text("".join(f"{a} {b}\n" for a, b in pairs))
    (folder / "pairs.de").write_text("".join(f"{NUMBERS[a]} {NUMBERS[b]}\n" for a, b in pairs))
    runs = folder / "runs"
    train(names, runs / "names", model="bigram", progress=False)
    for name, files, keys in (
        ("labels", [table], ["data.target=label", "output.tokenizer=words", "train.steps=25"]),
        ("pairs", [folder / "pairs.en", folder / "pairs.de"], ["train.steps=30"]),
    ):
        keys = [key for key in [*SMALL, *keys] if not key.startswith("output.tokenizer")]
        recipe, _ = plan_recipe(files, assignments=[*keys, "model.name=transformer"])
        train_recipe(recipe, runs / name)
    return runs
