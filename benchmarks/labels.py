"""Labels and values on public sets, by the published protocols: the recipe's Transformer and other
rows, by seeds or folds, with the published figure beside them.

A row is trained by `regard train`: `transformer`, from scratch, and `pretrained` by recipes, the
others as they come (`--model NAME`). Pre-training fills in masked tokens: of WikiText-2 for
text, of the molecules of HIV for molecules, of the training sequences themselves for proteins; of
test records it sees none, but for HIV's molecules, some of which are in other sets too, without
what is asked. Seeds are told as mean ± standard deviation and, together, as an ensemble whose
probabilities are averaged; folds are pooled: every record is tested once. Figures on the validation
side stand beside them, since they alone may choose a row or a setting.

    python benchmarks/labels.py trec splice esol [--data DIR] [--rows transformer,logistic]
        [--seeds 5] [--jobs 1] [--set train.steps=300] [--keep FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from label_sets import CORPORA, SETS, Set

RECIPES = Path(__file__).parent.parent / "recipes"
REGARD = [sys.executable, "-m", "regard"]


@dataclass(frozen=True)
class Job:
    """One run: a row on one fold, or with one seed."""

    row: str
    number: int
    run: Path


def regard(*words: str) -> float:
    """Run `regard train`; the seconds that took."""
    command, began = [*REGARD, "train", *words, "--quiet"], time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr[-3000:]}")
    return time.perf_counter() - began


def train(
    job: Job, name: str, one: Set, words: Sequence[str], sets: Sequence[str], start: Path
) -> float:
    """Train it; the seconds that took."""
    chosen = ["--model", job.row]
    if job.row in ("transformer", "pretrained", *one.rows):
        recipe = CORPORA[one.start][2] if job.row == "pretrained" else one.recipe or name
        chosen = [str(RECIPES / f"{recipe}.toml"), *one.rows.get(job.row, ())]
        sets = [*one.settings, *sets]
    more = ["--pretrain", str(start)] if job.row == "pretrained" else []
    split = [f"data.fold={job.number}", f"data.folds={one.folds}"]
    if not one.folds:
        split = [f"train.seed={job.number}"]
        if "--valid" not in words:  # other seeds, other sides
            test = 0.0 if "--test" in words else 0.1
            split += ["data.valid_fraction=0.1", f"data.test_fraction={test}"]
            split += [f'data.split="{one.split}"'] if one.split else []
            split += [] if one.split == "scaffold" else [f"data.split_seed={job.number}"]
    given = [word for each in (*split, *sets) for word in ("--set", each)]
    return regard(*chosen, *words, *more, "--out", str(job.run), *given)


def pretrain(
    name: str, words: Sequence[str], sets: Sequence[str], data: Path, folder: Path
) -> tuple[Path, float]:
    """The run that the row `pretrained` begins from, made once, and the seconds that took."""
    one = SETS[name]
    make, recipe, _ = CORPORA[one.start]
    run = folder / f"{name}-pretrained" if make is None else folder / f"{one.start}-pretrained"
    if (run / "regard.json").exists():
        return run, 0.0
    file, more = [words[0], "--input", "text"], list[str]()
    if make is not None:
        file = [str(make(data, folder / one.start))]
    elif "--valid" in words:
        more = ["--valid", words[words.index("--valid") + 1]]
    if make is None:
        sets = [*sets, *(each for each in one.settings if each.startswith("model.max_len"))]
    given = [word for each in sets for word in ("--set", each)]
    return run, regard(str(RECIPES / f"{recipe}.toml"), *file, *more, "--out", str(run), *given)


def measure(run: Path, side: str) -> Any:
    """The answers of a run on a held-out side."""
    from regard.api import load_examiner
    from regard.data.corpus import reopen

    shard = reopen(run).side(side)
    return None if shard is None else load_examiner(run, device="auto").measure(shard)


def pooled(parts: Sequence[Any]) -> Any:
    """The answers of all folds as one."""
    from regard.evaluate.answers import Answered

    joined = [np.concatenate([getattr(p, k) for p in parts]) for k in ("scores", "truths")]
    return Answered(parts[0].task, *joined, np.concatenate([p.lengths for p in parts]))


def ensemble(parts: Sequence[Any]) -> Any:
    """What all seeds say of the same records, on average."""
    from regard.evaluate.answers import Answered, averaged

    first = parts[0]
    stacked = np.stack([p.scores for p in parts], 1).reshape(-1, first.scores.shape[1])
    scores = averaged(first.task, stacked, len(parts))
    return Answered(first.task, scores, first.truths, first.lengths)


def summary(name: str, one: Set, row: str, runs: Sequence[Path], seconds: float) -> dict[str, Any]:
    """The figures of a row."""
    found: dict[str, Any] = {"set": name, "row": row, "seconds": round(seconds, 1)}
    for side in ("valid", "test"):
        parts = [part for run in runs if (part := measure(run, side)) is not None]
        if not parts:
            continue
        if one.folds:
            figures = pooled(parts).figures()
            found[side] = {key: figure.to_json() for key, figure in figures.items()}
            continue
        each = [part.figures() for part in parts]
        found[side] = {
            key: {
                "mean": statistics.fmean(f[key].value for f in each),
                "sd": statistics.stdev(f[key].value for f in each) if len(each) > 1 else 0.0,
                "values": [f[key].value for f in each],
            }
            for key in each[0]
        }
        same = all(np.array_equal(p.truths, parts[0].truths, equal_nan=True) for p in parts)
        if same and len(parts) > 1:
            together = ensemble(parts).figures()
            found[side]["ensemble"] = {key: f.to_json() for key, f in together.items()}
    return found


def line(found: dict[str, Any], metric: str) -> str:
    """A row of the table as text."""
    cells = []
    for side in ("valid", "test"):
        told = found.get(side, {})
        if metric in told:
            one = told[metric]
            if "mean" in one:
                cells.append(f"{side} {one['mean']:.4f} ± {one['sd']:.4f}")
            else:
                cells.append(f"{side} {one['value']:.4f} [{one['low']:.4f}, {one['high']:.4f}]")
        if "ensemble" in told:
            cells.append(f"together {told['ensemble'][metric]['value']:.4f}")
    return f"  {found['row']:<14} {metric} {', '.join(cells)}; {found['seconds']:.0f} s a run"


def main(sets: Mapping[str, Set] = SETS, about: str | None = __doc__) -> None:
    """Train, measure, print, write."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=[*sets, "all"], metavar="SET")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", default="transformer")
    parser.add_argument("--seeds", type=int, default=0, help="0: as the protocol has it")
    parser.add_argument("--jobs", type=int, default=1, help="trained side by side")
    parser.add_argument("--set", action="append", default=[], help="for all runs")
    parser.add_argument("--keep", type=Path, help="where the runs are to stay")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    everything = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in sets if "all" in args.names else args.names:
            one, folder = sets[name], (args.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            words = one.prepare(args.data, folder)
            count = one.folds if one.folds > 0 else args.seeds or one.seeds
            if one.folds < 0:
                count = len(set((folder / "all.tsv").read_text().splitlines()[1:]))
            print(f"{name}: published {one.published}; wanted {one.bar or 'beside it'}", flush=True)
            for row in args.rows.split(","):
                start, before = folder, 0.0
                if row == "pretrained":
                    start, before = pretrain(name, words, args.set, args.data, folder.parent)
                    print(f"  pre-training: {before:.0f} s", flush=True)
                jobs = [Job(row, n, folder / f"{row}-{n}") for n in range(count)]
                with ThreadPoolExecutor(args.jobs) as pool:
                    told = {"words": words, "sets": args.set, "start": start}
                    work = partial(train, name=name, one=one, **told)
                    took = list(pool.map(work, jobs))
                runs = [job.run for job in jobs]
                everything.append(summary(name, one, row, runs, statistics.fmean(took)))
                print(line(everything[-1], one.metric), flush=True)
    if args.json:
        args.json.write_text(json.dumps(everything, indent=1) + "\n")


if __name__ == "__main__":
    main()
