"""Training a tiny translator beside JoeyNMT (the package must be importable), on a CPU.

4 + 4 layers, 128 wide, FFN 256, 4 heads, one vocabulary of 8,000, batches of 4,096 tokens. JoeyNMT
trains on the same pieces of the same pairs, written with spaces between them, by its own command;
its log gives target tokens a second every few steps. Its batches are as it makes them: 4,096 tokens
of the longer side of each pair, not sorted by length. Ours is the trainer's whole step, reading
included. They take turns; rates are medians, the first of each turn left out.

    python benchmarks/cpu_joeynmt.py [--data DIR] [--runs 3] [--steps 12] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from cpu_translate_train import TRAIN, made_trainer, pairs_of

from regard.training.trainer import Trainer


def write_pieces(trainer: Trainer, folder: Path) -> None:
    """The pairs as the peer reads them: our pieces, numbered, with spaces between them."""
    shard = trainer.corpus.train
    assert shard.source is not None
    for side, name in ((shard.source, "en"), (shard, "de")):
        lines = [
            " ".join(f"w{i}" for i in side.record(n)[1:-1].tolist()) for n in range(shard.records)
        ]
        (folder / "pieces.txt").write_text("\n".join(f"w{i}" for i in range(4, TRAIN.vocabulary)))
        for part, some in (("train", lines), ("dev", lines[:10])):
            path = folder / f"{part}.{name}"
            path.write_text("\n".join(line or "w0" for line in some) + "\n")


def configuration(folder: Path, steps: int) -> dict[str, Any]:
    """The peer's settings for the same work."""
    side = {"max_length": 200, "level": "word", "voc_file": str(folder / "pieces.txt")}
    stack = {
        "type": "transformer",
        "num_layers": TRAIN.n_layers,
        "num_heads": TRAIN.n_heads,
        "embeddings": {"embedding_dim": TRAIN.d_model, "scale": True, "dropout": 0.0},
        "hidden_size": TRAIN.d_model,
        "ff_size": TRAIN.d_ff,
        "dropout": 0.1,
    }
    return {
        "name": "tiny",
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder / f"model-{time.time_ns()}"),
        "use_cuda": False,
        "fp16": False,
        "data": {
            "train": str(folder / "train"),
            "dev": str(folder / "dev"),
            "test": str(folder / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "en", **side},
            "trg": {"lang": "de", **side},
        },
        "testing": {"beam_size": 1},
        "training": {
            "label_smoothing": 0.1,
            "optimizer": "adam",
            "learning_rate": 0.001,
            "scheduling": "noam",
            "learning_rate_min": 0,
            "clip_grad_norm": 1.0,
            "batch_size": TRAIN.batch_tokens,
            "batch_type": "token",
            "epochs": 1,
            "updates": steps,
            "logging_freq": 2,
            "validation_freq": 1_000_000,
        },
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": stack,
            "decoder": stack,
        },
    }


def peer(folder: Path, steps: int) -> float:
    """Target tokens a second by the peer's own log."""
    path = folder / "tiny.yaml"
    path.write_text(json.dumps(configuration(folder, steps)))  # JSON is YAML
    words = [sys.executable, "-m", "joeynmt", "train", str(path), "--skip-test"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    found = [float(x) for x in re.findall(r"Tokens per Sec:\s*([\d.]+)", done.stdout + done.stderr)]
    if len(found) < 3:
        raise SystemExit(f"JoeyNMT did not train:\n{done.stdout}\n{done.stderr[-2000:]}")
    return statistics.median(found[1:])


def ours(trainer: Trainer, steps: int) -> float:
    """Target tokens a second of whole steps."""
    trainer.model.train()
    rates = []
    for step in range(steps):
        tokens = sum(batch.tokens for batch in trainer.loader.step(step))
        began = time.perf_counter()
        trainer.take_step(step)
        rates.append(tokens / (time.perf_counter() - began))
    return statistics.median(rates[1:])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        trainer = made_trainer(TRAIN, pairs_of(args.data, folder, 29_000), folder, args.steps)
        write_pieces(trainer, folder)
        rows = [(ours(trainer, args.steps), peer(folder, args.steps)) for _ in range(args.runs)]
    mine, theirs = (statistics.median(column) for column in zip(*rows, strict=True))
    print(
        f"{torch.get_num_threads()} threads: regard {mine:,.0f} target tokens/s, JoeyNMT "
        f"{theirs:,.0f}, {mine / theirs:.2f} times"
    )
    if args.json:
        found = [{"regard": a, "joeynmt": b} for a, b in rows]
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
