"""Labels and values on public sets, by the published protocols: the recipe's Transformer and other
rows, by seeds or folds, next to published results.

`regard train` trains each row: `transformer` (from scratch) and `pretrained` by recipes, the others
with defaults (`--model NAME`). Pretraining predicts masked tokens: of WikiText-2 for text, of the
molecules of HIV for molecules, of the training sequences themselves for proteins. It reads no test
record, except that some molecules of HIV are in other sets too, without their labels. Several seeds
give mean ± standard deviation, and an ensemble that averages their probabilities; folds are pooled,
so that each record is tested once. Validation metrics are printed too: they alone may select a row
or a setting. The gain from pretraining has a 95% interval over records, in pairs.

    python benchmarks/labels.py trec splice esol [--data DIR] [--rows transformer,logistic]
        [--seeds 5] [--jobs 1] [--set train.steps=300] [--keep FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from label_sets import CORPORA, SETS, Set

RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class Job:
    """One run: a row on one fold, or with one seed, and the arguments of `regard train`."""

    name: str
    row: str
    run: Path
    words: tuple[str, ...]
    init_from: Path | None = None  # the pretrained run


@dataclass(frozen=True)
class Result:
    """The seconds that training took, and the predictions by split."""

    seconds: float
    predictions: dict[str, Any]


def train_and_predict(job: Job) -> Result:
    """Train and predict, in this process."""
    import regard.cli
    from regard.api import load
    from regard.data.corpus import reopen

    began, output = time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = regard.cli.run(["train", *job.words, "--out", str(job.run), "--quiet"])
    if code:
        raise RuntimeError(f"regard train {' '.join(job.words)}\n{output.getvalue()[-3000:]}")
    seconds = time.perf_counter() - began
    if not job.row:  # pretraining
        return Result(seconds, {})
    corpus, predictor = reopen(job.run), load(job.run, verb="predict", device="auto")
    shards = {split: corpus.split(split) for split in ("valid", "test")}
    predictions = {s: predictor.predict_shard(x) for s, x in shards.items() if x is not None}
    return Result(seconds, predictions)


def arguments(
    name: str, one: Set, row: str, number: int, words: Sequence[str], sets: Sequence[str]
) -> list[str]:
    """Return the arguments of `regard train` for one fold or seed of a row."""
    chosen = ["--model", row]
    if row in ("transformer", "pretrained", *one.rows):
        recipe = CORPORA[one.corpus][2] if row == "pretrained" else one.recipe or name
        chosen = [str(RECIPES / f"{recipe}.toml"), *one.rows.get(row, ())]
        sets = [*one.settings, *sets]
    split = [f"data.fold={number}", f"data.folds={one.folds}"]
    if not one.folds:
        split = [f"train.seed={number}"]
        if "--valid" not in words:  # each seed has its own split
            test = 0.0 if "--test" in words else 0.1
            split += ["data.valid_fraction=0.1", f"data.test_fraction={test}"]
            split += [f'data.split="{one.split}"'] if one.split else []
            split += [] if one.split == "scaffold" else [f"data.split_seed={number}"]
    given = [word for each in (*split, *sets) for word in ("--set", each)]
    return [*chosen, *words, *given]


def pretraining(
    name: str, one: Set, words: Sequence[str], sets: Sequence[str], data: Path, folder: Path
) -> Job:
    """Return the run that the row `pretrained` starts from."""
    make, recipe, _ = CORPORA[one.corpus]
    run = folder / f"{name}-pretrained" if make is None else folder / f"{one.corpus}-pretrained"
    file, more = [words[0], "--input", "text"], list[str]()
    if make is not None:
        file = [str(make(data, folder / one.corpus))]
    elif "--valid" in words:
        more = ["--valid", words[words.index("--valid") + 1]]
    if make is None:
        sets = [*sets, *(each for each in one.settings if each.startswith("model.max_len"))]
    given = [word for each in sets for word in ("--set", each)]
    return Job(name, "", run, (str(RECIPES / f"{recipe}.toml"), *file, *more, *given))


def pool_folds(parts: Sequence[Any]) -> Any:
    """Return the predictions of all folds as one."""
    from regard.evaluation.predictions import Predictions

    joined = [np.concatenate([getattr(p, k) for p in parts]) for k in ("scores", "truths")]
    return Predictions(parts[0].task, *joined, np.concatenate([p.lengths for p in parts]))


def ensemble(parts: Sequence[Any]) -> Any:
    """Return the mean predictions of all seeds for the same records."""
    import torch

    from regard.evaluation.predictions import Predictions
    from regard.models.supervised import HEADS

    first = parts[0]
    stacked = torch.from_numpy(np.stack([p.scores for p in parts], 1))  # (N, seeds, O)
    scores = HEADS[first.task].average(stacked).numpy()
    return Predictions(first.task, scores, first.truths, first.lengths)


def summary(name: str, one: Set, row: str, results: Sequence[Result]) -> dict[str, Any]:
    """Return the metrics of a row."""
    seconds = statistics.fmean(result.seconds for result in results)
    table: dict[str, Any] = {"set": name, "row": row, "seconds": round(seconds, 1)}
    for split in ("valid", "test"):
        parts = [result.predictions[split] for result in results if split in result.predictions]
        if not parts:
            continue
        if one.folds:
            metrics = pool_folds(parts).metrics()
            table[split] = {key: metric.to_json() for key, metric in metrics.items()}
            continue
        each = [part.metrics() for part in parts]
        table[split] = {
            key: {
                "mean": statistics.fmean(f[key].value for f in each),
                "sd": statistics.stdev(f[key].value for f in each) if len(each) > 1 else 0.0,
                "values": [f[key].value for f in each],
            }
            for key in each[0]
        }
        if len(parts) > 1 and same_records(parts):
            metrics = ensemble(parts).metrics()
            table[split]["ensemble"] = {key: f.to_json() for key, f in metrics.items()}
    return table


def gain(results: Sequence[Result], others: Sequence[Result], metric: str) -> dict[str, Any]:
    """Return the paired difference of two rows' metric on the same test records."""
    from regard.evaluation.bootstrap import mean_over_seeds

    def estimate(row: Sequence[Result]) -> Any:
        parts = [result.predictions["test"] for result in row]
        if len(parts) > 1 and same_records(parts):
            return mean_over_seeds([part.estimates for part in parts])[metric]
        return pool_folds(parts).estimates[metric]

    difference: dict[str, Any] = estimate(results).minus(estimate(others)).to_json()
    return difference


