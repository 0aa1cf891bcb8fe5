"""Training PatchTST: our trainer against a plain PyTorch model of the same shape with a DataLoader.

Both have the same blocks (the peer is written with torch.nn), batch, precision and optimizer. The
peer has a Dataset of windows, a DataLoader with 0, 2 and 4 workers, eager and compiled; its fastest
counts. Ours takes the whole step of the trainer. Rates are windows per second, medians over rounds.

    python benchmarks/series_speed.py [--device cuda] [--rounds 5] [--seconds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from regard.data.corpus import prepare
from regard.planning import plan_recipe
from regard.training.progress import Reporter
from regard.training.trainer import Session

STEPS, CHANNELS, LOOKBACK, HORIZON = 12_000, 7, 512, 96
LAYERS, WIDTH, PATCH, STRIDE = 3, 128, 16, 8


class WindowSet(Dataset):  # type: ignore[type-arg]
    """The windows of a series, cut when they are asked for."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = torch.from_numpy(values)

    def __len__(self) -> int:
        return len(self.values) - LOOKBACK - HORIZON + 1

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        window = self.values[i : i + LOOKBACK + HORIZON]
        return window[:LOOKBACK], window[LOOKBACK:]


class PlainPatchTST(nn.Module):
    """PatchTST with torch.nn alone."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH, config.d_model)
        self.positions = nn.Parameter(torch.randn(config.n_patches, config.d_model) * 0.02)
        layer = nn.TransformerEncoderLayer(
            config.d_model,
            config.n_heads,
            config.d_ff,
            config.dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, config.n_layers, enable_nested_tensor=False)
        self.head = nn.Linear(config.n_patches * config.d_model, HORIZON)

    def forward(self, past: Tensor) -> Tensor:
        mean = past.mean(1, keepdim=True)
        deviation = (past.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        rows = ((past - mean) / deviation).transpose(1, 2).flatten(0, 1)
        rows = nn.functional.pad(rows, (0, STRIDE), mode="replicate")
        x = self.encoder(self.embed(rows.unfold(1, PATCH, STRIDE)) + self.positions)
        out = self.head(x.flatten(1)).unflatten(0, (-1, CHANNELS)).transpose(1, 2)
        return out * deviation + mean


def peer(
    values: np.ndarray, config: Any, device: torch.device, batch: int, workers: int, compiled: bool
) -> Callable[[], int]:
    """Return a function that takes one step of the peer and returns its windows."""
    torch.manual_seed(0)
    model: Any = PlainPatchTST(config).to(device).train()
    model = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    options = {"persistent_workers": True} if workers else {}
    loader = DataLoader(
        WindowSet(values),
        batch,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        **options,
    )

    def stream() -> Iterator[Any]:
        while True:
            yield from loader

    batches = stream()

    def step() -> int:
        past, future = (x.to(device, non_blocking=True) for x in next(batches))
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            loss = nn.functional.mse_loss(model(past).float(), future)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return len(past)

    return step


def ours(file: Path, device: str, batch: int, folder: Path) -> tuple[Any, Callable[[], int], Any]:
    """Return the trainer, a function that takes one of its steps, and the values of training."""
    recipe, _ = plan_recipe(
        [file],
        task={"name": "forecast"},
        input={"horizon": HORIZON, "lookback": LOOKBACK},
        model={"name": "transformer", "n_layers": LAYERS, "d_model": WIDTH},
        train={
            "device": device,
            "steps": 100_000,
            "batch_tokens": batch * (LOOKBACK + HORIZON),
            "micro_tokens": batch * (LOOKBACK + HORIZON),
        },
    )
    session = Session(folder, False, Reporter(quiet=True), time.monotonic())
    folder.mkdir(parents=True, exist_ok=True)
    corpus = prepare(recipe, folder, lambda line: None)
    trainer = session.trainer(recipe, corpus, None)
    trainer.plan(100_000)
    trainer.model.train()
    count = iter(range(1 << 40))
    return trainer, lambda: trainer.take_step(next(count))[1], corpus.train


def rate(step: Callable[[], int], seconds: float, device: torch.device) -> float:
    """Return the windows per second of steps that take about so long."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began, windows = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        windows += step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return windows / (time.monotonic() - began)


def write_series(file: Path) -> None:
    """Write hourly waves with noise."""
    random = np.random.default_rng(0)
    steps = np.arange(STEPS)
    waves = np.sin(2 * np.pi * steps / 24)[:, None] + random.normal(size=(STEPS, CHANNELS))
    times = np.datetime64("2020-01-01T00", "h") + steps.astype("m8[h]")
    rows = [
        ",".join([str(t), *(f"{x:.4f}" for x in row)]) for t, row in zip(times, waves, strict=True)
    ]
    names = ",".join(f"x{i}" for i in range(CHANNELS))
    file.write_text("\n".join([f"time,{names}", *rows]) + "\n")


def main() -> None:
    """Time both in turns, and print the rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=0, help="windows; 128 on a GPU, else 16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = torch.device(args.device)
    batch = args.batch or (128 if device.type == "cuda" else 16)
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "series.csv"
        write_series(file)
        trainer, step, windows = ours(file, args.device, batch, Path(name) / "run")
        values = np.ascontiguousarray(windows.ids[: windows.starts.max() + windows.length])
        steps = {"ours": step}
        for workers, compiled in product((0, 2, 4), (False, True)):
            label = f"peer, {workers} workers, {'compiled' if compiled else 'eager'}"
            steps[label] = peer(values, trainer.model.config, device, batch, workers, compiled)
        sizes = [
            sum(p.numel() for p in m.parameters())
            for m in (trainer.model, PlainPatchTST(trainer.model.config))
        ]
        for one in steps.values():
            for _ in range(3):
                one()
        rates: dict[str, list[float]] = {label: [] for label in steps}
        for _ in range(args.rounds):
            for label, one in steps.items():
                rates[label].append(rate(one, args.seconds, device))
    medians = {label: statistics.median(values) for label, values in rates.items()}
    best = max((label for label in medians if label != "ours"), key=medians.__getitem__)
    ratios = [a / b for a, b in zip(rates["ours"], rates[best], strict=True)]
    print(f"{args.device}, batch {batch}, {sizes[0]:,} parameters (the peer {sizes[1]:,})")
    for label, value in medians.items():
        print(f"{label:28} {value:10,.0f} windows/s")
    print(f"ours / {best}: {statistics.median(ratios):.2f} ({min(ratios):.2f} – {max(ratios):.2f})")
    if args.json:
        args.json.write_text(json.dumps({"rates": medians, "ratio": statistics.median(ratios)}))


if __name__ == "__main__":
    main()
