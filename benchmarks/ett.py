"""Forecasting ETTh1 (Zhou et al. 2021): all seven columns, 12 / 4 / 4 months, standardized.

Every model forecasts every window of the test months. Rows are means over seeds; the best row is
chosen by its validation error. Published code (PatchTST, DLinear) dropped the last incomplete batch
of 128 test windows: that figure stands beside the one over all windows.

    python benchmarks/ett.py --data DIR [--models ridge,nlinear] [--seeds 3] [--jobs 2]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from regard.evaluation.forecasting import load_forecasts

BORDERS = "8640,11520,14400"  # hours: 12, 16 and 20 months of 30 days
BATCH = 128  # of the published test loaders
COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
PUBLISHED = {  # MSE; DLinear: Zeng et al. 2023, PatchTST/64: Nie et al. 2023
    96: {"DLinear": 0.375, "PatchTST": 0.370},
    192: {"DLinear": 0.405, "PatchTST": 0.413},
    336: {"DLinear": 0.439, "PatchTST": 0.422},
    720: {"DLinear": 0.472, "PatchTST": 0.447},
}


def run(
    file: Path, model: str, horizon: int, seed: int, args: argparse.Namespace
) -> dict[str, Any]:
    """Train one model in its own process; return its errors."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "regard", "train", str(file), "--model", model]
        command += ["--horizon", str(horizon), "--lookback", str(args.lookback)]
        command += ["--borders", BORDERS, "--minutes", str(args.minutes), "--quiet", "--json"]
        command += ["--out", str(out), "--set", f"train.seed={seed}"]
        for assignment in args.set or ():
            command += ["--set", assignment]
        began = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
        process = subprocess.run(command, capture_output=True, text=True, env=environment)
        if process.returncode:
            raise RuntimeError(process.stderr[-500:])
        result = json.loads(process.stdout)
        errors = load_forecasts(out, COLUMNS)
        whole = len(errors.sums) // BATCH * BATCH
        squared, count = errors.sums[:, 1], errors.sums[:, 0]
        return {
            "model": model,
            "horizon": horizon,
            "seed": seed,
            "valid": result["metrics"]["valid"]["mse_standardized"]["value"],
            "test": float(squared.sum() / count.sum()),
            "whole_batches": float(squared[:whole].sum() / count[:whole].sum()),
            "mae": result["metrics"]["test"]["mae_standardized"]["value"],
            "coverage": result["metrics"]["test"]["coverage_80"]["value"],
            "steps": result["steps"],
            "train_seconds": result["train_seconds"],
            "wall_seconds": round(time.monotonic() - began, 1),
        }


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean of each model and horizon over seeds, the best on validation first."""
    rows = []
    for model, horizon in dict.fromkeys((r["model"], r["horizon"]) for r in results):
        seeds = [r for r in results if (r["model"], r["horizon"]) == (model, horizon)]
        keys = ("valid", "test", "whole_batches", "mae", "coverage", "train_seconds")
        means = {key: statistics.fmean(r[key] for r in seeds) for key in keys}
        spread = statistics.stdev(r["test"] for r in seeds) if len(seeds) > 1 else 0.0
        rows.append({"model": model, "horizon": horizon, "seeds": len(seeds), "sd": spread} | means)
    return sorted(rows, key=lambda row: (row["horizon"], row["valid"]))


def main() -> None:
    """Train, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="holds ett/ETTh1.csv.gz")
    parser.add_argument("--models", default="seasonal-naive,ridge,dlinear,nlinear,transformer")
    parser.add_argument("--horizons", default="96,192,336,720")
    parser.add_argument("--lookback", type=int, default=512)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    file = args.data / "ett" / "ETTh1.csv.gz"
    jobs = [
        (model, int(horizon), seed)
        for horizon in args.horizons.split(",")
        for model in args.models.split(",")
        for seed in range(args.seeds)
    ]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda job: run(file, *job, args), jobs))
    rows = table(results)
    print("horizon  model           valid    test  whole batches     MAE  covered  seconds")
    for row in rows:
        print(
            f"{row['horizon']:7}  {row['model']:14} {row['valid']:6.4f}  {row['test']:.4f} ± "
            f"{row['sd']:.4f} {row['whole_batches']:8.4f} {row['mae']:9.4f} {row['coverage']:7.3f} "
            f"{row['train_seconds']:8.1f}"
        )
    for horizon, published in PUBLISHED.items():
        best = next((row for row in rows if row["horizon"] == horizon), None)
        if best:
            others = ", ".join(f"{name} {value:.3f}" for name, value in published.items())
            figure = f"{best['model']} {best['whole_batches']:.4f}"
            print(f"{horizon}: best on validation {figure}; published {others}")
    if args.json:
        args.json.write_text(json.dumps({"runs": results, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