def same_records(parts: Sequence[Any]) -> bool:
    """Return whether all predictions are for the same records."""
    return all(np.array_equal(p.truths, parts[0].truths, equal_nan=True) for p in parts)


def line(row: dict[str, Any], metric: str) -> str:
    """Return a row of the table as text."""
    cells = []
    for split in ("valid", "test"):
        metrics = row.get(split, {})
        if metric in metrics:
            one = metrics[metric]
            if "mean" in one:
                cells.append(f"{split} {one['mean']:.4f} ± {one['sd']:.4f}")
            else:
                cells.append(f"{split} {one['value']:.4f} [{one['low']:.4f}, {one['high']:.4f}]")
        if "ensemble" in metrics:
            cells.append(f"ensemble {metrics['ensemble'][metric]['value']:.4f}")
    if "gain" in row:
        g = row["gain"]
        cells.append(f"{g['value']:+.4f} [{g['low']:+.4f}, {g['high']:+.4f}] to transformer")
    return f"  {row['row']:<14} {metric} {', '.join(cells)}; {row['seconds']:.0f} s per run"


def main(sets: Mapping[str, Set] = SETS, about: str | None = __doc__) -> None:
    """Train, measure, print, write."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=[*sets, "all"], metavar="SET")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", default="transformer")
    parser.add_argument("--seeds", type=int, default=0, help="0: as in the protocol")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--set", action="append", default=[], help="for all runs")
    parser.add_argument("--keep", type=Path, help="folder in which the runs stay")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    names = list(sets) if "all" in args.names else args.names
    with tempfile.TemporaryDirectory() as temporary:
        run(sets, names, args, args.keep or Path(temporary))


def run(sets: Mapping[str, Set], names: Sequence[str], args: Any, folder: Path) -> None:
    """Prepare the sets and run their rows."""
    pretraining_jobs: dict[Path, Job] = {}
    jobs: dict[tuple[str, str], list[Job]] = {}
    for name in names:
        one, set_folder = sets[name], folder / name
        set_folder.mkdir(parents=True, exist_ok=True)
        words = one.prepare(args.data, set_folder)
        count = one.folds if one.folds > 0 else args.seeds or one.seeds
        if one.folds < 0:
            count = len(set((set_folder / "all.tsv").read_text().splitlines()[1:]))
        for row in args.rows.split(","):
            more, init_from = list[str](), None
            if row == "pretrained":
                if not one.corpus:
                    continue
                job = pretraining(name, one, words, args.set, args.data, folder)
                pretraining_jobs[job.run], init_from = job, job.run
                more = ["--pretrain", str(job.run)]
            jobs[name, row] = [
                Job(
                    name,
                    row,
                    set_folder / f"{row}-{n}",
                    (*arguments(name, one, row, n, words, args.set), *more),
                    init_from,
                )
                for n in range(count)
            ]
    run_jobs(sets, jobs, pretraining_jobs, args)


def run_jobs(
    sets: Mapping[str, Set],
    jobs: Mapping[tuple[str, str], Sequence[Job]],
    pretraining_jobs: Mapping[Path, Job],
    args: Any,
) -> None:
    """Run all jobs in parallel, fine-tuning after its pretraining; print each finished row."""
    results: dict[Job, Result] = {}
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        all_jobs = [job for row in jobs.values() for job in row]
        waiting = [job for job in all_jobs if job.init_from in pretraining_jobs]
        ready = [job for job in all_jobs if job.init_from not in pretraining_jobs]
        first = (*pretraining_jobs.values(), *ready)
        running = {pool.submit(train_and_predict, job): job for job in first}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                results[job] = future.result()
                for other in [each for each in waiting if each.init_from == job.run]:
                    waiting.remove(other)
                    running[pool.submit(train_and_predict, other)] = other
            for key, row in jobs.items():
                if key not in rows and all(job in results for job in row):
                    rows[key] = report_row(sets[key[0]], key, jobs, results)
                    if args.json:
                        ordered = [rows[key] for key in jobs if key in rows]
                        args.json.write_text(json.dumps(ordered, indent=1) + "\n")


def report_row(
    one: Set,
    key: tuple[str, str],
    jobs: Mapping[tuple[str, str], Sequence[Job]],
    results: Mapping[Job, Result],
) -> dict[str, Any]:
    """Print the metrics of a row, with the gain over the row from scratch if there is one."""
    name, row = key
    table = summary(name, one, row, [results[job] for job in jobs[key]])
    other = jobs.get((name, "transformer"), ())
    if row == "pretrained" and other and all(job in results for job in other):
        table["gain"] = gain(
            [results[j] for j in jobs[key]], [results[j] for j in other], one.metric
        )
    target = f"{name}: published {one.published}; goal {one.bar or 'close to it'}"
    print(f"{target}\n{line(table, one.metric)}", flush=True)
    return table


if __name__ == "__main__":
    main()
